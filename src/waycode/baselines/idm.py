"""IDM along the route: nuPlan's IDM planner, and the proposals of PDM-Closed. K proposals, J others, F samples."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving import (
    Forecast,
    IdmConfig,
    Observation,
    Path,
    Road,
    Trajectory,
    Vehicle,
    constant_velocity_forecast,
    idm_acceleration,
)
from waycode.driving.path import SPACING_M
from waycode.driving.road import STOP_LINE_MARGIN_M

_STRETCH_BOUNDS = (0.5, 2.0)  # a kink of the path has no meaningful curvature


@dataclass(frozen=True, kw_only=True)
class IdmDriver:
    """Follows the route and the vehicle ahead; changes lanes only where the route does."""

    config: IdmConfig = field(default_factory=lambda: IdmConfig(braking_mps2=3.0))
    horizon_s: float = 4.0

    def reset(self, observation: Observation) -> Road:
        return Road.ahead_of(
            observation.scene,
            observation.ego,
            vehicle=observation.vehicle,
            fallback_mps=self.config.fallback_speed_mps,
        )

    def plan(self, state: Road, observation: Observation) -> tuple[Trajectory, Road]:
        scene = observation.scene
        num_steps = round(self.horizon_s / scene.dt_s)
        others = constant_velocity_forecast(scene, observation.agent, num_steps=num_steps, near=observation.ego)
        proposals = idm_proposals(
            observation,
            state,
            others,
            offset_m=np.zeros(1),
            speed_share=np.ones(1),
            num_steps=num_steps,
            config=self.config,
        )
        return proposals.select(0).at_centre(observation.vehicle), state


def idm_proposals(
    observation: Observation,
    road: Road,
    others: Forecast[np.ndarray],
    *,
    offset_m: Float[np.ndarray, " K"],
    speed_share: Float[np.ndarray, " K"],
    num_steps: int,
    config: IdmConfig,
    anticipates: bool = True,
    leader_every_steps: int = 1,
    offset_by_own_length: bool = False,
) -> Trajectory:
    """K trajectories of the rear axle that follow the route's path behind the vehicle ahead, by IDM.

    Args:
        observation: the world now.
        road: the route, with target speeds and stop lines.
        others: a forecast of at least `num_steps` samples.
        offset_m: lateral offset of each proposal from the path.
        speed_share: share of the road's target speed of each proposal.
        num_steps: steps after now.
        config: the IDM's parameters.
        anticipates: brake before bends and lower limits ahead; otherwise the limit at the ego's place is the target.
        leader_every_steps: the leader is looked for at every n-th step, the first time at step n - 1. Until then a
            standing leader is assumed where the ego is: with 2, as in PDM-Closed, every proposal begins by braking.
        offset_by_own_length: a proposal beside the path runs along its own line, which is shorter or longer in bends;
            otherwise along the arclength of the path.
    """
    vehicle, dt_s, path = observation.vehicle, observation.scene.dt_s, road.path
    on_path = _on_path(others, path)
    blocking = on_path.blocking(offset_m, half_width_m=vehicle.width_m / 2)  # [K, J, F]
    stop_m = road.stops_m(observation.scene)
    target_mps = road.speed_mps
    start = float(path.project(observation.ego.rear_axle_m)[0][0])
    along = np.full((len(offset_m), num_steps + 1), start)
    speed = np.full((len(offset_m), num_steps + 1), max(0.0, float(observation.ego.speed_mps[0])))
    if not anticipates:
        here = int(path.index_at(np.array(start)))
        limit = float(path.limit_mps[here]) if path.limit_known[here] else config.fallback_speed_mps
        target_mps = np.full(len(path.points_m), limit)
    stretch = _stretch(path, offset_m) if offset_by_own_length else np.ones((len(offset_m), len(path.points_m)))
    leader_at_m, leader_mps = along[:, 0], np.zeros(len(offset_m))
    for step in range(num_steps):
        at, now = along[:, step], speed[:, step]
        if (step + 1) % leader_every_steps == 0:
            gap, leader_mps = _leader(at, on_path, blocking[:, :, step], step, vehicle=vehicle)
            stop = _stop_gap(at, stop_m, vehicle)
            leader_mps, leader_at_m = np.where(stop < gap, 0.0, leader_mps), at + np.minimum(gap, stop)
        place = path.index_at(at)
        acceleration = idm_acceleration(
            now, speed_share * target_mps[place], gap_m=leader_at_m - at, leader_mps=leader_mps, config=config
        )
        along[:, step + 1] = at + dt_s * now / stretch[np.arange(len(at)), place]
        speed[:, step + 1] = np.maximum(0.0, now + dt_s * acceleration)
    position, heading = path.pose_at(along, np.broadcast_to(offset_m[:, None], along.shape))
    return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed, point="rear-axle")


@dataclass(frozen=True, kw_only=True)
class _OnPath:
    """The forecast boxes in the coordinates of a path."""

    along_m: Float[np.ndarray, "J F"]
    rear_m: Float[np.ndarray, "J F"]  # where the box starts along the path
    offset_m: Float[np.ndarray, "J F"]
    half_width_m: Float[np.ndarray, "J F"]  # half the extent across the path
    speed_mps: Float[np.ndarray, "J F"]  # along the path

    def blocking(self, offset_m: Float[np.ndarray, " K"], *, half_width_m: float) -> Bool[np.ndarray, "K J F"]:
        """Which boxes block vehicles that drive at these offsets from the path."""
        apart = np.abs(self.offset_m[None] - offset_m[:, None, None])
        return apart < self.half_width_m[None] + half_width_m


def _on_path(others: Forecast[np.ndarray], path: Path) -> _OnPath:
    along, offset = path.project(others.position_m)
    heading = path.heading_rad[path.index_at(along)]
    relative = others.heading_rad - heading
    cos, sin = np.abs(np.cos(relative)), np.abs(np.sin(relative))
    half_length, half_width = others.length_m[:, None] / 2, others.width_m[:, None] / 2
    velocity = others.velocity_mps
    return _OnPath(
        along_m=along,
        rear_m=along - half_length * cos - half_width * sin,
        offset_m=offset,
        half_width_m=half_length * sin + half_width * cos,
        speed_mps=velocity[..., 0] * np.cos(heading) + velocity[..., 1] * np.sin(heading),
    )


def _stretch(path: Path, offset_m: Float[np.ndarray, " K"]) -> Float[np.ndarray, "K P"]:
    """Length of lines beside the path relative to the path's own, at each of its points."""
    curvature_1pm = np.gradient(path.heading_rad, SPACING_M)
    return np.asarray(np.clip(1 - offset_m[:, None] * curvature_1pm, *_STRETCH_BOUNDS))


