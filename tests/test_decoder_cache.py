"""The decoder: kept prefixes are exact, candidates do not know of each other, trajectories are smooth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline
from torch import Tensor

from tiny_model import batch_of, crowd, random_latents, reconstruct, seen_by, tiny_model
from waycode.model import MeanAndStd, Model, PrefixCache, PrefixDecoder, SceneEmbedding, SceneTokens, spline
from waycode.model.decoder import FIXED_POINTS
from waycode.model.scene_encoder import MapPolylines

TOKENS = [1, 2, 3, 5]


def model_and_memory(**changes: Any) -> tuple[Model, SceneEmbedding]:
    model = tiny_model(**changes)
    with torch.no_grad():
        return model, seen_by(model, batch_of(crowd()))[1]


def same(one: MeanAndStd, other: MeanAndStd, *, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(one[0], other[0], atol=tolerance * 10, rtol=tolerance)
    torch.testing.assert_close(one[1], other[1], atol=tolerance * 10, rtol=tolerance)


def same_states(one: PrefixCache, other: PrefixCache, *, length: int) -> None:
    for (key, value), (other_key, other_value) in zip(one.keys_values, other.keys_values, strict=True):
        torch.testing.assert_close(key[..., :length, :], other_key[..., :length, :], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(value[..., :length, :], other_value[..., :length, :], atol=1e-5, rtol=1e-5)


def states(model: Model, latents: Tensor, memory: SceneEmbedding) -> PrefixCache:
    return model.decoder.extend(None, latents, memory)[0]


def standing(scene: SceneEmbedding) -> SceneEmbedding:
    """The same scene, with agents that do not move."""
    velocity = torch.zeros_like(scene.velocity_mps)
    return replace(scene, tokens=replace(scene.tokens, velocity_mps=velocity))


@pytest.mark.parametrize("num_tokens", TOKENS)
def test_token_by_token_is_all_at_once(num_tokens: int) -> None:
    model, memory = model_and_memory(num_tokens=num_tokens, registers=2)
    latents = random_latents(3, 7, num_tokens, 3)
    prefix: PrefixCache | None = None
    for count in range(1, num_tokens + 1):
        prefix, decoded = model.decoder.extend(prefix, latents[:, :, count - 1 : count], memory)
        assert prefix.length == count
        same_states(prefix, states(model, latents[:, :, :count], memory), length=count)
        same(decoded, model.decode(latents[:, :, :count], memory))


def test_a_later_token_leaves_earlier_states_alone() -> None:
    model, memory = model_and_memory()
    latents = random_latents(3, 2, 3, 3)
    before = states(model, latents, memory)
    for changed in range(3):
        other = latents.clone()
        other[:, :, changed] = -other[:, :, changed]
        after = states(model, other, memory)
        same_states(before, after, length=changed)
        difference = (after.keys_values[0][0] - before.keys_values[0][0])[..., changed, :].abs().max()
        assert difference > 1e-3
        assert (model.decode(other, memory)[0] - model.decode(latents, memory)[0]).abs().max() > 1e-3


def test_candidates_at_once_are_as_one_by_one() -> None:
    model, memory = model_and_memory()
    latents = random_latents(3, 6, 3, 3)
    together = model.decode(latents, memory)
    for candidate in range(6):
        alone = model.decode(latents[:, candidate : candidate + 1], memory)
        torch.testing.assert_close(alone[0][:, 0], together[0][:, candidate], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(alone[1][:, 0], together[1][:, candidate], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("registers", [1, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_all_prefixes_at_once(num_tokens: int, causal: bool, registers: int) -> None:
    model, memory = model_and_memory(num_tokens=num_tokens, causal=causal, registers=registers)
    latents = random_latents(3, num_tokens, 3)
    every = model.decoder.decode_all_prefixes(latents, memory)
    assert every[0].shape == (3, num_tokens, model.config.features.future_steps, 2)
    for count in range(1, num_tokens + 1):
        one = model.decode(latents[:, None, :count], memory)
        torch.testing.assert_close(every[0][:, count - 1], one[0][:, 0], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(every[1][:, count - 1], one[1][:, 0], atol=1e-4, rtol=1e-5)


def test_a_choice_of_prefixes_can_be_gone_on_from() -> None:
    model, memory = model_and_memory()
    latents = random_latents(3, 4, 2, 3)
    parents = torch.tensor([[3, 0], [1, 1], [2, 3]])
    chosen = latents.gather(1, parents[:, :, None, None].expand(-1, -1, 2, 3))
    selected = states(model, latents, memory).select(parents)
    same_states(selected, states(model, chosen, memory), length=2)

    decode, token = PrefixDecoder(model, memory), random_latents(3, 2, 3, seed=5)
    state, _ = decode(None, torch.zeros(3, 4, dtype=torch.long), latents[:, :, 0])
    _, decoded = decode(state, parents, token)
    same(decoded, model.decode(torch.stack([chosen[:, :, 0], token], dim=2), memory))


def test_without_causal_masks_earlier_tokens_see_later_ones() -> None:
    model, memory = model_and_memory(causal=False)
    latents = random_latents(3, 2, 3, 3)
    other = latents.clone()
    other[:, :, 2] = -other[:, :, 2]
    key, other_key = (states(model, code, memory).keys_values[-1][0] for code in (latents, other))
    assert (key - other_key)[..., 0, :].abs().max() > 1e-4
    prefix = states(model, latents[:, :, :1], memory)
    with pytest.raises(
        ValueError, match="got a prefix cache, but the decoder is not causal: decode the whole code instead"
    ):
        model.decoder.extend(prefix, latents[:, :, 1:2], memory)


@pytest.mark.parametrize("num_tokens", [1, 3])
def test_more_tokens_than_there_are(num_tokens: int) -> None:
    model, memory = model_and_memory(num_tokens=num_tokens)
    words = f"prefixes of {num_tokens + 1} tokens, expected 1 to {num_tokens}"
    with pytest.raises(ValueError, match=words):
        model.decode(random_latents(3, 2, num_tokens + 1, 3), memory)
    whole = states(model, random_latents(3, 2, num_tokens, 3), memory)
    with pytest.raises(ValueError, match=words):
        model.decoder.extend(whole, random_latents(3, 2, 1, 3), memory)
    with pytest.raises(ValueError, match=f"prefixes of 0 tokens, expected 1 to {num_tokens}"):
        model.decode(random_latents(3, 2, 0, 3), memory)


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_against_finite_differences(causal: bool) -> None:
    model = tiny_model(causal=causal, decoder_layers=2).double()
    scene = SceneTokens(
        tokens=random_latents(2, 5, 16).double(),
        mask=torch.tensor([[True] * 5, [True, True, False, False, False]]),
        map=MapPolylines(
            points_m=random_latents(2, 5, 6, 2, seed=1).double() * 20,
            is_lane=torch.tensor([[True, True, True, False, False], [True, False, False, False, False]]),
            is_edge=torch.tensor([[False, False, False, True, False], [False, True, False, False, False]]),
            reachability=torch.tensor([[1.0, 0.5, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]).double(),
        ),
        velocity_mps=torch.tensor([[5.0, 0.0], [0.0, 0.0]]).double(),
    )
    memory = model.decoder.embed_scene(scene)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    latents = random_latents(2, 1, 2, 3).double().requires_grad_()

    def summary(code: Tensor) -> tuple[Tensor, Tensor]:
        decoded = model.decode(code, memory)
        return decoded[0][:, :, ::7], decoded[1][:, :, ::7]

    assert torch.autograd.gradcheck(summary, (latents,), eps=1e-6, atol=1e-5)
    (gradient,) = torch.autograd.grad((summary(latents)[0] ** 2).sum(), latents)
    assert gradient.abs().min() > 0


@pytest.mark.parametrize("num_points", [4, 6, 16])
def test_spline_weights_sum_to_one_and_are_smooth(num_points: int) -> None:
    steps = 400
    basis = spline.basis(num_points, steps=steps).double()
    torch.testing.assert_close(basis.sum(dim=1), torch.ones(steps).double(), atol=1e-6, rtol=0)
    assert basis.min() >= 0
    assert basis[-1].tolist() == [0.0] * (num_points - 1) + [1.0]  # ends in the last control point
    assert (basis > 1e-6).sum(dim=1).max() <= spline.DEGREE + 1  # each has a reach of its own
    curvature = np.diff(basis.numpy(), n=2, axis=0) * steps**2
    jumps = np.abs(np.diff(curvature, axis=0)).max() / np.abs(curvature).max()
    assert jumps < 0.15  # a cubic spline's curvature has no jumps, only kinks


@pytest.mark.parametrize("num_points", [4, 6, 16])
def test_control_points_on_a_line_make_an_even_motion(num_points: int) -> None:
    times = spline.control_times(num_points)
    assert times[0] == 0
    assert times[-1] == 1
    torch.testing.assert_close(spline.basis(num_points, steps=20) @ times, torch.arange(1, 21) / 20)


@pytest.mark.parametrize("num_points", [6, 9, 16])
def test_a_calm_end_halves_the_change_of_acceleration(num_points: int) -> None:
    knots = np.concatenate([np.zeros(3), np.linspace(0, 1, num_points - 2), np.ones(3)])
    points = np.random.default_rng(0).normal(size=num_points)
    calm = (spline.smooth_end(num_points).double() @ torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(calm[:-1], points[:-1])
    change = [float(BSpline(knots, one, 3).derivative(3)(0.999)) for one in (points, calm)]
    assert change[1] == pytest.approx(change[0] / 2, rel=1e-4)


def test_trajectories_start_at_the_agent_and_go_on_as_now() -> None:
    model, memory = model_and_memory(spline_points=16, correction_width=0)
    for parameter in model.decoder.head[2].parameters():
        torch.nn.init.zeros_(parameter)
    decoded = model.decode(random_latents(3, 2, 3, 3), memory)
    time_s = torch.arange(1, 21) * 0.1
    onward = memory.velocity_mps[:, None, None] * time_s[:, None]
    torch.testing.assert_close(decoded[0], onward.expand(3, 2, 20, 2))
    torch.testing.assert_close(decoded[1], torch.ones(3, 2, 20, 2))


@torch.no_grad()
def test_trajectories_are_splines_that_start_at_zero() -> None:
    """Control points by hand, the first two at the agent; the network's unit is 5 m/s up to each of the others."""
    model, memory = model_and_memory(correction_width=0)
    free = model.config.spline_points - FIXED_POINTS
    output = random_latents(3, 5, 2 * free + 2 * model.config.spread_points)
    model.decoder.head = torch.nn.Sequential()  # lets the output pass as it is
    decoded = model.decoder._trajectories(output, standing(memory))
    inner = np.linspace(0, 1, free)  # knots of a clamped cubic
    knots = np.concatenate([[0, 0, 0], inner, [1, 1, 1]])
    times_s = [knots[point : point + 3].mean() * 2.0 for point in range(3, free + 3)]
    for row, candidate in ((0, 0), (2, 4)):
        points = output[row, candidate, : 2 * free].view(free, 2).numpy() * np.array(times_s)[:, None] * 5.0
        # Half way to where the acceleration changes no more at the end: there the three points before say where it is.
        points[-1] = (points[-1] + [1 / 6, -11 / 12, 7 / 4] @ points[-4:-1]) / 2
        curve = BSpline(knots, np.concatenate([np.zeros((2, 2)), points]), 3)
        np.testing.assert_allclose(decoded[0][row, candidate], curve(np.arange(1, 21) / 20), atol=1e-4)
        assert curve(0).tolist() == [0, 0]
        np.testing.assert_allclose(curve.derivative()(0), 0, atol=1e-9)  # goes on at its current velocity


@torch.no_grad()
def test_deviations_are_positive_and_bounded() -> None:
    model, memory = model_and_memory()
    for scale in (-1e3, 1e3):
        std = model.decoder._trajectories(torch.full((3, 1, model.config.width), scale), memory)[1]
        assert std.isfinite().all()
        assert std.min() > 0.01
        assert std.max() < 60


def test_the_scene_shows_in_the_trajectory() -> None:
    """The same code means another trajectory in another scene."""
    model, latents = tiny_model(), random_latents(3, 1, 3, 3)
    decoded = []
    for seed in (0, 1):
        _, memory = seen_by(model, batch_of(crowd(seed)))
        decoded.append(model.decode(latents, standing(memory))[0])
    assert (decoded[0] - decoded[1]).abs().max() > 1e-2
    assert reconstruct(model, batch_of(crowd()))[1].isfinite().all()
