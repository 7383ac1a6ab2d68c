"""The trajectory encoder: from a trajectory and its scene to N latent tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from waycode.model.config import ModelConfig
from waycode.model.layers import Blocks, KeysValues, causal_mask, mlp
from waycode.model.scene_encoder import SceneTokens

_POSITION_SCALE_M, _RESIDUAL_SCALE_M = 20.0, 5.0  # bring the inputs to the order of 1


@dataclass(frozen=True, kw_only=True)
class EncoderPass:
    """The result of a pass of the encoder, and what it decodes to: the input of the next pass."""

    logits: Float[Tensor, "R N D"]  # the latents before the tanh
    error_m: Float[Tensor, "R N T 2"]  # from the decoded prefixes of 1, 2, ..., N tokens to the trajectory


class TrajectoryEncoder(nn.Module):
    """Transformer over the trajectory token, N latents and registers; latents attend to earlier latents only."""

    mask: Tensor  # [L, L], L = 1 + N + registers

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, steps = config.width, config.features.future_steps
        self.embed = mlp(5 * steps, 2 * width, width)
        self.queries = nn.Parameter(torch.randn(config.num_tokens + config.registers, width) * 0.02)
        self.blocks = Blocks(
            config.encoder_layers, width=width, heads=config.heads, feed_forward=config.feed_forward,
            relation_width=config.relation_width,
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, config.token_dim)
        if config.encoder_passes > 1:
            self.embed_before = nn.Linear(config.token_dim, width)
            self.embed_error = mlp(2 * steps, 2 * width, width)
        self.register_buffer("mask", self._mask(), persistent=False)

    def forward(
        self,
        future_m: Float[Tensor, "R T 2"],
        valid: Bool[Tensor, "R T"],
        scene: SceneTokens,
        keys_values: tuple[KeysValues, ...],
        before: EncoderPass | None = None,
    ) -> Float[Tensor, "R N D"]:
        """Latents before the tanh and any noise.

        Args:
            future_m: positions at the future steps, in the agent's frame at the current step.
            valid: true where the position was observed.
            scene: the scene around each agent.
            keys_values: of its tokens, for the blocks: the same for all passes.
            before: the pass before this one, which this one corrects; None for the first.
        """
        count = self.config.num_tokens
        trajectory = self.embed(self._inputs(future_m, valid, scene.velocity_mps))  # [R, d]
        queries = self.queries + scene.agent[:, None]  # [R, N + registers, d]
        if before is not None:
            error = (before.error_m * valid[:, None, :, None] / _RESIDUAL_SCALE_M).flatten(2)  # [R, N, 2 * T]
            found = self.embed_before(before.logits.tanh()) + self.embed_error(error)
            queries = torch.cat([queries[:, :count] + found, queries[:, count:]], dim=1)
        x = torch.cat([trajectory[:, None], queries], dim=1)[:, None]  # [R, 1, 1 + N + registers, d]
        for block, seen in zip(self.blocks, keys_values, strict=True):
            x = block(x, block.own_keys_and_values(x), seen, scene, mask=self.mask)
        logits: Tensor = self.project(self.norm(x[:, 0, 1 : 1 + count]))
        return logits if before is None else before.logits + logits

    def _inputs(
        self, future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"], velocity_mps: Float[Tensor, "R 2"]
    ) -> Float[Tensor, "R 5*T"]:
        """Positions, their residual to constant velocity, and validity; zero where not observed."""
        features = self.config.features
        time_s = torch.arange(1, features.future_steps + 1, device=future_m.device) * features.dt_s
        residual = future_m - velocity_mps[:, None] * time_s[:, None]
        channels = torch.cat([future_m / _POSITION_SCALE_M, residual / _RESIDUAL_SCALE_M], dim=-1)
        return torch.cat([channels * valid[..., None], valid[..., None].to(channels)], dim=-1).flatten(1)

    def _mask(self) -> Bool[Tensor, "L L"]:
        """All tokens attend to all, except that latents attend neither to later latents nor to registers."""
        latents = slice(1, 1 + self.config.num_tokens)
        length = 1 + self.config.num_tokens + self.config.registers
        mask = torch.ones(length, length, dtype=torch.bool, device=self.queries.device)
        if self.config.causal:
            mask[latents, latents] = causal_mask(self.config.num_tokens, mask.device)
            mask[latents, latents.stop :] = False
        return mask
