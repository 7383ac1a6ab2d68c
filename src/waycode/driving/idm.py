"""The intelligent driver model, IDM: acceleration behind a leader (Treiber, Hennecke and Helbing, 2000)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class IdmConfig:
    """Parameters of a driver."""

    gap_m: float = 1.0  # minimum gap to a standing leader
    headway_s: float = 1.5  # time gap to the leader
    acceleration_mps2: float = 1.0  # largest acceleration
    braking_mps2: float = 2.0  # largest deceleration
    exponent: float = 10.0  # nuPlan's value
    fallback_speed_mps: float = 10.0  # target speed where no limit is known
    bounds_desired_gap: bool = True  # a leader that gets away asks for no less than `gap_m`; nuPlan has no such bound

    def __post_init__(self) -> None:
        if min(self.gap_m, self.acceleration_mps2, self.braking_mps2, self.fallback_speed_mps) <= 0:
            raise ValueError(f"{self}: expected a gap, accelerations and a speed above 0")


def idm_acceleration(
    speed_mps: Float[np.ndarray, "*shape"],
    target_mps: Float[np.ndarray, "*shape"],
    *,
    gap_m: Float[np.ndarray, "*shape"],
    leader_mps: Float[np.ndarray, "*shape"],
    config: IdmConfig,
) -> Float[np.ndarray, "*shape"]:
    """Acceleration of vehicles behind a leader, within their acceleration and braking limits.

    Args:
        speed_mps: current speed.
        target_mps: desired speed on a free road.
        gap_m: distance to the leader, bumper to bumper; infinite without a leader.
        leader_mps: speed of the leader.
        config: parameters of the driver.
    """
    interaction = 2 * np.sqrt(config.acceleration_mps2 * config.braking_mps2)
    while_moving_m = speed_mps * config.headway_s + speed_mps * (speed_mps - leader_mps) / interaction
    desired_gap_m = config.gap_m + (np.maximum(0.0, while_moving_m) if config.bounds_desired_gap else while_moving_m)
    free = (np.maximum(speed_mps, 0.0) / np.maximum(target_mps, 0.1)) ** config.exponent
    near = (desired_gap_m / np.maximum(gap_m, config.gap_m)) ** 2  # the gap as nuPlan bounds it
    acceleration = config.acceleration_mps2 * (1 - free - near)
    return np.clip(acceleration, -config.braking_mps2, config.acceleration_mps2)
