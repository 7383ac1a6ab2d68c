"""Search in the loop: the tokens that greedy search finds train the decoder, and teach the encoder and the prior."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tiny_model import batch_of, crowd, futures_of, sample_scenes, tiny_config, tiny_model
from waycode.features import Batch
from waycode.model import search_codes
from waycode.model.autoencoder import average_displacement_m
from waycode.model.bottleneck import quantise
from waycode.model.trajectory_encoder import _least_squares
from waycode.search import Codebook
from waycode.training.config import NoiseConfig, TrainingConfig, override, small, small_paper
from waycode.training.config import additions as what_is_ours
from waycode.training.module import AutoencoderModule


def searching_module(**changes: Any) -> AutoencoderModule:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"searched_share": 1.0, "noise": NoiseConfig(fixed_sigma=0.1), **changes}
    return AutoencoderModule(TrainingConfig(model=tiny_config(), **settings))


def gradients(module: AutoencoderModule, batch: Batch) -> dict[str, Tensor]:
    """Gradients of the loss by part of the model; parts without any are left out."""
    module.zero_grad()
    torch.autograd.backward(module.training_step(batch, 0)["loss"])
    return {
        name: parameter.grad for name, parameter in module.model.named_parameters() if parameter.grad is not None
    }  # fmt: skip


def test_searched_codes_are_those_of_greedy_search_by_hand() -> None:
    model, batch = tiny_model(), batch_of(*sample_scenes()[:2])
    scene = model.encode_scene(batch.scene, batch.agents)
    future, valid = futures_of(batch)
    found = search_codes(model, scene, future, valid)
    book, count = model.codebook(), len(future)
    chosen = torch.zeros(count, 0, dtype=torch.long)
    for _ in range(model.config.num_tokens):
        every = torch.arange(len(book)).expand(count, -1)[..., None]
        longer = torch.cat([chosen[:, None].expand(-1, len(book), -1), every], dim=2)
        mean, _ = model.decode(book.codes(longer), scene)
        error = ((mean - future[:, None]).norm(dim=-1) * valid[:, None]).sum(dim=-1)
        best = error.argmin(dim=1)
        chosen = torch.cat([chosen, best[:, None]], dim=1)
    assert torch.equal(found, chosen)


@pytest.mark.parametrize("teaching_weight", [0.0, 1.0])
def test_the_encoder_learns_from_searched_tokens_only_what_it_is_taught(teaching_weight: float) -> None:
    found = gradients(searching_module(teaching_weight=teaching_weight), batch_of(crowd()))
    assert any(name.startswith("decoder") for name in found)
    assert any(name.startswith("trajectory_encoder") and grad.any() for name, grad in found.items()) == (
        teaching_weight > 0
    )


@pytest.mark.parametrize("importance", [0.0, 1.0])
def test_the_prior_learns_from_recorded_futures_only(importance: float) -> None:
    batch = batch_of(crowd())
    batch = replace(batch, importance=torch.full_like(batch.importance, importance))
    found = gradients(searching_module(prior_weight=1.0), batch)
    assert bool(found["decoder.prior.weight"].any()) == (importance > 0)


def test_the_losses_of_ours_begin_later() -> None:
    batch = batch_of(crowd())
    weights = {"path_weight": 100.0, "realism_weight": 100.0}
    before = float(searching_module(losses_from=0.5, **weights).training_step(batch, 0)["loss"].detach())
    plain = float(searching_module().training_step(batch, 0)["loss"].detach())
    assert before == pytest.approx(plain)
    assert float(searching_module(**weights).training_step(batch, 0)["loss"].detach()) > 2 * before


@pytest.mark.parametrize("preview", [False, True])
def test_a_share_of_the_scenes_is_searched(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    noise = NoiseConfig(fixed_sigma=0.1)
    config = TrainingConfig(model=tiny_config(feedback=True, preview=preview), searched_share=0.5, noise=noise)
    module, batch = AutoencoderModule(config), batch_of(*sample_scenes()[:4])
    transmit, received = module.model.transmit, []

    def listen(*arguments: Any) -> tuple[Tensor, Tensor]:
        sent_and_received = transmit(*arguments)
        received.append(sent_and_received[1])
        return sent_and_received

    monkeypatch.setattr(module.model, "transmit", listen)
    module.training_step(batch, 0)
    searched = (received[0].abs() == 1).all(dim=(1, 2))
    assert searched.tolist() == [row < int(batch.agents.mask[:2].sum()) for row in range(len(searched))]
    found = search_codes(module.model, module.model.encode_scene(batch.scene, batch.agents), *futures_of(batch))
    assert torch.equal(module.model.codebook().ids(received[0])[searched], found[searched])


def test_the_target_tightens_by_equal_ratios() -> None:
    noise = NoiseConfig(target_ade_m=2.0, final_target_ade_m=0.5)
    assert [noise.target_at(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([2.0, 1.0, 0.5])
    assert NoiseConfig(target_ade_m=0.6).target_at(0.7) == pytest.approx(0.6)
    with pytest.raises(ValueError, match=r"final_target_ade_m is 0.0, expected a distance above 0"):
        NoiseConfig(final_target_ade_m=0.0)


def test_the_papers_recipe_has_nothing_of_ours_but_the_encoding() -> None:
    assert [name for name, is_on in what_is_ours(small_paper()).items() if is_on] == [
        "one scene encoding for all agents, by relative poses"
    ]
    assert sum(what_is_ours(small()).values()) >= 10


def test_with_feedback_a_latent_answers_what_became_of_those_before_it() -> None:
    model, batch = tiny_model(feedback=True), batch_of(crowd())
    scene = model.encode_scene(batch.scene, batch.agents)
    future, valid = futures_of(batch)

    def disturbed(place: int) -> tuple[Tensor, Tensor]:
        def channel(latents: Tensor, first: int, distance_m: Tensor | None) -> Tensor:
            return latents + (0.5 if first == place else 0.0)

        return model.transmit(future, valid, scene, channel)

    undisturbed, received = disturbed(-1)
    assert torch.equal(undisturbed, received)
    for place in range(3):
        sent, received = disturbed(place)
        torch.testing.assert_close(received[:, place], sent[:, place] + 0.5)
        torch.testing.assert_close(sent[:, : place + 1], undisturbed[:, : place + 1])  # causal
        assert place == 2 or (sent[:, place + 1 :] - undisturbed[:, place + 1 :]).abs().amax(dim=(0, 2)).min() > 1e-4
    with torch.no_grad():
        model.decoder.head.get_parameter("2.bias").add_(1.0)  # another decoder: only the first latent stays
    other = model.encode(future, valid, scene)
    torch.testing.assert_close(other[:, 0], undisturbed[:, 0])
    assert (other[:, 1:] - undisturbed[:, 1:]).abs().max() > 1e-4


def test_a_preview_shows_every_next_token_of_what_was_received() -> None:
    model, batch = tiny_model(feedback=True, preview=True), batch_of(crowd())
    scene = model.encode_scene(batch.scene, batch.agents)
    future, valid = futures_of(batch)
    codebook = model.codebook()

    def nearest(latents: Tensor, first: int, distance_m: Tensor | None) -> Tensor:
        assert distance_m is not None
        assert distance_m.shape == (len(future), len(codebook))
        return codebook.codes(distance_m.argmin(dim=1))[:, None]

    received = model.transmit(future, valid, scene, nearest)[1]
    assert torch.equal(codebook.ids(received), search_codes(model, scene, future, valid))  # it is greedy search
    weight = model.trajectory_encoder.weigh.get_parameter("0.weight")
    (gradient,) = torch.autograd.grad(model.encode(future, valid, scene).square().sum(), weight)
    assert (gradient.abs().amax(dim=0) > 0).all()  # every input counts


def test_the_linear_guess_of_a_preview_is_exact_for_a_linear_decoder() -> None:
    codes = Codebook(2, 3).values
    slope_m = torch.randn(2, 3, 2 * 80, generator=torch.Generator().manual_seed(0)) * 10
    truth = torch.tensor([[0.3, -0.8, 0.1], [1.0, 0.0, -0.5]])
    error_m = (truth[:, None] - codes) @ slope_m  # [R, V, 2 * T]: the trajectory less what each code decodes to
    found = _least_squares(error_m.view(2, 8, 80, 2), codes)
    torch.testing.assert_close(found, truth, atol=1e-3, rtol=0)
    assert torch.equal(_least_squares(torch.ones(1, 8, 80, 2), codes), torch.zeros(1, 3))  # all codes decode alike


@pytest.mark.parametrize("joint", [False, True])
def test_a_polished_latent_is_never_farther_from_the_trajectory(joint: bool) -> None:
    model, batch = tiny_model(feedback=True, joint=joint), batch_of(crowd())
    scene = model.encode_scene(batch.scene, batch.agents)
    future, valid = futures_of(batch)
    cache = None
    for _ in range(2):  # at the first place, and after a prefix
        latents = torch.rand(scene.tokens.num_codes, 3, generator=torch.Generator().manual_seed(0)) - 0.5
        polished = model.polished(latents, cache, future, valid, scene)
        before_m, after_m = (
            scene.tokens.of_codes(
                average_displacement_m(model.decoder.decode_next(cache, codes[:, None], scene), future, valid)
            )
            for codes in (latents, polished)
        )
        assert (after_m <= before_m + 1e-5).all()
        assert (after_m < before_m - 1e-3).any()
        assert polished.abs().max() <= 1
        cache, _ = model.decoder.extend(cache, polished[:, None, None], scene)
    unknown = model.polished(latents, cache, future, torch.zeros_like(valid), scene)
    torch.testing.assert_close(unknown, latents)  # nothing was observed: nothing to move towards


def test_polish_is_for_codes_that_are_not_rounded_to_two_levels() -> None:
    batch = batch_of(crowd())
    future, valid = futures_of(batch)
    plain, polishing = tiny_model(feedback=True), tiny_model(feedback=True, polish=True)
    polishing.load_state_dict(plain.state_dict())  # polish has no weights
    scene = plain.encode_scene(batch.scene, batch.agents)
    assert torch.equal(plain.encode(future, valid, scene, levels=2), polishing.encode(future, valid, scene, levels=2))
    for levels in (3, None):
        assert not torch.equal(
            plain.encode(future, valid, scene, levels=levels), polishing.encode(future, valid, scene, levels=levels)
        )
    with pytest.raises(ValueError, match="polish is true, expected false if feedback is false"):
        tiny_model(feedback=False, polish=True)


def test_without_feedback_a_rounded_code_is_the_continuous_one_rounded() -> None:
    batch = batch_of(crowd())
    future, valid = futures_of(batch)
    for feedback in (False, True):
        model = tiny_model(feedback=feedback)
        scene = model.encode_scene(batch.scene, batch.agents)
        rounded, continuous = model.encode(future, valid, scene, levels=2), model.encode(future, valid, scene)
        assert rounded.abs().eq(1).all()
        assert torch.equal(rounded[:, 0], quantise(continuous, 2)[:, 0])
        assert feedback or torch.equal(rounded, quantise(continuous, 2))


def test_settings_of_ours_have_bounds() -> None:
    with pytest.raises(Exception, match=r"searched_share is 1.5, expected 0 to 1"):
        override(small(), ["searched_share=1.5"])
