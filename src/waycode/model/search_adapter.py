"""Lets `waycode.search` use the decoder: the search itself knows no network."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.model.autoencoder import Model
from waycode.model.decoder import Prefix, SceneMemory, Trajectories


@dataclass(frozen=True)
class WholeCodes:
    """K prefixes of n tokens of a model without causal masks: a new token changes the states of those before it."""

    latents: Float[Tensor, "R K n D"]


PrefixState = Prefix | WholeCodes


class PrefixDecoder:
    """The decode callable of one batch of scenes; keeps every prefix's states, so that no token is computed twice."""

    def __init__(self, model: Model, memory: SceneMemory):
        self.model, self.memory = model, memory

    def __call__(self, state: PrefixState | None, parents: Tensor, tokens: Tensor) -> tuple[PrefixState, Trajectories]:
        """Puts tokens [R, K, D] behind the prefixes `state[parents]`, or behind nothing."""
        if self.model.config.causal:
            past = state.select(parents) if isinstance(state, Prefix) else None
            return self.model.decoder.read_on(past, tokens[:, :, None], self.memory)
        latents = tokens[:, :, None]
        if isinstance(state, WholeCodes):
            index = parents[:, :, None, None].expand(-1, -1, *state.latents.shape[2:])
            latents = torch.cat([state.latents.gather(1, index), latents], dim=2)
        return WholeCodes(latents), self.model.decode(latents, self.memory)

    def decode(self, latents: Float[Tensor, "B n D"]) -> Trajectories:
        """Whole codes with gradients, as `waycode.search.refine` wants them: B = R * K, the K of a row in a run.

        The trajectories are [R, K, T, 2] as ever; the memory must not come from `torch.inference_mode`.
        """
        rows = len(self.memory.velocity_mps)
        if len(latents) % rows:
            raise ValueError(f"got {len(latents)} codes, expected as many for each of the {rows} rows")
        return self.model.decode(latents.view(rows, -1, *latents.shape[1:]), self.memory)
