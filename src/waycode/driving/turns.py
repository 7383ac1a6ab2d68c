"""Turns ahead of a vehicle in the lane graph, and the earliest time at which a left turn can be completed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from waycode.scene import Lanes
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, directions
from waycode.scene.manoeuvre import LEFT_TURN_RAD

STRAIGHT_RAD = np.radians(20)  # less change of heading, to either side, counts as going straight
_MAX_PATHS = 256  # ends the search on maps with loops
_STEP_M = 0.5


@dataclass(frozen=True, kw_only=True)
class DrivingLimits:
    """Limits of a vehicle that approaches a turn: brisk but comfortable driving."""

    acceleration_mps2: float = 1.5
    braking_mps2: float = 3.0
    lateral_mps2: float = 3.0  # in the turn
    assumed_limit_mps: float = 13.9  # for lanes without a known speed limit


@dataclass(frozen=True, kw_only=True)
class TurnAhead:
    """A turn that is reached without a lane change."""

    lanes: tuple[int, ...]  # from the current lane to the last lane of the turn
    turning: int  # number of lanes, at the end of `lanes`, that form the turn
    distance_m: float  # from the vehicle to the beginning of the turn


def turns_ahead(lanes: Lanes, lane: int, *, along_m: float, reach_m: float, side: int = 1) -> list[TurnAhead]:
    """All turns above 45 degrees to one side that a vehicle reaches by driving straight on.

    Args:
        lanes: the lanes of the map.
        lane: the lane that the vehicle is on.
        along_m: arclength of the vehicle along it.
        reach_m: how far ahead a turn may begin.
        side: 1 for left turns, -1 for right turns.
    """
    found: list[TurnAhead] = []
    open_paths: list[tuple[int, ...]] = [(lane,)]
    for _ in range(_MAX_PATHS):
        if not open_paths:
            break
        path = open_paths.pop()
        turning = 0  # trailing lanes in the same junction; the lane that the vehicle is on never counts
        while turning < len(path) - 1 and lanes.in_junction[path[-1 - turning]]:
            turning += 1
        distance_m = sum(float(lanes.graph.length_m[part]) for part in path[: len(path) - turning]) - along_m
        onward = [after for after in lanes.graph.successors[path[-1]] if after not in path]
        if turning and not any(lanes.in_junction[after] for after in onward):  # the junction ends here
            angle_rad = turn_rad(lanes, path[len(path) - turning :])
            if side * angle_rad > LEFT_TURN_RAD and distance_m <= reach_m:
                found.append(TurnAhead(lanes=path, turning=turning, distance_m=max(distance_m, 0.0)))
            if abs(angle_rad) > STRAIGHT_RAD:
                continue
        if distance_m <= reach_m:
            open_paths += [(*path, after) for after in onward]
    return found


def earliest_turn_s(
    lanes: Lanes, turn: TurnAhead, *, speed_mps: float, limits: DrivingLimits | None = None
) -> float | None:
    """Earliest time in seconds at which the vehicle has turned by 45 degrees; None if it is too fast to turn.

    Args:
        lanes: the lanes of the map.
        turn: a left turn of `turns_ahead`.
        speed_mps: speed of the vehicle now.
        limits: None: the defaults.
    """
    limits = limits or DrivingLimits()
    turned_m, curvature_1pm = _first_45_degrees(lanes, turn.lanes[len(turn.lanes) - turn.turning :])
    along = np.arange(0, turn.distance_m + turned_m + _STEP_M, _STEP_M)
    first_mps, last_mps = (
        float(lanes.speed_limit_mps[lane]) if lanes.speed_limit_known[lane] else limits.assumed_limit_mps
        for lane in (turn.lanes[0], turn.lanes[-1])
    )
    corner_mps = min(last_mps, float(np.sqrt(limits.lateral_mps2 / curvature_1pm)))
    most = np.where(along < turn.distance_m, np.maximum(first_mps, speed_mps), corner_mps)
    braking = np.sqrt(corner_mps**2 + 2 * limits.braking_mps2 * np.maximum(turn.distance_m - along, 0))
    if speed_mps > max(braking[0], corner_mps):
        return None
    starting = np.sqrt(speed_mps**2 + 2 * limits.acceleration_mps2 * along)
    speed = np.minimum(np.minimum(most, braking), starting)
    return float((_STEP_M * 2 / np.maximum(speed[1:] + speed[:-1], 1e-3)).sum())


def turn_rad(lanes: Lanes, path: tuple[int, ...]) -> float:
    """Net change of heading along consecutive lanes, left positive."""
    return float(wrap_angle(np.diff(directions(_line(lanes, path)))).sum())


def _line(lanes: Lanes, path: tuple[int, ...]) -> Float[np.ndarray, "P 2"]:
    return np.concatenate([lanes.centrelines[lane].astype(np.float64) for lane in path])


def _first_45_degrees(lanes: Lanes, path: tuple[int, ...]) -> tuple[float, float]:
    """Length in m of a turn up to 45 degrees, and its mean curvature in 1/m up to there."""
    line = _line(lanes, path)
    turned = np.cumsum(wrap_angle(np.diff(directions(line))))
    reached = int(np.argmax(turned > LEFT_TURN_RAD)) + 1
    length_m = float(arclengths(line)[reached])
    return length_m, float(turned[reached - 1]) / max(length_m, 1e-3)
