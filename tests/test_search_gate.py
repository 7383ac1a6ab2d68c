"""The gate, the deadline, the status that tells of them, and the trace of it all."""

from collections.abc import Callable
from itertools import product

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from table_decoder import CODEBOOK, DEPTH, SEEDS, Table, search
from waycode.search import Trace, exhaustive_search

PASSES_ALL = torch.zeros(1, 4, dtype=torch.bool)


def random_gate(seed: int, *, num_rows: int, share: float = 0.5) -> Callable[[Tensor, int], Tensor]:
    """Rejects a share of all prefixes, by their ids."""
    shape = (num_rows, *[len(CODEBOOK)] * DEPTH)
    table = torch.rand(DEPTH, *shape, generator=torch.Generator().manual_seed(seed)) < share

    def gate(ids: Tensor, num_tokens: int) -> Tensor:
        assert num_tokens == ids.shape[2]
        rows = torch.arange(num_rows)[:, None].expand(ids.shape[:2])
        places = torch.zeros(*ids.shape[:2], DEPTH, dtype=torch.long)
        places[..., :num_tokens] = ids
        return table[num_tokens - 1][rows, places[..., 0], places[..., 1], places[..., 2]]

    return gate


@given(SEEDS, st.integers(1, 5), st.sampled_from([0.1, 0.5, 0.9]))
@settings(max_examples=40, deadline=None)
def test_a_rejected_candidate_never_wins_over_an_accepted_one(seed: int, beam_width: int, share: float) -> None:
    table = Table(seed, num_rows=2, distinct=5)
    found = search(table, beam_width=beam_width, gate=random_gate(seed, num_rows=2, share=share))
    for step in found.trace.steps:
        rank = step.rank
        for row in range(2):
            accepted, rejected = rank[row][~step.rejected[row]], rank[row][step.rejected[row]]
            assert not (len(accepted) and len(rejected)) or accepted.max() < rejected.min()
    last = found.trace.steps[-1]
    assert found.rejected[:, 0].tolist() == last.rejected.all(dim=1).tolist()
    expected = ["uncertain" if every else "found" for every in last.rejected.all(dim=1)]
    assert list(found.status) == expected


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_the_gate_is_a_first_level_by_hand(seed: int) -> None:
    table, gate = Table(seed, num_rows=1, distinct=5), random_gate(seed, num_rows=1)
    every = list(product(range(len(CODEBOOK)), repeat=DEPTH))
    rejected = gate(torch.tensor([every]), DEPTH)[0].tolist()
    keys = {ids: (bad, table.cost_of(0, ids)) for ids, bad in zip(every, rejected, strict=True)}
    oracle = exhaustive_search(table.extend, table.cost, codebook=CODEBOOK, num_rows=1, depth=DEPTH, gate=gate)
    assert [tuple(ids) for ids in oracle.ids[0].tolist()] == sorted(every, key=keys.__getitem__)
    assert oracle.rejected[0].tolist() == sorted(rejected)
    wide = search(table, beam_width=64, gate=gate)
    assert torch.equal(wide.costs, oracle.costs)


def test_a_cost_that_is_missing_is_worse_than_a_rejection() -> None:
    table = Table(0, num_rows=1)
    table.costs[0, 1:] = torch.nan  # only the first code has costs, and it is rejected
    found = search(table, depth=1, gate=lambda ids, num_tokens: ids[..., -1] == 0)
    assert found.ids.tolist() == [[[0]]]
    assert found.status == ("uncertain",)


@pytest.mark.parametrize(
    ("answer", "got"),
    [(torch.zeros(1, 4), r"float32 of shape \[1, 4\]"), (torch.zeros(4, dtype=torch.bool), r"bool of shape \[4\]")],
    ids=["numbers", "no rows"],
)
def test_a_gate_that_answers_something_else(answer: Tensor, got: str) -> None:
    with pytest.raises(ValueError, match=rf"the gate returned {got}, expected bool of shape \[1, 4\]"):
        search(Table(0, num_rows=1), gate=lambda ids, num_tokens: answer)


