"""Layers that the three transformers share.

B scenes, A agents of a scene, R rows (the agents of all scenes), L tokens, S scene tokens, J neighbours of a token, d
width, h heads, e = d / h, p width of relations.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from waycode.model.config import ModelConfig
    from waycode.model.scene_encoder import SceneTokens

KeysValues = tuple[Tensor, Tensor]
_MASKED = -1e9  # a score that no softmax lets through; finite, as a softmax over infinities alone is NaN


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def split_heads(x: Float[Tensor, "*batch L d"], heads: int) -> Float[Tensor, "*batch h L e"]:
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(-2, -3)


def join_heads(x: Float[Tensor, "*batch h L e"]) -> Float[Tensor, "*batch L d"]:
    return x.transpose(-2, -3).flatten(-2)


def _keys_and_values(projected: Float[Tensor, "*batch L two_d"], heads: int) -> KeysValues:
    """Splits the output of a projection in keys and values, each [*, h, L, e]."""
    key, value = projected.chunk(2, dim=-1)
    return split_heads(key, heads), split_heads(value, heads)


class Attention(nn.Module):
    """Multi-head attention; keys and values are computed apart from the queries, so that they can be cached."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def keys_and_values(self, x: Tensor) -> KeysValues:
        """[*, L, d] -> keys and values [*, h, L, e]."""
        return _keys_and_values(self.key_value(x), self.heads)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Queries from x [*, Lq, d] attend to keys [*, h, Lk, e]; `mask` is true where they may."""
        query = split_heads(self.query(x), self.heads)
        if query.ndim == 5 and (mask is None or mask.ndim == 2):  # torch fuses attention for one batch axis only
            rows, keys, values = (part.flatten(0, 1) for part in (query, key, value))
            mixed = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask).view(query.shape)
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(join_heads(mixed))


class RelativeAttention(nn.Module):
    """Attention to tokens with poses: key and value of token j for query i are W x_j + U r_ij.

    r_ij embeds the pose of token j relative to query i. W x_j is the same for all queries and is computed once. U r_ij
    is never computed: by linearity, its product with a query q is (U^T q) r_ij, and its mean is U (mean of r_ij). The
    relations of R rows to S tokens hence cost S * p numbers per row, whatever the number of layers and candidates.
    """

    def __init__(self, width: int, heads: int, relation_width: int):
        super().__init__()
        self.heads, size = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.relation_key = nn.Parameter(torch.randn(heads, size, relation_width) * relation_width**-0.5)
        self.relation_value = nn.Parameter(torch.randn(heads, relation_width, size) * relation_width**-0.5)
        self.out = nn.Linear(width, width)

    def keys_and_values(self, x: Float[Tensor, "B S d"]) -> KeysValues:
        """The shared parts W x_j of keys and values, each [B, h, S, e]."""
        return _keys_and_values(self.key_value(x), self.heads)

    def forward(
        self,
        x: Float[Tensor, "B A L d"],
        key: Float[Tensor, "B h S e"],
        value: Float[Tensor, "B h S e"],
        relation: Float[Tensor, "B A S p"],
        mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B A L d"]:
        """All queries of an agent attend to all tokens of its scene.

        Args:
            x: L queries for each agent; candidates of a search are queries too.
            key, value: `keys_and_values` of the scene tokens.
            relation: embedded pose of each token relative to each agent.
            mask: true for tokens that are present.
        """
        shape = x.shape[:3]
        query = self._queries(x.flatten(1, 2))  # [B, h, A * L, e]
        by_pose = self._by_agent(query @ self.relation_key, shape) @ relation.mT  # [B, A, h * L, S]
        score = query @ key.mT + self._by_head(by_pose, shape)  # [B, h, A * L, S]
        share = (score + (~mask).to(score)[:, None, None] * _MASKED).softmax(dim=-1)
        mean_relation = self._by_head(self._by_agent(share, shape) @ relation, shape)  # [B, h, A * L, p]
        return self.out(join_heads(share @ value + mean_relation @ self.relation_value)).view(x.shape)

    def to_neighbours(
        self,
        x: Float[Tensor, "B S d"],
        index: Int[Tensor, "B S J"],
        relation: Float[Tensor, "B S J p"],
        mask: Bool[Tensor, "B S J"],
    ) -> Float[Tensor, "B S d"]:
        """Every token attends to its J neighbours.

        Scores and means of all pairs are dense matrix products, of which those of neighbours are used: for a few
        hundred tokens on a CPU, this is several times faster than gathering keys and values.
        """
        key, value = self.keys_and_values(x)
        query = self._queries(x)  # [B, h, S, e]
        index = index[:, None].expand(-1, self.heads, -1, -1)  # [B, h, S, J]
        by_pose = (query @ self.relation_key).transpose(1, 2) @ relation.mT  # [B, S, h, J]
        score = (query @ key.mT).gather(-1, index) + by_pose.transpose(1, 2)
        share = score.masked_fill(~mask[:, None], _MASKED).softmax(dim=-1)  # [B, h, S, J]
        mean_relation = (share.transpose(1, 2) @ relation).transpose(1, 2)  # [B, h, S, p]
        dense = share.new_zeros(*share.shape[:3], x.shape[1]).scatter(-1, index, share)
        return self.out(join_heads(dense @ value + mean_relation @ self.relation_value))

    def among_agents(
        self, x: Float[Tensor, "B A L d"], relation: Float[Tensor, "B A A p"], mask: Bool[Tensor, "B A"]
    ) -> Float[Tensor, "B A L d"]:
        """Every token of an agent attends to the same token of all agents of its scene.

        Scores by pose are products per agent, those by content per token: the relations are never copied for each of
        the L tokens, of which a search has hundreds.

        Args:
            x: L tokens of each agent; candidates of a search are tokens too.
            relation: embedded pose of each agent relative to each other.
            mask: true for agents that are present.
        """
        shape = (*x.shape[:3], self.heads, x.shape[3] // self.heads)  # B, A, L, h, e
        query = self.query(x).view(shape) * shape[-1] ** -0.5
        key, value = (part.view(shape).permute(0, 2, 3, 1, 4) for part in self.key_value(x).chunk(2, dim=-1))
        by_pose = torch.einsum("balhe,hep->balhp", query, self.relation_key).flatten(2, 3) @ relation.mT
        by_pose = by_pose.view(*shape[:4], shape[1]).permute(0, 2, 3, 1, 4)  # [B, L, h, A, A]
        score = query.permute(0, 2, 3, 1, 4) @ key.mT + by_pose
        share = score.masked_fill(~mask[:, None, None, None], _MASKED).softmax(dim=-1)
        mixed = (share @ value).permute(0, 3, 1, 2, 4)  # [B, A, L, h, e]
        mean_relation = share.permute(0, 3, 1, 2, 4).flatten(2, 3) @ relation  # [B, A, L * h, p]
        by_relation = torch.einsum("balhp,hpe->balhe", mean_relation.view(*shape[:4], -1), self.relation_value)
        return self.out((mixed + by_relation).flatten(3))

    def _queries(self, x: Float[Tensor, "B L d"]) -> Float[Tensor, "B h L e"]:
        query = split_heads(self.query(x), self.heads)
        return query * query.shape[-1] ** -0.5

    def _by_agent(self, values: Tensor, shape: torch.Size) -> Tensor:
        """[B, h, A * L, n] -> [B, A, h * L, n]."""
        scenes, agents, length = shape
        return values.view(scenes, self.heads, agents, length, values.shape[-1]).transpose(1, 2).flatten(2, 3)

    def _by_head(self, values: Tensor, shape: torch.Size) -> Tensor:
        """[B, A, h * L, n] -> [B, h, A * L, n]."""
        scenes, agents, length = shape
        return values.view(scenes, agents, self.heads, length, values.shape[-1]).transpose(1, 2).flatten(2, 3)


class FeedForward(nn.Module):
    """Layer norm, then two linear layers; without the residual connection."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = mlp(width, hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.norm(x))


