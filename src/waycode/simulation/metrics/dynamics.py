"""The ego's accelerations, jerks and turn rates as nuPlan measures them, and whether they are comfortable.

Accelerations are those that the states carry, smoothed; jerks and turn rates are derivatives. All by Savitzky-Golay
fits: windows of 8 steps for acceleration, 15 for jerk, 5 for yaw rate (second order), 5 for yaw acceleration (third).
"""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float
from scipy.signal import savgol_filter

from waycode.scene.kinematics import ACCELERATION_WINDOW, COMFORT_BOUNDS, JERK_WINDOW, YAW_RATE_WINDOW
from waycode.simulation.history import EgoStates
from waycode.simulation.metrics.results import Evidence, MetricResult, boolean, series_statistics

MIN_STEPS = 4  # a fit of third order needs more points than that


@dataclass(frozen=True, kw_only=True)
class Dynamics:
    """One value per simulated step; accelerations along and across are those of the centre of the box."""

    longitudinal_acceleration_mps2: Float[np.ndarray, " T"]
    lateral_acceleration_mps2: Float[np.ndarray, " T"]
    jerk_mps3: Float[np.ndarray, " T"]
    longitudinal_jerk_mps3: Float[np.ndarray, " T"]
    lateral_jerk_mps3: Float[np.ndarray, " T"]
    yaw_rate_radps: Float[np.ndarray, " T"]
    yaw_acceleration_radps2: Float[np.ndarray, " T"]


def dynamics(ego: EgoStates) -> Dynamics | None:
    """The ego's dynamics, or None if it was simulated for too few steps to fit them."""
    if len(ego) < MIN_STEPS:
        return None
    dt_s = float(np.diff(ego.time_s).mean())
    magnitude = _smooth(np.linalg.norm(ego.acceleration_mps2, axis=1))
    longitudinal, lateral = (_smooth(values) for values in ego.centre_acceleration_mps2.T)
    heading = np.unwrap(ego.heading_rad)
    return Dynamics(
        longitudinal_acceleration_mps2=longitudinal,
        lateral_acceleration_mps2=lateral,
        jerk_mps3=_derivative(magnitude, JERK_WINDOW, dt_s),
        longitudinal_jerk_mps3=_derivative(longitudinal, JERK_WINDOW, dt_s),
        lateral_jerk_mps3=_derivative(lateral, JERK_WINDOW, dt_s),
        yaw_rate_radps=_derivative(heading, YAW_RATE_WINDOW, dt_s),
        # nuPlan asks for a window of 15 here too, but its extractor drops the argument and fits 5 steps.
        yaw_acceleration_radps2=_derivative(heading, YAW_RATE_WINDOW, dt_s, order=2, degree=3),
    )


def dynamics_statistics(found: Dynamics, name: str, *, bounds: tuple[float, float] | None = None) -> MetricResult:
    """The series of one quantity and its sums; with bounds also whether it stays strictly within them."""
    known = [field.name for field in fields(Dynamics)]
    if name not in known:
        raise ValueError(f"unknown quantity {name!r}, known are {', '.join(known)}")
    values = getattr(found, name)
    statistics = series_statistics(name, values)
    kept = True
    if bounds is not None:
        kept = bool(((values > bounds[0]) & (values < bounds[1])).all())
        statistics.append(boolean(f"{name}_within_bounds", kept))
    return MetricResult(name=name, score=float(kept), statistics=tuple(statistics), series=values)


def comfort(ego: EgoStates, found: Dynamics | None) -> MetricResult:
    """1 if the ego keeps to all six bounds of comfort at all times, else 0.

    A run that is shorter than the window of the jerk is not shown to be comfortable: 0, as nuPlan's fixture has it.
    """
    if found is None or len(ego) < JERK_WINDOW:
        what = f"comfort is judged over {JERK_WINDOW} steps or more, the run has {len(ego)}"
        short = (Evidence(time_s=float(ego.time_s[-1]), what=what),)
        return MetricResult(
            name="comfort", score=0.0, statistics=(boolean("comfort", False),), evidence=short, judged=False
        )
    evidence = []
    for name, (least, greatest) in COMFORT_BOUNDS.items():
        values = getattr(found, name)
        excess = np.maximum(least - values, values - greatest)
        worst = int(excess.argmax())
        if excess[worst] >= 0:
            what = f"{name} is {values[worst]:.2f}, comfortable is {least} to {greatest}"
            evidence.append(Evidence(time_s=float(ego.time_s[worst]), what=what))
    statistics = (boolean("comfort", not evidence),)
    return MetricResult(name="comfort", score=float(not evidence), statistics=statistics, evidence=tuple(evidence))


def _smooth(values: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    return np.asarray(savgol_filter(values, min(ACCELERATION_WINDOW, len(values)), 2))


def _derivative(
    values: Float[np.ndarray, " T"], window: int, dt_s: float, *, order: int = 1, degree: int = 2
) -> Float[np.ndarray, " T"]:
    return np.asarray(savgol_filter(values, min(window, len(values)), degree, deriv=order, delta=dt_s))
