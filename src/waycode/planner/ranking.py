"""How a search ranks candidates: the checked costs of an objective, its gradient for refinement, and the gate."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.model import Spread, VarianceGate
from waycode.objectives import BaseObjective, Objective, parse_objective
from waycode.objectives.candidates import AnyCandidates, JointCandidates
from waycode.planner.plan import PlannerError
from waycode.search import as_levels


def as_function(objective: Objective | str) -> Objective:
    """An objective as it is, or parsed from its text."""
    if isinstance(objective, str):
        return parse_objective(objective)
    if not callable(objective):
        raise PlannerError(f"got {objective!r:.60}, expected an objective, its text, or a function of candidates")
    return objective


def checked_costs(objective: Objective, candidates: AnyCandidates) -> Tensor | Sequence[Any]:
    """The costs that an objective returns, checked, with a leading axis for the single row of a search."""
    count = len(candidates)
    if isinstance(objective, BaseObjective):
        objective.check_scope(candidates)
    costs = objective(candidates)
    if isinstance(objective, BaseObjective) and isinstance(costs, Tensor) and costs.is_floating_point():
        costs = costs.to(candidates.position_m.dtype)  # differences below the model's precision are ties
    if isinstance(costs, np.ndarray):
        costs = torch.tensor(costs, device=candidates.position_m.device)
    if isinstance(costs, Tensor):
        if costs.ndim not in (1, 2) or len(costs) != count:
            shape = list(costs.shape)
            raise PlannerError(f"the objective returned costs of shape {shape}, expected [{count}] or [{count}, M]")
        if costs.ndim == 2 and costs.shape[1] == candidates.num_steps and not isinstance(objective, BaseObjective):
            raise PlannerError(
                f"the objective returned costs of shape {list(costs.shape)}, one per step, expected [{count}]: did you "
                "forget `.mean(1)`? Costs that are levels come from a `BaseObjective` with `level_names`"
            )
        return costs[None]
    if not isinstance(costs, Sequence) or len(costs) != count:
        raise PlannerError(
            f"the objective returned {costs!r:.60}, expected a tensor [{count}] or [{count}, M], "
            f"or a list of {count} values that can be ordered"
        )
    return costs


def named_costs(objective: Objective, candidate: AnyCandidates, levels: Sequence[float]) -> dict[str, float]:
    """The parts of the cost of a single candidate; for a plain function, its levels."""
    if isinstance(objective, BaseObjective):
        with torch.no_grad():
            return {name: float(values[0]) for name, values in objective.explain(candidate).items()}
    if len(levels) == 1:
        return {"cost": levels[0]}
    return {f"level {number}": value for number, value in enumerate(levels, start=1)}


def descent_cost(objective: Objective) -> Callable[[AnyCandidates], Tensor]:
    """The cost that gradient steps descend: the sum of the objective's differentiable parts, or a plain function."""
    parts = objective.differentiable_parts() if isinstance(objective, BaseObjective) else []
    if isinstance(objective, BaseObjective) and not parts:
        raise PlannerError(
            f"{objective} has no gradient to refine the plan with: give a differentiable refine_objective, "
            "such as TerminalVariance(), or plan with refine_steps=0"
        )

    def cost(candidates: AnyCandidates) -> Tensor:
        levels = [part.levels(candidates).sum(dim=1) for part in parts]
        costs = torch.stack(levels).sum(dim=0) if parts else objective(candidates)
        if not isinstance(costs, Tensor) or (torch.is_grad_enabled() and not costs.requires_grad):
            raise PlannerError(
                "the objective has no gradient to refine the plan with: expected a tensor computed from the "
                "candidates by differentiable operations; give such a refine_objective, or plan with refine_steps=0"
            )
        return costs

    return cost


def checked_gate(gate: VarianceGate, depth: int) -> VarianceGate:
    """The gate; raises if a threshold is missing for up to `depth` tokens."""
    missing = sorted(set(range(1, depth + 1)) - set(gate.sigma_max_m))
    if missing:
        raise PlannerError(
            f"the model has no threshold of uncertainty (sigma_max_m) for {missing} tokens; "
            f"available: {sorted(gate.sigma_max_m) or 'none'}; plan with gate=False, or give the planner thresholds"
        )
    return gate


def too_uncertain(candidates: AnyCandidates, limits: VarianceGate) -> Bool[Tensor, " K"]:
    """The gate: final spread above that of nearly all reconstructions (paper, section 4), or NaN."""
    return ~(final_spread_m(candidates, limits) <= limits.sigma_max_m[candidates.num_tokens])


def final_spread_m(candidates: AnyCandidates, gate: VarianceGate) -> Float[Tensor, " K"]:
    """What the gate compares; of several agents, that of the one that the model is least certain of."""
    agents = candidates.agents if isinstance(candidates, JointCandidates) else (candidates,)
    return torch.stack([gate.spread.of(one.std_m[:, -1]) for one in agents]).amax(dim=0)


def uncertainty_reason(candidates: AnyCandidates, index: int, limits: VarianceGate | None) -> str | None:
    """Why the gate rejects a single candidate; None if it does not, or if there is no threshold."""
    limit = None if limits is None else limits.sigma_max_m.get(candidates.num_tokens)
    if limits is None or limit is None:
        return None
    spread = float(final_spread_m(candidates.select(slice(index, index + 1)), limits)[0])
    if spread <= limit:
        return None
    which = "final standard deviation" if limits.spread is Spread.BOTH else "smaller final standard deviation"
    return f"its {which} is {spread:.2f} m, above the limit of {limit:.2f} m"


def cost_levels(objective: Objective, candidates: AnyCandidates) -> Float[Tensor, "K M"]:
    """The costs as numbers in lexicographic order."""
    return as_levels(checked_costs(objective, candidates), num_rows=1, num_candidates=len(candidates))[0]
