"""Trackers: how a vehicle follows a trajectory. `PerfectTracker`, and nuPlan's LQR with a kinematic bicycle.

The LQR is nuPlan's. Speed and curvature of the reference are regularised least-squares fits to its poses. One constant
acceleration over the horizon drives the speed to the reference's speed at its end; one constant steering rate drives
lateral and heading error to zero, at minimal weighted cost. Axes: K vehicles at once, T samples, M = T - 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.linalg import solveh_banded

from waycode.driving.trajectory import (
    HARD_BRAKING_MPS2,
    STOP_HORIZON_S,
    Trajectory,
    braking_trajectory,
    straight_trajectory,
)
from waycode.driving.vehicle import Command, Vehicle, VehicleState, advance, steering_angle
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import forward

_SETTLING_S = 0.3  # time constant with which the last speed decays when stopping
_MIN_CURVATURE_PENALTY = 1e-10  # keeps the fit solvable for a reference that stands still


@runtime_checkable
class Tracker(Protocol):
    """Follows trajectories. A tracker has no state of its own."""

    def follow(
        self, state: VehicleState, reference: Trajectory, *, num_steps: int, vehicle: Vehicle, dt_s: float
    ) -> Iterator[VehicleState]:
        """Yields the states after 1, 2, ..., `num_steps` steps.

        Args:
            state: K vehicles now.
            reference: K trajectories to follow, [K, T].
            num_steps: number of steps to simulate.
            vehicle: dimensions and lags of the vehicles.
            dt_s: time step.
        """

    def emergency_stop(
        self, state: VehicleState, *, vehicle: Vehicle, dt_s: float, braking_mps2: float = HARD_BRAKING_MPS2
    ) -> Trajectory:
        """The trajectory that makes a single vehicle under this tracker brake to standstill at `braking_mps2`."""


@dataclass(frozen=True, kw_only=True)
class PerfectTracker:
    """The vehicle is exactly on the trajectory at every step."""

    def follow(
        self, state: VehicleState, reference: Trajectory, *, num_steps: int, vehicle: Vehicle, dt_s: float
    ) -> Iterator[VehicleState]:
        reference = reference.at_rear_axle(vehicle)
        last = len(reference) - 1
        for step in range(1, num_steps + 1):
            sample = min(step, last)
            heading, speed = reference.heading_rad[:, sample], reference.speed_mps[:, sample]
            yaw_rate = np.asarray(wrap_angle(heading - state.heading_rad) / dt_s)
            state = VehicleState(
                rear_axle_m=reference.position_m[:, sample],
                heading_rad=heading,
                speed_mps=speed,
                acceleration_mps2=(speed - state.speed_mps) / dt_s,
                steering_rad=steering_angle(yaw_rate, speed, vehicle=vehicle),
                yaw_rate_radps=yaw_rate,
            )
            yield state

    def emergency_stop(
        self, state: VehicleState, *, vehicle: Vehicle, dt_s: float, braking_mps2: float = HARD_BRAKING_MPS2
    ) -> Trajectory:
        return braking_trajectory(state, vehicle=vehicle, dt_s=dt_s, braking_mps2=braking_mps2)


@dataclass(frozen=True, kw_only=True)
class LqrTracker:
    """nuPlan's tracker with nuPlan's parameters."""

    # Weights of the LQR costs: errors at the horizon, and inputs.
    speed_weight: float = 10.0
    acceleration_weight: float = 1.0
    lateral_weight: float = 1.0
    heading_weight: float = 10.0
    steering_rate_weight: float = 1.0
    horizon_steps: int = 10
    jerk_penalty: float = 1e-4  # of the fit of the reference speed
    penalises_acceleration: bool = False  # instead of jerk, as PDM-Closed's own simulation of its proposals does
    curvature_rate_penalty: float = 1e-2  # of the fit of the reference curvature
    stopping_speed_mps: float = 0.2  # if current and reference speed are not higher, the vehicle only brakes
    stopping_gain_1ps: float = 0.5  # acceleration per speed difference while stopping

    def follow(
        self, state: VehicleState, reference: Trajectory, *, num_steps: int, vehicle: Vehicle, dt_s: float
    ) -> Iterator[VehicleState]:
        reference = reference.at_rear_axle(vehicle)
        speed = self.fitted_speed(reference, dt_s=dt_s)
        last = speed.shape[1] - 1  # beyond the end of the reference the last values hold
        ahead = np.minimum(np.arange(num_steps)[:, None] + np.arange(self.horizon_steps), last)  # [S, H]
        bends = _moments(self.fitted_curvature(reference, speed, dt_s=dt_s)[:, ahead], dt_s=dt_s)  # [K, S, 5]
        for step in range(num_steps):
            target = speed[:, min(step + self.horizon_steps, last)]
            sample = min(step, reference.heading_rad.shape[1] - 1)
            errors = _errors(state, reference.position_m[:, sample], reference.heading_rad[:, sample])
            command = self._command(state, target, errors, bends[:, step], vehicle=vehicle, dt_s=dt_s)
            state = advance(state, command, vehicle=vehicle, dt_s=dt_s)
            yield state

    def emergency_stop(
        self, state: VehicleState, *, vehicle: Vehicle, dt_s: float, braking_mps2: float = HARD_BRAKING_MPS2
    ) -> Trajectory:
        """A stop that compensates for the tracker's gain.

        The tracker commands only a share of the speed difference at the horizon, so it turns a plain stop into a
        crawl. A lower reference speed, below zero if necessary, compensates for that.
        """
        count, horizon = round(STOP_HORIZON_S / dt_s) + 1, self.horizon_steps
        speed, acceleration = max(0.0, float(state.speed_mps[0])), float(state.acceleration_mps2[0])
        reference_mps = [speed]  # now, then from the horizon on
        for _ in range(count):
            remaining = max(0.0, speed + vehicle.acceleration_lag_s * acceleration)  # if braking ends now
            command = -min(braking_mps2, remaining / _SETTLING_S)
            gain = self.stopping_gain_1ps if speed <= self.stopping_speed_mps else self._gain_1ps(dt_s)
            reference_mps.append(speed + command / gain)
            acceleration += vehicle.acceleration_response(dt_s) * (command - acceleration)
            speed += dt_s * acceleration
        at = np.concatenate([[0], np.arange(horizon, horizon + count)])
        return straight_trajectory(state, np.interp(np.arange(count), at, reference_mps), vehicle=vehicle, dt_s=dt_s)

    def _gain_1ps(self, dt_s: float) -> float:
        """Commanded acceleration per m/s of difference between reference speed at the horizon and current speed."""
        span_s = self.horizon_steps * dt_s
        return span_s * self.speed_weight / (span_s**2 * self.speed_weight + self.acceleration_weight)

    def fitted_speed(self, reference: Trajectory, *, dt_s: float) -> Float[np.ndarray, "K M"]:
        """Speeds that integrate to the reference's positions, with a penalty on jerk."""
        moved = np.diff(reference.position_m, axis=1)
        heading = reference.heading_rad[:, :-1]
        along = moved[..., 0] * np.cos(heading) + moved[..., 1] * np.sin(heading)
        return along @ _speed_smoother(along.shape[1], dt_s, self.jerk_penalty, self.penalises_acceleration).T

    def fitted_curvature(
        self, reference: Trajectory, speed_mps: Float[np.ndarray, "K M"], *, dt_s: float
    ) -> Float[np.ndarray, "K M"]:
        """Curvatures that explain the reference's heading changes at these speeds, with a penalty on their rate.

        Each curvature is coupled to its neighbours only, so the fits of all vehicles are one tridiagonal system.
        """
        turned, moved = wrap_angle(np.diff(reference.heading_rad, axis=1)), speed_mps * dt_s
        coupling = np.full(turned.shape, self.curvature_rate_penalty / dt_s**2)  # to the previous sample
        coupling[:, 0] = 0.0
        diagonal = moved**2 + coupling
        diagonal[:, :-1] += coupling[:, 1:]
        diagonal[:, 0] += _MIN_CURVATURE_PENALTY
        bands = np.stack([-coupling.ravel(), diagonal.ravel()])[-diagonal.size :]  # a single sample has no neighbour
        return np.asarray(solveh_banded(bands, (moved * turned).ravel(), check_finite=False)).reshape(turned.shape)

    def _command(
        self,
        state: VehicleState,
        target_mps: Float[np.ndarray, " K"],
        errors: tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]],
        bends: Float[np.ndarray, "K 5"],
        *,
        vehicle: Vehicle,
        dt_s: float,
    ) -> Command:
        """Acceleration for the reference speed at the horizon, steering rate for the path until then."""
        stopping = (target_mps <= self.stopping_speed_mps) & (state.speed_mps <= self.stopping_speed_mps)
        acceleration = np.where(stopping, self.stopping_gain_1ps, self._gain_1ps(dt_s)) * (target_mps - state.speed_mps)
        steering_rate = self._steering_rate(state, acceleration, errors, bends, vehicle=vehicle, dt_s=dt_s)
        return Command(acceleration_mps2=acceleration, steering_rate_radps=np.where(stopping, 0.0, steering_rate))

    def _steering_rate(
        self,
        state: VehicleState,
        acceleration_mps2: Float[np.ndarray, " K"],
        errors: tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]],
        bends: Float[np.ndarray, "K 5"],
        *,
        vehicle: Vehicle,
        dt_s: float,
    ) -> Float[np.ndarray, " K"]:
        """The constant steering rate of least cost: the errors at the horizon are linear in it."""
        speed, (lateral, turn) = state.speed_mps, errors
        held, growing = _held_and_growing(self.horizon_steps, dt_s)
        # Errors at the horizon without steering, and their change per unit of steering rate.
        curve = (state.steering_rad / vehicle.wheelbase_m)[:, None] * held - bends  # relative to the reference
        travelled = speed * held[0] + acceleration_mps2 * held[1]
        free_lateral, free_turn = _drift(curve, speed, acceleration_mps2)
        lateral, turn = lateral + turn * travelled + free_lateral, turn + free_turn
        unit_lateral, unit_turn = _drift(growing / vehicle.wheelbase_m, speed, acceleration_mps2)
        weighted = self.lateral_weight * unit_lateral * lateral + self.heading_weight * unit_turn * turn
        stiffness = self.lateral_weight * unit_lateral**2 + self.heading_weight * unit_turn**2
        return -weighted / (stiffness + self.steering_rate_weight)


