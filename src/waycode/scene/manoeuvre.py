"""What each road user does in its future: one manoeuvre per track, for counting and for balanced sampling."""

from enum import StrEnum
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import arclengths, directions, resample
from waycode.scene.lane_graph import all_from, neighbours_of
from waycode.scene.types import Lanes, Scene, TrackType

STANDING_DISTANCE_M = 1.0
STANDING_SPEED_MPS = 0.5
DRIVING_SPEED_MPS = 2.0
TURN_RAD = np.radians(30)
SLOW_DOWN_RATIO = 0.6
ROUNDABOUT_CYCLE_M = 220.0  # the longest way around a ring that still counts as a roundabout
ROUNDABOUT_STEPS = 10
ROUNDABOUT_BEND, ROUNDABOUT_ROUND_SHARE = 0.4, 0.75  # of a circle's curvature, on this share of the way around
LANE_STRIDE = 3  # every third step is enough to see a lane change
LANE_REACH_M = 2.5  # how far from a centreline a road user is still on the lane
NEAREST_LANE_POINTS = 12
MIN_LANE_DISTANCE_M = 10.0  # who moves less changes no lane
MIN_FUTURE_STEPS = 15


class Manoeuvre(StrEnum):
    UNOBSERVED = "unobserved"  # not seen at the current step, or too little of its future
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


class LaneIndex:
    """Finds the lane under a road user; made once per map, as scenes that share a map can share it."""

    def __init__(self, lanes: Lanes):
        self.lanes = lanes
        self.ring = _ring_lanes(lanes)
        self.sides = _Sides(lanes)
        dense = [resample(line.astype(np.float64), spacing_m=1.0) for line in lanes.centrelines.as_list()]
        self._tree = cKDTree(np.concatenate(dense)) if dense else None
        self._heading_rad = np.concatenate([directions(line) for line in dense]) if dense else np.zeros(0)
        self._lane = np.repeat(np.arange(len(dense)), [len(line) for line in dense])

    def lane_at(
        self, position_m: Float[np.ndarray, "*shape 2"], heading_rad: Float[np.ndarray, "*shape"]
    ) -> Int[np.ndarray, "*shape"]:
        """Index of the nearest lane that runs the same way, or -1 where there is none within reach."""
        if self._tree is None:
            return np.full(heading_rad.shape, -1)
        count = min(NEAREST_LANE_POINTS, len(self._lane))
        distance, nearest = self._tree.query(position_m, k=[*range(1, count + 1)], distance_upper_bound=LANE_REACH_M)
        found = np.isfinite(distance)
        nearest = np.where(found, nearest, 0)
        aligned = np.abs(wrap_angle(self._heading_rad[nearest] - heading_rad[..., None])) < np.radians(45)
        distance = np.where(found & aligned, distance, np.inf)
        best = distance.argmin(axis=-1)[..., None]
        lane = np.take_along_axis(self._lane[nearest], best, axis=-1)[..., 0]
        return np.where(np.isfinite(distance.min(axis=-1)), lane, -1)

    def distance_m(self, position_m: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape"]:
        """To the nearest lane, to half a metre; infinite on a map without lanes."""
        if self._tree is None:
            return np.full(position_m.shape[:-1], np.inf)
        return np.asarray(self._tree.query(position_m)[0], np.float64)


def classify(scene: Scene, lane_index: LaneIndex | None = None) -> list[Manoeuvre]:
    """The manoeuvre of every track from the current step on; the first of the list above that fits."""
    tracks = scene.tracks
    future = slice(scene.current_step, None)
    valid = tracks.valid[:, future]
    observed = valid[:, 0] & (valid.sum(axis=1) > MIN_FUTURE_STEPS)
    last = valid.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)
    position, speed = tracks.position_m[:, future], tracks.speed_mps[:, future]
    distance = np.where(valid, np.linalg.norm(position - position[:, :1], axis=-1), 0).max(axis=1)
    turn = _net_turn(tracks.heading_rad[:, future], valid)
    first_speed, last_speed = speed[:, 0], speed[np.arange(len(tracks)), last]
    driving = observed & (distance > MIN_LANE_DISTANCE_M) & (tracks.types != TrackType.PEDESTRIAN)
    around, changes = _lane_facts(scene, lane_index or LaneIndex(scene.map.lanes), driving)
    conditions: dict[Manoeuvre, Bool[np.ndarray, " A"]] = {
        Manoeuvre.UNOBSERVED: ~observed,
        Manoeuvre.STANDING: distance <= STANDING_DISTANCE_M,
        Manoeuvre.ROUNDABOUT: around,
        Manoeuvre.LEFT_TURN: turn > TURN_RAD,
        Manoeuvre.RIGHT_TURN: turn < -TURN_RAD,
        Manoeuvre.LANE_CHANGE_LEFT: changes > 0,
        Manoeuvre.LANE_CHANGE_RIGHT: changes < 0,
        Manoeuvre.STOP: (first_speed > DRIVING_SPEED_MPS) & (last_speed < STANDING_SPEED_MPS),
        Manoeuvre.START: (first_speed < STANDING_SPEED_MPS) & (last_speed > DRIVING_SPEED_MPS),
        Manoeuvre.SLOW_DOWN: (first_speed > DRIVING_SPEED_MPS) & (last_speed < SLOW_DOWN_RATIO * first_speed),
    }
    names = list(conditions)
    chosen = np.select(list(conditions.values()), list(range(len(names))), default=len(names))
    return [names[index] if index < len(names) else Manoeuvre.STRAIGHT for index in chosen]


