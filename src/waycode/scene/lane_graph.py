"""Which lanes continue each other and which lie side by side, seen from their centrelines alone.

For maps whose recording left the lane graph out. Axes: L lanes, P points of all centrelines, Q samples on them,
E pairs. Against Waymo's recorded graph (`tests/test_lane_graph.py`) successors are all found and all right; neighbours
are right in 96 of 100 cases, and 97 of 100 recorded neighbours that lie a lane's width apart are found. Waymo also
calls lanes neighbours that lie on top of each other where they part or merge; here they are not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Int8
from scipy.spatial import cKDTree

from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.geometry import arclengths
from waycode.scene.types import Lanes, LaneType, Pairs, Polylines, as_pairs, no_pairs


@dataclass(frozen=True, kw_only=True)
class LaneGraphRules:
    """What counts as continuing and as lying side by side."""

    joint_gap_m: float = 0.5  # a successor starts this close to where the lane ends
    joint_angle_rad: float = np.pi / 6
    end_direction_m: float = 1.0  # the direction at an end is taken over this length: single steps are rounded
    sample_spacing_m: float = 0.5
    parallel_angle_rad: float = np.pi / 12
    least_offset_m: float = 2.0
    most_offset_m: float = 5.5
    least_rival_offset_m: float = 1.0  # a lane at least this far aside hides those behind it ...
    rival_margin_m: float = 0.7  # ... that are further out by more than this
    least_overlap_m: float = 2.0
    least_overlap_share: float = 0.5  # of the shorter lane: enough for lanes that are shorter than the overlap
    least_apart_share: float = 0.5  # of the length run in parallel: lanes that part or merge lie on top of each other
    contact_m: float = 1.0  # lanes that come this close, other than from a common start or to a common end, cross


@dataclass(frozen=True)
class LaneGraph:
    """Relations between lanes, as pairs (lane, the other lane)."""

    successors: Pairs
    left_neighbours: Pairs
    right_neighbours: Pairs


def infer_lane_graph(
    centrelines: Polylines, types: Int8[np.ndarray, " L"], *, rules: LaneGraphRules | None = None
) -> LaneGraph:
    """The lane graph of L centrelines in driving direction, each with two points or more, and their LaneType.

    Bicycle lanes are neighbours of bicycle lanes only: nobody changes lanes between them and the road.
    """
    rules = rules or LaneGraphRules()
    if len(centrelines) == 0:
        return LaneGraph(no_pairs(), no_pairs(), no_pairs())
    measured = _Measured.of(centrelines)
    left = _left_neighbours(measured, types == LaneType.BIKE, rules)
    return LaneGraph(_successors(measured, rules), left, as_pairs((int(b), int(a)) for a, b in left))


def length_of(lanes: Lanes, lane: int) -> float:
    """Length of a lane's centreline in metres."""
    return float(arclengths(lanes.centrelines[lane].astype(np.float64))[-1])


def neighbours_of(count: int, pairs: Iterable[Pairs]) -> list[list[int]]:
    """For each of `count` lanes those that these pairs lead to."""
    found: list[list[int]] = [[] for _ in range(count)]
    for lane, other in np.concatenate([np.asarray(part).reshape(-1, 2) for part in pairs]).tolist():
        found[lane].append(other)
    return found


def all_from(start: Iterable[int], neighbours: Sequence[Iterable[int]]) -> set[int]:
    """Everything that can be reached, the start included."""
    seen = set(start)
    waiting = list(seen)
    while waiting:
        new = set(neighbours[waiting.pop()]) - seen
        seen |= new
        waiting.extend(new)
    return seen


def precision_recall(inferred: Pairs, truth: Pairs) -> tuple[float, float]:
    """The share of inferred pairs that are true, and of true pairs that were inferred (1 where there are none)."""
    found, true = set(map(tuple, inferred.tolist())), set(map(tuple, truth.tolist()))
    hits = len(found & true)
    return (hits / len(found) if found else 1.0, hits / len(true) if true else 1.0)


