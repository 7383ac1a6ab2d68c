"""What a search looked at: every candidate of every depth, what it cost and why it was kept or not."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class TraceStep:
    """The K candidates of one depth."""

    ids: Int[Tensor, "B K n"]
    costs: Float[Tensor, "B K M"]  # as the objective gave them
    rejected: Bool[Tensor, "B K"]  # by the gate
    usable: Bool[Tensor, "B K"]  # whether all levels of the cost are finite
    order: Int[Tensor, "B K"]  # the candidates, best first
    beam_width: int  # how many of them were kept, at most

    @property
    def chosen(self) -> Int[Tensor, "B W"]:
        """The candidates that were kept, best first."""
        return self.order[:, : self.beam_width]

    @cached_property
    def rank(self) -> Int[Tensor, "B K"]:
        """The place of each candidate among all; 0 is the best."""
        return self.order.argsort(dim=1)

    @property
    def kept(self) -> Bool[Tensor, "B K"]:
        return self.rank < self.beam_width


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The depths of a search, one after another."""

    steps: tuple[TraceStep, ...]

    def rows(self, row: int = 0) -> list[dict[str, Any]]:
        """All candidates of one searched row, depth by depth in the order in which they were enumerated."""
        found = []
        for step in self.steps:
            columns = {
                "tokens": step.ids, "costs": step.costs, "usable": step.usable, "rejected": step.rejected,
                "kept": step.kept, "rank": step.rank,
            }  # fmt: skip
            listed = [values[row].tolist() for values in columns.values()]
            depth = step.ids.shape[2]
            found += [
                {"depth": depth, **dict(zip(columns, values, strict=True))} for values in zip(*listed, strict=True)
            ]
        return found

    def to_table(self, row: int = 0) -> "pa.Table":
        """The same as a table."""
        import pyarrow as pa

        schema = pa.schema(
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
        return pa.Table.from_pylist(self.rows(row), schema=schema)
