"""The prior over the next token: it depends on earlier tokens alone, and agrees with the states of the decoder."""

import pytest
import torch
from torch import Tensor

from tiny_model import batch_of, crowd, in_double, model_and_embedding, random_latents, seen_by, tiny_model


@pytest.mark.parametrize(("num_tokens", "token_dim"), [(1, 3), (3, 1), (3, 3), (2, 4)])
def test_one_distribution_per_token_and_one_after_the_last(num_tokens: int, token_dim: int) -> None:
    """Over the tokens of a codebook with two levels."""
    model, embedding = model_and_embedding(num_tokens=num_tokens, token_dim=token_dim)
    latents = random_latents(3, num_tokens, token_dim)
    logits = model.decoder.next_token_logits(latents, embedding)
    assert logits.shape == (3, num_tokens + 1, len(model.codebook(2)))
    _, prior = model.decoder.decode_with_prior(latents, embedding)
    assert prior.shape == (3, num_tokens, 2**token_dim)


def test_decoding_with_the_prior_is_decoding_and_the_prior() -> None:
    model, embedding = model_and_embedding()
    latents = random_latents(3, 3, 3)
    decoded, prior = model.decoder.decode_with_prior(latents, embedding)
    for one, other in zip(decoded, model.decoder.decode_all_prefixes(latents, embedding), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(prior, model.decoder.next_token_logits(latents, embedding)[:, :-1])


@pytest.mark.parametrize("registers", [1, 2])
def test_the_prior_of_a_token_has_no_gradient_with_respect_to_it_and_to_later_ones(registers: int) -> None:
    model, embedding = model_and_embedding(registers=registers)
    latents = random_latents(3, 3, 3).requires_grad_()
    logits = model.decoder.next_token_logits(latents, embedding)
    for token in range(4):
        (gradient,) = torch.autograd.grad(logits[:, token].square().sum(), latents, retain_graph=True)
        assert not gradient[:, token:].any()
        assert gradient[:, :token].all()


@pytest.mark.parametrize("registers", [1, 2])
def test_the_prior_of_a_prefix_is_that_of_the_whole_code(registers: int) -> None:
    model, embedding = model_and_embedding(registers=registers)
    latents = random_latents(3, 3, 3)
    every = model.decoder.next_token_logits(latents, embedding)
    for count in range(3):
        found = model.decoder.next_token_logits(latents[:, :count], embedding)
        torch.testing.assert_close(found, every[:, : count + 1], atol=1e-5, rtol=1e-5)


def test_the_prior_of_the_first_token_depends_on_the_scene_alone() -> None:
    model, embedding = model_and_embedding()
    first = model.decoder.next_token_logits(torch.zeros(3, 0, 3), embedding)
    assert first.shape == (3, 1, 8)
    for seed in range(2):
        every = model.decoder.next_token_logits(random_latents(3, 3, 3, seed=seed), embedding)
        torch.testing.assert_close(every[:, :1], first, atol=1e-5, rtol=1e-5)
    assert (first[0] - first[1]).abs().max() > 1e-3  # another agent


def test_the_prior_reads_the_state_that_the_trajectory_is_read_from() -> None:
    model, embedding = model_and_embedding()
    latents = random_latents(3, 3, 3)
    states = model.decoder._prefix_states(latents, embedding)
    assert model.decoder.prior is not None
    expected = states @ model.decoder.prior.weight.T + model.decoder.prior.bias
    torch.testing.assert_close(model.decoder.next_token_logits(latents, embedding), expected)


def test_more_tokens_than_the_model_has() -> None:
    model, embedding = model_and_embedding(num_tokens=2)
    with pytest.raises(ValueError, match="got prefixes of 3 tokens, expected at most 2"):
        model.decoder.next_token_logits(random_latents(3, 3, 3), embedding)


@pytest.mark.parametrize("name", ["next_token_logits", "decode_with_prior"])
def test_a_model_without_a_prior(name: str) -> None:
    model, embedding = model_and_embedding(prior=False)
    assert not [parameter for parameter, _ in model.named_parameters() if "prior" in parameter]
    with pytest.raises(ValueError, match="the model has no prior over codes: it was trained without one"):
        getattr(model.decoder, name)(random_latents(3, 3, 3), embedding)


def test_the_prior_changes_nothing_else() -> None:
    """A model without a prior that has the same weights decodes the same."""
    model, embedding = model_and_embedding()
    without = tiny_model(prior=False)
    without.load_state_dict({name: value for name, value in model.state_dict().items() if "prior" not in name})
    latents = random_latents(3, 3, 3)
    one, other = (each.decoder.decode_all_prefixes(latents, embedding) for each in (model, without))
    assert torch.equal(one[0], other[0])


def test_gradients_against_finite_differences() -> None:
    model = tiny_model().double().requires_grad_(False)
    _, embedding = seen_by(model, in_double(batch_of(crowd())))

    def logits(latents: Tensor) -> Tensor:
        return model.decoder.next_token_logits(latents, embedding)

    assert torch.autograd.gradcheck(logits, (random_latents(3, 2, 3).double().requires_grad_(),))
