"""What surrounds the agent that is planned for: the lanes, road edges, route and other road users as tensors."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.errors import ObjectiveError
from waycode.objectives.reference import Reference, reference_of
from waycode.objectives.segments import Segments
from waycode.scene import Scene

# How the other road users are taken to move after the current step: at the velocity that they have, which a planner can
# know, or as recorded, which is replay: for analysis.
Others = Literal["constant-velocity", "recorded"]


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """A boxes over T steps after the current one, in the scene frame."""

    position_m: Float[Tensor, "A T 2"]
    heading_rad: Float[Tensor, "A T"]
    velocity_mps: Float[Tensor, "A T 2"]
    valid: Bool[Tensor, "A T"]
    length_m: Float[Tensor, " A"]
    width_m: Float[Tensor, " A"]

    def __len__(self) -> int:
        return len(self.position_m)

    def where(self, kept: Bool[Tensor, " A"]) -> "Boxes":
        """Those of the boxes for which `kept` is true."""
        return Boxes(**{name: values[kept] for name, values in vars(self).items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """One agent of a scene at its current step, and its surroundings; geometry is made when it is first asked for."""

    scene: Scene
    agent: int  # index of the track
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        tracks, now = self.scene.tracks, self.scene.current_step
        if not 0 <= self.agent < len(tracks):
            raise ObjectiveError(f"scene {self.scene.id!r} has no track {self.agent}: expected 0 to {len(tracks) - 1}")
        if not tracks.valid[self.agent, now]:
            raise ObjectiveError(
                f"track {self.agent} of scene {self.scene.id!r} is not observed at the current step ({now}): "
                f"available are {np.flatnonzero(tracks.valid[:, now]).tolist()}"
            )

    @property
    def agent_id(self) -> str:
        return self.scene.tracks.ids[self.agent]

    @cached_property
    def start_m(self) -> Float[Tensor, "2"]:
        """Where the agent is at the current step (the centre of its box)."""
        return self._tensor(self.scene.tracks.position_m[self.agent, self.scene.current_step])

    @property
    def start_heading_rad(self) -> float:
        return float(self.scene.tracks.heading_rad[self.agent, self.scene.current_step])

    @property
    def start_speed_mps(self) -> float:
        return float(self.scene.tracks.speed_mps[self.agent, self.scene.current_step])

    @property
    def length_m(self) -> float:
        return float(self.scene.tracks.length_m[self.agent])

    @property
    def width_m(self) -> float:
        return float(self.scene.tracks.width_m[self.agent])

    @cached_property
    def lanes(self) -> Segments:
        """The centrelines; `Segments.line` is the index of the lane."""
        return self._segments(self.scene.map.lanes.centrelines.as_list())

    @cached_property
    def lane_continues(self) -> Bool[Tensor, "L L"]:
        """Which lanes lead to each other without a lane change (see `LaneGraph.continuing`)."""
        return torch.tensor(self.scene.map.lanes.graph.continuing(), device=self.device)

    @cached_property
    def road_edges(self) -> Segments:
        return self._segments(self.scene.map.road_edges.as_list())

    @cached_property
    def route_path(self) -> Segments:
        """One path ahead of the agent, along which progress is measured (see `reference_of`)."""
        return self._segments([self._reference.path_m])

    @cached_property
    def route_lanes(self) -> Segments:
        """All lanes that follow the route equally well, and that path."""
        centrelines = self.scene.map.lanes.centrelines
        return self._segments([self._reference.path_m, *(centrelines[lane] for lane in self._reference.lanes)])

    @cached_property
    def _reference(self) -> Reference:
        return reference_of(self.scene, self.agent)

    @cached_property
    def recorded_future(self) -> tuple[Float[Tensor, "F 2"], Bool[Tensor, " F"]]:
        """The agent's own recorded positions after the current step, and which of them were observed."""
        tracks, after = self.scene.tracks, self.scene.current_step + 1
        valid = torch.tensor(tracks.valid[self.agent, after:], device=self.device)
        return self._tensor(tracks.position_m[self.agent, after:]), valid

    def others(self, motion: Others, *, num_steps: int) -> Boxes:
        """The boxes of the other road users over the next steps.

        At constant velocity: of those that are seen at the current step. Recorded: of all, where they were observed.
        """
        tracks, now = self.scene.tracks, self.scene.current_step
        others = np.arange(len(tracks)) != self.agent
        if motion == "constant-velocity":
            others &= tracks.valid[:, now]
            steps = np.full(num_steps, now)
        else:
            others &= tracks.valid[:, now + 1 : now + 1 + num_steps].any(axis=1)
            steps = np.minimum(now + 1 + np.arange(num_steps), tracks.num_steps - 1)
        at = np.ix_(others, steps)
        position, velocity = tracks.position_m[at], np.stack([tracks.vx_mps[at], tracks.vy_mps[at]], axis=-1)
        valid = tracks.valid[at] & (now + 1 + np.arange(num_steps) < tracks.num_steps)
        if motion == "constant-velocity":
            time_s = (1 + np.arange(num_steps)) * self.scene.dt_s
            position, valid = position + time_s[:, None] * velocity, tracks.valid[at]
        return Boxes(
            position_m=self._tensor(position),
            heading_rad=self._tensor(tracks.heading_rad[at]),
            velocity_mps=self._tensor(velocity),
            valid=torch.tensor(valid, device=self.device),
            length_m=self._tensor(tracks.length_m[others]),
            width_m=self._tensor(tracks.width_m[others]),
        )

    def _segments(self, polylines: list[np.ndarray]) -> Segments:
        return Segments.of(polylines, dtype=self.dtype, device=self.device)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device=self.device)
