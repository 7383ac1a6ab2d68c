"""Shared by drivers, objectives, traffic and metrics: vehicles, trackers, trajectories, routes, forecasts, IDM.

Axes: K vehicles at once (a simulation has one, a planner tries many), T samples of a trajectory, P points of a path.
"""

from waycode.driving.forecast import Forecast, constant_velocity_forecast, lane_forecast, recorded_forecast
from waycode.driving.idm import IdmConfig, idm_acceleration
from waycode.driving.observation import Driver, Observation
from waycode.driving.path import Path
from waycode.driving.road import Road
from waycode.driving.route import expert_route, route_path
from waycode.driving.tracker import LqrTracker, PerfectTracker, Tracker
from waycode.driving.trajectory import Trajectory
from waycode.driving.vehicle import Command, Vehicle, VehicleState, advance

__all__ = [
    "Command",
    "Driver",
    "Forecast",
    "IdmConfig",
    "LqrTracker",
    "Observation",
    "Path",
    "PerfectTracker",
    "Road",
    "Tracker",
    "Trajectory",
    "Vehicle",
    "VehicleState",
    "advance",
    "constant_velocity_forecast",
    "expert_route",
    "idm_acceleration",
    "lane_forecast",
    "recorded_forecast",
    "route_path",
]
