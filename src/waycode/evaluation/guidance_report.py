"""What guided planning achieves: a table per group of cases, and whether the figures that were hoped for are found."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from waycode.evaluation.guidance import RECORDED, SUCCESS, AnsweredCase, GuidanceTask, greedy
from waycode.evaluation.metrics import bootstrap_interval
from waycode.evaluation.reconstruction import EvaluationError
from waycode.evaluation.selection import Group


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over cases with its 95 % interval; whole scenes are drawn again."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the paper reports, or we ask for, and whether it was found."""

    claim: str
    found: str
    holds: bool


Rows = dict[str, dict[str, Estimate]]  # method -> measure -> value


@dataclass(frozen=True, kw_only=True)
class GuidanceReport:
    """Measures of every method, per group of cases."""

    task: str
    model: str
    data: str
    num_scenes: int  # that were looked through
    num_tokens: int
    objectives: dict[str, str]  # by group
    num_cases: dict[str, int]  # by group
    scenes_with_cases: dict[str, int]
    rows: dict[str, Rows]  # by group
    targets: list[Target]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, folder: Path) -> Path:
        """Writes the report as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.task}.json"
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        return path


def guidance_report(
    answered: Sequence[AnsweredCase], *, task: GuidanceTask, model: str, data: str, num_scenes: int, num_tokens: int
) -> GuidanceReport:
    """Adds the cases up."""
    if not answered:
        raise EvaluationError(
            f"none of the {num_scenes} scenes of {data} has a case for {task.name}: "
            "expected vehicles on the map that are observed for 8 s after the current step"
        )
    groups = {str(group): [one for one in answered if one.case.group is group] for group in task.objectives}
    rows = {name: _rows(cases) for name, cases in groups.items() if cases}
    return GuidanceReport(
        task=task.name,
        model=model,
        data=data,
        num_scenes=num_scenes,
        num_tokens=num_tokens,
        objectives={str(group): repr(objective) for group, objective in task.objectives.items()},
        num_cases={name: len(cases) for name, cases in groups.items()},
        scenes_with_cases={name: len({one.scene_number for one in cases}) for name, cases in groups.items()},
        rows=rows,
        targets=check_targets(rows, num_tokens=num_tokens),
    )


def _rows(cases: Sequence[AnsweredCase]) -> Rows:
    scenes = np.array([one.scene_number for one in cases])
    one_kind = np.zeros(len(cases), np.int64)
    rows: Rows = {}
    for place, answer in enumerate(cases[0].answers):
        values = {
            name: np.array([one.answers[place].measures[name] for one in cases], np.float64) for name in answer.measures
        }
        intervals = {name: bootstrap_interval(column, one_kind, scenes) for name, column in values.items()}
        rows[answer.method] = {
            name: Estimate(mean=_mean(column), low=intervals[name][0], high=intervals[name][1])
            for name, column in values.items()
        }
    return rows


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


# (group, measure, the most or least it may be, whether more is better): the figures of the paper's tables
_BOUNDS: tuple[tuple[Group, str, float, bool], ...] = (
    (Group.AVAILABLE, SUCCESS, 0.90, True),
    (Group.AVAILABLE, "edge_contact", 0.01, False),
    (Group.AVAILABLE, "infeasible", 0.013, False),
    (Group.NOT_AVAILABLE, SUCCESS, 0.024, False),
    (Group.ZERO, SUCCESS, 1.0, True),
    (Group.ONE, SUCCESS, 0.99, True),
    (Group.STEADY, SUCCESS, 0.63, True),
    (Group.STEADY, "edge_contact", 0.002, False),
)

_NOT_TO_GROW = (Group.NOT_AVAILABLE, Group.FROM_ANOTHER_LANE)  # what is asked for is not what one should do there


def check_targets(rows: dict[str, Rows], *, num_tokens: int) -> list[Target]:
    """The figures that greedy search with all tokens should reach, and that success grows with depth."""
    full = greedy(num_tokens)
    targets = []
    for group, measure, bound, more in _BOUNDS:
        if group in rows:
            found = rows[group][full][measure].mean
            claim = f"{group}: {measure} {'>=' if more else '<='} {bound:.1%}"
            targets.append(Target(claim=claim, found=f"{found:.1%}", holds=found >= bound if more else found <= bound))
    targets += _centring(rows, full)
    targets += [_growth(group, rows[group], num_tokens) for group in rows if group not in _NOT_TO_GROW]
    return targets


def _centring(rows: dict[str, Rows], full: str) -> Iterable[Target]:
    for group in (Group.ZERO, Group.ONE):
        if group in rows:
            found, recorded = (rows[group][method]["centre_distance_m"].mean for method in (full, RECORDED))
            claim = f"{group}: centre distance below the ground truth's {recorded:.3f} m"
            yield Target(claim=claim, found=f"{found:.3f} m", holds=found < recorded)


def _growth(group: str, rows: Rows, num_tokens: int) -> Target:
    shares = [rows[greedy(depth)][SUCCESS].mean for depth in range(1, num_tokens + 1)]
    grows = all(before <= after for before, after in pairwise(shares)) and (shares[-1] > shares[0] or shares[0] == 1)
    found = ", ".join(f"{share:.1%}" for share in shares)
    return Target(claim=f"{group}: success grows with depth", found=found, holds=grows)
