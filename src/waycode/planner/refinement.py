"""Refinement of a found code: gradient steps on its latents, of which the best visited ones are kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.model import VarianceGate
from waycode.objectives import BaseObjective, Objective
from waycode.objectives.candidates import AnyCandidates
from waycode.planner.ranking import cost_levels, descent_cost, too_uncertain
from waycode.search import refine


@dataclass(frozen=True, kw_only=True)
class VisitedBest:
    """The best latents that refinement has visited."""

    latents: Float[Tensor, "n D"]
    candidate: AnyCandidates  # they decode to
    is_start: bool  # no step was better than the start
    num_decodes: int
    steps: int  # gradient steps made


def best_visited(
    decode: Callable[[Tensor], AnyCandidates],
    objective: Objective,
    start: Float[Tensor, "n D"],
    *,
    steps: int,
    limits: VarianceGate | None,
    deadline_s: float | None,
    clock: Callable[[], float],
) -> VisitedBest:
    """Descends the gradient of an objective and ranks all latents on the way.

    Args:
        decode: decodes latents [1, n, D], with gradients.
        objective: the cost. If it is lexicographic, the sum of its differentiable levels is descended.
        start: the latents of the found code.
        steps: number of gradient steps.
        limits: the gate; latents above rank last. None: no gate.
        deadline_s, clock: see `waycode.search.refine`.
    """
    descend = descent_cost(objective)
    is_descended = not isinstance(objective, BaseObjective) or objective.differentiable
    visited: list[tuple[tuple[float, ...], Tensor, AnyCandidates]] = []  # rank, latents, candidate

    def cost(decoded: tuple[Tensor, AnyCandidates]) -> Tensor:
        latents, candidate = decoded
        costs = descend(candidate)
        with torch.no_grad():
            rejected = limits is not None and bool(too_uncertain(candidate, limits)[0])
            compared = costs if is_descended else cost_levels(objective, candidate)
        visited.append(((float(rejected), *compared[0].reshape(-1).tolist()), latents.detach()[0], candidate))
        return costs if costs.ndim == 1 else costs.sum(dim=1)

    made = refine(
        lambda latents: (latents, decode(latents)), cost, start[None], steps=steps, deadline_s=deadline_s, clock=clock
    ).steps
    usable = [place for place, (rank, _, _) in enumerate(visited) if all(map(math.isfinite, rank))]
    best = min(usable, key=lambda place: visited[place][0], default=0)  # if equal, the earliest
    _, latents, seen = visited[best]
    return VisitedBest(
        latents=latents,
        candidate=seen.detached(),
        is_start=best == 0,
        num_decodes=len(visited),
        steps=made,
    )
