"""Alternative futures of recorded cars: another legal path over the lane graph, at the recorded speed (ours).

A recording has one future per car, but search asks for others: a left turn of a car that went straight on, or no lane
change of a car that made one. Where every car changes lanes (an on-ramp), the decoder never sees one that stays. An
alternative follows the lane graph, with a random successor at each fork, or changes to a neighbouring lane. Its speed
is the recorded one, reduced in bends and before the end of the lane, so that red lights, stop signs and leaders still
count. A path that collides with a recorded road user is no alternative.

T future steps, P points of all centrelines.
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
from waycode.scene.lane_graph import Adjacency

ANOTHER_M = 1.5  # an alternative is at some step at least this far from the recording
ROUNDS = 2  # tries of each kind of alternative: at a fork, the recorded path may come up again
CHANGE_AFTER_S = (0.5, 4.0)  # a lane change begins within this time
LEAST_AHEAD_M = 15.0  # remaining length of the lane that is left, from the start of the lane change
RETURN_S, LEAST_RETURN_M = 3.0, 10.0  # time and least distance to return to the centreline
ACCELERATION_MPS2, BRAKING_MPS2, GENTLE_BRAKING_MPS2 = 1.5, 3.0, 1.5
LATERAL_MPS2 = 3.5  # a path with a higher lateral acceleration is no alternative
STOP_BEFORE_END_M = 3.0
MOST_LANES = 30  # of one path: it may lead around in a ring
_STRIDE = 5  # collisions are checked every fifth step


@dataclass(frozen=True, kw_only=True)
class _Car:
    """A car on a lane that is observed at the current step and all future steps."""

    lane: int
    along_m: float  # arclength on that lane
    position_m: Float[np.ndarray, " 2"]
    heading_rad: float
    speed_mps: Float[np.ndarray, " T_plus_1"]  # recorded, from the current step on
    recorded_m: Float[np.ndarray, "T 2"]
    reach_m: float  # distance that the path must cover


@dataclass(frozen=True)
class _Way:
    """A path, and the arclength at which its last lane ends without a successor (infinite if it goes on)."""

    path: Path
    end_m: float


def alternative_future(
    scene: Scene, agent: int, rng: np.random.Generator, *, steps: int
) -> Float32[np.ndarray, "steps 2"] | None:
    """Positions of an alternative future in the agent's frame; None if none was found.

    Args:
        scene: with the recorded future.
        agent: index of the track.
        rng: decides on the kind of alternative, on forks and on the start of a lane change.
        steps: number of future steps.
    """
    car = _car(scene, agent, steps)
    if car is None:
        return None
    lanes = scene.map.lanes
    sides = (None, lanes.graph.left, lanes.graph.right)
    for kind in np.concatenate([rng.permutation(len(sides)) for _ in range(ROUNDS)]):
        side = sides[kind]
        way = _followed(lanes, car, rng) if side is None else _changed(lanes, car, side, rng)
        driven = None if way is None else _driven(way, car, dt_s=scene.dt_s)
        if driven is None or np.linalg.norm(driven[0] - car.recorded_m, axis=1).max() < ANOTHER_M:
            continue
        if not _collides(scene, agent, *driven):
            return rotate(driven[0] - car.position_m, np.array(-car.heading_rad)).astype(np.float32)
    return None


def _car(scene: Scene, agent: int, steps: int) -> _Car | None:
    tracks, lanes, now = scene.tracks, scene.map.lanes, scene.current_step
    taken = slice(now, now + steps + 1)
    seen = tracks.valid[agent, taken]
    if tracks.types[agent] != TrackType.VEHICLE or len(seen) <= steps or not seen.all() or len(lanes) == 0:
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
        reach_m=float(speed.sum() * scene.dt_s) + LEAST_RETURN_M,
    )  # fmt: skip


def _followed(lanes: Lanes, car: _Car, rng: np.random.Generator) -> _Way | None:
    """Along the lane, and at every fork along any of those that continue it."""
    ahead_m = float(lanes.graph.length_m[car.lane]) - car.along_m
    return _way(lanes, [car.lane], car, rng, ahead_m=ahead_m, change_from_m=car.position_m)


def _changed(lanes: Lanes, car: _Car, side: Adjacency, rng: np.random.Generator) -> _Way | None:
    """Along the lane for a while, then over to the one beside it."""
    after_m = float(car.speed_mps[0] * rng.uniform(*CHANGE_AFTER_S))
    ahead_m = float(lanes.graph.length_m[car.lane]) - car.along_m
    chain, ahead_m = _onward(lanes, [car.lane], rng, ahead_m=ahead_m, until_m=after_m)
    beside = [other for other in side[chain[-1]] if lanes.types[other] != LaneType.BIKE]
    if not beside or lanes.in_junction[chain[-1]] or ahead_m < after_m + LEAST_AHEAD_M:
        return None
    own = np.concatenate([lanes.centrelines[lane].astype(np.float64) for lane in chain])
    change_from_m = interpolate(own, np.array([car.along_m + after_m]))[0]
    whole = [*chain, int(rng.choice(beside))]
    return _way(lanes, whole, car, rng, ahead_m=ahead_m, change_from_m=change_from_m)


def _way(
    lanes: Lanes,
    chain: list[int],
    car: _Car,
    rng: np.random.Generator,
    *,
    ahead_m: float,  # how far the chain reaches beyond the car
    change_from_m: Float[np.ndarray, " 2"],  # where a change of lane begins, if there is one
) -> _Way | None:
    """Over the lanes of the chain and some that continue them, as far as the car went."""
    chain, ahead_m = _onward(lanes, chain, rng, ahead_m=ahead_m, until_m=car.reach_m)
    ends = ahead_m < car.reach_m
    if ends and not _others_go_on(lanes, chain[-1]):
        return None  # the map was cut off here: nobody can say where the road goes
    speed_mps = float(car.speed_mps[0])
    path = path_on(lanes, chain, position_m=change_from_m, heading_rad=car.heading_rad, speed_mps=speed_mps)
    end = lanes.centrelines[chain[-1]][-1].astype(np.float64)
    return _Way(path, float(path.project(end)[0]) if ends else np.inf)


def _onward(
    lanes: Lanes, chain: list[int], rng: np.random.Generator, *, ahead_m: float, until_m: float
) -> tuple[list[int], float]:
    """The chain with any of the lanes that continue it, as far as asked for or until it ends; how far that is."""
    while ahead_m < until_m and len(chain) < MOST_LANES:
        onward = lanes.graph.successors[chain[-1]]
        if not onward:
            break
        chain = [*chain, int(rng.choice(onward))]
        ahead_m += float(lanes.graph.length_m[chain[-1]])
    return chain, ahead_m


def _others_go_on(lanes: Lanes, lane: int) -> bool:
    """Whether a lane beside it has a continuation: a lane that has none then ends where the road does not."""
    graph = lanes.graph
    return any(graph.successors[other] for other in graph.beside[lane])


def _driven(way: _Way, car: _Car, *, dt_s: float) -> tuple[Float[np.ndarray, "T 2"], Float[np.ndarray, " T"]] | None:
    """Positions and headings along the path at about the recorded speed; None if that is too fast for its bends."""
    path = replace(way.path, limit_known=np.zeros(len(way.path.points_m), np.bool_))  # only bends count
    most = path.speed_profile(fallback_mps=np.inf)
    to_end = way.end_m - STOP_BEFORE_END_M - SPACING_M * np.arange(len(most))
    most = np.minimum(most, np.sqrt(2 * GENTLE_BRAKING_MPS2 * np.maximum(to_end, 0)))
    start_m, offset_m = (float(value) for value in path.project(car.position_m))
    along, speed = [start_m], [float(car.speed_mps[0])]
    for before, recorded in pairwise(car.speed_mps.tolist()):
        wanted = min(recorded, float(most[min(int(along[-1] / SPACING_M), len(most) - 1)]))
        slowest = speed[-1] - max(BRAKING_MPS2 * dt_s, before - recorded)
        fastest = speed[-1] + max(ACCELERATION_MPS2 * dt_s, recorded - before)
        speed.append(max(0.0, slowest, min(wanted, fastest)))
        along.append(along[-1] + (speed[-1] + speed[-2]) / 2 * dt_s)
    travelled = np.array(along[1:])
    curvature = np.abs(np.gradient(path.heading_rad, SPACING_M))[path.index_at(travelled)]
    if (np.array(speed[1:]) ** 2 * curvature > LATERAL_MPS2).any() or travelled[-1] > way.end_m:
        return None
    slope = float(np.tan(wrap_angle(np.array(car.heading_rad - path.heading_rad[path.index_at(np.array(start_m))]))))
    length_m = max(LEAST_RETURN_M, RETURN_S * float(car.speed_mps[0]))
    return path.pose_at(travelled, _returning(offset_m, slope, (travelled - start_m) / length_m, length_m))


def _returning(
    offset_m: float, slope: float, share: Float[np.ndarray, " T"], length_m: float
) -> Float[np.ndarray, " T"]:
    """Lateral offsets that start with this offset and slope and end on the centreline (fifth-order polynomial)."""
    u = np.clip(share, 0, 1)
    rest = offset_m * (1 - u**3 * (10 - 15 * u + 6 * u**2))
    return rest + slope * length_m * u * (1 - u) ** 3 * (1 + 3 * u)


def _collides(
    scene: Scene, agent: int, position_m: Float[np.ndarray, "T 2"], heading_rad: Float[np.ndarray, " T"]
) -> bool:
    """Whether the trajectory collides with another recorded road user."""
    tracks, seen = scene.tracks, slice(_STRIDE - 1, None, _STRIDE)
    size = np.ones(len(position_m[seen]))
    corners = box_corners(
        position_m[seen], heading_rad[seen],
        length_m=tracks.length_m[agent] * size, width_m=tracks.width_m[agent] * size,
    )  # fmt: skip
    return hits_recorded(corners, scene, agent, every=_STRIDE)
