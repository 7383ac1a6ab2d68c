"""Who plays which part: road users of the bundled scenes for whom a wish is meaningful, found by rule."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from waycode.scene import Lanes, Scene, TrackType
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, directions, project
from waycode.scene.lane_graph import LaneGraph
from waycode.scene.manoeuvre import LEFT_TURN_RAD, Manoeuvre, classify

FUTURE_S = 8.0
TURN_AHEAD_M = 30.0  # a turn that begins further ahead is not over within the horizon
SLOW_ENOUGH_MPS = 9.0  # who is faster cannot brake for a turn that near
FAST_MPS = 8.0
SPEEDY_MPS = 13.0  # highways: their ways are too long to be seen in a picture
LEAST_WAY_M, LONG_WAY_M = 5.0, 25.0
LANE_CHANGES = (Manoeuvre.LANE_CHANGE_LEFT, Manoeuvre.LANE_CHANGE_RIGHT)


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A car of a scene whose whole future was recorded."""

    scene: Scene
    scene_index: int  # in the dataset
    agent: int  # index of the track
    manoeuvre: Manoeuvre  # what it did
    lanes: LaneGraph

    @property
    def agent_id(self) -> str:
        return self.scene.tracks.ids[self.agent]

    @cached_property
    def recorded_m(self) -> Float[np.ndarray, "T 2"]:
        """Where it was at the steps after the current one."""
        return self.scene.tracks.position_m[self.agent, self._future].astype(np.float64)

    @property
    def recorded_speed_mps(self) -> Float[np.ndarray, " T"]:
        return self.scene.tracks.speed_mps[self.agent, self._future]

    @property
    def speed_mps(self) -> float:
        return float(self.scene.tracks.speed_mps[self.agent, self.scene.current_step])

    @property
    def lane(self) -> int | None:
        """The lane that it is on now."""
        tracks, now = self.scene.tracks, [self.scene.current_step]
        lane = int(self.lanes.lane_at(tracks.position_m[self.agent, now], tracks.heading_rad[self.agent, now])[0])
        return lane if lane >= 0 else None

    @property
    def _future(self) -> slice:
        now = self.scene.current_step
        return slice(now + 1, now + 1 + round(FUTURE_S / self.scene.dt_s))


def actors(scenes: Iterable[Scene]) -> list[Actor]:
    """The cars to predict that are seen from now to the end of the horizon."""
    found = []
    for index, scene in enumerate(scenes):
        lanes = scene.map.lanes.graph
        manoeuvres = classify(scene)
        end = scene.current_step + round(FUTURE_S / scene.dt_s) + 1
        for agent in map(int, scene.tracks.to_predict):
            seen = end <= scene.num_steps and bool(scene.tracks.valid[agent, scene.current_step : end].all())
            if seen and scene.tracks.types[agent] == TrackType.VEHICLE:
                found.append(
                    Actor(scene=scene, scene_index=index, agent=agent, manoeuvre=manoeuvres[agent], lanes=lanes)
                )
    return found


def could_turn_left(actor: Actor) -> bool:
    """It went another way, although it could have turned left."""
    return can_turn_left(actor) and actor.manoeuvre != Manoeuvre.LEFT_TURN


def turned_left(actor: Actor) -> bool:
    """It turned left at a junction (a bend of the road is no turn)."""
    return can_turn_left(actor) and actor.manoeuvre == Manoeuvre.LEFT_TURN


def can_turn_left(actor: Actor) -> bool:
    """A left turn begins on its lane, near enough and at a speed that allows it, and it did not just stand."""
    drives = actor.manoeuvre != Manoeuvre.ROUNDABOUT and _travelled_m(actor) > LEAST_WAY_M
    return drives and actor.speed_mps <= SLOW_ENOUGH_MPS and _left_turn_ahead(actor)


def turned(actor: Actor) -> bool:
    """It turned at a junction (on a bend it would be faster) and came far: its end does not lie straight ahead."""
    at_junction = actor.manoeuvre in (Manoeuvre.LEFT_TURN, Manoeuvre.RIGHT_TURN) and actor.speed_mps < SLOW_ENOUGH_MPS
    return at_junction and _travelled_m(actor) > LONG_WAY_M


def changed_lanes(actor: Actor) -> bool:
    return actor.manoeuvre in LANE_CHANGES and actor.speed_mps < SPEEDY_MPS


def could_change_left(actor: Actor) -> bool:
    """It stayed in its lane although there is another one on its left."""
    neighbours = actor.scene.map.lanes.left_neighbours
    beside = actor.lane is not None and bool((neighbours[:, 0] == actor.lane).any())
    return beside and actor.manoeuvre == Manoeuvre.STRAIGHT and FAST_MPS / 2 < actor.speed_mps < SPEEDY_MPS


def kept_speed(actor: Actor) -> bool:
    """It was fast and stayed so."""
    return bool(actor.recorded_speed_mps.min() > FAST_MPS) and actor.speed_mps < SPEEDY_MPS


def has_winding_route(actor: Actor) -> bool:
    """It is an ego with a route that turns, at a junction or around a roundabout."""
    is_ego = actor.agent == actor.scene.tracks.ego_index and actor.scene.route is not None
    winds = actor.manoeuvre in (Manoeuvre.LEFT_TURN, Manoeuvre.RIGHT_TURN, Manoeuvre.ROUNDABOUT)
    return is_ego and winds and _travelled_m(actor) > LONG_WAY_M and actor.speed_mps <= SLOW_ENOUGH_MPS


def _left_turn_ahead(actor: Actor) -> bool:
    """Whether a left turn through a junction begins on the lane of the actor, or soon after it."""
    if actor.lane is None:
        return False
    lanes = actor.scene.map.lanes
    here = actor.scene.tracks.position_m[actor.agent, [actor.scene.current_step]].astype(np.float64)
    line = lanes.centrelines[actor.lane].astype(np.float64)
    ahead = [(actor.lane, float(arclengths(line)[-1] - project(here, line)[0][0]))]  # lanes and how far they end
    while ahead:
        lane, end_m = ahead.pop()
        for after in lanes.graph.successors[lane] if end_m <= TURN_AHEAD_M else ():
            if lanes.in_junction[after] and _junction_turn_rad(lanes, after) > LEFT_TURN_RAD:
                return True
            if not lanes.in_junction[after]:
                ahead.append((after, end_m + float(arclengths(lanes.centrelines[after])[-1])))
    return False


def _junction_turn_rad(lanes: Lanes, lane: int) -> float:
    """How much a way through a junction turns in all, left positive; it may consist of several lanes."""
    turn = float(wrap_angle(np.diff(directions(lanes.centrelines[lane].astype(np.float64)))).sum())
    inside = [after for after in lanes.graph.successors[lane] if lanes.in_junction[after]]
    return turn + (_junction_turn_rad(lanes, inside[0]) if inside else 0.0)


def _travelled_m(actor: Actor) -> float:
    return float(arclengths(actor.recorded_m)[-1])
