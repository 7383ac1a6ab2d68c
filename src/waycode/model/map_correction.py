"""Corrects decoded control points by the lanes and road edges next to them (ours, not in the paper).

Cross-attention to the whole scene chooses the right path but locates it only to about half a metre, which is the whole
margin within a lane. Here every control point attends to the nearest map polylines, in its own frame, and is moved.

B scenes, R rows (an agent in a scene), S scene tokens, M map segments of a row, K candidates, C free control points,
Q = K * C of them in one axis, J nearest polylines of each, d width. Attribute names of modules are the names of
parameters in saved models.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from waycode.model import spline
from waycode.model.config import ModelConfig
from waycode.model.layers import Attention, FeedForward, mlp
from waycode.model.scene_encoder import MapPolylines, SceneTokens
from waycode.scene.geometry_torch import TIE_BREAK_M2, offset_to_polylines

_NEAREST_LANES, _NEAREST_EDGES = 6, 2
_HEADS = 4
_HALF_WINDOW_S = 0.5  # the direction of motion at a control point is measured over this time before and after it
_STANDING_M = 0.2  # less motion within that window counts as standing: without a direction, points do not move
_OFFSET_SCALE_M, _POSITION_SCALE_M, _MOTION_SCALE_M = 2.0, 30.0, 10.0  # bring the inputs to the order of 1
_FARTHEST_M = 20.0  # offsets are clamped to this
_POLYLINE_CHANNELS, _POINT_CHANNELS = 7, 4


@dataclass(frozen=True, kw_only=True)
class _NearbyMap:
    """Polylines next to each control point; the first embedding stands for "no map here"."""

    embedding: Float[Tensor, "R K C J_plus_1 d"]
    mask: Bool[Tensor, "R K C J_plus_1"]
    offset_m: Float[Tensor, "R K C J 2"]  # from the control point to the nearest point of each polyline
    lane_distance_m: Float[Tensor, "R K C J"]  # infinite for polylines that are no lanes


class MapCorrection(nn.Module):
    """Attention of every control point to the polylines next to it, then among the points of a trajectory."""

    position_basis: Tensor  # [C, C]: position of the spline at the time of each control point
    motion_basis: Tensor  # [C, C]: motion of the spline within the window around that time
    time_s: Tensor  # [C]
    motion_s: Tensor  # [C]

    def __init__(self, config: ModelConfig, *, fixed_points: int):
        super().__init__()
        self.config = config
        if config.spline_points is None:
            raise ValueError("spline_points is None, expected a number: the correction by the map moves control points")
        width, horizon_s = config.correction_width, config.features.future_steps * config.features.dt_s
        at = spline.control_times(config.spline_points)[fixed_points:]
        before, after = ((at + sign * _HALF_WINDOW_S / horizon_s).clamp(0, 1) for sign in (-1, 1))
        at_point, earlier, later = (
            spline.basis_at(fractions, config.spline_points)[:, fixed_points:] for fractions in (at, before, after)
        )
        self.register_buffer("position_basis", at_point, persistent=False)
        self.register_buffer("motion_basis", later - earlier, persistent=False)
        self.register_buffer("time_s", at * horizon_s, persistent=False)
        self.register_buffer("motion_s", (after - before) * horizon_s, persistent=False)
        self.embed_meaning = nn.Linear(config.width, width)  # of scene tokens: once per scene, see `SceneEmbedding`
        self.embed_piece = mlp(_POLYLINE_CHANNELS, width, width)
        self.embed_state = nn.Linear(config.width, width)
        self.embed_station = mlp(_POINT_CHANNELS, width, width)
        self.place = nn.Parameter(torch.randn(len(at), width) * 0.02)
        self.nothing = nn.Parameter(torch.randn(width) * 0.02)  # attended to where there is no map
        self.norm_piece, self.norm_station, self.norm_mixed = (nn.LayerNorm(width) for _ in range(3))
        self.look, self.mix = Attention(width, _HEADS), Attention(width, _HEADS)
        self.feed_forward = FeedForward(width, 2 * width)
        self.norm = nn.LayerNorm(width)
        self.prefer = _zero_initialised(nn.Linear(width, width))
        self.move = _zero_initialised(nn.Linear(width, 3))  # metres ahead, metres left, share of the offset to a lane
        self.spread = _zero_initialised(nn.Linear(width, 2 * config.spread_points))

    def forward(
        self,
        points_m: Float[Tensor, "R K C 2"],
        state: Float[Tensor, "R K width"],
        scene: SceneTokens,
        map_embedding: Float[Tensor, "B S d"],
    ) -> tuple[Float[Tensor, "R K C 2"], Float[Tensor, "R K spread 2"]]:
        """Offsets to add to the control points of the mean, in metres, and of the logarithmic standard deviation.

        Args:
            points_m: free control points, relative to constant velocity.
            state: hidden state that they were regressed from.
            scene: scene tokens with the map and the agent's velocity.
            map_embedding: `embed_meaning` of the scene tokens.
        """
        velocity = scene.velocity_mps[:, None, None]
        position = self.position_basis @ points_m + velocity * self.time_s[:, None]  # [R, K, C, 2]
        motion = self.motion_basis @ points_m + velocity * self.motion_s[:, None]
        ahead = motion / (motion.square().sum(dim=-1, keepdim=True) + _STANDING_M**2).sqrt()
        nearby = self._nearby_map(position, ahead, scene.map, map_embedding)
        own = torch.cat([position / _POSITION_SCALE_M, motion / _MOTION_SCALE_M], dim=-1)
        x = self.embed_station(own) + self.embed_state(state)[:, :, None] + self.place
        polylines = self.norm_piece(nearby.embedding)
        x = x + self._attend_nearby(self.norm_station(x), polylines, nearby.mask)
        normed = self.norm_mixed(x)
        x = x + self.mix(normed, *self.mix.keys_and_values(normed))  # control points agree on a lane
        x = self.norm(x + self.feed_forward(x))
        along, across, towards_lane = self.move(x)[..., None].unbind(dim=-2)  # [R, K, C, 1]
        left = torch.stack([-ahead[..., 1], ahead[..., 0]], dim=-1)
        offset_m = along * ahead + across * left + towards_lane * self._lane_offset_m(x, polylines, nearby)
        log_std_offset = self.spread(x.mean(dim=2)).view(*x.shape[:2], self.config.spread_points, 2)
        return offset_m, log_std_offset

    def _nearby_map(
        self,
        position: Float[Tensor, "R K C 2"],
        ahead: Float[Tensor, "R K C 2"],
        polylines: MapPolylines,
        map_embedding: Float[Tensor, "B S d"],
    ) -> _NearbyMap:
        """The polylines next to each control point, in its own frame."""
        shape, points = position.shape[:3], position.flatten(1, 2)  # [R, Q, 2]
        chosen, present = nearest_polylines(points.detach(), polylines)  # [R, Q, J]
        rows = torch.arange(len(points), device=points.device)[:, None, None]
        offset, direction = offset_to_polylines(points[:, :, None], polylines.points_m[rows, chosen])
        frame = ahead.flatten(1, 2)[:, :, None]  # [R, Q, 1, 2]
        distance = (offset.square().sum(dim=-1) + 1e-4).sqrt()
        is_edge = polylines.is_edge[rows, chosen]
        inputs = torch.stack(
            [
                *rotate_into_frame(offset.clamp(-_FARTHEST_M, _FARTHEST_M) / _OFFSET_SCALE_M, frame),
                *rotate_into_frame(direction, frame),
                distance.clamp(max=_FARTHEST_M) / _OFFSET_SCALE_M,
                is_edge.to(offset),
                polylines.reachability[rows, chosen] * float(self.config.reachability),
            ],
            dim=-1,
        )
        meaning = map_embedding.flatten(0, 1)[polylines.token[rows, chosen]]
        embedded = self.embed_piece(inputs) + meaning  # [R, Q, J, d]
        nothing = self.nothing.expand(*embedded.shape[:2], 1, -1)

        def per_point(values: Tensor) -> Tensor:
            return values.view(*shape, *values.shape[2:])

        return _NearbyMap(
            embedding=per_point(torch.cat([nothing, embedded], dim=2)),
            mask=per_point(functional.pad(present, (1, 0), value=True)),
            offset_m=per_point(offset),
            lane_distance_m=per_point(distance.masked_fill(~present | is_edge, torch.inf)),
        )

    def _lane_offset_m(
        self, x: Float[Tensor, "R K C d"], polylines: Float[Tensor, "R K C J_plus_1 d"], nearby: _NearbyMap
    ) -> Float[Tensor, "R K C 2"]:
        """Offset to a lane: to the nearest, unless the learned preference favours another."""
        preference = (self.prefer(x)[..., None, :] * polylines[..., 1:, :]).sum(dim=-1) / x.shape[-1] ** 0.5
        # The padded score wins where all lanes are far away.
        score = functional.pad(preference - nearby.lane_distance_m, (1, 0), value=-_FARTHEST_M)
        share = score.softmax(dim=-1)[..., 1:, None]  # [R, K, C, J, 1]
        return (share * nearby.offset_m).sum(dim=-2)

    def _attend_nearby(self, x: Tensor, polylines: Tensor, mask: Tensor) -> Tensor:
        """Attention of each query [R, K, C, d] to its own few keys [R, K, C, J + 1, d].

        Written as plain products: the fused attention of torch is slow for thousands of short sequences.
        """
        query = self.look.query(x).unflatten(-1, (_HEADS, -1))[:, :, :, None]  # [R, K, C, 1, h, e]
        # Keys and values: [R, K, C, J + 1, h, e].
        key, value = self.look.key_value(polylines).unflatten(-1, (2, _HEADS, -1)).unbind(dim=-3)
        score = (query * key).sum(dim=-1) / key.shape[-1] ** 0.5
        share = score.masked_fill(~mask[..., None], -torch.inf).softmax(dim=3)  # [R, K, C, J + 1, h]
        return self.look.out((share[..., None] * value).sum(dim=3).flatten(-2))


def _zero_initialised(layer: nn.Linear) -> nn.Linear:
    """A layer whose output is zero before training."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def squared_distances_to_polylines(points: Float[Tensor, "R Q 2"], polylines: MapPolylines) -> Float[Tensor, "R Q M"]:
    """Squared distance in m^2 from each point to the nearest vertex of each polyline, to a few cm^2 within 100 m.

    By |p - v|^2 = |p|^2 - 2 p v + |v|^2: a matrix product and one pass over all pairs, where differences take five.
    """
    vertices = polylines.points_m.transpose(1, 2).flatten(1, 2)  # [R, P * M, 2]
    with_square = torch.cat([-2 * vertices, vertices.square().sum(dim=-1, keepdim=True)], dim=-1)
    pairs = functional.pad(points, (0, 1), value=1.0) @ with_square.mT  # [R, Q, P * M]
    shape = (*points.shape[:2], polylines.points_m.shape[2], polylines.points_m.shape[1])
    nearest = pairs.view(shape).amin(dim=2)
    return (nearest + points.square().sum(dim=-1, keepdim=True)).clamp_(min=0)


