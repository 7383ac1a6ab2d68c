"""What driving is made of, for planners and for simulators alike: a car, trackers, trajectories, paths, IDM.

Axes: K cars at once (a simulation has one, a planner tries many), T steps of a trajectory, P points of a path.
"""

from waycode.driving.idm import IdmConfig, idm_acceleration
from waycode.driving.observation import Driver, Observation
from waycode.driving.path import Path
from waycode.driving.route import expert_route, route_path
from waycode.driving.tracking import LqrTracker, PerfectTracker, Tracker
from waycode.driving.trajectory import Reference, Trajectory, braking
from waycode.driving.vehicle import Command, Vehicle, VehicleState, advance

__all__ = [
    "Command",
    "Driver",
    "IdmConfig",
    "LqrTracker",
    "Observation",
    "Path",
    "PerfectTracker",
    "Reference",
    "Tracker",
    "Trajectory",
    "Vehicle",
    "VehicleState",
    "advance",
    "braking",
    "expert_route",
    "idm_acceleration",
    "route_path",
]
