"""What a metric says: a score, the numbers behind it, and when and with whom it went wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float


class StatisticKind(StrEnum):
    """How a number sums up a run; the names are those of nuPlan's reports."""

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
    kind: StatisticKind
    name: str
    value: float  # a BOOLEAN is 0 or 1


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Something that cost score: when it happened, in one sentence, and the other road user in it, if any."""

    time_s: float
    what: str
    track_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class MetricResult:
    """A metric of one run: `score` in [0, 1], why it is below 1, and perhaps one value per simulated step."""

    name: str
    score: float
    statistics: tuple[Statistic, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    series: Float[np.ndarray, " T"] | None = None
    judged: bool = True  # False: there is nothing in the map, or too little in the run, to judge by


SERIES_KINDS = (StatisticKind.MAX, StatisticKind.MIN, StatisticKind.MEAN, StatisticKind.P90)


def series_statistics(
    name: str, values: Float[np.ndarray, " T"], *, kinds: Sequence[StatisticKind] = SERIES_KINDS
) -> list[Statistic]:
    """The usual sums of a series."""
    sums = {
        StatisticKind.MAX: np.max(values),
        StatisticKind.MIN: np.min(values),
        StatisticKind.MEAN: np.mean(values),
        StatisticKind.P90: _ninetieth(values),
    }
    return [Statistic(kind=kind, name=f"{kind.lower()}_{name}", value=float(sums[kind])) for kind in kinds]


def _ninetieth(values: Float[np.ndarray, " T"]) -> float:
    """The observation nearest to the 90 % quantile; of two that are as near, the one of even rank counted from 0.

    That is the rule by which nuPlan's numbers were made; numpy later counted ranks from 1.
    """
    rank = 0.9 * len(values) - 1.5
    tie_to_lower = np.isclose(rank, round(rank)) and round(rank) % 2 == 0
    nearest = round(rank) if tie_to_lower else int(np.floor(rank + 1e-9)) + 1
    return float(np.sort(values)[max(0, nearest)])


def boolean(name: str, value: bool) -> Statistic:
    return Statistic(kind=StatisticKind.BOOLEAN, name=name, value=float(value))