def steer_against_errors(
    plan: Trajectory, drive: Trajectory, *, gain: float, fading_s: float, dt_s: float
) -> Trajectory:
    """The reference that makes a tracker drive nearer to a plan: the plan, moved against the errors of following it.

    A tracker lags behind where the steering has to change fast: nuPlan's, with straight wheels in a bend of 20 m at
    7 m/s, gets a metre outside of the plan. At first it answers to a part of a change only, so the errors are
    subtracted several times; later it answers to all of it, so they are subtracted once.

    Args:
        plan: K plans [K, T] of the rear axle.
        drive: what the tracker makes of them, [K, S] of the rear axle, with S <= T.
        gain: how many times the errors, to the side and in heading, are subtracted now. The time along the plan stays.
        fading_s: time constant with which that becomes once.
        dt_s: time between samples.

    Returns:
        K references of S samples, of the rear axle.
    """
    if drive.point != "rear-axle" or plan.point != "rear-axle":
        raise ValueError(f"got a plan of the {plan.point} and a drive of the {drive.point}, expected the rear axle")
    plan = plan.samples(slice(0, len(drive)))
    times = 1 + (gain - 1) * np.exp(-dt_s * np.arange(len(drive)) / fading_s)
    aside_m, turned_rad = lateral_error_m(plan, drive), wrap_angle(drive.heading_rad - plan.heading_rad)
    left = forward(plan.heading_rad + np.pi / 2)
    return replace(
        plan,
        position_m=plan.position_m - (times * aside_m)[..., None] * left,
        heading_rad=plan.heading_rad - times * turned_rad,
    )


