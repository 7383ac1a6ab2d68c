"""The bottleneck and the codebook: levels, noise, and how often how many tokens are kept."""

from itertools import pairwise, product

import pytest
import torch

from tiny_model import random_latents, tiny_model
from waycode.model import Bottleneck
from waycode.model.bottleneck import (
    draw_noise,
    prefix_probabilities,
    quantise,
    quantise_straight_through,
    sample_prefix,
)
from waycode.search import Codebook

LEVELS = [2, 3, 4, 5, 9]
GRIDS = list(product([2, 3, 5], [1, 2, 3, 4]))


@pytest.mark.parametrize("num_levels", LEVELS)
def test_rounding_twice_is_rounding_once(num_levels: int) -> None:
    once = quantise(random_latents(500) * 1.2, num_levels)
    assert torch.equal(quantise(once, num_levels), once)
    assert len(set(once.tolist())) == num_levels


@pytest.mark.parametrize("num_levels", LEVELS)
def test_rounding_finds_the_nearest_level(num_levels: int) -> None:
    latents = random_latents(500)
    levels = torch.linspace(-1, 1, num_levels)
    nearest = levels[(latents[:, None] - levels).abs().argmin(dim=1)]
    torch.testing.assert_close(quantise(latents, num_levels), nearest)


def test_two_levels_are_signs() -> None:
    latents = torch.tensor([-1.0, -0.6, -0.01, 0.01, 0.7, 1.0, 3.0, -3.0])
    assert quantise(latents, 2).tolist() == [-1, -1, -1, 1, 1, 1, 1, -1]
    assert quantise(latents, 3).tolist() == [-1, -1, 0, 0, 1, 1, 1, -1]


def test_fewer_than_two_levels() -> None:
    with pytest.raises(ValueError, match="num_levels is 1, expected at least 2"):
        quantise(torch.zeros(3), 1)


def test_the_gradient_passes_straight_through_rounding() -> None:
    latents = random_latents(4, 3, 2).requires_grad_()
    weights = random_latents(4, 3, 2, seed=1)
    rounded = quantise_straight_through(latents, 3)
    torch.testing.assert_close(rounded.detach(), quantise(latents.detach(), 3))
    (gradient,) = torch.autograd.grad((rounded * weights).sum(), latents)
    torch.testing.assert_close(gradient, weights)


@pytest.mark.parametrize("sigma", [0.1, 0.25, 0.5])
def test_noise_has_the_deviation_that_was_asked_for(sigma: float) -> None:
    noise = draw_noise((20_000, 3), sigma, torch.Generator().manual_seed(0))
    assert noise.std().item() == pytest.approx(sigma, rel=0.02)
    assert noise.mean().abs().item() < 0.01
    assert torch.equal(draw_noise((5, 3), 0.0), torch.zeros(5, 3))


def test_noise_is_that_of_its_generator_and_leaves_the_gradient_alone() -> None:
    latents = random_latents(5, 3, 3).requires_grad_()
    one, other = (draw_noise((5, 3, 3), 0.3, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, other)
    (gradient,) = torch.autograd.grad(tiny_model().apply_bottleneck(latents, one).sum(), latents)
    torch.testing.assert_close(gradient, torch.ones(5, 3, 3))


def test_training_uses_the_bottleneck_of_the_configuration() -> None:
    latents = random_latents(5, 3, 3)
    noise = draw_noise((5, 3, 3), 0.7, torch.Generator().manual_seed(0))
    hard = tiny_model(bottleneck=Bottleneck.FSQ, fsq_levels=3).apply_bottleneck(latents, noise)
    torch.testing.assert_close(hard, quantise(latents, 3))
    torch.testing.assert_close(tiny_model().apply_bottleneck(latents, noise), latents + noise)


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (1, [1.0]),
        (2, [1 / 2, 1 / 2]),
        (3, [1 / 6, 2 / 6, 1 / 2]),  # dropping 2 : dropping 1 = 1/4 : 1/2
        (4, [1 / 14, 2 / 14, 4 / 14, 1 / 2]),
        (5, [1 / 30, 2 / 30, 4 / 30, 8 / 30, 1 / 2]),
    ],
)
def test_how_often_how_many_tokens_are_kept(num_tokens: int, expected: list[float]) -> None:
    probabilities = prefix_probabilities(num_tokens)
    torch.testing.assert_close(probabilities, torch.tensor(expected))
    kept = sample_prefix(40_000, num_tokens, torch.Generator().manual_seed(0))
    assert torch.equal(kept.sum(dim=1), torch.ones(40_000))
    torch.testing.assert_close(kept.mean(dim=0), probabilities, atol=0.01, rtol=0)


def test_keeping_of_no_tokens() -> None:
    with pytest.raises(ValueError, match="num_tokens is 0, expected at least 1"):
        prefix_probabilities(0)


@pytest.mark.parametrize(("num_levels", "token_dim"), GRIDS)
def test_ids_and_codes(num_levels: int, token_dim: int) -> None:
    codebook = Codebook(num_levels, token_dim)
    ids = torch.arange(len(codebook))
    codes = codebook.codes(ids)
    assert codes.shape == (num_levels**token_dim, token_dim)
    assert torch.equal(codes, codebook.values)
    assert torch.equal(codebook.ids(codes), ids)
    rows = [tuple(code.tolist()) for code in codes]
    assert all(one < other for one, other in pairwise(rows))  # in the order of counting: no code twice


@pytest.mark.parametrize(("num_levels", "token_dim"), GRIDS)
def test_the_id_of_any_latent_is_that_of_its_rounding(num_levels: int, token_dim: int) -> None:
    codebook, latents = Codebook(num_levels, token_dim), random_latents(7, 4, token_dim) * 1.3
    ids = codebook.ids(latents)
    assert ids.shape == (7, 4)
    torch.testing.assert_close(codebook.codes(ids), quantise(latents, num_levels))


def test_codes_by_hand() -> None:
    assert Codebook(2, 2).values.tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    assert Codebook(3, 1).values.tolist() == [[-1], [0], [1]]
    assert tiny_model().codebook(3) == Codebook(3, 3)


@pytest.mark.parametrize(("num_levels", "token_dim"), [(1, 3), (2, 0)])
def test_a_codebook_of_nothing(num_levels: int, token_dim: int) -> None:
    with pytest.raises(ValueError, match="expected at least 2 levels and 1 dimension"):
        Codebook(num_levels, token_dim)
