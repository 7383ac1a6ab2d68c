"""From a prefix of latent tokens and the scene to a trajectory with its uncertainty.

Latents see earlier latents and the scene, never the registers; registers see everything. The states of a prefix hence
never change when a token is added: its keys and values are kept, and a search step computes one new token and the
registers, for all candidates at once (K candidates per row R).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from waycode.model import spline
from waycode.model.config import ModelConfig
from waycode.model.correction import MapCorrection, Surroundings
from waycode.model.layers import Blocks, causal_mask, mlp
from waycode.model.scene_encoder import SceneTokens

SPEED_SCALE_MPS = 5.0
FIXED_POINTS = 2  # control points that stay at zero: where the spline starts, and with what slope
LOG_STD_RANGE = (-4.0, 4.0)  # standard deviations between 2 cm and 55 m

KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Decoded positions in the agent's frame at the current step, and their standard deviation."""

    mean_m: Float[Tensor, "R K T 2"]
    std_m: Float[Tensor, "R K T 2"]


@dataclass(frozen=True, kw_only=True)
class SceneMemory:
    """The scene as every layer of the decoder sees it; computed once per scene, shared by all candidates."""

    keys_values: tuple[KeysValues, ...]  # per layer, each [R, h, M, e]
    mask: Bool[Tensor, "R 1 1 M"]
    velocity_mps: Float[Tensor, "R 2"]
    around: Surroundings | None  # what the correction looks at, if the model has one


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """K prefixes of n tokens: what later tokens and the registers see of them, layer by layer."""

    keys_values: tuple[KeysValues, ...]  # per layer, each [R, K, h, n, e]

    @property
    def length(self) -> int:
        return self.keys_values[0][0].shape[3]

    def repeated(self, count: int) -> "Prefix":
        """A single prefix per row as `count` candidates; nothing is copied."""
        return Prefix(
            keys_values=tuple(
                (key.expand(-1, count, -1, -1, -1), value.expand(-1, count, -1, -1, -1))
                for key, value in self.keys_values
            )
        )

    def select(self, parents: Int[Tensor, "R K"]) -> "Prefix":
        """The prefixes with these indices [R, K'], to go on from."""
        index = parents[:, :, None, None, None]
        return Prefix(
            keys_values=tuple(
                (
                    key.gather(1, index.expand(-1, -1, *key.shape[2:])),
                    value.gather(1, index.expand(-1, -1, *value.shape[2:])),
                )
                for key, value in self.keys_values
            )
        )


