"""nuPlan's rules for at-fault collisions and time to collision, shared by metrics, baselines and objectives.

Callers differ in their inputs (recorded tracks or forecasts, lane polygons or offsets from a centreline), not in the
rules. Axes: *n pairs of the ego and another road user at one time; K trajectories, S samples, J others.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from jaxtyping import Bool, Float, Int, Int8

from waycode.driving.forecast import Forecast, forecast_corners_m, forecast_radius_m
from waycode.driving.trajectory import Trajectory
from waycode.driving.vehicle import Vehicle
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import box_corners, boxes_overlap, forward

# All values but the bumper's depth are nuPlan's.
STOPPED_MPS = 0.05  # up to this speed a road user counts as stopped when a collision is classified
TTC_STOPPED_MPS = 0.005  # up to this speed the ego has no time to collision
AHEAD_RAD = np.radians(30.0)  # a smaller bearing is ahead
BEHIND_RAD = np.radians(150.0)  # a larger bearing is behind
BUMPER_DEPTH_M = 0.05  # depth of the front bumper in planners; nuPlan's metric tests the front edge, a line


class CollisionType(IntEnum):
    """Type of a collision, from the ego's point of view."""

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


@dataclass(frozen=True, kw_only=True)
class SafetyMargin:
    """Enlargement of the boxes of other road users."""

    ahead_m: float = 0.0  # at the front and at the rear
    beside_m: float = 0.0  # at each side


@dataclass(frozen=True, kw_only=True)
class Conflicts:
    """Conflicts of K trajectories with a forecast."""

    first_step: Float[np.ndarray, " K"]  # sample of the first at-fault collision; infinite without one
    keeps_time_to_collision: Bool[np.ndarray, " K"]  # never less than 0.9 s to a collision at constant velocity


TTC_LOOKS = (0, 3, 6, 9)  # tested samples ahead, up to 0.9 s at 10 Hz; nuPlan requires more than 0.95 s


def find_conflicts(
    trajectories: Trajectory,
    others: Forecast[np.ndarray],
    *,
    vehicle: Vehicle,
    in_one_lane: Bool[np.ndarray, "K S"],
    in_junction: Bool[np.ndarray, "K S"],
    margin: SafetyMargin,
    dt_s: float,
) -> Conflicts:
    """At-fault collisions and time to collision of K trajectories, in one pass over the overlapping boxes.

    Contacts that exist now do not count. The first contact with a road user decides about fault for all contacts with
    it. A road user that is hit without fault counts for the time to collision until then, as in nuPlan.

    Args:
        trajectories: K trajectories of S samples from now on.
        others: the forecast, of at least S + 9 samples.
        vehicle: the ego's dimensions.
        in_one_lane: whether the ego keeps to one lane at each sample.
        in_junction: whether it is in a junction.
        margin: enlarges the others for collisions, not for the time to collision.
        dt_s: time between samples.
    """
    ego = trajectories.at_rear_axle(vehicle)
    count = len(ego.heading_rad)
    first_step, keeps_ttc = np.full(count, np.inf), np.ones(count, np.bool_)
    grown = with_safety_margin(ego, others, margin, vehicle)
    car, other, step, look = box_overlaps(ego, others, vehicle=vehicle, looks=TTC_LOOKS, grown=grown, dt_s=dt_s)
    if len(car) == 0:
        return Conflicts(first_step=first_step, keeps_time_to_collision=keeps_ttc)
    speed, one_lane = ego.speed_mps[car, step], in_one_lane[car, step]
    angle = bearing(ego.position_m[car, step], ego.heading_rad[car, step], others.position_m[other, step])
    hit = np.flatnonzero(look == 0)
    collision_type = classify_collisions(
        speed[hit],
        np.linalg.norm(others.velocity_mps[other[hit], step[hit]], axis=1),
        bearing_rad=angle[hit],
        front=front_overlaps(
            ego.position_m[car[hit], step[hit]],
            ego.heading_rad[car[hit], step[hit]],
            forecast_corners_m(grown, other[hit], step[hit]),
            vehicle=vehicle,
        ),
    )
    # Contacts behind the ego, or while it rolls back, are not its fault: braking would not avoid them.
    at_fault = is_at_fault(collision_type, in_one_lane=one_lane[hit])
    at_fault &= (step[hit] > 0) & (speed[hit] > STOPPED_MPS) & (angle[hit] < BEHIND_RAD)
    # Overlaps are sorted by (trajectory, other, sample): the first of a pair is its first contact.
    pairs, first = np.unique(car[hit] * len(others) + other[hit], return_index=True)
    blameless_from = np.full(count * len(others), np.inf)  # sample of the contact
    blameless_from[pairs[~at_fault[first]]] = step[hit[first[~at_fault[first]]]]
    blamed = first[at_fault[first]]
    np.minimum.at(first_step, car[hit[blamed]], step[hit[blamed]].astype(np.float64))
    close = (look > 0) & (step < blameless_from[car * len(others) + other]) & (speed > STOPPED_MPS)
    close &= is_relevant_for_ttc(angle, in_one_lane=one_lane, in_junction=in_junction[car, step])
    keeps_ttc[car[close]] = False
    return Conflicts(first_step=first_step, keeps_time_to_collision=keeps_ttc)