def _net_turn(heading_rad: Float[np.ndarray, "A F"], valid: Bool[np.ndarray, "A F"]) -> Float[np.ndarray, " A"]:
    """Change of heading between the first and the last observed step, turns counted through gaps."""
    steps = wrap_angle(np.diff(heading_rad, axis=1))
    return np.where(valid[:, 1:] & valid[:, :-1], steps, 0).sum(axis=1)


def _lane_facts(
    scene: Scene, index: LaneIndex, which: Bool[np.ndarray, " A"]
) -> tuple[Bool[np.ndarray, " A"], Int[np.ndarray, " A"]]:
    """Which tracks drive around a roundabout, and the net number of lane changes to the left of each."""
    around, changes = np.zeros(len(which), np.bool_), np.zeros(len(which), np.int64)
    if len(index.lanes) == 0 or not which.any():
        return around, changes
    steps = slice(scene.current_step, None, LANE_STRIDE)
    tracks = scene.tracks
    lane = index.lane_at(tracks.position_m[which, steps], tracks.heading_rad[which, steps])
    lane = np.where(tracks.valid[which, steps], lane, -1)  # [n, F]
    around[which] = (index.ring[lane] & (lane >= 0)).sum(axis=1) >= ROUNDABOUT_STEPS / LANE_STRIDE
    # Within a junction lanes cross and overlap, so that only what happens between junctions counts.
    clear = (lane >= 0) & ~index.lanes.in_junction[lane]
    changes[which] = [index.sides.net_changes(row[keep].tolist()) for row, keep in zip(lane, clear, strict=True)]
    return around, changes


def _ring_lanes(lanes: Lanes) -> Bool[np.ndarray, " L"]:
    """Lanes of roundabouts: a short way leads back to them, and nearly all of it bends to the same side."""
    count = len(lanes)
    ring = np.zeros(count, np.bool_)
    if len(lanes.successors) == 0:
        return ring
    lines = [line.astype(np.float64) for line in lanes.centrelines.as_list()]
    length = np.array([max(float(arclengths(line)[-1]), 0.01) for line in lines])
    before, after = lanes.successors.T
    graph = csr_matrix((length[after], (before, after)), shape=(count, count))
    # way[i, j]: length of the lanes after i up to and with j; via[i, j]: the lane before j on that way
    way, via = dijkstra(graph, limit=ROUNDABOUT_CYCLE_M, return_predecessors=True)
    around = length[after] + way[after, before]
    for index in np.flatnonzero(around <= ROUNDABOUT_CYCLE_M):
        cycle = [int(before[index])]
        while cycle[-1] != after[index]:
            cycle.append(int(via[after[index], cycle[-1]]))
        if _is_round([lines[lane] for lane in cycle], length[cycle]):
            ring[cycle] = True
    return ring


def _is_round(lines: list[np.ndarray], length_m: Float[np.ndarray, " n"]) -> bool:
    """Whether a closed chain of lanes bends like a circle: a block of houses or a U-turn has long straight pieces."""
    turn = np.array([wrap_angle(np.diff(directions(line))).sum() for line in lines])
    circle = 2 * np.pi / length_m.sum()  # curvature of a circle of this length
    bends = np.abs(turn) / length_m > ROUNDABOUT_BEND * circle
    same_side = np.sign(turn) == np.sign(turn.sum())
    return float(length_m[bends & same_side].sum() / length_m.sum()) > ROUNDABOUT_ROUND_SHARE


class _Sides:
    """Answers whether going from one lane to another is a lane change, and to which side."""

    def __init__(self, lanes: Lanes):
        after = neighbours_of(len(lanes), [lanes.successors])
        through = [afters if inside else [] for afters, inside in zip(after, lanes.in_junction, strict=True)]
        self._onward = [all_from(afters, through) for afters in after]  # a junction's lanes are looked through
        self._left, self._right = _as_sets(lanes.left_neighbours), _as_sets(lanes.right_neighbours)

    def net_changes(self, visited: list[int]) -> int:
        """Lane changes to the left minus those to the right, for a track that is seen on these lanes in turn."""
        return sum(self.change(before, after) for before, after in pairwise(visited) if before != after)

    def change(self, before: int, after: int) -> int:
        """1 for a change to the left, -1 to the right, 0 for none."""
        if after in self._onward[before]:
            return 0
        return int(self._beside(before, after, self._left)) - int(self._beside(before, after, self._right))

    def _beside(self, before: int, after: int, side: dict[int, set[int]]) -> bool:
        """Whether `after` lies on that side of `before`, or is reached by changing and driving on, in either order."""
        if after in side.get(before, set()):
            return True
        drive_then_change = any(after in side.get(lane, set()) for lane in self._onward[before])
        change_then_drive = any(after in self._onward[lane] for lane in side.get(before, set()))
        return drive_then_change or change_then_drive


def _as_sets(pairs: Int[np.ndarray, "E 2"]) -> dict[int, set[int]]:
    sets: dict[int, set[int]] = {}
    for one, other in pairs.tolist():
        sets.setdefault(one, set()).add(other)
    return sets
