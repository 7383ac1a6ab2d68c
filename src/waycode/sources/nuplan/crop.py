"""Crops a city's map around a path and converts it to the map of a scene."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float

from waycode.scene import EdgeType, GraphOrigin, Lanes, LineType, MapFeatures, Polylines, Route, StopSigns, as_pairs
from waycode.scene.frames import POSITION_STEP_M, snap, to_scene_frame
from waycode.scene.geometry import resample
from waycode.sources.nuplan.maps import CityMap, LaneKey, MapLane, MapStopSign
from waycode.sources.world import (
    CroppedLine,
    border_lines,
    crop_line,
    mean_lane_width_m,
    merged_lines,
    rings,
    scene_polylines,
    union,
)

DIVIDER, ROADSIDE = 0, 2  # values of boundary_type_fid; 3 is a virtual boundary, which is not painted
_ON_BORDER_M = 0.5  # a line within this distance lies on the border
_CroppedLane = tuple[MapLane, CroppedLine]


@dataclass(frozen=True)
class CroppedMap:
    """The map of a scene, and the indices of the city's lanes in it."""

    features: MapFeatures  # in the scene frame
    index: Mapping[LaneKey, int]  # of each lane and lane connector
    lane_starts_m: Sequence[Float[np.ndarray, "2"]]  # in world coordinates, by index

    def route(self, city: CityMap, roadblocks: Sequence[int]) -> Route | None:
        """The part of a route (fids of roadblocks) that is on this map, or None."""
        sections: list[list[int]] = []
        for fid in roadblocks:
            here = sorted(self.index[lane.key] for lane in city.roadblocks.get(fid, ()) if lane.key in self.index)
            if here and (not sections or sections[-1] != here):
                sections.append(here)
        return Route.of(sections)


def crop_map(
    city: CityMap, path_m: Float[np.ndarray, "n 2"], *, radius_m: float, origin_m: tuple[float, float]
) -> CroppedMap:
    """Crops the map around a path.

    Args:
        city: the map of the city.
        path_m: points of the path in world coordinates.
        radius_m: everything farther from the path is left out.
        origin_m: origin of the scene frame, in world coordinates.
    """
    region = shapely.buffer(shapely.linestrings(np.repeat(path_m, 2, axis=0)), radius_m)
    cropped = [(lane, crop_line(lane.baseline, region)) for lane in city.lanes.within(region)]
    lanes = [(lane, line) for lane, line in cropped if line is not None]
    index = {lane.key: i for i, (lane, _) in enumerate(lanes)}
    areas = city.drivable.within(region)
    area = union(areas) if areas else shapely.Polygon()
    lines = list(_road_lines([lane for lane, _ in lanes], city, region=region, border=shapely.boundary(area)))
    edges = border_lines(area, region)

    def polylines(lines_m: Iterable[np.ndarray]) -> Polylines:
        return scene_polylines(lines_m, origin_m)

    features = MapFeatures(
        lanes=_lanes(lanes, index, city, polylines(line.points_m for _, line in lanes)),
        road_lines=polylines(points for points, _ in lines),
        road_line_types=np.array([kind for _, kind in lines], np.int8),
        road_edges=polylines(edges),
        road_edge_types=np.full(len(edges), EdgeType.BOUNDARY, np.int8),
        crosswalks=polylines(rings(city.crosswalks.within(region))),
        speed_bumps=polylines(rings(city.speed_bumps.within(region))),
        drivable_areas=polylines(rings(areas)),
        stop_signs=_stop_signs(city.stop_signs.within(region), lanes, index, origin_m=origin_m),
    )
    return CroppedMap(features, index, [shapely.get_coordinates(lane.baseline)[0] for lane, _ in lanes])


def _lanes(lanes: Sequence[_CroppedLane], index: Mapping[LaneKey, int], city: CityMap, centrelines: Polylines) -> Lanes:
    limits = [lane.speed_limit_mps for lane, _ in lanes]
    widths = [_width_m(lane, line, city) for lane, line in lanes]
    left = list(_left_neighbours([lane for lane, _ in lanes], index))
    return Lanes(
        ids=tuple(f"{'connector' if lane.is_connector else 'lane'}_{lane.fid}" for lane, _ in lanes),
        types=np.array([lane.type for lane, _ in lanes], np.int8),
        centrelines=centrelines,
        speed_limit_mps=np.array([limit or 0 for limit in limits], np.float32),
        speed_limit_known=np.array([limit is not None for limit in limits], np.bool_),
        width_m=snap(np.array([width or 0 for width in widths], np.float64), POSITION_STEP_M),
        width_known=np.array([width is not None for width in widths], np.bool_),
        in_junction=np.array([lane.is_connector for lane, _ in lanes], np.bool_),
        successors=as_pairs(_successors(lanes, index)),
        left_neighbours=as_pairs(left),
        right_neighbours=as_pairs((other, lane) for lane, other in left),
        graph_origin=GraphOrigin.RECORDED,
    )


