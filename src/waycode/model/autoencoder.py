"""The conditional trajectory autoencoder: scene encoder, trajectory encoder, bottleneck, decoder.

R rows (an agent in a scene), K candidates, n of N latent tokens, D latent dimension, T future steps.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from waycode.features import Agents, SceneFeatures
from waycode.model.bottleneck import add_noise, quantise_straight_through
from waycode.model.config import Bottleneck, ModelConfig
from waycode.model.decoder import Decoder, MeanAndStd, PrefixCache, SceneEmbedding
from waycode.model.scene_encoder import SceneEncoder
from waycode.model.trajectory_encoder import EncoderPass, TrajectoryEncoder
from waycode.search import Codebook, beam_search


class Model(nn.Module):
    """Encodes trajectories as a few ordered tokens, given the scene, and decodes them.

    `encode_scene` once per scene, then any number of calls of `decode`.
    """

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
        """All tokens that search can choose from, with `num_levels` levels per latent dimension."""
        return Codebook(num_levels, self.config.token_dim)

    def encode_scene(self, scene: SceneFeatures, agents: Agents) -> SceneEmbedding:
        """Embeds scenes, once for all their modelled agents: R rows, the agents of the first scene first."""
        return self.decoder.embed_scene(self.scene_encoder(scene, agents))

    def encode(
        self, future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"], scene: SceneEmbedding
    ) -> Float[Tensor, "R N D"]:
        """Latents in [-1, 1] of trajectories in their agents' frames; steps that are not valid are ignored."""
        keys_values = self.trajectory_encoder.blocks.scene_keys_and_values(scene.tokens.tokens)
        logits = self.trajectory_encoder(future_m, valid, scene.tokens, keys_values)
        for _ in range(1, self.config.encoder_passes):
            with torch.no_grad():
                mean_m, _ = self.decoder.decode_all_prefixes(logits.tanh(), scene)
            before = EncoderPass(logits=logits, error_m=future_m[:, None] - mean_m)
            logits = self.trajectory_encoder(future_m, valid, scene.tokens, keys_values, before)
        return torch.tanh(logits)

    def apply_bottleneck(
        self, latents: Float[Tensor, "R N D"], sigma: float, generator: torch.Generator | None = None
    ) -> Float[Tensor, "R N D"]:
        """Latents as the decoder gets them in training: with noise of `sigma`, or quantised (FSQ)."""
        if self.config.bottleneck == Bottleneck.FSQ:
            return quantise_straight_through(latents, self.config.fsq_levels)
        return add_noise(latents, sigma, generator)

    def decode(self, latents: Float[Tensor, "R K n D"], scene: SceneEmbedding) -> MeanAndStd:
        """Mean and standard deviation of positions, each [R, K, T, 2], in the agents' frames, in metres."""
        return self.decoder.decode(latents, scene)


class PrefixDecoder:
    """The decode callable that `waycode.search` expects, for the scenes of one embedding."""

    def __init__(self, model: Model, scene: SceneEmbedding):
        self.model, self.scene = model, scene

    def __call__(
        self, state: PrefixCache | Tensor | None, parents: Int[Tensor, "R K"], tokens: Float[Tensor, "R K D"]
    ) -> tuple[PrefixCache | Tensor, MeanAndStd]:
        """Appends a token to each of the prefixes `state[parents]` and decodes the longer prefixes.

        Args:
            state: the state that the last call returned; None for empty prefixes. It is the prefix cache, or the
                latents [R, K', n, D] if the model is not causal: a new token then changes the states of its prefix.
            parents: indices of the prefixes to extend.
            tokens: the token to append to each.
        """
        latents = tokens[:, :, None]
        if self.model.config.causal:
            cache = state.select(parents) if isinstance(state, PrefixCache) else None
            return self.model.decoder.extend(cache, latents, self.scene)
        if isinstance(state, Tensor):
            index = parents[:, :, None, None].expand(-1, -1, *state.shape[2:])
            latents = torch.cat([state.gather(1, index), latents], dim=2)
        return latents, self.model.decode(latents, self.scene)

    def decode(self, latents: Float[Tensor, "B n D"]) -> MeanAndStd:
        """Decodes whole codes with gradients, as `waycode.search.refine` expects.

        Args:
            latents: B = R * K codes, the K codes of a row in sequence. The scene must not be embedded under
                `torch.inference_mode`.
        """
        rows = len(self.scene.velocity_mps)
        if len(latents) % rows:
            raise ValueError(f"got {len(latents)} codes, expected a multiple of the {rows} rows")
        return self.model.decode(latents.view(rows, -1, *latents.shape[1:]), self.scene)


@torch.no_grad()
def search_codes(
    model: Model,
    scene: SceneEmbedding,
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    levels: int = 2,
    beam_width: int = 1,
) -> Int[Tensor, "R N"]:
    """Token ids of the codes that search finds when it minimises the mean distance from given trajectories.

    Args:
        model: the autoencoder.
        scene: the embedding of the rows.
        future_m: positions in the agents' frames.
        valid: which of them count.
        levels: levels per latent dimension.
        beam_width: 1 is greedy search.
    """
    found = beam_search(
        PrefixDecoder(model, scene), lambda decoded: average_displacement_m(decoded[0], future_m, valid),
        codebook=model.codebook(levels), num_rows=len(future_m), depth=model.config.num_tokens,
        beam_width=beam_width, device=future_m.device,
    )  # fmt: skip
    return found.ids[:, 0]


def average_displacement_m(
    mean_m: Float[Tensor, "R K T 2"], future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"]
) -> Float[Tensor, "R K"]:
    """Mean distance of K trajectories per row from the given one, over its valid steps; 0 if there are none."""
    weight = valid[:, None].to(mean_m)
    distance = (mean_m - future_m[:, None]).norm(dim=-1)
    return (distance * weight).sum(dim=-1) / weight.sum(dim=-1).clamp(min=1)