@dataclass(frozen=True)
class _Measured:
    """All centrelines end to end, with the distance travelled along them; steps from lane to lane have no length."""

    points_m: Float[np.ndarray, "P 2"]
    along_m: Float[np.ndarray, " P"]
    first: Int[np.ndarray, " L"]  # the index of each lane's first point
    last: Int[np.ndarray, " L"]

    @staticmethod
    def of(centrelines: Polylines) -> "_Measured":
        points = centrelines.points_m.astype(np.float64)
        first, last = centrelines.starts[:-1], centrelines.starts[1:] - 1
        steps = np.linalg.norm(np.diff(points, axis=0, prepend=points[:1]), axis=1)
        steps[first] = 0
        return _Measured(points, np.cumsum(steps), first, last)

    @property
    def length_m(self) -> Float[np.ndarray, " L"]:
        return self.along_m[self.last] - self.along_m[self.first]

    def at(
        self, lane: Int[np.ndarray, " Q"], travelled_m: Float[np.ndarray, " Q"]
    ) -> tuple[Float[np.ndarray, "Q 2"], Float[np.ndarray, " Q"]]:
        """Position and direction at a distance from the start of a lane."""
        along = self.along_m[self.first[lane]] + travelled_m
        segment = np.searchsorted(self.along_m, along, side="right") - 1
        segment = np.clip(segment, self.first[lane], self.last[lane] - 1)
        step = self.points_m[segment + 1] - self.points_m[segment]
        length = np.linalg.norm(step, axis=1)
        fraction = (along - self.along_m[segment]) / np.maximum(length, 1e-9)
        return self.points_m[segment] + np.clip(fraction, 0, 1)[:, None] * step, _angle(step)


