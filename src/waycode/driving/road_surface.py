"""Lanes as polygons, and how far points are off the road. Axes: L lanes with a polygon, Q points, S samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from jaxtyping import Bool, Float, Float64
from scipy.spatial import cKDTree
from shapely import STRtree

from waycode.scene import Lanes, LaneType, MapFeatures
from waycode.scene.geometry import resample

OUTSIDE_TOLERANCE_M = 0.3  # nuPlan tolerates corners that are less far outside
_NEARBY_M = 60.0  # lanes further from the points of interest are left out
_PIECE_POINTS = 8  # of the pieces that lines are cut into for trees
_EDGE_SPACING_M = 1.0  # of the samples on road edges


@dataclass(frozen=True, kw_only=True)
class LanePolygons:
    """Lanes as polygons: strips of the lane's width around the centrelines. Row i of L is lane `lane[i]` of the map."""

    lanes: Lanes  # all lanes of the map
    lane: tuple[int, ...]  # those with a polygon
    polygons: tuple[Any, ...]  # shapely polygons
    centrelines: tuple[Float64[np.ndarray, "_ 2"], ...]
    in_junction: Bool[np.ndarray, " L"]
    continues: Bool[np.ndarray, "L L"]  # [i, j]: lane j is a successor of lane i

    @staticmethod
    def of(lanes: Lanes, around_m: Float[np.ndarray, "Q 2"] | None = None) -> "LanePolygons":
        """Polygons of the lanes for cars, so without bicycle lanes.

        Args:
            lanes: all lanes of the map.
            around_m: leave out lanes further than 60 m from the bounding box of these points; keep all if None.
        """
        graph = lanes.graph
        lines = lanes.centrelines.as_list()
        chosen = [
            lane
            for lane, line in enumerate(lines)
            if lanes.types[lane] != LaneType.BIKE and graph.length_m[lane] > 0 and _is_near(line, around_m)
        ]
        centrelines = tuple(lines[lane].astype(np.float64) for lane in chosen)
        half_m = graph.width_m[chosen] / 2
        strips = [shapely.linestrings(line) for line in centrelines]
        polygons = shapely.buffer(strips, half_m, cap_style="flat", join_style="mitre") if chosen else ()
        row_of = {lane: row for row, lane in enumerate(chosen)}
        continues = np.zeros((len(chosen), len(chosen)), np.bool_)
        for row, lane in enumerate(chosen):
            continues[row, [row_of[after] for after in graph.successors[lane] if after in row_of]] = True
        return LanePolygons(
            lanes=lanes,
            lane=tuple(chosen),
            polygons=tuple(polygons),
            centrelines=centrelines,
            in_junction=lanes.in_junction[chosen].astype(np.bool_),
            continues=continues,
        )

    def __len__(self) -> int:
        return len(self.lane)

    @cached_property
    def _tree(self) -> STRtree:
        return STRtree(self.polygons)

    @cached_property
    def _junctions(self) -> Any:
        """The areas of junctions: what their lanes cover, without holes."""
        covered = shapely.union_all([self.polygons[row] for row in np.flatnonzero(self.in_junction)])
        filled = [shapely.Polygon(part.exterior) for part in shapely.get_parts(covered) if part.geom_type == "Polygon"]
        area = shapely.union_all(filled)
        shapely.prepare(area)
        return area

    def inside_junctions(self, points_m: Float[np.ndarray, "Q 2"]) -> Bool[np.ndarray, " Q"]:
        """Which points lie in a junction, on one of its lanes or between them."""
        return np.asarray(shapely.intersects_xy(self._junctions, points_m[:, 0], points_m[:, 1]))

    def inside(self, points_m: Float[np.ndarray, "Q 2"]) -> Bool[np.ndarray, "L Q"]:
        """Which lanes contain which points."""
        contains = np.zeros((len(self), len(points_m)), np.bool_)
        if len(self):
            point, row = self._tree.query(shapely.points(points_m), predicate="intersects")
            contains[row, point] = True
        return contains


