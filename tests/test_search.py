"""Search: on a table instead of a network, against exhaustive search; then with the real decoder."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from table_decoder import CODEBOOK, DEPTH, SEEDS, Table, search
from tiny_model import batch_of, crowd, random_latents, seen_by, tiny_model
from waycode.model import MeanAndStd, PrefixDecoder
from waycode.search import Codebook, beam_search, exhaustive_search


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
    oracle = exhaustive_search(table.extend, table.cost, codebook=CODEBOOK, num_rows=2, depth=DEPTH)
    every = list(product(range(len(CODEBOOK)), repeat=DEPTH))
    for row in range(2):
        in_order = sorted(every, key=lambda ids: table.cost_of(row, ids))
        assert [tuple(ids) for ids in oracle.ids[row].tolist()] == in_order
        assert [tuple(cost) for cost in oracle.costs[row].tolist()] == [table.cost_of(row, ids) for ids in in_order]
    assert torch.equal(found.costs, oracle.costs)
    assert found.ids.shape == oracle.ids.shape


def test_exhaustive_search_looks_at_whole_codes_only() -> None:
    table, asked = Table(0, num_rows=1), []

    def cost(ids: torch.Tensor) -> torch.Tensor:
        asked.append(tuple(ids.shape))
        return table.cost(ids)

    found = exhaustive_search(table.extend, cost, codebook=CODEBOOK, num_rows=1, depth=DEPTH)
    assert asked == [(1, 64, 3)]
    assert found.num_decodes == table.num_decodes == 4 + 16 + 64
    assert len(found.trace.steps) == 1
    assert found.chosen.sort(dim=1).values.tolist() == [list(range(64))]


@pytest.mark.parametrize("depth", [0, 7], ids=["none", "too many"])
def test_exhaustive_search_has_bounds(depth: int) -> None:
    codebook = Codebook(2, 3)
    words = f"depth is {depth}, which gives {8**depth} codes; expected a depth of at least 1 and at most 262144 codes"
    with pytest.raises(ValueError, match=words):
        exhaustive_search(Table(0, num_rows=1).extend, lambda ids: ids, codebook=codebook, num_rows=1, depth=depth)


@given(SEEDS, st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_the_beam_is_ranked_and_distinct(seed: int, beam_width: int) -> None:
    found = search(Table(seed, num_rows=2, levels=2, distinct=3), beam_width=beam_width)
    for row in range(2):
        costs = [tuple(cost) for cost in found.costs[row].tolist()]
        assert costs == sorted(costs)
        assert len({tuple(ids) for ids in found.ids[row].tolist()}) == beam_width


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
    assert found.depth == DEPTH


@pytest.mark.parametrize("depth", [1, 2])
def test_fewer_tokens(depth: int) -> None:
    assert search(Table(0, num_rows=2), depth=depth).ids.shape == (2, 1, depth)


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
        lambda decoded: (decoded[0] - target).norm(dim=-1).mean(dim=-1),
        codebook=codebook,
        num_rows=3,
        depth=3,
        beam_width=beam_width,
    )
    again = model.decode(codebook.codes(found.ids), memory)
    rows = torch.arange(3)[:, None]
    torch.testing.assert_close(found.decoded[0][rows, found.chosen], again[0], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.decoded[1][rows, found.chosen], again[1], atol=1e-4, rtol=1e-5)
    costs = (again[0] - target).norm(dim=-1).mean(dim=-1)
    torch.testing.assert_close(found.costs[..., 0], costs, atol=1e-4, rtol=1e-5)
    assert (found.costs.diff(dim=1) >= 0).all()


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_a_wide_beam_with_the_real_decoder_finds_the_best_of_all_codes(causal: bool) -> None:
    model = tiny_model(token_dim=2, num_tokens=2, causal=causal)
    _, memory = seen_by(model, batch_of(crowd()))
    codebook, goal = model.codebook(2), torch.tensor([8.0, 2.0])
    every = codebook.codes(torch.tensor(list(product(range(4), repeat=2)))).expand(3, -1, -1, -1)
    best = (model.decode(every, memory)[0][:, :, -1] - goal).norm(dim=-1).amin(dim=1)

    def cost(decoded: MeanAndStd) -> torch.Tensor:
        return (decoded[0][:, :, -1] - goal).norm(dim=-1)

    decode = PrefixDecoder(model, memory)
    found = beam_search(decode, cost, codebook=codebook, num_rows=3, depth=2, beam_width=4)
    oracle = exhaustive_search(decode, cost, codebook=codebook, num_rows=3, depth=2)
    torch.testing.assert_close(found.costs[:, 0, 0], best, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(oracle.costs[:, 0, 0], best, atol=1e-4, rtol=1e-5)
    assert torch.equal(found.ids[:, 0], oracle.ids[:, 0])


def test_a_search_makes_no_gradients_and_leaves_tensors_that_can_have_some() -> None:
    model = tiny_model()
    _, memory = seen_by(model, batch_of(crowd()))
    decode = PrefixDecoder(model, memory)
    found = beam_search(
        decode, lambda decoded: decoded[1].mean(dim=(2, 3)), codebook=model.codebook(2), num_rows=3, depth=2
    )
    assert not found.decoded[0].requires_grad
    assert not found.decoded[0].is_inference()


def test_a_search_deeper_than_the_model() -> None:
    model = tiny_model(num_tokens=2)
    _, memory = seen_by(model, batch_of(crowd()))
    with pytest.raises(ValueError, match="got prefixes of 3 tokens, expected at most 2"):
        beam_search(
            PrefixDecoder(model, memory),
            lambda decoded: decoded[1].mean(dim=(2, 3)),
            codebook=model.codebook(2),
            num_rows=3,
            depth=3,
        )
