"""Which road users the tables of guided planning are about (paper, section 5.3 and appendix A.7).

All are vehicles that are observed at every step from now to the end of the horizon and are on a lane of the map all
the while: what they did can then be judged by the same measures as what a plan would have them do.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float, Int

from waycode.evaluation.driven import lane_changes
from waycode.evaluation.left_turns import (
    earliest_turn_s,
    lanes_beside,
    left_turns_ahead,
    turn_rad_of,
)
from waycode.scene import Scene, TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import project
from waycode.scene.lane_graph import LaneGraph
from waycode.scene.manoeuvre import LEFT_TURN_RAD

HORIZON_STEPS = 80
STRAIGHT_RAD = np.radians(20)  # who turns less, to either side, goes straight
LATEST_TURN_S = 7.0  # leaves a second of the horizon to show the turn
CROSSING_M = 15.0  # a junction is a crossing if some way that turns comes this close to the way straight on
STOP_SIGN_M = 25.0  # and has the stop signs that are this close to it
ALL_WAY_STOP_SIGNS = 3  # at least so many stop signs by a crossing: two can leave the other road its way
HARDEST_ACCELERATION_MPS2 = 3.0  # to say how far a road user could get at all
UNDER_WAY_S = 1.0  # who is on another lane sooner has begun to change already: it is too late to ask for none
SPEED_NOW_MPS, SIMILAR_MPS = (8.0, 10.0), 1.0  # "around 9 m/s", "a similar average speed" (appendix A.7)


class Group(StrEnum):
    """What a case stands for: the part of a table."""

    AVAILABLE = "left turn available, all-way stop"  # what the paper's table is about
    AVAILABLE_ELSEWHERE = "left turn available, other crossing"
    NOT_AVAILABLE = "no left turn available"
    FROM_ANOTHER_LANE = "left turn from another lane only"  # neither here nor there: one could change lanes before it
    ZERO = "zero lane changes"
    ONE = "one lane change"
    STEADY = "steady at about 9 m/s"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A road user of a scene, and what the case stands for."""

    scene_id: str
    agent: int
    group: Group


@dataclass(frozen=True)
class _Vehicles:
    """Candidates of a scene, from the current step to the end of the horizon."""

    index: LaneGraph
    tracks: Int[np.ndarray, " n"]
    position_m: Float[np.ndarray, "n F 2"]
    heading_rad: Float[np.ndarray, "n F"]
    speed_mps: Float[np.ndarray, "n F"]
    lane: Int[np.ndarray, "n F"]

    @staticmethod
    def of(scene: Scene) -> "_Vehicles":
        index, tracks = scene.map.lanes.graph, scene.tracks
        steps = slice(scene.current_step, scene.current_step + HORIZON_STEPS + 1)
        seen = tracks.valid[:, steps].all(axis=1) & (tracks.types == TrackType.VEHICLE)
        if tracks.num_steps < scene.current_step + HORIZON_STEPS + 1 or len(scene.map.lanes) == 0:
            seen[:] = False
        chosen = np.flatnonzero(seen)
        position, heading = tracks.position_m[chosen, steps], tracks.heading_rad[chosen, steps]
        lane = index.lane_at(position, heading)
        on_map = (lane >= 0).all(axis=1)
        speed = tracks.speed_mps[chosen, steps]
        return _Vehicles(index, chosen[on_map], position[on_map], heading[on_map], speed[on_map], lane[on_map])


def left_turn_cases(scene: Scene) -> list[Case]:
    """Vehicles that go straight over a crossing ahead, with or without a left turn that they could take instead."""
    vehicles = _Vehicles.of(scene)
    steps = wrap_angle(np.diff(vehicles.heading_rad, axis=1))
    bend = np.maximum(np.maximum(steps, 0).sum(axis=1), np.maximum(-steps, 0).sum(axis=1))
    inside = scene.map.lanes.in_junction[vehicles.lane]
    crosses = inside.any(axis=1) & ~inside[:, 0] & ~inside[:, -1] & ~vehicles.index.ring[vehicles.lane].any(axis=1)
    turning = _turning_points(scene)
    cases = []
    for row in np.flatnonzero(crosses & (bend < STRAIGHT_RAD)):
        if not _near(vehicles.position_m[row, inside[row]], turning, within_m=CROSSING_M):
            continue
        group = _left_turn_group(scene, vehicles, int(row))
        if group is not None:
            cases.append(Case(scene_id=scene.id, agent=int(vehicles.tracks[row]), group=group))
    return cases