@dataclass(frozen=True, kw_only=True)
class DrivableArea:
    """Where a car may drive.

    Maps with drivable areas: these areas, and lanes where they stick out of them; nothing beyond the end of the map, as
    in nuPlan. Maps without (Waymo's): everything on
    the lanes' side of the road edges; a point is outside if an edge lies between it and the nearest centreline.
    """

    areas: tuple[Any, ...]  # shapely polygons
    edges: tuple[Float[np.ndarray, "_ 2"], ...]  # road edges; used if there are no areas
    lanes: LanePolygons

    @staticmethod
    def of(map_features: MapFeatures, lanes: LanePolygons | None = None) -> "DrivableArea | None":
        """The drivable area of a map; None if the map has neither areas nor lanes.

        Args:
            map_features: the map.
            lanes: its lanes as polygons; made for the whole map if None.
        """
        lanes = LanePolygons.of(map_features.lanes) if lanes is None else lanes
        areas = [shapely.make_valid(shapely.polygons(ring)) for ring in map_features.drivable_areas.as_list()]
        edges = [line.astype(np.float64) for line in map_features.road_edges.as_list() if len(line) > 1]
        if not areas and not len(lanes):
            return None
        return DrivableArea(areas=tuple(areas), edges=tuple(edges), lanes=lanes)

    def outside_m(self, points_m: Float[np.ndarray, "Q 2"]) -> Float[np.ndarray, " Q"]:
        """Distance of points outside of the drivable area; 0 for those inside."""
        return self._beyond_edges_m(points_m) if self.edges and not self.areas else self._off_areas_m(points_m)

    def _off_areas_m(self, points_m: Float[np.ndarray, "Q 2"]) -> Float[np.ndarray, " Q"]:
        outside = np.zeros(len(points_m))
        off = np.flatnonzero(~shapely.intersects_xy(self._union, points_m[:, 0], points_m[:, 1]))
        if len(off):
            points = shapely.points(points_m[off])
            outside[off] = np.minimum(_distance_m(points, self._area_tree), _distance_m(points, self._lane_tree))
        return outside

    def _beyond_edges_m(self, points_m: Float[np.ndarray, "Q 2"]) -> Float[np.ndarray, " Q"]:
        beyond = np.zeros(len(points_m))
        apart, sample = self._lane_samples.query(points_m)
        # The nearest centreline is no further than `apart`, so the line to it ends within 2 * `apart` of the sample.
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
    def _union(self) -> Any:
        """All areas as one prepared polygon: it answers for most points, many times faster than a tree of polygons."""
        union = shapely.union_all(self.areas)
        shapely.prepare(union)
        return union

    @cached_property
    def _area_tree(self) -> STRtree:
        return STRtree(self.areas)

    @cached_property
    def _lane_tree(self) -> STRtree:
        return STRtree(self.lanes.polygons)

    @cached_property
    def _lane_samples(self) -> cKDTree:
        """The points of all centrelines."""
        return cKDTree(np.concatenate(self.lanes.centrelines))

    @cached_property
    def _clearance_m(self) -> Float[np.ndarray, " S"]:
        """Least distance from each sample to a road edge: enough to answer for most points."""
        edges = np.concatenate([resample(line, spacing_m=_EDGE_SPACING_M) for line in self.edges])
        return np.asarray(cKDTree(edges).query(self._lane_samples.data)[0] - _EDGE_SPACING_M / 2)

    @cached_property
    def _edge_tree(self) -> STRtree:
        return STRtree(_pieces(self.edges))

    @cached_property
    def _line_tree(self) -> STRtree:
        return STRtree(_pieces(self.lanes.centrelines))


def _is_near(line_m: Float[np.ndarray, "p 2"], around_m: Float[np.ndarray, "Q 2"] | None) -> bool:
    if around_m is None:
        return True
    low, high = around_m.min(axis=0) - _NEARBY_M, around_m.max(axis=0) + _NEARBY_M
    return bool((line_m.max(axis=0) > low).all() and (line_m.min(axis=0) < high).all())


def _pieces(lines_m: Sequence[Float[np.ndarray, "_ 2"]]) -> list[Any]:
    """Lines cut into short pieces: a tree finds the nearest of these much faster than the nearest long line."""
    return [
        shapely.linestrings(line[first : first + _PIECE_POINTS + 1])
        for line in lines_m
        for first in range(0, len(line) - 1, _PIECE_POINTS)
    ]


def _distance_m(points: Any, tree: STRtree) -> Float[np.ndarray, " Q"]:
    """Distance of points to the nearest polygon of a tree; 0 inside of one, infinite for an empty tree."""
    if not len(tree):
        return np.full(len(points), np.inf)
    distance = np.zeros(len(points))
    held = np.zeros(len(points), np.bool_)
    held[tree.query(points, predicate="intersects")[0]] = True
    if not held.all():
        (point, _), apart = tree.query_nearest(points[~held], return_distance=True, all_matches=False)
        distance[np.flatnonzero(~held)[point]] = apart
    return distance
