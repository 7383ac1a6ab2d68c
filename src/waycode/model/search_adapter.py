"""Lets `waycode.search` extend prefixes with the decoder: the search itself knows no network."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.model.autoencoder import Model
from waycode.model.decoder import Prefix, SceneMemory, Trajectories


@dataclass(frozen=True)
class PrefixState:
    """K prefixes of n tokens, and what the decoder has computed of them."""

    latents: Float[Tensor, "R K n D"]
    prefix: Prefix


class PrefixDecoder:
    """The decode callable of one batch of scenes; keeps every prefix's states, so that no token is computed twice."""

    def __init__(self, model: Model, memory: SceneMemory):
        self.model, self.memory = model, memory

    def __call__(self, state: PrefixState | None, parents: Tensor, tokens: Tensor) -> tuple[PrefixState, Trajectories]:
        """Puts tokens [R, K, D] behind the prefixes `state[parents]`, or behind nothing."""
        latents = tokens[:, :, None]
        if state is not None:
            index = parents[:, :, None, None].expand(-1, -1, *state.latents.shape[2:])
            latents = torch.cat([state.latents.gather(1, index), latents], dim=2)
        if state is not None and self.model.config.causal:
            prefix = self.model.extend(state.prefix.select(parents), tokens, self.memory)
        else:  # without causal masks a new token changes the states of those before it
            prefix = self.model.decoder.begin(latents, self.memory)
        return PrefixState(latents, prefix), self.model.decoder.read_out(prefix, self.memory)
