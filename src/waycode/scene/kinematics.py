"""Kinematics of tracks: acceleration, jerk, yaw rate, and nuPlan's six comfort bounds.

Derivatives are Savitzky-Golay fits of second order with nuPlan's windows. Axes: n or A tracks, T steps.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float
from scipy.signal import savgol_filter

from waycode.scene.types import Tracks

ACCELERATION_WINDOW, JERK_WINDOW, YAW_RATE_WINDOW, YAW_ACCELERATION_WINDOW = 8, 15, 5, 15  # nuPlan's, in steps
MIN_STEPS = max(JERK_WINDOW, YAW_ACCELERATION_WINDOW)  # of a track whose comfort is judged
_MOVING_DISTANCE_M = 3.0  # from the first observed position

# Least and greatest value of each quantity in comfortable driving (nuPlan).
COMFORT_BOUNDS: dict[str, tuple[float, float]] = {
    "longitudinal_acceleration_mps2": (-4.05, 2.40),
    "lateral_acceleration_mps2": (-4.89, 4.89),
    "jerk_mps3": (-8.37, 8.37),
    "longitudinal_jerk_mps3": (-4.13, 4.13),
    "yaw_rate_radps": (-0.95, 0.95),
    "yaw_acceleration_radps2": (-1.93, 1.93),
}


@dataclass(frozen=True, kw_only=True)
class Motion:
    """The six quantities of `COMFORT_BOUNDS`."""

    longitudinal_acceleration_mps2: Float[np.ndarray, "n T"]
    lateral_acceleration_mps2: Float[np.ndarray, "n T"]
    jerk_mps3: Float[np.ndarray, "n T"]
    longitudinal_jerk_mps3: Float[np.ndarray, "n T"]
    yaw_rate_radps: Float[np.ndarray, "n T"]
    yaw_acceleration_radps2: Float[np.ndarray, "n T"]


def motion(velocity_mps: Float[np.ndarray, "n T 2"], heading_rad: Float[np.ndarray, "n T"], *, dt_s: float) -> Motion:
    """The six quantities of n tracks from their velocities and headings at T >= `MIN_STEPS` consecutive steps."""
    heading = np.unwrap(np.asarray(heading_rad, np.float64), axis=1)
    acceleration = _derivative(np.asarray(velocity_mps, np.float64), ACCELERATION_WINDOW, dt_s)
    cos, sin = np.cos(heading), np.sin(heading)
    longitudinal = acceleration[..., 0] * cos + acceleration[..., 1] * sin
    return Motion(
        longitudinal_acceleration_mps2=longitudinal,
        lateral_acceleration_mps2=acceleration[..., 1] * cos - acceleration[..., 0] * sin,
        jerk_mps3=_derivative(np.linalg.norm(acceleration, axis=-1), JERK_WINDOW, dt_s),
        longitudinal_jerk_mps3=_derivative(longitudinal, JERK_WINDOW, dt_s),
        yaw_rate_radps=_derivative(heading, YAW_RATE_WINDOW, dt_s),
        yaw_acceleration_radps2=_derivative(heading, YAW_ACCELERATION_WINDOW, dt_s, order=2),
    )


def within_comfort(moves: Motion) -> Bool[np.ndarray, " n"]:
    """Which tracks stay within all six bounds at all steps."""
    kept = [
        ((getattr(moves, name) > least) & (getattr(moves, name) < greatest)).all(axis=1)
        for name, (least, greatest) in COMFORT_BOUNDS.items()
    ]
    return np.logical_and.reduce(kept)


def comfortable(tracks: Tracks, *, dt_s: float) -> tuple[Bool[np.ndarray, " A"], Bool[np.ndarray, " A"]]:
    """Which tracks stay within the six bounds, and which are judged: those that move and are observed without a gap for
    at least `MIN_STEPS` steps.
    """
    comfort, judged = np.zeros(len(tracks), np.bool_), np.zeros(len(tracks), np.bool_)
    velocity = np.stack([tracks.vx_mps, tracks.vy_mps], axis=-1)
    first, last = observed_span(tracks.valid)
    whole = tracks.valid.sum(axis=1) == last - first
    candidates = np.flatnonzero(whole & (last - first >= MIN_STEPS) & moving(tracks))
    spans = {(int(first[track]), int(last[track])) for track in candidates}
    for begin, end in sorted(spans):  # one batch per span of observed steps
        rows = candidates[(first[candidates] == begin) & (last[candidates] == end)]
        moves = motion(velocity[rows, begin:end], tracks.heading_rad[rows, begin:end], dt_s=dt_s)
        judged[rows], comfort[rows] = True, within_comfort(moves)
    return comfort, judged


def moving(tracks: Tracks) -> Bool[np.ndarray, " A"]:
    """Which tracks move more than 3 m from their first observed position."""
    first, _ = observed_span(tracks.valid)
    start = tracks.position_m[np.arange(len(tracks)), np.minimum(first, tracks.num_steps - 1)]
    distance = np.linalg.norm(tracks.position_m - start[:, None], axis=-1)
    return np.logical_or.reduce(np.where(tracks.valid, distance, 0) > _MOVING_DISTANCE_M, axis=1)


def observed_span(valid: Bool[np.ndarray, "A T"]) -> tuple[np.ndarray, np.ndarray]:
    """First observed step and the step after the last one, per track; (0, 0) for a track that is never observed."""
    seen = valid.any(axis=1)
    first = np.where(seen, valid.argmax(axis=1), 0)
    last = np.where(seen, valid.shape[1] - valid[:, ::-1].argmax(axis=1), 0)
    return first, last


def _derivative(values: np.ndarray, window: int, dt_s: float, *, order: int = 1) -> np.ndarray:
    """Derivative over the time axis (axis 1)."""
    matrix = derivative_matrix(values.shape[1], window=window, dt_s=dt_s, order=order)
    return np.asarray(matrix @ values if values.ndim == 3 else values @ matrix.T)  # ten times faster than np.einsum


@lru_cache(maxsize=256)
def derivative_matrix(
    num_steps: int, *, window: int, dt_s: float, order: int = 1, degree: int = 2
) -> Float[np.ndarray, "T T"]:
    """The Savitzky-Golay derivative, which is linear, as a matrix to multiply a signal with.

    Ten times faster than the filter for the few trajectories of a planner, and torch can differentiate through it.

    Args:
        num_steps: length T of the signal.
        window: of the filter, in steps.
        dt_s: seconds between steps.
        order: of the derivative; 0 smooths.
        degree: of the fitted polynomials.
    """
    matrix: np.ndarray = savgol_filter(np.eye(num_steps), window, degree, deriv=order, delta=dt_s, axis=0)
    matrix.flags.writeable = False  # cached, so shared
    return matrix