def box_overlaps(
    ego: Trajectory,
    others: Forecast[np.ndarray],
    *,
    vehicle: Vehicle,
    looks: tuple[int, ...],
    grown: Forecast[np.ndarray] | None = None,
    dt_s: float,
    follows_forecast: bool = False,
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Overlapping boxes as indices (trajectory, other, sample, look), sorted in this order.

    For look l, both are moved on by `looks[l]` samples at the velocities that they have at the sample: nuPlan's rule.

    Args:
        ego: K trajectories of the rear axle.
        others: the forecast.
        vehicle: the ego's dimensions.
        looks: samples to look ahead; 0 compares the boxes as they are.
        grown: the others with enlarged boxes, which are compared at look 0; by default `others`.
        dt_s: time between samples.
        follows_forecast: the others are where the forecast has them at the time looked at, as in PDM-Closed; the
            forecast is as many samples longer.
    """
    grown = others if grown is None else grown
    samples, ahead = np.arange(len(ego)), np.array(looks)
    shift_m = vehicle.rear_axle_to_centre_m + ego.speed_mps[..., None] * dt_s * ahead  # [K, S, L]
    centre = ego.position_m[:, :, None] + shift_m[..., None] * forward(ego.heading_rad)[:, :, None]
    drift_m = others.velocity_mps[:, samples, None] * (dt_s * ahead)[:, None]
    there = others.position_m[:, samples, None] + drift_m  # [J, S, L, 2]
    if follows_forecast:
        there = others.position_m[:, samples[:, None] + ahead]
    reach = np.hypot(vehicle.length_m, vehicle.width_m) / 2 + forecast_radius_m(grown)
    # All trajectories start in one place, so the bounding box of all of them at each time rules out most others.
    apart = np.maximum(centre.min(axis=0) - there, there - centre.max(axis=0))  # [J, S, L, 2], negative inside
    other, step, look = np.nonzero((apart < reach[:, None, None, None]).all(axis=-1))
    away = centre[:, step, look] - there[other, step, look]  # [K, n, 2]
    car, which = np.nonzero(away[..., 0] ** 2 + away[..., 1] ** 2 < reach[other] ** 2)
    other, step, look, size = other[which], step[which], look[which], np.ones(len(car))
    own = box_corners(
        centre[car, step, look],
        ego.heading_rad[car, step],
        length_m=vehicle.length_m * size,
        width_m=vehicle.width_m * size,
    )
    theirs = box_corners(
        there[other, step, look],
        others.heading_rad[other, step],
        length_m=np.where(ahead[look] == 0, grown.length_m[other], others.length_m[other]),
        width_m=np.where(ahead[look] == 0, grown.width_m[other], others.width_m[other]),
    )
    touch = boxes_overlap(own, theirs)
    return car[touch], other[touch], step[touch], look[touch]


def with_safety_margin(
    ego: Trajectory, others: Forecast[np.ndarray], margin: SafetyMargin, vehicle: Vehicle
) -> Forecast[np.ndarray]:
    """The others enlarged by the margin, except those within it at sample 0, where all trajectories start."""
    if len(others) == 0 or (margin.ahead_m == 0 and margin.beside_m == 0):
        return others
    everyone, now = np.arange(len(others)), np.zeros(len(others), np.int64)
    length_m, width_m = others.length_m + 2 * margin.ahead_m, others.width_m + 2 * margin.beside_m
    grown = forecast_corners_m(replace(others, length_m=length_m, width_m=width_m), everyone, now)
    start = ego.select(0).samples(slice(0, 1)).corners_m(vehicle)
    apart = ~boxes_overlap(np.broadcast_to(start, grown.shape), grown)
    return replace(
        others,
        length_m=np.where(apart, length_m, others.length_m),
        width_m=np.where(apart, width_m, others.width_m),
    )
