"""A decoder that is a table: what the tests of the search use instead of a network."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from waycode.search import Codebook, SearchResult, beam_search

CODEBOOK = Codebook(2, 2)  # four codes
DEPTH = 3
SEEDS = st.integers(0, 2**31 - 1)


class Table:
    """Decodes a prefix to the ids of its tokens; costs are looked up by them. Counts what it is asked for."""

    def __init__(
        self, seed: int, *, num_rows: int, levels: int = 1, distinct: int = 1000, codebook: Codebook = CODEBOOK
    ):
        shape = (num_rows, *[len(codebook) + 1] * DEPTH, levels)  # the last place of an axis: no token yet
        self.costs = torch.randint(distinct, shape, generator=torch.Generator().manual_seed(seed)).float()
        self.codebook, self.num_decodes = codebook, 0

    def extend(self, state: Tensor | None, parents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        ids = self.codebook.ids(tokens)[..., None]  # [B, K, 1]
        if state is not None:
            ids = torch.cat([state.gather(1, parents[..., None].expand(-1, -1, state.shape[2])), ids], dim=2)
        self.num_decodes += ids.shape[1]
        return ids, ids

    def cost(self, ids: Tensor) -> Tensor:
        rows = torch.arange(len(self.costs))[:, None].expand(ids.shape[:2])
        places = torch.full((*ids.shape[:2], DEPTH), len(self.codebook))
        places[..., : ids.shape[2]] = ids
        return self.costs[rows, places[..., 0], places[..., 1], places[..., 2]]

    def cost_of(self, row: int, prefix: tuple[int, ...]) -> tuple[float, ...]:
        place = (*prefix, *[len(self.codebook)] * (DEPTH - len(prefix)))
        return tuple(self.costs[(row, *place)].tolist())


def search(table: Table, *, depth: int = DEPTH, **options: Any) -> SearchResult[Tensor]:
    """Greedy search, if nothing else is asked for."""
    objective = options.pop("objective", table.cost)
    return beam_search(
        table.extend, objective, codebook=table.codebook, num_rows=len(table.costs), depth=depth, **options
    )
