"""What candidates are worth: from an objective and the model's thresholds to what the search compares."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives import BaseObjective, Candidates
from waycode.planner.errors import PlannerError
from waycode.search import as_levels

# From K candidates to costs [K], [K, M] (lexicographic) or K values that Python can order.
Objective = Callable[[Candidates], Tensor | np.ndarray | Sequence[Any]]


def costs_of(objective: Objective, candidates: Candidates) -> Tensor | Sequence[Any]:
    """What the objective says, as the search wants it: tensors with an axis of one row in front."""
    costs = objective(candidates)
    count = len(candidates)
    if isinstance(costs, np.ndarray):
        costs = torch.tensor(costs)
    if isinstance(costs, Tensor):
        if costs.ndim not in (1, 2) or len(costs) != count:
            shape = list(costs.shape)
            raise PlannerError(f"the objective returned costs of shape {shape}, expected [{count}] or [{count}, M]")
        return costs[None]
    if not isinstance(costs, Sequence) or len(costs) != count:
        raise PlannerError(
            f"the objective returned {costs!r:.60}, expected a tensor [{count}] or [{count}, M], "
            f"or a list of {count} values that can be ordered"
        )
    return costs


def levels_of(objective: Objective, candidates: Candidates) -> Float[Tensor, "K M"]:
    """The costs as numbers in lexicographic order; of values that are no numbers, their rank among the candidates."""
    return as_levels(costs_of(objective, candidates), num_rows=1, num_candidates=len(candidates))[0]


def costs_by_name(objective: Objective, candidate: Candidates, levels: Sequence[float]) -> dict[str, float]:
    """The parts of the cost of a single candidate; of an objective that does not explain itself, its levels."""
    if isinstance(objective, BaseObjective):
        with torch.no_grad():
            return {name: float(values[0]) for name, values in objective.explain(candidate).items()}
    if len(levels) == 1:
        return {"cost": levels[0]}
    return {f"level {number}": value for number, value in enumerate(levels, start=1)}


def too_uncertain(candidates: Candidates, sigma_max_m: Mapping[int, float]) -> Bool[Tensor, " K"]:
    """Which trajectories the model is less sure of than of nearly all that it has reconstructed (paper, section 4)."""
    return ~(candidates.final_std_m <= sigma_max_m[candidates.num_tokens])  # what is not a number is not sure


def checked_thresholds(sigma_max_m: Mapping[int, float], depth: int) -> Mapping[int, float]:
    """The thresholds, if there is one for every number of tokens."""
    missing = sorted(set(range(1, depth + 1)) - set(sigma_max_m))
    if missing:
        raise PlannerError(
            f"the model has no threshold of uncertainty (sigma_max_m) for {missing} tokens; "
            f"available: {sorted(sigma_max_m) or 'none'}; plan with gate=False, or give the planner thresholds"
        )
    return sigma_max_m
