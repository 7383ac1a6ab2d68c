"""`Forecast`: boxes of the other road users over the horizon. Axes: J others, F samples (0 is now)."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

from waycode.driving.vehicle import VehicleState
from waycode.scene import Scene, TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, box_corners, directions, forward, interpolate, project

Array = TypeVar("Array", bound=Any)  # np.ndarray, or torch.Tensor where objectives need gradients

_BRAKING_WINDOW_S = 0.5  # recent deceleration is measured over this time
_BRAKING_CONTINUES_S = 1.0  # and assumed to last this long
_SAME_DIRECTION_RAD = np.radians(45)
_FADING_M = 5.0  # a deviation from the lane's direction fades over about this distance
_MOVING_MPS = 0.5  # below, nobody is moved along a lane: the velocity is noise
_WHEELED = (TrackType.VEHICLE, TrackType.CYCLIST)


@dataclass(frozen=True, kw_only=True)
class Forecast(Generic[Array]):
    """Boxes of J other road users at F samples, in the scene frame; arrays of numpy (float64) or of torch."""

    track: Array  # [J] index of the track in the scene
    types: Array  # [J] TrackType
    position_m: Array  # [J, F, 2] centre of the box
    heading_rad: Array  # [J, F]
    velocity_mps: Array  # [J, F, 2]
    valid: Array  # [J, F] bool
    length_m: Array  # [J]
    width_m: Array  # [J]

    def __len__(self) -> int:
        return len(self.types)

    def where(self, kept: Array) -> "Forecast[Array]":
        """The road users for which `kept` [J] is true."""
        return Forecast(**{name: values[kept] for name, values in vars(self).items()})


def forecast_radius_m(others: Forecast[np.ndarray]) -> Float[np.ndarray, " J"]:
    """Circumscribed radius of each box."""
    return np.hypot(others.length_m, others.width_m) / 2


def forecast_corners_m(
    others: Forecast[np.ndarray], which: Int[np.ndarray, " n"], steps: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n 4 2"]:
    """Corners of n boxes: road user `which[i]` at sample `steps[i]`."""
    return box_corners(
        others.position_m[which, steps],
        others.heading_rad[which, steps],
        length_m=others.length_m[which],
        width_m=others.width_m[which],
    )


def constant_velocity_forecast(
    scene: Scene,
    agent: int | None,
    *,
    num_steps: int,
    near: VehicleState | None = None,
    reach_m: float = 100.0,
    braking: bool = False,
) -> Forecast[np.ndarray]:
    """All road users observed at the current step keep their velocity and heading.

    Args:
        scene: the scene; nothing after its current step is read.
        agent: the planning agent's track, which is left out; None keeps all.
        num_steps: samples after the current one; F = num_steps + 1.
        near: if given, only road users within `reach_m` of its rear axle are forecast.
        reach_m: largest distance from `near`.
        braking: road users that drive in the direction of `near` and have been slowing down brake for another second.
            Oncoming ones do not: extrapolated straight ahead in a bend, they would stop in the ego's lane.
    """
    tracks, now = scene.tracks, scene.current_step
    position = tracks.position_m[:, now].astype(np.float64)
    kept = tracks.valid[:, now] & (np.arange(len(tracks)) != agent)
    if near is not None:
        kept &= np.linalg.norm(position - near.rear_axle_m, axis=1) < reach_m
    rows = np.flatnonzero(kept)
    velocity = np.stack([tracks.vx_mps[rows, now], tracks.vy_mps[rows, now]], axis=-1).astype(np.float64)
    time_s = np.arange(num_steps + 1) * scene.dt_s
    driving_s = np.broadcast_to(time_s, (len(rows), num_steps + 1))
    if braking and near is not None:
        driving_s = _equivalent_driving_time_s(scene, rows, time_s, heading_rad=near.heading_rad)
    samples = (len(rows), num_steps + 1)
    return Forecast(
        track=rows,
        types=tracks.types[rows],
        position_m=position[rows, None] + driving_s[..., None] * velocity[:, None],
        heading_rad=np.broadcast_to(tracks.heading_rad[rows, now].astype(np.float64)[:, None], samples),
        velocity_mps=np.broadcast_to(velocity[:, None], (*samples, 2)),
        valid=np.ones(samples, np.bool_),
        length_m=tracks.length_m[rows].astype(np.float64),
        width_m=tracks.width_m[rows].astype(np.float64),
    )


def lane_forecast(
    scene: Scene,
    agent: int | None,
    *,
    num_steps: int,
    near: VehicleState | None = None,
    reach_m: float = 100.0,
    braking: bool = False,
) -> Forecast[np.ndarray]:
    """Vehicles and cyclists keep their speed along their lane and the straightest lanes after it; others as in
    `constant_velocity_forecast`.

    A road user keeps its offset from the centreline. One that stands, or that is on no lane in its direction
    (`LaneGraph.lane_at`), keeps its velocity.

    Args: as for `constant_velocity_forecast`, but `braking` applies to all that follow a lane, oncoming ones too.
    """
    straight = constant_velocity_forecast(
        scene, agent, num_steps=num_steps, near=near, reach_m=reach_m, braking=braking
    )
    speed = np.linalg.norm(straight.velocity_mps[:, 0], axis=-1)
    lane = scene.map.lanes.graph.lane_at(straight.position_m[:, 0], straight.heading_rad[:, 0])
    follows = np.flatnonzero(np.isin(straight.types, _WHEELED) & (speed > _MOVING_MPS) & (lane >= 0))
    driving_s = time_s = np.arange(num_steps + 1) * scene.dt_s
    if braking:
        driving_s = _equivalent_driving_time_s(scene, straight.track[follows], time_s)
    travelled_m = speed[follows, None] * driving_s
    position, heading = straight.position_m.copy(), straight.heading_rad.copy()
    for row, travelled in zip(follows, travelled_m, strict=True):
        line_m = scene.map.lanes.graph.line_ahead(int(lane[row]), length_m=float(travelled[-1]))
        position[row], heading[row] = _along_line(line_m, position[row, 0], heading[row, 0], travelled)
    velocity = straight.velocity_mps.copy()
    along_mps = np.gradient(travelled_m, scene.dt_s, axis=1)[..., None]
    velocity[follows] = along_mps * forward(heading[follows])
    return replace(straight, position_m=position, heading_rad=heading, velocity_mps=velocity)


def recorded_forecast(scene: Scene, agent: int | None, *, num_steps: int) -> Forecast[np.ndarray]:
    """The recorded motion of the others, invalid where not observed. For analysis: a planner cannot know it.

    Args: as for `constant_velocity_forecast`.
    """
    tracks, now = scene.tracks, scene.current_step
    kept = np.arange(len(tracks)) != agent
    kept &= tracks.valid[:, now + 1 : now + 1 + num_steps].any(axis=1)
    steps = now + np.arange(num_steps + 1)
    at = np.ix_(kept, np.minimum(steps, tracks.num_steps - 1))
    return Forecast(
        track=np.flatnonzero(kept),
        types=tracks.types[kept],
        position_m=tracks.position_m[at].astype(np.float64),
        heading_rad=tracks.heading_rad[at].astype(np.float64),
        velocity_mps=np.stack([tracks.vx_mps[at], tracks.vy_mps[at]], axis=-1).astype(np.float64),
        valid=tracks.valid[at] & (steps < tracks.num_steps),
        length_m=tracks.length_m[kept].astype(np.float64),
        width_m=tracks.width_m[kept].astype(np.float64),
    )


def _along_line(
    line_m: Float[np.ndarray, "p 2"],
    position_m: Float[np.ndarray, " 2"],
    heading_rad: float,
    travelled_m: Float[np.ndarray, " F"],
) -> tuple[Float[np.ndarray, "F 2"], Float[np.ndarray, " F"]]:
    """Positions and headings of a road user that keeps its offset from a line; beyond its end it goes straight on."""
    start_m, offset_m, _ = (float(values[0]) for values in project(position_m[None], line_m))
    along, at = arclengths(line_m), start_m + travelled_m
    # The first sample is observed. What differs from the line there fades out.
    line_rad = np.interp(at, along, np.unwrap(directions(line_m)))
    ahead = forward(line_rad)
    left = np.stack([-ahead[:, 1], ahead[:, 0]], axis=-1)
    position = interpolate(line_m, at) + np.maximum(at - along[-1], 0.0)[:, None] * ahead + offset_m * left
    fading = np.exp(-travelled_m / _FADING_M)
    position += fading[:, None] * (position_m - position[0])
    return position, line_rad + fading * wrap_angle(heading_rad - line_rad[:1])


def _equivalent_driving_time_s(
    scene: Scene,
    rows: Int[np.ndarray, " J"],
    time_s: Float[np.ndarray, " F"],
    *,
    heading_rad: Float[np.ndarray, " 1"] | None = None,
) -> Float[np.ndarray, "J F"]:
    """Travelled distance divided by current speed, for road users that go on braking as they did recently.

    Args:
        scene: the scene.
        rows: tracks.
        time_s: times from now on.
        heading_rad: only road users in this direction go on braking; None: all.
    """
    tracks, now = scene.tracks, scene.current_step
    before = max(0, now - round(_BRAKING_WINDOW_S / scene.dt_s))
    speed, earlier = (tracks.speed_mps[rows, step].astype(np.float64) for step in (now, before))
    window_s = max(now - before, 1) * scene.dt_s
    brakes = tracks.valid[rows, before]
    if heading_rad is not None:
        brakes &= np.abs(wrap_angle(tracks.heading_rad[rows, now] - heading_rad)) < _SAME_DIRECTION_RAD
    deceleration = np.where(brakes, np.maximum(earlier - speed, 0.0) / window_s, 0.0)
    lost = deceleration / np.maximum(speed, 1e-3)  # share of the speed lost per second
    braking_s = np.minimum(_BRAKING_CONTINUES_S, 1 / np.maximum(lost, 1e-9))[:, None]  # at most to standstill
    while_s = np.minimum(time_s[None], braking_s)
    after_s = (time_s[None] - while_s) * (1 - lost[:, None] * braking_s)
    return while_s - lost[:, None] * while_s**2 / 2 + after_s
