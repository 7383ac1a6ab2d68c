"""The whole model: every variant runs and learns, masks of the trajectory encoder, switches, configurations."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scenes import bare_scene, small_scene
from tiny_model import (
    FEATURES,
    batch_of,
    crowd,
    futures_of,
    in_a_mirror,
    in_double,
    random_latents,
    reconstruct,
    sample_scenes,
    seen_by,
    tiny_config,
    tiny_model,
)
from waycode.features import FeatureConfig
from waycode.model import Bottleneck, Model, ModelConfig
from waycode.model.bottleneck import draw_noise

VARIANTS: list[dict[str, Any]] = [
    {},
    {"token_dim": 2},
    {"token_dim": 4},
    {"causal": False},
    {"bottleneck": Bottleneck.FSQ, "fsq_levels": 3},
    {"num_tokens": 1},
    {"num_tokens": 5},
    {"neighbours": None},
    {"neighbours": 1},
    {"registers": 3},
    {"max_scene_tokens": 3},
    {"nearby_polylines": 1},
    {"relation_width": 1},
    {"scene_layers": 0},
    {"encoder_layers": 1, "decoder_layers": 1},
    {"correction_width": 0},
    {"spline_points": None},
    {"reachability": False},
    {"prior": False},
    {"spline_points": None, "reachability": False, "prior": False},  # as in the paper
    {"features": replace(FEATURES, history_steps=1, points_per_segment=2, future_steps=1)},
]


def named(variant: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in variant.items() if name != "features") or "default"


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_every_variant_runs_forward_and_backward(variant: dict[str, Any]) -> None:
    config, model = tiny_config(**variant), tiny_model(**variant)
    batch = batch_of(crowd(), bare_scene(), config=config.features)
    future, valid = futures_of(batch)
    _, embedding = seen_by(model, batch)
    latents = model.encode(future, valid, embedding)
    assert latents.shape == (4, config.num_tokens, config.token_dim)
    assert latents.abs().max() <= 1
    noisy = model.apply_bottleneck(latents, draw_noise(latents.shape, 0.2, torch.Generator().manual_seed(0)))
    mean, std = model.decoder.decode_all_prefixes(noisy, embedding)
    assert mean.shape == std.shape == (4, config.num_tokens, config.features.future_steps, 2)
    loss = ((mean - future[:, None]).square() / std + std.log()).mean()
    if config.prior:
        logits = model.decoder.decode_with_prior(noisy, embedding)[1]
        loss = loss + functional.cross_entropy(logits.flatten(0, 1), model.codebook().ids(latents).flatten())
    torch.autograd.backward(loss)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("variant", [{}, {"spline_points": None}], ids=named)
def test_a_few_steps_of_training_lower_the_error(variant: dict[str, Any]) -> None:
    model, batch = tiny_model(**variant), batch_of(crowd(), crowd(1), agents=4)
    future, valid = futures_of(batch)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    errors = []
    for _ in range(30):
        _, embedding = seen_by(model, batch)
        mean, _ = model.decoder.decode_all_prefixes(model.encode(future, valid, embedding), embedding)
        error = ((mean - future[:, None]).norm(dim=-1) * valid[:, None]).mean()
        optimiser.zero_grad()
        torch.autograd.backward(error)
        optimiser.step()
        errors.append(error.item())
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.parametrize("neighbours", [6, None])
@torch.no_grad()
def test_scenes_with_little_in_them_have_finite_outputs(neighbours: int | None) -> None:
    model = tiny_model(neighbours=neighbours)
    for scene in (bare_scene(), small_scene(), crowd(), *sample_scenes()):
        for agents in (1, 2):
            latents, decoded = reconstruct(model, batch_of(scene, agents=agents))
            assert latents.isfinite().all()
            assert decoded.isfinite().all()


# The trajectory encoder


@torch.no_grad()
def test_steps_that_were_not_observed_are_ignored() -> None:
    model, batch = tiny_model(), batch_of(crowd())
    future, valid = futures_of(batch)
    _, scene = seen_by(model, batch)
    assert model.encode(torch.zeros_like(future), torch.zeros_like(valid), scene).isfinite().all()
    half = valid & (torch.arange(valid.shape[1]) < 9)
    elsewhere = torch.where(half[..., None], future, torch.full_like(future, 1e6))
    torch.testing.assert_close(model.encode(elsewhere, half, scene), model.encode(future, half, scene))
    assert (model.encode(future, half, scene) - model.encode(future, valid, scene)).abs().max() > 1e-4


def test_gradients_of_the_encoder_against_finite_differences() -> None:
    model, batch = tiny_model(encoder_layers=1).double().requires_grad_(False), in_double(batch_of(crowd(), agents=2))
    future, valid = futures_of(batch)
    _, scene = seen_by(model, batch)
    inputs = (future.clone().requires_grad_(),)
    assert torch.autograd.gradcheck(lambda one: model.encode(one, valid, scene), inputs, fast_mode=True)


def test_masks_of_the_encoder() -> None:
    """Rows attend to columns: the trajectory, three latents, two registers."""
    mask = tiny_model(registers=2).trajectory_encoder.mask
    assert mask.int().tolist() == [
        [1, 1, 1, 1, 1, 1],  # the trajectory and the registers attend to all (appendix A.1 of the paper)
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
    ]
    assert tiny_model(registers=2, causal=False).trajectory_encoder.mask.all()


@torch.no_grad()
def latents_with_another_query(model: Model, changed: int) -> tuple[Tensor, Tensor]:
    """The latents before and after the query of one latent or register was changed."""
    batch = batch_of(crowd())
    _, scene = seen_by(model, batch)
    before = model.encode(*futures_of(batch), scene)
    model.trajectory_encoder.queries[changed] += random_latents(model.config.width)
    return before, model.encode(*futures_of(batch), scene)


@pytest.mark.parametrize("changed", [0, 1, 2, 3])
def test_in_one_layer_latents_do_not_depend_on_later_latents_and_registers(changed: int) -> None:
    before, after = latents_with_another_query(tiny_model(encoder_layers=1), changed)
    torch.testing.assert_close(after[:, :changed], before[:, :changed], atol=1e-6, rtol=1e-6)
    if changed < 3:
        assert (after - before)[:, changed].abs().max() > 1e-4


def test_in_more_layers_they_depend_on_each_other_through_the_trajectory_token() -> None:
    """It attends to all tokens, and every latent attends to it: the paper's masks are causal among latents only."""
    before, after = latents_with_another_query(tiny_model(encoder_layers=2), 2)
    assert (after - before)[:, 0].abs().max() > 1e-6


