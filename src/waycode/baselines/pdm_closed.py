"""PDM-Closed (Dauner et al., 2023): fifteen IDM drives along the route, simulated, scored; the best is driven.

Differences from the original: speed limits and bends ahead are seen in time, an offset proposal runs along the
centreline's arclength, and the path goes on straight where the route ends. Where the map has no drivable areas, the
road ends at its edges (`driving.drivable`); where it has no speed limits, one may drive at 15 m/s as in the original,
or as fast as anyone was seen to drive the same way nearby (`proposals.Way`).
"""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from waycode.baselines.pdm_score import TTC_STEPS, Drives, score
from waycode.baselines.proposals import Way, propose, trajectory_of
from waycode.driving import IdmConfig, LqrTracker, Observation, Reference, Tracker, Trajectory, VehicleState
from waycode.driving.forecast import Forecast, forecast
from waycode.driving.road_surface import DrivableArea


@dataclass(frozen=True, kw_only=True)
class PdmConfig:
    """PDM-Closed's numbers."""

    offsets_m: tuple[float, ...] = (0.0, 1.0, -1.0)
    speed_shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    horizon_s: float = 4.0
    idm: IdmConfig = field(
        default_factory=lambda: IdmConfig(acceleration_mps2=1.5, braking_mps2=3.0, fallback_speed_mps=15.0)
    )
    emergency_s: float = 2.0
    emergency_speed_mps: float = 5.0

    def __post_init__(self) -> None:
        if not self.offsets_m or not self.speed_shares or min(self.speed_shares) <= 0:
            raise ValueError(f"{self}: expected at least one offset and one speed share, all shares above 0")


@dataclass(frozen=True, kw_only=True)
class PdmMemory:
    """What holds for a whole scenario."""

    way: Way
    drivable: DrivableArea | None


@dataclass(frozen=True, kw_only=True)
class PdmClosed:
    """The rule-based planner that is hardest to beat in nuPlan's closed loop."""

    config: PdmConfig = field(default_factory=PdmConfig)
    tracker: Tracker = field(default_factory=LqrTracker)  # what follows the plans: nuPlan's, if nothing else is said

    def plan(self, observation: Observation) -> Trajectory:
        memory = observation.memory
        if not isinstance(memory, PdmMemory):
            way = Way.of(observation, fallback_mps=self.config.idm.fallback_speed_mps)
            features = observation.scene.map
            memory = PdmMemory(way=way, drivable=DrivableArea.of(features))
        num_steps = round(self.config.horizon_s / observation.scene.dt_s)
        others = forecast(observation, num_steps=num_steps + TTC_STEPS[-1])
        proposals = self._proposals(observation, memory.way, others, num_steps=num_steps)
        dt_s = observation.scene.dt_s
        drives = self._driven(observation, proposals, num_steps=num_steps)
        scores = score(drives, others, path=memory.way.path, drivable=memory.drivable, dt_s=dt_s)
        best = int(scores.total.argmax())
        slow = float(observation.ego.speed_mps[0]) <= self.config.emergency_speed_mps
        if slow and scores.collision_step[best] * dt_s <= self.config.emergency_s:
            stop = self.tracker.emergency_stop(observation.ego, vehicle=observation.vehicle, dt_s=dt_s)
            return replace(stop, memory=memory)
        return trajectory_of(proposals, best, vehicle=observation.vehicle, memory=memory)

    def _proposals(self, observation: Observation, way: Way, others: Forecast, *, num_steps: int) -> Reference:
        """Every offset with every share of the allowed speed; the slowest on the centreline comes first."""
        config = self.config
        return propose(
            observation,
            way,
            others,
            offset_m=np.repeat(np.array(config.offsets_m), len(config.speed_shares)),
            speed_share=np.tile(np.array(config.speed_shares), len(config.offsets_m)),
            num_steps=num_steps,
            config=config.idm,
        )

    def _driven(self, observation: Observation, proposals: Reference, *, num_steps: int) -> Drives:
        """What the car would make of each proposal."""
        start = observation.ego.repeated(len(proposals.heading_rad))
        dt_s, vehicle = observation.scene.dt_s, observation.vehicle
        after = self.tracker.follow(start, proposals, num_steps=num_steps, vehicle=vehicle, dt_s=dt_s)
        states = [start, *after]
        return Drives(
            rear_axle_m=np.stack([state.rear_axle_m for state in states], axis=1),
            heading_rad=_over_time(states, "heading_rad"),
            speed_mps=_over_time(states, "speed_mps"),
            vehicle=vehicle,
        )


def _over_time(states: list[VehicleState], name: str) -> Float[np.ndarray, "K S"]:
    return np.stack([getattr(state, name) for state in states], axis=1)
