"""Straight on at the speed of now."""

from dataclasses import dataclass

import numpy as np

from waycode.driving import Observation, Trajectory
from waycode.driving.vehicle import forward


@dataclass(frozen=True, kw_only=True)
class ConstantVelocity:
    """The plan of someone who looks at nothing."""

    horizon_s: float = 4.0

    def plan(self, observation: Observation) -> Trajectory:
        ego, dt_s = observation.ego, observation.scene.dt_s
        time_s = np.arange(round(self.horizon_s / dt_s) + 1) * dt_s
        heading = np.full(len(time_s), ego.heading_rad[0])
        speed = np.full(len(time_s), max(0.0, float(ego.speed_mps[0])))
        moved = (speed * time_s)[:, None] * forward(heading)
        position = ego.centre_m(observation.vehicle) + moved
        return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed)
