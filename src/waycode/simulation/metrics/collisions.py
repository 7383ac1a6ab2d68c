"""Collisions of the ego, who was at fault, and the time to the next one. Axes: T steps, A others, n pairs."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import shapely
from jaxtyping import Bool, Float, Int

from waycode.driving.vehicle import forward
from waycode.scene import Tracks, TrackType
from waycode.scene.geometry import box_corners, boxes_overlap
from waycode.simulation.history import EgoStates, History

STOPPED_MPS = 0.05
AHEAD_RAD, BEHIND_RAD = np.radians(30.0), np.radians(150.0)
STOPPED_EGO_MPS = 0.005  # the time to collision is asked of an ego that moves at all


class CollisionType(StrEnum):
    STOPPED_EGO = "stopped ego"
    STOPPED_TRACK = "stopped track"
    FRONT = "front"
    REAR = "rear"
    LATERAL = "lateral"


@dataclass(frozen=True, kw_only=True)
class Collision:
    """The first contact with a road user; later ones with the same do not count."""

    step: int
    track: int
    type: CollisionType
    at_fault: bool
    lost_speed_mps: float  # by how much the ego's velocity changes if both weigh the same and stick together


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """The others as boxes [A, T, 4, 2] with their speed along their heading."""

    centre_m: Float[np.ndarray, "A T 2"]
    heading_rad: Float[np.ndarray, "A T"]
    corners_m: Float[np.ndarray, "A T 4 2"]
    speed_mps: Float[np.ndarray, "A T"]
    radius_m: Float[np.ndarray, " A"]
    valid: Bool[np.ndarray, "A T"]

    @staticmethod
    def of(tracks: Tracks) -> "Boxes":
        centre, heading = tracks.position_m.astype(np.float64), tracks.heading_rad.astype(np.float64)
        length, width = tracks.length_m.astype(np.float64), tracks.width_m.astype(np.float64)
        everywhere = np.ones(heading.shape)
        return Boxes(
            centre_m=centre,
            heading_rad=heading,
            corners_m=box_corners(
                centre, heading, length_m=length[:, None] * everywhere, width_m=width[:, None] * everywhere
            ),
            speed_mps=tracks.speed_mps.astype(np.float64),
            radius_m=np.hypot(length, width) / 2,
            valid=tracks.valid,
        )


def find_collisions(history: History, boxes: Boxes, *, in_one_lane: Bool[np.ndarray, " T"]) -> tuple[Collision, ...]:
    """First contacts with every other road user, in order of time.

    At fault (nuPlan) are front collisions, those with a standing road user, and lateral ones of an ego that is in
    several lanes or off them.
    """
    ego = history.ego
    reach = np.hypot(ego.vehicle.length_m, ego.vehicle.width_m) / 2 + boxes.radius_m
    close = np.linalg.norm(boxes.centre_m - ego.centre_m[None], axis=-1) < reach[:, None]
    track, step = np.nonzero(boxes.valid & close)
    hit = boxes_overlap(ego.corners_m[step], boxes.corners_m[track, step])
    first: dict[int, int] = {}
    for which, when in zip(track[hit].tolist(), step[hit].tolist(), strict=True):  # sorted by track, then by step
        first.setdefault(which, when)
    found = [
        _collision(ego, boxes, track=which, step=when, in_one_lane=bool(in_one_lane[when]))
        for which, when in first.items()
    ]
    return tuple(sorted(found, key=lambda collision: (collision.step, collision.track)))


def _collision(ego: EgoStates, boxes: Boxes, *, track: int, step: int, in_one_lane: bool) -> Collision:
    kind = _collision_type(ego, boxes, track=track, step=step)
    at_fault = kind in (CollisionType.FRONT, CollisionType.STOPPED_TRACK)
    turned = ego.heading_rad[step] - boxes.heading_rad[track, step]
    own, other = ego.speed_mps[step], boxes.speed_mps[track, step]
    return Collision(
        step=step,
        track=track,
        type=kind,
        at_fault=at_fault or (kind == CollisionType.LATERAL and not in_one_lane),
        lost_speed_mps=float(np.sqrt(max(0.0, own**2 + other**2 - 2 * own * other * np.cos(turned))) / 2),
    )


def _collision_type(ego: EgoStates, boxes: Boxes, *, track: int, step: int) -> CollisionType:
    if ego.speed_mps[step] <= STOPPED_MPS:
        return CollisionType.STOPPED_EGO
    if boxes.speed_mps[track, step] <= STOPPED_MPS:
        return CollisionType.STOPPED_TRACK
    if bearing(ego, boxes.centre_m[track : track + 1])[0, step] > BEHIND_RAD:
        return CollisionType.REAR
    bumper = shapely.linestrings(ego.corners_m[step, :2])
    if bumper.intersects(shapely.polygons(boxes.corners_m[track, step])):
        return CollisionType.FRONT
    return CollisionType.LATERAL


def bearing(ego: EgoStates, centre_m: Float[np.ndarray, "A T 2"]) -> Float[np.ndarray, "A T"]:
    """Angle between the ego's heading and the way from its rear axle to the others, in [0, pi]."""
    offset = centre_m - ego.rear_axle_m[None]
    ahead = (offset * forward(ego.heading_rad)[None]).sum(axis=-1)
    distance = np.linalg.norm(offset, axis=-1)
    return np.arccos(np.clip(ahead / np.maximum(distance, 1e-9), -1, 1))


def time_to_collision_s(
    ego: EgoStates,
    boxes: Boxes,
    *,
    watched: Bool[np.ndarray, "A T"],
    step_s: float,
    horizon_s: float,
) -> tuple[Float[np.ndarray, " T"], Int[np.ndarray, " T"]]:
    """When the ego would first hit a watched road user if all kept velocity and heading, and which one.

    Checked at step_s, 2 step_s, ... below horizon_s; infinite where nobody is hit (then the second means nothing).
    """
    own_velocity = ego.speed_mps[:, None] * forward(ego.heading_rad)
    velocity = boxes.speed_mps[..., None] * forward(boxes.heading_rad) - own_velocity[None]
    offset = boxes.centre_m - ego.centre_m[None]
    reach = (np.hypot(ego.vehicle.length_m, ego.vehicle.width_m) / 2 + boxes.radius_m)[:, None]
    nearest_s = np.clip(-(offset * velocity).sum(-1) / np.maximum((velocity**2).sum(-1), 1e-12), 0, horizon_s)
    passes = np.linalg.norm(offset + nearest_s[..., None] * velocity, axis=-1) < reach
    track, step = np.nonzero(watched & boxes.valid & passes & (ego.speed_mps > STOPPED_EGO_MPS))
    later_s = np.arange(step_s, horizon_s, step_s)
    moved = offset[track, step][:, None] + later_s[:, None] * velocity[track, step][:, None]  # [n, K, 2]
    pair, late = np.nonzero(np.linalg.norm(moved, axis=-1) < reach[track])
    shift = later_s[late, None] * velocity[track[pair], step[pair]]
    theirs = boxes.corners_m[track[pair], step[pair]] + shift[:, None]
    hit = boxes_overlap(ego.corners_m[step[pair]], theirs)
    pair, late = pair[hit], late[hit]
    soonest, who = np.full(len(ego), np.inf), np.zeros(len(ego), np.int64)
    for index in np.lexsort((track[pair], late))[::-1]:  # the soonest is written last
        soonest[step[pair[index]]], who[step[pair[index]]] = later_s[late[index]], track[pair[index]]
    return soonest, who


def is_person(track_type: int) -> bool:
    return track_type in (TrackType.PEDESTRIAN, TrackType.CYCLIST)
