"""Decoded candidates as drives and as plans, and plans slowed down. K candidates, S steps (step 0 is now)."""

from collections.abc import Sequence

import numpy as np

from waycode.baselines.pdm_score import Drives
from waycode.driving import Observation, Trajectory
from waycode.driving.vehicle import forward
from waycode.objectives import Candidates
from waycode.planner.codes import as_float64
from waycode.scene.geometry import arclengths, interpolate

LEAST_PATH_M = 0.5  # what is driven on a shorter path cannot be slowed down: the car as good as stands


def decoded_drives(candidates: Candidates, observation: Observation, *, num_steps: int) -> Drives:
    """The first steps of candidates as if the car were exactly where they say."""
    position, heading, speed = _sampled(candidates, observation)
    kept = slice(0, num_steps + 1)
    heading = heading[:, kept]
    arm = observation.vehicle.rear_axle_to_centre_m
    return Drives(
        rear_axle_m=position[:, kept] - arm * forward(heading),
        heading_rad=heading,
        speed_mps=speed[:, kept],
        vehicle=observation.vehicle,
    )


def trajectories_of_candidates(
    candidates: Candidates, which: Sequence[int], observation: Observation
) -> list[Trajectory]:
    """Some of the candidates as plans."""
    position, heading, speed = _sampled(candidates, observation)
    return [
        Trajectory(position_m=position[index], heading_rad=heading[index], speed_mps=speed[index]) for index in which
    ]


def slowed(plan: Trajectory, *, braking_mps2: float, dt_s: float) -> Trajectory:
    """The same way, but braking to a stand."""
    time_s = np.arange(len(plan)) * dt_s
    along = arclengths(plan.position_m)
    if along[-1] < LEAST_PATH_M:
        return plan
    start = max(0.0, float(plan.speed_mps[0]))
    moving_s = np.minimum(time_s, start / braking_mps2)
    at = np.minimum(start * moving_s - braking_mps2 * moving_s**2 / 2, along)
    heading = np.interp(at, along, np.unwrap(plan.heading_rad))
    speed = np.minimum(np.maximum(0.0, start - braking_mps2 * time_s), plan.speed_mps)
    return Trajectory(position_m=interpolate(plan.position_m, at), heading_rad=heading, speed_mps=speed)


def _sampled(candidates: Candidates, observation: Observation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [K, S, 2], headings and speeds [K, S] of the centre, the car as it is now in front."""
    count = len(candidates)
    ego, vehicle = observation.ego, observation.vehicle
    now = np.broadcast_to(ego.centre_m(vehicle)[:, None], (count, 1, 2))
    heading_now = np.broadcast_to(ego.heading_rad[:, None], (count, 1))
    speed_now = np.broadcast_to(np.maximum(0.0, ego.speed_mps)[:, None], (count, 1))
    return (
        np.concatenate([now, as_float64(candidates.position_m)], axis=1),
        np.concatenate([heading_now, as_float64(candidates.heading_rad)], axis=1),
        np.concatenate([speed_now, as_float64(candidates.speed_mps)], axis=1),
    )