class Block(nn.Module):
    """Self-attention, cross-attention to the scene, feed-forward; used by the trajectory encoder and the decoder.

    In a joint model, agents attend to each other after the self-attention. No place of an agent among the others is
    encoded but its relative pose, so permuting agents permutes the output.
    """

    def __init__(self, width: int, heads: int, feed_forward: int, relation_width: int, *, joint: bool):
        super().__init__()
        self.norm_self, self.norm_cross = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend_self = Attention(width, heads)
        if joint:
            self.norm_agents = nn.LayerNorm(width)
            self.attend_agents = RelativeAttention(width, heads, relation_width)
        self.attend_scene = RelativeAttention(width, heads, relation_width)
        self.feed_forward = FeedForward(width, feed_forward)

    def own_keys_and_values(self, x: Tensor) -> KeysValues:
        """Keys and values of these tokens for self-attention."""
        return self.attend_self.keys_and_values(self.norm_self(x))

    def forward(
        self,
        x: Float[Tensor, "R K L d"],
        own: KeysValues,
        keys_values: KeysValues,
        scene: "SceneTokens",
        *,
        mask: Bool[Tensor, "..."] | None,
    ) -> Float[Tensor, "R K L d"]:
        """Applies the block to K candidates of L tokens per row.

        The scene is the same for all candidates. They are folded into the query axis of the cross-attention, so that
        its keys and values are never copied.

        Args:
            own: keys and values of the self-attention, each [R, K, h, n, e].
            keys_values: those of the cross-attention, each [B, h, S, e].
            scene: the scene tokens, with their relations to the agents.
            mask: true where a token may attend to a token of `own`.
        """
        x = x + self.attend_self(self.norm_self(x), *own, mask)
        if scene.between is not None:
            tokens = scene.by_agent(self.norm_agents(x).flatten(1, 2))  # [B, A, K * L, d]
            x = x + scene.by_row(self.attend_agents.among_agents(tokens, scene.between, scene.is_agent)).view_as(x)
        queries = scene.by_agent(self.norm_cross(x).flatten(1, 2))  # [B, A, K * L, d]
        seen = self.attend_scene(queries, *keys_values, scene.relation, scene.mask)
        x = x + scene.by_row(seen).view_as(x)
        return x + self.feed_forward(x)


class Blocks(nn.ModuleList):
    """A `ModuleList` that the type checker knows to hold blocks."""

    def __init__(self, count: int, config: "ModelConfig"):
        sizes = (config.width, config.heads, config.feed_forward, config.relation_width)
        super().__init__([Block(*sizes, joint=config.joint) for _ in range(count)])

    def __iter__(self) -> Iterator[Block]:
        return cast("Iterator[Block]", super().__iter__())

    def scene_keys_and_values(self, tokens: Float[Tensor, "B S d"]) -> tuple[KeysValues, ...]:
        """Keys and values of the scene tokens for the cross-attention of every layer."""
        return tuple(block.attend_scene.keys_and_values(tokens) for block in self)


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "L L"]:
    """True where a token may attend: to itself and to earlier tokens."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
