"""The trajectory encoder: from a trajectory and its scene, or those of several agents, to N latent tokens."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from waycode.model.config import ModelConfig
from waycode.model.layers import Blocks, KeysValues, causal_mask, mlp
from waycode.model.scene_encoder import SceneTokens
from waycode.search import Codebook

_POSITION_SCALE_M, _RESIDUAL_SCALE_M = 20.0, 5.0  # bring the inputs to the order of 1
PREVIEW_LEVELS = 2  # levels of the codebook that a preview decodes, and that codes are rounded to in training
_NEAR_M = 0.02  # distances below this count as equal
_RIDGE_M2 = 0.01  # keeps the least squares solution finite where a dimension changes nothing
_FIRST_FOCUS = 4.0  # an addressed agent begins with a share of 90 % in its tokens, beside seven others


class TrajectoryEncoder(nn.Module):
    """Transformer over the trajectory token, N latents and registers; latents attend to earlier latents only.

    With feedback (ours), a latent also knows what the decoder makes of those before it, as they were received: their
    noise or rounding is then an error like any other, which the next latent can correct. Without it, as in the paper,
    the best that a later latent can do against unknown noise is to repeat the first.

    With a preview (ours), a latent also knows what every token of the codebook would decode to in its place: how far
    each is from the trajectory, and the latent that would come nearest if the decoder were linear between them. The
    encoder is then greedy search with a learned choice between the codes. It costs as many decodes as greedy search.
    """

    mask: Tensor  # [L, L], L = 1 + N + registers
    preview_codes: Tensor  # [V, D]

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, steps = config.width, config.features.future_steps
        self.embed = mlp(5 * steps, 2 * width, width)
        self.queries = nn.Parameter(torch.randn(config.num_tokens + config.registers, width) * 0.02)
        self.blocks = Blocks(config.encoder_layers, config)
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, config.token_dim)
        if config.joint:
            self.share = nn.Linear(width, width)  # of each agent in a joint code, by channel
        if config.addressed:
            self.address = nn.Parameter(torch.randn(width) * 0.02)  # marks the latents that are addressed to an agent
            self.focus = nn.Parameter(torch.tensor(_FIRST_FOCUS))  # on the agent that a latent is addressed to
        if config.feedback and config.num_tokens > 1:  # the first latent has none before it
            self.embed_error = mlp(3 * steps, 2 * width, width)
            self.correct = mlp(3 * width, 2 * width, width)
        if config.preview:
            codes = Codebook(PREVIEW_LEVELS, config.token_dim)
            self.register_buffer("preview_codes", codes.values, persistent=False)
            self.weigh = mlp(width + len(codes) + 1 + config.token_dim, 2 * width, width)
        self.register_buffer("mask", self._mask(), persistent=False)

    def forward(
        self,
        future_m: Float[Tensor, "R T 2"],
        valid: Bool[Tensor, "R T"],
        scene: SceneTokens,
        keys_values: tuple[KeysValues, ...],
    ) -> Float[Tensor, "R N d"]:
        """Hidden states of the latents, from which `latents` reads them.

        Args:
            future_m: positions at the future steps, in the agent's frame at the current step.
            valid: true where the position was observed.
            scene: the scene around each agent.
            keys_values: of its tokens, for the blocks.
        """
        count = self.config.num_tokens
        trajectory = self.embed(self._inputs(future_m, valid, scene.velocity_mps))  # [R, d]
        queries = self.queries + scene.agent[:, None]  # [R, N + registers, d]
        addressed = scene.is_addressed(torch.arange(count, device=future_m.device))
        if addressed is not None:
            marks = addressed[..., None] * self.address  # [R, N, d]
            queries = queries + functional.pad(marks, (0, 0, 0, self.config.registers))
        x = torch.cat([trajectory[:, None], queries], dim=1)[:, None]  # [R, 1, 1 + N + registers, d]
        for block, seen in zip(self.blocks, keys_values, strict=True):
            x = block(x, block.own_keys_and_values(x), seen, scene, mask=self.mask)
        return x[:, 0, 1 : 1 + count]

    def correction(
        self, state: Float[Tensor, "R d"], error_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"],
        decoder_state: Float[Tensor, "R d"],
    ) -> Float[Tensor, "R d"]:  # fmt: skip
        """What feedback adds to the hidden state of a latent.

        Args:
            state: the hidden state.
            error_m: from what the latents before it decode to, to the trajectory.
            valid: where it was observed.
            decoder_state: of these latents, from which their trajectory was read.
        """
        seen = valid[..., None].to(error_m)
        error = torch.cat([error_m / _RESIDUAL_SCALE_M * seen, seen], dim=-1).flatten(1)  # [R, 3 * T]
        correction: Tensor = self.correct(torch.cat([state, self.embed_error(error), decoder_state], dim=-1))
        return correction

    def choice(
        self, state: Float[Tensor, "R d"], error_m: Float[Tensor, "R V T 2"], valid: Bool[Tensor, "R T"],
        distance_m: Float[Tensor, "R V"],
    ) -> Float[Tensor, "R d"]:  # fmt: skip
        """What a preview adds to the hidden state of a latent.

        Args:
            state: the hidden state.
            error_m: from what the latents before it and each token of the codebook decode to, to the trajectory.
            valid: where it was observed.
            distance_m: the mean length of the error over time.
        """
        distance = distance_m.clamp(min=_NEAR_M).log()
        least = distance.amin(dim=1, keepdim=True)
        nearest = _least_squares(error_m * valid[:, None, :, None], self.preview_codes)
        added: Tensor = self.weigh(torch.cat([state, distance - least, least, nearest], dim=-1))
        return added

    def latents(self, state: Float[Tensor, "R n d"], scene: SceneTokens, *, first: int = 0) -> Float[Tensor, "G n D"]:
        """Latents in [-1, 1] from their hidden states; those of a joint code from the states of all its agents.

        Args:
            state: the hidden states.
            scene: the scene around each agent.
            first: place of the first of the n latents in the code.
        """
        if scene.between is not None:
            missing = ~scene.is_agent[:, :, None, None]
            score = self.share(state)
            addressed = scene.is_addressed(torch.arange(first, first + state.shape[1], device=state.device))
            if addressed is not None:
                score = score + self.focus * addressed[..., None]
            share = scene.by_agent(score).masked_fill(missing, -torch.inf).softmax(dim=1)  # [B, A, n, d]
            state = (share * scene.by_agent(state)).sum(dim=1)
        return torch.tanh(self.project(self.norm(state)))

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


def _least_squares(error_m: Float[Tensor, "R V T 2"], codes: Float[Tensor, "V D"]) -> Float[Tensor, "R D"]:
    """The latent whose decoded trajectory has the least error, if the decoder were linear between two-level codes.

    Codes of two levels are orthogonal, so the linear fit is a mean over them. The latent is at most 1.5 in size: far
    outside of [-1, 1] the fit means nothing.

    Args:
        error_m: from the decoded codes to the trajectory, 0 where it was not observed.
        codes: the latents that were decoded.
    """
    error = error_m.flatten(2)  # [R, V, 2 * T]
    slope = -(codes.T @ error) / len(codes)  # [R, D, 2 * T]: what a unit of each dimension adds to the trajectory
    ridge = _RIDGE_M2 * error.shape[-1] * torch.eye(codes.shape[1], device=error.device)
    solution = torch.linalg.solve(slope @ slope.mT + ridge, slope @ error.mean(dim=1)[..., None])
    return solution[..., 0].clamp(-1.5, 1.5)
