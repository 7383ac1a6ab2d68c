"""What the ego did in the log: the ceiling for a planner, and the test of a metric. n recorded, T planned steps."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from waycode.driving import Observation, Trajectory
from waycode.driving.vehicle import forward
from waycode.scene import Scene, WaycodeError
from waycode.scene.geometry import arclengths, interpolate, project

NEARBY_STEPS = 30  # a car is on the piece of the log around now, and not where the log comes by once more
CATCHING_UP_S = 2.0


class ReplayError(WaycodeError):
    """A log that cannot be replayed."""


@dataclass(frozen=True)
class LogReplay:
    """Plans the recorded future of one scene's ego; unlike every other planner it knows the log.

    A tracker is always a little late. Were its reference where the log is now, it would also turn with the log and not
    where the road does: so a plan begins beside the car, keeps to the log's path and catches up along it.
    """

    log: Scene
    horizon_s: float = 4.0

    def __post_init__(self) -> None:
        if self.log.tracks.ego_index is None:
            raise ReplayError(f"scene {self.log.id!r} has no ego to replay")

    def plan(self, observation: Observation) -> Trajectory:
        """The log's poses from beside the car on; where the log ends, straight on."""
        scene = observation.scene
        if scene.id != self.log.id:
            raise ReplayError(f"the log of scene {self.log.id!r} cannot be replayed in scene {scene.id!r}")
        way, time_s = self._way, np.arange(round(self.horizon_s / scene.dt_s) + 1) * scene.dt_s
        planned = way.travelled_at(scene.current_step + np.arange(len(time_s)))
        late = planned[0] - way.nearest(observation.ego.centre_m(observation.vehicle), step=scene.current_step)
        planned = planned - late * np.maximum(0.0, 1 - time_s / CATCHING_UP_S)
        position, heading = way.poses_at(np.maximum.accumulate(planned))  # who is early waits
        speed = (np.gradient(position, scene.dt_s, axis=0) * forward(heading)).sum(axis=-1)
        return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed)

    @cached_property
    def _way(self) -> "_Way":
        tracks, ego = self.log.tracks, self.log.tracks.ego_index
        seen = np.flatnonzero(tracks.valid[ego])
        points = tracks.position_m[ego, seen].astype(np.float64)
        heading = np.unwrap(tracks.heading_rad[ego, seen].astype(np.float64))
        return _Way(points_m=points, heading_rad=heading, travelled_m=arclengths(points), steps=seen)


@dataclass(frozen=True, kw_only=True)
class _Way:
    """The path that was recorded."""

    points_m: Float[np.ndarray, "n 2"]
    heading_rad: Float[np.ndarray, " n"]
    travelled_m: Float[np.ndarray, " n"]
    steps: Int[np.ndarray, " n"]  # at which the points were recorded

    def travelled_at(self, steps: Int[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
        """How far the log is at these steps; beyond its end it goes on as fast as it was."""
        last_m = self.travelled_m[-1] - self.travelled_m[-2] if len(self.steps) > 1 else 0.0
        return np.interp(steps, self.steps, self.travelled_m) + last_m * np.maximum(0, steps - self.steps[-1])

    def nearest(self, centre_m: Float[np.ndarray, "1 2"], *, step: int) -> float:
        """How far along the path a car is that is about where the log is at a step."""
        near = np.flatnonzero(np.abs(self.steps - min(step, int(self.steps[-1]))) <= NEARBY_STEPS)
        if len(near) < 2:
            return float(self.travelled_m[near[0]])
        return float(self.travelled_m[near[0]] + project(centre_m, self.points_m[near])[0][0])

    def poses_at(
        self, travelled_m: Float[np.ndarray, " T"]
    ) -> tuple[Float[np.ndarray, "T 2"], Float[np.ndarray, " T"]]:
        """Where the path is after these distances, and its heading; straight on beyond its end."""
        heading = np.interp(travelled_m, self.travelled_m, self.heading_rad)
        beyond = np.maximum(0.0, travelled_m - self.travelled_m[-1])
        return interpolate(self.points_m, travelled_m) + beyond[:, None] * forward(heading), heading
