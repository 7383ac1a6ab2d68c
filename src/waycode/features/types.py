"""Scenes as tensors: padded, masked, every piece of the map and every road user in a frame of its own.

Axes: B scenes, S map segments, P points of a segment, N road users, H history steps, A modelled agents, T future steps.

Nothing of `SceneFeatures` depends on which agent is modelled: segments and tracks are described in their own frames,
and their poses in the scene frame say where these lie. The model relates the poses to the agent of interest.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.scene import EdgeType, LaneType, LineType, SignalState, TrackType


class SegmentKind(IntEnum):
    """What a segment of the map is; painted lines, edges and lanes come in the types of the scene."""

    LANE = 0
    ROAD_LINE = len(LaneType)
    ROAD_EDGE = len(LaneType) + len(LineType)
    CROSSWALK = len(LaneType) + len(LineType) + len(EdgeType)
    SPEED_BUMP = len(LaneType) + len(LineType) + len(EdgeType) + 1
    DRIVEWAY = len(LaneType) + len(LineType) + len(EdgeType) + 2
    STOP_SIGN = len(LaneType) + len(LineType) + len(EdgeType) + 3


NUM_SEGMENT_KINDS = SegmentKind.STOP_SIGN + 1
NUM_TRACK_KINDS = max(TrackType) + 1
NUM_SIGNAL_STATES = len(SignalState) + 1  # 0 is "no light here"
HISTORY_CHANNELS = 7  # x, y, cos heading, sin heading, vx, vy, observed
VELOCITY_CHANNELS = slice(4, 6)  # vx, vy of these


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """How scenes are cut into tensors."""

    points_per_segment: int = 10
    segment_length_m: float = 18.0
    history_steps: int = 11  # the current one included
    future_steps: int = 80
    dt_s: float = 0.1
    max_distance_m: float = 150.0  # map and road users farther from every modelled agent are left out

    def __post_init__(self) -> None:
        if self.points_per_segment < 2 or self.history_steps < 1 or self.future_steps < 1:
            raise ValueError(f"{self}: expected at least 2 points, 1 history step and 1 future step")
        if not all(value > 0 for value in (self.segment_length_m, self.dt_s, self.max_distance_m)):
            raise ValueError(f"{self}: expected a segment length, a time step and a distance above 0")


AnyTensors = TypeVar("AnyTensors", bound="_Tensors")


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """A dataclass of tensors that can be moved between devices."""

    def to(self: AnyTensors, device: torch.device | str) -> AnyTensors:  # beartype knows no Self in single methods
        return replace(self, **{field.name: getattr(self, field.name).to(device) for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class SceneFeatures(_Tensors):
    """What can be seen at the current step."""

    segment_points_m: Float[Tensor, "B S P 2"]  # in the segment's frame: origin in its middle, x along it
    segment_kind: Int[Tensor, "B S"]
    segment_signal: Int[Tensor, "B S"]  # state of the light of the lane now, plus 1; 0 where there is none
    segment_speed_limit: Float[Tensor, "B S"]  # m/s; 0 where it is not known
    segment_pose: Float[Tensor, "B S 3"]  # x, y, heading in the scene frame
    segment_mask: Bool[Tensor, "B S"]
    track_history: Float[Tensor, "B N H 7"]  # in the track's frame at the current step
    track_size_m: Float[Tensor, "B N 2"]  # length, width
    track_kind: Int[Tensor, "B N"]
    track_pose: Float[Tensor, "B N 3"]
    track_mask: Bool[Tensor, "B N"]

    @property
    def num_scenes(self) -> int:
        return self.segment_mask.shape[0]


@dataclass(frozen=True, kw_only=True)
class Agents(_Tensors):
    """Which road users are modelled: indices into the tracks of `SceneFeatures`, and where their lanes lead."""

    track: Int[Tensor, "B A"]
    mask: Bool[Tensor, "B A"]
    reach: Float[Tensor, "B A S"]  # 1 for segments of lanes that follow from the agent's, 1/2 after lane changes


@dataclass(frozen=True, kw_only=True)
class Futures(_Tensors):
    """What the modelled agents then did, each in its own frame at the current step."""

    position_m: Float[Tensor, "B A T 2"]
    valid: Bool[Tensor, "B A T"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """All that a training step needs."""

    scene: SceneFeatures
    agents: Agents
    futures: Futures

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(scene=self.scene.to(device), agents=self.agents.to(device), futures=self.futures.to(device))
