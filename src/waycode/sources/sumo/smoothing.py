"""From SUMO's points on lanes to the motion of bodies with wheels.

SUMO reports where the front bumper is, on a lane's centreline that is a chain of straight pieces, and a heading that
jumps with it. A real car's front axle follows such a path smoothly and its rear axle is dragged behind (a tractrix):
heading and curvature then come out as those of a car.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.signal import savgol_filter

PATH_WINDOW, PATH_ORDER = 11, 3  # Savitzky-Golay, 1.1 s at 10 Hz
# SUMO's pedestrians turn and stop within a step; people take about a second.
WALK_WINDOW, WALK_ORDER, WALK_HEADING_WINDOW = 21, 2, 21


@dataclass(frozen=True, kw_only=True)
class BodyMotion:
    """Centre of the box, heading and velocity over the T steps of one road user's life."""

    position_m: Float[np.ndarray, "T 2"]
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
    """Motion of a body on two axles whose front bumper was reported at these points."""
    path = _smooth(bumper_m)
    axle = _behind_on_path(path, start_heading_rad, front_overhang_m)
    heading = _tractrix_heading(axle, start_heading_rad, wheelbase_m)
    forward = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    centre = axle + (front_overhang_m - length_m / 2) * forward
    return BodyMotion(position_m=centre, heading_rad=heading, velocity_mps=_velocity(centre, dt_s))


def walking_motion(position_m: Float[np.ndarray, "T 2"], start_heading_rad: float, *, dt_s: float) -> BodyMotion:
    """Motion of a person, who faces the way she walks and keeps facing it when she waits."""
    path = _smooth(position_m, window=WALK_WINDOW, order=WALK_ORDER)
    velocity = _velocity(path, dt_s)
    walking = np.linalg.norm(velocity, axis=1) > 0.3
    angle = np.where(walking, np.arctan2(velocity[:, 1], velocity[:, 0]), np.nan)
    known = np.flatnonzero(walking)
    if len(known) == 0:
        heading = np.full(len(path), start_heading_rad)
    else:
        # Hold the last known direction; before the first step already face it.
        held = np.maximum.accumulate(np.where(walking, np.arange(len(path)), -1))
        heading = np.unwrap(angle[np.where(held < 0, known[0], held)])
        heading = _smooth(heading, window=WALK_HEADING_WINDOW, order=1)
    return BodyMotion(position_m=path, heading_rad=heading, velocity_mps=velocity)


def _smooth(values: np.ndarray, *, window: int = PATH_WINDOW, order: int = PATH_ORDER) -> np.ndarray:
    if len(values) < window:
        return np.asarray(values, np.float64)
    smoothed: np.ndarray = savgol_filter(values, window, order, axis=0)
    return smoothed


def _behind_on_path(
    path_m: Float[np.ndarray, "T 2"], heading_rad: float, distance_m: float
) -> Float[np.ndarray, "T 2"]:
    """For each point of the path, the point that lies `distance_m` before it on the same path."""
    steps = np.linalg.norm(np.diff(path_m, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    before_start = path_m[0] - (distance_m + 1) * np.array([np.cos(heading_rad), np.sin(heading_rad)])
    extended = np.concatenate([before_start[None], path_m])
    at = np.concatenate([[-(distance_m + 1)], along])
    wanted = along - distance_m
    return np.stack([np.interp(wanted, at, extended[:, axis]) for axis in (0, 1)], axis=-1)


def _tractrix_heading(
    axle_m: Float[np.ndarray, "T 2"], start_heading_rad: float, wheelbase_m: float
) -> Float[np.ndarray, " T"]:
    """Heading of a body whose front axle goes through these points and whose rear axle rolls behind it."""
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
    """The heading after the front axle has made a straight step.

    For a step of length s the angle b between body and step shrinks as tan(b/2) * exp(-s / wheelbase).
    """
    if length_m < 1e-4:  # standing: numerical noise must not turn the body
        return heading_rad
    angle = (heading_rad - direction_rad + np.pi) % (2 * np.pi) - np.pi
    angle_after = 2 * np.arctan(np.tan(angle / 2) * np.exp(-length_m / wheelbase_m))
    return float(heading_rad - (angle - angle_after))


def _velocity(position_m: Float[np.ndarray, "T 2"], dt_s: float) -> Float[np.ndarray, "T 2"]:
    return np.gradient(position_m, dt_s, axis=0) if len(position_m) > 1 else np.zeros_like(position_m)
