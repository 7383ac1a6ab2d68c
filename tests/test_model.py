"""The whole model: every variant runs and learns, the encoder's masks, and what the decoder is asked for."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scenes import bare_scene, small_scene
from tiny_model import (
    FEATURES,
    batch_of,
    crowd,
    futures_of,
    in_a_mirror,
    random_latents,
    reconstruct,
    sample_scenes,
    seen_by,
    tiny_config,
    tiny_model,
)
from waycode.features import FeatureConfig
from waycode.model import Bottleneck, Model, ModelConfig

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
    {"max_scene_tokens": 1},
    {"scene_layers": 0},
    {"encoder_layers": 1, "decoder_layers": 1},
    {"features": replace(FEATURES, history_steps=1, points_per_segment=2, future_steps=1)},
]


def named(variant: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in variant.items() if name != "features") or "default"


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_every_variant_runs_forward_and_backward(variant: dict[str, Any]) -> None:
    config = tiny_config(**variant)
    model = tiny_model(**variant)
    batch = batch_of(crowd(), bare_scene(), config=config.features)
    future, valid = futures_of(batch)
    scene, memory = seen_by(model, batch)
    latents = model.encode(future, valid, scene)
    assert latents.shape == (4, config.num_tokens, config.token_dim)
    assert latents.abs().max() <= 1
    noisy = model.apply_bottleneck(latents, 0.2, torch.Generator().manual_seed(0))
    decoded = model.decoder.decode_all_prefixes(noisy, memory)
    assert decoded[0].shape == (4, config.num_tokens, config.features.future_steps, 2)
    ((decoded[0] - future[:, None]).square() / decoded[1] + decoded[1].log()).mean().backward()  # type: ignore[no-untyped-call]
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(grad is None or grad.isfinite().all() for grad in grads.values())
    unused = [name for name, grad in grads.items() if grad is None]
    assert unused == []


def test_a_few_steps_of_training_lower_the_error() -> None:
    model, batch = tiny_model(), batch_of(crowd(), crowd(1), agents=4)
    future, valid = futures_of(batch)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    errors = []
    for _ in range(30):
        scene, memory = seen_by(model, batch)
        decoded = model.decoder.decode_all_prefixes(model.encode(future, valid, scene), memory)
        error = ((decoded[0] - future[:, None]).norm(dim=-1) * valid[:, None]).mean()
        optimiser.zero_grad()
        error.backward()
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


@torch.no_grad()
def test_a_future_that_nobody_saw_has_a_finite_code() -> None:
    model, batch = tiny_model(), batch_of(crowd())
    future, valid = futures_of(batch)
    scene, _ = seen_by(model, batch)
    assert model.encode(torch.zeros_like(future), torch.zeros_like(valid), scene).isfinite().all()
    half = valid & (torch.arange(valid.shape[1]) < 9)
    nonsense = torch.where(half[..., None], future, torch.full_like(future, 1e6))
    torch.testing.assert_close(model.encode(nonsense, half, scene), model.encode(future, half, scene))
    assert (model.encode(future, half, scene) - model.encode(future, valid, scene)).abs().max() > 1e-4


def test_who_sees_whom_in_the_encoder() -> None:
    """Rows look at columns: the trajectory, three latents, two registers."""
    mask = tiny_model(registers=2).trajectory_encoder.mask
    assert mask.int().tolist() == [
        [1, 1, 1, 1, 1, 1],  # the trajectory and the registers see all (appendix A.1 of the paper)
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
    scene, _ = seen_by(model, batch)
    before = model.encode(*futures_of(batch), scene)
    model.trajectory_encoder.queries[changed] += random_latents(model.config.width)
    return before, model.encode(*futures_of(batch), scene)


@pytest.mark.parametrize("changed", [0, 1, 2, 3])
def test_in_one_layer_latents_know_nothing_of_later_latents_and_registers(changed: int) -> None:
    before, after = latents_with_another_query(tiny_model(encoder_layers=1), changed)
    torch.testing.assert_close(after[:, :changed], before[:, :changed], atol=1e-6, rtol=1e-6)
    if changed < 3:
        assert (after - before)[:, changed].abs().max() > 1e-4


def test_in_more_layers_they_meet_through_the_trajectory_token() -> None:
    """It may look at all tokens, and every latent looks at it: the paper's masks are causal among latents only."""
    before, after = latents_with_another_query(tiny_model(encoder_layers=2), 2)
    assert (after - before)[:, 0].abs().max() > 1e-6


def test_without_causal_masks_latents_see_later_ones_at_once() -> None:
    before, after = latents_with_another_query(tiny_model(encoder_layers=1, causal=False), 2)
    assert (after - before)[:, 0].abs().max() > 1e-5


@torch.no_grad()
def test_the_mirror_is_no_symmetry_of_an_untrained_model() -> None:
    """Left and right must differ for the network; that they are alike is for training to teach."""
    model = tiny_model()
    _, decoded = reconstruct(model, batch_of(crowd()))
    _, mirrored = reconstruct(model, batch_of(in_a_mirror(crowd())))
    assert (decoded - mirrored).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 18, "heads": 4}, r"width is 18, expected a multiple of heads \(4\)"),
        ({"heads": 0}, "heads is 0, expected at least 1"),
        ({"num_tokens": 0}, "num_tokens is 0, expected at least 1"),
        ({"token_dim": 0}, "token_dim is 0, expected at least 1"),
        ({"registers": 0}, "registers is 0, expected at least 1"),
        ({"decoder_layers": 0}, "decoder_layers is 0, expected at least 1"),
        ({"max_scene_tokens": 0}, "max_scene_tokens is 0, expected at least 1"),
        ({"scene_layers": -1}, "scene_layers is -1, expected at least 0"),
        ({"fsq_levels": 1}, "fsq_levels is 1, expected at least 2"),
        ({"neighbours": 0}, "neighbours is 0, expected at least 1, or None for all"),
        ({"spline_points": 3}, "a cubic spline needs at least 4 control points"),
    ],
    ids=str,
)
def test_configurations_that_cannot_be_built(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny_config(**change)


def test_the_default_configuration_builds() -> None:
    model = Model(ModelConfig())
    assert 1_000_000 < model.num_parameters < 3_000_000
    assert model.config.features == FeatureConfig()
    assert model.num_parameters == sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def test_tokens_of_one_scene_can_be_decoded_in_another() -> None:
    model, latents = tiny_model(), random_latents(3, 1, 3, 3)
    for scene in (crowd(), crowd(1), sample_scenes()[0]):
        _, memory = seen_by(model, batch_of(scene))
        assert model.decode(latents, memory)[0].shape == (3, 1, FEATURES.future_steps, 2)
