"""A planner for nuplan-devkit that calls a `waycode.driving.Driver` at every step."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from nuplan.common.actor_state.ego_state import EgoState as NuplanEgoState
from nuplan.common.actor_state.state_representation import StateSE2, StateVector2D, TimePoint
from nuplan.planning.simulation.observation.observation_type import DetectionsTracks, Observation
from nuplan.planning.simulation.planner.abstract_planner import AbstractPlanner, PlannerInitialization, PlannerInput
from nuplan.planning.simulation.trajectory.abstract_trajectory import AbstractTrajectory
from nuplan.planning.simulation.trajectory.interpolated_trajectory import InterpolatedTrajectory

from waycode.driving import Driver, Trajectory, Vehicle
from waycode.driving import Observation as Seen
from waycode.driving.trajectory import trajectory_fault
from waycode.scene import Scene
from waycode.simulation.drivers import LatentDriver
from waycode.simulation.drivers.latent import loaded_planner
from waycode.simulation.errors import SimulationError
from waycode.simulation.nuplan.map_api import city_around
from waycode.simulation.nuplan.observing import Light, ego_of, vehicle_of, window_of
from waycode.sources.nuplan.crop import CroppedMap, crop_map
from waycode.sources.nuplan.log import NUPLAN_STEP_S, LogWindow
from waycode.sources.nuplan.maps import CityMap
from waycode.sources.nuplan.tracks import signals_of, world_tracks

_LEAST_HORIZON_S = 8.0  # nuPlan's open-loop metrics compare plans at up to 8 s, and fail a scenario of shorter ones
_LEAST_SPEED_MPS = 1.0  # lower bound of the speed when a steering angle is computed from a yaw rate


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The cropped map around the ego, used until the ego has moved by `map_renewed_m`."""

    city: CityMap
    cropped: CroppedMap  # in the scene frame
    origin_m: tuple[float, float]  # of the scene frame, in world coordinates: the middle of the crop


