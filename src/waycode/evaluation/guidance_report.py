"""The report of a guidance task: a table per group of cases, compared with the paper's figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from waycode.evaluation.guidance import RECORDED, SUCCESS, AnsweredCase, GuidanceTask, greedy
from waycode.evaluation.report import Estimate, EvaluationError, Report
from waycode.evaluation.selection import Group

Rows = dict[str, dict[str, Estimate]]  # method -> measure -> value

# (group, measure, bound, whether the bound is a minimum): the figures of the paper's tables
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
_SHOULD_NOT_GROW = (Group.NOT_AVAILABLE, Group.FROM_ANOTHER_LANE)  # success is undesirable there


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure that should be reached, and whether it is."""

    claim: str
    found: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class GuidanceReport(Report):
    """Measures of all methods by group of cases."""

    task: str
    model: str
    data: str
    num_scenes: int  # that were searched for cases
    num_tokens: int
    objectives: dict[str, str]  # by group
    num_cases: dict[str, int]  # by group
    scenes_with_cases: dict[str, int]  # by group
    rows: dict[str, Rows]  # by group; groups without cases are left out
    targets: list[Target]

    @property
    def file_name(self) -> str:
        return f"{self.task}.json"


def guidance_report(
    answered: Sequence[AnsweredCase], *, task: GuidanceTask, model: str, data: str, num_scenes: int, num_tokens: int
) -> GuidanceReport:
    """Summarises answered cases.

    Args:
        answered: one or more cases.
        task: the task that they belong to.
        model: name of the model, for the report.
        data: name of the dataset, for the report.
        num_scenes: number of scenes that were searched for cases.
        num_tokens: tokens of the model.
    """
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
    return {
        answer.method: {
            name: Estimate.of(np.array([one.answers[place].measures[name] for one in cases], np.float64), scenes)
            for name in answer.measures
        }
        for place, answer in enumerate(cases[0].answers)
    }


def check_targets(rows: dict[str, Rows], *, num_tokens: int) -> list[Target]:
    """Checks the paper's figures against greedy search with all tokens, and that success grows with depth.

    Args:
        rows: the table of each group; targets of absent groups are skipped.
        num_tokens: tokens of the model.
    """
    full = greedy(num_tokens)
    targets = []
    for group, measure, bound, is_minimum in _BOUNDS:
        if group in rows:
            found = rows[group][full][measure].mean
            claim = f"{group}: {measure} {'>=' if is_minimum else '<='} {bound:.1%}"
            holds = found >= bound if is_minimum else found <= bound
            targets.append(Target(claim=claim, found=f"{found:.1%}", holds=holds))
    for group in (Group.ZERO, Group.ONE):
        if group in rows:
            found, recorded = (rows[group][method]["centre_distance_m"].mean for method in (full, RECORDED))
            claim = f"{group}: centre distance below the ground truth's {recorded:.3f} m"
            targets.append(Target(claim=claim, found=f"{found:.3f} m", holds=found < recorded))
    for name in rows:
        if name not in _SHOULD_NOT_GROW:
            shares = [rows[name][greedy(depth)][SUCCESS].mean for depth in range(1, num_tokens + 1)]
            grows = all(a <= b for a, b in pairwise(shares)) and (shares[-1] > shares[0] or shares[0] == 1)
            shown = ", ".join(f"{share:.1%}" for share in shares)
            targets.append(Target(claim=f"{name}: success grows with depth", found=shown, holds=grows))
    return targets
