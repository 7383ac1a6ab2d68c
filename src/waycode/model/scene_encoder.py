"""The environment as tokens around one agent: local attention over map segments and road users.

Every segment and track is embedded once per scene in its own frame; only where it lies depends on the agent. R rows are
the modelled agents of all scenes, one after the other.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from waycode.features.types import (
    HISTORY_CHANNELS,
    NUM_SEGMENT_KINDS,
    NUM_SIGNAL_STATES,
    NUM_TRACK_KINDS,
    VELOCITY_CHANNELS,
    Agents,
    SceneFeatures,
    SegmentKind,
)
from waycode.model.config import ModelConfig
from waycode.model.layers import Attention, FeedForward, mlp

POINT_SCALE_M, SPEED_SCALE_MPS, PLACE_SCALE_M = 10.0, 10.0, 30.0
LOOK_AHEAD_S = 6.0
PLACE_CHANNELS = 7  # x, y, cos, sin, distance, is the agent itself, leads on from its lane


@dataclass(frozen=True, kw_only=True)
class MapPieces:
    """The shapes of what an agent sees of the map, in its frame; a road user has none."""

    points_m: Float[Tensor, "R M P 2"]
    is_lane: Bool[Tensor, "R M"]
    is_edge: Bool[Tensor, "R M"]
    reach: Float[Tensor, "R M"]  # as in `Agents`


@dataclass(frozen=True, kw_only=True)
class SceneTokens:
    """What an agent sees: M tokens per row, and the agent's own speed, which the decoder starts from."""

    tokens: Float[Tensor, "R M d"]
    mask: Bool[Tensor, "R M"]
    pieces: MapPieces
    velocity_mps: Float[Tensor, "R 2"]  # in the agent's frame


