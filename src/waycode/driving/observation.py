"""What a planner sees, and what a planner is."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from waycode.driving.trajectory import Trajectory
from waycode.driving.vehicle import Vehicle, VehicleState
from waycode.scene import Scene


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The world up to now. The scene ends with its current step: there is no future in it to peek at."""

    scene: Scene  # tracks and signals as simulated so far; the ego is `scene.tracks.ego_index`
    ego: VehicleState  # one car
    vehicle: Vehicle
    memory: object = None  # of the planner's last trajectory in this scenario; None at first


@runtime_checkable
class Driver(Protocol):
    """Plans anew at every step. All it remembers is the `memory` that it puts into its trajectories."""

    def plan(self, observation: Observation) -> Trajectory:
        """Where to drive from here."""