@torch.no_grad()
def nearest_polylines(
    points: Float[Tensor, "R Q 2"], polylines: MapPolylines
) -> tuple[Int[Tensor, "R Q J"], Bool[Tensor, "R Q J"]]:
    """Indices of the lanes and road edges nearest to each point, and which of these are present."""
    nearest, count = squared_distances_to_polylines(points, polylines), polylines.points_m.shape[1]
    nearest = nearest + TIE_BREAK_M2 * torch.arange(count, device=points.device)  # consecutive polylines share a point
    chosen, present = [], []
    for mask, wanted in ((polylines.is_lane, _NEAREST_LANES), (polylines.is_edge, _NEAREST_EDGES)):
        distance = nearest.masked_fill(~mask[:, None], torch.inf)
        value, index = distance.topk(min(wanted, count), largest=False)
        chosen.append(index)
        present.append(value.isfinite())
    return torch.cat(chosen, dim=-1), torch.cat(present, dim=-1)


def rotate_into_frame(vector: Float[Tensor, "*n 2"], ahead: Float[Tensor, "*m 2"]) -> tuple[Tensor, Tensor]:
    """Components of vectors ahead and to the left, in the frame with this unit vector ahead."""
    x, y = vector.unbind(dim=-1)
    ahead_x, ahead_y = ahead.unbind(dim=-1)
    return x * ahead_x + y * ahead_y, y * ahead_x - x * ahead_y
