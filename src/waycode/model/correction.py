"""Puts a decoded way right by the lanes and road edges that it passes.

Attention to a whole scene knows which way a car takes, but not to the decimetre where that way lies: a decoder that
stops there is off by half a metre, which is as much as a lane has to spare. Here every control point of the way looks
at the pieces of the map next to it, from where it is, and moves. Nothing of this is in the paper.

R rows (an agent in a scene), K candidates, C control points, J pieces of the map next to each, d the width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from waycode.model import spline
from waycode.model.config import ModelConfig
from waycode.model.layers import Attention, FeedForward, mlp
from waycode.model.scene_encoder import MapPieces

NEAREST_LANES, NEAREST_EDGES = 6, 2
HEADS = 4
LOOK_S = 0.5  # the direction of the way is that from so much before to so much after
STANDING_M = 0.2  # who moves less within that time has no direction, and is not moved
OFFSET_SCALE_M, FARTHEST_M, PLACE_SCALE_M, MOTION_SCALE_M = 2.0, 20.0, 30.0, 10.0
LEAST_SIDE_M2 = 1e-6  # of a side of a polyline: some have no length
PIECE_CHANNELS, STATION_CHANNELS = 7, 4


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The map of a row, ready to be looked at: computed once per scene, shared by all candidates."""

    pieces: MapPieces
    meaning: Float[Tensor, "R M d"]  # what the scene encoder made of each piece


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What is added to the decoder's output."""

    points_m: Float[Tensor, "R K C 2"]
    spread: Float[Tensor, "R K S 2"]  # to the control points of the logarithmic standard deviation


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What control points see next to them: first of all nothing, then J pieces of lanes and edges."""

    pieces: Float[Tensor, "R K C n d"]  # n = 1 + J
    there: Bool[Tensor, "R K C n"]
    offset_m: Float[Tensor, "R K C J 2"]  # to the nearest point of each piece
    distance_m: Float[Tensor, "R K C J"]  # infinite for what is no lane


class MapCorrection(nn.Module):
    position_basis: Tensor  # [C, C]: where the way is at each control point's time
    motion_basis: Tensor  # [C, C]: how far it goes around that time
    time_s: Tensor  # [C]
    motion_s: Tensor  # [C]

    def __init__(self, config: ModelConfig, *, fixed_points: int):
        super().__init__()
        self.config = config
        width, horizon_s = config.correction_width, config.features.future_steps * config.features.dt_s
        at = spline.control_times(config.spline_points)[fixed_points:]
        before, after = ((at + sign * LOOK_S / horizon_s).clamp(0, 1) for sign in (-1, 1))

        def basis(when: Tensor) -> Tensor:
            return spline.basis_at(when, config.spline_points)[:, fixed_points:]

        self.register_buffer("position_basis", basis(at), persistent=False)
        self.register_buffer("motion_basis", basis(after) - basis(before), persistent=False)
        self.register_buffer("time_s", at * horizon_s, persistent=False)
        self.register_buffer("motion_s", (after - before) * horizon_s, persistent=False)
        self.embed_meaning = nn.Linear(config.width, width)
        self.embed_piece = mlp(PIECE_CHANNELS, width, width)
        self.embed_state = nn.Linear(config.width, width)
        self.embed_station = mlp(STATION_CHANNELS, width, width)
        self.place = nn.Parameter(torch.randn(len(at), width) * 0.02)
        self.nothing = nn.Parameter(torch.randn(width) * 0.02)  # what there is to see where there is no map
        self.norm_piece, self.norm_station, self.norm_mixed = (nn.LayerNorm(width) for _ in range(3))
        self.look, self.mix = Attention(width, HEADS), Attention(width, HEADS)
        self.feed_forward = FeedForward(width, 2 * width)
        self.norm = nn.LayerNorm(width)
        self.prefer = _zero(nn.Linear(width, width))
        self.move = _zero(nn.Linear(width, 3))  # ahead and to the left in metres, and which share of the way to a lane
        self.spread = _zero(nn.Linear(width, 2 * config.spread_points))

    def survey(self, tokens: Float[Tensor, "R M e"], pieces: MapPieces) -> Surroundings:
        return Surroundings(pieces=pieces, meaning=self.embed_meaning(tokens))

    def forward(
        self,
        points_m: Float[Tensor, "R K C 2"],
        state: Float[Tensor, "R K e"],
        around: Surroundings,
        velocity_mps: Float[Tensor, "R 2"],
    ) -> Correction:
        """`points_m` are the free control points, `state` is what they were regressed from."""
        velocity = velocity_mps[:, None, None]
        position = self.position_basis @ points_m + velocity * self.time_s[:, None]  # [R, K, C, 2]
        motion = self.motion_basis @ points_m + velocity * self.motion_s[:, None]
        ahead = motion / (motion.square().sum(dim=-1, keepdim=True) + STANDING_M**2).sqrt()
        seen = self._see(position, ahead, around)
        own = torch.cat([position / PLACE_SCALE_M, motion / MOTION_SCALE_M], dim=-1)
        x = self.embed_station(own) + self.embed_state(state)[:, :, None] + self.place
        pieces = self.norm_piece(seen.pieces)
        x = x + self._look(self.norm_station(x), pieces, seen.there)
        normed = self.norm_mixed(x)
        x = x + self.mix(normed, *self.mix.keys_and_values(normed))  # control points agree on a lane
        x = self.norm(x + self.feed_forward(x))
        along, beside, towards_lane = self.move(x)[..., None].unbind(dim=-2)  # [R, K, C, 1]
        left = torch.stack([-ahead[..., 1], ahead[..., 0]], dim=-1)
        change_m = along * ahead + beside * left + towards_lane * self._to_lane_m(x, pieces, seen)
        spread = self.spread(x.mean(dim=2)).view(*x.shape[:2], self.config.spread_points, 2)
        return Correction(points_m=change_m, spread=spread)

    def _see(
        self, position: Float[Tensor, "R K C 2"], ahead: Float[Tensor, "R K C 2"], around: Surroundings
    ) -> "_Seen":
        """What each control point sees of the map next to it, in its own frame."""
        shape, pieces = position.shape[:3], around.pieces
        place = position.flatten(1, 2)  # [R, Q, 2], Q = K * C
        chosen, there = nearest_pieces(place.detach(), pieces)  # [R, Q, J]
        rows = torch.arange(len(place), device=place.device)[:, None, None]
        offset, direction = to_nearest_point(place[:, :, None], pieces.points_m[rows, chosen])
        frame = ahead.flatten(1, 2)[:, :, None]  # [R, Q, 1, 2]
        distance = (offset.square().sum(dim=-1) + 1e-4).sqrt()
        is_edge = pieces.is_edge[rows, chosen]
        inputs = torch.stack(
            [
                *in_frame(offset.clamp(-FARTHEST_M, FARTHEST_M) / OFFSET_SCALE_M, frame),
                *in_frame(direction, frame),
                distance.clamp(max=FARTHEST_M) / OFFSET_SCALE_M,
                is_edge.to(offset),
                pieces.reach[rows, chosen],
            ],
            dim=-1,
        )
        embedded = self.embed_piece(inputs) + around.meaning[rows, chosen]  # [R, Q, J, d]
        nothing = self.nothing.expand(*embedded.shape[:2], 1, -1)

        def per_point(values: Tensor) -> Tensor:
            return values.view(*shape, *values.shape[2:])

        return _Seen(
            pieces=per_point(torch.cat([nothing, embedded], dim=2)),
            there=per_point(functional.pad(there, (1, 0), value=True)),
            offset_m=per_point(offset),
            distance_m=per_point(distance.masked_fill(~there | is_edge, torch.inf)),
        )

    def _to_lane_m(self, x: Float[Tensor, "R K C d"], pieces: Float[Tensor, "R K C n d"], seen: "_Seen") -> Tensor:
        """The way to the lane that is meant: of those nearby the nearest, unless attention knows better."""
        liking = (self.prefer(x)[..., None, :] * pieces[..., 1:, :]).sum(dim=-1) / x.shape[-1] ** 0.5
        score = functional.pad(liking - seen.distance_m, (1, 0), value=-FARTHEST_M)  # none, if all are far away
        share = score.softmax(dim=-1)[..., 1:, None]  # [R, K, C, J, 1]
        return (share * seen.offset_m).sum(dim=-2)

    def _look(self, x: Tensor, seen: Tensor, there: Tensor) -> Tensor:
        """Attention of one query [R, K, C, d] to a handful of keys [R, K, C, n, d] of its own.

        Plain products: the fused attention of torch is made for few long sequences, not for thousands of short ones.
        """
        query = self.look.query(x).unflatten(-1, (HEADS, -1))[:, :, :, None]  # [R, K, C, 1, h, e]
        key, value = self.look.key_value(seen).unflatten(-1, (2, HEADS, -1)).unbind(dim=-3)  # [R, K, C, n, h, e]
        score = (query * key).sum(dim=-1) / key.shape[-1] ** 0.5
        share = score.masked_fill(~there[..., None], -torch.inf).softmax(dim=3)  # [R, K, C, n, h]
        return self.look.out((share[..., None] * value).sum(dim=3).flatten(-2))


def _zero(layer: nn.Linear) -> nn.Linear:
    """A layer that says nothing until it has learnt to."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def to_pieces_m2(place: Float[Tensor, "R Q 2"], pieces: MapPieces) -> Float[Tensor, "R Q M"]:
    """Squared distance of each place from the nearest of the points of each piece."""
    x, y = pieces.points_m.permute(3, 0, 2, 1)[..., None, :].contiguous()  # [R, P, 1, M]: the least of P is quick
    away_x, away_y = place[:, None, :, :1] - x, place[:, None, :, 1:] - y  # [R, P, Q, M]
    return away_x.square_().addcmul_(away_y, away_y).amin(dim=1)


