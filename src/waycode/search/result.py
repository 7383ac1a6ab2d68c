"""What a search answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic

from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.search.scoring import Decoded
from waycode.search.trace import Trace, TraceStep


class SearchStatus(StrEnum):
    """How a search ended; where several are true, the first of NO_COST, UNCERTAIN, DEADLINE is said."""

    FOUND = "found"
    UNCERTAIN = "uncertain"  # the gate rejected every candidate that has a cost: the best is one of them
    DEADLINE = "deadline"  # stopped early: the best has fewer tokens than asked for
    NO_COST = "no-cost"  # no candidate had a finite cost: the best is no better than any other


@dataclass(frozen=True, kw_only=True)
class SearchResult(Generic[Decoded]):
    """The final beam, best first; its codes are distinct."""

    ids: Int[Tensor, "B W n"]
    costs: Float[Tensor, "B W M"]  # as the objective gave them, without the gate
    rejected: Bool[Tensor, "B W"]  # by the gate
    decoded: Decoded  # of all K candidates of the last depth
    chosen: Int[Tensor, "B W"]  # which of these the beam are
    num_decodes: int  # per row
    status: tuple[SearchStatus, ...]  # of each row
    trace: Trace

    @property
    def depth(self) -> int:
        """The number of tokens that was reached."""
        return self.ids.shape[2]


def conclude(steps: list[TraceStep], decoded: Decoded, *, num_decodes: int, is_complete: bool) -> SearchResult[Decoded]:
    """The result of a search whose last depth decoded to this."""
    last = steps[-1]
    return SearchResult(
        ids=take(last.ids, last.chosen),
        costs=take(last.costs, last.chosen),
        rejected=last.rejected.gather(1, last.chosen),
        decoded=decoded,
        chosen=last.chosen,
        num_decodes=num_decodes,
        status=_status(last, is_complete=is_complete),
        trace=Trace(steps=tuple(steps)),
    )


def take(values: Tensor, index: Tensor) -> Tensor:
    """values[b, index[b, k]] for values [B, n, m]."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))


def _status(last: TraceStep, *, is_complete: bool) -> tuple[SearchStatus, ...]:
    best = last.order[:, :1]  # the order puts the accepted first and those without a cost last: one look is enough
    usable, rejected = last.usable.gather(1, best)[:, 0].tolist(), last.rejected.gather(1, best)[:, 0].tolist()
    calm = SearchStatus.FOUND if is_complete else SearchStatus.DEADLINE
    return tuple(
        SearchStatus.NO_COST if not is_usable else SearchStatus.UNCERTAIN if is_rejected else calm
        for is_usable, is_rejected in zip(usable, rejected, strict=True)
    )
