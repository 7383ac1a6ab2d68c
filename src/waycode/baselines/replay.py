"""What the ego did in the log: the ceiling for a planner, and the test of a metric."""

from dataclasses import dataclass

import numpy as np

from waycode.driving import Observation, Trajectory
from waycode.driving.vehicle import forward
from waycode.scene import Scene, WaycodeError


class ReplayError(WaycodeError):
    """A log that cannot be replayed."""


@dataclass(frozen=True)
class LogReplay:
    """Plans the recorded future of one scene's ego; unlike every other planner it knows the log."""

    log: Scene
    horizon_s: float = 4.0

    def __post_init__(self) -> None:
        if self.log.tracks.ego_index is None:
            raise ReplayError(f"scene {self.log.id!r} has no ego to replay")

    def plan(self, observation: Observation) -> Trajectory:
        """The poses from now on; where the log ends, the last one holds."""
        scene = observation.scene
        if scene.id != self.log.id:
            raise ReplayError(f"the log of scene {self.log.id!r} cannot be replayed in scene {scene.id!r}")
        tracks, ego = self.log.tracks, self.log.tracks.ego_index
        last = int(np.flatnonzero(tracks.valid[ego])[-1])
        wanted = scene.current_step + np.arange(round(self.horizon_s / scene.dt_s) + 1)
        steps = np.minimum(wanted, last)
        heading = tracks.heading_rad[ego, steps].astype(np.float64)
        velocity = np.stack([tracks.vx_mps[ego, steps], tracks.vy_mps[ego, steps]], axis=-1).astype(np.float64)
        speed = (velocity * forward(heading)).sum(axis=-1)
        # Beyond its end the log says nothing: the ego drives straight on.
        beyond = ((wanted - steps) * scene.dt_s * speed)[:, None] * forward(heading)
        position = tracks.position_m[ego, steps].astype(np.float64) + beyond
        return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed)
