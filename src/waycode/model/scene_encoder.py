"""The scene encoder: local attention over map segments and road users, around each modelled agent.

Every segment and track is embedded once per scene, in its own frame; only its relative pose depends on the agent.
R rows are the modelled agents of all scenes, in order. S scene tokens per row (segments and road users).

Attribute names of modules are the names of parameters in saved models: renaming one breaks every saved model.
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

LOOK_AHEAD_S = 6.0  # scene tokens are selected around the path that the agent covers in this time
_POINT_SCALE_M, _SPEED_SCALE_MPS, _POSITION_SCALE_M = 10.0, 10.0, 30.0  # bring the inputs to the order of 1
_POSE_CHANNELS = 7  # x, y, cos, sin, log distance, is the agent itself, reachability


@dataclass(frozen=True, kw_only=True)
class MapPolylines:
    """Shapes of the map segments among the scene tokens, in the agent's frame; zero for road users."""

    points_m: Float[Tensor, "R S P 2"]
    is_lane: Bool[Tensor, "R S"]
    is_edge: Bool[Tensor, "R S"]
    reachability: Float[Tensor, "R S"]  # as in `Agents`


@dataclass(frozen=True, kw_only=True)
class SceneTokens:
    """Output of the scene encoder: the scene around each modelled agent."""

    tokens: Float[Tensor, "R S d"]
    mask: Bool[Tensor, "R S"]  # true for tokens that are present
    map: MapPolylines
    velocity_mps: Float[Tensor, "R 2"]  # of the agent, in its own frame; the decoder starts from it


class SceneEncoder(nn.Module):
    """Transformer over the map segments and road users nearest to each modelled agent."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, features = config.width, config.features
        segment_inputs = 2 * features.points_per_segment + NUM_SEGMENT_KINDS + NUM_SIGNAL_STATES + 1
        track_inputs = HISTORY_CHANNELS * features.history_steps + NUM_TRACK_KINDS + 2
        self.embed_segment = mlp(segment_inputs, 2 * width, width)
        self.embed_track = mlp(track_inputs, 2 * width, width)
        self.embed_place = mlp(_POSE_CHANNELS, width, width)
        self.layers = nn.ModuleList([_SceneLayer(config) for _ in range(config.scene_layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, scene: SceneFeatures, agents: Agents) -> SceneTokens:
        embedded = torch.cat([self._embed_segments(scene), self._embed_tracks(scene)], dim=1)  # [B, all tokens, d]
        poses = torch.cat([scene.segment_pose, scene.track_pose], dim=1)
        present = torch.cat([scene.segment_mask, scene.track_mask], dim=1)
        scene_of_row, slot = agents.mask.nonzero(as_tuple=True)  # [R]
        track_of_row = agents.track[scene_of_row, slot]
        agent_pose = scene.track_pose[scene_of_row, track_of_row]
        agent_token = scene.segment_mask.shape[1] + track_of_row
        velocity = scene.track_history[scene_of_row, track_of_row, -1][:, VELOCITY_CHANNELS]  # [R, 2]
        count = self.config.max_scene_tokens
        chosen, mask = nearest_tokens(
            poses[scene_of_row], present[scene_of_row], agent_token, velocity_mps=velocity, count=count
        )  # [R, S]
        flat = scene_of_row[:, None] * poses.shape[1] + chosen  # [R, S], index into all tokens of the batch
        pose = poses.flatten(0, 1)[flat]  # [R, S, 3]
        relative_pose = to_agent_frame(pose, agent_pose)
        is_agent = chosen == agent_token[:, None]
        per_token = functional.pad(agents.reachability, (0, scene.track_mask.shape[1]))  # road users: 0
        reachability = per_token[scene_of_row, slot].gather(1, chosen)
        place = relative_pose_features(relative_pose, is_agent, reachability)
        x = embedded.flatten(0, 1)[flat] + self.embed_place(place)  # [R, S, d]
        local = None if self.config.neighbours is None else nearest_neighbours(pose, mask, self.config.neighbours)
        attention_mask = mask[:, None, None] if local is None else local[:, None]  # [R, 1, 1 or S, S]
        for layer in self.layers:
            x = layer(x, attention_mask)
        polylines = _map_polylines(scene, flat, mask, relative_pose, reachability)
        return SceneTokens(tokens=self.norm(x), mask=mask, map=polylines, velocity_mps=velocity)

    def _embed_segments(self, scene: SceneFeatures) -> Float[Tensor, "B segments d"]:
        kind = functional.one_hot(scene.segment_kind, NUM_SEGMENT_KINDS)
        signal = functional.one_hot(scene.segment_signal, NUM_SIGNAL_STATES)
        limit = scene.segment_speed_limit[..., None] / _SPEED_SCALE_MPS
        points = scene.segment_points_m.flatten(-2) / _POINT_SCALE_M
        return self.embed_segment(torch.cat([points, kind.to(points), signal.to(points), limit], dim=-1))

    def _embed_tracks(self, scene: SceneFeatures) -> Float[Tensor, "B tracks d"]:
        scale = scene.track_history.new_tensor(
            [_POINT_SCALE_M, _POINT_SCALE_M, 1, 1, _SPEED_SCALE_MPS, _SPEED_SCALE_MPS, 1]
        )
        history = (scene.track_history / scale).flatten(-2)
        kind = functional.one_hot(scene.track_kind, NUM_TRACK_KINDS).to(history)
        return self.embed_track(torch.cat([history, kind, scene.track_size_m / _POINT_SCALE_M], dim=-1))


class _SceneLayer(nn.Module):
    """x + attention(x) + feed_forward(x), each token attending to its neighbours."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.attend = Attention(config.width, config.heads)
        self.feed_forward = FeedForward(config.width, config.feed_forward)

    def forward(self, x: Float[Tensor, "R S d"], mask: Bool[Tensor, "R 1 _ S"]) -> Float[Tensor, "R S d"]:
        normed = self.norm(x)
        x = x + self.attend(normed, *self.attend.keys_and_values(normed), mask)
        return x + self.feed_forward(x)


