"""IDM along the centreline of the route, as nuPlan's planner of that name."""

from dataclasses import dataclass, field

import numpy as np

from waycode.baselines.proposals import Way, propose, trajectory_of
from waycode.driving import IdmConfig, Observation, Trajectory
from waycode.driving.forecast import forecast


@dataclass(frozen=True, kw_only=True)
class IdmDriver:
    """Follows the route and the car ahead; changes lanes only where the route does."""

    config: IdmConfig = field(default_factory=lambda: IdmConfig(braking_mps2=3.0))
    horizon_s: float = 4.0

    def plan(self, observation: Observation) -> Trajectory:
        way = observation.memory
        if not isinstance(way, Way):
            way = Way.of(observation, fallback_mps=self.config.fallback_speed_mps)
        num_steps = round(self.horizon_s / observation.scene.dt_s)
        proposals = propose(
            observation,
            way,
            forecast(observation, num_steps=num_steps),
            offset_m=np.zeros(1),
            speed_share=np.ones(1),
            num_steps=num_steps,
            config=self.config,
        )
        return trajectory_of(proposals, 0, vehicle=observation.vehicle, memory=way)
