"""Comfort: the ego's accelerations, jerks and yaw rates by nuPlan's filters, and its bounds on them. Axes: T steps.

Accelerations are those of the states, smoothed; the rest are derivatives. All are Savitzky-Golay fits: windows of 8
steps for acceleration, 15 for jerk, 5 for yaw rate (second order), 5 for yaw acceleration (third order).
"""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float
from scipy.signal import savgol_filter

from waycode.scene.kinematics import ACCELERATION_WINDOW, COMFORT_BOUNDS, JERK_WINDOW, YAW_RATE_WINDOW
from waycode.simulation.history import EgoHistory
from waycode.simulation.metrics.results import Evidence, MetricResult, boolean, series_statistics

_LEAST_STEPS = 4  # a fit of third order needs as many points


@dataclass(frozen=True, kw_only=True)
class Dynamics:
    """The ego's dynamics per step. Accelerations and their derivatives are those of the centre of its box, as nuPlan
    computes them (`EgoHistory.centre_acceleration_mps2`); the magnitude is that of the rear axle."""

    acceleration_mps2: Float[np.ndarray, " T"]  # magnitude, of the rear axle (nuPlan)
    longitudinal_acceleration_mps2: Float[np.ndarray, " T"]
    lateral_acceleration_mps2: Float[np.ndarray, " T"]
    jerk_mps3: Float[np.ndarray, " T"]  # derivative of the acceleration's magnitude at the rear axle (nuPlan)
    longitudinal_jerk_mps3: Float[np.ndarray, " T"]
    lateral_jerk_mps3: Float[np.ndarray, " T"]
    yaw_rate_radps: Float[np.ndarray, " T"]
    yaw_acceleration_radps2: Float[np.ndarray, " T"]


def compute_dynamics(ego: EgoHistory) -> Dynamics | None:
    """The ego's dynamics; None if the run has too few steps to fit them."""
    if len(ego) < _LEAST_STEPS:
        return None
    dt_s = float(np.diff(ego.time_s).mean())

    def fit(
        values: Float[np.ndarray, " T"], window: int, *, derivative: int = 1, degree: int = 2
    ) -> Float[np.ndarray, " T"]:
        return np.asarray(savgol_filter(values, min(window, len(values)), degree, deriv=derivative, delta=dt_s))

    magnitude = fit(np.linalg.norm(ego.acceleration_mps2, axis=1), ACCELERATION_WINDOW, derivative=0)
    longitudinal, lateral = (
        fit(values, ACCELERATION_WINDOW, derivative=0) for values in ego.centre_acceleration_mps2.T
    )
    heading = np.unwrap(ego.heading_rad)
    return Dynamics(
        acceleration_mps2=magnitude,
        longitudinal_acceleration_mps2=longitudinal,
        lateral_acceleration_mps2=lateral,
        jerk_mps3=fit(magnitude, JERK_WINDOW),
        longitudinal_jerk_mps3=fit(longitudinal, JERK_WINDOW),
        lateral_jerk_mps3=fit(lateral, JERK_WINDOW),
        yaw_rate_radps=fit(heading, YAW_RATE_WINDOW),
        # nuPlan asks for a window of 15 here, but its extractor drops the argument and fits 5 steps.
        yaw_acceleration_radps2=fit(heading, YAW_RATE_WINDOW, derivative=2, degree=3),
    )


def dynamics_statistics(dynamics: Dynamics, name: str, *, bounds: tuple[float, float] | None = None) -> MetricResult:
    """Statistics and series of one quantity.

    Args:
        dynamics: the ego's dynamics.
        name: a field of `Dynamics`.
        bounds: if given, the score is 1 if all values are strictly within these bounds, else 0.
    """
    known = [field.name for field in fields(Dynamics)]
    if name not in known:
        raise ValueError(f"unknown quantity {name!r}, known are {', '.join(known)}")
    values = getattr(dynamics, name)
    statistics = series_statistics(name, values)
    kept = True
    if bounds is not None:
        kept = bool(((values > bounds[0]) & (values < bounds[1])).all())
        statistics.append(boolean(f"{name}_within_bounds", kept))
    return MetricResult(name=name, score=float(kept), statistics=tuple(statistics), series=values)


def comfort(ego: EgoHistory, dynamics: Dynamics | None) -> MetricResult:
    """1 if the ego keeps all of `COMFORT_BOUNDS` at every step, else 0.

    A run shorter than the window of the jerk scores 0, as in nuPlan's fixture.
    """
    evidence = []
    applicable = dynamics is not None and len(ego) >= JERK_WINDOW
    if not applicable:
        description = f"comfort needs {JERK_WINDOW} steps or more, the run has {len(ego)}"
        evidence.append(Evidence(time_s=float(ego.time_s[-1]), description=description))
    for name, (least, greatest) in COMFORT_BOUNDS.items() if applicable else ():
        values = getattr(dynamics, name)
        excess = np.maximum(least - values, values - greatest)
        worst = int(excess.argmax())
        if excess[worst] >= 0:
            description = f"{name} is {values[worst]:.2f}, comfortable is {least} to {greatest}"
            evidence.append(Evidence(time_s=float(ego.time_s[worst]), description=description))
    return MetricResult(
        name="comfort",
        score=float(not evidence),
        statistics=(boolean("comfort", not evidence),),
        evidence=tuple(evidence),
        applicable=applicable,
    )
