"""nuPlan's closed-loop metrics as pure functions of a finished run (`waycode.simulation.history.History`).

`score_run` scores one run, with the reasons for lost score; `closed_loop_score` computes CLS, S-CR and S-PR over many.
The formula is nuPlan's. The modules document the differences that our maps require.
"""

from waycode.simulation.metrics.results import Evidence, MetricResult, Statistic, StatisticKind
from waycode.simulation.metrics.safety import EgoCollision
from waycode.simulation.metrics.score import (
    METRICS,
    Assessment,
    ClosedLoopScore,
    Metric,
    ScenarioScore,
    closed_loop_score,
    score_run,
)

__all__ = [
    "METRICS",
    "Assessment",
    "ClosedLoopScore",
    "EgoCollision",
    "Evidence",
    "Metric",
    "MetricResult",
    "ScenarioScore",
    "Statistic",
    "StatisticKind",
    "closed_loop_score",
    "score_run",
]
