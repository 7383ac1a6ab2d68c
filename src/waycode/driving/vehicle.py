"""A car, its state, and how it moves: the kinematic bicycle of nuPlan, K cars at once."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import forward as forward

# nuPlan's car; cars of other sizes have their axles in proportion.
NUPLAN_LENGTH_M, NUPLAN_WHEELBASE_M, NUPLAN_REAR_AXLE_TO_CENTRE_M = 5.176, 3.089, 1.461


@dataclass(frozen=True, kw_only=True)
class Vehicle:
    """Size and axles of a car, and how late it obeys."""

    length_m: float = NUPLAN_LENGTH_M
    width_m: float = 2.297
    wheelbase_m: float = NUPLAN_WHEELBASE_M
    rear_axle_to_centre_m: float = NUPLAN_REAR_AXLE_TO_CENTRE_M
    max_steering_rad: float = np.pi / 3
    acceleration_lag_s: float = 0.2
    steering_lag_s: float = 0.05

    def __post_init__(self) -> None:
        if not all(value > 0 for value in (self.length_m, self.width_m, self.wheelbase_m)):
            raise ValueError(f"{self}: expected a length, a width and a wheelbase above 0")

    @staticmethod
    def of_size(*, length_m: float, width_m: float) -> "Vehicle":
        """A car of this size whose axles lie as in nuPlan's car, in proportion."""
        share = length_m / NUPLAN_LENGTH_M
        return Vehicle(
            length_m=length_m,
            width_m=width_m,
            wheelbase_m=share * NUPLAN_WHEELBASE_M,
            rear_axle_to_centre_m=share * NUPLAN_REAR_AXLE_TO_CENTRE_M,
        )

    @property
    def front_m(self) -> float:
        """From the rear axle to the front bumper."""
        return self.rear_axle_to_centre_m + self.length_m / 2

    def arriving(self, dt_s: float) -> float:
        """The share of a change of the commanded acceleration that arrives within a step."""
        return dt_s / (dt_s + self.acceleration_lag_s)


@dataclass(frozen=True, kw_only=True)
class VehicleState:
    """K cars at one time; a rear axle rolls along its heading, so that one speed says all of its velocity."""

    rear_axle_m: Float[np.ndarray, "K 2"]
    heading_rad: Float[np.ndarray, " K"]
    speed_mps: Float[np.ndarray, " K"]
    acceleration_mps2: Float[np.ndarray, " K"]
    steering_rad: Float[np.ndarray, " K"]
    yaw_rate_radps: Float[np.ndarray, " K"]

    def centre_m(self, vehicle: Vehicle) -> Float[np.ndarray, "K 2"]:
        return self.rear_axle_m + vehicle.rear_axle_to_centre_m * forward(self.heading_rad)

    def centre_velocity_mps(self, vehicle: Vehicle) -> Float[np.ndarray, "K 2"]:
        """Velocity of the middle of the box in the scene frame: turning swings it sideways."""
        ahead = forward(self.heading_rad)
        left = np.stack([-ahead[:, 1], ahead[:, 0]], axis=-1)
        sideways = self.yaw_rate_radps * vehicle.rear_axle_to_centre_m
        return self.speed_mps[:, None] * ahead + sideways[:, None] * left

    def repeated(self, count: int) -> "VehicleState":
        """The same single car `count` times."""
        return VehicleState(
            rear_axle_m=np.repeat(self.rear_axle_m, count, axis=0),
            heading_rad=np.repeat(self.heading_rad, count),
            speed_mps=np.repeat(self.speed_mps, count),
            acceleration_mps2=np.repeat(self.acceleration_mps2, count),
            steering_rad=np.repeat(self.steering_rad, count),
            yaw_rate_radps=np.repeat(self.yaw_rate_radps, count),
        )


@dataclass(frozen=True, kw_only=True)
class Command:
    """What a tracker asks of K cars."""

    acceleration_mps2: Float[np.ndarray, " K"]
    steering_rate_radps: Float[np.ndarray, " K"]


def advance(state: VehicleState, command: Command, *, vehicle: Vehicle, dt_s: float) -> VehicleState:
    """One step of the bicycle: the command arrives late (first-order lags), pose and speed by Euler's method."""
    acceleration = state.acceleration_mps2 + vehicle.arriving(dt_s) * (
        command.acceleration_mps2 - state.acceleration_mps2
    )
    turned = dt_s * command.steering_rate_radps * dt_s / (dt_s + vehicle.steering_lag_s)
    steering = np.clip(state.steering_rad + turned, -vehicle.max_steering_rad, vehicle.max_steering_rad)
    # The pose moves with the speed and steering of before the command, as in nuPlan.
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