class FakeClock:
    """Stands still but for what the decoder takes: `per_depth_s` at each call, or a time per candidate."""

    def __init__(self, table: Table, *, per_depth_s: float = 0.0, per_candidate_s: float = 0.0):
        self.now_s, self.table = 100.0, table
        self.per_depth_s, self.per_candidate_s = per_depth_s, per_candidate_s
        self.decode = table.extend

    def __call__(self) -> float:
        return self.now_s

    def extend(self, state: Tensor | None, parents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        self.now_s += self.per_depth_s + self.per_candidate_s * parents.shape[1]
        return self.decode(state, parents, tokens)


@pytest.mark.parametrize(
    ("deadline_s", "depth"),
    [(0.0, 1), (0.5, 1), (1.0, 1), (1.9, 1), (2.0, 2), (2.9, 2), (3.0, 3), (99.0, 3)],
)
def test_a_search_ends_before_its_deadline(deadline_s: float, depth: int) -> None:
    """A depth takes a second; the first is always finished, later ones are begun only if they will end in time."""
    table = Table(4, num_rows=2)
    clock = FakeClock(table, per_depth_s=1.0)
    table.extend = clock.extend  # type: ignore[method-assign]
    found = search(table, deadline_s=deadline_s, clock=clock)
    assert found.depth == len(found.trace.steps) == depth
    assert found.status == (("found" if depth == 3 else "deadline"),) * 2
    assert clock.now_s - 100 == depth
    assert found.num_decodes == 4 * depth
    assert torch.equal(found.ids, search(Table(4, num_rows=2), depth=depth).ids)


@pytest.mark.parametrize(("deadline_s", "depth"), [(4.0 + 7.9, 1), (4.0 + 8.0, 2), (4.0 + 8.0 + 8.0, 3)])
def test_more_candidates_are_expected_to_take_longer(deadline_s: float, depth: int) -> None:
    table = Table(4, num_rows=1)
    clock = FakeClock(table, per_candidate_s=1.0)
    table.extend = clock.extend  # type: ignore[method-assign]
    found = search(table, deadline_s=deadline_s, clock=clock, beam_width=2)
    assert found.depth == depth
    assert clock.now_s - 100 <= deadline_s


def test_uncertainty_is_more_important_than_a_deadline() -> None:
    table = Table(0, num_rows=2)
    clock = FakeClock(table, per_depth_s=1.0)
    table.extend = clock.extend  # type: ignore[method-assign]
    all_of_the_first = torch.tensor([[True], [False]]).expand(2, 4)
    found = search(table, deadline_s=1.0, clock=clock, gate=lambda ids, num_tokens: all_of_the_first)
    assert found.status == ("uncertain", "deadline")


@pytest.mark.parametrize("deadline_s", [-1.0, float("nan")])
def test_a_deadline_that_is_none(deadline_s: float) -> None:
    with pytest.raises(ValueError, match=f"deadline_s is {deadline_s}, expected 0 or more seconds"):
        search(Table(0, num_rows=1), deadline_s=deadline_s)


def small_trace() -> Trace:
    table = Table(0, num_rows=2, levels=2)
    table.costs[1, :, -1, -1] = torch.tensor([[3.0, 0.0], [1.0, 2.0], [1.0, 1.0], [torch.nan, 0.0], [9.0, 9.0]])
    return search(table, depth=1, beam_width=2, gate=lambda ids, num_tokens: ids[..., -1] == 2).trace


def test_the_rows_of_a_trace_by_hand() -> None:
    first, second, third, fourth = small_trace().rows(1)
    alike = {"depth": 1, "usable": True, "rejected": False}
    assert first == {**alike, "tokens": [0], "costs": [3.0, 0.0], "kept": True, "rank": 1}
    assert second == {**alike, "tokens": [1], "costs": [1.0, 2.0], "kept": True, "rank": 0}
    assert third == {**alike, "tokens": [2], "costs": [1.0, 1.0], "kept": False, "rank": 2, "rejected": True}
    assert not fourth["usable"]
    assert fourth["rank"] == 3


def test_a_trace_as_a_table() -> None:
    table = small_trace().to_table(1)
    assert table.schema.names == ["depth", "tokens", "costs", "usable", "rejected", "kept", "rank"]
    assert table.schema.field("tokens").type == pa.list_(pa.int64())
    assert table.schema.field("costs").type == pa.list_(pa.float64())
    assert table.slice(0, 3).to_pylist() == small_trace().rows(1)[:3]


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_a_trace_holds_every_candidate_of_every_depth(seed: int, beam_width: int) -> None:
    found = search(Table(seed, num_rows=2, distinct=6), beam_width=beam_width)
    for row in range(2):
        rows = found.trace.rows(row)
        assert len(rows) == found.num_decodes
        for depth in range(1, DEPTH + 1):
            of_depth = [entry for entry in rows if entry["depth"] == depth]
            kept = sorted((entry for entry in of_depth if entry["kept"]), key=lambda entry: entry["rank"])
            assert [entry["rank"] for entry in kept] == list(range(min(beam_width, len(of_depth))))
            parents = {tuple(entry["tokens"][:-1]) for entry in of_depth}
            before = {tuple(entry["tokens"]) for entry in rows if entry["depth"] == depth - 1 and entry["kept"]}
            assert parents == (before or {()})
        assert [entry["tokens"] for entry in kept] == found.ids[row].tolist()
        assert [entry["costs"] for entry in kept] == found.costs[row].tolist()
