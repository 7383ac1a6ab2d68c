"""Layers that the three transformers share. R rows (an agent in a scene), L tokens, d width, h heads, e = d / h."""

from collections.abc import Iterator
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

KeysValues = tuple[Tensor, Tensor]


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


def split_heads(x: Float[Tensor, "*batch L d"], heads: int) -> Float[Tensor, "*batch h L e"]:
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(-2, -3)


def join_heads(x: Float[Tensor, "*batch h L e"]) -> Float[Tensor, "*batch L d"]:
    return x.transpose(-2, -3).flatten(-2)


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
        key, value = self.key_value(x).chunk(2, dim=-1)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Queries from x [*, Lq, d] attend to keys [*, h, Lk, e]; `mask` is true where they may."""
        query = split_heads(self.query(x), self.heads)
        if query.ndim == 5 and (mask is None or mask.ndim == 2):  # torch fuses attention for one batch axis only
            rows, keys, values = (part.flatten(0, 1) for part in (query, key, value))
            mixed = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask).view(query.shape)
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(join_heads(mixed))


class FeedForward(nn.Module):
    """Layer norm, then two linear layers; without the residual connection."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = mlp(width, hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.norm(x))


class Block(nn.Module):
    """Self-attention, cross-attention to the scene, feed-forward; used by the trajectory encoder and the decoder."""

    def __init__(self, width: int, heads: int, feed_forward: int):
        super().__init__()
        self.norm_self, self.norm_cross = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend_self, self.attend_scene = Attention(width, heads), Attention(width, heads)
        self.feed_forward = FeedForward(width, feed_forward)

    def own_keys_and_values(self, x: Tensor) -> KeysValues:
        """Keys and values of these tokens for self-attention."""
        return self.attend_self.keys_and_values(self.norm_self(x))

    def forward(
        self,
        x: Float[Tensor, "R K L d"],
        own: KeysValues,
        scene: KeysValues,
        *,
        mask: Bool[Tensor, "..."] | None,
        scene_mask: Bool[Tensor, "R 1 1 S"],
    ) -> Float[Tensor, "R K L d"]:
        """Applies the block to K candidates of L tokens per row.

        The scene is the same for all candidates. They are folded into the query axis of the cross-attention, so that
        its keys and values are never copied.

        Args:
            own: keys and values of the self-attention, each [R, K, h, n, e].
            scene: keys and values of the cross-attention, each [R, h, S, e].
            mask: true where a token may attend to a token of `own`.
            scene_mask: true for scene tokens that are present.
        """
        x = x + self.attend_self(self.norm_self(x), *own, mask)
        queries = self.norm_cross(x).flatten(1, 2)  # [R, K * L, d]
        x = x + self.attend_scene(queries, *scene, scene_mask).view_as(x)
        return x + self.feed_forward(x)


class Blocks(nn.ModuleList):
    """A `ModuleList` that the type checker knows to hold blocks."""

    def __init__(self, count: int, *, width: int, heads: int, feed_forward: int):
        super().__init__([Block(width, heads, feed_forward) for _ in range(count)])

    def __iter__(self) -> Iterator[Block]:
        return cast("Iterator[Block]", super().__iter__())


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "L L"]:
    """True where a token may attend: to itself and to earlier tokens."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
