"""How near the ego and its plans are to what the expert did: nuPlan's open-loop numbers. They cost no score.

Axes: T steps, K points of a plan, F frames (plans that are compared), H horizons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.scene.frames import wrap_angle
from waycode.simulation.history import EgoStates
from waycode.simulation.metrics.results import MetricResult, Statistic, StatisticKind, boolean, series_statistics

HORIZONS_S = (3.0, 5.0, 8.0)
COMPARED_EVERY_S = 1.0
MOST_L2_ERROR_M = 8.0
MOST_HEADING_ERROR_RAD = 0.8
MISSED_BY_M = (6.0, 8.0, 16.0)  # one for each horizon
MOST_MISSES = 0.3
HEADING_WEIGHT_M = 2.5
EXPERT_KINDS = (StatisticKind.MAX, StatisticKind.MEAN, StatisticKind.P90)


@dataclass(frozen=True, kw_only=True)
class PlannedTrajectory:
    """Where a planner meant to have the centre of the ego's box, from the time of planning on."""

    time_s: Float[np.ndarray, " K"]
    centre_m: Float[np.ndarray, "K 2"]
    heading_rad: Float[np.ndarray, " K"]


@dataclass(frozen=True, kw_only=True)
class PlanErrors:
    """Distances and heading differences between plans and the expert, per horizon and frame."""

    average_m: Float[np.ndarray, "H F"]
    final_m: Float[np.ndarray, "H F"]
    greatest_m: Float[np.ndarray, "H F"]
    average_rad: Float[np.ndarray, "H F"]
    final_rad: Float[np.ndarray, "H F"]


def mean_speed(ego: EgoStates) -> MetricResult:
    value = Statistic(kind=StatisticKind.VALUE, name="mean_speed_mps", value=float(ego.speed_mps.mean()))
    return MetricResult(name="mean_speed", score=1.0, statistics=(value,))


def expert_l2_error(ego: EgoStates, expert: EgoStates, *, heading_weight_m: float = 0.0) -> MetricResult:
    """Distance between the centres of ego and expert per step, plus weighted heading differences."""
    steps = min(len(ego), len(expert))
    turned = np.abs(wrap_angle(ego.heading_rad[:steps] - expert.heading_rad[:steps]))
    error = np.linalg.norm(ego.centre_m[:steps] - expert.centre_m[:steps], axis=1) + heading_weight_m * turned
    statistics = tuple(series_statistics("expert_l2_error_m", error, kinds=EXPERT_KINDS))
    return MetricResult(name="expert_l2_error", score=1.0, statistics=statistics, series=error)


def plan_errors(
    plans: Sequence[PlannedTrajectory], expert: EgoStates, *, horizons_s: Sequence[float] = HORIZONS_S
) -> PlanErrors:
    """Errors of plans at whole seconds up to each horizon; a plan that ends before is compared up to its end."""
    later_s = np.arange(COMPARED_EVERY_S, max(horizons_s) + 1e-6, COMPARED_EVERY_S)
    compared = [_errors(plan, expert, later_s=later_s) for plan in plans]
    distance_m = np.stack([distance for distance, _ in compared])  # [F, seconds]
    turned_rad = np.stack([turned for _, turned in compared])
    counts = [int(np.count_nonzero(later_s <= horizon + 1e-6)) for horizon in horizons_s]
    return PlanErrors(
        average_m=np.stack([distance_m[:, :count].mean(axis=1) for count in counts]),
        final_m=np.stack([distance_m[:, count - 1] for count in counts]),
        greatest_m=np.stack([distance_m[:, :count].max(axis=1) for count in counts]),
        average_rad=np.stack([turned_rad[:, :count].mean(axis=1) for count in counts]),
        final_rad=np.stack([turned_rad[:, count - 1] for count in counts]),
    )


def plan_error_within_bound(name: str, errors: Float[np.ndarray, "H F"], *, most: float) -> MetricResult:
    """Mean error over the frames per horizon and over all; the score falls from 1 at no error to 0 at `most`."""
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
    errors: PlanErrors, *, missed_by_m: Sequence[float] = MISSED_BY_M, most: float = MOST_MISSES
) -> MetricResult:
    """The share of plans that are ever further from the expert than allowed, per horizon."""
    rates = (errors.greatest_m > np.asarray(missed_by_m)[:, None]).mean(axis=1)
    kept = bool((rates <= most).all())
    statistics = [
        Statistic(kind=StatisticKind.RATIO, name=f"miss_rate_horizon_{index}", value=float(rate))
        for index, rate in enumerate(rates)
    ]
    within = boolean("miss_rate_within_bound", kept)
    return MetricResult(name="miss_rate", score=float(kept), statistics=(*statistics, within))


def _errors(
    plan: PlannedTrajectory, expert: EgoStates, *, later_s: Float[np.ndarray, " K"]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Distance and heading difference between a plan and the expert so long after the time of planning."""
    at_s = np.minimum(plan.time_s[0] + later_s, plan.time_s[-1])
    planned = _at(plan.centre_m, plan.time_s, at_s)
    driven = _at(expert.centre_m, expert.time_s, at_s)
    planned_heading = np.interp(at_s, plan.time_s, np.unwrap(plan.heading_rad))
    driven_heading = np.interp(at_s, expert.time_s, np.unwrap(expert.heading_rad))
    return np.linalg.norm(planned - driven, axis=1), np.abs(wrap_angle(planned_heading - driven_heading))


def _at(
    points_m: Float[np.ndarray, "K 2"], time_s: Float[np.ndarray, " K"], at_s: Float[np.ndarray, " Q"]
) -> Float[np.ndarray, "Q 2"]:
    return np.stack([np.interp(at_s, time_s, points_m[:, axis]) for axis in (0, 1)], axis=-1)