def lane_change_cases(scene: Scene) -> list[Case]:
    """Vehicles that will change to the left once and never to the right: each is asked for no change and for one."""
    vehicles = _Vehicles.of(scene)
    around = vehicles.index.ring[vehicles.lane].any(axis=1)
    soon = round(UNDER_WAY_S / scene.dt_s)
    chosen = [
        int(track)
        for track, lane, ring in zip(vehicles.tracks, vehicles.lane, around, strict=True)
        if not ring
        and lane_changes(vehicles.index, lane) == (1, 0)
        and lane_changes(vehicles.index, lane[: soon + 1]) == (0, 0)
    ]
    return [Case(scene_id=scene.id, agent=agent, group=group) for group in (Group.ZERO, Group.ONE) for agent in chosen]


def slow_down_cases(scene: Scene) -> list[Case]:
    """Vehicles at about 9 m/s that keep about their speed on average."""
    vehicles = _Vehicles.of(scene)
    now, mean = vehicles.speed_mps[:, 0], vehicles.speed_mps.mean(axis=1)
    steady = (now >= SPEED_NOW_MPS[0]) & (now <= SPEED_NOW_MPS[1]) & (np.abs(mean - now) <= SIMILAR_MPS)
    return [Case(scene_id=scene.id, agent=int(track), group=Group.STEADY) for track in vehicles.tracks[steady]]


def _left_turn_group(scene: Scene, vehicles: _Vehicles, row: int) -> Group | None:
    """None where a left turn is ahead, but too far or too near for the speed: nothing can be asked of such a case."""
    lanes, lane, speed = scene.map.lanes, int(vehicles.lane[row, 0]), float(vehicles.speed_mps[row, 0])
    horizon_s = HORIZON_STEPS * scene.dt_s
    reach_m = speed * horizon_s + HARDEST_ACCELERATION_MPS2 * horizon_s**2 / 2
    centreline = lanes.centrelines[lane].astype(np.float64)
    along = float(project(vehicles.position_m[row, :1].astype(np.float64), centreline)[0][0])
    turns = left_turns_ahead(lanes, lane, along_m=along, reach_m=reach_m)
    if not turns:
        beside = any(
            left_turns_ahead(lanes, other, along_m=along, reach_m=reach_m) for other in lanes_beside(lanes, lane)
        )
        return Group.FROM_ANOTHER_LANE if beside else Group.NOT_AVAILABLE
    times = [earliest_turn_s(lanes, turn, speed_mps=speed) for turn in turns]
    if not any(time is not None and time <= LATEST_TURN_S for time in times):
        return None
    crossing = vehicles.position_m[row, lanes.in_junction[vehicles.lane[row]]]
    signs = sum(_near(sign[None], crossing, within_m=STOP_SIGN_M) for sign in scene.map.stop_signs.position_m)
    return Group.AVAILABLE if signs >= ALL_WAY_STOP_SIGNS else Group.AVAILABLE_ELSEWHERE


def _turning_points(scene: Scene) -> Float[np.ndarray, "p 2"]:
    """Points of all lanes within junctions that turn to either side."""
    lanes = scene.map.lanes
    turning = [lane for lane in np.flatnonzero(lanes.in_junction) if abs(turn_rad_of(lanes, int(lane))) > LEFT_TURN_RAD]
    return np.concatenate([np.zeros((0, 2)), *(lanes.centrelines[lane].astype(np.float64) for lane in turning)])


def _near(points_m: Float[np.ndarray, "n 2"], others_m: Float[np.ndarray, "p 2"], *, within_m: float) -> bool:
    distance = np.linalg.norm(points_m[:, None] - others_m[None], axis=-1)
    return bool((distance < within_m).any())