def _angle(vector: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape"]:
    return np.arctan2(vector[..., 1], vector[..., 0])


def _successors(lanes: _Measured, rules: LaneGraphRules) -> Pairs:
    """Pairs (lane, a lane that starts where it ends and goes on in its direction)."""
    every = np.arange(len(lanes.first))
    starts, ends = lanes.points_m[lanes.first], lanes.points_m[lanes.last]
    reach = np.minimum(lanes.length_m, rules.end_direction_m)
    start_angle = _angle(lanes.at(every, reach)[0] - starts)
    end_angle = _angle(ends - lanes.at(every, lanes.length_m - reach)[0])
    near = cKDTree(ends).query_ball_tree(cKDTree(starts), rules.joint_gap_m)
    pairs = [(before, after) for before, afters in enumerate(near) for after in afters if before != after]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    smooth = np.abs(wrap_angle(end_angle[before] - start_angle[after])) <= rules.joint_angle_rad
    return as_pairs(pair for pair, keep in zip(pairs, smooth, strict=True) if keep)


@dataclass(frozen=True)
class _Samples:
    """Points spread evenly over all centrelines."""

    position_m: Float[np.ndarray, "Q 2"]
    direction_rad: Float[np.ndarray, " Q"]
    lane: Int[np.ndarray, " Q"]
    reach_m: Float[np.ndarray, " Q"]  # the length of lane that the sample stands for

    @staticmethod
    def of(lanes: _Measured, spacing_m: float) -> "_Samples":
        """Samples in the middle of equal pieces of each lane, each piece at most `spacing_m` long."""
        counts = np.maximum(1, np.ceil(lanes.length_m / spacing_m)).astype(np.int64)
        lane = np.repeat(np.arange(len(counts)), counts)
        rank = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
        reach = (lanes.length_m / counts)[lane]
        return _Samples(*lanes.at(lane, (rank + 0.5) * reach), lane, reach)


@dataclass(frozen=True)
class _Meetings:
    """Samples with another lane that runs in parallel at their side: at most one for each (sample, other lane)."""

    sample: Int[np.ndarray, " E"]
    lane: Int[np.ndarray, " E"]
    offset_m: Float[np.ndarray, " E"]  # left positive


def _left_neighbours(lanes: _Measured, is_bike: Bool[np.ndarray, " L"], rules: LaneGraphRules) -> Pairs:
    """Pairs (lane, the nearest lane on its left) for long enough a stretch of the lane."""
    samples = _Samples.of(lanes, rules.sample_spacing_m)
    tree = cKDTree(samples.position_m)
    meetings = _meetings(samples, tree, is_bike, rules)
    count = len(lanes.first)
    key = samples.lane[meetings.sample] * count + meetings.lane
    reach = samples.reach_m[meetings.sample]
    beside = _nearest_on_left(meetings, rules)
    together_m = np.bincount(key, reach, count * count).reshape(count, count)
    apart_m = np.bincount(key[beside], reach[beside], count * count).reshape(count, count)
    shorter_m = np.minimum(lanes.length_m[:, None], lanes.length_m[None])
    enough = apart_m >= np.minimum(rules.least_overlap_m, rules.least_overlap_share * shorter_m)
    side_by_side = (apart_m > 0) & enough & (apart_m >= rules.least_apart_share * together_m)
    side_by_side &= ~_crossing(lanes, samples, tree, rules)
    return as_pairs((int(a), int(b)) for a, b in np.argwhere(side_by_side))


def _meetings(samples: _Samples, tree: cKDTree, is_bike: Bool[np.ndarray, " L"], rules: LaneGraphRules) -> _Meetings:
    """Every sample with every lane that runs in parallel at its side, seen at that lane's most abreast sample."""
    reach = float(np.hypot(rules.most_offset_m, rules.sample_spacing_m))
    pairs = tree.query_pairs(reach, output_type="ndarray")
    lane, direction = samples.lane, samples.direction_rad
    parallel = np.abs(wrap_angle(direction[pairs[:, 0]] - direction[pairs[:, 1]])) <= rules.parallel_angle_rad
    pairs = pairs[parallel & (lane[pairs[:, 0]] != lane[pairs[:, 1]])]
    pairs = pairs[is_bike[lane[pairs[:, 0]]] == is_bike[lane[pairs[:, 1]]]]
    sample, other = np.concatenate([pairs, pairs[:, ::-1]]).T
    ahead, left = rotate(samples.position_m[other] - samples.position_m[sample], -direction[sample]).T
    abreast = np.flatnonzero(np.abs(ahead) <= rules.sample_spacing_m)
    order = abreast[np.lexsort((np.abs(ahead[abreast]), lane[other[abreast]], sample[abreast]))]
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(sample[order]) != 0) | (np.diff(lane[other[order]]) != 0)
    best = order[first]
    return _Meetings(sample[best], lane[other[best]], left[best])


def _nearest_on_left(meetings: _Meetings, rules: LaneGraphRules) -> Bool[np.ndarray, " E"]:
    """Whether the met lane is about a lane's width to the left, and no other lane there is clearly nearer."""
    offset = meetings.offset_m
    beside = (offset >= rules.least_offset_m) & (offset <= rules.most_offset_m)
    rival = offset >= rules.least_rival_offset_m
    nearest_m = np.full(meetings.sample.max(initial=0) + 1, np.inf)
    np.minimum.at(nearest_m, meetings.sample[rival], offset[rival])
    return beside & (offset <= nearest_m[meetings.sample] + rules.rival_margin_m)


def _crossing(lanes: _Measured, samples: _Samples, tree: cKDTree, rules: LaneGraphRules) -> Bool[np.ndarray, "L L"]:
    """Pairs of lanes that touch, unless they start or end at the same point."""
    count = len(lanes.first)
    touching = np.zeros((count, count), np.bool_)
    one, other = samples.lane[tree.query_pairs(rules.contact_m, output_type="ndarray")].T
    touching[one, other] = True
    for ends in (lanes.first, lanes.last):
        common = cKDTree(lanes.points_m[ends]).query_pairs(rules.joint_gap_m, output_type="ndarray")
        touching[common[:, 0], common[:, 1]] = False
        touching[common[:, 1], common[:, 0]] = False
    return touching | touching.T