@torch.no_grad()
def nearest_pieces(
    place: Float[Tensor, "R Q 2"], pieces: MapPieces
) -> tuple[Int[Tensor, "R Q J"], Bool[Tensor, "R Q J"]]:
    """The pieces of lanes and of edges that come nearest to each place, and which of these are there at all."""
    nearest, count = to_pieces_m2(place, pieces), pieces.points_m.shape[1]
    # Of pieces that share a point the first is nearer: else rounding would choose.
    nearest = nearest + 1e-3 * torch.arange(count, device=place.device)
    chosen, there = [], []
    for mask, wanted in ((pieces.is_lane, NEAREST_LANES), (pieces.is_edge, NEAREST_EDGES)):
        distance = nearest.masked_fill(~mask[:, None], torch.inf)
        value, index = distance.topk(min(wanted, count), largest=False)
        chosen.append(index)
        there.append(value.isfinite())
    return torch.cat(chosen, dim=-1), torch.cat(there, dim=-1)


def to_nearest_point(
    place: Float[Tensor, "R Q 1 2"], points: Float[Tensor, "R Q J P 2"]
) -> tuple[Float[Tensor, "R Q J 2"], Float[Tensor, "R Q J 2"]]:
    """From each place to the nearest point of each polyline, and the polyline's direction there."""
    start, step = points[..., :-1, :], points.diff(dim=-2)  # [R, Q, J, P - 1, 2]
    which = _nearest_side(place[..., None, :] - start, step)[..., None, None]
    start, step = (one.gather(-2, which.expand(*which.shape[:-1], 2))[..., 0, :] for one in (start, step))
    length = step.square().sum(dim=-1, keepdim=True).clamp(min=LEAST_SIDE_M2)
    share = (((place - start) * step).sum(dim=-1, keepdim=True) / length).clamp(0, 1)
    return start + share * step - place, step / length.sqrt()


@torch.no_grad()
def _nearest_side(away: Float[Tensor, "*n S 2"], step: Float[Tensor, "*n S 2"]) -> Int[Tensor, "*n"]:
    """Which of S sides is nearest: `away` is from where each begins to the place, `step` to where it ends."""
    (x, y), (step_x, step_y) = away.unbind(dim=-1), step.unbind(dim=-1)
    length = torch.addcmul(step_x * step_x, step_y, step_y).clamp_(min=LEAST_SIDE_M2)
    share = torch.addcmul(x * step_x, y, step_y).div_(length).clamp_(0, 1)
    across_x, across_y = x - share * step_x, y - share * step_y
    distance = across_x.square_().addcmul_(across_y, across_y)
    first = torch.arange(distance.shape[-1], device=distance.device)
    return distance.add_(first, alpha=1e-3).argmin(dim=-1)  # at a corner, the first side


def in_frame(vector: Float[Tensor, "*n 2"], ahead: Float[Tensor, "*m 2"]) -> tuple[Tensor, Tensor]:
    """How much of vectors points ahead and to the left."""
    x, y = vector.unbind(dim=-1)
    forward_x, forward_y = ahead.unbind(dim=-1)
    return x * forward_x + y * forward_y, y * forward_x - x * forward_y