class WaycodePlanner(AbstractPlanner):  # type: ignore[misc]
    """Latent token search, or any other driver, in nuPlan's closed loop.

    nuPlan creates a planner per scenario, so it has state: the traffic lights observed so far, the map around the ego,
    and the driver's state.
    """

    def __init__(
        self,
        model: str = "sumo-small",
        map_radius_m: float = 150.0,
        map_renewed_m: float = 75.0,
        history_s: float = 2.0,
        planner: Driver[Any] | None = None,
    ) -> None:
        """Parameters of the planner.

        Args:
            model: bundled name, model folder or run folder.
            map_radius_m: half the width of the square map around the ego.
            map_renewed_m: distance after which the map is cropped anew and the driver is reset.
            history_s: duration of the history that the driver observes.
            planner: a driver to use instead of latent token search with `model`.
        """
        if not 0 < map_renewed_m < map_radius_m:
            raise SimulationError(
                f"map_renewed_m is {map_renewed_m} and map_radius_m is {map_radius_m}, "
                "expected 0 < map_renewed_m < map_radius_m"
            )
        self._model, self._planner = model, planner
        self._map_radius_m, self._map_renewed_m = map_radius_m, map_renewed_m
        self._num_steps = round(history_s / NUPLAN_STEP_S) + 1
        self._roadblocks: tuple[int, ...] = ()
        self._lights: list[Light] = []
        self._around: Surroundings | None = None
        self._state: Any = None  # of the driver
        self._is_reset = False  # whether `_state` is valid: None may be a state

    def name(self) -> str:
        return type(self).__name__

    def observation_type(self) -> type[Observation]:
        return DetectionsTracks

    def initialize(self, initialization: PlannerInitialization) -> None:
        """Loads the model and stores the map API and the route."""
        if self._planner is None:
            # Loaded before the first plan, and kept for the next scenarios of this process.
            self._planner = LatentDriver(planner=loaded_planner(self._model))
        self._lights, self._around, self._is_reset = [], None, False
        self._map_api = initialization.map_api
        # A log without a route has the text "None", or no text.
        self._roadblocks = tuple(int(name) for name in initialization.route_roadblock_ids if name.isdigit())

    def compute_planner_trajectory(self, current_input: PlannerInput) -> AbstractTrajectory:
        """The plan from the latest state of the history on, at the rear axle."""
        if self._planner is None:
            raise SimulationError("WaycodePlanner has no driver: call initialize before compute_planner_trajectory")
        state = current_input.history.ego_states[-1]
        window = self._window(current_input)
        around = self._surroundings_of(state)
        seen = Seen(
            scene=self._scene(window, around),
            ego=ego_of(state, around.origin_m),
            vehicle=vehicle_of(state),
        )
        if not self._is_reset:
            self._state, self._is_reset = self._planner.reset(seen), True
        plan, self._state = self._planner.plan(self._state, seen)
        fault = trajectory_fault(plan)
        if fault is not None:
            raise SimulationError(f"at {state.time_us} us {fault}")
        return to_nuplan(plan, state, origin_m=around.origin_m, vehicle=seen.vehicle)

    def _window(self, current_input: PlannerInput) -> LogWindow:
        """The history as the window of a log. nuPlan passes current traffic lights only; earlier ones are kept here."""
        history = current_input.history
        now_us = history.ego_states[-1].time_us
        shown = current_input.traffic_light_data or ()
        self._lights = [light for light in self._lights if now_us - light[0] < self._num_steps * NUPLAN_STEP_S * 1e6]
        self._lights += [(now_us, int(light.lane_connector_id), light.status.name) for light in shown]
        return window_of(
            history.ego_states,
            history.observations,
            lights=self._lights,
            num_steps=self._num_steps,
            roadblocks=self._roadblocks,
        )

    def _surroundings_of(self, state: Any) -> Surroundings:
        """The map around the ego. A new crop changes lane indices and the scene frame, so it resets the driver."""
        place_m = np.array([state.rear_axle.x, state.rear_axle.y], np.float64)
        around = self._around
        if around is None or np.linalg.norm(place_m - np.array(around.origin_m)) > self._map_renewed_m:
            origin_m = (float(np.round(place_m[0])), float(np.round(place_m[1])))
            city = city_around(self._map_api, place_m, radius_m=self._map_radius_m)
            cropped = crop_map(city, place_m[None], radius_m=self._map_radius_m, origin_m=origin_m)
            around = Surroundings(city=city, cropped=cropped, origin_m=origin_m)
            self._around, self._is_reset = around, False
        return around

    def _scene(self, window: LogWindow, around: Surroundings) -> Scene:
        """The history as a scene that ends now."""
        return Scene(
            id="nuplan",
            source="nuplan",
            dt_s=NUPLAN_STEP_S,
            current_step=window.num_steps - 1,
            origin_m=around.origin_m,
            tracks=world_tracks(window).in_scene_frame(around.origin_m),
            map=around.cropped.features,
            signals=signals_of(window, around.cropped, around.origin_m),
            route=around.cropped.route(around.city, window.roadblocks),
        )


def to_nuplan(
    plan: Trajectory, state: Any, *, origin_m: tuple[float, float], vehicle: Vehicle
) -> InterpolatedTrajectory:
    """Converts a plan to nuPlan's trajectory: rear axles in world coordinates, a state every `NUPLAN_STEP_S`.

    A plan of less than 8 s goes straight on at its last speed.

    Args:
        plan: the driver's plan, in the scene frame.
        state: the devkit's current ego state.
        origin_m: origin of the scene frame in world coordinates.
        vehicle: the ego's dimensions.
    """
    reference = plan.at_rear_axle(vehicle).going_on(round(_LEAST_HORIZON_S / NUPLAN_STEP_S) + 1, dt_s=NUPLAN_STEP_S)
    position_m = reference.position_m + np.array(origin_m)
    heading, speed = np.unwrap(reference.heading_rad), reference.speed_mps
    acceleration, yaw_rate = np.gradient(speed, NUPLAN_STEP_S), np.gradient(heading, NUPLAN_STEP_S)
    steering = np.arctan(vehicle.wheelbase_m * yaw_rate / np.maximum(np.abs(speed), _LEAST_SPEED_MPS))
    return InterpolatedTrajectory(
        [
            NuplanEgoState.build_from_rear_axle(
                rear_axle_pose=StateSE2(float(position_m[i, 0]), float(position_m[i, 1]), float(heading[i])),
                rear_axle_velocity_2d=StateVector2D(float(speed[i]), 0.0),
                rear_axle_acceleration_2d=StateVector2D(float(acceleration[i]), 0.0),
                tire_steering_angle=float(steering[i]),
                time_point=TimePoint(state.time_us + round(i * NUPLAN_STEP_S * 1e6)),
                vehicle_parameters=state.car_footprint.vehicle_parameters,
                angular_vel=float(yaw_rate[i]),
            )
            for i in range(len(reference))
        ]
    )
