"""The finite set of values that a token can take."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Codebook:
    """All codes of one token: V = N_l ** D combinations of evenly spaced levels in [-1, 1]."""

    num_levels: int  # N_l: levels per dimension
    token_dim: int  # D: dimensions of a token

    def __post_init__(self) -> None:
        if self.num_levels < 2 or self.token_dim < 1:
            raise ValueError(f"{self}: expected at least 2 levels and 1 dimension")

    def __len__(self) -> int:
        return self.num_levels**self.token_dim

    @cached_property
    def values(self) -> Float[Tensor, "V D"]:
        """The code of every token id."""
        levels = torch.linspace(-1, 1, self.num_levels, device="cpu").tolist()
        return torch.tensor(list(product(levels, repeat=self.token_dim)), device="cpu")

    def ids(self, latents: Float[Tensor, "*shape D"]) -> Int[Tensor, "*shape"]:
        """The id of the nearest code."""
        level = ((latents.clamp(-1, 1) + 1) / 2 * (self.num_levels - 1)).round().long()
        place = self.num_levels ** torch.arange(self.token_dim - 1, -1, -1, device=latents.device)
        return (level * place).sum(dim=-1)

    def codes(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape D"]:
        """The codes of token ids."""
        return self.values.to(ids.device)[ids]
