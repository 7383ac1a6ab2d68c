"""Costs of candidates: from whatever an objective returns to one lexicographic order."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def as_levels(costs: Tensor, *, num_rows: int, num_candidates: int) -> Float[Tensor, "B K M"]:
    """Costs [B, K] or [B, K, M] as [B, K, M]; a cost that is not a number makes a candidate infinite in all levels."""
    expected = (num_rows, num_candidates)
    if costs.shape[:2] != expected or costs.ndim not in (2, 3):
        shape = f"[{num_rows}, {num_candidates}]"
        raise ValueError(
            f"the objective returned costs of shape {list(costs.shape)}, expected {shape} or {shape[:-1]}, M]"
        )
    levels = costs if costs.ndim == 3 else costs[..., None]
    levels = levels if levels.is_floating_point() else levels.double()  # integers stay exact
    return levels.masked_fill(levels.isnan().any(dim=-1, keepdim=True), torch.inf)


def best_first(costs: Float[Tensor, "B K M"]) -> Int[Tensor, "B K"]:
    """Indices of the candidates in lexicographic order of their costs; of equals, the earlier comes first."""
    order = torch.arange(costs.shape[1], device=costs.device).expand(costs.shape[0], -1)
    for level in range(costs.shape[2] - 1, -1, -1):  # sorting stably from the last level to the first
        values = costs[..., level].gather(1, order)
        order = order.gather(1, values.argsort(dim=1, stable=True))
    return order
