"""The bottleneck: a few tokens of a few numbers in [-1, 1], noisy in training, rounded to levels at test time."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def quantise(latents: Float[Tensor, "*shape"], num_levels: int) -> Float[Tensor, "*shape"]:
    """Rounds each number in [-1, 1] to the nearest of `num_levels` evenly spaced levels (paper, section 3.1)."""
    if num_levels < 2:
        raise ValueError(f"num_levels is {num_levels}, expected at least 2")
    return ((latents.clamp(-1, 1) + 1) / 2 * (num_levels - 1)).round() / (num_levels - 1) * 2 - 1


def quantise_straight_through(latents: Float[Tensor, "*shape"], num_levels: int) -> Float[Tensor, "*shape"]:
    """Rounds forward; the gradient passes unchanged (FSQ)."""
    return latents + (quantise(latents, num_levels) - latents).detach()


def draw_noise(shape: Sequence[int], sigma: float, generator: torch.Generator | None = None) -> Tensor:
    """Gaussian noise of standard deviation `sigma`, drawn on the CPU, so that a run draws the same on every device."""
    return sigma * torch.randn(*shape, generator=generator, device="cpu")


def prefix_probabilities(num_tokens: int, *, ratio: float = 0.5) -> Float[Tensor, " N"]:
    """Probability of keeping the first 1, 2, ..., N tokens in training (nested dropout, appendix A.3).

    All tokens are kept with probability 1/2. Otherwise N_drop tokens are dropped with a probability proportional to
    ratio^N_drop; at least one is dropped and one kept.

    Args:
        num_tokens: N.
        ratio: probability of dropping one token more, relative to one less; 1/2 in the paper.
    """
    if num_tokens < 1:
        raise ValueError(f"num_tokens is {num_tokens}, expected at least 1")
    if num_tokens == 1:
        return torch.ones(1, device="cpu")
    dropped = torch.arange(num_tokens - 1, 0, -1, device="cpu")  # N_drop for 1, 2, ..., N - 1 kept tokens
    weight = ratio**dropped
    return torch.cat([0.5 * weight / weight.sum(), weight.new_tensor([0.5])])


def sample_prefix(
    num_rows: int, num_tokens: int, generator: torch.Generator | None = None, *, ratio: float = 0.5
) -> Float[Tensor, "R N"]:
    """Draws the number of kept tokens for each row, as a one-hot vector; see `prefix_probabilities`."""
    probabilities = prefix_probabilities(num_tokens, ratio=ratio)
    kept = torch.multinomial(probabilities, num_rows, replacement=True, generator=generator)
    return torch.nn.functional.one_hot(kept, num_tokens).to(probabilities.dtype)