def lateral_error_m(plan: Trajectory, drive: Trajectory) -> Float[np.ndarray, "*K S"]:
    """How far a drive is to the left of a plan, sample by sample over the drive's length; both of the same point."""
    plan = plan.samples(slice(0, len(drive)))
    left = forward(plan.heading_rad + np.pi / 2)
    return np.asarray(((drive.position_m - plan.position_m) * left).sum(axis=-1))


def _errors(
    state: VehicleState, rear_axle_m: Float[np.ndarray, "K 2"], heading_rad: Float[np.ndarray, " K"]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Lateral offset from the reference (left positive) and heading error."""
    away = state.rear_axle_m - rear_axle_m
    lateral = away[:, 1] * np.cos(heading_rad) - away[:, 0] * np.sin(heading_rad)
    return lateral, wrap_angle(state.heading_rad - heading_rad)


def _moments(curvature_1pm: Float[np.ndarray, "*shape H"], *, dt_s: float) -> Float[np.ndarray, "*shape 5"]:
    """The moments of a curvature profile over H steps that `_drift` needs."""
    return curvature_1pm @ _moment_weights(curvature_1pm.shape[-1], dt_s)


def _drift(
    moments: Float[np.ndarray, "*K 5"], speed_mps: Float[np.ndarray, " K"], acceleration_mps2: Float[np.ndarray, " K"]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Lateral displacement and heading change over the horizon, for given curvature moments.

    The heading change is sum m_j c_j and the displacement sum m_j c_j r_j, with c_j the curvature at step j,
    m_j = dt (v + a t_j) the distance of that step and r_j the distance of all later steps. Both are polynomials in
    speed v and acceleration a whose coefficients are moments of the curvature.
    """
    m, v, a = moments, speed_mps, acceleration_mps2
    return v * (v * m[..., 2] + a * m[..., 3]) + a * a * m[..., 4], v * m[..., 0] + a * m[..., 1]


@lru_cache(maxsize=16)
def _moment_weights(horizon_steps: int, dt_s: float) -> Float[np.ndarray, "H 5"]:
    time_s = dt_s * np.arange(horizon_steps)
    after = np.arange(horizon_steps)[::-1]  # number of later steps, and the sum of their times below
    times_after = time_s.sum() - time_s.cumsum()
    to_turn = [np.ones(horizon_steps), time_s]
    to_left = [after, times_after + time_s * after, time_s * times_after]
    return np.stack([*(dt_s * weights for weights in to_turn), *(dt_s**2 * weights for weights in to_left)], axis=-1)


@lru_cache(maxsize=16)
def _held_and_growing(horizon_steps: int, dt_s: float) -> tuple[Float[np.ndarray, "5"], Float[np.ndarray, "5"]]:
    """The moments of a constant curvature of 1, and of a curvature that grows from 0 by 1 per second."""
    held = _moments(np.ones(horizon_steps), dt_s=dt_s)
    return held, _moments(dt_s * np.arange(horizon_steps), dt_s=dt_s)


@lru_cache(maxsize=16)
def _speed_smoother(
    count: int, dt_s: float, jerk_penalty: float, penalises_acceleration: bool
) -> Float[np.ndarray, "M M"]:
    """The matrix from distances per step to fitted speeds; the fit is linear and does not depend on headings."""
    sums = np.tri(count) * dt_s  # unknowns: the first speed, then accelerations
    sums[:, 0] = 1.0
    design = dt_s * sums
    jerk = np.zeros((max(count - 2, 0), count))
    rows = np.arange(len(jerk))
    jerk[rows, rows + 1], jerk[rows, rows + 2] = -1.0, 1.0
    if penalises_acceleration:  # only the last row is a difference of two accelerations
        jerk[rows[:-1], rows[:-1] + 2] = 0.0
    fit: Float[np.ndarray, "M M"] = np.linalg.solve(design.T @ design + jerk_penalty * jerk.T @ jerk, design.T)
    return sums @ fit
