"""nuPlan's closed-loop score: per run the product of multipliers times a weighted mean; over runs the mean.

Results on generated or on Waymo's scenes are called what they are ("SUMO CLS-R"), never nuPlan numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from waycode.simulation.history import History
from waycode.simulation.metrics.assessment import Assessment
from waycode.simulation.metrics.dynamics import comfort
from waycode.simulation.metrics.progress import making_progress, progress
from waycode.simulation.metrics.results import Evidence, MetricResult
from waycode.simulation.metrics.road import drivable_area, driving_direction, speed_limit
from waycode.simulation.metrics.safety import no_at_fault_collision, time_to_collision


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of the score. With a weight it is part of the mean, without one it multiplies it."""

    name: str
    weight: float | None
    compute: Callable[[Assessment], MetricResult]


METRICS: tuple[Metric, ...] = (
    Metric(
        name="no_at_fault_collision",
        weight=None,
        compute=lambda run: no_at_fault_collision(run.history, run.collisions),
    ),
    Metric(name="drivable_area", weight=None, compute=lambda run: drivable_area(run.history.ego, run.whereabouts)),
    Metric(
        name="driving_direction",
        weight=None,
        compute=lambda run: driving_direction(run.history.ego, run.whereabouts, index=run.index),
    ),
    Metric(name="making_progress", weight=None, compute=lambda run: making_progress(run.history.ego, run.progress)),
    Metric(name="progress", weight=5.0, compute=lambda run: progress(run.history.ego, run.progress)),
    Metric(
        name="time_to_collision",
        weight=5.0,
        compute=lambda run: time_to_collision(run.history, run.boxes, collisions=run.collisions, where=run.whereabouts),
    ),
    Metric(
        name="speed_limit",
        weight=4.0,
        compute=lambda run: speed_limit(run.history.ego, run.whereabouts, index=run.index),
    ),
    Metric(name="comfort", weight=2.0, compute=lambda run: comfort(run.history.ego, run.dynamics)),
)


@dataclass(frozen=True, kw_only=True)
class ScenarioScore:
    """The score of one run in [0, 1], and its metrics by name. A failed run scores 0 and says why."""

    scene_id: str
    score: float
    metrics: dict[str, MetricResult]
    failure: str | None = None

    def reasons(self) -> tuple[Evidence, ...]:
        """What cost score, in order of time."""
        found = [evidence for result in self.metrics.values() for evidence in result.evidence if result.score < 1]
        return tuple(sorted(found, key=lambda evidence: evidence.time_s))

    def costliest(self) -> Evidence | None:
        """What cost most score: where to look first."""
        whole = sum(metric.weight for metric in METRICS if metric.weight is not None)
        weights = {metric.name: whole if metric.weight is None else metric.weight for metric in METRICS}
        blamed = [result for result in self.metrics.values() if result.score < 1 and result.evidence]
        worst = max(blamed, key=lambda result: weights.get(result.name, 0.0) * (1 - result.score), default=None)
        return None if worst is None else worst.evidence[0]


@dataclass(frozen=True, kw_only=True)
class ClosedLoopScore:
    """Means over runs, in percent: CLS, S-CR (no collisions at fault), S-PR (progress), and of every metric."""

    cls: float
    s_cr: float
    s_pr: float
    by_metric: dict[str, float]
    num_scenarios: int
    num_failed: int


def score_run(history: History, *, metrics: Sequence[Metric] = METRICS) -> ScenarioScore:
    """The score of a finished run."""
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise ValueError(f"metrics must have different names, got {', '.join(names)}")
    run = Assessment(history)
    results = {metric.name: metric.compute(run) for metric in metrics}
    multiplier = np.prod([results[metric.name].score for metric in metrics if metric.weight is None])
    weights = {metric.name: metric.weight for metric in metrics if metric.weight is not None}
    mean = np.average([results[name].score for name in weights], weights=list(weights.values())) if weights else 1.0
    score = 0.0 if history.failure is not None else float(multiplier * mean)
    return ScenarioScore(scene_id=history.scene_id, score=score, metrics=results, failure=history.failure)


def closed_loop_score(scores: Sequence[ScenarioScore]) -> ClosedLoopScore:
    """The scores of many runs in one; every metric of a failed run counts as 0."""
    if not scores:
        raise ValueError("no runs to score: expected one or more")
    by_metric = {name: _percent(scores, name) for name in scores[0].metrics}
    return ClosedLoopScore(
        cls=100 * float(np.mean([score.score for score in scores])),
        s_cr=by_metric["no_at_fault_collision"],
        s_pr=by_metric["progress"],
        by_metric=by_metric,
        num_scenarios=len(scores),
        num_failed=sum(score.failure is not None for score in scores),
    )


def _percent(scores: Sequence[ScenarioScore], name: str) -> float:
    return 100 * float(np.mean([0.0 if run.failure is not None else run.metrics[name].score for run in scores]))