class SceneEncoder(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, features = config.width, config.features
        segment_inputs = 2 * features.points_per_segment + NUM_SEGMENT_KINDS + NUM_SIGNAL_STATES + 1
        track_inputs = HISTORY_CHANNELS * features.history_steps + NUM_TRACK_KINDS + 2
        self.embed_segment = mlp(segment_inputs, 2 * width, width)
        self.embed_track = mlp(track_inputs, 2 * width, width)
        self.embed_place = mlp(PLACE_CHANNELS, width, width)
        self.layers = nn.ModuleList([_SceneLayer(config) for _ in range(config.scene_layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, scene: SceneFeatures, agents: Agents) -> SceneTokens:
        embedded = torch.cat([self._segments(scene), self._tracks(scene)], dim=1)  # [B, S + N, d]
        poses = torch.cat([scene.segment_pose, scene.track_pose], dim=1)
        present = torch.cat([scene.segment_mask, scene.track_mask], dim=1)
        scene_of_row, slot = agents.mask.nonzero(as_tuple=True)  # [R]
        track_of_row = agents.track[scene_of_row, slot]
        own_pose = scene.track_pose[scene_of_row, track_of_row]
        own_token = scene.segment_mask.shape[1] + track_of_row
        velocity = scene.track_history[scene_of_row, track_of_row, -1][:, VELOCITY_CHANNELS]  # [R, 2]
        chosen, seen = nearest_tokens(
            poses[scene_of_row],
            present[scene_of_row],
            own_token,
            velocity_mps=velocity,
            count=self.config.max_scene_tokens,
        )
        flat = scene_of_row[:, None] * poses.shape[1] + chosen  # index into all tokens of the batch
        pose = poses.flatten(0, 1)[flat]  # [R, M, 3]
        itself = chosen == own_token[:, None]
        reach = functional.pad(agents.reach, (0, scene.track_mask.shape[1]))[scene_of_row, slot].gather(1, chosen)
        x = embedded.flatten(0, 1)[flat] + self.embed_place(place(pose, own_pose, itself, reach))  # [R, M, d]
        local = None if self.config.neighbours is None else nearest_neighbours(pose, seen, self.config.neighbours)
        mask = seen[:, None, None] if local is None else local[:, None]  # [R, 1, 1 or M, M]
        for layer in self.layers:
            x = layer(x, mask)
        pieces = _pieces(scene, flat, seen, pose, own_pose, reach)
        return SceneTokens(tokens=self.norm(x), mask=seen, pieces=pieces, velocity_mps=velocity)

    def _segments(self, scene: SceneFeatures) -> Float[Tensor, "B S d"]:
        kind = functional.one_hot(scene.segment_kind, NUM_SEGMENT_KINDS)
        signal = functional.one_hot(scene.segment_signal, NUM_SIGNAL_STATES)
        limit = scene.segment_speed_limit[..., None] / SPEED_SCALE_MPS
        points = scene.segment_points_m.flatten(-2) / POINT_SCALE_M
        return self.embed_segment(torch.cat([points, kind.to(points), signal.to(points), limit], dim=-1))

    def _tracks(self, scene: SceneFeatures) -> Float[Tensor, "B N d"]:
        scale = scene.track_history.new_tensor(
            [POINT_SCALE_M, POINT_SCALE_M, 1, 1, SPEED_SCALE_MPS, SPEED_SCALE_MPS, 1]
        )
        history = (scene.track_history / scale).flatten(-2)
        kind = functional.one_hot(scene.track_kind, NUM_TRACK_KINDS).to(history)
        return self.embed_track(torch.cat([history, kind, scene.track_size_m / POINT_SCALE_M], dim=-1))


class _SceneLayer(nn.Module):
    """x + attention(x) + feed_forward(x), each token seeing its neighbours."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attend = Attention(config.width, config.heads)
        self.feed_forward = FeedForward(config.width, config.feed_forward)

    def forward(self, x: Float[Tensor, "R M d"], mask: Bool[Tensor, "R 1 _ M"]) -> Float[Tensor, "R M d"]:
        normed = self.norm(x)
        x = x + self.attend(normed, *self.attend.keys_and_values(normed), mask)
        return x + self.feed_forward(x)


def _pieces(
    scene: SceneFeatures,
    chosen: Int[Tensor, "R M"],
    seen: Bool[Tensor, "R M"],
    pose: Float[Tensor, "R M 3"],
    own_pose: Float[Tensor, "R 3"],
    reach: Float[Tensor, "R M"],
) -> MapPieces:
    """The shapes of the chosen tokens, which are indices into the map and the tracks of all scenes."""
    tracks = scene.track_mask.shape[1]
    points = functional.pad(scene.segment_points_m, (0, 0, 0, 0, 0, tracks)).flatten(0, 1)[chosen]  # [R, M, P, 2]
    kind = functional.pad(scene.segment_kind, (0, tracks), value=-1).flatten()[chosen]
    ahead, left = in_frame(pose[..., :2], own_pose)
    turned = pose[..., 2] - own_pose[:, None, 2]
    cos, sin = turned.cos()[..., None], turned.sin()[..., None]
    x, y = points.unbind(dim=-1)
    placed = torch.stack([ahead[..., None] + cos * x - sin * y, left[..., None] + sin * x + cos * y], dim=-1)
    return MapPieces(
        points_m=placed,
        is_lane=seen & (kind >= SegmentKind.LANE) & (kind < SegmentKind.ROAD_LINE),
        is_edge=seen & (kind >= SegmentKind.ROAD_EDGE) & (kind < SegmentKind.CROSSWALK),
        reach=reach,
    )


def nearest_tokens(
    poses: Float[Tensor, "R n 3"],
    present: Bool[Tensor, "R n"],
    own_token: Int[Tensor, " R"],
    *,
    velocity_mps: Float[Tensor, "R 2"],
    count: int,
) -> tuple[Int[Tensor, "R M"], Bool[Tensor, "R M"]]:
    """Indices of the tokens nearest to the agent's way ahead (itself among them), and which of them are there at all.

    The way ahead is the straight line that the agent covers in `LOOK_AHEAD_S` at its velocity (in its own frame): a
    fast car needs the map far in front of it, not the one beside it.
    """
    own_pose = poses[torch.arange(len(poses), device=poses.device), own_token]
    ahead, left = in_frame(poses[..., :2], own_pose)
    way = velocity_mps * LOOK_AHEAD_S  # [R, 2]
    along = (ahead * way[:, :1] + left * way[:, 1:]) / way.square().sum(dim=-1, keepdim=True).clamp(min=1e-6)
    along = along.clamp(0, 1)
    distance = torch.hypot(ahead - along * way[:, :1], left - along * way[:, 1:]).masked_fill(~present, torch.inf)
    distance = distance.scatter(1, own_token[:, None], -1.0)  # the agent itself before all that is in the same place
    nearest, index = distance.sort(stable=True)  # of equals the earlier, however many padded tokens come after them
    return index[:, :count], nearest[:, :count].isfinite()


def in_frame(
    position_m: Float[Tensor, "R M 2"], own_pose: Float[Tensor, "R 3"]
) -> tuple[Float[Tensor, "R M"], Float[Tensor, "R M"]]:
    """How far ahead and to the left of each agent positions lie."""
    offset = position_m - own_pose[:, None, :2]
    cos, sin = own_pose[:, 2].cos()[:, None], own_pose[:, 2].sin()[:, None]
    return cos * offset[..., 0] + sin * offset[..., 1], cos * offset[..., 1] - sin * offset[..., 0]


def nearest_neighbours(pose: Float[Tensor, "R M 3"], seen: Bool[Tensor, "R M"], count: int) -> Bool[Tensor, "R M M"]:
    """Local attention: which tokens are among the `count` nearest of each, itself one of them.

    All that are as far away as the last of these are, too: else padding or the order of tokens would choose. A mask
    for dense attention is, on a CPU and for a few hundred tokens, several times faster than gathering keys and values.
    """
    x, y = pose[..., 0], pose[..., 1]
    # Not torch.cdist: it multiplies matrices, which a kilometre from the origin costs close tokens half a metre.
    squared = (x[:, :, None] - x[:, None]).square() + (y[:, :, None] - y[:, None]).square()
    squared = squared.masked_fill(~seen[:, None], torch.inf)
    farthest = squared.topk(min(count, pose.shape[1]), largest=False, sorted=False).values.amax(dim=-1, keepdim=True)
    near = (squared <= farthest) & seen[:, None]  # a token that is not there is nobody's neighbour ...
    return near | torch.eye(pose.shape[1], dtype=torch.bool, device=pose.device)  # ... but has itself: no empty softmax


def place(
    pose: Float[Tensor, "R M 3"],
    own_pose: Float[Tensor, "R 3"],
    itself: Bool[Tensor, "R M"],
    reach: Float[Tensor, "R M"],
) -> Float[Tensor, "R M 7"]:
    """Where tokens lie and look in the agent's frame, and whether its lane leads there."""
    ahead, left = in_frame(pose[..., :2], own_pose)
    turned = pose[..., 2] - own_pose[:, None, 2]
    distance = torch.log1p(torch.hypot(ahead, left))
    return torch.stack(
        [ahead / PLACE_SCALE_M, left / PLACE_SCALE_M, turned.cos(), turned.sin(), distance, itself.to(ahead), reach],
        dim=-1,
    )
