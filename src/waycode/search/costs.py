"""Costs of candidates: from whatever an objective returns to one lexicographic order.

The paper (section 4) lets an objective answer in any set with a total order: numbers, tuples of them, or Python values.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# [B, K], or [B, K, M] in lexicographic order; or Python values: K of them if there is one row, else B sequences of K.
Costs: TypeAlias = Tensor | np.ndarray | Sequence[Any]

EXACT_UP_TO = 2**53  # whole numbers that a float64 holds exactly


def as_levels(costs: object, *, num_rows: int, num_candidates: int) -> Float[Tensor, "B K M"]:
    """Costs as [B, K, M].

    Numbers and tuples of numbers stay what they are. Other Python values become their rank among the candidates of
    their row, and those that contain something infinite or not a number become NaN.
    """
    if isinstance(costs, Sequence):
        costs = _levels_of_values(costs, num_rows=num_rows, num_candidates=num_candidates)
    if not isinstance(costs, Tensor | np.ndarray):
        raise ValueError(
            f"the objective returned {type(costs).__name__}, expected a tensor, an array or a sequence of costs"
        )
    costs = torch.as_tensor(costs).detach()
    if costs.shape[:2] != (num_rows, num_candidates) or costs.ndim not in (2, 3) or costs.numel() == 0:
        shape = f"[{num_rows}, {num_candidates}]"
        raise ValueError(
            f"the objective returned costs of shape {list(costs.shape)}, expected {shape} or {shape[:-1]}, M]"
        )
    levels = costs if costs.ndim == 3 else costs[..., None]
    return levels if levels.dtype in (torch.float32, torch.float64) else levels.double()  # integers stay exact


def best_first(
    costs: Float[Tensor, "B K M"],
    standing: Int[Tensor, "B K"] | None = None,
    doubt: Float[Tensor, "B K"] | None = None,
) -> Int[Tensor, "B K"]:
    """Indices of the candidates in lexicographic order of their costs; of equals, the earlier comes first.

    The standing, if there is one, is a level before all others, the doubt one after them.
    """
    # In numpy, which sorts a handful of numbers faster than torch dispatches one operation; its first key comes last.
    levels = costs.cpu().numpy()
    keys = [levels[..., level] for level in range(levels.shape[2] - 1, -1, -1)]
    before = [] if standing is None else [standing.cpu().numpy()]
    after = [] if doubt is None else [doubt.cpu().numpy()]
    order = np.lexsort([*after, *keys, *before])
    return torch.from_numpy(order).to(costs.device)


def is_finite(costs: Float[Tensor, "B K M"]) -> Bool[Tensor, "B K"]:
    """Whether all levels of a cost are finite."""
    return torch.from_numpy(np.isfinite(costs.cpu().numpy()).all(axis=2)).to(costs.device)


def _levels_of_values(values: Sequence[Any], *, num_rows: int, num_candidates: int) -> Tensor:
    """Python values as levels [B, K, M] of numbers, or as ranks [B, K] if they are no numbers."""
    rows = [values] if num_rows == 1 else list(values)
    lengths = [len(row) if isinstance(row, Sequence) else None for row in rows]
    if lengths != [num_candidates] * num_rows:
        expected = f"{num_candidates} costs" if num_rows == 1 else f"{num_rows} sequences of {num_candidates} costs"
        got = lengths[0] if num_rows == 1 else lengths
        raise ValueError(f"the objective returned sequences of length {got}, expected {expected}")
    numbers = [[_numbers(value) for value in row] for row in rows]
    num_levels = {len(levels) for row in numbers for levels in row}  # tuples of several lengths are Python's to compare
    levels = numbers if len(num_levels) == 1 and num_levels != {0} else [_ranks(row) for row in rows]
    return torch.tensor(levels, dtype=torch.float64)


def _numbers(value: object) -> tuple[float, ...]:
    """A number, or a tuple or list of numbers, as levels; none if only Python can compare it."""
    parts = value if isinstance(value, tuple | list) else (value,)
    numbers = [part.item() if isinstance(part, Tensor | np.generic) and part.ndim == 0 else part for part in parts]
    exact = all(isinstance(part, float) or (isinstance(part, int) and abs(part) <= EXACT_UP_TO) for part in numbers)
    return tuple(float(part) for part in numbers) if exact else ()


def _ranks(values: Sequence[Any]) -> list[float]:
    """The place of each value in Python's order, from 0; equals share one, and NaN is that of what has no place."""
    ranks = [math.nan] * len(values)
    try:
        order = sorted((index for index, value in enumerate(values) if _has_place(value)), key=values.__getitem__)
        for place, index in enumerate(order):
            previous = order[place - 1]
            is_new = place > 0 and values[previous] < values[index]
            ranks[index] = 0.0 if place == 0 else ranks[previous] + is_new
    except (TypeError, ValueError, RuntimeError) as error:  # arrays and tensors refuse with the latter two
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(
            f"the objective returned costs that cannot be ordered ({kinds}: {error}), "
            "expected numbers, tuples or other values that Python can compare with <"
        ) from error
    return ranks


def _has_place(value: object) -> bool:
    """Python would order what is not a number somewhere, without a word."""
    if isinstance(value, tuple | list):
        return all(_has_place(part) for part in value)
    return not isinstance(value, float | np.floating) or math.isfinite(value)
