"""What a planner returns, and the same as K references that a tracker follows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.driving.vehicle import Vehicle, VehicleState, forward

STOP_HORIZON_S = 4.0
HARD_BRAKING_MPS2 = 4.05  # nuPlan's bound of comfort


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Where the ego should be: sample i is i steps from now, sample 0 is now (where it is, or where it ought to be).

    Poses are those of the centre of the box in the scene frame, as everywhere in a scene; speeds are along the heading.
    `memory` is whatever the planner wants back in its next observation.
    """

    position_m: Float[np.ndarray, "T 2"]
    heading_rad: Float[np.ndarray, " T"]
    speed_mps: Float[np.ndarray, " T"]
    memory: object = None

    def __len__(self) -> int:
        return len(self.heading_rad)


def fault_of(trajectory: object) -> str | None:
    """What is wrong with something that a planner returned, in one sentence; None for a good trajectory."""
    if not isinstance(trajectory, Trajectory):
        return f"the planner returned a {type(trajectory).__name__}, expected a Trajectory"
    parts = {"position_m": (2,), "heading_rad": (), "speed_mps": ()}
    steps = np.shape(trajectory.position_m)[0] if np.ndim(trajectory.position_m) else 0
    if steps < 2:
        return f"the planned trajectory has {steps} samples, expected at least 2 (now and the next step)"
    for name, rest in parts.items():
        value = getattr(trajectory, name)
        if np.shape(value) != (steps, *rest):
            return f"the planned {name} has shape {np.shape(value)}, expected {(steps, *rest)}"
        finite = np.isfinite(value)
        if not finite.all():
            return f"the planned {name} has {int((~finite).sum())} values that are not finite"
    return None


@dataclass(frozen=True, kw_only=True)
class Reference:
    """K trajectories as a tracker wants them: at the rear axle; sample 0 is now."""

    rear_axle_m: Float[np.ndarray, "K T 2"]
    heading_rad: Float[np.ndarray, "K T"]
    speed_mps: Float[np.ndarray, "K T"]

    @staticmethod
    def of(trajectories: Sequence[Trajectory], *, vehicle: Vehicle) -> "Reference":
        """Trajectories of the same length, seen at the rear axle."""
        heading = np.stack([trajectory.heading_rad for trajectory in trajectories]).astype(np.float64)
        centre = np.stack([trajectory.position_m for trajectory in trajectories]).astype(np.float64)
        return Reference(
            rear_axle_m=centre - vehicle.rear_axle_to_centre_m * forward(heading),
            heading_rad=heading,
            speed_mps=np.stack([trajectory.speed_mps for trajectory in trajectories]).astype(np.float64),
        )


def braking(
    state: VehicleState,
    *,
    vehicle: Vehicle,
    dt_s: float,
    horizon_s: float = STOP_HORIZON_S,
    braking_mps2: float = HARD_BRAKING_MPS2,
) -> Trajectory:
    """Straight on from where a single car is, to a stand."""
    time_s = np.arange(round(horizon_s / dt_s) + 1) * dt_s
    speed = max(0.0, float(state.speed_mps[0]))
    moving_s = np.minimum(time_s, speed / braking_mps2)
    travelled = speed * moving_s - braking_mps2 * moving_s**2 / 2
    return _along_heading(state, travelled, np.maximum(0.0, speed - braking_mps2 * time_s), vehicle=vehicle)


def straight_on(
    state: VehicleState, speed_mps: Float[np.ndarray, " T"], *, vehicle: Vehicle, dt_s: float
) -> Trajectory:
    """Straight on from where a single car is, at these speeds; below zero it goes back."""
    travelled = dt_s * np.concatenate([[0.0], speed_mps[:-1].cumsum()])
    return _along_heading(state, travelled, speed_mps, vehicle=vehicle)


def _along_heading(
    state: VehicleState, travelled_m: Float[np.ndarray, " T"], speed_mps: Float[np.ndarray, " T"], *, vehicle: Vehicle
) -> Trajectory:
    heading = np.full(len(travelled_m), state.heading_rad[0])
    position = state.centre_m(vehicle) + travelled_m[:, None] * forward(heading)
    return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed_mps)
