"""What a search is given, and how it puts the candidates of one depth in order."""

from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from waycode.search.costs import Costs, as_levels, best_first, is_finite
from waycode.search.trace import TraceStep

State = TypeVar("State")
Decoded = TypeVar("Decoded")

# Puts one more token behind prefixes: behind those of `state` with the indices `parents` [B, K], or behind nothing if
# there is no state yet; tokens are [B, K, D]. Returns the state of the longer prefixes and what they decode to.
Extend = Callable[[State | None, Tensor, Tensor], tuple[State, Decoded]]

# What candidates cost; the least is best. See `costs.Costs` for all that it may return.
Objective = Callable[[Decoded], Costs]

# Which candidates are not to be trusted [B, K], given the number of their tokens: the paper's threshold on the
# predicted variance, sigma_max(n), depends on it (appendix, "Details on Planning Objective Functions").
Gate = Callable[[Decoded, int], Tensor]

# How much candidates are to be doubted [B, K]: of those that cost the same, the least doubtful comes first.
Doubt = Callable[[Decoded], Tensor]


def score(
    decoded: Decoded,
    objective: Objective[Decoded],
    *,
    ids: Int[Tensor, "B K n"],
    gate: Gate[Decoded] | None,
    doubt: Doubt[Decoded] | None,
    beam_width: int,
) -> TraceStep:
    """Puts candidates in order: of those with a finite cost, the accepted before the rejected; then by cost.

    The gate is a level of its own, not the paper's heavy penalty: no cost is high enough to outweigh it.
    """
    num_rows, num_candidates, length = ids.shape
    costs = as_levels(objective(decoded), num_rows=num_rows, num_candidates=num_candidates).to(ids.device)
    usable = is_finite(costs)
    if gate is None:
        rejected = torch.zeros_like(usable)
    else:
        rejected = _checked(gate(decoded, length), num_rows=num_rows, num_candidates=num_candidates)
    standing = rejected.long().masked_fill_(~usable, 2)  # 0 accepted, 1 rejected, 2 without a cost
    order = best_first(costs, standing, None if doubt is None else doubt(decoded))
    return TraceStep(ids=ids, costs=costs, rejected=rejected, usable=usable, order=order, beam_width=beam_width)


def _checked(rejected: Tensor, *, num_rows: int, num_candidates: int) -> Bool[Tensor, "B K"]:
    if rejected.dtype != torch.bool or rejected.shape != (num_rows, num_candidates):
        got = f"{str(rejected.dtype).removeprefix('torch.')} of shape {list(rejected.shape)}"
        raise ValueError(f"the gate returned {got}, expected bool of shape [{num_rows}, {num_candidates}]")
    return rejected
