"""How PDM-Closed judges its proposals: nuPlan's score in small, over the simulated proposals and the forecast.

Score = no at-fault collision x drivable area x driving direction x (5 progress + 5 TTC + 2 comfort) / 12.
Whether the ego keeps to its lane is told from its offset to the route's centreline: there is no polygon of a lane here.
Axes: K proposals, S steps (step 0 is now), J others, F >= S + 9 steps of the forecast.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.driving import Path, Vehicle
from waycode.driving.forecast import Forecast
from waycode.driving.road_surface import OUTSIDE_TOLERANCE_M, DrivableArea
from waycode.driving.vehicle import forward
from waycode.scene import TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners, boxes_overlap
from waycode.scene.kinematics import Motion, motion, within_comfort

PROGRESS_WEIGHT, TTC_WEIGHT, COMFORT_WEIGHT = 5.0, 5.0, 2.0
STOPPED_MPS, TTC_STOPPED_MPS = 5e-2, 5e-3
AHEAD_RAD, BEHIND_RAD = np.radians(30), np.radians(150)
TTC_STEPS = (0, 3, 6, 9)  # looks almost a second ahead
LEAST_PROGRESS_M = 0.1
ONCOMING_M, FAR_ONCOMING_M = 2.0, 6.0
BUMPER_M = 0.05


@dataclass(frozen=True, kw_only=True)
class Drives:
    """Simulated proposals."""

    rear_axle_m: Float[np.ndarray, "K S 2"]
    heading_rad: Float[np.ndarray, "K S"]
    speed_mps: Float[np.ndarray, "K S"]
    vehicle: Vehicle

    @property
    def centre_m(self) -> Float[np.ndarray, "K S 2"]:
        return self.rear_axle_m + self.vehicle.rear_axle_to_centre_m * forward(self.heading_rad)

    def boxes(
        self, which: np.ndarray, steps: np.ndarray, *, ahead_m: np.ndarray, length_m: float
    ) -> Float[np.ndarray, "n 4 2"]:
        """Boxes as wide as the car, their middle this far ahead of the rear axle."""
        heading = self.heading_rad[which, steps]
        centre = self.rear_axle_m[which, steps] + ahead_m[:, None] * forward(heading)
        size = np.ones(len(heading))
        return box_corners(centre, heading, length_m=length_m * size, width_m=self.vehicle.width_m * size)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What each proposal is worth, and when it first collides by its own fault (infinite: never)."""

    total: Float[np.ndarray, " K"]
    collision_step: Float[np.ndarray, " K"]


def score(drives: Drives, others: Forecast, *, path: Path, drivable: DrivableArea | None, dt_s: float) -> Scores:
    """The scores of K proposals; `drivable` is where corners may be (None: not known)."""
    along, offset = path.project(drives.centre_m)
    lane = path.index_at(along)
    half_width = path.half_width_m[lane]
    off_lane = np.abs(offset) + drives.vehicle.width_m / 2 > half_width
    no_collision, collision_step = _collisions(drives, others, off_lane)
    multiplier = no_collision * _on_road(drives, drivable) * _direction(drives, np.abs(offset) > 2 * half_width)
    progress = (along[:, -1] - along[:, 0]) * multiplier
    best = float(progress.max())
    share = progress / best if best > LEAST_PROGRESS_M else (multiplier > 0).astype(np.float64)
    crossing = off_lane | path.in_junction[lane]
    weighted = (
        PROGRESS_WEIGHT * share
        + TTC_WEIGHT * _time_to_collision(drives, others, crossing, dt_s=dt_s)
        + COMFORT_WEIGHT * _comfort(drives, dt_s=dt_s)
    )
    return Scores(
        total=multiplier * weighted / (PROGRESS_WEIGHT + TTC_WEIGHT + COMFORT_WEIGHT), collision_step=collision_step
    )


