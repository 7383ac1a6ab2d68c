"""The decoder: from a prefix of latent tokens and the scene to the mean and standard deviation of a trajectory.

Latents attend to earlier latents and the scene, never to the registers; registers attend to everything. Adding a token
hence leaves the hidden states of its prefix unchanged. Keys and values of prefixes are cached, and a search step
computes only one new token and the registers, for all K candidates of all R rows at once.

G codes for the R rows: one each, or one for all agents of a scene (joint model), whose rows then also attend to each
other. Each row has its own states of the latents, from the view of its agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from waycode.model import spline
from waycode.model.config import ModelConfig
from waycode.model.layers import Blocks, KeysValues, causal_mask, mlp
from waycode.model.map_correction import MapCorrection
from waycode.model.scene_encoder import SceneTokens

FIXED_POINTS = 2  # control points that stay at zero: they fix the position and the velocity at the start
_SPEED_SCALE_MPS = 5.0  # an output of 1 is this speed away from driving on at constant velocity
PRIOR_LEVELS = 2  # levels of the codebook that the prior is defined on
_LOG_STD_RANGE = (-4.0, 4.0)  # standard deviations between 2 cm and 55 m

# Mean and standard deviation of positions in the agent's frame at the current step, in metres.
MeanAndStd = tuple[Float[Tensor, "R K T 2"], Float[Tensor, "R K T 2"]]


@dataclass(frozen=True, kw_only=True)
class SceneEmbedding:
    """The scene as the decoder uses it: computed once per scene, shared by all agents and candidates."""

    tokens: SceneTokens
    keys_values: tuple[KeysValues, ...]  # of the cross-attention, per layer, each [B, h, S, e]
    map_embedding: Float[Tensor, "B S width"] | None  # scene tokens for the map correction; None without one

    @property
    def velocity_mps(self) -> Float[Tensor, "R 2"]:
        return self.tokens.velocity_mps

    def only(self, row: int) -> "SceneEmbedding":
        """The embedding for one of its rows."""
        scene = int(self.tokens.row[row]) // self.tokens.relation.shape[1]
        return self._part(self.tokens.only(row), slice(scene, scene + 1))

    def first(self, num_scenes: int) -> "SceneEmbedding":
        """The embedding of the first scenes, with their rows."""
        return self._part(self.tokens.first(num_scenes), slice(num_scenes))

    def _part(self, tokens: SceneTokens, scenes: slice) -> "SceneEmbedding":
        return SceneEmbedding(
            tokens=tokens,
            keys_values=tuple((key[scenes], value[scenes]) for key, value in self.keys_values),
            map_embedding=None if self.map_embedding is None else self.map_embedding[scenes],
        )


@dataclass(frozen=True, kw_only=True)
class PrefixCache:
    """Hidden states of K prefixes of n tokens."""

    keys_values: tuple[KeysValues, ...]  # of the self-attention, per layer, each [R, K, h, n, e]
    state: Float[Tensor, "R K d"]  # of the first register: the trajectory and the prior are read from it

    @property
    def length(self) -> int:
        """The number of tokens n."""
        return self.keys_values[0][0].shape[3]

    def select(self, parents: Int[Tensor, "R K"]) -> "PrefixCache":
        """The prefixes with these indices."""

        def gather(values: Tensor) -> Tensor:
            index = parents.view(*parents.shape, *[1] * (values.ndim - 2))
            return values.gather(1, index.expand(-1, -1, *values.shape[2:]))

        return PrefixCache(
            keys_values=tuple((gather(key), gather(value)) for key, value in self.keys_values),
            state=gather(self.state),
        )


class Decoder(nn.Module):
    """Transformer over latents and registers; the first register holds the trajectory and the next token's prior.

    C control points of the mean, of which the free ones are regressed; C' of the logarithmic standard deviation.
    Without a spline, every step is its own control point.
    """

    time_s: Tensor  # [T]
    reach_m: Tensor  # [free, 1]: scale of each free control point
    mean_basis: Tensor  # [T, free]
    spread_basis: Tensor  # [T, C']

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, steps = config.width, config.features.future_steps
        self.embed_latent = nn.Linear(config.token_dim, width)
        if config.addressed:  # what a token says to the agents that it is not addressed to: nothing at first
            self.embed_overheard = nn.Linear(config.token_dim, width, bias=False)
            nn.init.zeros_(self.embed_overheard.weight)
        self.place = nn.Parameter(torch.randn(config.num_tokens, width) * 0.02)
        self.registers = nn.Parameter(torch.randn(config.registers, width) * 0.02)
        self.blocks = Blocks(config.decoder_layers, config)
        self.norm = nn.LayerNorm(width)
        if config.spline_points is None:
            times, mean_basis, spread_basis = torch.arange(1, steps + 1) / steps, torch.eye(steps), torch.eye(steps)
        else:
            times = spline.control_times(config.spline_points)[FIXED_POINTS:]
            smooth = spline.basis(config.spline_points, steps=steps) @ spline.smooth_end(config.spline_points)
            mean_basis, spread_basis = smooth[:, FIXED_POINTS:], spline.basis(config.spread_points, steps=steps)
        horizon_s = steps * config.features.dt_s
        self.register_buffer("time_s", torch.arange(1, steps + 1) / steps * horizon_s, persistent=False)
        self.register_buffer("reach_m", _SPEED_SCALE_MPS * horizon_s * times[:, None], persistent=False)
        self.register_buffer("mean_basis", mean_basis, persistent=False)
        self.register_buffer("spread_basis", spread_basis, persistent=False)
        self.head = mlp(width, 2 * width, 2 * mean_basis.shape[1] + 2 * spread_basis.shape[1])
        self.correction = MapCorrection(config, fixed_points=FIXED_POINTS) if config.correction_width else None
        self.prior = nn.Linear(width, PRIOR_LEVELS**config.token_dim) if config.prior else None

    def embed_scene(self, tokens: SceneTokens) -> SceneEmbedding:
        """Keys and values of the scene for every layer."""
        return SceneEmbedding(
            tokens=tokens,
            keys_values=self.blocks.scene_keys_and_values(tokens.tokens),
            map_embedding=None if self.correction is None else self.correction.embed_meaning(tokens.tokens),
        )

    def decode(self, latents: Float[Tensor, "G K n D"], scene: SceneEmbedding) -> MeanAndStd:
        """Decodes whole prefixes."""
        return self.extend(None, latents, scene)[1]

    def extend(
        self, cache: PrefixCache | None, latents: Float[Tensor, "G K n D"], scene: SceneEmbedding
    ) -> tuple[PrefixCache, MeanAndStd]:
        """Appends tokens to cached prefixes and decodes the longer prefixes; see `append`."""
        longer = self.append(cache, latents, scene)
        return longer, self._trajectories(longer.state, scene)

    def decode_next(
        self, cache: PrefixCache | None, tokens: Float[Tensor, "G V D"], scene: SceneEmbedding
    ) -> Float[Tensor, "R V T 2"]:
        """Means of the trajectories of one prefix per row (None: an empty one) with each of V tokens appended."""
        rows = torch.zeros(len(scene.velocity_mps), tokens.shape[1], dtype=torch.long, device=tokens.device)
        return self.extend(None if cache is None else cache.select(rows), tokens[:, :, None], scene)[1][0]

    def append(
        self, cache: PrefixCache | None, latents: Float[Tensor, "G K n D"], scene: SceneEmbedding
    ) -> PrefixCache:
        """Appends tokens to cached prefixes, without decoding them.

        Latents and registers go through the layers together: for the few candidates of a search step, the time is
        determined by the number of operations and not by their size.

        Args:
            cache: the prefixes; None for empty ones. Only causal decoders can extend a cache.
            latents: the n tokens to append.
            scene: the embedding of the same rows.
        """
        if cache is not None and not self.config.causal:
            raise ValueError("got a prefix cache, but the decoder is not causal: decode the whole code instead")
        before, count = 0 if cache is None else cache.length, latents.shape[2]
        if count == 0:
            raise ValueError(f"got prefixes of {before} tokens and none to append, expected at least 1")
        last, registers = before + count, self._registers(scene).expand(-1, latents.shape[1], -1, -1)
        x = torch.cat([self._embed_latents(latents, before, scene), registers], dim=2)  # [R, K, n + registers, d]
        mask = torch.ones(x.shape[2], before + x.shape[2], dtype=torch.bool, device=latents.device)
        mask[:count, last:] = False  # no latent attends to a register
        if self.config.causal:
            mask[:count, before:last] = causal_mask(count, latents.device)
        cached = []
        for layer, (block, keys_values) in enumerate(zip(self.blocks, scene.keys_values, strict=True)):
            own = block.own_keys_and_values(x)
            if cache is not None:
                key, value = cache.keys_values[layer]
                own = (torch.cat([key, own[0]], dim=3), torch.cat([value, own[1]], dim=3))
            cached.append((own[0][:, :, :, :last], own[1][:, :, :, :last]))
            if layer + 1 == len(self.blocks):  # only the registers are read from the last layer
                x, mask = x[:, :, count:], mask[count:]
            x = block(x, own, keys_values, scene.tokens, mask=mask)
        return PrefixCache(keys_values=tuple(cached), state=self.norm(x[:, :, 0]))

    def decode_all_prefixes(self, latents: Float[Tensor, "G N D"], scene: SceneEmbedding) -> MeanAndStd:
        """Decodes the first 1, 2, ..., N tokens, as N candidates."""
        if self.config.causal:
            return self._trajectories(self._prefix_states(latents, scene)[:, 1:], scene)
        parts = [self.decode(latents[:, None, :length], scene) for length in range(1, latents.shape[1] + 1)]
        return torch.cat([mean for mean, _ in parts], dim=1), torch.cat([std for _, std in parts], dim=1)

    def next_token_logits(
        self, latents: Float[Tensor, "G n D"], scene: SceneEmbedding
    ) -> Float[Tensor, "G n_plus_1 V"]:
        """The prior after 0, 1, ..., n tokens."""
        return self.prior_logits(self._prefix_states(latents, scene), scene, lengths=range(latents.shape[1] + 1))

    def decode_with_prior(
        self, latents: Float[Tensor, "G N D"], scene: SceneEmbedding
    ) -> tuple[MeanAndStd, Float[Tensor, "G N V"]]:
        """`decode_all_prefixes`, and the prior of each of the N tokens given those before it."""
        states = self._prefix_states(latents, scene)
        prior = self.prior_logits(states[:, :-1], scene, lengths=range(latents.shape[1]))
        return self._trajectories(states[:, 1:], scene), prior

    def prior_logits(
        self, state: Float[Tensor, "R K d"], scene: SceneEmbedding, *, lengths: Sequence[int]
    ) -> Float[Tensor, "G K V"]:
        """Prior (ours): unnormalised log probabilities of the token after each prefix, by its id; see `PrefixCache`.

        The V tokens are those of a codebook of `PRIOR_LEVELS` levels. After all N tokens there is no next one.

        Args:
            state: of K prefixes.
            scene: the embedding of the same rows.
            lengths: number of tokens of each prefix. An addressed token is predicted from the state of its agent.
        """
        if self.prior is None:
            raise ValueError("the model has no prior over codes: it was trained without one")
        addressed = scene.tokens.is_addressed(torch.tensor(lengths, device=state.device))
        if addressed is None:
            logits: Tensor = self.prior(scene.tokens.of_codes(state))
        else:
            logits = self.prior(scene.tokens.by_agent(state * addressed[..., None]).sum(dim=1))
        return logits

    def _prefix_states(self, latents: Float[Tensor, "G n D"], scene: SceneEmbedding) -> Float[Tensor, "R n_plus_1 d"]:
        """Hidden states of the first register after 0, 1, ..., n tokens; prefixes share the states of the latents."""
        count = latents.shape[1]
        x = self._embed_latents(latents[:, None], 0, scene)  # [R, 1, n, d]
        y = self._registers(scene).expand(-1, count + 1, -1, -1)  # [R, n + 1, registers, d]: one set per prefix
        causal = causal_mask(count, latents.device)
        # Registers attend to each other and to the latents of their prefix: the set of an empty prefix to none.
        mask = functional.pad(causal, (0, y.shape[2], 1, 0), value=True)
        mask[0, :count] = False
        mask = mask[:, None, None]  # [n + 1, 1, 1, n + registers]
        for layer, (block, keys_values) in enumerate(zip(self.blocks, scene.keys_values, strict=True)):
            key, value = block.own_keys_and_values(x)  # [R, 1, h, n, e]
            if layer + 1 < len(self.blocks):  # nothing reads the latents after the last layer
                x = block(x, (key, value), keys_values, scene.tokens, mask=causal)
            key, value = (part.expand(-1, count + 1, -1, -1, -1) for part in (key, value))
            own_key, own_value = block.own_keys_and_values(y)
            both = (torch.cat([key, own_key], dim=3), torch.cat([value, own_value], dim=3))
            y = block(y, both, keys_values, scene.tokens, mask=mask)
        return self.norm(y[:, :, 0])

    def _embed_latents(
        self, latents: Float[Tensor, "G K n D"], first: int, scene: SceneEmbedding
    ) -> Float[Tensor, "R K n d"]:
        """Embeds latents at the positions from `first` on."""
        last, available = first + latents.shape[2], self.config.num_tokens
        if last > available:
            raise ValueError(f"got prefixes of {last} tokens, expected at most {available}: the model has no more")
        embedded = scene.tokens.of_rows(self.embed_latent(latents) + self.place[first:last])
        addressed = scene.tokens.is_addressed(torch.arange(first, last, device=latents.device))
        if addressed is not None:
            overheard = scene.tokens.of_rows(self.embed_overheard(latents) + self.place[first:last])
            embedded = torch.where(addressed[:, None, :, None], embedded, overheard)
        return embedded + scene.tokens.agent[:, None, None]

    def _registers(self, scene: SceneEmbedding) -> Float[Tensor, "R 1 registers d"]:
        return (self.registers + scene.tokens.agent[:, None])[:, None]

    def _trajectories(self, state: Float[Tensor, "R K d"], scene: SceneEmbedding) -> MeanAndStd:
        """Constant velocity plus a spline that starts at zero with zero slope: position and velocity never jump."""
        output, free = self.head(state), self.mean_basis.shape[1]
        points_m = output[..., : 2 * free].unflatten(-1, (free, 2)) * self.reach_m  # [R, K, free, 2]
        log_std_points = output[..., 2 * free :].unflatten(-1, (-1, 2))  # [R, K, C', 2]
        if self.correction is not None:
            offset_m, log_std_offset = self.correction(points_m, state, scene.tokens, scene.map_embedding)
            points_m, log_std_points = points_m + offset_m, log_std_points + log_std_offset
        constant_velocity_m = scene.velocity_mps[:, None, None] * self.time_s[:, None]  # [R, 1, T, 2]
        log_std = (self.spread_basis @ log_std_points).clamp(*_LOG_STD_RANGE)
        return constant_velocity_m + self.mean_basis @ points_m, log_std.exp()
