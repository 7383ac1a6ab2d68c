"""Selection of the cases of the guidance tables (paper, section 5.3 and appendix A.7).

All cases are vehicles that are observed and on a lane of the map at every step from the current one to the end of the
horizon, so that their recorded motion can be measured like a plan.
Axes: n vehicles, F the current step and the steps of the horizon.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.driving.turns import STRAIGHT_RAD, earliest_turn_s, turn_rad, turns_ahead
from waycode.evaluation.motion import lane_changes_of
from waycode.scene import Scene, TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, project
from waycode.scene.lane_graph import LaneGraph
from waycode.scene.manoeuvre import LEFT_TURN_RAD

HORIZON_STEPS = 80
_LATEST_TURN_S = 7.0  # leaves a second of the horizon to show the turn
_CROSSING_M = 15.0  # a junction is a crossing if some lane that turns comes this close to the path of the vehicle
_STOP_SIGN_M = 25.0  # a stop sign this close to the path belongs to the crossing
_ALL_WAY_STOP_SIGNS = 3  # with only two stop signs the other road may have right of way
_HARDEST_ACCELERATION_MPS2 = 3.0  # bounds how far a vehicle can get within the horizon
_LANE_CHANGE_AFTER_S = 1.0  # an earlier lane change has already begun at the current step and cannot be avoided
_SPEED_NOW_MPS, _SIMILAR_MPS = (8.0, 10.0), 1.0  # "around 9 m/s", "a similar average speed" (appendix A.7)
_LEAST_DISTANCE_M = 5.0  # for a vehicle that travels less, goals and routes are trivial


class Group(StrEnum):
    """Groups of cases; each is a part of a table."""

    AVAILABLE = "left turn available"
    FROM_NO_LANE = "left turn from no lane"
    FROM_ANOTHER_LANE = "left turn from another lane only"  # a lane change before the turn could make it legal
    ZERO = "zero lane changes"
    ONE = "one lane change"
    STEADY = "steady at about 9 m/s"
    GOAL = "goal at the recorded end"
    ROUTE = "ego with a route"
    TURNED_LEFT = "turned left"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A vehicle of a scene, and its group."""

    scene_id: str
    agent: int  # index of the track
    group: Group  # decides on the objective
    all_way_stop: bool = False  # whether a left-turn case crosses at three or more stop signs


