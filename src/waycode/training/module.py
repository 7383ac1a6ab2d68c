"""One training step, as a Lightning module."""

import math
from typing import Any

import lightning
import torch
from torch import Tensor

from waycode.features import Batch, SceneFeatures
from waycode.model import Model, Trajectories
from waycode.model.bottleneck import prefix_probabilities, quantise_straight_through, sample_prefix
from waycode.model.decoder import SceneMemory
from waycode.model.scene_encoder import SceneTokens
from waycode.training.closed_loop import hide_history, others_futures
from waycode.training.config import NestedDropout, TrainingConfig
from waycode.training.losses import (
    acceleration_error_mps2,
    average_displacement_m,
    beta_nll,
    collision_penalty,
    next_sigma,
    path_deviation_m,
    weighted_mean,
)
from waycode.training.realism import MOTION_WEIGHT, beyond_limits_mps2, cars_of, random_codes, realism_loss

RANDOM_CODES = 2  # tried per agent and step for the loss of realism


class AutoencoderModule(lightning.LightningModule):
    """The model, its loss, and the adaptive noise, which is part of every checkpoint."""

    def __init__(self, config: TrainingConfig):
        super().__init__()
        self.config = config
        self.model = Model(config.model)
        self.sigma = config.noise.fixed_sigma or 0.0

    def training_step(self, batch: Batch, batch_index: int) -> dict[str, Tensor]:
        # Noise and dropout depend on the step alone, so that a resumed run repeats what it would have drawn.
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.global_step)
        scene = self.model.see(self._seen(batch, generator), batch.agents)
        future, valid = batch.futures.position_m[batch.agents.mask], batch.futures.valid[batch.agents.mask]
        latents = self._sent(self.model.encode(future, valid, scene), generator)
        memory = self.model.remember(scene)
        decoded = self.model.decoder.decode_all_prefixes(latents, memory)
        weights = self.prefix_weights(len(future), generator)
        loss = weighted_mean(beta_nll(decoded, future, valid, beta=self.config.beta), weights)
        if self.config.path_weight:
            loss = loss + self.config.path_weight * weighted_mean(path_deviation_m(decoded, future, valid), weights)
        if self.config.acceleration_weight:
            dt_s = self.config.model.features.dt_s
            error = acceleration_error_mps2(decoded, future, valid, dt_s=dt_s)
            loss = loss + self.config.acceleration_weight * weighted_mean(error, weights)
        if self.config.collision_weight:
            loss = loss + self.config.collision_weight * weighted_mean(self._collisions(decoded, batch), weights)
        if self.config.realism_weight:
            loss = loss + self.config.realism_weight * self._realism(decoded, scene, memory, batch, generator)
        ade = weighted_mean(average_displacement_m(decoded, future, valid), weights).detach()
        self._adapt_noise(float(ade))
        return {"loss": loss, "ade": ade}

    def _sent(self, latents: Tensor, generator: torch.Generator) -> Tensor:
        """What the decoder gets to see of the latents [R, N, D]: noisy, or of some examples rounded."""
        noisy = self.model.train_bottleneck(latents, self.sigma, generator)
        share = self.config.noise.rounded_share
        if share == 0:
            return noisy
        rounded = torch.rand(len(latents), 1, 1, generator=generator) < share
        return torch.where(rounded, quantise_straight_through(latents, num_levels=2), noisy)

    def _adapt_noise(self, ade_m: float) -> None:
        noise = self.config.noise
        if noise.fixed_sigma is None:
            wanted = next_sigma(
                self.sigma, ade_m, target_ade_m=noise.target_ade_m, gamma=noise.gamma, delta=noise.delta
            )
            self.sigma = min(noise.max_sigma, wanted)

    def prefix_weights(self, rows: int, generator: torch.Generator) -> Tensor:
        """How much each number of tokens counts for each agent [R, N]."""
        count = self.config.model.num_tokens
        if self.config.nested_dropout == NestedDropout.SAMPLED:
            return sample_prefix(rows, count, generator)
        if self.config.nested_dropout == NestedDropout.EXPECTED:
            return prefix_probabilities(count).expand(rows, -1)
        return torch.eye(count)[-1].expand(rows, -1)

    def _seen(self, batch: Batch, generator: torch.Generator) -> SceneFeatures:
        """The scene, with the past of some modelled agents hidden."""
        if self.config.history_dropout == 0:
            return batch.scene
        hidden = torch.rand(int(batch.agents.mask.sum()), generator=generator) < self.config.history_dropout
        return hide_history(batch.scene, batch.agents, hidden=hidden)

    def _collisions(self, decoded: Trajectories, batch: Batch) -> Tensor:
        others, there, margin = others_futures(batch)
        return collision_penalty(decoded, others, there, margin_m=margin)

    def _realism(
        self, decoded: Trajectories, scene: SceneTokens, memory: SceneMemory, batch: Batch, generator: torch.Generator
    ) -> Tensor:
        """What is wrong with the ways of codes that nobody sent, and with the motion of those that were."""
        future, valid = batch.futures.position_m[batch.agents.mask], batch.futures.valid[batch.agents.mask]
        config, cars, dt_s = self.config.model, cars_of(batch), self.config.model.features.dt_s
        length = int(torch.randint(1, config.num_tokens + 1, (), generator=generator))
        codes = random_codes(len(future), RANDOM_CODES, length, token_dim=config.token_dim, generator=generator)
        ways = self.model.decode(codes, memory).mean_m
        sent = beyond_limits_mps2(decoded.mean_m, dt_s=dt_s).mean(dim=(1, 2)) * cars.is_car
        return realism_loss(ways, future, valid, scene.pieces, cars, dt_s=dt_s) + MOTION_WEIGHT * sent.mean()

    def configure_optimizers(self) -> Any:
        config = self.config

        def rate(step: int) -> float:  # a plain function: torch puts nothing of it into the checkpoint
            return learning_rate_share(step, config)

        optimizer = torch.optim.AdamW(
            self.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sigma"] = self.sigma

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.sigma = float(checkpoint["sigma"])


def learning_rate_share(step: int, config: TrainingConfig) -> float:
    """Linear warm-up, then a cosine down to zero; constant if there is no warm-up."""
    if config.warm_up == 0:
        return 1.0
    progress = step / config.steps
    if progress < config.warm_up:
        return max(progress / config.warm_up, 0.01)
    return 0.5 * (1 + math.cos(math.pi * (progress - config.warm_up) / (1 - config.warm_up)))
