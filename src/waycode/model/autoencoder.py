"""The conditional trajectory autoencoder: scene encoder, trajectory encoder, bottleneck, decoder.

R rows (an agent in a scene), G codes (one per row, or one per scene in a joint model), K candidates, n of N latent
tokens, D latent dimension, T future steps.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from waycode.features import Agents, SceneFeatures
from waycode.model.bottleneck import quantise, quantise_straight_through
from waycode.model.config import Bottleneck, ModelConfig
from waycode.model.decoder import Decoder, MeanAndStd, PrefixCache, SceneEmbedding
from waycode.model.scene_encoder import SceneEncoder
from waycode.model.trajectory_encoder import PREVIEW_LEVELS, TrajectoryEncoder
from waycode.search import Codebook, beam_search

# What the decoder receives instead of latents [G, n, D], given the place of the first of them and, if the model has a
# preview, the distance [G, V] of each token of the codebook in this place from the trajectory.
Channel = Callable[[Tensor, int, Tensor | None], Tensor]

# Of the polish of a continuous latent. A longer step leaves the region in which the decoder is nearly linear.
_DIFFERENCE, _LONGEST_STEP, _STEP_SHARES = 0.2, 0.5, (0.0, 0.5, 1.0)
_EXACT_M = 0.1  # smaller errors weigh no more than this one
_RIDGE_M2 = 0.03  # keeps steps short in directions that hardly change the trajectory


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
        self,
        future_m: Float[Tensor, "R T 2"],
        valid: Bool[Tensor, "R T"],
        scene: SceneEmbedding,
        *,
        levels: int | None = None,
    ) -> Float[Tensor, "G N D"]:
        """The encoder's codes of trajectories: latents in [-1, 1].

        Args:
            future_m: positions in the agents' frames.
            valid: which of them were observed; the others are ignored.
            scene: the embedding of the same rows.
            levels: rounds the latents to so many levels; None keeps them continuous.
        """

        def channel(latents: Tensor, first: int, distance_m: Tensor | None) -> Tensor:
            return latents if levels is None else quantise(latents, levels)

        # The encoder is trained to round to two levels: which of them is better, it knows better than a local slope.
        polish = self.config.polish and levels != PREVIEW_LEVELS
        return self.transmit(future_m, valid, scene, channel, polish=polish)[1]

    def transmit(
        self,
        future_m: Float[Tensor, "R T 2"],
        valid: Bool[Tensor, "R T"],
        scene: SceneEmbedding,
        channel: Channel,
        *,
        polish: bool = False,
    ) -> tuple[Float[Tensor, "G N D"], Float[Tensor, "G N D"]]:
        """Latents of trajectories as they are sent, and as the decoder receives them through a channel.

        Args:
            future_m, valid, scene: as in `encode`.
            channel: what is received instead of latents.
            polish: `polished` latents are sent; not in training, as no gradient passes.
        """
        encoder = self.trajectory_encoder
        states = encoder(future_m, valid, scene.tokens, encoder.blocks.scene_keys_and_values(scene.tokens.tokens))
        if not self.config.feedback:
            latents = encoder.latents(states, scene.tokens)
            return latents, channel(latents, 0, None)
        cache: PrefixCache | None = None
        sent: list[Tensor] = []
        received: list[Tensor] = []
        for place, state in enumerate(states.unbind(dim=1)):
            if place > 0:
                with torch.no_grad():
                    cache, (mean_m, _) = self.decoder.extend(cache, received[-1].detach()[:, None], scene)
                state = state + encoder.correction(state, future_m - mean_m[:, 0], valid, cache.state[:, 0])
            distance_m = None
            if self.config.preview:
                with torch.no_grad():
                    codes = encoder.preview_codes.expand(scene.tokens.num_codes, -1, -1)
                    next_m = self.decoder.decode_next(cache, codes, scene)  # [R, V, T, 2]
                    row_distance_m = average_displacement_m(next_m, future_m, valid)  # [R, V]
                    distance_m = scene.tokens.of_codes(row_distance_m)
                state = state + encoder.choice(state, future_m[:, None] - next_m, valid, row_distance_m)
            sent.append(encoder.latents(state[:, None], scene.tokens, first=place))
            if polish:
                sent[-1] = self.polished(sent[-1][:, 0], cache, future_m, valid, scene)[:, None]
            received.append(channel(sent[-1], place, distance_m))
        return torch.cat(sent, dim=1), torch.cat(received, dim=1)

    @torch.no_grad()
    def polished(
        self,
        latents: Float[Tensor, "G D"],
        cache: PrefixCache | None,
        future_m: Float[Tensor, "R T 2"],
        valid: Bool[Tensor, "R T"],
        scene: SceneEmbedding,
    ) -> Float[Tensor, "G D"]:
        """Latents after a Gauss-Newton step towards the trajectories (ours); never farther from them than before.

        The slope of the decoded trajectory comes from D more decodes. Steps of time are weighted by one over their
        error, so that the step lowers the mean distance rather than its square.

        Args:
            latents: the encoder's, for the place after the cached prefix.
            cache: what the latents before them have decoded to; None for the first place.
            future_m, valid, scene: as in `encode`.
        """
        identity = torch.eye(latents.shape[1], device=latents.device)
        nearby = latents[:, None] + torch.cat([0 * identity[:1], _DIFFERENCE * identity])  # [G, 1 + D, D]
        nearby_m = self.decoder.decode_next(cache, nearby, scene)  # [R, 1 + D, T, 2]
        slope_m = ((nearby_m[:, 1:] - nearby_m[:, :1]) / _DIFFERENCE).flatten(2)  # [R, D, 2 * T]
        error_m = future_m - nearby_m[:, 0]
        weight = valid / error_m.norm(dim=-1).clamp(min=_EXACT_M)  # [R, T]
        weighted = slope_m * weight.repeat_interleave(2, dim=1)[:, None]
        normal = weighted @ slope_m.mT + _RIDGE_M2 * weight.sum(dim=1)[:, None, None] * identity  # [R, D, D]
        gain = weighted @ error_m.flatten(1)[..., None]  # [R, D, 1]
        # Where nothing was observed there is nothing to solve.
        system = scene.tokens.of_codes(normal) + torch.finfo(normal.dtype).tiny * identity
        step = torch.linalg.solve(system, scene.tokens.of_codes(gain))[..., 0].clamp(-_LONGEST_STEP, _LONGEST_STEP)
        shares = latents.new_tensor(_STEP_SHARES)[:, None]
        tried = (latents[:, None] + shares * step[:, None]).clamp(-1, 1)  # [G, shares, D]
        distance_m = average_displacement_m(self.decoder.decode_next(cache, tried, scene), future_m, valid)
        best = scene.tokens.of_codes(distance_m).argmin(dim=1)
        return tried[torch.arange(len(tried), device=best.device), best]

    def apply_bottleneck(
        self, latents: Float[Tensor, "G n D"], noise: Float[Tensor, "G n D"]
    ) -> Float[Tensor, "G n D"]:
        """Latents as the decoder gets them in training: noisy (soft quantisation, equation 1), or rounded (FSQ)."""
        if self.config.bottleneck == Bottleneck.FSQ:
            return quantise_straight_through(latents, self.config.fsq_levels)
        return latents + noise

    def decode(self, latents: Float[Tensor, "G K n D"], scene: SceneEmbedding) -> MeanAndStd:
        """Mean and standard deviation of positions, each [R, K, T, 2], in the agents' frames, in metres."""
        return self.decoder.decode(latents, scene)


