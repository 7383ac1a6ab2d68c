"""Freezing: the ego stands for 3 s or more with nobody ahead in its way. Counted beside nuPlan's score, not part of it.

A step at which the ego stands is explained, and does not count, if
- a road user is ahead in its way, within 15 m of the front bumper;
- a red light's stop line on its route is within 10 m ahead of the front bumper;
- a junction is within 30 m ahead (or the ego is in one) and somebody is there in its way within the next 5 s, as
  simulated: the ego yields;
- its route or the known map ends within 5 m.
Its way is a strip along the path of its route, 0.5 m wider than the ego at each side. What happens after the end of the
run is not known: somebody who comes only then explains nothing.
Axes: A tracks, T steps of the run.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import Road, Vehicle
from waycode.driving.path import SPACING_M, is_red
from waycode.driving.road import STOP_LINE_MARGIN_M
from waycode.driving.vehicle import recorded_state
from waycode.scene import Scene
from waycode.scene.geometry import box_corners
from waycode.simulation.errors import require_ego

LEAST_FREEZE_S = 3.0
_STANDING_MPS = 0.2
_BESIDE_M = 0.5  # the way is wider than the ego by this at each side
_LANE_AHEAD_M, _JUNCTION_AHEAD_M, _LIGHT_AHEAD_M, _END_AHEAD_M = 15.0, 30.0, 10.0, 5.0
_YIELDING_S = 5.0
_FALLBACK_SPEED_MPS = 15.0  # `Road` needs one; freezing does not depend on it


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """A time in which the ego stands without a reason."""

    start_s: float  # since the start of the run
    duration_s: float


def find_freezes(driven: Scene, *, first_step: int) -> tuple[Freeze, ...]:
    """All freezes of a finished run, in order of time.

    Args:
        driven: the run as a scene (`Rollout.scene`).
        first_step: the step at which the run begins.
    """
    ego, dt_s = require_ego(driven), driven.dt_s
    unexplained = _stands(driven, ego, first_step) & ~_explained(driven, ego, first_step)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], unexplained, [False]]).astype(np.int8)))
    spells = edges.reshape(-1, 2)  # first step, and the step after the last
    return tuple(
        Freeze(start_s=float(start * dt_s), duration_s=float((end - start) * dt_s))
        for start, end in spells
        if (end - start) * dt_s >= LEAST_FREEZE_S - dt_s / 2
    )


def _stands(driven: Scene, ego: int, first_step: int) -> Bool[np.ndarray, " T"]:
    return np.asarray(driven.tracks.speed_mps[ego, first_step : driven.current_step + 1] < _STANDING_MPS)


def _explained(driven: Scene, ego: int, first_step: int) -> Bool[np.ndarray, " T"]:
    """Whether standing has a reason at each step."""
    tracks, steps = driven.tracks, slice(first_step, driven.current_step + 1)
    vehicle = Vehicle.of_size(length_m=float(tracks.length_m[ego]), width_m=float(tracks.width_m[ego]))
    start = replace(driven, current_step=first_step)
    state = recorded_state(start, ego, vehicle=vehicle)
    road = Road.ahead_of(start, state, vehicle=vehicle, fallback_mps=_FALLBACK_SPEED_MPS)
    centre_m = tracks.position_m[ego, steps].astype(np.float64)
    front_m = road.path.project(centre_m)[0] + vehicle.length_m / 2
    rear_m, reach_m = _in_the_way(driven, ego, steps, road, half_width_m=vehicle.width_m / 2 + _BESIDE_M)
    explained = front_m >= road.end_m - _END_AHEAD_M
    in_junction = np.append(road.path.in_junction, False)
    horizon = round(_YIELDING_S / driven.dt_s) + 1
    for step, front in enumerate(front_m):
        near = (reach_m[:, step] > front) & (rear_m[:, step] < front + _LANE_AHEAD_M)
        red_m = road.stop_m[road.is_on_path & is_red(driven.signals, first_step + step)] - front
        light = (red_m > -STOP_LINE_MARGIN_M) & (red_m < _LIGHT_AHEAD_M)
        from_index, to_index = np.clip(
            ((front - vehicle.length_m) / SPACING_M, (front + _JUNCTION_AHEAD_M) / SPACING_M), 0, len(in_junction) - 1
        ).astype(int)
        coming = slice(step, step + horizon)
        yields = (reach_m[:, coming] > front) & (rear_m[:, coming] < front + _JUNCTION_AHEAD_M)
        explained[step] |= near.any() | light.any() | (in_junction[from_index : to_index + 1].any() & yields.any())
    return np.asarray(explained)


def _in_the_way(
    driven: Scene, ego: int, steps: slice, road: Road, *, half_width_m: float
) -> tuple[Float[np.ndarray, "A T"], Float[np.ndarray, "A T"]]:
    """Where the box of each road user begins and ends along the path; where it is not in the way, begins at infinity
    and ends before everything."""
    tracks = driven.tracks
    valid = tracks.valid[:, steps] & (np.arange(len(tracks)) != ego)[:, None]
    size = np.ones(valid.shape)
    corners = box_corners(
        tracks.position_m[:, steps].astype(np.float64),
        tracks.heading_rad[:, steps].astype(np.float64),
        length_m=tracks.length_m[:, None] * size,
        width_m=tracks.width_m[:, None] * size,
    )
    along, offset = road.path.project(corners)  # [A, T, 4]
    inside = valid & (offset.min(axis=-1) < half_width_m) & (offset.max(axis=-1) > -half_width_m)
    return np.where(inside, along.min(axis=-1), np.inf), np.where(inside, along.max(axis=-1), -np.inf)