def _leader(
    at_m: Float[np.ndarray, " K"], on_path: _OnPath, blocking: Bool[np.ndarray, "K J"], step: int, *, vehicle: Vehicle
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Gap from the front bumper to the nearest box ahead (infinite without one), and the speed of that box."""
    if blocking.shape[1] == 0:
        return np.full(len(at_m), np.inf), np.zeros(len(at_m))
    ahead = blocking & (on_path.along_m[:, step] > at_m[:, None] + vehicle.rear_axle_to_centre_m)
    gap = np.where(ahead, on_path.rear_m[:, step] - at_m[:, None] - vehicle.front_m, np.inf)
    nearest = gap.argmin(axis=1)
    return gap[np.arange(len(at_m)), nearest], np.maximum(0.0, on_path.speed_mps[nearest, step])


def _stop_gap(
    at_m: Float[np.ndarray, " K"], stop_m: Float[np.ndarray, " r"], vehicle: Vehicle
) -> Float[np.ndarray, " K"]:
    """Gap from the front bumper to the next place to stop at, which is treated as a standing vehicle."""
    gap = stop_m[None] - at_m[:, None] - vehicle.front_m
    return np.where(gap > -STOP_LINE_MARGIN_M, gap, np.inf).min(axis=1, initial=np.inf)