def _successors(lanes: Sequence[_CroppedLane], index: Mapping[LaneKey, int]) -> Iterator[tuple[int, int]]:
    """Pairs (lane, connector) and (connector, lane) whose common point is on the map."""
    for i, (connector, line) in enumerate(lanes):
        if not connector.is_connector:
            continue
        before, after = connector.predecessor, connector.successor
        j = None if before is None else index.get((False, before))
        if j is not None and lanes[j][1].keeps_end and line.keeps_start:
            yield j, i
        k = None if after is None else index.get((False, after))
        if k is not None and line.keeps_end and lanes[k][1].keeps_start:
            yield i, k


def _left_neighbours(lanes: Sequence[MapLane], index: Mapping[LaneKey, int]) -> Iterator[tuple[int, int]]:
    """Pairs (lane, lane to its left) of a group, by lane number, or by common boundary where there are no numbers."""
    groups: dict[int, list[MapLane]] = {}
    for lane in lanes:
        if not lane.is_connector and lane.group is not None:
            groups.setdefault(lane.group, []).append(lane)
    for members in groups.values():
        for lane in members:
            for other in members:
                numbered = lane.index is not None and other.index is not None
                shared = lane.left_boundary is not None and lane.left_boundary == other.right_boundary
                if other.fid != lane.fid and (lane.index == (other.index or 0) + 1 if numbered else shared):
                    yield index[lane.key], index[other.key]


def _width_m(lane: MapLane, line: CroppedLine, city: CityMap) -> float | None:
    fids = (lane.left_boundary, lane.right_boundary)
    sides = [city.boundaries[fid][0] for fid in fids if fid is not None and fid in city.boundaries]
    if len(sides) < 2:
        return None
    return mean_lane_width_m(line.points_m, sides, spacing_m=2.0) or None


def _road_lines(
    lanes: Sequence[MapLane], city: CityMap, *, region: Any, border: Any
) -> Iterator[tuple[Float[np.ndarray, "_ 2"], LineType]]:
    """The lane boundaries that are not road edges.

    The map does not say how they are painted. A divider between lanes of one direction is assumed to be broken.
    """
    sides: dict[int, list[tuple[int | None, str]]] = {}
    for lane in lanes:
        if not lane.is_connector:
            for side, fid in (("left", lane.left_boundary), ("right", lane.right_boundary)):
                if fid is not None and fid in city.boundaries:
                    sides.setdefault(fid, []).append((lane.group, side))
    for fid, users in sides.items():
        line, kind = city.boundaries[fid]
        if kind not in (DIVIDER, ROADSIDE) or (kind == ROADSIDE and _lies_on(line, border)):
            continue
        one_way = kind == DIVIDER and len({group for group, _ in users}) == 1 and len({side for _, side in users}) == 2
        for piece in merged_lines(shapely.intersection(line, region)):
            yield shapely.get_coordinates(piece), LineType.BROKEN_SINGLE_WHITE if one_way else LineType.UNKNOWN


def _lies_on(line: Any, border: Any) -> bool:
    """Whether most of a line lies on the border."""
    points = shapely.points(resample(shapely.get_coordinates(line), spacing_m=2.0))
    return bool((shapely.distance(points, border) < _ON_BORDER_M).mean() > 0.5)


def _stop_signs(
    signs: Sequence[MapStopSign],
    lanes: Sequence[_CroppedLane],
    index: Mapping[LaneKey, int],
    *,
    origin_m: tuple[float, float],
) -> StopSigns:
    """Stop signs at the centres of their stop areas, and the lanes and connectors that they control."""
    positions = np.array([shapely.get_coordinates(sign.polygon.centroid)[0] for sign in signs], np.float64)
    controls = []
    for i, sign in enumerate(signs):
        named = [*((False, fid) for fid in sign.lanes), *((True, fid) for fid in sign.connectors)]
        if not named:  # then the sign controls every lane through its area
            named = [lane.key for lane, _ in lanes if sign.polygon.intersects(lane.baseline)]
        controls += [(i, index[key]) for key in named if key in index]
    return StopSigns(position_m=to_scene_frame(positions.reshape(-1, 2), origin_m), controls=as_pairs(controls))
