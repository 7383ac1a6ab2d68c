"""IDM drives along a route's path, at several offsets and speeds at once. K proposals, J others, T steps."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import IdmConfig, Observation, Path, Reference, Trajectory, Vehicle, idm_acceleration, route_path
from waycode.driving.forecast import Forecast, OnPath, along_path
from waycode.driving.path import is_red, stop_points_on
from waycode.driving.vehicle import forward
from waycode.scene import TrackType
from waycode.scene.frames import wrap_angle

STOP_LINE_MARGIN_M = 0.5  # a bumper so little over the line still waits
THIS_WAY_M, THIS_WAY_RAD = 50.0, np.radians(30)  # who drives so near and in about the same direction is on our road


@dataclass(frozen=True, kw_only=True)
class Way:
    """Where a scenario's route leads: found at its first step, then remembered."""

    path: Path
    speed_mps: Float[np.ndarray, " P"]  # how fast to drive at each point of the path
    stop_m: Float[np.ndarray, " G"]  # the lights' stop points along the path
    stops: Bool[np.ndarray, " G"]  # which of them are on it

    @staticmethod
    def of(observation: Observation, *, fallback_mps: float) -> "Way":
        """The way from here; where no limit is known one may drive at `fallback_mps`, or as fast as others do."""
        scene, ego = observation.scene, observation.ego
        path = route_path(
            scene,
            position_m=ego.centre_m(observation.vehicle)[0],
            heading_rad=float(ego.heading_rad[0]),
            speed_mps=float(ego.speed_mps[0]),
        )
        stop, stops = stop_points_on(path, scene.signals, scene.map.lanes)
        usual_mps = max(fallback_mps, _fastest_this_way_mps(observation))
        return Way(path=path, speed_mps=path.speed_profile(fallback_mps=usual_mps), stop_m=stop, stops=stops)

    def red_m(self, observation: Observation) -> Float[np.ndarray, " r"]:
        """Stop points of red lights along the path."""
        return self.stop_m[self.stops & is_red(observation.scene.signals, observation.scene.current_step)]


def _fastest_this_way_mps(observation: Observation) -> float:
    """The highest speed so far of the vehicles, the ego among them, that drive the ego's way near it."""
    tracks, now = observation.scene.tracks, observation.scene.current_step
    away = np.linalg.norm(tracks.position_m - observation.ego.rear_axle_m[0], axis=-1)
    turned = np.abs(wrap_angle(tracks.heading_rad - observation.ego.heading_rad[0]))
    seen = tracks.valid & (away < THIS_WAY_M) & (turned < THIS_WAY_RAD) & (tracks.types == TrackType.VEHICLE)[:, None]
    return float(tracks.speed_mps[:, : now + 1].max(initial=0.0, where=seen[:, : now + 1]))


def propose(
    observation: Observation,
    way: Way,
    others: Forecast,
    *,
    offset_m: Float[np.ndarray, " K"],
    speed_share: Float[np.ndarray, " K"],
    num_steps: int,
    config: IdmConfig,
) -> Reference:
    """Rear axles that follow the path at an offset, each at its share of the allowed speed, behind whoever is ahead."""
    vehicle, dt_s = observation.vehicle, observation.scene.dt_s
    on_path = along_path(others, way.path)
    blocking = on_path.blocking(offset_m, half_width_m=vehicle.width_m / 2)  # [K, J, F]
    red_m = way.red_m(observation)
    start = float(way.path.project(observation.ego.rear_axle_m)[0][0])
    along = np.full((len(offset_m), num_steps + 1), start)
    speed = np.full((len(offset_m), num_steps + 1), max(0.0, float(observation.ego.speed_mps[0])))
    for step in range(num_steps):
        at, now = along[:, step], speed[:, step]
        gap, leader_mps = _leader(at, on_path, blocking[:, :, step], step, vehicle=vehicle)
        stop = _red_gap(at, red_m, vehicle)
        leader_mps, gap = np.where(stop < gap, 0.0, leader_mps), np.minimum(gap, stop)
        wanted = speed_share * way.speed_mps[way.path.index_at(at)]
        change = idm_acceleration(now, wanted, gap_m=gap, leader_mps=leader_mps, config=config)
        along[:, step + 1] = at + dt_s * now
        speed[:, step + 1] = np.maximum(0.0, now + dt_s * change)
    position, heading = way.path.pose_at(along, np.broadcast_to(offset_m[:, None], along.shape))
    return Reference(rear_axle_m=position, heading_rad=heading, speed_mps=speed)


def trajectory_of(reference: Reference, index: int, *, vehicle: Vehicle, memory: object) -> Trajectory:
    """One of the proposals as a plan."""
    heading = reference.heading_rad[index]
    return Trajectory(
        position_m=reference.rear_axle_m[index] + vehicle.rear_axle_to_centre_m * forward(heading),
        heading_rad=heading,
        speed_mps=reference.speed_mps[index],
        memory=memory,
    )


def _leader(
    at_m: Float[np.ndarray, " K"], on_path: OnPath, blocking: Bool[np.ndarray, "K J"], step: int, *, vehicle: Vehicle
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """The gap from the front bumper to the nearest box ahead (infinite where there is none), and its speed."""
    if blocking.shape[1] == 0:
        return np.full(len(at_m), np.inf), np.zeros(len(at_m))
    ahead = blocking & (on_path.along_m[:, step] > at_m[:, None] + vehicle.rear_axle_to_centre_m)
    gap = np.where(ahead, on_path.rear_m[:, step] - at_m[:, None] - vehicle.front_m, np.inf)
    nearest = gap.argmin(axis=1)
    return gap[np.arange(len(at_m)), nearest], np.maximum(0.0, on_path.speed_mps[nearest, step])


def _red_gap(
    at_m: Float[np.ndarray, " K"], red_m: Float[np.ndarray, " r"], vehicle: Vehicle
) -> Float[np.ndarray, " K"]:
    """The gap from the front bumper to the next red light's stop point: a standing obstacle."""
    gap = red_m[None] - at_m[:, None] - vehicle.front_m
    return np.where(gap > -STOP_LINE_MARGIN_M, gap, np.inf).min(axis=1, initial=np.inf)
