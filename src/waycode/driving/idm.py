"""The intelligent driver model: how hard to accelerate behind a leader (Treiber, Hennecke and Helbing, 2000)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class IdmConfig:
    """A driver."""

    gap_m: float = 1.0  # to a leader that stands
    headway_s: float = 1.5
    acceleration_mps2: float = 1.0
    braking_mps2: float = 2.0
    exponent: float = 10.0  # as nuPlan has it
    fallback_speed_mps: float = 10.0  # where no speed limit is known

    def __post_init__(self) -> None:
        if min(self.gap_m, self.acceleration_mps2, self.braking_mps2, self.fallback_speed_mps) <= 0:
            raise ValueError(f"{self}: expected a gap, accelerations and a speed above 0")


def idm_acceleration(
    speed_mps: Float[np.ndarray, "*shape"],
    wanted_mps: Float[np.ndarray, "*shape"],
    *,
    gap_m: Float[np.ndarray, "*shape"],
    leader_mps: Float[np.ndarray, "*shape"],
    config: IdmConfig,
) -> Float[np.ndarray, "*shape"]:
    """Acceleration of drivers with a leader `gap_m` ahead (infinite where there is none), within their powers."""
    both = 2 * np.sqrt(config.acceleration_mps2 * config.braking_mps2)
    wish_m = config.gap_m + np.maximum(0.0, speed_mps * config.headway_s + speed_mps * (speed_mps - leader_mps) / both)
    free = (np.maximum(speed_mps, 0.0) / np.maximum(wanted_mps, 0.1)) ** config.exponent
    near = (wish_m / np.maximum(gap_m, config.gap_m / 2)) ** 2
    wanted = config.acceleration_mps2 * (1 - free - near)
    return np.clip(wanted, -config.braking_mps2, config.acceleration_mps2)