@dataclass(frozen=True)
class _Vehicles:
    """Vehicles that can be cases, from the current step to the end of the horizon."""

    graph: LaneGraph
    tracks: Int[np.ndarray, " n"]
    position_m: Float[np.ndarray, "n F 2"]
    heading_rad: Float[np.ndarray, "n F"]
    speed_mps: Float[np.ndarray, "n F"]
    lane: Int[np.ndarray, "n F"]

    @staticmethod
    def of(scene: Scene) -> "_Vehicles":
        graph, tracks = scene.map.lanes.graph, scene.tracks
        steps = slice(scene.current_step, scene.current_step + HORIZON_STEPS + 1)
        seen = tracks.valid[:, steps].all(axis=1) & (tracks.types == TrackType.VEHICLE)
        if tracks.num_steps < scene.current_step + HORIZON_STEPS + 1 or len(scene.map.lanes) == 0:
            seen[:] = False
        chosen = np.flatnonzero(seen)
        position, heading = tracks.position_m[chosen, steps], tracks.heading_rad[chosen, steps]
        lane = graph.lane_at(position, heading)
        on_map = (lane >= 0).all(axis=1)
        speed = tracks.speed_mps[chosen, steps]
        return _Vehicles(graph, chosen[on_map], position[on_map], heading[on_map], speed[on_map], lane[on_map])

    def turns_rad(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Cumulative change of the recorded heading to the left and to the right, both positive."""
        steps = wrap_angle(np.diff(self.heading_rad, axis=1))
        return np.maximum(steps, 0).sum(axis=1), np.maximum(-steps, 0).sum(axis=1)

    def on_roundabout(self) -> Bool[np.ndarray, " n"]:
        return self.graph.ring[self.lane].any(axis=1)

    def travelling(self) -> Bool[np.ndarray, " n"]:
        return np.array([arclengths(path)[-1] > _LEAST_DISTANCE_M for path in self.position_m], np.bool_)


def left_turn_cases(scene: Scene) -> list[Case]:
    """Vehicles that go straight over a crossing ahead, grouped by whether they could turn left there instead."""
    vehicles = _Vehicles.of(scene)
    inside = scene.map.lanes.in_junction[vehicles.lane]
    crosses = inside.any(axis=1) & ~inside[:, 0] & ~inside[:, -1] & ~vehicles.on_roundabout()
    turning = _turning_points(scene)
    cases = []
    for row in np.flatnonzero(crosses & (np.maximum(*vehicles.turns_rad()) < STRAIGHT_RAD)):
        if _near(vehicles.position_m[row, inside[row]], turning, within_m=_CROSSING_M):
            group = _left_turn_group(scene, vehicles, int(row))
            if group is not None:
                track, stops = int(vehicles.tracks[row]), _is_all_way_stop(scene, vehicles.position_m[row, inside[row]])
                cases.append(Case(scene_id=scene.id, agent=track, group=group, all_way_stop=stops))
    return cases


def lane_change_cases(scene: Scene) -> list[Case]:
    """Vehicles that change to the left once and never to the right: each is a case for no change and for one."""
    vehicles = _Vehicles.of(scene)
    soon = round(_LANE_CHANGE_AFTER_S / scene.dt_s)
    changes = [
        lane_changes_of(vehicles.graph, lane) == (1, 0) and lane_changes_of(vehicles.graph, lane[: soon + 1]) == (0, 0)
        for lane in vehicles.lane
    ]
    chosen = vehicles.tracks[np.array(changes, np.bool_) & ~vehicles.on_roundabout()]
    return _cases(scene, chosen, Group.ZERO) + _cases(scene, chosen, Group.ONE)


def slow_down_cases(scene: Scene) -> list[Case]:
    """Vehicles at about 9 m/s whose mean speed over the horizon is similar."""
    vehicles = _Vehicles.of(scene)
    now, mean = vehicles.speed_mps[:, 0], vehicles.speed_mps.mean(axis=1)
    steady = (now >= _SPEED_NOW_MPS[0]) & (now <= _SPEED_NOW_MPS[1]) & (np.abs(mean - now) <= _SIMILAR_MPS)
    return _cases(scene, vehicles.tracks[steady], Group.STEADY)


def goal_cases(scene: Scene) -> list[Case]:
    """Vehicles to predict that move: the goal is where the recording ends."""
    vehicles = _Vehicles.of(scene)
    chosen = vehicles.travelling() & np.isin(vehicles.tracks, scene.tracks.to_predict)
    return _cases(scene, vehicles.tracks[chosen], Group.GOAL)


def route_cases(scene: Scene) -> list[Case]:
    """The ego, if it has a route and moves."""
    if scene.route is None or scene.tracks.ego_index is None:
        return []
    vehicles = _Vehicles.of(scene)
    chosen = vehicles.travelling() & (vehicles.tracks == scene.tracks.ego_index)
    return _cases(scene, vehicles.tracks[chosen], Group.ROUTE)


def turned_left_cases(scene: Scene) -> list[Case]:
    """Vehicles that turn left at a junction ahead: their tokens can be carried into other scenes."""
    vehicles = _Vehicles.of(scene)
    inside = scene.map.lanes.in_junction[vehicles.lane]
    crosses = inside.any(axis=1) & ~inside[:, 0] & ~vehicles.on_roundabout()
    return _cases(scene, vehicles.tracks[crosses & (vehicles.turns_rad()[0] > LEFT_TURN_RAD)], Group.TURNED_LEFT)


def _cases(scene: Scene, tracks: Int[np.ndarray, " _"], group: Group) -> list[Case]:
    return [Case(scene_id=scene.id, agent=int(track), group=group) for track in tracks]


def _left_turn_group(scene: Scene, vehicles: _Vehicles, row: int) -> Group | None:
    """None if a left turn is ahead, but the vehicle is too fast or too far away to turn within the horizon."""
    lanes, lane, speed = scene.map.lanes, int(vehicles.lane[row, 0]), float(vehicles.speed_mps[row, 0])
    horizon_s = HORIZON_STEPS * scene.dt_s
    reach_m = speed * horizon_s + _HARDEST_ACCELERATION_MPS2 * horizon_s**2 / 2
    centreline = lanes.centrelines[lane].astype(np.float64)
    along = float(project(vehicles.position_m[row, :1].astype(np.float64), centreline)[0][0])
    turns = turns_ahead(lanes, lane, along_m=along, reach_m=reach_m)
    if not turns:
        beside = lanes.graph.reachable([lane], lanes.graph.beside) - {lane}  # by lane changes alone
        available = any(turns_ahead(lanes, other, along_m=along, reach_m=reach_m) for other in beside)
        return Group.FROM_ANOTHER_LANE if available else Group.FROM_NO_LANE
    times = [earliest_turn_s(lanes, turn, speed_mps=speed) for turn in turns]
    in_time = any(time is not None and time <= _LATEST_TURN_S for time in times)
    return Group.AVAILABLE if in_time else None


def _is_all_way_stop(scene: Scene, crossing_m: Float[np.ndarray, "n 2"]) -> bool:
    """Whether the path over a crossing has three or more stop signs beside it."""
    signs = sum(_near(sign[None], crossing_m, within_m=_STOP_SIGN_M) for sign in scene.map.stop_signs.position_m)
    return signs >= _ALL_WAY_STOP_SIGNS


def _turning_points(scene: Scene) -> Float[np.ndarray, "P 2"]:
    """Points of all lanes within junctions that turn to either side."""
    lanes = scene.map.lanes
    turning = [lane for lane in np.flatnonzero(lanes.in_junction) if abs(turn_rad(lanes, (int(lane),))) > LEFT_TURN_RAD]
    return np.concatenate([np.zeros((0, 2)), *(lanes.centrelines[lane].astype(np.float64) for lane in turning)])


def _near(points_m: Float[np.ndarray, "n 2"], others_m: Float[np.ndarray, "P 2"], *, within_m: float) -> bool:
    distance = np.linalg.norm(points_m[:, None] - others_m[None], axis=-1)
    return bool((distance < within_m).any())
