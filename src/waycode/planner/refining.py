"""Gradient descent on the tokens that search has found (paper, appendix "Gradient-Based Token Optimization")."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives import BaseObjective, Candidates
from waycode.objectives.base import Then, Where
from waycode.planner.errors import PlannerError
from waycode.planner.judging import Objective, levels_of, too_uncertain
from waycode.planner.searching import SceneDecoder
from waycode.search import refine


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """The best of all latents that were visited, the first ones included."""

    latents: Float[Tensor, "n D"]
    candidate: Candidates  # what they decode to (K = 1)
    moved: bool  # whether they are others than the first
    steps: int  # that were made
    num_decodes: int


def slope_of(objective: Objective, refine_objective: Objective | None) -> Objective:
    """What refinement descends: the objective that is asked for, or those parts of the objective that have a gradient.

    Levels in lexicographic order have no gradient. Of these, the sum of the differentiable ones is descended; what is
    kept in the end is judged by all levels in their order (see `refine_latents`).
    """
    asked = objective if refine_objective is None else refine_objective
    if not isinstance(asked, BaseObjective):
        return asked  # a function of the user's: whether it has a gradient shows when it is called
    parts = _differentiable_parts(asked)
    if not parts:
        raise PlannerError(
            f"{asked} has no gradient to refine the plan with: give a differentiable refine_objective, "
            "such as TerminalVariance(), or plan with refine_steps=0"
        )
    return lambda candidates: torch.stack([part.levels(candidates).sum(dim=1) for part in parts]).sum(dim=0)


def refine_latents(
    decoder: SceneDecoder,
    latents: Float[Tensor, "n D"],
    *,
    slope: Objective,
    judge: Objective,
    steps: int,
    sigma_max_m: Mapping[int, float] | None,
    deadline_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Refinement:
    """Descends the slope and keeps the best that the judge has seen on the way, or until the deadline.

    Never worse than the start: what the gate rejects comes after all that it accepts, then the judge's levels decide.
    """
    visited: list[tuple[tuple[float, ...], Tensor, Candidates]] = []

    def decode(codes: Tensor) -> tuple[Tensor, Candidates]:
        return codes, decoder.decode(codes)

    def cost(decoded: tuple[Tensor, Candidates]) -> Tensor:
        codes, candidates = decoded
        costs = _with_gradient(slope(candidates))
        with torch.no_grad():
            rejected = sigma_max_m is not None and bool(too_uncertain(candidates, sigma_max_m)[0])
            levels = costs if judge is slope else levels_of(judge, candidates)
        visited.append(((float(rejected), *levels[0].reshape(-1).tolist()), codes.detach()[0], candidates))
        return costs if costs.ndim == 1 else costs.sum(dim=1)

    made = refine(decode, cost, latents[None], steps=steps, deadline_s=deadline_s, clock=clock).steps
    usable = [place for place, (key, _, _) in enumerate(visited) if all(map(math.isfinite, key))]
    best = min(usable, key=lambda place: visited[place][0], default=0)  # of equals the first: the start
    _, codes, seen = visited[best]
    candidate = replace(seen, position_m=seen.position_m.detach(), std_m=seen.std_m.detach())
    return Refinement(latents=codes, candidate=candidate, moved=best > 0, steps=made, num_decodes=len(visited))


def _with_gradient(costs: object) -> Float[Tensor, "K *M"]:
    """The costs, if they can be descended; those of the last step need not be."""
    if not isinstance(costs, Tensor) or (torch.is_grad_enabled() and not costs.requires_grad):
        raise PlannerError(
            "the objective has no gradient to refine the plan with: expected a tensor that is made of the candidates "
            "by differentiable operations; give such a refine_objective, or plan with refine_steps=0"
        )
    return costs


def _differentiable_parts(objective: BaseObjective) -> list[BaseObjective]:
    if objective.differentiable:
        return [objective]
    if isinstance(objective, Then | Where):
        return [leaf for part in objective.parts for leaf in _differentiable_parts(part)]
    return []
