"""Whom drives touch, now or within a second if they went straight on: one pass for collisions and time to collision.

Axes: K drives, S steps (step 0 is now), J others, L looks ahead, n contacts.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.baselines.pdm_score import Drives
from waycode.driving.forecast import Forecast
from waycode.driving.vehicle import forward
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners, boxes_overlap

EVERY = 2  # of the steps one is looked at: 0.2 s at 10 Hz
LOOKS = (0, 3, 6, 9)  # steps ahead at constant velocity; nuPlan asks for more than 0.95 s
STANDING_MPS = 0.05
BUMPER_M = 0.05
AHEAD_RAD, BEHIND_RAD = np.radians(30), np.radians(150)


@dataclass(frozen=True, kw_only=True)
class Margin:
    """By how much the others are larger than they are, on each side."""

    ahead_m: float
    beside_m: float


@dataclass(frozen=True, kw_only=True)
class Contacts:
    """When each drive first touches somebody by its own fault (infinite: never), and whether it keeps its distance."""

    first_step: Float[np.ndarray, " K"]
    keeps_distance: Bool[np.ndarray, " K"]


def find_contacts(
    drives: Drives,
    others: Forecast,
    *,
    off_lane: Bool[np.ndarray, "K S"],
    in_junction: Bool[np.ndarray, "K S"],
    margin: Margin,
    dt_s: float,
) -> Contacts:
    """Looks at K drives and at where they are beside their lane, or in a junction.

    By nuPlan's rule a moving car is to blame for what its front hits, for what stands and, beside its lane, for all but
    what comes from behind; those touched now do not count. The margin holds for collisions, but not with those who are
    within it now: they must not be touched either. The look ahead is at the boxes as they are, at what is ahead and,
    beside the lane or in a junction, at what is not behind.
    """
    count, num_steps = drives.speed_mps.shape
    first_step, keeps_distance = np.full(count, np.inf), np.ones(count, np.bool_)
    steps = np.arange(0, num_steps, EVERY)
    if len(others) == 0:
        return Contacts(first_step=first_step, keeps_distance=keeps_distance)
    near = _near(drives, others, steps, margin=margin, dt_s=dt_s)
    wider = _with_margin(drives, others, margin)
    touched = _touch(drives, others, wider, near, dt_s=dt_s)
    car, other, step, look = (index[touched] for index in near)
    if len(car) == 0:
        return Contacts(first_step=first_step, keeps_distance=keeps_distance)
    away = others.position_m[other, step] - drives.rear_axle_m[car, step]
    bearing = np.abs(wrap_angle(np.arctan2(away[:, 1], away[:, 0]) - drives.heading_rad[car, step]))
    hit = np.flatnonzero(look == 0)
    ours = (step > 0) & (drives.speed_mps[car, step] > STANDING_MPS) & (bearing < BEHIND_RAD)
    standing = np.linalg.norm(others.velocity_mps[other], axis=1) <= STANDING_MPS
    ours[hit] &= (
        standing[hit] | off_lane[car[hit], step[hit]] | _in_front(drives, wider, (car[hit], other[hit], step[hit]))
    )
    # The steps of a pair come in order: its first contact says whose fault all of them are.
    pairs, first = np.unique(car[hit] * len(others) + other[hit], return_index=True)
    hit = hit[first]
    blameless = np.zeros(count * len(others), np.bool_)
    blameless[pairs[~ours[hit]]] = True
    hit = hit[ours[hit]]
    np.minimum.at(first_step, car[hit], step[hit].astype(np.float64))
    close = (look > 0) & ~blameless[car * len(others) + other] & (bearing < BEHIND_RAD)
    close &= (drives.speed_mps[car, step] > STANDING_MPS) & (
        (bearing < AHEAD_RAD) | (off_lane | in_junction)[car, step]
    )
    keeps_distance[car[close]] = False
    return Contacts(first_step=first_step, keeps_distance=keeps_distance)


def _near(
    drives: Drives, others: Forecast, steps: Int[np.ndarray, " s"], *, margin: Margin, dt_s: float
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Who is so near that boxes could touch: (car, other, step, look), in this order.

    Most others are never near any of the drives, which all begin in one place: a look at the box around all drives
    at each time leaves few to be compared with each of them.
    """
    looks = np.array(LOOKS)
    shift = drives.vehicle.rear_axle_to_centre_m + drives.speed_mps[:, steps, None] * dt_s * looks  # [K, s, L]
    centre = drives.rear_axle_m[:, steps, None] + shift[..., None] * forward(drives.heading_rad[:, steps])[:, :, None]
    there = others.position_m[:, steps[:, None] + looks]  # [J, s, L, 2]
    reach = np.hypot(drives.vehicle.length_m, drives.vehicle.width_m) / 2 + others.radius_m
    reach = reach + np.hypot(margin.ahead_m, margin.beside_m)
    apart = np.maximum(centre.min(axis=0) - there, there - centre.max(axis=0))  # [J, s, L, 2], below 0 within the box
    other, place, look = np.nonzero((apart < reach[:, None, None, None]).all(axis=-1))
    away = centre[:, place, look] - there[other, place, look]  # [K, n, 2]
    car, which = np.nonzero(away[..., 0] ** 2 + away[..., 1] ** 2 < reach[other] ** 2)
    return car, other[which], steps[place[which]], look[which]


def _with_margin(drives: Drives, others: Forecast, margin: Margin) -> Forecast:
    """The others, larger by the margin, but for those who are within it now, where all drives begin."""
    everyone, now = np.arange(len(others)), np.zeros(len(others), np.int64)
    wider = _grown(others, margin, np.ones(len(others), np.bool_))
    middle = np.full(len(others), drives.vehicle.rear_axle_to_centre_m)
    own = drives.boxes(now, now, ahead_m=middle, length_m=drives.vehicle.length_m)
    return _grown(others, margin, ~boxes_overlap(own, wider.corners_m(everyone, now)))


def _grown(others: Forecast, margin: Margin, which: Bool[np.ndarray, " J"]) -> Forecast:
    return replace(
        others,
        length_m=others.length_m + 2 * margin.ahead_m * which,
        width_m=others.width_m + 2 * margin.beside_m * which,
    )


def _touch(
    drives: Drives,
    others: Forecast,
    wider: Forecast,
    which: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    dt_s: float,
) -> Bool[np.ndarray, " n"]:
    """Whether the boxes of (car, other) overlap at (step, look); those of now are the wider ones."""
    car, other, step, look = which
    later = np.array(LOOKS)[look]
    ahead = drives.vehicle.rear_axle_to_centre_m + drives.speed_mps[car, step] * dt_s * later
    own = drives.boxes(car, step, ahead_m=ahead, length_m=drives.vehicle.length_m)
    theirs = box_corners(
        others.position_m[other, step + later],
        others.heading_rad[other],
        length_m=np.where(look == 0, wider.length_m[other], others.length_m[other]),
        width_m=np.where(look == 0, wider.width_m[other], others.width_m[other]),
    )
    return boxes_overlap(own, theirs)


def _in_front(
    drives: Drives, others: Forecast, which: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Bool[np.ndarray, " n"]:
    """Whether the front bumper is in the other's box."""
    car, other, step = which
    bumper = drives.boxes(car, step, ahead_m=np.full(len(car), drives.vehicle.front_m), length_m=BUMPER_M)
    return boxes_overlap(bumper, others.corners_m(other, step))
