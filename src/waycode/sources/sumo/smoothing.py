"""Converts SUMO's points on lanes to the motion of wheeled bodies and pedestrians.

SUMO reports the front bumper on the centreline of a lane, a chain of straight pieces, and a heading that jumps between
them. Here the front axle follows the smoothed path and the rear axle is dragged behind it (a tractrix), which gives
the heading and curvature of a car.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.signal import savgol_filter

from waycode.scene.geometry import arclengths

_PATH_WINDOW, _PATH_ORDER = 11, 3  # of the Savitzky-Golay filter: 1.1 s at 10 Hz
# Wider for pedestrians: SUMO's turn and stop within one step, real ones take about a second.
_WALK_WINDOW, _WALK_ORDER, _WALK_HEADING_WINDOW = 21, 2, 21


@dataclass(frozen=True, kw_only=True)
class BodyMotion:
    """Motion of one road user over the T steps of its track."""

    position_m: Float[np.ndarray, "T 2"]  # of the box centre
    heading_rad: Float[np.ndarray, " T"]
    velocity_mps: Float[np.ndarray, "T 2"]


def wheeled_motion(
    bumper_m: Float[np.ndarray, "T 2"],
    start_heading_rad: float,
    *,
    length_m: float,
    wheelbase_m: float,
    front_overhang_m: float,
    dt_s: float,
) -> BodyMotion:
    """Motion of a body with two axles.

    Args:
        bumper_m: path of the front bumper.
        start_heading_rad: heading at the first step.
        length_m: of the box.
        wheelbase_m: distance between the axles.
        front_overhang_m: distance from the front axle to the bumper.
        dt_s: time between steps.
    """
    path = _smooth(bumper_m)
    axle = _behind_on_path(path, start_heading_rad, front_overhang_m)
    heading = _tractrix_heading(axle, start_heading_rad, wheelbase_m)
    forward = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    centre = axle + (front_overhang_m - length_m / 2) * forward
    return BodyMotion(position_m=centre, heading_rad=heading, velocity_mps=_velocity(centre, dt_s))


def walking_motion(position_m: Float[np.ndarray, "T 2"], start_heading_rad: float, *, dt_s: float) -> BodyMotion:
    """Motion of a pedestrian, who faces the walking direction and keeps the heading while waiting."""
    path = _smooth(position_m, window=_WALK_WINDOW, order=_WALK_ORDER)
    velocity = _velocity(path, dt_s)
    walking = np.linalg.norm(velocity, axis=1) > 0.3
    angle = np.where(walking, np.arctan2(velocity[:, 1], velocity[:, 0]), np.nan)
    known = np.flatnonzero(walking)
    if len(known) == 0:
        heading = np.full(len(path), start_heading_rad)
    else:
        # Hold the last known direction; before the first movement use the direction of that movement.
        held = np.maximum.accumulate(np.where(walking, np.arange(len(path)), -1))
        heading = np.unwrap(angle[np.where(held < 0, known[0], held)])
        heading = _smooth(heading, window=_WALK_HEADING_WINDOW, order=1)
    return BodyMotion(position_m=path, heading_rad=heading, velocity_mps=velocity)


def _smooth(values: np.ndarray, *, window: int = _PATH_WINDOW, order: int = _PATH_ORDER) -> np.ndarray:
    if len(values) < window:
        return np.asarray(values, np.float64)
    smoothed: np.ndarray = savgol_filter(values, window, order, axis=0)
    return smoothed


def _behind_on_path(
    path_m: Float[np.ndarray, "T 2"], heading_rad: float, distance_m: float
) -> Float[np.ndarray, "T 2"]:
    """For each point of the path, the point `distance_m` before it on the path, which is extended backwards."""
    along = arclengths(path_m)
    before_start = path_m[0] - (distance_m + 1) * np.array([np.cos(heading_rad), np.sin(heading_rad)])
    extended = np.concatenate([before_start[None], path_m])
    at = np.concatenate([[-(distance_m + 1)], along])
    wanted = along - distance_m
    return np.stack([np.interp(wanted, at, extended[:, axis]) for axis in (0, 1)], axis=-1)


def _tractrix_heading(
    axle_m: Float[np.ndarray, "T 2"], start_heading_rad: float, wheelbase_m: float
) -> Float[np.ndarray, " T"]:
    """Heading of a body whose front axle follows these points and whose rear axle is dragged behind."""
    step = np.diff(axle_m, axis=0)
    length = np.linalg.norm(step, axis=1)
    direction = np.arctan2(step[:, 1], step[:, 0])
    heading = np.empty(len(axle_m))
    heading[0] = start_heading_rad
    for index in range(len(step)):
        heading[index + 1] = dragged_heading(
            heading[index], length_m=length[index], direction_rad=direction[index], wheelbase_m=wheelbase_m
        )
    return heading


def dragged_heading(heading_rad: float, *, length_m: float, direction_rad: float, wheelbase_m: float) -> float:
    """The heading of a body after its front axle moved in a straight line (one step of a tractrix).

    After a distance s, the angle b between body and direction is reduced to 2 atan(tan(b/2) exp(-s / wheelbase)).

    Args:
        heading_rad: heading before the step.
        length_m: length of the step.
        direction_rad: direction of the step.
        wheelbase_m: distance between the axles.
    """
    if length_m < 1e-4:  # standing: numerical noise must not rotate the body
        return heading_rad
    angle = (heading_rad - direction_rad + np.pi) % (2 * np.pi) - np.pi
    angle_after = 2 * np.arctan(np.tan(angle / 2) * np.exp(-length_m / wheelbase_m))
    return float(heading_rad - (angle - angle_after))


def _velocity(position_m: Float[np.ndarray, "T 2"], dt_s: float) -> Float[np.ndarray, "T 2"]:
    return np.gradient(position_m, dt_s, axis=0) if len(position_m) > 1 else np.zeros_like(position_m)
