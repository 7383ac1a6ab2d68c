"""The result of a search: the final beam, its status, and a trace of all evaluated candidates.

Axes: B rows searched at once, K candidates, W beam entries, n tokens, M cost levels.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    import pyarrow as pa

Decoded = TypeVar("Decoded")  # return type of the decode callable, for K candidates


class SearchStatus(StrEnum):
    """How a search ended. If several apply, the first of NO_COST, UNCERTAIN, DEADLINE is reported."""

    FOUND = "found"
    UNCERTAIN = "uncertain"  # the gate rejected every candidate with a finite cost; the best of those is returned
    DEADLINE = "deadline"  # stopped early: the result has fewer tokens than requested
    NO_COST = "no-cost"  # no candidate had a finite cost; the result is arbitrary


@dataclass(frozen=True, kw_only=True)
class TraceStep:
    """All K candidates of one depth."""

    ids: Int[Tensor, "B K n"]  # token ids
    costs: Float[Tensor, "B K M"]  # as the objective returned them
    rejected: Bool[Tensor, "B K"]  # by the gate
    usable: Bool[Tensor, "B K"]  # all levels of the cost are finite
    order: Int[Tensor, "B K"]  # candidate indices, best first
    beam_width: int  # number of candidates kept, at most

    @property
    def chosen(self) -> Int[Tensor, "B W"]:
        """Indices of the kept candidates, best first."""
        return self.order[:, : self.beam_width]

    @cached_property
    def rank(self) -> Int[Tensor, "B K"]:
        """Rank of each candidate in its row; 0 is the best."""
        return self.order.argsort(dim=1)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The depths of a search, in order."""

    steps: tuple[TraceStep, ...]

    def rows(self, row: int = 0) -> list[dict[str, Any]]:
        """All candidates of one searched row, depth by depth, in the order of enumeration."""
        found = []
        for step in self.steps:
            columns = {
                "tokens": step.ids, "costs": step.costs, "usable": step.usable, "rejected": step.rejected,
                "kept": step.rank < step.beam_width, "rank": step.rank,
            }  # fmt: skip
            listed = [values[row].tolist() for values in columns.values()]
            depth = step.ids.shape[2]
            found += [
                {"depth": depth, **dict(zip(columns, values, strict=True))} for values in zip(*listed, strict=True)
            ]
        return found

    def to_table(self, row: int = 0) -> "pa.Table":
        """`rows` as a table with typed columns."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows(row), schema=trace_schema())


def trace_schema() -> "pa.Schema":
    """The columns of `Trace.to_table`."""
    import pyarrow as pa

    return pa.schema(
        {
            "depth": pa.int64(),
            "tokens": pa.list_(pa.int64()),
            "costs": pa.list_(pa.float64()),
            "usable": pa.bool_(),
            "rejected": pa.bool_(),
            "kept": pa.bool_(),
            "rank": pa.int64(),
        }
    )


@dataclass(frozen=True, kw_only=True)
class SearchResult(Generic[Decoded]):
    """The final beam, best first. Its token sequences are distinct."""

    ids: Int[Tensor, "B W n"]
    costs: Float[Tensor, "B W M"]  # as the objective returned them; the gate is not part of them
    rejected: Bool[Tensor, "B W"]  # by the gate
    decoded: Decoded  # all K candidates of the last depth
    chosen: Int[Tensor, "B W"]  # indices of the beam in `decoded`
    num_decodes: int  # per row
    status: tuple[SearchStatus, ...]  # of each row
    trace: Trace

    @property
    def depth(self) -> int:
        """Number of tokens of the result; fewer than requested if the deadline stopped the search."""
        return self.ids.shape[2]


def search_result(
    steps: list[TraceStep], decoded: Decoded, *, num_decodes: int, is_complete: bool
) -> SearchResult[Decoded]:
    """Builds the result of a search from its evaluated depths.

    Args:
        steps: the evaluated depths, at least one.
        decoded: the candidates of the last depth.
        num_decodes: decoded candidates per row, over all depths.
        is_complete: false if a deadline stopped the search before the requested depth.
    """
    last = steps[-1]
    best = last.order[:, :1]  # accepted candidates come first and unusable ones last: the best decides the status
    usable, rejected = last.usable.gather(1, best)[:, 0].tolist(), last.rejected.gather(1, best)[:, 0].tolist()
    default_status = SearchStatus.FOUND if is_complete else SearchStatus.DEADLINE
    return SearchResult(
        ids=select_rows(last.ids, last.chosen),
        costs=select_rows(last.costs, last.chosen),
        rejected=last.rejected.gather(1, last.chosen),
        decoded=decoded,
        chosen=last.chosen,
        num_decodes=num_decodes,
        status=tuple(
            SearchStatus.NO_COST if not is_usable else SearchStatus.UNCERTAIN if is_rejected else default_status
            for is_usable, is_rejected in zip(usable, rejected, strict=True)
        ),
        trace=Trace(steps=tuple(steps)),
    )


def select_rows(values: Tensor, index: Tensor) -> Tensor:
    """values[b, index[b, k]] for values [B, K, m] and index [B, W]: a tensor [B, W, m]."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))
