"""nuPlan's rules for at-fault collisions and for time to collision, shared by metrics, baselines and drivers.

Callers bring their own inputs (recorded tracks or forecasts, lane polygons or offsets to a centreline); the rules are
here only. Axes: *n pairs of the ego and another road user at one time.
"""

from enum import IntEnum

import numpy as np
from jaxtyping import Bool, Float, Int8

from waycode.driving.vehicle import Vehicle, forward
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners, boxes_overlap

# All values but the bumper's depth are nuPlan's.
STOPPED_MPS = 0.05  # a road user (the ego too) that is not faster has stopped when a collision is classified
TTC_STOPPED_MPS = 0.005  # an ego that is not faster has no time to collision
AHEAD_RAD = np.radians(30.0)  # a smaller bearing is ahead
BEHIND_RAD = np.radians(150.0)  # a larger bearing is behind
BUMPER_DEPTH_M = 0.05  # of the front bumper as planners test it; nuPlan's metric tests the front edge, a line


class CollisionType(IntEnum):
    """What kind of contact a collision is, seen from the ego."""

    STOPPED_EGO = 0
    STOPPED_TRACK = 1
    FRONT = 2
    REAR = 3
    LATERAL = 4

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


def bearing(
    rear_axle_m: Float[np.ndarray, "*n 2"], heading_rad: Float[np.ndarray, "*n"], other_m: Float[np.ndarray, "*n 2"]
) -> Float[np.ndarray, "*n"]:
    """Angle in [0, pi] between the ego's heading and the line from its rear axle to another road user.

    Args:
        rear_axle_m: the ego's rear axle.
        heading_rad: the ego's heading.
        other_m: centre of the other road user's box.
    """
    offset = other_m - rear_axle_m
    return np.abs(wrap_angle(np.arctan2(offset[..., 1], offset[..., 0]) - heading_rad))


def front_overlaps(
    rear_axle_m: Float[np.ndarray, "*n 2"],
    heading_rad: Float[np.ndarray, "*n"],
    other_corners_m: Float[np.ndarray, "*n 4 2"],
    *,
    vehicle: Vehicle,
    depth_m: float = BUMPER_DEPTH_M,
) -> Bool[np.ndarray, "*n"]:
    """Whether the ego's front bumper overlaps another road user's box.

    Args:
        rear_axle_m: the ego's rear axle.
        heading_rad: the ego's heading.
        other_corners_m: corners of the other's box, as `box_corners` orders them.
        vehicle: the ego's size and axles.
        depth_m: the bumper is a box of this depth around the ego's front edge.
    """
    size = np.ones(heading_rad.shape)
    bumper = box_corners(
        rear_axle_m + vehicle.front_m * forward(heading_rad),
        heading_rad,
        length_m=depth_m * size,
        width_m=vehicle.width_m * size,
    )
    return boxes_overlap(bumper, other_corners_m)


def classify_collisions(
    ego_speed_mps: Float[np.ndarray, "*n"],
    other_speed_mps: Float[np.ndarray, "*n"],
    *,
    bearing_rad: Float[np.ndarray, "*n"],
    front: Bool[np.ndarray, "*n"],
) -> Int8[np.ndarray, "*n"]:
    """The `CollisionType` of pairs whose boxes overlap. The first rule that holds decides.

    Args:
        ego_speed_mps: the ego's speed; negative in reverse, which counts as moving.
        other_speed_mps: the other's speed, 0 or more.
        bearing_rad: from the ego to the other, see `bearing`.
        front: whether the ego's front bumper is in the other's box, see `front_overlaps`.
    """
    rules = (
        (np.abs(ego_speed_mps) <= STOPPED_MPS, CollisionType.STOPPED_EGO),
        (other_speed_mps <= STOPPED_MPS, CollisionType.STOPPED_TRACK),
        (bearing_rad > BEHIND_RAD, CollisionType.REAR),
        (front, CollisionType.FRONT),
    )
    holds, types = [rule for rule, _ in rules], [np.int8(kind) for _, kind in rules]
    return np.asarray(np.select(holds, types, np.int8(CollisionType.LATERAL)))


def is_at_fault(
    collision_type: Int8[np.ndarray, "*n"], *, in_one_lane: Bool[np.ndarray, "*n"]
) -> Bool[np.ndarray, "*n"]:
    """Which collisions are the ego's fault: front, with a stopped track, and lateral unless the ego keeps to a lane.

    Args:
        collision_type: see `classify_collisions`.
        in_one_lane: whether the whole ego is in one lane; False between lanes and off the road.
    """
    always = (collision_type == CollisionType.FRONT) | (collision_type == CollisionType.STOPPED_TRACK)
    return np.asarray(always | ((collision_type == CollisionType.LATERAL) & ~in_one_lane))


def is_relevant_for_ttc(
    bearing_rad: Float[np.ndarray, "*n"], *, in_one_lane: Bool[np.ndarray, "*n"], in_junction: Bool[np.ndarray, "*n"]
) -> Bool[np.ndarray, "*n"]:
    """Which road users count for the time to collision: those ahead; all not behind if the ego is between lanes
    or in a junction.

    Args:
        bearing_rad: from the ego to the other, see `bearing`.
        in_one_lane: whether the whole ego is in one lane.
        in_junction: whether the ego is in a junction.
    """
    return np.asarray((bearing_rad < AHEAD_RAD) | ((~in_one_lane | in_junction) & (bearing_rad <= BEHIND_RAD)))
