"""The result of a metric: a score, the numbers behind it, and the evidence for a loss of score. Axes: T steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float


class StatisticKind(StrEnum):
    """How a number sums up a run, by the names of nuPlan's reports."""

    MAX = "MAX"
    MIN = "MIN"
    MEAN = "MEAN"
    P90 = "P90"
    VALUE = "VALUE"
    BOOLEAN = "BOOLEAN"
    COUNT = "COUNT"
    RATIO = "RATIO"


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A named number of a run."""

    kind: StatisticKind
    name: str
    value: float  # a BOOLEAN is 0 or 1


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """An event that cost score."""

    time_s: float  # since the start of the run
    description: str  # one sentence
    track_id: str | None = None  # the other road user, if any


@dataclass(frozen=True, kw_only=True)
class MetricResult:
    """A metric of one run."""

    name: str
    score: float  # in [0, 1]
    statistics: tuple[Statistic, ...] = ()
    evidence: tuple[Evidence, ...] = ()  # why the score is below 1
    series: Float[np.ndarray, " T"] | None = None  # one value per step, if the metric has one
    applicable: bool = True  # False: the map or the run has too little to compute the metric from


def boolean(name: str, value: bool) -> Statistic:
    """A statistic of kind BOOLEAN."""
    return Statistic(kind=StatisticKind.BOOLEAN, name=name, value=float(value))


def series_statistics(
    name: str,
    values: Float[np.ndarray, " T"],
    *,
    kinds: Sequence[StatisticKind] = (StatisticKind.MAX, StatisticKind.MIN, StatisticKind.MEAN, StatisticKind.P90),
) -> list[Statistic]:
    """Statistics of a series.

    Args:
        name: of the series; the kind is put before it.
        values: one value per step.
        kinds: which of MAX, MIN, MEAN and P90.
    """
    found = {
        StatisticKind.MAX: np.max(values),
        StatisticKind.MIN: np.min(values),
        StatisticKind.MEAN: np.mean(values),
        StatisticKind.P90: _percentile_90(values),
    }
    return [Statistic(kind=kind, name=f"{kind.lower()}_{name}", value=float(found[kind])) for kind in kinds]


def _percentile_90(values: Float[np.ndarray, " T"]) -> float:
    """The observation nearest to the 90 % quantile; of two equally near the one of even rank, counted from 0.

    nuPlan's numbers were made by this rule of an older numpy; newer ones count ranks from 1.
    """
    rank = 0.9 * len(values) - 1.5
    tie_to_lower = np.isclose(rank, round(rank)) and round(rank) % 2 == 0
    nearest = round(rank) if tie_to_lower else int(np.floor(rank + 1e-9)) + 1
    return float(np.sort(values)[max(0, nearest)])
