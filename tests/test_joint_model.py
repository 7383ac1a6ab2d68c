"""The joint model: one code for all agents of a scene. In double precision, where equal means to the ninth digit."""

from dataclasses import replace

import pytest
import torch

from tiny_model import (
    FEATURES,
    assert_same_outputs,
    batch_of,
    crowd,
    features_moved,
    futures_of,
    in_double,
    observed,
    outputs,
    padded,
    random_latents,
    seen_by,
    tiny_model,
)
from waycode.features import Batch, collate, extract
from waycode.model import Model, PrefixDecoder, SceneEmbedding, search_codes
from waycode.model.autoencoder import average_displacement_m
from waycode.training.config import override, small
from waycode.training.module import AutoencoderModule

TOKENS = 4
WIDE = replace(FEATURES, max_distance_m=10_000.0)  # whatever agents are chosen, the model sees the same scene


@pytest.fixture(params=[False, True], ids=["paper", "addressed"])
def addressed(request: pytest.FixtureRequest) -> bool:
    """Whether tokens are addressed to the agents in turn."""
    return bool(request.param)


def joint_model(**changes: bool) -> Model:
    return tiny_model(joint=True, num_tokens=TOKENS, max_scene_tokens=600, **changes).double()


def batch_with(*agents: list[int]) -> Batch:
    """These tracks of the first, second, ... scene."""
    scenes = [extract(crowd(seed), tracks, config=WIDE) for seed, tracks in enumerate(agents)]
    return in_double(collate(scenes))


def tracks(seed: int, count: int) -> list[int]:
    return observed(crowd(seed), count)


@torch.no_grad()
def embedded(model: Model, batch: Batch) -> SceneEmbedding:
    return model.encode_scene(batch.scene, batch.agents)


def test_a_scene_has_one_code_and_every_agent_a_trajectory(addressed: bool) -> None:
    model, batch = joint_model(addressed=addressed), batch_with(tracks(0, 4), tracks(1, 2))
    found = outputs(model, batch)
    assert found["latents"].shape == (2, TOKENS, 3)
    assert found["prior"].shape == (2, TOKENS + 1, 8)
    assert found["mean"].shape == (6, TOKENS, FEATURES.future_steps, 2)


