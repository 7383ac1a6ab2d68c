"""Safety: at-fault collisions and time to collision. Axes: T steps, A other road users, n pairs of these.

The rules are those of `waycode.driving.collisions`, applied to simulated tracks and lane polygons.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.driving.collisions import (
    TTC_STOPPED_MPS,
    CollisionType,
    bearing,
    classify_collisions,
    front_overlaps,
    is_at_fault,
    is_relevant_for_ttc,
)
from waycode.scene import Tracks, TrackType
from waycode.scene.geometry import box_corners, boxes_overlap, forward
from waycode.simulation.history import EgoHistory, History
from waycode.simulation.metrics.location import EgoLocation
from waycode.simulation.metrics.results import (
    Evidence,
    MetricResult,
    Statistic,
    StatisticKind,
    boolean,
    series_statistics,
)

_FRONT_EDGE_DEPTH_M = 0.001  # nuPlan's metric tests the ego's front edge, a line
# Number of at-fault collisions that still leave a score above 0, by group of road users (nuPlan).
_TOLERATED_COLLISIONS = {"persons": 0, "vehicles": 0, "objects": 1}
_GROUPS = {TrackType.VEHICLE: "vehicles", TrackType.PEDESTRIAN: "persons", TrackType.CYCLIST: "persons"}
_LOST_SPEED_KINDS = (StatisticKind.MAX, StatisticKind.MIN, StatisticKind.MEAN)


@dataclass(frozen=True, kw_only=True)
class EgoCollision:
    """The first contact of the ego with another road user; later contacts with the same one do not count."""

    step: int
    track: int  # row of the history's tracks
    type: CollisionType
    at_fault: bool
    lost_speed_mps: float  # the ego's change of velocity in an inelastic collision of equal masses


@dataclass(frozen=True, kw_only=True)
class TrackBoxes:
    """The boxes of the other road users, in float64."""

    centre_m: Float[np.ndarray, "A T 2"]
    heading_rad: Float[np.ndarray, "A T"]
    corners_m: Float[np.ndarray, "A T 4 2"]
    speed_mps: Float[np.ndarray, "A T"]
    radius_m: Float[np.ndarray, " A"]  # half of the diagonal
    valid: Bool[np.ndarray, "A T"]

    @staticmethod
    def of(tracks: Tracks) -> "TrackBoxes":
        centre, heading = tracks.position_m.astype(np.float64), tracks.heading_rad.astype(np.float64)
        length, width = tracks.length_m.astype(np.float64), tracks.width_m.astype(np.float64)
        every_step = np.ones(heading.shape)
        return TrackBoxes(
            centre_m=centre,
            heading_rad=heading,
            corners_m=box_corners(
                centre, heading, length_m=length[:, None] * every_step, width_m=width[:, None] * every_step
            ),
            speed_mps=tracks.speed_mps.astype(np.float64),
            radius_m=np.hypot(length, width) / 2,
            valid=tracks.valid,
        )


def find_collisions(
    ego: EgoHistory, boxes: TrackBoxes, *, in_one_lane: Bool[np.ndarray, " T"]
) -> tuple[EgoCollision, ...]:
    """The first contact with every other road user, in order of time.

    Args:
        ego: the ego over T steps.
        boxes: the others over the same steps.
        in_one_lane: whether the whole ego is in one lane.
    """
    close = np.linalg.norm(boxes.centre_m - ego.centre_m[None], axis=-1) < _reach_m(ego, boxes)[:, None]
    track, step = np.nonzero(boxes.valid & close)  # sorted by track, then by step
    hit = boxes_overlap(ego.corners_m[step], boxes.corners_m[track, step])
    track, first = np.unique(track[hit], return_index=True)
    step = step[hit][first]
    own_mps, other_mps = ego.speed_mps[step], boxes.speed_mps[track, step]
    rear_axle_m, heading = ego.rear_axle_m[step], ego.heading_rad[step]
    types = classify_collisions(
        own_mps,
        other_mps,
        bearing_rad=bearing(rear_axle_m, heading, boxes.centre_m[track, step]),
        front=front_overlaps(
            rear_axle_m, heading, boxes.corners_m[track, step], vehicle=ego.vehicle, depth_m=_FRONT_EDGE_DEPTH_M
        ),
    )
    at_fault = is_at_fault(types, in_one_lane=in_one_lane[step])
    cos = np.cos(heading - boxes.heading_rad[track, step])
    lost_mps = np.sqrt(np.maximum(0.0, own_mps**2 + other_mps**2 - 2 * own_mps * other_mps * cos)) / 2
    return tuple(
        EgoCollision(
            step=int(step[pair]),
            track=int(track[pair]),
            type=CollisionType(types[pair]),
            at_fault=bool(at_fault[pair]),
            lost_speed_mps=float(lost_mps[pair]),
        )
        for pair in np.lexsort((track, step))
    )


def no_at_fault_collision(history: History, collisions: tuple[EgoCollision, ...]) -> MetricResult:
    """1 without at-fault collisions; 0 with one with a vehicle or person; 0.5 with one object, 0 with two."""
    at_fault = [collision for collision in collisions if collision.at_fault]
    lost_mps: dict[str, list[float]] = {group: [] for group in _TOLERATED_COLLISIONS}
    evidence = []
    for collision in at_fault:
        kind = TrackType(int(history.tracks.types[collision.track]))
        lost_mps[_GROUPS.get(kind, "objects")].append(collision.lost_speed_mps)
        description = (
            f"{collision.type.label} collision with a {kind.name.lower()}, {collision.lost_speed_mps:.1f} m/s lost"
        )
        time_s = float(history.ego.time_s[collision.step])
        evidence.append(Evidence(time_s=time_s, description=description, track_id=history.tracks.ids[collision.track]))
    factors = [max(0.0, 1 - len(lost) / (_TOLERATED_COLLISIONS[group] + 1)) for group, lost in lost_mps.items()]
    counts = {"at_fault_collisions": len(at_fault)}
    counts |= {f"at_fault_collisions_with_{group}": len(lost) for group, lost in lost_mps.items()}
    statistics = [boolean("no_at_fault_collision", not at_fault)]
    statistics += [Statistic(kind=StatisticKind.COUNT, name=name, value=float(count)) for name, count in counts.items()]
    for group, lost in lost_mps.items():
        if lost:
            statistics += series_statistics(f"lost_speed_with_{group}_mps", np.array(lost), kinds=_LOST_SPEED_KINDS)
    return MetricResult(
        name="no_at_fault_collision",
        score=float(np.prod(factors)),
        statistics=tuple(statistics),
        evidence=tuple(evidence),
    )


def time_to_collision(
    history: History,
    boxes: TrackBoxes,
    *,
    collisions: tuple[EgoCollision, ...],
    location: EgoLocation,
    step_s: float = 0.1,
    horizon_s: float = 3.0,
    least_s: float = 0.95,
) -> MetricResult:
    """1 if the time to collision at constant velocities is always above `least_s`, else 0.

    Road users that the ego has hit no longer count; at the step of an at-fault collision the time is 0.

    Args:
        history: the finished run.
        boxes: its other road users.
        collisions: its collisions, see `find_collisions`.
        location: the ego's lanes and junctions.
        step_s: time between two checks for overlap.
        horizon_s: checks end before this time.
        least_s: shortest time that is safe.
    """
    ego = history.ego
    counted = boxes.valid.copy()
    for collision in collisions:
        counted[collision.track, collision.step :] = False
    time_s, nearest = _time_to_collision_s(
        ego, boxes, counted=counted, location=location, step_s=step_s, horizon_s=horizon_s
    )
    for collision in collisions:
        if collision.at_fault:
            time_s[collision.step], nearest[collision.step] = 0.0, collision.track
    worst = int(time_s.argmin())
    kept = bool(time_s[worst] > least_s)
    evidence = []
    if not kept:
        description = f"{time_s[worst]:.1f} s to a collision at constant velocities, more than {least_s} s is required"
        track_id = history.tracks.ids[int(nearest[worst])]
        evidence.append(Evidence(time_s=float(ego.time_s[worst]), description=description, track_id=track_id))
    return MetricResult(
        name="time_to_collision",
        score=float(kept),
        statistics=(
            Statistic(kind=StatisticKind.MIN, name="least_time_to_collision_s", value=float(time_s[worst])),
            boolean("time_to_collision", kept),
        ),
        evidence=tuple(evidence),
        series=time_s,
    )


def _time_to_collision_s(
    ego: EgoHistory,
    boxes: TrackBoxes,
    *,
    counted: Bool[np.ndarray, "A T"],
    location: EgoLocation,
    step_s: float,
    horizon_s: float,
) -> tuple[Float[np.ndarray, " T"], Int[np.ndarray, " T"]]:
    """Time until the ego first overlaps another road user if all keep velocity and heading, and that user's row.

    Overlap is tested at step_s, 2 step_s, ... below horizon_s. The time is infinite where there is no overlap; the row
    then has no meaning.
    """
    own_velocity = ego.speed_mps[:, None] * forward(ego.heading_rad)
    velocity = boxes.speed_mps[..., None] * forward(boxes.heading_rad) - own_velocity[None]  # relative to the ego
    offset = boxes.centre_m - ego.centre_m[None]
    reach = _reach_m(ego, boxes)[:, None]
    # The closest approach on straight lines excludes most pairs before boxes are compared.
    nearest_s = np.clip(-(offset * velocity).sum(-1) / np.maximum((velocity**2).sum(-1), 1e-12), 0, horizon_s)
    passes = np.linalg.norm(offset + nearest_s[..., None] * velocity, axis=-1) < reach
    track, step = np.nonzero(counted & passes & (ego.speed_mps > TTC_STOPPED_MPS))
    relevant = is_relevant_for_ttc(
        bearing(ego.rear_axle_m[step], ego.heading_rad[step], boxes.centre_m[track, step]),
        in_one_lane=location.in_one_lane[step],
        in_junction=location.in_junction[step],
    )
    track, step = track[relevant], step[relevant]
    later_s = np.arange(step_s, horizon_s, step_s)
    moved = offset[track, step][:, None] + later_s[:, None] * velocity[track, step][:, None]  # [n, checks, 2]
    pair, late = np.nonzero(np.linalg.norm(moved, axis=-1) < reach[track])
    shift = later_s[late, None] * velocity[track[pair], step[pair]]
    theirs = boxes.corners_m[track[pair], step[pair]] + shift[:, None]
    hit = boxes_overlap(ego.corners_m[step[pair]], theirs)
    pair, late = pair[hit], late[hit]
    soonest, row = np.full(len(ego), np.inf), np.zeros(len(ego), np.int64)
    for index in np.lexsort((track[pair], late))[::-1]:  # the soonest is written last
        soonest[step[pair[index]]], row[step[pair[index]]] = later_s[late[index]], track[pair[index]]
    return soonest, row


def _reach_m(ego: EgoHistory, boxes: TrackBoxes) -> Float[np.ndarray, " A"]:
    """Distance between centres below which two boxes may overlap."""
    return np.hypot(ego.vehicle.length_m, ego.vehicle.width_m) / 2 + boxes.radius_m