def _map_polylines(
    scene: SceneFeatures,
    chosen: Int[Tensor, "R S"],
    mask: Bool[Tensor, "R S"],
    relative_pose: Float[Tensor, "R S 3"],
    reachability: Float[Tensor, "R S"],
) -> MapPolylines:
    """Shapes of the chosen tokens in the agents' frames; `chosen` indexes the segments and tracks of all scenes."""
    tracks = scene.track_mask.shape[1]
    points = functional.pad(scene.segment_points_m, (0, 0, 0, 0, 0, tracks)).flatten(0, 1)[chosen]  # [R, S, P, 2]
    kind = functional.pad(scene.segment_kind, (0, tracks), value=-1).flatten()[chosen]
    ahead, left, rotation = relative_pose[..., None].unbind(dim=2)  # [R, S, 1]
    cos, sin = rotation.cos(), rotation.sin()
    x, y = points.unbind(dim=-1)  # [R, S, P]
    return MapPolylines(
        points_m=torch.stack([ahead + cos * x - sin * y, left + sin * x + cos * y], dim=-1),
        is_lane=mask & (kind >= SegmentKind.LANE) & (kind < SegmentKind.ROAD_LINE),
        is_edge=mask & (kind >= SegmentKind.ROAD_EDGE) & (kind < SegmentKind.CROSSWALK),
        reachability=reachability,
    )


def nearest_tokens(
    poses: Float[Tensor, "R n 3"],
    present: Bool[Tensor, "R n"],
    agent_token: Int[Tensor, " R"],
    *,
    velocity_mps: Float[Tensor, "R 2"],
    count: int,
) -> tuple[Int[Tensor, "R S"], Bool[Tensor, "R S"]]:
    """Selects the tokens nearest to the path ahead of each agent.

    The path ahead is the straight line that the agent covers in `LOOK_AHEAD_S` at its current velocity: a fast car
    needs the map far in front of it rather than the map beside it.

    Args:
        poses: x, y, heading of all tokens in the scene frame.
        present: true for tokens that are no padding.
        agent_token: index of the agent's own token, which always comes first.
        velocity_mps: of the agent, in its own frame.
        count: number of tokens to select.

    Returns:
        Indices of the selected tokens, and which of these are present.
    """
    agent_pose = poses[torch.arange(len(poses), device=poses.device), agent_token]
    ahead, left, _ = to_agent_frame(poses, agent_pose).unbind(dim=-1)  # [R, n]
    path = velocity_mps * LOOK_AHEAD_S  # [R, 2]
    along = (ahead * path[:, :1] + left * path[:, 1:]) / path.square().sum(dim=-1, keepdim=True).clamp(min=1e-6)
    along = along.clamp(0, 1)
    distance = torch.hypot(ahead - along * path[:, :1], left - along * path[:, 1:]).masked_fill(~present, torch.inf)
    distance = distance.scatter(1, agent_token[:, None], -1.0)
    nearest, index = distance.sort(stable=True)  # stable: padding does not change the order of equal distances
    return index[:, :count], nearest[:, :count].isfinite()


def to_agent_frame(pose: Float[Tensor, "R S 3"], agent_pose: Float[Tensor, "R 3"]) -> Float[Tensor, "R S 3"]:
    """Poses relative to each agent: metres ahead, metres to the left, heading difference (not wrapped)."""
    x, y, rotation = (pose - agent_pose[:, None]).unbind(dim=-1)  # [R, S]
    cos, sin = agent_pose[:, None, 2].cos(), agent_pose[:, None, 2].sin()
    return torch.stack([cos * x + sin * y, cos * y - sin * x, rotation], dim=-1)


def nearest_neighbours(pose: Float[Tensor, "R S 3"], mask: Bool[Tensor, "R S"], count: int) -> Bool[Tensor, "R S S"]:
    """Mask of local attention: true for the `count` nearest tokens of each token, itself included.

    Ties with the last of these are included, so that neither padding nor the order of tokens matters. For a few hundred
    tokens on a CPU, dense attention with a mask is several times faster than gathering keys and values.
    """
    x, y = pose[..., 0], pose[..., 1]
    # Not torch.cdist: its matrix product loses half a metre of precision a kilometre from the origin.
    squared = (x[:, :, None] - x[:, None]).square() + (y[:, :, None] - y[:, None]).square()
    squared = squared.masked_fill(~mask[:, None], torch.inf)
    farthest = squared.topk(min(count, pose.shape[1]), largest=False, sorted=False).values.amax(dim=-1, keepdim=True)
    near = (squared <= farthest) & mask[:, None]
    # Padding attends to itself: a softmax over nothing would be NaN.
    return near | torch.eye(pose.shape[1], dtype=torch.bool, device=pose.device)


def relative_pose_features(
    relative_pose: Float[Tensor, "R S 3"], is_agent: Bool[Tensor, "R S"], reachability: Float[Tensor, "R S"]
) -> Float[Tensor, "R S 7"]:
    """Scaled poses of tokens in the agent's frame (`to_agent_frame`), with their reachability from its lane."""
    ahead, left, rotation = relative_pose.unbind(dim=-1)  # [R, S]
    distance = torch.log1p(torch.hypot(ahead, left))
    scaled = [ahead / _POSITION_SCALE_M, left / _POSITION_SCALE_M]
    return torch.stack([*scaled, rotation.cos(), rotation.sin(), distance, is_agent.to(ahead), reachability], dim=-1)
