"""The scene encoder: one encoding of the map and the road users, shared by all modelled agents of a scene.

Every segment and track is embedded in its own frame and attends to its neighbours by their relative poses. No token
depends on the agent of interest: an agent attends to the shared tokens by their poses relative to its own. The model is
therefore invariant to motion of the whole scene, and a scene with many modelled agents is encoded once.

B scenes, A agents, R rows (the agents of all scenes, in order), S scene tokens (segments and road users), J neighbours
of a token, M map segments of a row. Attribute names of modules are the names of parameters in saved models: renaming
one breaks every saved model.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
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
from waycode.model.layers import FeedForward, RelativeAttention, mlp
from waycode.scene.geometry_torch import TIE_BREAK_M2

LOOK_AHEAD_S = 6.0  # scene tokens are selected around the path that an agent covers in this time
_POINT_SCALE_M, _SPEED_SCALE_MPS, _POSITION_SCALE_M = 10.0, 10.0, 30.0  # bring the inputs to the order of 1
_POSE_CHANNELS = 7  # x, y, asinh x, asinh y, cos, sin, log distance
_AGENT_CHANNELS = 2  # is the agent itself, reachability
_RANK_PER_M = 1e-3  # m/s that a metre counts when agents are ranked by speed: it decides between equal speeds alone


@dataclass(frozen=True, kw_only=True)
class MapPolylines:
    """Shapes of the map segments nearest to each agent, in its frame.

    M counts road users and padding too. These are neither lanes nor edges.
    """

    points_m: Float[Tensor, "R M P 2"]
    is_lane: Bool[Tensor, "R M"]
    is_edge: Bool[Tensor, "R M"]
    reachability: Float[Tensor, "R M"]  # as in `Agents`
    token: Int[Tensor, "R M"]  # index among the scene tokens of all scenes, in sequence


@dataclass(frozen=True, kw_only=True)
class SceneTokens:
    """Output of the scene encoder: the scenes, and their relations to the modelled agents."""

    tokens: Float[Tensor, "B S d"]
    mask: Bool[Tensor, "B S"]  # true for tokens that are present
    relation: Float[Tensor, "B A S p"]  # embedded poses of the tokens relative to the agents
    row: Int[Tensor, " R"]  # index of each row among the B * A agents, padding included
    agent: Float[Tensor, "R d"]  # the agent's own token
    map: MapPolylines
    velocity_mps: Float[Tensor, "R 2"]  # of the agent, in its own frame; the decoder starts from it
    # Embedded poses of the agents relative to each other. None if every agent has a code of its own: G codes are then
    # those of the R rows, otherwise (joint model) those of the B scenes.
    between: Float[Tensor, "B A A p"] | None = None
    rank: Int[Tensor, " R"] | None = None  # place of each row among the agents of its scene; None without addresses

    @property
    def num_codes(self) -> int:
        return len(self.row) if self.between is None else len(self.tokens)

    @property
    def is_agent(self) -> Bool[Tensor, "B A"]:
        """False for padding."""
        return self.by_agent(torch.ones_like(self.row, dtype=torch.float32)) > 0

    def of_rows(self, values: Shaped[Tensor, "G *rest"]) -> Shaped[Tensor, "R *rest"]:
        """Values of codes, for each agent that is decoded from them."""
        return values if self.between is None else values[self.row // self.relation.shape[1]]

    def of_codes(self, values: Float[Tensor, "R *rest"]) -> Float[Tensor, "G *rest"]:
        """The mean over the agents that are decoded from a code."""
        if self.between is None:
            return values
        count = self.is_agent.sum(dim=1).clamp(min=1).view(-1, *[1] * (values.ndim - 1))
        return self.by_agent(values).sum(dim=1) / count

    def is_addressed(self, places: Int[Tensor, " n"]) -> Bool[Tensor, "R n"] | None:
        """Whether the tokens at these places of the code are addressed to each row; None without addresses.

        Token i of a joint code is addressed to the agent with rank i modulo their number.
        """
        if self.rank is None:
            return None
        agents = self.is_agent.sum(dim=1)[self.row // self.relation.shape[1]]  # [R]
        return places % agents[:, None] == self.rank[:, None]

    def by_agent(self, values: Float[Tensor, "R *rest"]) -> Float[Tensor, "B A *rest"]:
        """Values of rows as a table of scenes and agents; zero where a scene has fewer agents."""
        shape = self.relation.shape[:2]
        if len(self.row) < shape.numel():
            values = values.new_zeros(shape.numel(), *values.shape[1:]).index_copy(0, self.row, values)
        return values.reshape(*shape, *values.shape[1:])

    def by_row(self, values: Float[Tensor, "B A *rest"]) -> Float[Tensor, "R *rest"]:
        """The inverse of `by_agent`."""
        flat = values.flatten(0, 1)
        return flat if len(self.row) == len(flat) else flat[self.row]

    def only(self, row: int) -> "SceneTokens":
        """The scene of one row, with this agent alone."""
        agents = self.relation.shape[1]
        scene, slot = divmod(int(self.row[row]), agents)
        only, alone = slice(scene, scene + 1), slice(slot, slot + 1)
        between = None if self.between is None else self.between[only, alone, alone]
        relation = self.relation[only, alone]
        part = self._part(only, slice(row, row + 1), relation, self.row.new_zeros(1), between)
        return part if self.rank is None else replace(part, rank=self.row.new_zeros(1))

    def first(self, num_scenes: int) -> "SceneTokens":
        """The first scenes, with their agents."""
        relation = self.relation[:num_scenes]
        rows = slice(int((self.row < relation.shape[:2].numel()).sum()))
        between = None if self.between is None else self.between[:num_scenes]
        return self._part(slice(num_scenes), rows, relation, self.row[rows], between)

    def _part(self, scenes: slice, rows: slice, relation: Tensor, row: Tensor, between: Tensor | None) -> "SceneTokens":
        polylines = MapPolylines(**{name: value[rows] for name, value in vars(self.map).items()})
        before = (scenes.start or 0) * self.tokens.shape[1]  # tokens of the scenes that are left out in front
        return SceneTokens(
            tokens=self.tokens[scenes],
            mask=self.mask[scenes],
            relation=relation,
            row=row,
            agent=self.agent[rows],
            map=replace(polylines, token=polylines.token - before),
            velocity_mps=self.velocity_mps[rows],
            between=between,
            rank=None if self.rank is None else self.rank[rows],
        )


class SceneEncoder(nn.Module):
    """Transformer over the map segments and road users of a scene."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        width, features, relation = config.width, config.features, config.relation_width
        segment_inputs = 2 * features.points_per_segment + NUM_SEGMENT_KINDS + NUM_SIGNAL_STATES + 1
        track_inputs = HISTORY_CHANNELS * features.history_steps + NUM_TRACK_KINDS + 2
        self.embed_segment = mlp(segment_inputs, 2 * width, width)
        self.embed_track = mlp(track_inputs, 2 * width, width)
        if config.scene_layers:
            self.embed_neighbour = mlp(_POSE_CHANNELS, relation, relation)
        self.embed_relation = mlp(_POSE_CHANNELS + _AGENT_CHANNELS, 2 * relation, relation)
        if config.joint:
            self.embed_between = mlp(_POSE_CHANNELS, 2 * relation, relation)
        self.layers = nn.ModuleList([_SceneLayer(config) for _ in range(config.scene_layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, scene: SceneFeatures, agents: Agents) -> SceneTokens:
        x = torch.cat([self._embed_segments(scene), self._embed_tracks(scene)], dim=1)  # [B, all tokens, d]
        pose = torch.cat([scene.segment_pose, scene.track_pose], dim=1)
        mask = torch.cat([scene.segment_mask, scene.track_mask], dim=1)
        num_segments, num_tracks = scene.segment_mask.shape[1], scene.track_mask.shape[1]
        kind = functional.pad(scene.segment_kind, (0, num_tracks), value=-1)
        points = functional.pad(scene.segment_points_m, (0, 0, 0, 0, 0, num_tracks))
        reachability = functional.pad(agents.reachability, (0, num_tracks))  # [B, A, all tokens]; road users: 0
        scenes = torch.arange(len(pose), device=pose.device)[:, None]
        agent_pose = scene.track_pose[scenes, agents.track]  # [B, A, 3]
        velocity = scene.track_history[scenes, agents.track, -1][..., VELOCITY_CHANNELS]  # [B, A, 2]
        agent_token = num_segments + agents.track
        distance = distance_to_path_ahead(pose, agent_pose, velocity)  # [B, A, all tokens]
        distance = distance.masked_fill(~mask[:, None], torch.inf).scatter(2, agent_token[..., None], -1.0)
        if mask.shape[1] > self.config.max_scene_tokens:
            chosen = tokens_near_agents(distance, agents.mask, self.config.max_scene_tokens)  # [B, S]
            x, pose, mask, kind, points = (part[scenes, chosen] for part in (x, pose, mask, kind, points))
            per_agent = chosen[:, None].expand(-1, agents.track.shape[1], -1)
            reachability, distance = reachability.gather(2, per_agent), distance.gather(2, per_agent)

        relative = to_frame(pose[:, None], agent_pose[:, :, None])  # [B, A, S, 3]
        is_agent = distance == -1
        own = torch.stack([is_agent.to(x), reachability * float(self.config.reachability)], dim=-1)
        relation = self.embed_relation(torch.cat([pose_features(relative), own], dim=-1))
        if len(self.layers):
            count = mask.shape[1] if self.config.neighbours is None else self.config.neighbours
            index, near = nearest_neighbours(pose, mask, count)  # [B, S, J]
            neighbour = to_frame(pose[scenes[..., None], index], pose[:, :, None])
            between = self.embed_neighbour(pose_features(neighbour))  # [B, S, J, p]
            for layer in self.layers:
                x = layer(x, index, between, near)
        x = self.norm(x)

        row = agents.mask.flatten().nonzero()[:, 0]
        between, rank = None, None
        if self.config.joint:
            others = to_frame(agent_pose[:, None], agent_pose[:, :, None])  # [B, A, A, 3]
            between = self.embed_between(pose_features(others))
            if self.config.addressed:
                rank = rank_by_speed(others, velocity, agents.mask).flatten()[row]
        polylines = _map_polylines(
            points, kind, mask, relative.flatten(0, 1)[row], reachability.flatten(0, 1)[row],
            distance.flatten(0, 1)[row], scene_of_row=row // agents.mask.shape[1], count=self.config.nearby_polylines,
        )  # fmt: skip
        agent = is_agent.flatten(0, 1)[row].to(x).argmax(dim=-1)  # [R]
        return SceneTokens(
            tokens=x, mask=mask, relation=relation, row=row, agent=x[row // agents.mask.shape[1], agent],
            map=polylines, velocity_mps=velocity.flatten(0, 1)[row], between=between,
            rank=rank,
        )  # fmt: skip

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
        self.attend = RelativeAttention(config.width, config.heads, config.relation_width)
        self.feed_forward = FeedForward(config.width, config.feed_forward)

    def forward(
        self,
        x: Float[Tensor, "B S d"],
        index: Int[Tensor, "B S J"],
        relation: Float[Tensor, "B S J p"],
        mask: Bool[Tensor, "B S J"],
    ) -> Float[Tensor, "B S d"]:
        x = x + self.attend.to_neighbours(self.norm(x), index, relation, mask)
        return x + self.feed_forward(x)


def _map_polylines(
    points_m: Float[Tensor, "B S P 2"],
    kind: Int[Tensor, "B S"],
    mask: Bool[Tensor, "B S"],
    relative: Float[Tensor, "R S 3"],
    reachability: Float[Tensor, "R S"],
    distance_m: Float[Tensor, "R S"],
    *,
    scene_of_row: Int[Tensor, " R"],
    count: int,
) -> MapPolylines:
    """The `count` map segments nearest to each agent's path ahead, in its frame."""
    nearest = distance_m.sort(dim=1, stable=True).indices[:, :count]  # [R, M]
    scenes = scene_of_row[:, None]
    ahead, left, rotation = relative.gather(1, nearest[..., None].expand(-1, -1, 3))[..., None].unbind(dim=2)
    cos, sin = rotation.cos(), rotation.sin()  # [R, M, 1]
    x, y = points_m[scenes, nearest].unbind(dim=-1)  # [R, M, P]
    kind, present = kind[scenes, nearest], mask[scenes, nearest]
    return MapPolylines(
        points_m=torch.stack([ahead + cos * x - sin * y, left + sin * x + cos * y], dim=-1),
        is_lane=present & (kind >= SegmentKind.LANE) & (kind < SegmentKind.ROAD_LINE),
        is_edge=present & (kind >= SegmentKind.ROAD_EDGE) & (kind < SegmentKind.CROSSWALK),
        reachability=reachability.gather(1, nearest),
        token=scenes * mask.shape[1] + nearest,
    )


def tokens_near_agents(
    distance_m: Float[Tensor, "B A S"], agent_mask: Bool[Tensor, "B A"], count: int
) -> Int[Tensor, "B {count}"]:
    """Indices of the `count` tokens nearest to any agent of their scene, in the order of the tokens.

    Neither the order of the distances nor padding hence changes which of equally near neighbours a token attends to.

    Args:
        distance_m: of each token from each agent; -1 for the agent's own token, infinite for padding.
        agent_mask: false for padding.
        count: at least the number of agents, as each needs its own token.
    """
    if distance_m.shape[1] > count:
        raise ValueError(
            f"got {distance_m.shape[1]} modelled agents in a scene, expected at most {count} (max_scene_tokens)"
        )
    nearest = distance_m.masked_fill(~agent_mask[..., None], torch.inf).amin(dim=1)  # [B, S]
    return nearest.sort(stable=True).indices[:, :count].sort().values


def distance_to_path_ahead(
    pose: Float[Tensor, "B S 3"], agent_pose: Float[Tensor, "B A 3"], velocity_mps: Float[Tensor, "B A 2"]
) -> Float[Tensor, "B A S"]:
    """Distance in metres from each token to the straight line that an agent covers in `LOOK_AHEAD_S`.

    A fast car needs the map far in front of it rather than the map beside it.

    Args:
        pose: x, y, heading of the tokens in the scene frame.
        agent_pose: those of the agents.
        velocity_mps: of each agent, in its own frame.
    """
    ahead, left, _ = to_frame(pose[:, None], agent_pose[:, :, None]).unbind(dim=-1)  # [B, A, S]
    x, y = (velocity_mps * LOOK_AHEAD_S)[:, :, None].unbind(dim=-1)  # [B, A, 1]
    along = ((ahead * x + left * y) / (x.square() + y.square()).clamp(min=1e-6)).clamp(0, 1)
    return torch.hypot(ahead - along * x, left - along * y)


def to_frame(pose: Float[Tensor, "*n 3"], frame: Float[Tensor, "*m 3"]) -> Float[Tensor, "*nm 3"]:
    """Poses relative to frames: metres ahead, metres to the left, heading difference (not wrapped)."""
    x, y, rotation = (pose - frame).unbind(dim=-1)
    cos, sin = frame[..., 2].cos(), frame[..., 2].sin()
    return torch.stack([cos * x + sin * y, cos * y - sin * x, rotation], dim=-1)


def rank_by_speed(
    others: Float[Tensor, "B A A 3"], velocity_mps: Float[Tensor, "B A 2"], mask: Bool[Tensor, "B A"]
) -> Int[Tensor, "B A"]:
    """The place of each agent among those of its scene, the fastest first: the same in every order and frame.

    Where speeds are equal, such as those of standing agents, the one that has the others farther ahead and to its left
    comes first.

    Args:
        others: poses of all agents relative to each.
        velocity_mps: of the agents.
        mask: false for padding, which comes last.
    """
    seen = mask[:, None, :, None].to(others)
    ahead, left, _ = ((others * seen).sum(dim=2) / seen.sum(dim=2).clamp(min=1)).unbind(dim=-1)
    key = velocity_mps.norm(dim=-1) + _RANK_PER_M * (ahead + left / 2)
    return key.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True).argsort(dim=1)


def nearest_neighbours(
    pose: Float[Tensor, "B S 3"], mask: Bool[Tensor, "B S"], count: int
) -> tuple[Int[Tensor, "B S J"], Bool[Tensor, "B S J"]]:
    """The `count` nearest tokens of each token, itself included, and which of these are present.

    Of equally distant tokens, the first ones are chosen.
    """
    x, y = pose[..., 0], pose[..., 1]
    # Not torch.cdist: its matrix product loses half a metre of precision a kilometre from the origin.
    squared = (x[:, :, None] - x[:, None]).square() + (y[:, :, None] - y[:, None]).square()
    squared = squared + TIE_BREAK_M2 * mask.cumsum(dim=1)[:, None]  # padding does not count
    squared = squared.masked_fill(~mask[:, None], torch.inf)
    nearest, index = squared.topk(min(count, pose.shape[1]), largest=False, sorted=False)
    return index, nearest.isfinite()


def pose_features(relative: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n 7"]:
    """Scaled relative poses (`to_frame`): positions in units of 30 m, and by an inverse hyperbolic sine, in metres."""
    ahead, left, rotation = relative.unbind(dim=-1)
    near = (ahead.asinh(), left.asinh())
    distance = torch.log1p(torch.hypot(ahead, left))
    far = (ahead / _POSITION_SCALE_M, left / _POSITION_SCALE_M)
    return torch.stack([*far, *near, rotation.cos(), rotation.sin(), distance], dim=-1)
