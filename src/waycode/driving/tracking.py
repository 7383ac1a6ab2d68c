"""How a car follows a trajectory: perfectly, or by nuPlan's LQR and the bicycle. K cars at once, T samples, M = T - 1.

The LQR is nuPlan's: speed and curvature of the reference are regularised least-squares fits to its poses; one
acceleration held over the horizon brings the speed to the reference's at its end, one steering rate held over it brings
lateral and heading error to zero, at the least weighted cost.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from waycode.driving.trajectory import Reference
from waycode.driving.vehicle import Command, EgoState, Vehicle, advance
from waycode.scene.frames import wrap_angle

LEAST_CURVATURE_PENALTY = 1e-10  # keeps the fit solvable for a reference that stands


@runtime_checkable
class Tracker(Protocol):
    """Follows references; no state of its own."""

    def follow(
        self, state: EgoState, reference: Reference, *, num_steps: int, vehicle: Vehicle, dt_s: float
    ) -> Iterator[EgoState]:
        """The states after 1, 2, ..., `num_steps` steps."""


@dataclass(frozen=True, kw_only=True)
class PerfectTracker:
    """The car is where the trajectory says, whatever that takes."""

    def follow(
        self, state: EgoState, reference: Reference, *, num_steps: int, vehicle: Vehicle, dt_s: float
    ) -> Iterator[EgoState]:
        last = reference.heading_rad.shape[1] - 1
        for step in range(1, num_steps + 1):
            sample = min(step, last)
            heading, speed = reference.heading_rad[:, sample], reference.speed_mps[:, sample]
            yaw_rate = np.asarray(wrap_angle(heading - state.heading_rad) / dt_s)
            state = EgoState(
                rear_axle_m=reference.rear_axle_m[:, sample],
                heading_rad=heading,
                speed_mps=speed,
                acceleration_mps2=(speed - state.speed_mps) / dt_s,
                steering_rad=steering_of(yaw_rate, speed, vehicle=vehicle),
                yaw_rate_radps=yaw_rate,
            )
            yield state


@dataclass(frozen=True, kw_only=True)
class LqrTracker:
    """nuPlan's tracker, with its numbers."""

    speed_weight: float = 10.0
    acceleration_weight: float = 1.0
    lateral_weight: float = 1.0
    heading_weight: float = 10.0
    steering_rate_weight: float = 1.0
    horizon_steps: int = 10
    jerk_penalty: float = 1e-4
    curvature_rate_penalty: float = 1e-2
    stopping_speed_mps: float = 0.2
    stopping_gain_1ps: float = 0.5

    def follow(
        self, state: EgoState, reference: Reference, *, num_steps: int, vehicle: Vehicle, dt_s: float
    ) -> Iterator[EgoState]:
        speed = self.fitted_speed(reference, dt_s=dt_s)
        curvature = self.fitted_curvature(reference, speed, dt_s=dt_s)
        for step in range(num_steps):
            command = self._command(state, reference, speed, curvature, step, vehicle=vehicle, dt_s=dt_s)
            state = advance(state, command, vehicle=vehicle, dt_s=dt_s)
            yield state

    def fitted_speed(self, reference: Reference, *, dt_s: float) -> Float[np.ndarray, "K M"]:
        """Speeds whose sums explain the reference's positions, with a penalty on jerk."""
        moved = np.diff(reference.rear_axle_m, axis=1)
        heading = reference.heading_rad[:, :-1]
        along = moved[..., 0] * np.cos(heading) + moved[..., 1] * np.sin(heading)
        return along @ _speed_smoother(along.shape[1], dt_s, self.jerk_penalty).T

    def fitted_curvature(
        self, reference: Reference, speed_mps: Float[np.ndarray, "K M"], *, dt_s: float
    ) -> Float[np.ndarray, "K M"]:
        """Curvatures that explain the reference's turns at these speeds, with a penalty on their rate."""
        turned = wrap_angle(np.diff(reference.heading_rad, axis=1))
        count = turned.shape[1]
        # Unknowns: the first curvature, then its rates; curvature k is the sum of the first k of them.
        sums = np.tri(count) * dt_s
        sums[:, 0] = 1.0
        design = (speed_mps * dt_s)[..., None] * sums  # [K, M, M]
        penalty = np.full(count, self.curvature_rate_penalty)
        penalty[0] = LEAST_CURVATURE_PENALTY
        transposed = design.transpose(0, 2, 1)
        unknowns = np.linalg.solve(transposed @ design + np.diag(penalty), transposed @ turned[..., None])
        return np.asarray((sums @ unknowns)[..., 0])

    def _command(
        self,
        state: EgoState,
        reference: Reference,
        speed_mps: Float[np.ndarray, "K M"],
        curvature_1pm: Float[np.ndarray, "K M"],
        step: int,
        *,
        vehicle: Vehicle,
        dt_s: float,
    ) -> Command:
        """Acceleration and steering rate at a step of the reference; beyond its end the last values hold."""
        last = speed_mps.shape[1] - 1
        wanted = speed_mps[:, min(step + self.horizon_steps, last)]
        span_s = self.horizon_steps * dt_s
        gain = span_s * self.speed_weight / (span_s**2 * self.speed_weight + self.acceleration_weight)
        stopping = (wanted <= self.stopping_speed_mps) & (state.speed_mps <= self.stopping_speed_mps)
        acceleration = np.where(stopping, self.stopping_gain_1ps, gain) * (wanted - state.speed_mps)
        ahead = np.minimum(np.arange(step, step + self.horizon_steps), last)
        lateral = self._steering_rate(
            state, reference, acceleration, curvature_1pm[:, ahead], step, vehicle=vehicle, dt_s=dt_s
        )
        return Command(acceleration_mps2=acceleration, steering_rate_radps=np.where(stopping, 0.0, lateral))

    def _steering_rate(
        self,
        state: EgoState,
        reference: Reference,
        acceleration_mps2: Float[np.ndarray, " K"],
        curvature_1pm: Float[np.ndarray, "K H"],
        step: int,
        *,
        vehicle: Vehicle,
        dt_s: float,
    ) -> Float[np.ndarray, " K"]:
        """The held steering rate of least cost: the errors at the horizon are linear in it."""
        sample = min(step, reference.heading_rad.shape[1] - 1)
        heading = reference.heading_rad[:, sample]
        away = state.rear_axle_m - reference.rear_axle_m[:, sample]
        time_s = dt_s * np.arange(self.horizon_steps)
        moved = dt_s * (state.speed_mps[:, None] + time_s * acceleration_mps2[:, None])  # [K, H]
        # Two responses: without steering from the errors of now, and to a unit steering rate from none.
        free = moved * (state.steering_rad[:, None] / vehicle.wheelbase_m - curvature_1pm)
        unit = moved * (time_s / vehicle.wheelbase_m)
        lateral, turn = _errors_after(
            away[:, 1] * np.cos(heading) - away[:, 0] * np.sin(heading),
            wrap_angle(state.heading_rad - heading),
            free,
            moved,
        )
        none = np.zeros_like(heading)
        unit_lateral, unit_turn = _errors_after(none, none, unit, moved)
        weighted = self.lateral_weight * unit_lateral * lateral + self.heading_weight * unit_turn * turn
        stiffness = self.lateral_weight * unit_lateral**2 + self.heading_weight * unit_turn**2
        return -weighted / (stiffness + self.steering_rate_weight)


