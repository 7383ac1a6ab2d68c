"""`TokenCode`: a trajectory as a few tokens, which can be decoded in any scene."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from waycode.model.config import ModelConfig
from waycode.planner.plan import PlannerError
from waycode.search import Codebook


@dataclass(frozen=True, kw_only=True)
class TokenCode:
    """An encoded trajectory."""

    latents: Float64[np.ndarray, "n D"]  # in [-1, 1]
    ids: tuple[int, ...] | None  # token ids; None if the latents are not rounded to levels
    levels: int | None  # number of levels per dimension; None if the latents are not rounded

    def first(self, count: int | None) -> "TokenCode":
        """The first `count` tokens: a coarser description of the same trajectory (paper, section 3.2). None: all."""
        available = len(self.latents)
        if count is not None and not 1 <= count <= available:
            raise PlannerError(f"asked for {count} tokens, expected 1 to {available}")
        return TokenCode(latents=self.latents[:count], ids=self.ids and self.ids[:count], levels=self.levels)


Tokens = TokenCode | Sequence[int] | np.ndarray | Tensor


def as_code(tokens: Tokens, *, levels: int, config: ModelConfig) -> TokenCode:
    """Token ids [n] or latents [n, D] as a code, checked against the model's configuration.

    Args:
        tokens: ids, latents or a code.
        levels: codebook levels of token ids.
        config: gives the number of tokens and their dimension D.
    """
    if isinstance(tokens, TokenCode):
        _check_latents(tokens.latents, config)
        return tokens
    values = np.asarray(tokens.detach().cpu() if isinstance(tokens, Tensor) else tokens)
    if values.ndim == 2:
        _check_latents(values, config)
        return TokenCode(latents=values.astype(np.float64), ids=None, levels=None)
    ids = values.tolist()
    if values.ndim != 1 or not all(isinstance(token, Integral) for token in ids):
        raise PlannerError(
            f"the tokens have shape {list(values.shape)} and type {values.dtype}, "
            f"expected ids [n] (whole numbers) or latents [n, {config.token_dim}]"
        )
    codebook = _codebook(levels, config.token_dim)
    wrong = [token for token in ids if not 0 <= token < len(codebook)]
    if wrong:
        raise PlannerError(
            f"token ids {wrong} are out of range: {levels} levels in {config.token_dim} dimensions "
            f"have the ids 0 to {len(codebook) - 1}"
        )
    latents = as_float64(codebook.codes(torch.tensor(ids, dtype=torch.long, device="cpu")))
    _check_latents(latents, config)
    return TokenCode(latents=latents, ids=tuple(ids), levels=levels)


def rounded_code(latents: Float[Tensor, "n D"], levels: int | None) -> TokenCode:
    """The nearest code of `levels` levels; None keeps the latents as they are."""
    if levels is None:
        return TokenCode(latents=as_float64(latents), ids=None, levels=None)
    codebook = _codebook(levels, latents.shape[1])
    ids = codebook.ids(latents)
    return TokenCode(latents=as_float64(codebook.codes(ids)), ids=tuple(ids.tolist()), levels=levels)


def as_float64(values: Tensor) -> np.ndarray:
    """A tensor as a float64 array, detached."""
    return values.detach().cpu().double().numpy()


def check_levels(levels: int) -> None:
    """Raises `PlannerError` for a number of levels that no codebook has."""
    if levels < 2:
        raise PlannerError(f"levels is {levels}, expected at least 2")


def _codebook(levels: int, token_dim: int) -> Codebook:
    check_levels(levels)
    return Codebook(levels, token_dim)


def _check_latents(latents: np.ndarray, config: ModelConfig) -> None:
    if latents.shape[1] != config.token_dim:
        raise PlannerError(f"the latents have shape {list(latents.shape)}, expected [n, {config.token_dim}]")
    if not 1 <= len(latents) <= config.num_tokens:
        raise PlannerError(f"got {len(latents)} tokens, expected 1 to {config.num_tokens}: the model has no more")
    if not (np.isfinite(latents).all() and np.abs(latents).max() <= 1):
        raise PlannerError(f"the latents go up to {np.abs(latents).max():g}, expected numbers in [-1, 1]")
