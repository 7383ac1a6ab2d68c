"""Distance of the ego and of its plans from the expert: nuPlan's open-loop metrics. They are not part of the score.

Axes: T steps, F frames (one plan each), P points of a plan, Q times of comparison, H horizons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.scene.frames import wrap_angle
from waycode.simulation.history import EgoHistory
from waycode.simulation.metrics.results import MetricResult, Statistic, StatisticKind, boolean, series_statistics

# nuPlan's values.
MOST_L2_ERROR_M = 8.0
MOST_HEADING_ERROR_RAD = 0.8
HEADING_WEIGHT_M = 2.5
_HORIZONS_S = (3.0, 5.0, 8.0)
_MISS_DISTANCE_M = (6.0, 8.0, 16.0)  # for each horizon
_COMPARED_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class PlanErrors:
    """Distances and heading differences between plans and the expert, up to each horizon."""

    average_m: Float[np.ndarray, "H F"]
    final_m: Float[np.ndarray, "H F"]
    greatest_m: Float[np.ndarray, "H F"]
    average_rad: Float[np.ndarray, "H F"]
    final_rad: Float[np.ndarray, "H F"]


def mean_speed(ego: EgoHistory) -> MetricResult:
    """The ego's mean speed; the score is always 1."""
    value = Statistic(kind=StatisticKind.VALUE, name="mean_speed_mps", value=float(ego.speed_mps.mean()))
    return MetricResult(name="mean_speed", score=1.0, statistics=(value,))


def expert_l2_error(ego: EgoHistory, expert: EgoHistory, *, heading_weight_m: float = 0.0) -> MetricResult:
    """Distance between the centres of ego and expert per step; the score is always 1.

    Args:
        ego: the ego over T steps.
        expert: the recorded ego, compared over the steps that both have.
        heading_weight_m: distance that is added per radian of heading difference.
    """
    steps = min(len(ego), len(expert))
    angle = np.abs(wrap_angle(ego.heading_rad[:steps] - expert.heading_rad[:steps]))
    error = np.linalg.norm(ego.centre_m[:steps] - expert.centre_m[:steps], axis=1) + heading_weight_m * angle
    kinds = (StatisticKind.MAX, StatisticKind.MEAN, StatisticKind.P90)
    statistics = tuple(series_statistics("expert_l2_error_m", error, kinds=kinds))
    return MetricResult(name="expert_l2_error", score=1.0, statistics=statistics, series=error)


def plan_errors(
    time_s: Float[np.ndarray, "F P"],
    centre_m: Float[np.ndarray, "F P 2"],
    heading_rad: Float[np.ndarray, "F P"],
    *,
    expert: EgoHistory,
    horizons_s: Sequence[float] = _HORIZONS_S,
) -> PlanErrors:
    """Errors of plans at whole seconds up to each horizon; a shorter plan is compared at its end instead.

    Args:
        time_s: times of the plans' points; the first is the time of planning.
        centre_m: planned positions of the centre of the ego's box.
        heading_rad: planned headings.
        expert: the recorded ego.
        horizons_s: H horizons.
    """
    later_s = np.arange(_COMPARED_EVERY_S, max(horizons_s) + 1e-6, _COMPARED_EVERY_S)
    at_s = np.minimum(time_s[:, :1] + later_s, time_s[:, -1:])  # [F, Q]
    planned = [
        _sample(at, *plan) for at, plan in zip(at_s, zip(time_s, centre_m, heading_rad, strict=True), strict=True)
    ]
    driven = [_sample(at, expert.time_s, expert.centre_m, expert.heading_rad) for at in at_s]
    difference = np.stack(planned) - np.stack(driven)  # [F, Q, (x, y, heading)]
    distance_m, angle_rad = np.linalg.norm(difference[..., :2], axis=-1), np.abs(wrap_angle(difference[..., 2]))
    counts = [int(np.count_nonzero(later_s <= horizon + 1e-6)) for horizon in horizons_s]
    return PlanErrors(
        average_m=np.stack([distance_m[:, :count].mean(axis=1) for count in counts]),
        final_m=np.stack([distance_m[:, count - 1] for count in counts]),
        greatest_m=np.stack([distance_m[:, :count].max(axis=1) for count in counts]),
        average_rad=np.stack([angle_rad[:, :count].mean(axis=1) for count in counts]),
        final_rad=np.stack([angle_rad[:, count - 1] for count in counts]),
    )


def plan_error_within_bound(name: str, errors: Float[np.ndarray, "H F"], *, most: float) -> MetricResult:
    """Mean error over the frames, per horizon and over all.

    Args:
        name: of the metric.
        errors: a field of `PlanErrors`.
        most: error at which the score is 0; it rises linearly to 1 at no error.
    """
    by_horizon = errors.mean(axis=1)
    means = [
        Statistic(kind=StatisticKind.MEAN, name=f"{name}_horizon_{index}", value=float(value))
        for index, value in enumerate(by_horizon)
    ]
    within = boolean(f"{name}_within_bound", bool(by_horizon.mean() <= most))
    overall = Statistic(kind=StatisticKind.MEAN, name=name, value=float(by_horizon.mean()))
    score = float(max(0.0, 1 - by_horizon.mean() / most))
    return MetricResult(name=name, score=score, statistics=(*means, within, overall))


def miss_rate_within_bound(
    errors: PlanErrors, *, miss_distance_m: Sequence[float] = _MISS_DISTANCE_M, most: float = 0.3
) -> MetricResult:
    """1 if at every horizon the share of plans that miss the expert is at most `most`, else 0.

    Args:
        errors: of the plans.
        miss_distance_m: for each horizon the distance beyond which a plan misses.
        most: greatest share of misses.
    """
    rates = (errors.greatest_m > np.asarray(miss_distance_m)[:, None]).mean(axis=1)
    kept = bool((rates <= most).all())
    statistics = [
        Statistic(kind=StatisticKind.RATIO, name=f"miss_rate_horizon_{index}", value=float(rate))
        for index, rate in enumerate(rates)
    ]
    within = boolean("miss_rate_within_bound", kept)
    return MetricResult(name="miss_rate", score=float(kept), statistics=(*statistics, within))


def _sample(
    at_s: Float[np.ndarray, " Q"],
    time_s: Float[np.ndarray, " P"],
    centre_m: Float[np.ndarray, "P 2"],
    heading_rad: Float[np.ndarray, " P"],
) -> Float[np.ndarray, "Q 3"]:
    """x, y and heading at other times, by linear interpolation."""
    columns = (centre_m[:, 0], centre_m[:, 1], np.unwrap(heading_rad))
    return np.stack([np.interp(at_s, time_s, column) for column in columns], axis=-1)
