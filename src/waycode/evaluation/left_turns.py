"""Which left turns a road user could still take: the legal ways ahead of it, and how soon each turn can be driven."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.scene import Lanes
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, directions
from waycode.scene.manoeuvre import LEFT_TURN_RAD

STRAIGHT_RAD = np.radians(20)  # a way that bends less within a junction goes straight on
MAX_WAYS = 256  # so that the search ends on a map with loops
_STEP_M = 0.5


@dataclass(frozen=True, kw_only=True)
class DrivingLimits:
    """How briskly a driver comes to a turn: within what cars can do and passengers bear."""

    acceleration_mps2: float = 1.5
    braking_mps2: float = 3.0
    lateral_mps2: float = 3.0
    assumed_limit_mps: float = 13.9  # where a lane's speed limit is not known


@dataclass(frozen=True, kw_only=True)
class LeftTurn:
    """A left turn ahead, reached without a change of lane."""

    lanes: tuple[int, ...]  # from the present one to the last one of the turn
    turning: int  # how many of these, at the end, are the turn itself
    distance_m: float  # from the road user to where the turn begins


def left_turns_ahead(lanes: Lanes, lane: int, *, along_m: float, reach_m: float) -> list[LeftTurn]:
    """Every left turn above 45 degrees that begins within `reach_m` and lies straight ahead of a place on a lane."""
    found: list[LeftTurn] = []
    open_ways: list[tuple[int, ...]] = [(lane,)]
    for _ in range(MAX_WAYS):
        if not open_ways:
            break
        way = open_ways.pop()
        turning = _trailing_junction(lanes, way)
        distance_m = sum(float(lanes.graph.length_m[part]) for part in way[: len(way) - turning]) - along_m
        onward = [after for after in lanes.graph.successors[way[-1]] if after not in way]
        if turning and not any(lanes.in_junction[after] for after in onward):  # the junction ends here
            turn_rad = _turn_rad(lanes, way[len(way) - turning :])
            if turn_rad > LEFT_TURN_RAD and distance_m <= reach_m:
                found.append(LeftTurn(lanes=way, turning=turning, distance_m=max(distance_m, 0.0)))
            if abs(turn_rad) > STRAIGHT_RAD:
                continue
        if distance_m <= reach_m:
            open_ways += [(*way, after) for after in onward]
    return found


def lanes_beside(lanes: Lanes, lane: int) -> list[int]:
    """All lanes that one gets to from a lane by lane changes alone."""
    return sorted(lanes.graph.reachable([lane], lanes.graph.beside) - {lane})


def earliest_turn_s(
    lanes: Lanes, turn: LeftTurn, *, speed_mps: float, limits: DrivingLimits | None = None
) -> float | None:
    """When a brisk driver has turned by 45 degrees, or None for one who is too fast to brake for the turn."""
    limits = limits or DrivingLimits()
    turned_m, curvature_1pm = _first_part(lanes, turn.lanes[len(turn.lanes) - turn.turning :])
    along = np.arange(0, turn.distance_m + turned_m + _STEP_M, _STEP_M)
    road_mps = np.array([_limit_mps(lanes, lane, limits) for lane in (turn.lanes[0], turn.lanes[-1])])
    corner_mps = min(float(road_mps[1]), float(np.sqrt(limits.lateral_mps2 / curvature_1pm)))
    most = np.where(along < turn.distance_m, np.maximum(road_mps[0], speed_mps), corner_mps)
    braking = np.sqrt(corner_mps**2 + 2 * limits.braking_mps2 * np.maximum(turn.distance_m - along, 0))
    if speed_mps > max(braking[0], corner_mps):
        return None
    starting = np.sqrt(speed_mps**2 + 2 * limits.acceleration_mps2 * along)
    speed = np.minimum(np.minimum(most, braking), starting)
    return float((_STEP_M * 2 / np.maximum(speed[1:] + speed[:-1], 1e-3)).sum())


def turn_rad_of(lanes: Lanes, lane: int) -> float:
    """Net change of heading along a lane, left positive."""
    return _turn_rad(lanes, (lane,))


def _trailing_junction(lanes: Lanes, way: tuple[int, ...]) -> int:
    """How many lanes at the end of the way lie in the same junction; the lane that the way starts on never counts."""
    count = 0
    while count < len(way) - 1 and lanes.in_junction[way[-1 - count]]:
        count += 1
    return count


def _limit_mps(lanes: Lanes, lane: int, limits: DrivingLimits) -> float:
    return float(lanes.speed_limit_mps[lane]) if lanes.speed_limit_known[lane] else limits.assumed_limit_mps


def _line(lanes: Lanes, parts: tuple[int, ...]) -> Float[np.ndarray, "p 2"]:
    return np.concatenate([lanes.centrelines[part].astype(np.float64) for part in parts])


def _turn_rad(lanes: Lanes, parts: tuple[int, ...]) -> float:
    return float(wrap_angle(np.diff(directions(_line(lanes, parts)))).sum())


def _first_part(lanes: Lanes, parts: tuple[int, ...]) -> tuple[float, float]:
    """Length of the turn up to 45 degrees, and its mean curvature there."""
    line = _line(lanes, parts)
    turned = np.cumsum(wrap_angle(np.diff(directions(line))))
    reached = int(np.argmax(turned > LEFT_TURN_RAD)) + 1
    length_m = float(arclengths(line)[reached])
    return length_m, float(turned[reached - 1]) / max(length_m, 1e-3)
