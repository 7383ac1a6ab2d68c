"""Converts the costs that an objective returns to numbers, and orders them lexicographically.

The paper (section 4) allows objectives with values in any totally ordered set: numbers, tuples of numbers, or other
values that Python can compare.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Costs [B, K], or [B, K, M] in lexicographic order; or Python values: K of them for one row, else B sequences of K.
Costs: TypeAlias = Tensor | np.ndarray | Sequence[Any]

_MAX_EXACT_INTEGER = 2**53  # larger integers are not exact in float64


def as_levels(costs: object, *, num_rows: int, num_candidates: int) -> Float[Tensor, "B K M"]:
    """Costs as [B, K, M].

    Numbers and tuples of numbers are kept. Other Python values become their rank among the candidates of their row;
    values that contain an infinity or NaN become NaN.

    Args:
        costs: the return value of an objective; see `Costs`.
        num_rows: expected B.
        num_candidates: expected K.
    """
    if isinstance(costs, Sequence):
        costs = _levels_of_values(costs, num_rows=num_rows, num_candidates=num_candidates)
    if not isinstance(costs, Tensor | np.ndarray):
        raise ValueError(
            f"the objective returned {type(costs).__name__}, expected a tensor, an array or a sequence of costs"
        )
    costs = costs.detach() if isinstance(costs, Tensor) else torch.from_numpy(np.asarray(costs))
    if costs.shape[:2] != (num_rows, num_candidates) or costs.ndim not in (2, 3) or costs.numel() == 0:
        shape = f"[{num_rows}, {num_candidates}]"
        raise ValueError(
            f"the objective returned costs of shape {list(costs.shape)}, expected {shape} or {shape[:-1]}, M]"
        )
    levels = costs if costs.ndim == 3 else costs[..., None]
    return levels if levels.dtype in (torch.float32, torch.float64) else levels.double()  # integers stay exact


def lexicographic_order(
    costs: Float[Tensor, "B K M"],
    *,
    first: Int[Tensor, "B K"] | None = None,
    last: Float[Tensor, "B K"] | None = None,
) -> Int[Tensor, "B K"]:
    """Candidate indices in lexicographic order of their costs; equal candidates keep their order.

    Args:
        costs: cost levels; the first level that differs decides.
        first: an additional level that is compared before `costs`.
        last: an additional level that is compared after `costs`.
    """
    # numpy sorts a few numbers faster than torch dispatches one operation. Its primary key comes last.
    levels = costs.cpu().numpy()
    keys = [levels[..., level] for level in range(levels.shape[2] - 1, -1, -1)]
    before = [] if first is None else [first.cpu().numpy()]
    after = [] if last is None else [last.cpu().numpy()]
    return torch.from_numpy(np.lexsort([*after, *keys, *before])).to(costs.device)


def is_finite(costs: Float[Tensor, "B K M"]) -> Bool[Tensor, "B K"]:
    """Whether all levels of a cost are finite."""
    return torch.from_numpy(np.isfinite(costs.cpu().numpy()).all(axis=2)).to(costs.device)


def _levels_of_values(values: Sequence[Any], *, num_rows: int, num_candidates: int) -> Tensor:
    """Python values as numeric levels [B, K, M], or as ranks [B, K] if they are not numbers."""
    rows = [values] if num_rows == 1 else list(values)
    lengths = [len(row) if isinstance(row, Sequence) else None for row in rows]
    if lengths != [num_candidates] * num_rows:
        expected = f"{num_candidates} costs" if num_rows == 1 else f"{num_rows} sequences of {num_candidates} costs"
        got = lengths[0] if num_rows == 1 else lengths
        raise ValueError(f"the objective returned sequences of length {got}, expected {expected}")
    numbers = [[_numbers(value) for value in row] for row in rows]
    num_levels = {len(levels) for row in numbers for levels in row}  # only Python compares tuples of unequal length
    levels = numbers if len(num_levels) == 1 and num_levels != {0} else [_ranks(row) for row in rows]
    return torch.tensor(levels, dtype=torch.float64, device="cpu")


def _numbers(value: object) -> tuple[float, ...]:
    """A number, or a tuple or list of numbers, as levels; empty if only Python can compare the value."""
    parts = value if isinstance(value, tuple | list) else (value,)
    numbers = [part.item() if isinstance(part, Tensor | np.generic) and part.ndim == 0 else part for part in parts]
    exact = all(
        isinstance(part, float) or (isinstance(part, int) and abs(part) <= _MAX_EXACT_INTEGER) for part in numbers
    )
    return tuple(float(part) for part in numbers) if exact else ()


def _ranks(values: Sequence[Any]) -> list[float]:
    """Rank of each value in Python's order, from 0; equal values share a rank, values without an order get NaN."""
    ranks = [math.nan] * len(values)
    try:
        order = sorted((index for index, value in enumerate(values) if _is_orderable(value)), key=values.__getitem__)
        for place, index in enumerate(order):
            previous = order[place - 1]
            is_new = place > 0 and values[previous] < values[index]
            ranks[index] = 0.0 if place == 0 else ranks[previous] + is_new
    except (TypeError, ValueError, RuntimeError) as error:  # arrays and tensors raise the last two
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(
            f"the objective returned costs that cannot be ordered ({kinds}: {error}), "
            "expected numbers, tuples or other values that Python can compare with <"
        ) from error
    return ranks


def _is_orderable(value: object) -> bool:
    """False for values with an infinity or NaN: their place in Python's order has no meaning."""
    if isinstance(value, tuple | list):
        return all(_is_orderable(part) for part in value)
    return not isinstance(value, float | np.floating) or math.isfinite(value)