class Decoder(nn.Module):
    time_s: Tensor  # [T]
    reach_m: Tensor  # [C - 2, 1]: how far control points are apart
    mean_basis: Tensor  # [T, C - 2]
    spread_basis: Tensor  # [T, C']

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, steps = config.width, config.features.future_steps
        self.embed_latent = nn.Linear(config.token_dim, width)
        self.place = nn.Parameter(torch.randn(config.num_tokens, width) * 0.02)
        self.registers = nn.Parameter(torch.randn(config.registers, width) * 0.02)
        self.blocks = Blocks(config.decoder_layers, width=width, heads=config.heads, feed_forward=config.feed_forward)
        self.norm = nn.LayerNorm(width)
        self.head = mlp(width, 2 * width, 2 * (config.spline_points - FIXED_POINTS) + 2 * config.spread_points)
        horizon_s = steps * config.features.dt_s
        time_s = torch.arange(1, steps + 1) / steps * horizon_s
        reach = SPEED_SCALE_MPS * horizon_s * spline.control_times(config.spline_points)[FIXED_POINTS:]
        self.correction = MapCorrection(config, fixed_points=FIXED_POINTS) if config.correction_width else None
        self.register_buffer("time_s", time_s, persistent=False)
        self.register_buffer("reach_m", reach[:, None], persistent=False)
        basis = spline.basis(config.spline_points, steps=steps) @ spline.calm_end(config.spline_points)
        self.register_buffer("mean_basis", basis[:, FIXED_POINTS:], persistent=False)
        self.register_buffer("spread_basis", spline.basis(config.spread_points, steps=steps), persistent=False)

    def remember(self, scene: SceneTokens) -> SceneMemory:
        return SceneMemory(
            keys_values=tuple(block.attend_scene.keys_and_values(scene.tokens) for block in self.blocks),
            mask=scene.mask[:, None, None],
            velocity_mps=scene.velocity_mps,
            around=None if self.correction is None else self.correction.survey(scene.tokens, scene.pieces),
        )

    def decode(self, latents: Float[Tensor, "R K n D"], memory: SceneMemory) -> Trajectories:
        """The trajectories of whole prefixes."""
        return self.read_on(None, latents, memory)[1]

    def read_on(
        self, past: Prefix | None, latents: Float[Tensor, "R K n D"], memory: SceneMemory
    ) -> tuple[Prefix, Trajectories]:
        """Puts tokens behind prefixes, or behind nothing, and reads the longer ones out.

        Nothing of the prefixes is computed again (causal models only). Tokens and registers go through the layers
        together: for the few codes of a search or a refinement, time is the number of operations and not their size.
        """
        if past is not None and not self.config.causal:
            raise ValueError("a decoder without causal masks has no prefix to keep: decode the whole code instead")
        before, count = 0 if past is None else past.length, latents.shape[2]
        last, registers = before + count, self.registers.expand(*latents.shape[:2], -1, -1)
        x = torch.cat([self._embedded(latents, before), registers], dim=2)  # [R, K, n + registers, d]
        sees = torch.ones(x.shape[2], before + x.shape[2], dtype=torch.bool, device=latents.device)
        sees[:count, last:] = False  # no token sees a register
        if self.config.causal:
            sees[:count, before:last] = causal_mask(count).to(latents.device)
        kept = []
        for layer, (block, scene) in enumerate(zip(self.blocks, memory.keys_values, strict=True)):
            own = block.own_keys_and_values(x)
            if past is not None:
                key, value = past.keys_values[layer]
                own = (torch.cat([key, own[0]], dim=3), torch.cat([value, own[1]], dim=3))
            kept.append((own[0][:, :, :, :last], own[1][:, :, :, :last]))
            if layer + 1 == len(self.blocks):  # nobody looks at what the last layer would make of the latents
                x, sees = x[:, :, count:], sees[count:]
            x = block(x, own, scene, mask=sees, scene_mask=memory.mask)
        return Prefix(keys_values=tuple(kept)), self._trajectories(self.norm(x[:, :, 0]), memory)

    def decode_all_prefixes(self, latents: Float[Tensor, "R N D"], memory: SceneMemory) -> Trajectories:
        """The trajectories of the first 1, 2, ..., N tokens, as N candidates."""
        count = latents.shape[1]
        if not self.config.causal:  # every prefix has states of its own
            read = [self.decode(latents[:, None, :length], memory) for length in range(1, count + 1)]
            mean, std = [one.mean_m for one in read], [one.std_m for one in read]
            return Trajectories(mean_m=torch.cat(mean, dim=1), std_m=torch.cat(std, dim=1))
        states = self._states(latents, memory).repeated(count)
        return self._read_out(states, memory, visible=causal_mask(count).to(latents.device))

    def _read_out(self, prefix: Prefix, memory: SceneMemory, *, visible: Bool[Tensor, "K n"]) -> Trajectories:
        """Lets the registers look at the visible tokens of each candidate; the first tells the trajectories."""
        rows, candidates = prefix.keys_values[0][0].shape[:2]
        x = self.registers.expand(rows, candidates, -1, -1)
        # Registers see each other and what is visible: [K, h, registers, n + registers], the middle axes being alike.
        mask = functional.pad(visible, (0, x.shape[2]), value=True)[:, None, None]
        for block, seen, scene in zip(self.blocks, prefix.keys_values, memory.keys_values, strict=True):
            own = block.own_keys_and_values(x)
            both = (torch.cat([seen[0], own[0]], dim=3), torch.cat([seen[1], own[1]], dim=3))
            x = block(x, both, scene, mask=mask, scene_mask=memory.mask)
        return self._trajectories(self.norm(x[:, :, 0]), memory)

    def _states(self, latents: Float[Tensor, "R N D"], memory: SceneMemory) -> Prefix:
        """What later tokens and registers see of a code, layer by layer (causal models only)."""
        x, kept = self._embedded(latents[:, None], 0), []
        mask = causal_mask(latents.shape[1]).to(latents.device)
        for layer, (block, scene) in enumerate(zip(self.blocks, memory.keys_values, strict=True)):
            kept.append(block.own_keys_and_values(x))
            if layer + 1 < len(self.blocks):  # nobody looks at what the last layer would make of the latents
                x = block(x, kept[-1], scene, mask=mask, scene_mask=memory.mask)
        return Prefix(keys_values=tuple(kept))

    def _embedded(self, latents: Float[Tensor, "R K n D"], first: int) -> Float[Tensor, "R K n d"]:
        """Latents at the places from `first` on."""
        last, available = first + latents.shape[2], self.config.num_tokens
        if not first < last <= available:
            raise ValueError(f"got prefixes of {last} tokens, expected 1 to {available}: the model has no more")
        return self.embed_latent(latents) + self.place[first:last]

    def _trajectories(self, state: Float[Tensor, "R K d"], memory: SceneMemory) -> Trajectories:
        """Driving on as now, plus a spline that starts at zero with no slope: position and velocity never jump."""
        output, shape, free = self.head(state), state.shape[:2], self.config.spline_points - FIXED_POINTS
        points_m = output[..., : 2 * free].view(*shape, free, 2) * self.reach_m
        spread = output[..., 2 * free :].view(*shape, self.config.spread_points, 2)
        if self.correction is not None and memory.around is not None:
            change = self.correction(points_m, state, memory.around, memory.velocity_mps)
            points_m, spread = points_m + change.points_m, spread + change.spread
        onward = memory.velocity_mps[:, None, None] * self.time_s[:, None]
        log_std = (self.spread_basis @ spread).clamp(*LOG_STD_RANGE)
        return Trajectories(mean_m=onward + self.mean_basis @ points_m, std_m=log_std.exp())