def _errors_after(
    lateral_m: Float[np.ndarray, " K"],
    turn_rad: Float[np.ndarray, " K"],
    turned_rad: Float[np.ndarray, "K H"],
    moved_m: Float[np.ndarray, "K H"],
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Lateral and heading error at the horizon, of cars that turn and move so much at each step on the way."""
    turn = turn_rad[:, None] + turned_rad.cumsum(axis=1)  # after each step
    before = np.concatenate([turn_rad[:, None], turn[:, :-1]], axis=1)
    return lateral_m + (moved_m * before).sum(axis=1), turn[:, -1]


def steering_of(
    yaw_rate_radps: Float[np.ndarray, " K"], speed_mps: Float[np.ndarray, " K"], *, vehicle: Vehicle
) -> Float[np.ndarray, " K"]:
    """The steering angle that turns a rolling car so fast; a car that stands is taken to steer straight ahead."""
    rolling = np.abs(speed_mps) > 0.5
    curvature = yaw_rate_radps / np.where(rolling, speed_mps, 1.0)
    angle = np.where(rolling, np.arctan(vehicle.wheelbase_m * curvature), 0.0)
    return np.clip(angle, -vehicle.max_steering_rad, vehicle.max_steering_rad)


@lru_cache(maxsize=16)
def _speed_smoother(count: int, dt_s: float, jerk_penalty: float) -> Float[np.ndarray, "M M"]:
    """The matrix from distances along the heading to fitted speeds: the fit is linear, whatever the headings."""
    sums = np.tri(count) * dt_s  # unknowns: the first speed, then accelerations
    sums[:, 0] = 1.0
    design = dt_s * sums
    jerk = np.zeros((max(count - 2, 0), count))
    rows = np.arange(len(jerk))
    jerk[rows, rows + 1], jerk[rows, rows + 2] = -1.0, 1.0
    fit: Float[np.ndarray, "M M"] = np.linalg.solve(design.T @ design + jerk_penalty * jerk.T @ jerk, design.T)
    return sums @ fit
