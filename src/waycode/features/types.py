"""Scenes as tensors: padded, masked, every map segment and road user in a frame of its own.

Axes: B scenes, S map segments, P points of a segment, N road users, H history steps, A modelled agents, T future steps.

Nothing in `SceneFeatures` depends on which agent is modelled: segments and tracks are described in their own frames,
with the pose of each frame in the scene frame. The model computes poses relative to the agent of interest.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from waycode.scene import EdgeType, LaneType, LineType, SignalState, TrackType


class SegmentKind(IntEnum):
    """First index of each kind of map segment; lanes, road lines and road edges have one index per type."""

    LANE = 0
    ROAD_LINE = len(LaneType)
    ROAD_EDGE = len(LaneType) + len(LineType)
    CROSSWALK = len(LaneType) + len(LineType) + len(EdgeType)
    SPEED_BUMP = len(LaneType) + len(LineType) + len(EdgeType) + 1
    DRIVEWAY = len(LaneType) + len(LineType) + len(EdgeType) + 2
    STOP_SIGN = len(LaneType) + len(LineType) + len(EdgeType) + 3


NUM_SEGMENT_KINDS = SegmentKind.STOP_SIGN + 1
NUM_TRACK_KINDS = max(TrackType) + 1
NUM_SIGNAL_STATES = len(SignalState) + 1  # 0: no traffic light
HISTORY_CHANNELS = 7  # x, y, cos heading, sin heading, vx, vy, observed
VELOCITY_CHANNELS = slice(4, 6)  # vx, vy of these


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """Sizes and distances of the tensors of a scene."""

    points_per_segment: int = 10  # of every map segment, evenly spaced
    segment_length_m: float = 18.0  # at most; polylines are split into segments of equal length
    history_steps: int = 11  # including the current step
    future_steps: int = 80
    dt_s: float = 0.1
    max_distance_m: float = 150.0  # map and road users farther than this from every modelled agent are left out

    def __post_init__(self) -> None:
        if self.points_per_segment < 2 or self.history_steps < 1 or self.future_steps < 1:
            raise ValueError(f"{self}: expected at least 2 points, 1 history step and 1 future step")
        if not all(value > 0 for value in (self.segment_length_m, self.dt_s, self.max_distance_m)):
            raise ValueError(f"{self}: expected a segment length, a time step and a distance above 0")


AnyTensors = TypeVar("AnyTensors", bound="_Tensors")


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """A dataclass of tensors, or of such dataclasses."""

    def to(self: AnyTensors, device: torch.device | str) -> AnyTensors:  # beartype does not support Self here
        return replace(self, **{one.name: getattr(self, one.name).to(device) for one in fields(self)})


@dataclass(frozen=True, kw_only=True)
class SceneFeatures(_Tensors):
    """Map, traffic lights and road users at the current step."""

    segment_points_m: Float[Tensor, "B S P 2"]  # in the segment's frame: origin in its middle, x along it
    segment_kind: Int[Tensor, "B S"]  # see `SegmentKind`
    segment_signal: Int[Tensor, "B S"]  # `SignalState` of the lane's traffic light plus 1; 0 without a light
    segment_speed_limit: Float[Tensor, "B S"]  # m/s; 0 where unknown
    segment_pose: Float[Tensor, "B S 3"]  # x, y, heading in the scene frame
    segment_mask: Bool[Tensor, "B S"]  # False for padding, as all masks
    track_history: Float[Tensor, "B N H 7"]  # in the track's frame at the current step, see `HISTORY_CHANNELS`
    track_size_m: Float[Tensor, "B N 2"]  # length, width
    track_kind: Int[Tensor, "B N"]  # `TrackType`
    track_pose: Float[Tensor, "B N 3"]  # x, y, heading at the current step
    track_mask: Bool[Tensor, "B N"]


@dataclass(frozen=True, kw_only=True)
class Agents(_Tensors):
    """The road users that are modelled."""

    track: Int[Tensor, "B A"]  # index into the tracks of `SceneFeatures`
    mask: Bool[Tensor, "B A"]
    reachability: Float[Tensor, "B A S"]  # of segments: 1 for lanes reached by following the agent's lane,
    # 1/2 if lane changes are needed, else 0


@dataclass(frozen=True, kw_only=True)
class Batch(_Tensors):
    """Scenes, their modelled agents and the recorded futures of these: the input of a training step."""

    scene: SceneFeatures
    agents: Agents
    future_m: Float[Tensor, "B A T 2"]  # recorded positions, each in its agent's frame at the current step
    future_valid: Bool[Tensor, "B A T"]
    # Weight by which a mean over the drawn agents estimates that over all recorded ones; 0 for alternative futures.
    importance: Float[Tensor, "B A"]
