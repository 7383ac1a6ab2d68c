"""Infers successor and neighbour lanes from centrelines, for recordings without a lane graph.

Axes: L lanes, P points of all centrelines, Q samples on them, E pairs.

Measured against Waymo's recorded graph (`tests/test_lane_graph.py`): successors have precision and recall 1; neighbours
have precision 0.96, and recall 0.97 among recorded neighbours that lie a lane width apart. Waymo also records
overlapping lanes as neighbours where they fork or merge; this inference does not.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int8
from scipy.spatial import cKDTree

from waycode.scene.frames import rotate, wrap_angle
from waycode.scene.types import LaneType, Pairs, Polylines, as_pairs, no_pairs


@dataclass(frozen=True, kw_only=True)
class LaneGraphRules:
    """Thresholds of the inference."""

    joint_gap_m: float = 0.5  # most distance between the end of a lane and the start of its successor
    joint_angle_rad: float = np.pi / 6  # most angle between the two there
    end_direction_m: float = 1.0  # length over which the direction at an end is taken: single steps are rounded
    sample_spacing_m: float = 0.5  # of the points at which neighbours are searched
    parallel_angle_rad: float = np.pi / 12  # most angle between neighbours
    least_offset_m: float = 2.0  # lateral distance between the centrelines of neighbours
    most_offset_m: float = 5.5
    least_rival_offset_m: float = 1.0  # a lane at least this far aside hides the lanes behind it ...
    rival_margin_m: float = 0.7  # ... that are further away by more than this
    least_overlap_m: float = 2.0  # length over which neighbours run side by side
    least_overlap_share: float = 0.5  # of the shorter lane: accepts lanes shorter than twice `least_overlap_m`
    least_apart_share: float = 0.5  # of the length run in parallel: lanes that fork or merge overlap for longer
    contact_m: float = 1.0  # lanes that come this close cross, unless they share a start or an end


class LaneRelations(NamedTuple):
    """Relations between lanes, named as the fields of `Lanes`; each row is (lane, the other lane)."""

    successors: Pairs  # lanes that continue a lane
    left_neighbours: Pairs  # lanes to the left in the same direction
    right_neighbours: Pairs  # lanes to the right in the same direction


def infer_lane_graph(
    centrelines: Polylines, types: Int8[np.ndarray, " L"], *, rules: LaneGraphRules | None = None
) -> LaneRelations:
    """Infers the relations between lanes from geometry alone.

    Args:
        centrelines: L polylines in driving direction, each with two points or more.
        types: `LaneType` of each lane. Bicycle lanes are neighbours of bicycle lanes only: vehicles do not change
            between them and the road.
        rules: thresholds; the defaults were chosen on Waymo's maps.
    """
    rules = rules or LaneGraphRules()
    if len(centrelines) == 0:
        return LaneRelations(no_pairs(), no_pairs(), no_pairs())
    measured = _Measured.of(centrelines)
    left = _left_neighbours(measured, types == LaneType.BIKE, rules)
    return LaneRelations(_successors(measured, rules), left, as_pairs((int(b), int(a)) for a, b in left))


def precision_recall(inferred: Pairs, truth: Pairs) -> tuple[float, float]:
    """Precision and recall of inferred pairs; 1 where there is nothing to find."""
    found, true = set(map(tuple, inferred.tolist())), set(map(tuple, truth.tolist()))
    hits = len(found & true)
    return (hits / len(found) if found else 1.0, hits / len(true) if true else 1.0)


@dataclass(frozen=True)
class _Measured:
    """All centrelines end to end, with the arclength along them; steps from lane to lane have length 0."""

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
        """Position and direction at an arclength from the start of a lane."""
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
    """Pairs (lane, lane that starts where the first ends and has the same direction there)."""
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
    """Evenly spaced points on all centrelines."""

    position_m: Float[np.ndarray, "Q 2"]
    direction_rad: Float[np.ndarray, " Q"]
    lane: Int[np.ndarray, " Q"]
    reach_m: Float[np.ndarray, " Q"]  # length of the piece of lane around the sample

    @staticmethod
    def of(lanes: _Measured, spacing_m: float) -> "_Samples":
        """Midpoints of equal pieces of each lane, each piece at most `spacing_m` long."""
        counts = np.maximum(1, np.ceil(lanes.length_m / spacing_m)).astype(np.int64)
        lane = np.repeat(np.arange(len(counts)), counts)
        rank = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
        reach = (lanes.length_m / counts)[lane]
        return _Samples(*lanes.at(lane, (rank + 0.5) * reach), lane, reach)


@dataclass(frozen=True)
class _Meetings:
    """Samples that have another lane parallel beside them: at most one entry per (sample, other lane)."""

    sample: Int[np.ndarray, " E"]
    lane: Int[np.ndarray, " E"]
    offset_m: Float[np.ndarray, " E"]  # left positive


def _left_neighbours(lanes: _Measured, is_bike: Bool[np.ndarray, " L"], rules: LaneGraphRules) -> Pairs:
    """Pairs (lane, nearest lane on its left) that run side by side for long enough."""
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
    """Each sample with each lane parallel beside it, measured at the sample of that lane that is most abreast."""
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
    """Whether the other lane is about a lane width to the left and no lane between the two is clearly nearer."""
    offset = meetings.offset_m
    beside = (offset >= rules.least_offset_m) & (offset <= rules.most_offset_m)
    rival = offset >= rules.least_rival_offset_m
    nearest_m = np.full(meetings.sample.max(initial=0) + 1, np.inf)
    np.minimum.at(nearest_m, meetings.sample[rival], offset[rival])
    return beside & (offset <= nearest_m[meetings.sample] + rules.rival_margin_m)


def _crossing(lanes: _Measured, samples: _Samples, tree: cKDTree, rules: LaneGraphRules) -> Bool[np.ndarray, "L L"]:
    """Pairs of lanes that touch and share neither their start nor their end."""
    count = len(lanes.first)
    touching = np.zeros((count, count), np.bool_)
    one, other = samples.lane[tree.query_pairs(rules.contact_m, output_type="ndarray")].T
    touching[one, other] = True
    for ends in (lanes.first, lanes.last):
        common = cKDTree(lanes.points_m[ends]).query_pairs(rules.joint_gap_m, output_type="ndarray")
        touching[common[:, 0], common[:, 1]] = False
        touching[common[:, 1], common[:, 0]] = False
    return touching | touching.T
