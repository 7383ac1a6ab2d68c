"""Search: on a table instead of a network, against exhaustive search; then with the real decoder."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tiny_model import batch_of, crowd, random_latents, seen_by, tiny_model
from waycode.model.search_adapter import PrefixDecoder
from waycode.search import Codebook, SearchResult, as_levels, beam_search, best_first

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


def search(table: Table, *, beam_width: int = 1, depth: int = DEPTH) -> SearchResult[Tensor]:
    return beam_search(
        table.extend,
        table.cost,
        codebook=table.codebook,
        num_rows=len(table.costs),
        depth=depth,
        beam_width=beam_width,
    )


@given(SEEDS, st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_greedy_search_by_hand(seed: int, levels: int) -> None:
    table = Table(seed, num_rows=3, levels=levels, distinct=4)
    found = search(table)
    for row in range(3):
        prefix: tuple[int, ...] = ()
        for _ in range(DEPTH):
            prefix = min(
                ((*prefix, token) for token in range(len(CODEBOOK))), key=lambda longer: table.cost_of(row, longer)
            )
        assert tuple(found.ids[row, 0].tolist()) == prefix
        assert tuple(found.costs[row, 0].tolist()) == table.cost_of(row, prefix)


@given(SEEDS, st.integers(2, 7))
@settings(max_examples=25, deadline=None)
def test_beam_search_by_hand(seed: int, beam_width: int) -> None:
    table = Table(seed, num_rows=2, levels=2, distinct=5)
    found = search(table, beam_width=beam_width)
    for row in range(2):
        beam: list[tuple[int, ...]] = [()]
        for _ in range(DEPTH):
            longer = [(*prefix, token) for prefix in beam for token in range(len(CODEBOOK))]
            beam = sorted(longer, key=lambda prefix: table.cost_of(row, prefix))[:beam_width]
        assert [tuple(ids) for ids in found.ids[row].tolist()] == beam


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_a_wide_beam_is_exhaustive_search(seed: int) -> None:
    table = Table(seed, num_rows=2, levels=2, distinct=6)
    found = search(table, beam_width=len(CODEBOOK) ** DEPTH)
    every = list(product(range(len(CODEBOOK)), repeat=DEPTH))
    assert found.ids.shape == (2, len(every), DEPTH)
    for row in range(2):
        costs = sorted(table.cost_of(row, ids) for ids in every)
        assert [tuple(cost) for cost in found.costs[row].tolist()] == costs
        best = min(every, key=lambda ids: table.cost_of(row, ids))
        assert table.cost_of(row, tuple(found.ids[row, 0].tolist())) == table.cost_of(row, best)


def test_a_wider_beam_is_no_worse_here() -> None:
    """Greedy is caught by a first token that leads nowhere; a beam of two is not."""
    table = Table(0, num_rows=1)
    table.costs.fill_(9.0)
    table.costs[0, 0, -1, -1], table.costs[0, 1, -1, -1] = 1.0, 2.0
    table.costs[0, 1, 2, -1], table.costs[0, 1, 2, 3] = 0.5, 0.0
    assert search(table).costs.item() == 9.0
    assert search(table, beam_width=2).ids[0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("beam_width", "expected"), [(1, 12), (2, 4 + 8 + 8), (3, 4 + 12 + 12), (99, 4 + 16 + 64)])
def test_the_number_of_decodes(beam_width: int, expected: int) -> None:
    table = Table(0, num_rows=2)
    found = search(table, beam_width=beam_width)
    assert found.num_decodes == table.num_decodes == expected


def test_greedy_search_of_the_paper_takes_24_decodes() -> None:
    table = Table(0, num_rows=1, codebook=Codebook(2, 3))
    assert search(table).num_decodes == 24


def test_rows_are_searched_apart() -> None:
    table = Table(3, num_rows=5, levels=2, distinct=5)
    together = search(table, beam_width=3)
    for row in range(5):
        alone = Table(3, num_rows=5, levels=2, distinct=5)
        alone.costs = alone.costs[row : row + 1]
        found = search(alone, beam_width=3)
        assert torch.equal(found.ids[0], together.ids[row])
        assert torch.equal(found.costs[0], together.costs[row])


def test_what_was_decoded_belongs_to_what_was_chosen() -> None:
    found = search(Table(1, num_rows=3), beam_width=4)
    picked = found.decoded.gather(1, found.chosen[..., None].expand(-1, -1, DEPTH))
    assert torch.equal(picked, found.ids)


@pytest.mark.parametrize("depth", [1, 2])
def test_fewer_tokens(depth: int) -> None:
    assert search(Table(0, num_rows=2), depth=depth).ids.shape == (2, 1, depth)


@given(SEEDS, st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_the_order_is_that_of_tuples(seed: int, candidates: int, levels: int, distinct: int) -> None:
    costs = torch.randint(distinct, (2, candidates, levels), generator=torch.Generator().manual_seed(seed)).float()
    for row, order in zip(costs.tolist(), best_first(costs).tolist(), strict=True):
        assert order == sorted(range(candidates), key=lambda index: tuple(row[index]))


def test_infinite_costs_have_their_place() -> None:
    inf = torch.inf
    costs = torch.tensor([[[inf, 0.0], [1.0, inf], [-inf, 5.0], [1.0, 3.0]]])
    assert best_first(costs).tolist() == [[2, 3, 1, 0]]


def test_what_is_not_a_number_never_wins() -> None:
    nan = torch.nan
    costs = torch.tensor([[[nan, 0.0], [0.0, nan], [7.0, 9.0], [8.0, 0.0]]])
    levels = as_levels(costs, num_rows=1, num_candidates=4)
    assert best_first(levels)[0, :2].tolist() == [2, 3]
    assert levels[0, :2].isinf().all()
    table = Table(0, num_rows=2)
    table.costs[:, 0] = nan
    assert (search(table).ids[:, 0, 0] != 0).all()


def test_only_numbers_that_are_none() -> None:
    table = Table(0, num_rows=2)
    table.costs.fill_(torch.nan)
    found = search(table)
    assert found.costs.isinf().all()  # a search that finds nothing good says so, it does not raise


def test_costs_keep_their_precision() -> None:
    fine = torch.tensor([[1.0 + 1e-12, 1.0]], dtype=torch.float64)
    assert best_first(as_levels(fine, num_rows=1, num_candidates=2)).tolist() == [[1, 0]]
    whole = torch.tensor([[2**30 + 1, 2**30]])
    assert best_first(as_levels(whole, num_rows=1, num_candidates=2)).tolist() == [[1, 0]]
    yes_or_no = torch.tensor([[True, False]])
    assert best_first(as_levels(yes_or_no, num_rows=1, num_candidates=2)).tolist() == [[1, 0]]


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 4), (2, 4, 1, 1), ()], ids=str)
def test_costs_of_a_wrong_shape(shape: tuple[int, ...]) -> None:
    words = rf"costs of shape \[{', '.join(map(str, shape))}\], expected \[2, 4\] or \[2, 4, M\]"
    with pytest.raises(ValueError, match=words):
        as_levels(torch.zeros(shape), num_rows=2, num_candidates=4)


@pytest.mark.parametrize(("depth", "beam_width"), [(0, 1), (1, 0)])
def test_a_search_for_nothing(depth: int, beam_width: int) -> None:
    with pytest.raises(ValueError, match=f"depth is {depth} and beam_width {beam_width}, expected at least 1"):
        search(Table(0, num_rows=1), depth=depth, beam_width=beam_width)


@pytest.mark.parametrize("beam_width", [1, 3])
@pytest.mark.parametrize(("num_levels", "causal"), [(2, True), (3, True), (2, False)])
@torch.no_grad()
def test_found_trajectories_are_those_of_the_found_codes(beam_width: int, num_levels: int, causal: bool) -> None:
    model = tiny_model(causal=causal)
    _, memory = seen_by(model, batch_of(crowd()))
    codebook, target = model.codebook(num_levels), random_latents(3, 1, 20, 2) * 20
    found = beam_search(
        PrefixDecoder(model, memory),
        lambda decoded: (decoded.mean_m - target).norm(dim=-1).mean(dim=-1),
        codebook=codebook,
        num_rows=3,
        depth=3,
        beam_width=beam_width,
    )
    again = model.decode(codebook.codes(found.ids), memory)
    rows = torch.arange(3)[:, None]
    torch.testing.assert_close(found.decoded.mean_m[rows, found.chosen], again.mean_m, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.decoded.std_m[rows, found.chosen], again.std_m, atol=1e-4, rtol=1e-5)
    costs = (again.mean_m - target).norm(dim=-1).mean(dim=-1)
    torch.testing.assert_close(found.costs[..., 0], costs, atol=1e-4, rtol=1e-5)
    assert (found.costs.diff(dim=1) >= 0).all()


@torch.no_grad()
def test_a_wide_beam_with_the_real_decoder_finds_the_best_of_all_codes() -> None:
    model = tiny_model(token_dim=2, num_tokens=2)
    _, memory = seen_by(model, batch_of(crowd()))
    codebook, goal = model.codebook(2), torch.tensor([8.0, 2.0])
    every = codebook.codes(torch.tensor(list(product(range(4), repeat=2)))).expand(3, -1, -1, -1)
    best = (model.decode(every, memory).mean_m[:, :, -1] - goal).norm(dim=-1).amin(dim=1)
    found = beam_search(
        PrefixDecoder(model, memory),
        lambda decoded: (decoded.mean_m[:, :, -1] - goal).norm(dim=-1),
        codebook=codebook,
        num_rows=3,
        depth=2,
        beam_width=4,
    )
    torch.testing.assert_close(found.costs[:, 0, 0], best, atol=1e-4, rtol=1e-5)


def test_a_search_deeper_than_the_model() -> None:
    model = tiny_model(num_tokens=2)
    _, memory = seen_by(model, batch_of(crowd()))
    with pytest.raises(ValueError, match="prefixes of 3 tokens, expected 1 to 2"):
        beam_search(
            PrefixDecoder(model, memory),
            lambda decoded: decoded.std_m.mean(dim=(2, 3)),
            codebook=model.codebook(2),
            num_rows=3,
            depth=3,
        )
