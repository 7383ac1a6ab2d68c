"""`Observation`, the input of a driver, and the `Driver` protocol."""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from waycode.driving.trajectory import Trajectory
from waycode.driving.vehicle import Vehicle, VehicleState
from waycode.scene import Scene

DriverState = TypeVar("DriverState")


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The world up to now. The scene ends at its current step, so it contains no future."""

    scene: Scene  # tracks and signals as simulated so far; the ego is `scene.tracks.ego_index`
    ego: VehicleState  # a single vehicle, exact; the track is rounded to float32
    vehicle: Vehicle  # the ego's dimensions

    @property
    def agent(self) -> int:
        """Index of the ego's track."""
        index = self.scene.tracks.ego_index
        if index is None:
            raise ValueError(f"the observed scene {self.scene.id!r} has no ego, expected one")
        return index


@runtime_checkable
class Driver(Protocol[DriverState]):
    """Plans at every step of a simulation.

    A driver has no hidden state. `plan` takes and returns the state within a scenario, as
    `waycode.simulation.traffic.Traffic` does.
    """

    def reset(self, observation: Observation) -> DriverState:
        """The state at the first step of a scenario."""

    def plan(self, state: DriverState, observation: Observation) -> tuple[Trajectory, DriverState]:
        """The trajectory to follow from now on, and the state for the next step."""
