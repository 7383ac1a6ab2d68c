"""PDM-Closed's forecast of others and its proposals along centrelines, behind what is in their corridor.

Axes: K proposals, J others, F samples of the forecast, O obstacles (others, then lanes behind red lights).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import shapely
from jaxtyping import Bool, Float, Shaped

from waycode.baselines.pdm_route import Centreline, PdmRoute
from waycode.driving import Forecast, IdmConfig, Observation, Trajectory, constant_velocity_forecast, idm_acceleration
from waycode.scene import TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners, forward

_CORRIDOR_S = 8.0  # the corridor is as long as the way at the highest target speed in this time
# The original forecasts the nearest so many of each type.
_MOST = {TrackType.VEHICLE: 50, TrackType.PEDESTRIAN: 25, TrackType.CYCLIST: 10, TrackType.OTHER: 50}


def forecast_along_heading(
    observation: Observation, *, num_steps: int, reach_m: float, every_steps: int, ignored: frozenset[str]
) -> Forecast[np.ndarray]:
    """Road users near the ego keep their speed along their heading; objects stand.

    Args:
        observation: the world now.
        num_steps: samples after the current one.
        reach_m: largest distance between the centres of the ego and of a road user.
        every_steps: boxes move at every n-th sample only, and stay in between.
        ignored: ids of tracks to leave out.
    """
    scene = observation.scene
    others = constant_velocity_forecast(scene, observation.agent, num_steps=num_steps)
    distance = np.linalg.norm(others.position_m[:, 0] - observation.ego.centre_m(observation.vehicle)[0], axis=1)
    kept = np.array([scene.tracks.ids[track] not in ignored for track in others.track], np.bool_)
    kept &= distance <= reach_m
    for kind, most in _MOST.items():
        rows = np.flatnonzero(kept & (others.types == kind))
        kept[rows[np.argsort(distance[rows], kind="stable")[most:]]] = False
    others = others.where(kept)
    moving, heading = others.velocity_mps[:, 0], others.heading_rad[:, 0]
    ahead = forward(heading)
    speed = np.linalg.norm(moving, axis=-1) * np.where((moving * ahead).sum(axis=-1) > 0, 1.0, -1.0)
    velocity = np.where((others.types == TrackType.OTHER)[:, None], 0.0, speed[:, None] * ahead)
    time_s = scene.dt_s * (np.arange(num_steps + 1) // every_steps * every_steps)
    return replace(
        others,
        position_m=others.position_m[:, :1] + time_s[:, None] * velocity[:, None],
        velocity_mps=np.broadcast_to(velocity[:, None], others.velocity_mps.shape),
    )


@dataclass(frozen=True, kw_only=True)
class Obstacles:
    """What proposals stay behind."""

    shapes: Shaped[np.ndarray, "O F"]  # shapely polygons
    centre_m: Float[np.ndarray, "O F 2"]
    speed_mps: Float[np.ndarray, " O"]  # 0 or more
    heading_rad: Float[np.ndarray, " O"]

    @staticmethod
    def of(others: Forecast[np.ndarray], red: list[Any], *, num_steps: int) -> "Obstacles":
        """Others, and the polygons of lanes behind red lights.

        Args:
            others: the forecast.
            red: shapely polygons of lanes.
            num_steps: steps of the proposals.
        """
        count, samples = len(others), num_steps + 1
        size = np.ones((count, samples))
        corners = box_corners(
            others.position_m[:, :samples],
            others.heading_rad[:, :samples],
            length_m=others.length_m[:, None] * size,
            width_m=others.width_m[:, None] * size,
        )
        shapes = np.empty((count + len(red), samples), object)
        shapes[:count] = shapely.polygons(corners) if count else shapes[:0]
        centre_m = np.zeros((count + len(red), samples, 2))
        centre_m[:count] = others.position_m[:, :samples]
        for row, lane in enumerate(red, count):
            shapes[row] = lane
            centre_m[row] = shapely.get_coordinates(lane.centroid)
        still = np.zeros(len(red))
        return Obstacles(
            shapes=shapes,
            centre_m=centre_m,
            speed_mps=np.append(np.linalg.norm(others.velocity_mps[:, 0], axis=-1), still),
            heading_rad=np.append(others.heading_rad[:, 0], still),
        )


def corridor_proposals(
    observation: Observation,
    route: PdmRoute,
    obstacles: Obstacles,
    *,
    offsets_m: tuple[float, ...],
    speed_shares: tuple[float, ...],
    num_steps: int,
    config: IdmConfig,
    leader_every_steps: int,
) -> Trajectory:
    """Trajectories of the rear axle along the route's centreline and lines beside it, by IDM.

    The leader is the obstacle nearest to the ego's box among those in the corridor ahead, otherwise the end of the
    line. The limit of the ego's lane is the target speed of the whole proposal.

    Args:
        observation: the world now.
        route: the route.
        obstacles: what to stay behind, at every sample.
        offsets_m: lateral offsets from the centreline, left positive; the proposals are ordered by them first.
        speed_shares: shares of the speed limit.
        num_steps: steps after now.
        config: the IDM's parameters.
        leader_every_steps: see `waycode.baselines.idm.idm_proposals`.
    """
    limit = route.limit_mps(observation.ego, observation.vehicle)
    target = np.array(speed_shares) * (config.fallback_speed_mps if limit is None else limit)
    parts = [
        _along_line(
            observation,
            route.centreline.beside(offset) if offset else route.centreline,
            obstacles,
            target_mps=target,
            num_steps=num_steps,
            config=config,
            leader_every_steps=leader_every_steps,
        )
        for offset in offsets_m
    ]
    return Trajectory(
        position_m=np.concatenate([part.position_m for part in parts]),
        heading_rad=np.concatenate([part.heading_rad for part in parts]),
        speed_mps=np.concatenate([part.speed_mps for part in parts]),
        point="rear-axle",
    )


def _along_line(
    observation: Observation,
    line: Centreline,
    obstacles: Obstacles,
    *,
    target_mps: Float[np.ndarray, " K"],
    num_steps: int,
    config: IdmConfig,
    leader_every_steps: int,
) -> Trajectory:
    vehicle, dt_s, count = observation.vehicle, observation.scene.dt_s, len(target_mps)
    start = float(line.project(observation.ego.rear_axle_m)[0])
    corridor = line.corridor(start, start + _CORRIDOR_S * float(target_mps.max()), half_width_m=vehicle.width_m / 2)
    shapely.prepare(corridor)
    blocking = np.asarray(shapely.intersects(corridor, obstacles.shapes), np.bool_)
    centre_along = np.where(blocking, line.project(obstacles.centre_m), -np.inf)
    along, speed = np.zeros((count, num_steps + 1)), np.zeros((count, num_steps + 1))
    along[:, 0], speed[:, 0] = start, observation.ego.speed_mps[0]
    # No leader is known before the first look: the original then has a standing one at the start of the line.
    leader_at_m, leader_mps = np.zeros(count), np.zeros(count)
    for step in range(1, num_steps + 1):
        at, now = along[:, step - 1], speed[:, step - 1]
        if step % leader_every_steps == 0:
            ahead = centre_along[:, step] > at[:, None]  # [K, O]
            leader_at_m, leader_mps = _leader(line, at, obstacles, ahead, step, vehicle_length_m=vehicle.length_m,
                                              boxes=_boxes(line, at, observation))  # fmt: skip
        acceleration = idm_acceleration(now, target_mps, gap_m=leader_at_m - at, leader_mps=leader_mps, config=config)
        along[:, step], speed[:, step] = at + dt_s * now, now + dt_s * acceleration
    position, heading = line.pose_at(along)
    return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed, point="rear-axle")


def _boxes(line: Centreline, at_m: Float[np.ndarray, " K"], observation: Observation) -> Any:
    """The ego's boxes at places along a line, as polygons."""
    position, heading = line.pose_at(at_m)
    there = Trajectory(
        position_m=position[:, None],
        heading_rad=heading[:, None],
        speed_mps=np.zeros((len(at_m), 1)),
        point="rear-axle",
    )
    return shapely.polygons(there.corners_m(observation.vehicle)[:, 0])


def _leader(
    line: Centreline,
    at_m: Float[np.ndarray, " K"],
    obstacles: Obstacles,
    ahead: Bool[np.ndarray, "K O"],
    step: int,
    *,
    vehicle_length_m: float,
    boxes: Any,
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Arclength at which the proposal's rear axle would touch its leader, and the leader's speed along the line."""
    free = np.full(len(at_m), line.length_m - vehicle_length_m / 2), np.zeros(len(at_m))
    some = np.flatnonzero(ahead.any(axis=0))
    if len(some) == 0:
        return free
    gap = np.where(ahead[:, some], shapely.distance(boxes[:, None], obstacles.shapes[some, step]), np.inf)
    nearest = gap.argmin(axis=1)
    _, heading = line.pose_at(at_m)
    gap_m, chosen = gap[np.arange(len(at_m)), nearest], some[nearest]
    speed = obstacles.speed_mps[chosen] * np.cos(wrap_angle(obstacles.heading_rad[chosen] - heading))
    found = np.isfinite(gap_m)
    return np.where(found, at_m + gap_m, free[0]), np.where(found, speed, free[1])
