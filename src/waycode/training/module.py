"""One training step, as a Lightning module.

R rows: the modelled agents of all scenes. G codes: one per row, or one per scene in a joint model.
"""

import math
from dataclasses import replace
from typing import Any

import lightning
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from waycode.features import Agents, Batch, SceneFeatures
from waycode.model import Model, SceneEmbedding, search_codes
from waycode.model.autoencoder import Channel, average_displacement_m
from waycode.model.bottleneck import draw_noise, prefix_probabilities, quantise_straight_through, sample_prefix
from waycode.training.config import NestedDropout, Optimiser, TrainingConfig
from waycode.training.losses import (
    acceleration_error_mps2,
    beta_nll,
    collision_penalty_m,
    futures_of_others,
    joint_collision_m,
    next_sigma,
    path_deviation_m,
    weighted_mean,
)
from waycode.training.optimiser import OrthogonalAdamW, transformer_matrices
from waycode.training.realism import MOTION_WEIGHT, cars_of, excess_acceleration_mps2, random_codes, realism_loss

TEACHING_MARGIN = 0.3  # the encoder's numbers must be this far on the side of the searched level; then they are free
_RANDOM_CODES = 1  # per agent and step, for the realism loss


class AutoencoderModule(lightning.LightningModule):
    """The model, its loss, and the adaptive noise, which is part of every checkpoint."""

    def __init__(self, config: TrainingConfig):
        super().__init__()
        self.config = config
        self.model = Model(config.model)
        self.sigma = config.noise.fixed_sigma or 0.0

    def training_step(self, batch: Batch, batch_index: int) -> dict[str, Tensor]:
        config, model = self.config, self.model
        # Noise and dropout depend on the step alone, and are drawn on the CPU: a resumed run, and a run on another
        # device, draw the same.
        generator = torch.Generator("cpu").manual_seed(config.seed * 1_000_003 + self.global_step)
        rows = batch.agents.mask
        future, valid = batch.future_m[rows], batch.future_valid[rows]  # [R, T, 2], [R, T]

        tokens = model.scene_encoder(self._with_hidden_history(batch, generator), batch.agents)
        scene = model.decoder.embed_scene(tokens)
        searched = scene.first(round(config.searched_share * len(scene.tokens.tokens)))  # scenes are shuffled
        num_rows = len(searched.tokens.row)
        num_codes = searched.tokens.num_codes if num_rows else 0
        codes = future.new_zeros(0, config.model.num_tokens, config.model.token_dim)
        if num_codes and not config.model.preview:  # with a preview, greedy search is a part of the transmission
            codes = model.codebook().codes(search_codes(model, searched, future[:num_rows], valid[:num_rows]))
        channel = self.channel(codes, scene.tokens.num_codes, generator, num_searched=num_codes)
        sent, latents = model.transmit(future, valid, scene, channel)
        codes = latents[:num_codes].detach()
        logits = None
        if config.prior_weight:
            (mean, std), logits = model.decoder.decode_with_prior(latents, scene)  # [R, N, T, 2], [G, N, V]
        else:
            mean, std = model.decoder.decode_all_prefixes(latents, scene)

        weights = self.prefix_weights(len(future), generator)
        loss = weighted_mean(beta_nll(mean, std, future, valid, beta=config.beta), weights)
        if num_codes and config.teaching_weight:
            wrong = (TEACHING_MARGIN - codes * sent[:num_codes]).clamp(min=0).square()
            loss = loss + config.teaching_weight * wrong.mean()
        if num_codes and logits is not None:
            ids = model.codebook().ids(codes)
            surprise = functional.cross_entropy(logits[:num_codes].flatten(0, 1), ids.flatten(), reduction="none")
            importance = scene.tokens.of_codes(batch.importance[rows])[:num_codes]
            loss = loss + config.prior_weight * (surprise.view_as(ids).mean(dim=1) * importance).mean()
        if self._progress >= config.losses_from:
            loss = loss + self._losses_of_ours(mean, weights, scene, batch, generator)
        if config.collision_weight:
            loss = loss + config.collision_weight * weighted_mean(self._collision_m(mean, batch), weights)

        ade = average_displacement_m(mean, future, valid).detach()
        noisy = slice(num_rows, None) if num_rows < len(future) else slice(None)
        self._adapt_noise(float(weighted_mean(ade[noisy], weights[noisy])))
        return {"loss": loss, "ade": weighted_mean(ade, weights)}

    @property
    def _progress(self) -> float:
        return self.global_step / self.config.steps

    def _losses_of_ours(
        self,
        mean: Float[Tensor, "R N T 2"],
        weights: Float[Tensor, "R N"],
        scene: SceneEmbedding,
        batch: Batch,
        generator: torch.Generator,
    ) -> Tensor:
        """Losses on path, acceleration and realism, each as far as it has a weight."""
        config, rows = self.config, batch.agents.mask
        future, valid = batch.future_m[rows], batch.future_valid[rows]
        loss = mean.new_zeros(())
        if config.path_weight:
            loss = loss + config.path_weight * weighted_mean(path_deviation_m(mean, future, valid), weights)
        if config.acceleration_weight:
            error = acceleration_error_mps2(mean, future, valid, dt_s=config.model.features.dt_s)
            loss = loss + config.acceleration_weight * weighted_mean(error, weights)
        if config.realism_weight:
            random_m = self._decode_random_codes(scene, generator)
            loss = loss + config.realism_weight * self._realism(mean, random_m, scene, batch)
            if config.model.joint and config.collision_weight:
                loss = loss + config.collision_weight * joint_collision_m(random_m, batch).mean()
        return loss

    def _collision_m(self, mean_m: Float[Tensor, "R N T 2"], batch: Batch) -> Float[Tensor, "R N"]:
        """Overlap with the other modelled agents: as recorded, or as decoded from the same code."""
        if self.config.model.joint:
            return joint_collision_m(mean_m, batch)
        others, others_valid, margin = futures_of_others(batch)
        return collision_penalty_m(mean_m, others, others_valid, margin_m=margin)

    def prefix_weights(self, rows: int, generator: torch.Generator) -> Float[Tensor, "R N"]:
        """Weight of each number of tokens for each agent."""
        count, ratio = self.config.model.num_tokens, self.config.dropout_ratio
        if self.config.nested_dropout == NestedDropout.SAMPLED:
            return sample_prefix(rows, count, generator, ratio=ratio).to(self.device)
        if self.config.nested_dropout == NestedDropout.EXPECTED:
            return prefix_probabilities(count, ratio=ratio).to(self.device).expand(rows, -1)
        return torch.eye(count, device=self.device)[-1].expand(rows, -1)

    def _with_hidden_history(self, batch: Batch, generator: torch.Generator) -> SceneFeatures:
        """The scene, with the history of some modelled agents hidden."""
        if self.config.history_dropout == 0:
            return batch.scene
        count = int(batch.agents.mask.sum())
        hidden = torch.rand(count, generator=generator, device="cpu") < self.config.history_dropout
        return hide_history(batch.scene, batch.agents, hidden=hidden.to(self.device))

    def channel(
        self, codes: Float[Tensor, "g N D"], count: int, generator: torch.Generator, *, num_searched: int = 0
    ) -> Channel:
        """What the decoder receives: searched codes; of the others, noisy ones, or rounded for a share.

        Args:
            codes: the searched codes; not used with a preview, which shows the tokens that greedy search chooses.
            count: number of all codes G.
            generator: source of randomness.
            num_searched: number of searched codes g, the first of G.
        """
        config, share = self.config.model, self.config.noise.rounded_share
        noise = draw_noise((count, config.num_tokens, config.token_dim), self.sigma, generator).to(self.device)
        rounded = (torch.rand(count, 1, 1, generator=generator, device="cpu") < share).to(self.device)
        codebook = self.model.codebook()

        def channel(latents: Tensor, first: int, distance_m: Tensor | None) -> Tensor:
            places = slice(first, first + latents.shape[1])
            noisy = self.model.apply_bottleneck(latents, noise[:, places])
            received = torch.where(rounded, quantise_straight_through(latents, num_levels=2), noisy)[num_searched:]
            if distance_m is None:
                return torch.cat([codes[:, places], received])
            nearest = distance_m[:num_searched].argmin(dim=1)  # what greedy search chooses
            return torch.cat([codebook.codes(nearest)[:, None], received])

        return channel

    def _decode_random_codes(self, scene: SceneEmbedding, generator: torch.Generator) -> Float[Tensor, "R 1 T 2"]:
        config = self.config.model
        length = int(torch.randint(1, config.num_tokens + 1, (), generator=generator, device="cpu"))
        codes = random_codes(
            scene.tokens.num_codes, _RANDOM_CODES, length, token_dim=config.token_dim, generator=generator
        )
        mean_m, _ = self.model.decode(codes.to(self.device), scene)
        return mean_m

    def _realism(
        self, mean_m: Float[Tensor, "R N T 2"], random_m: Float[Tensor, "R 1 T 2"], scene: SceneEmbedding, batch: Batch
    ) -> Tensor:
        """The realism loss of random codes, and the limits of motion for the encoded ones too."""
        future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
        cars, dt_s = cars_of(batch), self.config.model.features.dt_s
        encoded = excess_acceleration_mps2(mean_m, dt_s=dt_s).mean(dim=(1, 2)) * cars.is_car
        loss = realism_loss(random_m, future, valid, scene.tokens.map, cars, dt_s=dt_s)
        return loss + MOTION_WEIGHT * encoded.mean()

    def _adapt_noise(self, ade_m: float) -> None:
        noise = self.config.noise
        if noise.fixed_sigma is None:
            target_m = noise.target_at(self._progress)
            sigma = next_sigma(self.sigma, ade_m, target_ade_m=target_m, gamma=noise.gamma, delta=noise.delta)
            self.sigma = min(noise.max_sigma, sigma)

    def configure_optimizers(self) -> Any:
        config = self.config

        def rate(step: int) -> float:  # a plain function: torch puts nothing of it into the checkpoint
            return learning_rate_share(step, config)

        learning_rate, weight_decay = config.learning_rate, config.weight_decay
        optimizer: torch.optim.Optimizer
        if config.optimiser == Optimiser.ORTHOGONAL:
            matrices = transformer_matrices(self.model)
            optimizer = OrthogonalAdamW(self.parameters(), matrices, lr=learning_rate, weight_decay=weight_decay)
        else:
            optimizer = torch.optim.AdamW(self.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sigma"] = self.sigma

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.sigma = float(checkpoint["sigma"])


def hide_history(scene: SceneFeatures, agents: Agents, *, hidden: Bool[Tensor, " R"]) -> SceneFeatures:
    """Zeroes the past of the hidden agents; their current state and size remain.

    A planner that copies its past keeps doing what it just did. The decoder needs the current velocity, which every
    tracker knows. A track is embedded once per scene, so the other modelled agents do not see this past either.
    """
    scene_of_row, slot = agents.mask.nonzero(as_tuple=True)
    track_of_row = agents.track[scene_of_row, slot]
    history = scene.track_history.clone()
    history[scene_of_row[hidden], track_of_row[hidden], :-1] = 0
    return replace(scene, track_history=history)


def learning_rate_share(step: int, config: TrainingConfig) -> float:
    """Linear warm-up, then a cosine down to zero; constant without a warm-up."""
    if config.warm_up == 0:
        return 1.0
    progress = step / config.steps
    if progress < config.warm_up:
        return max(progress / config.warm_up, 0.01)
    return 0.5 * (1 + math.cos(math.pi * (progress - config.warm_up) / (1 - config.warm_up)))
