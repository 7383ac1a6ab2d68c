"""How far points are off the road, for planners and for metrics alike. Q points, S samples.

Where the map has drivable areas, the road is these and the lanes. Where it has none (Waymo's) it ends at road edges:
a point is beyond one that lies between it and the nearest centreline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float
from scipy.spatial import cKDTree
from shapely import STRtree

from waycode.driving.lane_strips import LANE_SLACK_M, UNKNOWN_LANE_WIDTH_M, LaneStrips
from waycode.scene import MapFeatures
from waycode.scene.geometry import resample

OUTSIDE_TOLERANCE_M = 0.3  # nuPlan forgives corners that are less far out
# A lane that ends with no other lane near the point OPEN_END_M further on leaves the map; the road goes on unseen.
OPEN_END_M, OPEN_END_CLEARANCE_M, BEYOND_MAP_M = 25.0, 9.0, 60.0
PIECE_POINTS = 8
EDGE_SPACING_M = 1.0


@dataclass(frozen=True, kw_only=True)
class PavedRoad:
    """Drivable areas, and lanes where they stick out of these."""

    areas: tuple[Any, ...]
    strips: LaneStrips

    def outside_m(self, points_m: Float[np.ndarray, "Q 2"]) -> Float[np.ndarray, " Q"]:
        """How far points are off the road; 0 for those on it."""
        outside = np.zeros(len(points_m))
        off = np.flatnonzero(~shapely.intersects_xy(self._paved, points_m[:, 0], points_m[:, 1]))
        if len(off):
            points = shapely.points(points_m[off])
            lanes_m = _distance_m(points, self._lane_tree)
            outside[off] = np.minimum(
                _distance_m(points, self._area_tree), np.where(lanes_m > 0, lanes_m + LANE_SLACK_M, 0)
            )
        return outside

    @cached_property
    def _paved(self) -> Any:
        """All areas as one, prepared: it answers for most points, and many times faster than a tree of polygons."""
        paved = shapely.union_all(self.areas)
        shapely.prepare(paved)
        return paved

    @cached_property
    def _area_tree(self) -> STRtree:
        return STRtree(self.areas)

    @cached_property
    def _lane_tree(self) -> STRtree:
        return STRtree([*self.strips.polygons, *_roads_beyond_map(self.strips)])


@dataclass(frozen=True, kw_only=True)
class EdgedRoad:
    """Everything on the lanes' side of the road edges."""

    edges: tuple[Float[np.ndarray, "_ 2"], ...]
    strips: LaneStrips

    def outside_m(self, points_m: Float[np.ndarray, "Q 2"]) -> Float[np.ndarray, " Q"]:
        """How far points are off the road; 0 for those on it."""
        beyond = np.zeros(len(points_m))
        apart, sample = self._samples.query(points_m)
        # The way to the nearest centreline is no longer than `apart`, so it ends within twice that of the sample.
        unclear = np.flatnonzero(2 * apart >= self._clearance_m[sample])
        points = shapely.points(points_m[unclear])
        _, nearest = self._line_tree.query_nearest(points, all_matches=False)
        to_lane = shapely.shortest_line(points, self._line_tree.geometries[nearest])
        crossing = np.unique(self._edge_tree.query(to_lane, predicate="intersects")[0])
        if len(crossing):
            (point, _), distance = self._edge_tree.query_nearest(
                points[crossing], return_distance=True, all_matches=False
            )
            beyond[unclear[crossing[point]]] = distance
        return beyond

    @cached_property
    def _samples(self) -> cKDTree:
        """The points of all centrelines."""
        return cKDTree(np.concatenate(self.strips.centrelines))

    @cached_property
    def _clearance_m(self) -> Float[np.ndarray, " S"]:
        """How far from every sample there is no road edge, at least: most questions are answered by that."""
        edges = np.concatenate([resample(line, spacing_m=EDGE_SPACING_M) for line in self.edges])
        return np.asarray(cKDTree(edges).query(self._samples.data)[0] - EDGE_SPACING_M / 2)

    @cached_property
    def _edge_tree(self) -> STRtree:
        return STRtree(_pieces(self.edges))

    @cached_property
    def _line_tree(self) -> STRtree:
        return STRtree(_pieces(self.strips.centrelines))


DrivableArea = PavedRoad | EdgedRoad


def drivable_area(map_features: MapFeatures, strips: LaneStrips) -> DrivableArea | None:
    """The road of a map; None if the map does not say where it is."""
    areas = [shapely.make_valid(shapely.polygons(ring)) for ring in map_features.drivable_areas.as_list()]
    edges = [line.astype(np.float64) for line in map_features.road_edges.as_list() if len(line) > 1]
    if not areas and edges and len(strips):
        return EdgedRoad(edges=tuple(edges), strips=strips)
    if not areas and not len(strips):
        return None
    return PavedRoad(areas=tuple(areas), strips=strips)


def _pieces(lines_m: Sequence[Float[np.ndarray, "_ 2"]]) -> list[Any]:
    """Lines cut into short pieces: a tree finds the nearest of these much faster than the nearest of long lines."""
    return [
        shapely.linestrings(line[first : first + PIECE_POINTS + 1])
        for line in lines_m
        for first in range(0, len(line) - 1, PIECE_POINTS)
    ]


def _distance_m(points: Any, tree: STRtree) -> Float[np.ndarray, " Q"]:
    """Distance of points to the nearest of a tree's polygons, 0 inside of one, infinite where there is none."""
    if not len(tree):
        return np.full(len(points), np.inf)
    distance = np.zeros(len(points))
    held = np.zeros(len(points), np.bool_)
    held[tree.query(points, predicate="intersects")[0]] = True
    if not held.all():
        (point, _), apart = tree.query_nearest(points[~held], return_distance=True, all_matches=False)
        distance[np.flatnonzero(~held)[point]] = apart
    return distance


def _roads_beyond_map(strips: LaneStrips) -> list[Any]:
    """Where lanes leave the map, straight strips of road: a cut-out map says nothing against driving on there.

    nuPlan's maps are of whole cities, ours end; a lane that ends beside others that go on is not such a place.
    """
    if len(strips) == 0:
        return []
    lines = shapely.multilinestrings([shapely.linestrings(line) for line in strips.centrelines])
    ends = [
        *(
            (line[-1], line[-2])
            for line, after in zip(strips.centrelines, strips.continues, strict=True)
            if not after.any()
        ),
        *(
            (line[0], line[1])
            for line, prior in zip(strips.centrelines, strips.continues.T, strict=True)
            if not prior.any()
        ),
    ]
    roads = []
    for end, inner in ends:
        onwards = (end - inner) / max(float(np.linalg.norm(end - inner)), 1e-9)
        if shapely.points(end + OPEN_END_M * onwards).distance(lines) >= OPEN_END_CLEARANCE_M:
            strip = shapely.linestrings([end, end + BEYOND_MAP_M * onwards])
            roads.append(shapely.buffer(strip, UNKNOWN_LANE_WIDTH_M / 2 + LANE_SLACK_M, cap_style="flat"))
    return roads
