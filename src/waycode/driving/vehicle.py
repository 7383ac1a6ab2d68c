"""Vehicles, their state, and nuPlan's kinematic bicycle model; K vehicles at once."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.scene import Scene
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import forward

# nuPlan's vehicle; the axles of other vehicles are placed in proportion to their length.
_NUPLAN_LENGTH_M, _NUPLAN_WHEELBASE_M, _NUPLAN_REAR_AXLE_TO_CENTRE_M = 5.176, 3.089, 1.461


@dataclass(frozen=True, kw_only=True)
class Vehicle:
    """Dimensions and actuation lags of a vehicle."""

    length_m: float = _NUPLAN_LENGTH_M
    width_m: float = 2.297
    wheelbase_m: float = _NUPLAN_WHEELBASE_M
    rear_axle_to_centre_m: float = _NUPLAN_REAR_AXLE_TO_CENTRE_M  # to the centre of the bounding box
    max_steering_rad: float = np.pi / 3  # of the front wheels, to each side
    acceleration_lag_s: float = 0.2  # time constants of first-order lags
    steering_lag_s: float = 0.05

    def __post_init__(self) -> None:
        if not all(value > 0 for value in (self.length_m, self.width_m, self.wheelbase_m)):
            raise ValueError(f"{self}: expected a length, a width and a wheelbase above 0")

    @staticmethod
    def of_size(*, length_m: float, width_m: float) -> "Vehicle":
        """A vehicle of this size with axles in proportion to nuPlan's vehicle."""
        share = length_m / _NUPLAN_LENGTH_M
        return Vehicle(
            length_m=length_m,
            width_m=width_m,
            wheelbase_m=share * _NUPLAN_WHEELBASE_M,
            rear_axle_to_centre_m=share * _NUPLAN_REAR_AXLE_TO_CENTRE_M,
        )

    @property
    def front_m(self) -> float:
        """Distance from the rear axle to the front bumper."""
        return self.rear_axle_to_centre_m + self.length_m / 2

    def acceleration_response(self, dt_s: float) -> float:
        """The share of a change of commanded acceleration that takes effect within a step (first-order lag)."""
        return dt_s / (dt_s + self.acceleration_lag_s)


@dataclass(frozen=True, kw_only=True)
class VehicleState:
    """State of K vehicles at one time. The rear axle moves along the heading, so its speed is a scalar."""

    rear_axle_m: Float[np.ndarray, "K 2"]  # centre of the rear axle, in the scene frame
    heading_rad: Float[np.ndarray, " K"]
    speed_mps: Float[np.ndarray, " K"]  # along the heading; negative backwards
    acceleration_mps2: Float[np.ndarray, " K"]  # along the heading
    steering_rad: Float[np.ndarray, " K"]  # angle of the front wheels, left positive
    yaw_rate_radps: Float[np.ndarray, " K"]  # left positive

    def centre_m(self, vehicle: Vehicle) -> Float[np.ndarray, "K 2"]:
        """Centre of the bounding box."""
        return self.rear_axle_m + vehicle.rear_axle_to_centre_m * forward(self.heading_rad)

    def centre_velocity_mps(self, vehicle: Vehicle) -> Float[np.ndarray, "K 2"]:
        """Velocity of the bounding box's centre in the scene frame, with the sideways part due to yaw."""
        ahead = forward(self.heading_rad)
        left = np.stack([-ahead[:, 1], ahead[:, 0]], axis=-1)
        sideways = self.yaw_rate_radps * vehicle.rear_axle_to_centre_m
        return self.speed_mps[:, None] * ahead + sideways[:, None] * left

    def repeated(self, count: int) -> "VehicleState":
        """A single vehicle repeated `count` times."""
        return VehicleState(**{name: np.repeat(values, count, axis=0) for name, values in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Command:
    """Inputs of the bicycle model for K vehicles."""

    acceleration_mps2: Float[np.ndarray, " K"]
    steering_rate_radps: Float[np.ndarray, " K"]


def advance(state: VehicleState, command: Command, *, vehicle: Vehicle, dt_s: float) -> VehicleState:
    """One Euler step of `dt_s` of the bicycle model, with first-order lags on acceleration and steering."""
    acceleration = state.acceleration_mps2 + vehicle.acceleration_response(dt_s) * (
        command.acceleration_mps2 - state.acceleration_mps2
    )
    turned = dt_s * command.steering_rate_radps * dt_s / (dt_s + vehicle.steering_lag_s)
    steering = np.clip(state.steering_rad + turned, -vehicle.max_steering_rad, vehicle.max_steering_rad)
    # As in nuPlan, the pose is integrated with the speed and steering before the command.
    yaw_rate = state.speed_mps * np.tan(state.steering_rad) / vehicle.wheelbase_m
    speed = state.speed_mps + dt_s * acceleration
    return VehicleState(
        rear_axle_m=state.rear_axle_m + dt_s * state.speed_mps[:, None] * forward(state.heading_rad),
        heading_rad=wrap_angle(state.heading_rad + dt_s * yaw_rate),
        speed_mps=speed,
        acceleration_mps2=acceleration,
        steering_rad=steering,
        yaw_rate_radps=speed * np.tan(steering) / vehicle.wheelbase_m,
    )


def steering_angle(
    yaw_rate_radps: Float[np.ndarray, " K"], speed_mps: Float[np.ndarray, " K"], *, vehicle: Vehicle
) -> Float[np.ndarray, " K"]:
    """The steering angle for a yaw rate; 0 below 0.5 m/s, where it is ill-conditioned."""
    rolling = np.abs(speed_mps) > 0.5
    curvature = yaw_rate_radps / np.where(rolling, speed_mps, 1.0)
    angle = np.where(rolling, np.arctan(vehicle.wheelbase_m * curvature), 0.0)
    return np.clip(angle, -vehicle.max_steering_rad, vehicle.max_steering_rad)


def recorded_state(scene: Scene, agent: int, *, vehicle: Vehicle) -> VehicleState:
    """The state of a track at the scene's current step; acceleration and yaw rate are those of the last step."""
    tracks, now = scene.tracks, scene.current_step
    heading = tracks.heading_rad[agent].astype(np.float64)
    velocity = np.stack([tracks.vx_mps[agent], tracks.vy_mps[agent]], axis=-1).astype(np.float64)
    speed = (velocity * forward(heading)).sum(axis=-1)
    before = max(0, now - 1) if tracks.valid[agent, max(0, now - 1)] else now
    span_s = scene.dt_s * max(1, now - before)
    yaw_rate = np.asarray(wrap_angle(heading[now : now + 1] - heading[before])) / span_s
    centre_m = tracks.position_m[agent, now].astype(np.float64)[None]
    return VehicleState(
        rear_axle_m=centre_m - vehicle.rear_axle_to_centre_m * forward(heading[now : now + 1]),
        heading_rad=heading[now : now + 1],
        speed_mps=speed[now : now + 1],
        acceleration_mps2=(speed[now : now + 1] - speed[before]) / span_s,
        steering_rad=steering_angle(yaw_rate, speed[now : now + 1], vehicle=vehicle),
        yaw_rate_radps=yaw_rate,
    )
