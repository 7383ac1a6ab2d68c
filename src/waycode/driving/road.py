"""`Road`: the part of an agent's surroundings that stays constant during a scenario."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving.path import Path, is_red, stop_points_on
from waycode.driving.road_surface import DrivableArea
from waycode.driving.route import end_of, lanes_ahead, path_on
from waycode.driving.vehicle import Vehicle, VehicleState
from waycode.scene import MapFeatures, Scene, TrackType
from waycode.scene.frames import wrap_angle

STOP_LINE_MARGIN_M = 0.5  # a bumper this far over the stop line still counts as waiting
_SAME_ROAD_M, _SAME_ROAD_RAD = 50.0, np.radians(30)  # vehicles this near, in this direction, use the ego's road


@dataclass(frozen=True, kw_only=True)
class Road:
    """The path along an agent's route with target speeds and stop lines, and the drivable area around it."""

    map: MapFeatures  # for the drivable area
    path: Path  # along the route; P points
    speed_mps: Float[np.ndarray, " P"]  # target speed at each point: the limit, less in bends and before them
    stop_m: Float[np.ndarray, " G"]  # arclength of each signal's stop line along the path
    is_on_path: Bool[np.ndarray, " G"]  # whether the signal controls this path
    end_m: float = np.inf  # arclength at which the route or the known map ends; the path goes on straight beyond it

    @staticmethod
    def ahead_of(scene: Scene, state: VehicleState, *, vehicle: Vehicle, fallback_mps: float) -> "Road":
        """The road from a vehicle's state along the scene's route.

        Args:
            scene: the scene with map, signals and, if known, a route.
            state: the vehicle that will drive, a single one.
            vehicle: its dimensions.
            fallback_mps: target speed where no limit is known; the highest speed observed on the same road if that
                is higher.
        """
        position_m, heading_rad = state.centre_m(vehicle)[0], float(state.heading_rad[0])
        chain = lanes_ahead(scene, position_m=position_m, heading_rad=heading_rad)
        path = path_on(
            scene.map.lanes, chain, position_m=position_m, heading_rad=heading_rad, speed_mps=float(state.speed_mps[0])
        )
        end = end_of(scene, chain)
        stop_m, is_on_path = stop_points_on(path, scene.signals, scene.map.lanes)
        usual_mps = max(fallback_mps, _fastest_on_road_mps(scene, state))
        return Road(
            map=scene.map,
            path=path,
            speed_mps=path.speed_profile(fallback_mps=usual_mps),
            stop_m=stop_m,
            is_on_path=is_on_path,
            end_m=np.inf if end is None else float(path.project(end)[0]),
        )

    @cached_property
    def drivable(self) -> DrivableArea | None:
        """The drivable area of the whole map; None if the map has neither areas nor lanes."""
        return DrivableArea.of(self.map)

    def red_stop_m(self, scene: Scene) -> Float[np.ndarray, " r"]:
        """Arclengths of the stop lines along the path whose light is red at the scene's current step."""
        return self.stop_m[self.is_on_path & is_red(scene.signals, scene.current_step)]

    def stops_m(self, scene: Scene) -> Float[np.ndarray, " r"]:
        """Arclengths along the path at which a vehicle has to stop now: red lights, and the end of the route."""
        return np.append(self.red_stop_m(scene), self.end_m)


def _fastest_on_road_mps(scene: Scene, state: VehicleState) -> float:
    """The highest speed so far of vehicles, the ego included, near it and in its direction."""
    tracks, now = scene.tracks, scene.current_step
    distance = np.linalg.norm(tracks.position_m - state.rear_axle_m[0], axis=-1)
    turned = np.abs(wrap_angle(tracks.heading_rad - state.heading_rad[0]))
    observed = tracks.valid & (distance < _SAME_ROAD_M) & (turned < _SAME_ROAD_RAD)
    observed &= (tracks.types == TrackType.VEHICLE)[:, None]
    return float(tracks.speed_mps[:, : now + 1].max(initial=0.0, where=observed[:, : now + 1]))
