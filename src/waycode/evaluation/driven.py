"""A way that was driven or planned, and what it does: how far it turns, which lanes it takes, how fast it is.

Axes: F the current step and the steps after it. A recorded future and a plan are measured in exactly the same way: by
their positions, from which headings follow.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import BSpline, make_lsq_spline

from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import project
from waycode.scene.lane_graph import LaneGraph

MOVING_MPS = 0.5  # who is slower has no direction of motion
KNOT_SPACING_S = 1.0  # of the B-spline: smooths noise of single steps and keeps any turn of a car
LATE_S = 3.0  # the speed is asked for in the last three seconds (appendix A.7)


@dataclass(frozen=True, kw_only=True)
class Driven:
    """Positions in the scene frame, the current one first, and how they were come to."""

    position_m: Float[np.ndarray, "F 2"]
    past_m: Float[np.ndarray, "H 2"]  # observed before the current step, without gaps
    start_heading_rad: float
    dt_s: float

    @staticmethod
    def of(scene: Scene, agent: int, future_m: Float[np.ndarray, "T 2"] | None = None) -> "Driven":
        """A plan of an agent from the current step on, or what the agent did over the same steps if there is none."""
        tracks, now = scene.tracks, scene.current_step
        recorded = tracks.position_m[agent].astype(np.float64)
        future = recorded[now + 1 :] if future_m is None else np.asarray(future_m, np.float64)
        gaps = np.flatnonzero(~tracks.valid[agent, :now])
        return Driven(
            position_m=np.concatenate([recorded[now : now + 1], future]),
            past_m=recorded[int(gaps[-1]) + 1 if len(gaps) else 0 : now],
            start_heading_rad=float(tracks.heading_rad[agent, now]),
            dt_s=scene.dt_s,
        )

    @cached_property
    def speed_mps(self) -> Float[np.ndarray, " T"]:
        """Mean speed over each step."""
        return np.linalg.norm(np.diff(self.position_m, axis=0), axis=1) / self.dt_s

    @cached_property
    def heading_rad(self) -> Float[np.ndarray, " F"]:
        """Direction of motion (central differences), held while standing; at first that of the body."""
        ends = np.concatenate([self.position_m[2:] - self.position_m[:-2], np.diff(self.position_m[-2:], axis=0)])
        spans = np.append(np.full(len(ends) - 1, 2 * self.dt_s), self.dt_s)
        moving = np.append(False, np.linalg.norm(ends, axis=1) / spans > MOVING_MPS)
        angle = np.append(self.start_heading_rad, np.arctan2(ends[:, 1], ends[:, 0]))
        return angle[np.maximum.accumulate(np.where(moving, np.arange(len(angle)), 0))]

    @property
    def mean_speed_mps(self) -> float:
        return float(self.speed_mps.mean())

    @property
    def late_speed_mps(self) -> float:
        """The greatest speed in the last three seconds."""
        return float(self.speed_mps[-round(LATE_S / self.dt_s) :].max())

    def leftward_turn_rad(self) -> float:
        """Cumulative leftward change of heading along a B-spline fitted to the way (the paper's footnote)."""
        time_s = np.arange(len(self.position_m)) * self.dt_s
        velocity = _fitted(time_s, self.position_m).derivative()(time_s)
        moving = velocity[np.linalg.norm(velocity, axis=1) > MOVING_MPS]
        return float(np.maximum(wrap_angle(np.diff(np.arctan2(moving[:, 1], moving[:, 0]))), 0).sum())


@dataclass(frozen=True, kw_only=True)
class LaneUse:
    """Which lanes a way takes."""

    changes_left: int
    changes_right: int
    centre_distance_m: float  # mean over the steps on a lane; NaN if there is none


def lane_use(index: LaneGraph, driven: Driven) -> LaneUse:
    """Lane changes and the mean distance from the nearest lane's centreline."""
    lane = index.lane_at(driven.position_m, driven.heading_rad)
    left, right = lane_changes(index, lane)
    distance = [
        np.abs(project(driven.position_m[lane == taken], index.lanes.centrelines[int(taken)].astype(np.float64))[1])
        for taken in np.unique(lane[lane >= 0])
    ]
    centre = float(np.concatenate(distance).mean()) if distance else float("nan")
    return LaneUse(changes_left=left, changes_right=right, centre_distance_m=centre)


def lane_changes(index: LaneGraph, lane: Int[np.ndarray, " F"]) -> tuple[int, int]:
    """How often a road user that is on these lanes in turn (-1: on none) changes to the left and to the right.

    Within a junction lanes cross and overlap, so that only what happens between junctions counts.
    """
    clear = lane[(lane >= 0) & ~index.lanes.in_junction[lane]].tolist()
    changes = [index.change(a, b) for a, b in pairwise(clear) if a != b]
    return changes.count(1), changes.count(-1)


def _fitted(time_s: Float[np.ndarray, " F"], position_m: Float[np.ndarray, "F 2"]) -> BSpline:
    """Cubic least-squares B-spline of position over time."""
    pieces = max(1, round(time_s[-1] / KNOT_SPACING_S))
    inner = np.linspace(time_s[0], time_s[-1], pieces + 1)[1:-1]
    knots = np.concatenate([np.repeat(time_s[0], 4), inner, np.repeat(time_s[-1], 4)])
    return make_lsq_spline(time_s, position_m, knots, k=3)