class PrefixDecoder:
    """The decode callable that `waycode.search` expects, for the scenes of one embedding."""

    def __init__(self, model: Model, scene: SceneEmbedding):
        self.model, self.scene = model, scene

    def __call__(
        self, state: PrefixCache | Tensor | None, parents: Int[Tensor, "G K"], tokens: Float[Tensor, "G K D"]
    ) -> tuple[PrefixCache | Tensor, MeanAndStd]:
        """Appends a token to each of the prefixes `state[parents]` and decodes the longer prefixes.

        Args:
            state: the state that the last call returned; None for empty prefixes. It is the prefix cache, or the
                latents [G, K', n, D] if the model is not causal: a new token then changes the states of its prefix.
            parents: indices of the prefixes to extend.
            tokens: the token to append to each.
        """
        latents = tokens[:, :, None]
        if self.model.config.causal:
            cache = state.select(self.scene.tokens.of_rows(parents)) if isinstance(state, PrefixCache) else None
            return self.model.decoder.extend(cache, latents, self.scene)
        if isinstance(state, Tensor):
            index = parents[:, :, None, None].expand(-1, -1, *state.shape[2:])
            latents = torch.cat([state.gather(1, index), latents], dim=2)
        return latents, self.model.decode(latents, self.scene)

    def decode(self, latents: Float[Tensor, "B n D"]) -> MeanAndStd:
        """Decodes whole codes with gradients, as `waycode.search.refine` expects.

        Args:
            latents: B = G * K codes, the K variants of a code in sequence. The scene must not be embedded under
                `torch.inference_mode`.
        """
        count = self.scene.tokens.num_codes
        if len(latents) % count:
            raise ValueError(f"got {len(latents)} codes, expected a multiple of {count}")
        return self.model.decode(latents.view(count, -1, *latents.shape[1:]), self.scene)


@torch.no_grad()
def search_codes(
    model: Model,
    scene: SceneEmbedding,
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    levels: int = 2,
    beam_width: int = 1,
) -> Int[Tensor, "G N"]:
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
        PrefixDecoder(model, scene),
        lambda decoded: scene.tokens.of_codes(average_displacement_m(decoded[0], future_m, valid)),
        codebook=model.codebook(levels), num_rows=scene.tokens.num_codes, depth=model.config.num_tokens,
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
