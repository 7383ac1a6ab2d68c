"""The manoeuvre of each track after the current step, for counting and for balanced sampling.

Axes: A tracks, F the current step and the steps after it.
"""

from enum import StrEnum
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.scene.frames import wrap_angle
from waycode.scene.types import Scene, TrackType

LEFT_TURN_RAD = np.pi / 4  # the paper's footnote: a left turn is a cumulative leftward change of heading above this
_STANDING_DISTANCE_M, _STANDING_SPEED_MPS = 1.0, 0.5  # at most
_DRIVING_SPEED_MPS = 2.0  # at least
_SLOW_DOWN_RATIO = 0.6  # of the first speed
_ROUNDABOUT_STEPS = 10  # least number of steps on the ring; other lanes may touch it for a few steps
_LANE_STRIDE = 3  # steps between lane lookups: a lane change takes tens of steps
_MIN_LANE_DISTANCE_M = 10.0  # a road user that moves less changes no lane
_MIN_FUTURE_STEPS = 15  # observed, the current step not counted


class Manoeuvre(StrEnum):
    UNOBSERVED = "unobserved"  # not observed at the current step, or for too short a time after it
    STANDING = "standing"
    ROUNDABOUT = "roundabout"
    LEFT_TURN = "left turn"
    RIGHT_TURN = "right turn"
    LANE_CHANGE_LEFT = "lane change left"
    LANE_CHANGE_RIGHT = "lane change right"
    STOP = "stop"
    START = "start"
    SLOW_DOWN = "slow-down"
    STRAIGHT = "straight"


def classify(scene: Scene) -> list[Manoeuvre]:
    """The manoeuvre of every track from the current step on: the first of `Manoeuvre` whose condition holds.

    A turn is a net change of heading above `LEFT_TURN_RAD`, to either side.
    """
    tracks = scene.tracks
    future = slice(scene.current_step, None)
    valid = tracks.valid[:, future]
    observed = valid[:, 0] & (valid.sum(axis=1) > _MIN_FUTURE_STEPS)
    last = valid.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)
    position, speed = tracks.position_m[:, future], tracks.speed_mps[:, future]
    distance = np.where(valid, np.linalg.norm(position - position[:, :1], axis=-1), 0).max(axis=1)
    turn = _net_turn(tracks.heading_rad[:, future], valid)
    first_speed, last_speed = speed[:, 0], speed[np.arange(len(tracks)), last]
    driving = observed & (distance > _MIN_LANE_DISTANCE_M) & (tracks.types != TrackType.PEDESTRIAN)
    around, changes = _roundabouts_and_lane_changes(scene, driving)
    conditions: dict[Manoeuvre, Bool[np.ndarray, " A"]] = {
        Manoeuvre.UNOBSERVED: ~observed,
        Manoeuvre.STANDING: distance <= _STANDING_DISTANCE_M,
        Manoeuvre.ROUNDABOUT: around,
        Manoeuvre.LEFT_TURN: turn > LEFT_TURN_RAD,
        Manoeuvre.RIGHT_TURN: turn < -LEFT_TURN_RAD,
        Manoeuvre.LANE_CHANGE_LEFT: changes > 0,
        Manoeuvre.LANE_CHANGE_RIGHT: changes < 0,
        Manoeuvre.STOP: (first_speed > _DRIVING_SPEED_MPS) & (last_speed < _STANDING_SPEED_MPS),
        Manoeuvre.START: (first_speed < _STANDING_SPEED_MPS) & (last_speed > _DRIVING_SPEED_MPS),
        Manoeuvre.SLOW_DOWN: (first_speed > _DRIVING_SPEED_MPS) & (last_speed < _SLOW_DOWN_RATIO * first_speed),
    }
    names = list(conditions)
    chosen = np.select(list(conditions.values()), list(range(len(names))), default=len(names))
    return [names[index] if index < len(names) else Manoeuvre.STRAIGHT for index in chosen]


def _net_turn(heading_rad: Float[np.ndarray, "A F"], valid: Bool[np.ndarray, "A F"]) -> Float[np.ndarray, " A"]:
    """Sum of the changes of heading between steps that are both observed, left positive."""
    steps = wrap_angle(np.diff(heading_rad, axis=1))
    return np.where(valid[:, 1:] & valid[:, :-1], steps, 0).sum(axis=1)


def _roundabouts_and_lane_changes(
    scene: Scene, which: Bool[np.ndarray, " A"]
) -> tuple[Bool[np.ndarray, " A"], Int[np.ndarray, " A"]]:
    """Which tracks drive around a roundabout, and the lane changes of each: those to the left minus those to the right.

    Tracks outside `which` have neither.
    """
    around, changes = np.zeros(len(which), np.bool_), np.zeros(len(which), np.int64)
    graph = scene.map.lanes.graph
    if len(graph) == 0 or not which.any():
        return around, changes
    steps = slice(scene.current_step, None, _LANE_STRIDE)
    tracks = scene.tracks
    lane = graph.lane_at(tracks.position_m[which, steps], tracks.heading_rad[which, steps])
    lane = np.where(tracks.valid[which, steps], lane, -1)  # [n, F]
    around[which] = (graph.ring[lane] & (lane >= 0)).sum(axis=1) >= _ROUNDABOUT_STEPS / _LANE_STRIDE
    clear = (lane >= 0) & ~graph.lanes.in_junction[lane]  # lanes cross and overlap within junctions
    changes[which] = [
        sum(graph.change(before, after) for before, after in pairwise(row[keep].tolist()) if before != after)
        for row, keep in zip(lane, clear, strict=True)
    ]
    return around, changes
