"""Alternative futures of recorded cars: another legal path over the lane graph, at the recorded speed (ours).

A recording has one future per car, but search asks for others: a left turn of a car that went straight on, or no lane
change of a car that made one. Where every car changes lanes (an on-ramp), the decoder never sees one that stays. An
alternative follows the lane graph, with a random successor at each fork, or changes to a neighbouring lane. Its speed
is the recorded one, reduced in bends and before the end of the lane, so that red lights, stop signs and leaders still
count. A path that collides with a recorded road user is no alternative.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Float32

from waycode.driving.path import SPACING_M, Path
from waycode.driving.route import path_on
from waycode.scene import Lanes, LaneType, Scene, TrackType
from waycode.scene.conflicts import hits_recorded
from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.geometry import box_corners, interpolate, project
from waycode.scene.lane_graph import Adjacency, LaneGraph

BRAKING_MPS2, LATERAL_MPS2 = 3.0, 3.5  # hardest braking; a path with more lateral acceleration is no alternative
_ACCELERATION_MPS2, _GENTLE_BRAKING_MPS2 = 1.5, 1.5  # the latter before the end of a lane
_MIN_DIFFERENCE_M = 1.5  # an alternative is at some step at least this far from the recording
_ROUNDS = 2  # tries of each kind of alternative: at a fork, the recorded path may be drawn again
_CHANGE_AFTER_S = (0.5, 4.0)  # a lane change begins within this time
_MIN_AHEAD_M = 15.0  # remaining length of the lane that is left, from the start of the lane change
_RETURN_S, _MIN_RETURN_M = 3.0, 10.0  # time and least distance to return to the centreline
_STOP_BEFORE_END_M = 3.0
_MAX_LANES = 30  # of one path: lanes may form a ring
_STRIDE = 5  # collisions are checked every fifth step


@dataclass(frozen=True, kw_only=True)
class _Car:
    """A car on a lane that is observed at the current step and all T future steps."""

    lane: int
    along_m: float  # arclength on that lane
    position_m: Float[np.ndarray, " 2"]
    heading_rad: float
    speed_mps: Float[np.ndarray, " T_plus_1"]  # recorded, from the current step on
    recorded_m: Float[np.ndarray, "T 2"]
    reach_m: float  # distance that the path must cover


def alternative_future(
    scene: Scene, agent: int, rng: np.random.Generator, *, steps: int
) -> Float32[np.ndarray, "steps 2"] | None:
    """Positions of an alternative future in the agent's frame; None if none was found.

    Args:
        scene: with the recorded future.
        agent: index of the track.
        rng: draws the kind of alternative, the successor at each fork and the start of a lane change.
        steps: number of future steps.
    """
    car = _car_on_lane(scene, agent, steps)
    if car is None or 2 * (car.reach_m - _MIN_RETURN_M) < _MIN_DIFFERENCE_M:  # a car that stands has no other way
        return None
    lanes, followed = scene.map.lanes, set[tuple[int, ...]]()
    sides = (None, lanes.graph.left, lanes.graph.right)  # None: no lane change
    for kind in np.concatenate([rng.permutation(len(sides)) for _ in range(_ROUNDS)]):
        found = _random_path(lanes, car, sides[kind], rng, followed=followed)
        driven = None if found is None else _drive(*found, car, dt_s=scene.dt_s)
        if driven is None or np.linalg.norm(driven[0] - car.recorded_m, axis=1).max() < _MIN_DIFFERENCE_M:
            continue
        if not _collides(scene, agent, *driven):
            return rotate(driven[0] - car.position_m, np.array(-car.heading_rad)).astype(np.float32)
    return None


def _car_on_lane(scene: Scene, agent: int, steps: int) -> _Car | None:
    tracks, lanes, now = scene.tracks, scene.map.lanes, scene.current_step
    taken = slice(now, now + steps + 1)
    observed = tracks.valid[agent, taken]
    if tracks.types[agent] != TrackType.VEHICLE or len(observed) <= steps or not observed.all() or len(lanes) == 0:
        return None
    position, heading = tracks.position_m[agent, now].astype(np.float64), float(tracks.heading_rad[agent, now])
    lane = lanes.graph.nearest_lane(position, heading, usable=lanes.types != LaneType.BIKE)
    if lane is None:
        return None
    speed = tracks.speed_mps[agent, taken].astype(np.float64)
    along = float(project(position[None], lanes.centrelines[lane].astype(np.float64))[0][0])
    return _Car(
        lane=lane, along_m=along, position_m=position, heading_rad=heading, speed_mps=speed,
        recorded_m=tracks.position_m[agent, taken][1:].astype(np.float64),
        reach_m=float(speed.sum() * scene.dt_s) + _MIN_RETURN_M,
    )  # fmt: skip


def _random_path(
    lanes: Lanes, car: _Car, side: Adjacency | None, rng: np.random.Generator, *, followed: set[tuple[int, ...]]
) -> tuple[Path, float] | None:
    """Draws a path over the lane graph that is as long as the recorded one; None if there is none, or no new one.

    Args:
        lanes: the lanes of the map.
        car: where the path starts.
        side: neighbouring lanes to change to; None follows the lane.
        rng: draws successors, the start of a lane change and its target.
        followed: chains of lanes without a lane change that were drawn before; this one is added.

    Returns:
        The path, and the arclength at which its last lane ends without a successor (infinite if it continues).
    """
    graph, change_from_m = lanes.graph, car.position_m
    chain, ahead_m = [car.lane], float(graph.length_m[car.lane]) - car.along_m
    if side is not None:
        after_m = float(car.speed_mps[0] * rng.uniform(*_CHANGE_AFTER_S))
        ahead_m = _extend(chain, graph, rng, ahead_m=ahead_m, until_m=after_m)
        beside = [other for other in side[chain[-1]] if lanes.types[other] != LaneType.BIKE]
        if not beside or lanes.in_junction[chain[-1]] or ahead_m < after_m + _MIN_AHEAD_M:
            return None
        own = np.concatenate([lanes.centrelines[lane].astype(np.float64) for lane in chain])
        change_from_m = interpolate(own, np.array([car.along_m + after_m]))[0]
        chain.append(int(rng.choice(beside)))
    ahead_m = _extend(chain, graph, rng, ahead_m=ahead_m, until_m=car.reach_m)
    if side is None:
        if tuple(chain) in followed:
            return None
        followed.add(tuple(chain))
    ends = ahead_m < car.reach_m
    if ends and not any(graph.successors[other] for other in graph.beside[chain[-1]]):
        return None  # no neighbour continues either: the road goes on beyond the map
    speed_mps = float(car.speed_mps[0])
    path = path_on(lanes, chain, position_m=change_from_m, heading_rad=car.heading_rad, speed_mps=speed_mps)
    last_point = lanes.centrelines[chain[-1]][-1].astype(np.float64)
    return path, float(path.project(last_point)[0]) if ends else np.inf


def _extend(chain: list[int], graph: LaneGraph, rng: np.random.Generator, *, ahead_m: float, until_m: float) -> float:
    """Appends random successors until the chain reaches `until_m` ahead of the car or ends; returns its new reach."""
    while ahead_m < until_m and len(chain) < _MAX_LANES and graph.successors[chain[-1]]:
        chain.append(int(rng.choice(graph.successors[chain[-1]])))
        ahead_m += float(graph.length_m[chain[-1]])
    return ahead_m


def _drive(
    path: Path, end_m: float, car: _Car, *, dt_s: float
) -> tuple[Float[np.ndarray, "T 2"], Float[np.ndarray, " T"]] | None:
    """Positions and headings along the path at about the recorded speed; None if that is too fast for its bends."""
    path = replace(path, limit_known=np.zeros(len(path.points_m), np.bool_))  # without speed limits: only bends count
    most = path.speed_profile(fallback_mps=np.inf)
    to_end = end_m - _STOP_BEFORE_END_M - SPACING_M * np.arange(len(most))
    most = np.minimum(most, np.sqrt(2 * _GENTLE_BRAKING_MPS2 * np.maximum(to_end, 0)))
    start_m, offset_m = (float(value) for value in path.project(car.position_m))
    along, speed = [start_m], [float(car.speed_mps[0])]
    for before, recorded in pairwise(car.speed_mps.tolist()):
        wanted = min(recorded, float(most[min(int(along[-1] / SPACING_M), len(most) - 1)]))
        slowest = speed[-1] - max(BRAKING_MPS2 * dt_s, before - recorded)
        fastest = speed[-1] + max(_ACCELERATION_MPS2 * dt_s, recorded - before)
        speed.append(max(0.0, slowest, min(wanted, fastest)))
        along.append(along[-1] + (speed[-1] + speed[-2]) / 2 * dt_s)
    travelled = np.array(along[1:])
    curvature = np.abs(np.gradient(path.heading_rad, SPACING_M))[path.index_at(travelled)]
    if (np.array(speed[1:]) ** 2 * curvature > LATERAL_MPS2).any() or travelled[-1] > end_m:
        return None
    # A fifth-order polynomial leads from the offset and slope at the start to the centreline.
    slope = float(np.tan(wrap_angle(np.array(car.heading_rad - path.heading_rad[path.index_at(np.array(start_m))]))))
    length_m = max(_MIN_RETURN_M, _RETURN_S * float(car.speed_mps[0]))
    u = np.clip((travelled - start_m) / length_m, 0, 1)
    from_offset = offset_m * (1 - u**3 * (10 - 15 * u + 6 * u**2))
    from_slope = slope * length_m * u * (1 - u) ** 3 * (1 + 3 * u)
    return path.pose_at(travelled, from_offset + from_slope)


def _collides(
    scene: Scene, agent: int, position_m: Float[np.ndarray, "T 2"], heading_rad: Float[np.ndarray, " T"]
) -> bool:
    """Whether the trajectory collides with another recorded road user."""
    tracks, checked = scene.tracks, slice(_STRIDE - 1, None, _STRIDE)
    ones = np.ones(len(position_m[checked]))
    corners = box_corners(
        position_m[checked], heading_rad[checked],
        length_m=tracks.length_m[agent] * ones, width_m=tracks.width_m[agent] * ones,
    )  # fmt: skip
    return hits_recorded(corners, scene, agent, every=_STRIDE)
