"""nuPlan's closed-loop score: per run the product of multipliers times a weighted mean; over runs the mean.

Results on generated or on Waymo's scenes have their own names ("SUMO CLS-R"): they are not comparable with nuPlan's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from waycode.driving.road_surface import LanePolygons
from waycode.simulation.history import History
from waycode.simulation.metrics.comfort import Dynamics, comfort, compute_dynamics
from waycode.simulation.metrics.location import EgoLocation, locate_ego
from waycode.simulation.metrics.progress import ProgressAlongRoute, ego_progress, making_progress, measure_progress
from waycode.simulation.metrics.results import Evidence, MetricResult
from waycode.simulation.metrics.road import (
    drivable_area_compliance,
    driving_direction_compliance,
    speed_limit_compliance,
)
from waycode.simulation.metrics.safety import (
    EgoCollision,
    TrackBoxes,
    find_collisions,
    no_at_fault_collision,
    time_to_collision,
)


@dataclass(frozen=True)
class Assessment:
    """A run with the intermediate results that several metrics share; each is computed at its first use."""

    history: History

    @cached_property
    def lanes(self) -> LanePolygons:
        """The lanes around the ego and the expert."""
        driven = np.concatenate([self.history.ego.corners_m.reshape(-1, 2), self.history.expert.centre_m])
        return LanePolygons.of(self.history.map.lanes, driven)

    @cached_property
    def location(self) -> EgoLocation:
        return locate_ego(self.history.ego, self.lanes, map_features=self.history.map)

    @cached_property
    def boxes(self) -> TrackBoxes:
        return TrackBoxes.of(self.history.tracks)

    @cached_property
    def collisions(self) -> tuple[EgoCollision, ...]:
        return find_collisions(self.history.ego, self.boxes, in_one_lane=self.location.in_one_lane)

    @cached_property
    def progress(self) -> ProgressAlongRoute | None:
        return measure_progress(self.history.ego, self.history.expert, lanes=self.lanes)

    @cached_property
    def dynamics(self) -> Dynamics | None:
        return compute_dynamics(self.history.ego)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of the score."""

    name: str
    weight: float | None  # in the weighted mean; None: the metric multiplies the mean
    compute: Callable[[Assessment], MetricResult]


METRICS: tuple[Metric, ...] = (
    Metric(
        name="no_at_fault_collision",
        weight=None,
        compute=lambda run: no_at_fault_collision(run.history, run.collisions),
    ),
    Metric(
        name="drivable_area",
        weight=None,
        compute=lambda run: drivable_area_compliance(run.history.ego, run.location),
    ),
    Metric(
        name="driving_direction",
        weight=None,
        compute=lambda run: driving_direction_compliance(run.history.ego, run.location, lanes=run.lanes),
    ),
    Metric(name="making_progress", weight=None, compute=lambda run: making_progress(run.history.ego, run.progress)),
    Metric(name="progress", weight=5.0, compute=lambda run: ego_progress(run.history.ego, run.progress)),
    Metric(
        name="time_to_collision",
        weight=5.0,
        compute=lambda run: time_to_collision(run.history, run.boxes, collisions=run.collisions, location=run.location),
    ),
    Metric(
        name="speed_limit",
        weight=4.0,
        compute=lambda run: speed_limit_compliance(run.history.ego, run.location, lanes=run.lanes),
    ),
    Metric(name="comfort", weight=2.0, compute=lambda run: comfort(run.history.ego, run.dynamics)),
)


@dataclass(frozen=True, kw_only=True)
class ScenarioScore:
    """The score of one run."""

    scene_id: str
    score: float  # in [0, 1]; 0 for a failed run
    metrics: dict[str, MetricResult]  # by name
    failure: str | None = None  # why the run failed

    @property
    def not_judged(self) -> tuple[str, ...]:
        """The metrics that the map or the run has too little for; they have no part in the weighted mean."""
        return tuple(name for name, result in self.metrics.items() if not result.applicable)

    def reasons(self) -> tuple[Evidence, ...]:
        """The evidence of all metrics below 1, in order of time."""
        found = [evidence for result in self.metrics.values() for evidence in result.evidence if result.score < 1]
        return tuple(sorted(found, key=lambda evidence: evidence.time_s))

    def costliest(self) -> Evidence | None:
        """The first evidence of the metric that cost most score; a multiplier weighs as much as the whole mean."""
        whole = sum(metric.weight for metric in METRICS if metric.weight is not None)
        weights = {metric.name: whole if metric.weight is None else metric.weight for metric in METRICS}
        lossy = [result for result in self.metrics.values() if result.score < 1 and result.evidence]
        worst = max(lossy, key=lambda result: weights.get(result.name, 0.0) * (1 - result.score), default=None)
        return None if worst is None else worst.evidence[0]


@dataclass(frozen=True, kw_only=True)
class ClosedLoopScore:
    """Means over runs, in percent."""

    cls: float  # the score
    s_cr: float  # no at-fault collision
    s_pr: float  # progress
    by_metric: dict[str, float]
    num_scenarios: int
    num_failed: int


def score_run(history: History, *, metrics: Sequence[Metric] = METRICS) -> ScenarioScore:
    """Scores a finished run by nuPlan's metrics, or by others with different names."""
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise ValueError(f"metrics must have different names, got {', '.join(names)}")
    run = Assessment(history)
    results = {metric.name: metric.compute(run) for metric in metrics}
    multiplier = np.prod([results[metric.name].score for metric in metrics if metric.weight is None])
    # A metric that the map says nothing about is left out: to count it as 1 would reward an unknown.
    weights = {
        metric.name: metric.weight
        for metric in metrics
        if metric.weight is not None and results[metric.name].applicable
    }
    mean = np.average([results[name].score for name in weights], weights=list(weights.values())) if weights else 1.0
    score = 0.0 if history.failure is not None else float(multiplier * mean)
    return ScenarioScore(scene_id=history.scene_id, score=score, metrics=results, failure=history.failure)


def closed_loop_score(scores: Sequence[ScenarioScore]) -> ClosedLoopScore:
    """Means over runs of the same metrics; every metric of a failed run counts as 0."""
    if not scores:
        raise ValueError("no runs to score: expected one or more")

    def percent(name: str) -> float:
        return 100 * float(np.mean([0.0 if run.failure is not None else run.metrics[name].score for run in scores]))

    by_metric = {name: percent(name) for name in scores[0].metrics}
    return ClosedLoopScore(
        cls=100 * float(np.mean([score.score for score in scores])),
        s_cr=by_metric["no_at_fault_collision"],
        s_pr=by_metric["progress"],
        by_metric=by_metric,
        num_scenarios=len(scores),
        num_failed=sum(score.failure is not None for score in scores),
    )