def _collisions(
    drives: Drives, others: Forecast, off_lane: Bool[np.ndarray, "K S"]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """1 without an at-fault collision, 0.5 with one with an object, 0 with a road user; and when the first is."""
    count = len(drives.speed_mps)
    value, when = np.ones(count), np.full(count, np.inf)
    none = np.zeros_like(drives.speed_mps)
    car, other, step = _first_contacts(drives, others, shift_m=none[..., None], after=(0,))
    if len(car) == 0:
        return value, when
    fault = _at_fault(drives, others, car, other, step, off_lane)
    worth = np.where(others.types[other] == TrackType.OTHER, 0.5, 0.0)
    np.minimum.at(value, car[fault], worth[fault])
    np.minimum.at(when, car[fault], step[fault].astype(np.float64))
    return value, when


def _first_contacts(
    drives: Drives, others: Forecast, *, shift_m: Float[np.ndarray, "K S L"], after: tuple[int, ...]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Pairs (car, other) that ever touch, and the first step at which they do; those that touch now do not count.

    At each step the car is moved ahead by each of L shifts, and the others are where they are that many steps later.
    """
    count, num_steps = drives.speed_mps.shape
    empty = np.zeros(0, np.int64)
    if len(others) == 0:
        return empty, empty, empty
    arm, ahead = drives.vehicle.rear_axle_to_centre_m, forward(drives.heading_rad)
    centre = drives.rear_axle_m[:, :, None] + (arm + shift_m)[..., None] * ahead[:, :, None]  # [K, S, L, 2]
    later = np.arange(num_steps)[:, None] + np.array(after)  # [S, L]
    there = others.position_m[:, later]  # [J, S, L, 2]
    away = centre[:, None] - there[None]  # [K, J, S, L, 2]
    reach = np.hypot(drives.vehicle.length_m, drives.vehicle.width_m) / 2 + others.radius_m
    near = (away**2).sum(axis=-1) < (reach**2)[None, :, None, None]
    car, other, step, look = np.nonzero(near)
    boxes = drives.boxes(car, step, ahead_m=arm + shift_m[car, step, look], length_m=drives.vehicle.length_m)
    touch = boxes_overlap(boxes, others.corners_m(other, later[step, look]))
    already = np.zeros((count, len(others)), np.bool_)
    now = touch & (step == 0) & (look == 0)
    already[car[now], other[now]] = True
    hit = touch & ~already[car, other]
    pairs, first = np.unique(car[hit] * len(others) + other[hit], return_index=True)  # np.nonzero goes by step last
    return pairs // len(others), pairs % len(others), step[hit][first]


def _bearing(
    drives: Drives, others: Forecast, car: np.ndarray, other: np.ndarray, step: np.ndarray
) -> Float[np.ndarray, " n"]:
    """The angle from a car's heading to the other, without a sign."""
    away = others.position_m[other, step] - drives.rear_axle_m[car, step]
    return np.abs(wrap_angle(np.arctan2(away[:, 1], away[:, 0]) - drives.heading_rad[car, step]))


def _at_fault(
    drives: Drives,
    others: Forecast,
    car: Int[np.ndarray, " n"],
    other: Int[np.ndarray, " n"],
    step: Int[np.ndarray, " n"],
    off_lane: Bool[np.ndarray, "K S"],
) -> Bool[np.ndarray, " n"]:
    """nuPlan's rule: a moving ego is to blame for what stands, for what its front hits, and beside its lane for all."""
    moving = np.abs(drives.speed_mps[car, step]) > STOPPED_MPS
    standing = np.linalg.norm(others.velocity_mps[other], axis=1) <= STOPPED_MPS
    behind = _bearing(drives, others, car, other, step) > BEHIND_RAD
    bumper_at = np.full(len(car), drives.vehicle.front_m)
    bumper = drives.boxes(car, step, ahead_m=bumper_at, length_m=BUMPER_M)
    front = boxes_overlap(bumper, others.corners_m(other, step))
    return moving & (standing | (~behind & (front | off_lane[car, step])))


def _time_to_collision(
    drives: Drives, others: Forecast, crossing: Bool[np.ndarray, "K S"], *, dt_s: float
) -> Float[np.ndarray, " K"]:
    """1 for proposals that, going straight on, touch nobody ahead within a second of any of their steps."""
    value = np.ones(len(drives.speed_mps))
    moved = drives.speed_mps[..., None] * (dt_s * np.array(TTC_STEPS))
    car, other, step = _first_contacts(drives, others, shift_m=moved, after=TTC_STEPS)
    bearing = _bearing(drives, others, car, other, step)
    counts = (bearing < AHEAD_RAD) | (crossing[car, step] & (bearing < BEHIND_RAD))
    counts &= drives.speed_mps[car, step] > TTC_STOPPED_MPS
    value[car[counts]] = 0.0
    return value


def _on_road(drives: Drives, drivable: DrivableArea | None) -> Float[np.ndarray, " K"]:
    """0 for proposals of which a corner leaves the road; where the car is off the road already, nobody can tell."""
    count, num_steps = drives.speed_mps.shape
    if drivable is None:
        return np.ones(count)
    car, step = (index.ravel() for index in np.indices((count, num_steps)))
    middle = np.full(len(car), drives.vehicle.rear_axle_to_centre_m)
    corners = drives.boxes(car, step, ahead_m=middle, length_m=drives.vehicle.length_m)
    outside = drivable.outside_m(corners.reshape(-1, 2)).reshape(count, num_steps, 4).max(axis=-1)
    inside = outside < OUTSIDE_TOLERANCE_M
    return np.where(inside[:, 0], inside.all(axis=1), True).astype(np.float64)


def _direction(drives: Drives, off_route: Bool[np.ndarray, "K S"]) -> Float[np.ndarray, " K"]:
    """1 for less than 2 m driven beside the route's lane, 0.5 for less than 6 m, else 0."""
    moved = np.linalg.norm(np.diff(drives.centre_m, axis=1), axis=-1)
    wrong = np.where(off_route[:, 1:] & ~off_route[:, :1], moved, 0).sum(axis=1)
    return np.select([wrong < ONCOMING_M, wrong < FAR_ONCOMING_M], [1.0, 0.5], default=0.0)


def _comfort(drives: Drives, *, dt_s: float) -> Float[np.ndarray, " K"]:
    return within_comfort(motion_of(drives, dt_s=dt_s)).astype(np.float64)


def motion_of(drives: Drives, *, dt_s: float) -> Motion:
    """The quantities of comfort of every drive."""
    return motion(drives.speed_mps[..., None] * forward(drives.heading_rad), drives.heading_rad, dt_s=dt_s)
