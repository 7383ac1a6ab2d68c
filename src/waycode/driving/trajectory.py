"""`Trajectory`: the one numpy form of motion over time, for plans, tracker references and simulated drives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from waycode.driving.vehicle import Vehicle, VehicleState
from waycode.scene.geometry import box_corners, forward

ReferencePoint = Literal["centre", "rear-axle"]

STOP_HORIZON_S = 4.0  # duration of a braking trajectory
HARD_BRAKING_MPS2 = 4.05  # nuPlan's comfort bound


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Poses and speeds of one vehicle, or of K vehicles, in the scene frame.

    Sample i is i steps of the scene after now; sample 0 is now. For a plan, sample 0 is where the vehicle is or should
    be. `position_m` is the position of `point`: the centre of the bounding box, as everywhere in a scene, or the centre
    of the rear axle, as trackers and nuPlan's rules use it.
    """

    position_m: Float[np.ndarray, "*K T 2"]
    heading_rad: Float[np.ndarray, "*K T"]
    speed_mps: Float[np.ndarray, "*K T"]  # along the heading; negative backwards
    point: ReferencePoint = "centre"

    def __len__(self) -> int:
        """The number of samples, T."""
        return self.heading_rad.shape[-1]

    @staticmethod
    def stack(trajectories: "Sequence[Trajectory]") -> "Trajectory":
        """K trajectories of one length and one reference point as one; float64."""
        points = {trajectory.point for trajectory in trajectories}
        if len(points) != 1:
            raise ValueError(f"the trajectories have the reference points {sorted(points)}, expected one for all")
        return Trajectory(
            position_m=np.stack([trajectory.position_m for trajectory in trajectories]).astype(np.float64),
            heading_rad=np.stack([trajectory.heading_rad for trajectory in trajectories]).astype(np.float64),
            speed_mps=np.stack([trajectory.speed_mps for trajectory in trajectories]).astype(np.float64),
            point=points.pop(),
        )

    @staticmethod
    def of_states(states: Sequence[VehicleState]) -> "Trajectory":
        """Simulated states of K vehicles at T times, as K trajectories of the rear axle."""
        return Trajectory(
            position_m=np.stack([state.rear_axle_m for state in states], axis=1),
            heading_rad=np.stack([state.heading_rad for state in states], axis=1),
            speed_mps=np.stack([state.speed_mps for state in states], axis=1),
            point="rear-axle",
        )

    def select(self, index: int | Bool[np.ndarray, " K"]) -> "Trajectory":
        """One of K trajectories, or some of them."""
        return replace(
            self,
            position_m=self.position_m[index],
            heading_rad=self.heading_rad[index],
            speed_mps=self.speed_mps[index],
        )

    def with_rows(self, rows: Bool[np.ndarray, " K"], others: "Trajectory") -> "Trajectory":
        """K trajectories, of which the chosen rows are replaced by `others`, of the same length and reference point."""
        if self.point != others.point:
            raise ValueError(f"the trajectories have the reference points {self.point} and {others.point}")
        position, heading, speed = self.position_m.copy(), self.heading_rad.copy(), self.speed_mps.copy()
        position[rows], heading[rows], speed[rows] = others.position_m, others.heading_rad, others.speed_mps
        return replace(self, position_m=position, heading_rad=heading, speed_mps=speed)

    def samples(self, steps: slice | np.ndarray) -> "Trajectory":
        """The samples at some steps."""
        return replace(
            self,
            position_m=self.position_m[..., steps, :],
            heading_rad=self.heading_rad[..., steps],
            speed_mps=self.speed_mps[..., steps],
        )

    def of_length(self, count: int) -> "Trajectory":
        """Exactly `count` samples; the last sample is repeated if there are fewer."""
        return self.samples(np.minimum(np.arange(count), len(self) - 1))

    def going_on(self, count: int, *, dt_s: float) -> "Trajectory":
        """At least `count` samples: beyond its end the trajectory goes straight on at its last speed, never backwards.

        Args:
            count: number of samples.
            dt_s: time between samples.
        """
        later_s = dt_s * np.arange(1, max(0, count - len(self)) + 1)
        speed, heading = np.maximum(self.speed_mps[..., -1:], 0.0), self.heading_rad[..., -1:]
        onwards = (speed * later_s)[..., None] * forward(heading)
        still = np.zeros(later_s.shape)
        return replace(
            self,
            position_m=np.concatenate([self.position_m, self.position_m[..., -1:, :] + onwards], axis=-2),
            heading_rad=np.concatenate([self.heading_rad, heading + still], axis=-1),
            speed_mps=np.concatenate([self.speed_mps, speed + still], axis=-1),
        )

    def at_centre(self, vehicle: Vehicle) -> "Trajectory":
        """The same motion, seen at the centre of the bounding box."""
        return self._shifted("centre", vehicle.rear_axle_to_centre_m)

    def at_rear_axle(self, vehicle: Vehicle) -> "Trajectory":
        """The same motion, seen at the rear axle."""
        return self._shifted("rear-axle", -vehicle.rear_axle_to_centre_m)

    def corners_m(self, vehicle: Vehicle) -> Float[np.ndarray, "*K T 4 2"]:
        """Bounding boxes: front left, front right, rear right, rear left corner."""
        size = np.ones(self.heading_rad.shape)
        return box_corners(
            self.at_centre(vehicle).position_m,
            self.heading_rad,
            length_m=vehicle.length_m * size,
            width_m=vehicle.width_m * size,
        )

    def _shifted(self, point: ReferencePoint, ahead_m: float) -> "Trajectory":
        if self.point == point:
            return self
        return replace(self, position_m=self.position_m + ahead_m * forward(self.heading_rad), point=point)