def test_permuting_agents_permutes_their_trajectories_and_leaves_the_code(addressed: bool) -> None:
    model, chosen, order = joint_model(addressed=addressed), tracks(0, 4), [2, 0, 3, 1]
    one = outputs(model, batch_with(chosen))
    other = outputs(model, batch_with([chosen[place] for place in order]))
    for name in ("latents", "prior"):
        torch.testing.assert_close(other[name], one[name], atol=1e-9, rtol=1e-9)
    for name in ("mean", "std"):
        torch.testing.assert_close(other[name], one[name][order], atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize(("angle_rad", "shift_m"), [(0.0, (40.0, -30.0)), (-2.9, (-600.0, 150.0)), (9.0, (1e4, 2e4))])
def test_motion_of_the_scene_changes_nothing(angle_rad: float, shift_m: tuple[float, float], addressed: bool) -> None:
    model, batch = joint_model(addressed=addressed), batch_with(tracks(0, 3), tracks(1, 2))
    turned = features_moved(batch, angle_rad=angle_rad, shift_m=shift_m)
    assert_same_outputs(outputs(model, turned), outputs(model, batch), tolerance=1e-7)


@pytest.mark.parametrize("more", [{"segments": 5}, {"tracks": 3}, {"agents": 2}], ids=str)
def test_padding_changes_nothing(more: dict[str, int], addressed: bool) -> None:
    model, batch = joint_model(addressed=addressed), batch_with(tracks(0, 3), tracks(1, 2))
    assert_same_outputs(outputs(model, padded(batch, **more)), outputs(model, batch))


def test_scenes_of_a_batch_do_not_see_each_other(addressed: bool) -> None:
    model = joint_model(addressed=addressed)
    both, one = outputs(model, batch_with(tracks(0, 3), tracks(1, 2))), outputs(model, batch_with(tracks(0, 3)))
    for name in ("mean", "std"):
        torch.testing.assert_close(both[name][:3], one[name], atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(both["latents"][:1], one["latents"], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("feedback", [True, False])
@torch.no_grad()
def test_agents_depend_on_each_other_through_the_code_and_in_the_decoder(feedback: bool, addressed: bool) -> None:
    model, batch = joint_model(feedback=feedback, addressed=addressed), batch_with(tracks(0, 3))
    scene, (future, valid) = embedded(model, batch), futures_of(batch)
    code = model.encode(future, valid, scene)
    elsewhere = future.clone()
    elsewhere[1] += 5.0
    assert (model.encode(elsewhere, valid, scene) - code).abs().max() > 1e-4
    latents = random_latents(1, 1, TOKENS, 3).double()
    together, _ = model.decode(latents, scene)
    alone, _ = model.decode(latents, embedded(model, batch_with(tracks(0, 1))))
    assert (together[0] - alone[0]).abs().max() > 1e-3  # the same code, with and without the other two


@torch.no_grad()
def test_one_agent_of_an_embedding_is_an_embedding_of_this_agent_alone(addressed: bool) -> None:
    model, chosen = joint_model(addressed=addressed), tracks(0, 3)
    latents = random_latents(1, 5, TOKENS, 3).double()
    scene = embedded(model, batch_with(chosen))
    for row, track in enumerate(chosen):
        one, other = (model.decode(latents, each) for each in (scene.only(row), embedded(model, batch_with([track]))))
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


@torch.no_grad()
def test_extending_cached_prefixes_is_decoding_whole_codes(addressed: bool) -> None:
    model, batch = joint_model(addressed=addressed), batch_with(tracks(0, 3), tracks(1, 2))
    scene, latents = embedded(model, batch), random_latents(2, 6, TOKENS, 3).double()
    decode, state, parents = PrefixDecoder(model, scene), None, torch.arange(6).expand(2, -1)
    for place in range(TOKENS):
        if place == 2:  # the search keeps some prefixes and extends them more than once
            parents = torch.tensor([[5, 0, 0, 3, 1, 5], [2, 2, 4, 1, 0, 3]])
            latents = latents.gather(1, parents[:, :, None, None].expand(-1, -1, TOKENS, 3))
        state, decoded = decode(state, parents if place == 2 else torch.arange(6).expand(2, -1), latents[:, :, place])
        whole = model.decode(latents[:, :, : place + 1], scene)
        torch.testing.assert_close(decoded, whole, atol=1e-8, rtol=1e-8)


@torch.no_grad()
def test_search_minimises_the_mean_over_the_agents_of_each_scene(addressed: bool) -> None:
    model, batch = joint_model(addressed=addressed).float(), batch_of(crowd(), crowd(1), agents=3)
    agents = replace(batch.agents, mask=torch.tensor([[True, True, True], [True, True, False]]))
    batch = replace(batch, agents=agents)
    scene, (future, valid) = embedded(model, batch), futures_of(batch)
    ids = search_codes(model, scene, future, valid)
    assert ids.shape == (2, TOKENS)
    first, _ = model.decode(model.codebook().values[None, :, None].expand(2, -1, -1, -1), scene)  # [R, 8, T, 2]
    error = average_displacement_m(first, future, valid)
    assert ids[:, 0].tolist() == [int(error[:3].mean(dim=0).argmin()), int(error[3:].mean(dim=0).argmin())]
    assert search_codes(model, scene.first(1), future[:3], valid[:3]).tolist() == ids[:1].tolist()


def test_a_training_step_reaches_every_weight(addressed: bool) -> None:
    settings = ["model.joint=true", "model.num_tokens=4", "losses_from=0", "alternative_share=0", "model.width=16"]
    settings.append(f"model.addressed={addressed}")
    config = override(small(), [*settings, "model.heads=2", "model.feed_forward=32"])
    module = AutoencoderModule(config)
    module.sigma = 0.3
    batch = batch_of(crowd(), crowd(1), agents=3, config=config.model.features)
    torch.autograd.backward(module.training_step(batch, 0)["loss"])
    assert [name for name, one in module.named_parameters() if one.grad is None or not one.grad.isfinite().all()] == []
    tokens, _ = seen_by(module.model, batch)
    assert tokens.num_codes == 2


def test_tokens_are_addressed_to_the_fastest_agent_first_and_then_in_turn() -> None:
    model, chosen = joint_model(addressed=True), tracks(0, 3)
    tokens = embedded(model, batch_with(chosen, tracks(1, 2))).tokens
    speed = tokens.velocity_mps.norm(dim=-1)
    addressed = tokens.is_addressed(torch.arange(TOKENS))
    assert addressed is not None
    assert int(addressed[:3, 0].nonzero()) == int(speed[:3].argmax())
    assert addressed[:3].sum(dim=0).tolist() == [1] * TOKENS  # each token is for one agent of the scene
    assert torch.equal(addressed[:3, 3], addressed[:3, 0])
    assert torch.equal(addressed[3:, 2], addressed[3:, 0])


def test_only_the_code_of_several_agents_has_addresses() -> None:
    with pytest.raises(ValueError, match="addressed is true, expected false if joint is false"):
        tiny_model(addressed=True)
