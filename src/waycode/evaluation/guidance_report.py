"""The report of a guidance task: a table per part, compared with the paper's figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from waycode.evaluation.guidance import (
    ALL_CROSSINGS,
    ALL_WAY_STOPS,
    RECORDED,
    SUCCESS,
    AnsweredCase,
    GuidanceTask,
    greedy,
    left_turn_part,
)
from waycode.evaluation.report import Estimate, EvaluationError, Provenance, Report
from waycode.evaluation.selection import Group

Rows = dict[str, dict[str, Estimate]]  # method -> measure -> value

# (part of a table, measure, bound, whether the bound is a minimum): from the paper's tables, but for turns that are not
# available: the paper has 2.4 %, of 42 cases
_BOUNDS: tuple[tuple[str, str, float, bool], ...] = (
    *(
        (left_turn_part(where, available=available), measure, bound, is_minimum)
        for where in (ALL_CROSSINGS, ALL_WAY_STOPS)
        for available, measure, bound, is_minimum in (
            (True, SUCCESS, 0.90, True),
            (True, "edge_contact", 0.01, False),
            (True, "infeasible", 0.013, False),
            (False, SUCCESS, 0.05, False),
        )
    ),
    (Group.ZERO, SUCCESS, 1.0, True),
    (Group.ONE, SUCCESS, 0.99, True),
    (Group.STEADY, SUCCESS, 0.63, True),
    (Group.STEADY, "edge_contact", 0.002, False),
)
_UNDESIRABLE = tuple(left_turn_part(where, available=False) for where in (ALL_CROSSINGS, ALL_WAY_STOPS))  # and splits


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure that should be reached, and whether it is."""

    claim: str
    found: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class GuidanceReport(Report):
    """Measures of all methods by part of the table."""

    task: str
    num_scenes: int  # that were searched for cases
    num_episodes: int  # that these scenes are windows of
    num_tokens: int
    objectives: dict[str, str]  # by group of cases
    num_cases: dict[str, int]  # by part
    scenes_with_cases: dict[str, int]  # by part
    episodes_with_cases: dict[str, int]  # by part
    rows: dict[str, Rows]  # by part; parts without cases are left out
    splits: list[str]  # parts that count the cases of the part before them again, by group
    targets: list[Target]

    @property
    def file_name(self) -> str:
        return f"{self.task}.json"


def guidance_report(
    answered: Sequence[AnsweredCase],
    *,
    task: GuidanceTask,
    provenance: Provenance,
    num_scenes: int,
    num_episodes: int,
    num_tokens: int,
) -> GuidanceReport:
    """Summarises answered cases.

    Args:
        answered: one or more cases.
        task: the task that they belong to.
        provenance: of the model and the scenes.
        num_scenes: number of scenes that were searched for cases.
        num_episodes: number of episodes that these scenes are windows of.
        num_tokens: tokens of the model.
    """
    if not answered:
        raise EvaluationError(
            f"none of the {num_scenes} scenes of {provenance.data} has a case for {task.name}: "
            "expected vehicles on the map that are observed for 8 s after the current step"
        )
    parts = {part.name: [one for one in answered if part.has(one.case)] for part in task.parts}
    rows = {name: _rows(cases) for name, cases in parts.items() if cases}
    return GuidanceReport(
        provenance=provenance,
        task=task.name,
        num_scenes=num_scenes,
        num_episodes=num_episodes,
        num_tokens=num_tokens,
        objectives={str(group): repr(objective) for group, objective in task.objectives.items()},
        num_cases={name: len(cases) for name, cases in parts.items()},
        scenes_with_cases={name: len({one.scene_number for one in cases}) for name, cases in parts.items()},
        episodes_with_cases={name: len({one.episode for one in cases}) for name, cases in parts.items()},
        rows=rows,
        splits=[part.name for part in task.parts if part.is_split],
        targets=check_targets(rows, num_tokens=num_tokens),
    )


def _rows(cases: Sequence[AnsweredCase]) -> Rows:
    episodes = np.array([one.episode for one in cases])
    return {
        answer.method: {
            name: Estimate.of(np.array([one.answers[place].measures[name] for one in cases], np.float64), episodes)
            for name in answer.measures
        }
        for place, answer in enumerate(cases[0].answers)
    }


def check_targets(rows: dict[str, Rows], *, num_tokens: int) -> list[Target]:
    """Checks the paper's figures against greedy search with all tokens, and that success grows with depth.

    Args:
        rows: the rows of each part of the table; targets of absent parts are skipped.
        num_tokens: tokens of the model.
    """
    full = greedy(num_tokens)
    targets = []
    for part, measure, bound, is_minimum in _BOUNDS:
        if part in rows:
            share = rows[part][full][measure]
            claim = f"{part}: {measure} {'>=' if is_minimum else '<='} {bound:.1%}"
            holds = share.mean >= bound if is_minimum else share.mean <= bound
            found = f"{share.mean:.1%} (95 %: {share.low:.1%} to {share.high:.1%})"
            targets.append(Target(claim=claim, found=found, holds=holds))
    for group in (Group.ZERO, Group.ONE):
        if group in rows:
            distance, recorded = (rows[group][method]["centre_distance_m"].mean for method in (full, RECORDED))
            claim = f"{group}: centre distance below the ground truth's {recorded:.3f} m"
            targets.append(Target(claim=claim, found=f"{distance:.3f} m", holds=distance < recorded))
    for name in rows:
        if not name.startswith(_UNDESIRABLE):
            shares = [rows[name][greedy(depth)][SUCCESS].mean for depth in range(1, num_tokens + 1)]
            grows = all(a <= b for a, b in pairwise(shares)) and (shares[-1] > shares[0] or shares[0] == 1)
            shown = ", ".join(f"{share:.1%}" for share in shares)
            targets.append(Target(claim=f"{name}: success grows with depth", found=shown, holds=grows))
    return targets
