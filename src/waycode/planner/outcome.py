"""What a plan says of itself: its status, whether it does what was asked for, and a sentence."""

from dataclasses import dataclass

import torch

from waycode.objectives import BaseObjective, Objective, Verdict
from waycode.objectives.candidates import AnyCandidates
from waycode.planner.plan import PlanStatus


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The fields of a plan of the same names."""

    status: PlanStatus
    satisfied: bool | None
    rejected: bool
    message: str


def verdicts_of(objective: Objective | None, candidates: AnyCandidates) -> list[Verdict]:
    """What each candidate achieves; plain functions, and plans without an objective, have no notion of it."""
    if not isinstance(objective, BaseObjective):
        return [Verdict()] * len(candidates)
    with torch.no_grad():
        return objective.met(candidates)


def outcome_of(
    verdict: Verdict,
    *,
    told: str,
    doubt: str | None,
    scene_doubt: str | None,
    is_usable: bool = True,
    is_early: bool = False,
) -> Outcome:
    """The outcome of planning.

    Args:
        verdict: what the plan achieves.
        told: where the plan comes from: "the best plan of 3 tokens".
        doubt: why the gate rejects it, see `ranking.uncertainty_reason`; None if it does not.
        scene_doubt: why the scene is of a kind that the model does not know; None if it is not.
        is_usable: its cost is finite.
        is_early: a deadline ended the search.
    """
    if not is_usable:
        status = PlanStatus.NO_COST
        told = "the objective is infinite or NaN for every trajectory: the plan is arbitrary"
    elif verdict.violated:
        status = PlanStatus.VIOLATED
    elif doubt is not None or scene_doubt is not None:
        status = PlanStatus.UNCERTAIN
    else:
        status = PlanStatus.DEADLINE if is_early else PlanStatus.FOUND
    parts = [verdict.sentence, told]
    parts += [] if doubt is None else [f"the model is uncertain of it ({doubt})"]
    parts += [] if scene_doubt is None else [f"the scene is unlike those that the model knows ({scene_doubt})"]
    return Outcome(
        status=status,
        satisfied=verdict.satisfied if is_usable else None,
        rejected=doubt is not None,
        message="; ".join(part for part in parts if part),
    )


def told_of_search(*, found: int, asked: int, rank: int) -> str:
    """Where a plan comes from.

    Args:
        found: number of tokens of the plan.
        asked: requested number of tokens.
        rank: of the plan in the beam, from 0.
    """
    which = ("the best plan" if rank == 0 else f"plan {rank + 1}") + f" of {found} token{'s' if found > 1 else ''}"
    return which + (f", the deadline left no time for {asked} tokens" if found < asked else "")
