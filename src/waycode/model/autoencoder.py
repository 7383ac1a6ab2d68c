"""The conditional trajectory autoencoder: scene encoder, trajectory encoder, bottleneck, decoder."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from waycode.features import Agents, SceneFeatures
from waycode.model.bottleneck import corrupt, quantise, quantise_straight_through
from waycode.model.config import Bottleneck, ModelConfig
from waycode.model.decoder import Decoder, SceneMemory, Trajectories
from waycode.model.scene_encoder import SceneEncoder, SceneTokens
from waycode.model.trajectory_encoder import TrajectoryEncoder
from waycode.search import Codebook


class Model(nn.Module):
    """Turns trajectories into a few ordered tokens, given the scene, and back. R rows: the modelled agents."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.scene_encoder = SceneEncoder(config)
        self.trajectory_encoder = TrajectoryEncoder(config)
        self.decoder = Decoder(config)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def codebook(self, num_levels: int = 2) -> Codebook:
        return Codebook(num_levels, self.config.token_dim)

    def see(self, scene: SceneFeatures, agents: Agents) -> SceneTokens:
        """The scene around each modelled agent; a row per agent that is there."""
        return self.scene_encoder(scene, agents)

    def encode(
        self,
        future_m: Float[Tensor, "R T 2"],
        valid: Bool[Tensor, "R T"],
        scene: SceneTokens,
        *,
        num_levels: int | None = None,
    ) -> Float[Tensor, "R N D"]:
        """Latents in [-1, 1]; rounded to levels if asked for."""
        latents = self.trajectory_encoder(future_m, valid, scene)
        return latents if num_levels is None else quantise(latents, num_levels)

    def remember(self, scene: SceneTokens) -> SceneMemory:
        return self.decoder.remember(scene)

    def decode(self, latents: Float[Tensor, "R K n D"], memory: SceneMemory) -> Trajectories:
        return self.decoder.decode(latents, memory)

    def train_bottleneck(
        self, latents: Float[Tensor, "R N D"], sigma: float, generator: torch.Generator | None = None
    ) -> Float[Tensor, "R N D"]:
        """What the decoder gets to see of the latents in training."""
        if self.config.bottleneck == Bottleneck.FSQ:
            return quantise_straight_through(latents, self.config.fsq_levels)
        return corrupt(latents, sigma, generator)
