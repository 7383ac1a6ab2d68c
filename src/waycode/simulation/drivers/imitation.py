"""What the model does unasked: the trajectory that it is surest of, without an objective and without a route."""

from dataclasses import dataclass

import numpy as np

from waycode.driving import Observation, Trajectory
from waycode.simulation.drivers.models import planner_of


@dataclass(frozen=True, kw_only=True)
class ImitationDriver:
    """Drives the surest code of a model, which is loaded when it is first asked (once per process)."""

    model: str = "sumo-small"

    def plan(self, observation: Observation) -> Trajectory:
        scene, ego = observation.scene, observation.ego
        (surest,) = planner_of(self.model).encode(scene).candidates(1)
        now = ego.centre_m(observation.vehicle)
        return Trajectory(
            position_m=np.concatenate([now, surest.position_in(scene).astype(np.float64)]),
            heading_rad=np.concatenate([ego.heading_rad, surest.heading_rad]),
            speed_mps=np.concatenate([np.maximum(0.0, ego.speed_mps), surest.speed_mps]),
        )