def test_without_causal_masks_latents_attend_to_later_ones() -> None:
    before, after = latents_with_another_query(tiny_model(encoder_layers=1, causal=False), 2)
    assert (after - before)[:, 0].abs().max() > 1e-5


# Switches


@pytest.mark.parametrize("reachability", [True, False])
@torch.no_grad()
def test_reachability_can_be_switched_off(reachability: bool) -> None:
    """Without it, neither relations nor latents nor trajectories depend on it; the losses still get it."""
    model, batch = tiny_model(reachability=reachability), batch_of(sample_scenes()[0])
    other = replace(batch, agents=replace(batch.agents, reachability=1 - batch.agents.reachability))
    (latents, decoded), (other_latents, other_decoded) = (reconstruct(model, one) for one in (batch, other))
    scene, other_scene = (seen_by(model, one)[0] for one in (batch, other))
    for one, another in (
        (latents, other_latents), (decoded, other_decoded), (scene.relation, other_scene.relation),
    ):  # fmt: skip
        assert bool((one - another).abs().max() > 1e-4) == reachability
        assert torch.equal(one, another) != reachability
    assert scene.map.reachability.any()
    assert not torch.equal(scene.map.reachability, other_scene.map.reachability)


@torch.no_grad()
def test_an_untrained_model_is_not_symmetric() -> None:
    """Left and right differ for the network; training with mirrored examples makes them alike."""
    model = tiny_model()
    _, decoded = reconstruct(model, batch_of(crowd()))
    _, mirrored = reconstruct(model, batch_of(in_a_mirror(crowd())))
    assert (decoded - mirrored).abs().max() > 1e-3


@torch.no_grad()
def test_tokens_of_one_scene_can_be_decoded_in_another() -> None:
    model, latents = tiny_model(), random_latents(3, 1, 3, 3)
    for scene in (crowd(), crowd(1), sample_scenes()[0]):
        _, embedding = seen_by(model, batch_of(scene))
        assert model.decode(latents, embedding)[0].shape == (3, 1, FEATURES.future_steps, 2)


# Configurations


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 18, "heads": 4}, r"width is 18, expected a multiple of heads \(4\)"),
        ({"heads": 0}, "heads is 0, expected at least 1"),
        ({"num_tokens": 0}, "num_tokens is 0, expected at least 1"),
        ({"token_dim": 0}, "token_dim is 0, expected at least 1"),
        ({"registers": 0}, "registers is 0, expected at least 1"),
        ({"relation_width": 0}, "relation_width is 0, expected at least 1"),
        ({"encoder_layers": 0}, "encoder_layers is 0, expected at least 1"),
        ({"decoder_layers": 0}, "decoder_layers is 0, expected at least 1"),
        ({"max_scene_tokens": 0}, "max_scene_tokens is 0, expected at least 1"),
        ({"nearby_polylines": 0}, "nearby_polylines is 0, expected at least 1"),
        ({"scene_layers": -1}, "scene_layers is -1, expected at least 0"),
        ({"fsq_levels": 1}, "fsq_levels is 1, expected at least 2"),
        ({"neighbours": 0}, "neighbours is 0, expected at least 1, or None for all"),
        ({"correction_width": -4}, "correction_width is -4, expected at least 0"),
        ({"correction_width": 10}, "correction_width is 10, expected a multiple of 4"),
        ({"spline_points": 3}, "spline_points is 3 and spread_points is 4, expected at least 4: a cubic spline needs"),
        ({"spread_points": 2}, "spline_points is 6 and spread_points is 2, expected at least 4: a cubic spline needs"),
        (
            {"spline_points": None, "correction_width": 64},
            "correction_width is 64, expected 0 without spline_points: the correction by the map moves control points",
        ),
        (
            {"causal": False, "prior": True},
            "prior is true, expected false if causal is false: it reads the states of prefixes",
        ),
        ({"causal": False, "feedback": True}, "feedback is true, expected false if causal is false"),
    ],
    ids=str,
)
def test_configurations_that_cannot_be_built(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny_config(**change)


def test_the_default_configuration_builds() -> None:
    model = Model(ModelConfig())
    assert 300_000 < model.num_parameters < 3_000_000
    assert model.config.features == FeatureConfig()
    assert model.num_parameters == sum(parameter.numel() for parameter in model.parameters())
