"""Costs: tensors, arrays and Python values become one lexicographic order."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from table_decoder import DEPTH, SEEDS, Table, search
from waycode.search import as_levels, lexicographic_order

NAN, INF = math.nan, math.inf


def order_of(values: Any, *, num_rows: int = 1, num_candidates: int = 3) -> list[int]:
    return lexicographic_order(as_levels(values, num_rows=num_rows, num_candidates=num_candidates))[0].tolist()


@given(SEEDS, st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_the_order_is_that_of_tuples(seed: int, candidates: int, levels: int, distinct: int) -> None:
    costs = torch.randint(distinct, (2, candidates, levels), generator=torch.Generator().manual_seed(seed)).float()
    for row, order in zip(costs.tolist(), lexicographic_order(costs).tolist(), strict=True):
        assert order == sorted(range(candidates), key=lambda index: tuple(row[index]))
        assert order[0] == min(range(candidates), key=lambda index: tuple(row[index]))


def test_a_standing_comes_before_all_levels() -> None:
    costs = torch.tensor([[[3.0], [1.0], [2.0], [1.0]]])
    assert lexicographic_order(costs, first=torch.tensor([[0, 1, 0, 2]])).tolist() == [[2, 0, 1, 3]]


def test_tie_break_decides_between_equals_only() -> None:
    costs = torch.tensor([[1.0, 0.0, 1.0, 0.0]])[..., None]
    spread = torch.tensor([[0.1, 3.0, 0.0, 2.0]])
    assert lexicographic_order(costs, last=spread).tolist() == [[3, 1, 2, 0]]
    assert lexicographic_order(costs, first=torch.tensor([[0, 0, 0, 1]]), last=spread).tolist() == [[1, 2, 0, 3]]


def test_infinite_costs_have_their_place() -> None:
    costs = torch.tensor([[[INF, 0.0], [1.0, INF], [-INF, 5.0], [1.0, 3.0]]])
    assert lexicographic_order(costs).tolist() == [[2, 3, 1, 0]]


@pytest.mark.parametrize("bad", [NAN, INF, -INF], ids=str)
@pytest.mark.parametrize("level", [0, 1])
def test_what_is_not_finite_never_wins(bad: float, level: int) -> None:
    table = Table(0, num_rows=2, levels=2)
    table.costs[:, 0, ..., level] = bad
    found = search(table)
    assert (found.ids[:, 0, 0] != 0).all()
    assert found.status == ("found", "found")
    first = found.trace.steps[0]
    assert first.usable.tolist() == [[False, True, True, True]] * 2
    assert first.rank[:, 0].tolist() == [3, 3]
    torch.testing.assert_close(first.costs[:, 0, level], torch.tensor([bad] * 2), equal_nan=True)  # visible as it was


def test_only_costs_that_are_not_finite() -> None:
    table = Table(0, num_rows=2)
    table.costs[0] = NAN
    found = search(table)
    assert found.status == ("no-cost", "found")  # a search that finds nothing good says so, it does not raise
    assert found.costs[0].isnan().all()
    assert found.ids[0, 0].tolist() == [0] * DEPTH


def test_costs_keep_their_precision() -> None:
    fine = torch.tensor([[1.0 + 1e-12, 1.0]], dtype=torch.float64)
    whole = torch.tensor([[2**30 + 1, 2**30]])
    yes_or_no = torch.tensor([[True, False]])
    brief = torch.tensor([[1.0, 0.5]], dtype=torch.bfloat16)
    huge = [2**60 + 1, 2**60]
    for costs in (fine, whole, yes_or_no, brief, huge):
        assert order_of(costs, num_candidates=2) == [1, 0]


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 4), (2, 4, 1, 1), (2, 4, 0), ()], ids=str)
def test_costs_of_a_wrong_shape(shape: tuple[int, ...]) -> None:
    words = rf"costs of shape \[{', '.join(map(str, shape))}\], expected \[2, 4\] or \[2, 4, M\]"
    with pytest.raises(ValueError, match=words):
        as_levels(torch.zeros(shape), num_rows=2, num_candidates=4)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([3.5, -1, True], [[3.5], [-1], [1]]),
        ([(1, 0.5), (0, 9.0), (1, 0.25)], [[1, 0.5], [0, 9], [1, 0.25]]),
        ([[1, 2], [3, 4], [5, 6]], [[1, 2], [3, 4], [5, 6]]),
        (np.array([[3.0, 1.0, 2.0]]), [[3], [1], [2]]),
        ([torch.tensor(3.0), torch.tensor(1.0), torch.tensor(2)], [[3], [1], [2]]),
        (list(np.array([3.0, 1.0, 2.0], np.float32)), [[3], [1], [2]]),
        (["b", "c", "a"], [[1], [2], [0]]),
        ([(1, "b"), (1, "a"), (0, "c")], [[2], [1], [0]]),
        ([Fraction(1, 3), Fraction(1, 4), Fraction(1, 3)], [[1], [0], [1]]),
        ([(1,), (1, 2), (0, 5)], [[1], [2], [0]]),
        ([2**60, 2**60 + 1, 2**60], [[0], [1], [0]]),
    ],
    ids=["numbers", "tuples", "lists", "array", "tensors", "float32", "words", "mixed tuples", "fractions",
         "unequal lengths", "beyond float64"],
)  # fmt: skip
def test_python_values(values: Any, levels: list[list[float]]) -> None:
    """Numbers are levels as they are, other values are ranked; equals share a rank."""
    assert as_levels(values, num_rows=1, num_candidates=3).tolist() == [levels]


@pytest.mark.parametrize(
    "values",
    [
        [("b", 1), ("a", NAN), ("a", 2)],
        [(2, "x"), (-INF, "x"), (1, "x")],
        [("z",), ("a", (NAN,)), ("b", (1.0,))],
    ],
    ids=["not a number", "infinite", "nested"],
)
def test_python_values_that_are_not_finite_have_no_rank(values: Any) -> None:
    levels = as_levels(values, num_rows=1, num_candidates=3)[0, :, 0]
    assert levels[0] == 1
    assert levels[1].isnan()
    assert levels[2] == 0


def test_one_sequence_per_row() -> None:
    levels = as_levels([["b", "a"], ["x", "y"]], num_rows=2, num_candidates=2)
    assert levels.tolist() == [[[1], [0]], [[0], [1]]]


@dataclass(frozen=True)
class Backwards:
    """A cost of the user's own, that knows no more than which is less."""

    value: int

    def __lt__(self, other: "Backwards") -> bool:
        return self.value > other.value


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_any_order_that_python_knows(values: list[int]) -> None:
    costs = [Backwards(value) for value in values]
    assert order_of(costs, num_candidates=len(costs)) == sorted(range(len(costs)), key=costs.__getitem__)


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_search_with_python_values_is_search_with_numbers(seed: int, beam_width: int) -> None:
    table = Table(seed, num_rows=2, levels=2, distinct=4)

    def as_words(ids: Tensor) -> list[list[tuple[str, ...]]]:
        return [[tuple(f"{level:03.0f}" for level in cost) for cost in row] for row in table.cost(ids).tolist()]

    found = search(table, beam_width=beam_width, objective=as_words)
    assert torch.equal(found.ids, search(table, beam_width=beam_width).ids)
    as_tuples = search(
        table, beam_width=beam_width, objective=lambda ids: [[*map(tuple, row)] for row in table.cost(ids).tolist()]
    )
    assert torch.equal(as_tuples.costs, search(table, beam_width=beam_width).costs.double())


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([1, "a", 2], "int, str"),
        ([1.0, None, 2.0], "NoneType, float"),
        ([1j, 2j, 3j], "complex"),
        ([np.zeros(2), np.ones(2), np.ones(2)], "ndarray"),
        ([torch.zeros(2), torch.ones(2), torch.ones(2)], "Tensor"),
    ],
    ids=["mixed", "none", "complex", "arrays", "tensors"],
)
def test_values_that_cannot_be_ordered(values: Any, kinds: str) -> None:
    with pytest.raises(ValueError, match=rf"costs that cannot be ordered \({kinds}: .*\), expected numbers") as caught:
        as_levels(values, num_rows=1, num_candidates=3)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("values", "num_rows", "words"),
    [
        ([1.0, 2.0], 1, "sequences of length 2, expected 3 costs"),
        ([[1, 2, 3], [1, 2]], 2, r"sequences of length \[3, 2\], expected 2 sequences of 3 costs"),
        ([1, 2, 3], 2, r"sequences of length \[None, None, None\], expected 2 sequences of 3 costs"),
        (None, 1, "returned NoneType, expected a tensor, an array or a sequence of costs"),
        (4.0, 1, "returned float, expected a tensor, an array or a sequence of costs"),
    ],
    ids=["too few", "a short row", "no rows", "nothing", "one number"],
)
def test_values_of_a_wrong_shape(values: Any, num_rows: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        as_levels(values, num_rows=num_rows, num_candidates=3)


def test_an_objective_that_fails_keeps_its_own_error() -> None:
    def fails(ids: Tensor) -> Tensor:
        raise KeyError("my own mistake")

    with pytest.raises(KeyError, match="my own mistake") as caught:
        search(Table(0, num_rows=1), objective=fails)
    assert caught.traceback[-1].name == "fails"
