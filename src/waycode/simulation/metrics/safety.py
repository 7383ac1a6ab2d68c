"""Safety: collisions that the ego is to blame for, and the time left to the next one."""

import numpy as np

from waycode.scene import TrackType
from waycode.simulation.history import History
from waycode.simulation.metrics.collisions import (
    AHEAD_RAD,
    BEHIND_RAD,
    Boxes,
    Collision,
    bearing,
    is_person,
    time_to_collision_s,
)
from waycode.simulation.metrics.results import (
    Evidence,
    MetricResult,
    Statistic,
    StatisticKind,
    boolean,
    series_statistics,
)
from waycode.simulation.metrics.whereabouts import Whereabouts

# How many collisions at fault are forgiven before the score is 0, by whom they are with.
FORGIVEN = {"persons": 0, "vehicles": 0, "objects": 1}
ENERGY_KINDS = (StatisticKind.MAX, StatisticKind.MIN, StatisticKind.MEAN)
TIME_STEP_S, TIME_HORIZON_S, LEAST_TIME_S = 0.1, 3.0, 0.95


def no_at_fault_collision(history: History, collisions: tuple[Collision, ...]) -> MetricResult:
    """1 without collisions at fault; 0 with one with a vehicle or person; 0.5 for the first with an object."""
    at_fault = [collision for collision in collisions if collision.at_fault]
    lost_mps = {group: [c.lost_speed_mps for c in at_fault if _group(history, c) == group] for group in FORGIVEN}
    score = float(np.prod([max(0.0, 1 - len(lost_mps[group]) / (FORGIVEN[group] + 1)) for group in FORGIVEN]))
    statistics = [
        boolean("no_at_fault_collision", not at_fault),
        Statistic(kind=StatisticKind.COUNT, name="at_fault_collisions", value=float(len(at_fault))),
    ]
    statistics += [
        Statistic(kind=StatisticKind.COUNT, name=f"at_fault_collisions_with_{group}", value=float(len(lost)))
        for group, lost in lost_mps.items()
    ]
    for group, lost in lost_mps.items():
        if lost:
            statistics += series_statistics(f"lost_speed_with_{group}_mps", np.array(lost), kinds=ENERGY_KINDS)
    return MetricResult(
        name="no_at_fault_collision",
        score=score,
        statistics=tuple(statistics),
        evidence=tuple(_collision_evidence(history, collision) for collision in at_fault),
    )


def _group(history: History, collision: Collision) -> str:
    kind = int(history.tracks.types[collision.track])
    return "persons" if is_person(kind) else "vehicles" if kind == TrackType.VEHICLE else "objects"


def _collision_evidence(history: History, collision: Collision) -> Evidence:
    kind = TrackType(int(history.tracks.types[collision.track])).name.lower()
    return Evidence(
        time_s=float(history.ego.time_s[collision.step]),
        what=f"{collision.type} collision with a {kind}, {collision.lost_speed_mps:.1f} m/s lost",
        track_id=history.tracks.ids[collision.track],
    )


def time_to_collision(
    history: History,
    boxes: Boxes,
    *,
    collisions: tuple[Collision, ...],
    where: Whereabouts,
    step_s: float = TIME_STEP_S,
    horizon_s: float = TIME_HORIZON_S,
    least_s: float = LEAST_TIME_S,
) -> MetricResult:
    """1 if at constant velocities the next collision is always more than `least_s` away, else 0.

    Watched are road users ahead; between lanes and in junctions all that are not behind. A road user that the ego has
    hit is no longer watched; when the ego hits one at fault the time is 0.
    """
    ego = history.ego
    angle = bearing(ego, boxes.centre_m)
    beside_too = ~where.in_one_lane | where.in_junction
    watched = (angle < AHEAD_RAD) | (beside_too[None] & (angle <= BEHIND_RAD))
    for collision in collisions:
        watched[collision.track, collision.step :] = False
    time_s, who = time_to_collision_s(ego, boxes, watched=watched, step_s=step_s, horizon_s=horizon_s)
    for collision in collisions:
        if collision.at_fault:
            time_s[collision.step], who[collision.step] = 0.0, collision.track
    worst = int(time_s.argmin())
    kept = bool(time_s[worst] > least_s)
    what = f"{time_s[worst]:.1f} s to a collision at constant velocities, more than {least_s} s are asked for"
    unsafe = Evidence(time_s=float(ego.time_s[worst]), what=what, track_id=_id(history, int(who[worst])))
    return MetricResult(
        name="time_to_collision",
        score=float(kept),
        statistics=(
            Statistic(kind=StatisticKind.MIN, name="least_time_to_collision_s", value=float(time_s[worst])),
            boolean("time_to_collision", kept),
        ),
        evidence=() if kept else (unsafe,),
        series=time_s,
    )


def _id(history: History, track: int) -> str | None:
    return history.tracks.ids[track] if len(history.tracks) else None
