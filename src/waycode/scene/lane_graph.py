"""The lane graph of a map: successors and neighbours of lanes, lookup of the lane at a pose, and walks over lanes.

Axes: L lanes, S segments of all centrelines, n poses. A lane is its index in `Lanes`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import directions, project_on_segments, resample
from waycode.scene.types import Lanes, Pairs

Adjacency = tuple[tuple[int, ...], ...]  # for each lane, the related lanes in the order of the map's pairs


@dataclass(frozen=True, kw_only=True)
class LaneTolerance:
    """How far from a centreline and at what angle to it a pose still counts as on the lane."""

    distance_m: float  # most distance from the centreline
    angle_rad: float  # most angle to its direction


UNKNOWN_LANE_WIDTH_M = 3.5  # of lanes whose width is not known
_STRICT_RAD = np.radians(45)  # excludes crossing lanes
_LAX_RAD = np.radians(60)  # keeps more candidates

# All tolerances of lane lookup. Distances are to centrelines.
# The one lane that a road user is on: lanes are up to 4 m wide, and it may drive at the border.
ON_LANE = LaneTolerance(distance_m=2.5, angle_rad=_STRICT_RAD)
# Candidate lanes of a recorded pose; the cheapest sequence over all poses decides.
MAP_MATCHING = LaneTolerance(distance_m=3.0, angle_rad=_LAX_RAD)
# Candidate lanes to start a route on. The distance counts from the nearest lane: it reaches the lanes beside that.
ROUTE_START = LaneTolerance(distance_m=1.2 * UNKNOWN_LANE_WIDTH_M, angle_rad=_LAX_RAD)
# All lanes under an agent, as a feature of the model; if there is none, the nearest beside it. Models are trained with
# these values.
MODEL_ON_LANE = LaneTolerance(distance_m=2.0, angle_rad=_LAX_RAD)
MODEL_BESIDE_LANE = LaneTolerance(distance_m=5.0, angle_rad=_LAX_RAD)
# Lanes that start within this distance continue a lane: more than an agent drives between two samples of a trajectory.
CONTINUES_WITHIN_M = 30.0

_SAMPLE_SPACING_M = 1.0  # of the samples that `lane_at` looks up
_NEAREST_SAMPLES = 12  # enough to find an aligned lane under crossing lanes
_LEAST_LENGTH_M = 0.01  # shortest paths need positive lengths
_LINE_STEP_M = 50.0  # lines ahead are cached in multiples of this length
_ROUNDABOUT_LENGTH_M = 220.0  # the longest cycle that counts as a roundabout
_ROUNDABOUT_BEND = 0.4  # of the curvature of a circle of the same length ...
_ROUNDABOUT_ROUND_SHARE = 0.75  # ... that this share of the cycle must reach


@dataclass(frozen=True, eq=False)
class LaneGraph:
    """Adjacency, lookup and walks over the lanes of one map. Parts are computed on first use; see `Lanes.graph`."""

    lanes: Lanes

    def __len__(self) -> int:
        return len(self.lanes)

    @cached_property
    def successors(self) -> Adjacency:
        """Lanes that continue each lane."""
        return self._adjacency(self.lanes.successors)

    @cached_property
    def predecessors(self) -> Adjacency:
        """Lanes that each lane continues."""
        return self._adjacency(self.lanes.successors[:, ::-1])

    @cached_property
    def left(self) -> Adjacency:
        """Lanes directly to the left of each lane."""
        return self._adjacency(self.lanes.left_neighbours)

    @cached_property
    def right(self) -> Adjacency:
        """Lanes directly to the right of each lane."""
        return self._adjacency(self.lanes.right_neighbours)

    @cached_property
    def beside(self) -> Adjacency:
        """Lanes directly to the left, then to the right of each lane."""
        return tuple(left + right for left, right in zip(self.left, self.right, strict=True))

    @cached_property
    def length_m(self) -> Float[np.ndarray, " L"]:
        """Length of each centreline."""
        points, starts = self.lanes.centrelines.points_m.astype(np.float64), self.lanes.centrelines.starts
        if len(self) == 0:
            return np.zeros(0)
        steps = np.append(np.linalg.norm(np.diff(points, axis=0), axis=1), 0.0)
        steps[starts[1:] - 1] = 0.0  # from the end of one lane to the start of the next
        return np.add.reduceat(steps, starts[:-1])

    @cached_property
    def width_m(self) -> Float[np.ndarray, " L"]:
        """Width of each lane, `UNKNOWN_LANE_WIDTH_M` where it is not known."""
        return np.where(self.lanes.width_known, self.lanes.width_m.astype(np.float64), UNKNOWN_LANE_WIDTH_M)

    # Walks

    def reachable(
        self, starts: Iterable[int], *relations: Adjacency, within: Collection[int] | None = None
    ) -> set[int]:
        """All lanes that any number of steps over these relations lead to, the starts included.

        Args:
            starts: lanes to start from.
            relations: for example `graph.successors, graph.beside`.
            within: the only lanes that may be visited; all of them if None.
        """
        seen = set(starts)
        waiting = list(seen)
        while waiting:
            lane = waiting.pop()
            new = {other for relation in relations for other in relation[lane]} - seen
            new = new if within is None else new.intersection(within)
            seen |= new
            waiting.extend(new)
        return seen

    def parallel(self, lane: int, *, within: Collection[int] | None = None) -> set[int]:
        """The lane and all lanes that lane changes lead to or come from."""
        return self.reachable([lane], self.beside, self._beside_of, within=within)

    def beyond_junction(
        self, lanes: Iterable[int], relation: Adjacency, *, within: Collection[int] | None = None
    ) -> set[int]:
        """The first lanes outside of the junction that `lanes` lie in; a way through it may have several pieces.

        Args:
            lanes: lanes in a junction.
            relation: `successors` or `predecessors`.
            within: the only lanes that may be visited; all of them if None.
        """
        inside = self.lanes.in_junction
        in_junction = tuple(tuple(other for other in others if inside[other]) for others in relation)
        pieces = self.reachable(lanes, in_junction, within=within)
        found = {other for lane in pieces for other in relation[lane] if not inside[other]}
        return found if within is None else found.intersection(within)

    def extend_straight(self, chain: Sequence[int], *, length_m: float) -> list[int]:
        """The chain and the straightest successors after it, without repetition, until these are `length_m` long."""
        extended, length = list(chain), 0.0
        while length < length_m:
            after = [lane for lane in self.successors[extended[-1]] if lane not in extended]
            if not after:
                break
            end_rad = [directions(self.lanes.centrelines[lane])[-1] for lane in (extended[-1], *after)]
            extended.append(after[int(np.abs(wrap_angle(np.array(end_rad[1:]) - end_rad[0])).argmin())])
            length += float(self.length_m[extended[-1]])
        return extended

    def line_ahead(self, lane: int, *, length_m: float) -> Float[np.ndarray, "p 2"]:
        """The centreline of a lane and of the straightest lanes after it, these at least `length_m` long if the map
        has them; float64. Lines are cached."""
        key = (lane, int(np.ceil(max(length_m, 1.0) / _LINE_STEP_M)))
        if key not in self._line_cache:
            chain = self.extend_straight([lane], length_m=key[1] * _LINE_STEP_M)
            points = np.concatenate([self.lanes.centrelines[one].astype(np.float64) for one in chain])
            distinct = np.append(True, np.linalg.norm(np.diff(points, axis=0), axis=1) > _LEAST_LENGTH_M)
            self._line_cache[key] = points[distinct] if distinct.sum() > 1 else points[[0, -1]]
        return self._line_cache[key]

    def lanes_between(self, before: int, after: int) -> tuple[int, ...] | None:
        """The lanes after `before` up to and including `after`; None if `after` is not one or two steps ahead.

        With two steps, a lane may lie between two samples of a track.
        """
        if after in self.successors[before]:
            return (after,)
        via = [lane for lane in self.successors[before] if after in self.successors[lane]]
        return (via[-1], after) if via else None

    def change(self, before: int, after: int) -> int:
        """Side of the lane change between two lanes of a track: 1 left, -1 right, 0 none.

        `after` may be a neighbour of `before`, of a lane that follows it, or follow a neighbour of it. Following lanes
        include those beyond a junction.
        """
        if after in self._onward(before):
            return 0
        sides = [
            after in side[before]
            or any(after in side[lane] for lane in self._onward(before))
            or any(after in self._onward(lane) for lane in side[before])
            for side in (self.left, self.right)
        ]
        return int(sides[0]) - int(sides[1])

    def continuing(self, within_m: float = CONTINUES_WITHIN_M) -> Bool[np.ndarray, "L L"]:
        """Whether one lane leads to the other, in either direction, without a lane change; each leads to itself.

        Args:
            within_m: most distance from the end of the first lane to the start of the second.
        """
        count, length = len(self), np.maximum(self.length_m, _LEAST_LENGTH_M)
        before, after = self.lanes.successors.T
        # start_m[i, j]: length of the lanes from i on, i included, up to the start of j
        graph = csr_matrix((length[before], (before, after)), shape=(count, count))
        start_m = dijkstra(graph, limit=within_m + float(length.max(initial=0.0)))
        reached = start_m - length[:, None] <= within_m
        return np.asarray(reached | reached.T | np.eye(count, dtype=np.bool_))

    @cached_property
    def ring(self) -> Bool[np.ndarray, " L"]:
        """Lanes of roundabouts: short cycles of successors, nearly all of which bend to the same side."""
        count = len(self)
        ring = np.zeros(count, np.bool_)
        if len(self.lanes.successors) == 0:
            return ring
        length = np.maximum(self.length_m, _LEAST_LENGTH_M)
        before, after = self.lanes.successors.T
        graph = csr_matrix((length[after], (before, after)), shape=(count, count))
        # way[i, j]: length of the lanes after i up to and with j; via[i, j]: the lane before j on that way
        way, via = dijkstra(graph, limit=_ROUNDABOUT_LENGTH_M, return_predecessors=True)
        around = length[after] + way[after, before]
        for index in np.flatnonzero(around <= _ROUNDABOUT_LENGTH_M):
            cycle = [int(before[index])]
            while cycle[-1] != after[index]:
                cycle.append(int(via[after[index], cycle[-1]]))
            ring[cycle] |= self._is_round(cycle, length[cycle])
        return ring

    # Lookup

    def lane_at(
        self, position_m: Float[np.ndarray, "*n 2"], heading_rad: Float[np.ndarray, "*n"]
    ) -> Int[np.ndarray, "*n"]:
        """The nearest lane within `ON_LANE`, or -1; for many poses at once, by samples 1 m apart on the centrelines."""
        if self._tree is None:
            return np.full(heading_rad.shape, -1)
        which = [*range(1, min(_NEAREST_SAMPLES, len(self._sample_lane)) + 1)]
        distance, nearest = self._tree.query(position_m, k=which, distance_upper_bound=ON_LANE.distance_m)
        found = np.isfinite(distance)
        nearest = np.where(found, nearest, 0)
        aligned = np.abs(wrap_angle(self._sample_rad[nearest] - heading_rad[..., None])) < ON_LANE.angle_rad
        distance = np.where(found & aligned, distance, np.inf)
        best = distance.argmin(axis=-1)[..., None]
        lane = np.take_along_axis(self._sample_lane[nearest], best, axis=-1)[..., 0]
        return np.where(np.isfinite(distance.min(axis=-1)), lane, -1)

    def lanes_near(
        self,
        position_m: Float[np.ndarray, "n 2"],
        heading_rad: Float[np.ndarray, " n"],
        *,
        tolerance: LaneTolerance = MAP_MATCHING,
    ) -> list[dict[int, float]]:
        """For each of n poses the lanes within `tolerance`, each with its distance in metres, by samples."""
        found: list[dict[int, float]] = [{} for _ in position_m]
        if self._tree is None:
            return found
        near = self._tree.query_ball_point(position_m, tolerance.distance_m)
        for offsets, position, heading, samples in zip(found, position_m, heading_rad, near, strict=True):
            aligned = np.abs(wrap_angle(self._sample_rad[samples] - heading)) < tolerance.angle_rad
            distance = np.linalg.norm(self._tree.data[samples] - position, axis=-1)
            for lane, distance_m in zip(self._sample_lane[samples][aligned], distance[aligned], strict=True):
                offsets[int(lane)] = min(float(distance_m), offsets.get(int(lane), np.inf))
        return found

    def nearest_lane(
        self,
        position_m: Float[np.ndarray, " 2"],
        heading_rad: float,
        *,
        tolerance: LaneTolerance = ON_LANE,
        usable: Bool[np.ndarray, " L"] | None = None,
    ) -> int | None:
        """The lane with the nearest aligned segment, by exact distance to one pose; None if none is within tolerance.

        Args:
            position_m, heading_rad: the pose.
            tolerance: most distance and angle.
            usable: lanes that count; all of them if None.
        """
        distance = self._segment_distances(position_m)
        fits = np.abs(wrap_angle(self._segment_rad - heading_rad)) < tolerance.angle_rad
        if usable is not None:
            fits &= usable[self._segment_lane]
        distance = np.where(fits, distance, np.inf)
        if distance.min(initial=np.inf) >= tolerance.distance_m:
            return None
        return int(self._segment_lane[distance.argmin()])

    def distances(self, position_m: Float[np.ndarray, " 2"]) -> tuple[Float[np.ndarray, " L"], Float[np.ndarray, " L"]]:
        """Distance in metres from a position to every centreline, and the centreline's heading at the nearest point."""
        distance = self._segment_distances(position_m)
        first = np.searchsorted(self._segment_lane, np.arange(len(self)))
        nearest_m = np.minimum.reduceat(distance, first) if len(self) else np.zeros(0)
        at = np.flatnonzero(distance == nearest_m[self._segment_lane])
        nearest = at[np.unique(self._segment_lane[at], return_index=True)[1]]
        return nearest_m, self._segment_rad[nearest]

    def distance_to_nearest_m(self, position_m: Float[np.ndarray, "*n 2"]) -> Float[np.ndarray, "*n"]:
        """Distance to the nearest lane, by samples: up to half a metre too long; infinite on a map without lanes."""
        if self._tree is None:
            return np.full(position_m.shape[:-1], np.inf)
        return np.asarray(self._tree.query(position_m)[0], np.float64)

    # Details

    def _adjacency(self, pairs: Pairs) -> Adjacency:
        related: list[list[int]] = [[] for _ in range(len(self))]
        for lane, other in pairs.tolist():
            related[lane].append(other)
        return tuple(map(tuple, related))

    @cached_property
    def _beside_of(self) -> Adjacency:
        """Lanes that each lane lies beside: recorded neighbours are not always mutual."""
        return self._adjacency(np.concatenate([self.lanes.left_neighbours, self.lanes.right_neighbours])[:, ::-1])

    def _onward(self, lane: int) -> set[int]:
        """The successors, and the lanes that follow them through junctions, where lanes are short."""
        if lane not in self._onward_cache:
            self._onward_cache[lane] = self.reachable(self.successors[lane], self._successors_inside)
        return self._onward_cache[lane]

    @cached_property
    def _onward_cache(self) -> dict[int, set[int]]:
        return {}

    @cached_property
    def _line_cache(self) -> dict[tuple[int, int], Float[np.ndarray, "_ 2"]]:
        return {}

    @cached_property
    def _successors_inside(self) -> Adjacency:
        """Successors of the lanes in junctions; the others have none here."""
        pairs = zip(self.successors, self.lanes.in_junction, strict=True)
        return tuple(after if inside else () for after, inside in pairs)

    def _is_round(self, cycle: list[int], length_m: Float[np.ndarray, " n"]) -> bool:
        """Whether a cycle of lanes bends like a circle; a city block or a U-turn has long straight parts."""
        lines = [self.lanes.centrelines[lane].astype(np.float64) for lane in cycle]
        turn = np.array([wrap_angle(np.diff(directions(line))).sum() for line in lines])
        circle_1pm = 2 * np.pi / length_m.sum()
        bends = np.abs(turn) / length_m > _ROUNDABOUT_BEND * circle_1pm
        same_side = np.sign(turn) == np.sign(turn.sum())
        return float(length_m[bends & same_side].sum() / length_m.sum()) > _ROUNDABOUT_ROUND_SHARE

    @cached_property
    def _samples(self) -> list[Float[np.ndarray, "_ 2"]]:
        lines = self.lanes.centrelines.as_list()
        return [resample(line.astype(np.float64), spacing_m=_SAMPLE_SPACING_M) for line in lines]

    @cached_property
    def _tree(self) -> cKDTree | None:
        """Finds samples; `_sample_rad` and `_sample_lane` are their headings and lanes. None without lanes."""
        return cKDTree(np.concatenate(self._samples)) if self._samples else None

    @cached_property
    def _sample_rad(self) -> Float[np.ndarray, " q"]:
        return np.concatenate([directions(line) for line in self._samples])

    @cached_property
    def _sample_lane(self) -> Int[np.ndarray, " q"]:
        return np.repeat(np.arange(len(self._samples)), [len(line) for line in self._samples])

    @cached_property
    def _segments(self) -> tuple[Float[np.ndarray, "S 2"], Float[np.ndarray, "S 2"], Int[np.ndarray, " S"]]:
        """Start, step and lane of every segment with a direction; lanes of zero length keep theirs."""
        points, starts = self.lanes.centrelines.points_m.astype(np.float64), self.lanes.centrelines.starts
        lane = np.repeat(np.arange(len(self)), np.diff(starts))[:-1]
        step = np.diff(points, axis=0)
        moving = (step**2).sum(axis=1) > 1e-12
        within_lane = np.ones(len(step), np.bool_)
        within_lane[starts[1:-1] - 1] = False  # from the end of one lane to the start of the next
        moves = np.zeros(len(self), np.bool_)
        moves[lane[moving & within_lane]] = True
        kept = within_lane & (moving | ~moves[lane])
        return points[:-1][kept], step[kept], lane[kept]

    @cached_property
    def _segment_rad(self) -> Float[np.ndarray, " S"]:
        step = self._segments[1]
        return np.arctan2(step[:, 1], step[:, 0])

    @property
    def _segment_lane(self) -> Int[np.ndarray, " S"]:
        return self._segments[2]

    def _segment_distances(self, position_m: Float[np.ndarray, " 2"]) -> Float[np.ndarray, " S"]:
        start, step, _ = self._segments
        return np.linalg.norm(project_on_segments(position_m, start, step)[1], axis=-1)
