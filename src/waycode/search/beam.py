"""Greedy and beam search over ordered tokens (paper, section 4). Knows a decode callable and a codebook, no network.

Axes: B rows that are searched at once, K candidates, W kept prefixes (the beam), V codes, n tokens, D, M cost levels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from waycode.search.codebook import Codebook
from waycode.search.costs import as_levels, best_first

State = TypeVar("State")
Decoded = TypeVar("Decoded")


# Puts one more token behind prefixes: behind those of `state` with the indices `parents` [B, K], or behind nothing if
# there is no state yet; tokens are [B, K, D]. Returns the state of the longer prefixes and what they decode to.
Extend = Callable[[State | None, Tensor, Tensor], tuple[State, Decoded]]


@dataclass(frozen=True, kw_only=True)
class SearchResult(Generic[Decoded]):
    """The final beam, best first."""

    ids: Int[Tensor, "B W n"]
    costs: Float[Tensor, "B W M"]
    decoded: Decoded  # of all K candidates of the last step
    chosen: Int[Tensor, "B W"]  # which of these the beam are
    num_decodes: int  # per row


def beam_search(
    extend: Extend[State, Decoded],
    objective: Callable[[Decoded], Tensor],
    *,
    codebook: Codebook,
    num_rows: int,
    depth: int,
    beam_width: int = 1,
    device: torch.device | str = "cpu",
) -> SearchResult[Decoded]:
    """Token by token, tries every code behind every kept prefix and keeps the `beam_width` best; 1 is greedy search.

    The objective maps what was decoded to costs [B, K], or [B, K, M] in lexicographic order; the least is best.
    """
    if depth < 1 or beam_width < 1:
        raise ValueError(f"depth is {depth} and beam_width {beam_width}, expected at least 1 of each")
    ids = torch.zeros(num_rows, 1, 0, dtype=torch.long, device=device)  # one empty prefix
    kept = torch.zeros(num_rows, 1, dtype=torch.long, device=device)  # where the prefixes are in the state
    state: State | None = None
    num_decodes = 0
    for _ in range(depth):
        width = ids.shape[1]
        behind = torch.arange(width, device=device).repeat_interleave(len(codebook)).expand(num_rows, -1)  # [B, W * V]
        token = torch.arange(len(codebook), device=device).repeat(width).expand(num_rows, -1)
        state, decoded = extend(state, kept.gather(1, behind), codebook.codes(token))
        costs = as_levels(objective(decoded), num_rows=num_rows, num_candidates=token.shape[1])
        num_decodes += token.shape[1]
        ids = torch.cat([_take(ids, behind), token[..., None]], dim=2)
        kept = best_first(costs)[:, :beam_width]
        ids, costs = _take(ids, kept), _take(costs, kept)
    return SearchResult(ids=ids, costs=costs, decoded=decoded, chosen=kept, num_decodes=num_decodes)


def _take(values: Tensor, index: Tensor) -> Tensor:
    """values[b, index[b, k]] for values [B, n, m]."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))
