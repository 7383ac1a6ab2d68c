"""The decoder: cached prefixes are exact, and neither later tokens nor other candidates change a prefix."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tiny_model import (
    map_polylines,
    model_and_embedding,
    random_latents,
    scene_tokens,
    tiny_model,
)
from waycode.model import MeanAndStd, Model, PrefixCache, PrefixDecoder, SceneEmbedding

TOKENS = [1, 2, 3, 5]


def assert_same(one: MeanAndStd, other: MeanAndStd) -> None:
    torch.testing.assert_close(one[0], other[0], atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(one[1], other[1], atol=1e-3, rtol=1e-4)


def assert_same_states(one: PrefixCache, other: PrefixCache, *, length: int) -> None:
    """Equal keys and values of the first `length` tokens in every layer."""
    for (key, value), (other_key, other_value) in zip(one.keys_values, other.keys_values, strict=True):
        torch.testing.assert_close(key[..., :length, :], other_key[..., :length, :], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(value[..., :length, :], other_value[..., :length, :], atol=1e-5, rtol=1e-5)


def states(model: Model, latents: Tensor, embedding: SceneEmbedding) -> PrefixCache:
    return model.decoder.extend(None, latents, embedding)[0]


@pytest.mark.parametrize("registers", [1, 2])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_token_by_token_is_all_at_once(num_tokens: int, registers: int) -> None:
    model, embedding = model_and_embedding(num_tokens=num_tokens, registers=registers)
    latents = random_latents(3, 7, num_tokens, 3)
    prefix: PrefixCache | None = None
    for count in range(1, num_tokens + 1):
        prefix, decoded = model.decoder.extend(prefix, latents[:, :, count - 1 : count], embedding)
        assert prefix.length == count
        assert_same_states(prefix, states(model, latents[:, :, :count], embedding), length=count)
        assert_same(decoded, model.decode(latents[:, :, :count], embedding))


def test_several_tokens_can_be_appended_at_once() -> None:
    model, embedding = model_and_embedding(num_tokens=5)
    latents = random_latents(3, 2, 5, 3)
    prefix, _ = model.decoder.extend(None, latents[:, :, :2], embedding)
    longer, decoded = model.decoder.extend(prefix, latents[:, :, 2:], embedding)
    assert_same_states(longer, states(model, latents, embedding), length=5)
    assert_same(decoded, model.decode(latents, embedding))


def test_a_later_token_leaves_earlier_states_alone() -> None:
    model, embedding = model_and_embedding()
    latents = random_latents(3, 2, 3, 3)
    before = states(model, latents, embedding)
    for changed in range(3):
        other = latents.clone()
        other[:, :, changed] = -other[:, :, changed]
        after = states(model, other, embedding)
        assert_same_states(before, after, length=changed)
        difference = (after.keys_values[0][0] - before.keys_values[0][0])[..., changed, :].abs().max()
        assert difference > 1e-3
        assert (model.decode(other, embedding)[0] - model.decode(latents, embedding)[0]).abs().max() > 1e-3


def test_candidates_at_once_are_as_one_by_one() -> None:
    model, embedding = model_and_embedding()
    latents = random_latents(3, 6, 3, 3)
    together = model.decode(latents, embedding)
    for candidate in range(6):
        alone = model.decode(latents[:, candidate : candidate + 1], embedding)
        torch.testing.assert_close(alone[0][:, 0], together[0][:, candidate], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(alone[1][:, 0], together[1][:, candidate], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("registers", [1, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_all_prefixes_at_once(num_tokens: int, causal: bool, registers: int) -> None:
    model, embedding = model_and_embedding(num_tokens=num_tokens, causal=causal, registers=registers)
    latents = random_latents(3, num_tokens, 3)
    every = model.decoder.decode_all_prefixes(latents, embedding)
    assert every[0].shape == (3, num_tokens, model.config.features.future_steps, 2)
    for count in range(1, num_tokens + 1):
        one = model.decode(latents[:, None, :count], embedding)
        torch.testing.assert_close(every[0][:, count - 1], one[0][:, 0], atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(every[1][:, count - 1], one[1][:, 0], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("registers", [1, 3])
def test_states_of_all_prefixes_are_those_of_extending_them(registers: int) -> None:
    """Trajectories of the states after 1, 2, ... tokens are those of a search that appends one token at a time."""
    model, embedding = model_and_embedding(registers=registers)
    latents = random_latents(3, 3, 3)
    states = model.decoder._prefix_states(latents, embedding)
    assert states.shape == (3, 4, 16)
    prefix: PrefixCache | None = None
    for count in range(1, 4):
        prefix, decoded = model.decoder.extend(prefix, latents[:, None, count - 1 : count], embedding)
        assert_same(decoded, model.decoder._trajectories(states[:, count : count + 1], embedding))


def test_states_of_prefixes_do_not_depend_on_later_tokens() -> None:
    model, embedding = model_and_embedding()
    latents = random_latents(3, 3, 3)
    before = model.decoder._prefix_states(latents, embedding)
    for changed in range(3):
        other = latents.clone()
        other[:, changed] = -other[:, changed]
        after = model.decoder._prefix_states(other, embedding)
        torch.testing.assert_close(after[:, : changed + 1], before[:, : changed + 1], atol=1e-5, rtol=1e-5)
        assert (after - before)[:, changed + 1 :].abs().amax(dim=(0, 2)).min() > 1e-3
    for count in range(4):
        shorter = model.decoder._prefix_states(latents[:, :count], embedding)
        torch.testing.assert_close(shorter, before[:, : count + 1], atol=1e-5, rtol=1e-5)


def test_selected_prefixes_can_be_extended() -> None:
    model, embedding = model_and_embedding()
    latents = random_latents(3, 4, 2, 3)
    parents = torch.tensor([[3, 0], [1, 1], [2, 3]])
    chosen = latents.gather(1, parents[:, :, None, None].expand(-1, -1, 2, 3))
    selected = states(model, latents, embedding).select(parents)
    assert_same_states(selected, states(model, chosen, embedding), length=2)

    decode, token = PrefixDecoder(model, embedding), random_latents(3, 2, 3, seed=5)
    state, _ = decode(None, torch.zeros(3, 4, dtype=torch.long), latents[:, :, 0])
    _, decoded = decode(state, parents, token)
    assert_same(decoded, model.decode(torch.stack([chosen[:, :, 0], token], dim=2), embedding))


def test_without_causal_masks_earlier_tokens_attend_to_later_ones() -> None:
    model, embedding = model_and_embedding(causal=False)
    latents = random_latents(3, 2, 3, 3)
    other = latents.clone()
    other[:, :, 2] = -other[:, :, 2]
    key, other_key = (states(model, code, embedding).keys_values[-1][0] for code in (latents, other))
    assert (key - other_key)[..., 0, :].abs().max() > 1e-4
    prefix = states(model, latents[:, :, :1], embedding)
    with pytest.raises(
        ValueError, match="got a prefix cache, but the decoder is not causal: decode the whole code instead"
    ):
        model.decoder.extend(prefix, latents[:, :, 1:2], embedding)


@pytest.mark.parametrize("num_tokens", [1, 3])
def test_numbers_of_tokens_that_cannot_be_decoded(num_tokens: int) -> None:
    model, embedding = model_and_embedding(num_tokens=num_tokens)
    words = f"got prefixes of {num_tokens + 1} tokens, expected at most {num_tokens}: the model has no more"
    with pytest.raises(ValueError, match=words):
        model.decode(random_latents(3, 2, num_tokens + 1, 3), embedding)
    whole = states(model, random_latents(3, 2, num_tokens, 3), embedding)
    with pytest.raises(ValueError, match=words):
        model.decoder.extend(whole, random_latents(3, 2, 1, 3), embedding)
    with pytest.raises(ValueError, match="got prefixes of 0 tokens and none to append, expected at least 1"):
        model.decode(random_latents(3, 2, 0, 3), embedding)
    with pytest.raises(ValueError, match=f"got prefixes of {num_tokens} tokens and none to append"):
        model.decoder.extend(whole, random_latents(3, 2, 0, 3), embedding)


def test_no_candidates() -> None:
    model, embedding = model_and_embedding()
    mean, std = model.decode(random_latents(3, 0, 2, 3), embedding)
    assert mean.shape == std.shape == (3, 0, 20, 2)


def test_codes_for_refinement_are_a_multiple_of_the_rows() -> None:
    model, embedding = model_and_embedding()
    decode, codes = PrefixDecoder(model, embedding), random_latents(6, 2, 3)
    assert_same(decode.decode(codes), model.decode(codes.view(3, 2, 2, 3), embedding))
    with pytest.raises(ValueError, match="got 7 codes, expected a multiple of 3"):
        decode.decode(random_latents(7, 2, 3))


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"spline_points": None}], ids=str)
def test_gradients_against_finite_differences(changes: dict[str, Any]) -> None:
    model = tiny_model(decoder_layers=2, **changes).double().requires_grad_(False)
    is_edge = torch.tensor([[False, False, False, True, False], [False, True, False, False, False]])
    is_lane = torch.tensor([[True, True, True, False, False], [True, False, False, False, False]])
    reachability = torch.tensor([[1.0, 0.5, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]).double()
    points_m = random_latents(2, 5, 6, 2, seed=1).double() * 20
    polylines = map_polylines(points_m, is_lane=is_lane, is_edge=is_edge, reachability=reachability)
    tokens, relation = random_latents(2, 5, 16).double(), random_latents(2, 1, 5, 12, seed=2).double()
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    velocity = torch.tensor([[5.0, 0.0], [0.0, 0.0]]).double()

    def summary(code: Tensor, tokens: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        scene = scene_tokens(tokens, polylines, velocity_mps=velocity, relation=relation, mask=mask)
        mean, std = model.decode(code, model.decoder.embed_scene(scene))
        return mean[:, :, ::7], std[:, :, ::7]

    inputs = tuple(one.requires_grad_() for one in (random_latents(2, 1, 2, 3).double(), tokens, relation))
    assert torch.autograd.gradcheck(summary, inputs, eps=1e-6, atol=1e-5, fast_mode=True)
    gradients = torch.autograd.grad((summary(*inputs)[0] ** 2).sum(), inputs)
    assert gradients[0].all()
    assert not gradients[1][~mask].any()
    assert not gradients[2][:, 0][~mask].any()