def trajectory_fault(trajectory: object) -> str | None:
    """Describes the fault of a trajectory that a driver returned, in one sentence; None if it is valid."""
    if not isinstance(trajectory, Trajectory):
        return f"the driver returned a {type(trajectory).__name__}, expected a Trajectory"
    steps = np.shape(trajectory.position_m)[0] if np.ndim(trajectory.position_m) else 0
    if steps < 2:
        return f"the planned trajectory has {steps} samples, expected at least 2 (now and the next step)"
    for name, rest in {"position_m": (2,), "heading_rad": (), "speed_mps": ()}.items():
        value = getattr(trajectory, name)
        if np.shape(value) != (steps, *rest):
            return f"the planned {name} has shape {np.shape(value)}, expected {(steps, *rest)}"
        finite = np.isfinite(value)
        if not finite.all():
            return f"the planned {name} has {int((~finite).sum())} values that are not finite"
    return None


def braking_trajectory(
    state: VehicleState,
    *,
    vehicle: Vehicle,
    dt_s: float,
    horizon_s: float = STOP_HORIZON_S,
    braking_mps2: float = HARD_BRAKING_MPS2,
) -> Trajectory:
    """Straight ahead with constant braking to standstill.

    Args:
        state: a single vehicle.
        vehicle: its dimensions.
        dt_s: time between samples.
        horizon_s: duration of the trajectory.
        braking_mps2: deceleration, positive.
    """
    time_s = np.arange(round(horizon_s / dt_s) + 1) * dt_s
    speed = max(0.0, float(state.speed_mps[0]))
    moving_s = np.minimum(time_s, speed / braking_mps2)
    travelled = speed * moving_s - braking_mps2 * moving_s**2 / 2
    return _straight_ahead(state, travelled, np.maximum(0.0, speed - braking_mps2 * time_s), vehicle=vehicle)


def straight_trajectory(
    state: VehicleState, speed_mps: Float[np.ndarray, " T"], *, vehicle: Vehicle, dt_s: float
) -> Trajectory:
    """Straight ahead from a single vehicle's state at the given speeds; a negative speed drives backwards."""
    travelled = dt_s * np.concatenate([[0.0], speed_mps[:-1].cumsum()])
    return _straight_ahead(state, travelled, speed_mps, vehicle=vehicle)


def _straight_ahead(
    state: VehicleState, travelled_m: Float[np.ndarray, " T"], speed_mps: Float[np.ndarray, " T"], *, vehicle: Vehicle
) -> Trajectory:
    heading = np.full(len(travelled_m), state.heading_rad[0])
    position = state.centre_m(vehicle) + travelled_m[:, None] * forward(heading)
    return Trajectory(position_m=position, heading_rad=heading, speed_mps=speed_mps)
