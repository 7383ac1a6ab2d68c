"""The part of a city's map around the ego's way, as the map of a scene."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float
from shapely.ops import substring

from waycode.scene import (
    EdgeType,
    GraphOrigin,
    Lanes,
    LineType,
    MapFeatures,
    Polylines,
    Route,
    StopSigns,
    as_pairs,
)
from waycode.scene.frames import snap, to_scene_frame
from waycode.scene.geometry import resample
from waycode.sources.areas import border_lines, lines_of, points_of, rings, union
from waycode.sources.nuplan.maps import CityMap, MapLane, StopSign

DIVIDER, ROADSIDE = 0, 2  # of boundary_type_fid; 3 is a virtual boundary, painted nowhere
LEAST_LANE_M = 0.5  # what is left of a lane at the border of the region must be this long
ON_BORDER_M = 0.5


@dataclass(frozen=True)
class CroppedLane:
    lane: MapLane
    points_m: Float[np.ndarray, "p 2"]  # in the world
    starts: bool  # whether its own start and end are there
    ends: bool


@dataclass(frozen=True)
class CroppedMap:
    """The map of a scene, and where the city's lanes are in it."""

    features: MapFeatures
    lanes: Mapping[int, int]  # index by fid
    connectors: Mapping[int, int]
    lane_starts_m: Sequence[Float[np.ndarray, "2"]]  # in the world

    def route(self, city: CityMap, roadblocks: Sequence[int]) -> Route | None:
        """The sections of a route that are on this map, or None if none is."""
        sections: list[list[int]] = []
        for fid in roadblocks:
            if fid in city.roadblocks:
                here = sorted(self.lanes[lane.fid] for lane in city.roadblocks[fid] if lane.fid in self.lanes)
            else:
                members = city.roadblock_connectors.get(fid, ())
                here = sorted(self.connectors[lane.fid] for lane in members if lane.fid in self.connectors)
            if here and (not sections or sections[-1] != here):
                sections.append(here)
        if not sections:
            return None
        return Route(
            lanes=np.concatenate([np.array(section, np.int32) for section in sections]),
            sections=np.repeat(np.arange(len(sections), dtype=np.int32), [len(section) for section in sections]),
        )


def crop_map(
    city: CityMap, path_m: Float[np.ndarray, "n 2"], *, radius_m: float, origin_m: tuple[float, float]
) -> CroppedMap:
    """Everything within `radius_m` of a path in the world, in the scene frame."""
    region = shapely.buffer(shapely.linestrings(np.repeat(path_m, 2, axis=0)), radius_m)
    lanes = list(_crop_lanes(city.lanes.within(region), region))
    index = {(cropped.lane.is_connector, cropped.lane.fid): i for i, cropped in enumerate(lanes)}
    areas = city.drivable.within(region)
    area = union(areas) if areas else shapely.Polygon()
    lines = list(_road_lines([cropped.lane for cropped in lanes], city, region=region, border=shapely.boundary(area)))
    edges = border_lines(area, region)

    def polylines(world_lines: Iterable[np.ndarray]) -> Polylines:
        return Polylines.of([to_scene_frame(line, origin_m) for line in world_lines])

    features = MapFeatures(
        lanes=_lanes(lanes, index, city, polylines(cropped.points_m for cropped in lanes)),
        road_lines=polylines(points for points, _ in lines),
        road_line_types=np.array([kind for _, kind in lines], np.int8),
        road_edges=polylines(edges),
        road_edge_types=np.full(len(edges), EdgeType.BOUNDARY, np.int8),
        crosswalks=polylines(rings(city.crosswalks.within(region))),
        speed_bumps=polylines(rings(city.speed_bumps.within(region))),
        drivable_areas=polylines(rings(areas)),
        stop_signs=_stop_signs(city.stop_signs.within(region), lanes, index, origin_m=origin_m),
    )
    return CroppedMap(
        features,
        {fid: i for (is_connector, fid), i in index.items() if not is_connector},
        {fid: i for (is_connector, fid), i in index.items() if is_connector},
        [points_of(cropped.lane.baseline)[0] for cropped in lanes],
    )


def _crop_lanes(lanes: Sequence[MapLane], region: Any) -> Iterator[CroppedLane]:
    """Each lane from where it first enters the region to where it last leaves it."""
    for lane in lanes:
        inside = shapely.get_coordinates(shapely.intersection(lane.baseline, region))
        along = shapely.line_locate_point(lane.baseline, shapely.points(inside))
        first, last = float(along.min()), float(along.max())
        if last - first >= min(LEAST_LANE_M, lane.baseline.length):
            starts, ends = first < 1e-6, last > lane.baseline.length - 1e-6
            points = points_of(lane.baseline if starts and ends else substring(lane.baseline, first, last))
            yield CroppedLane(lane, points, starts, ends)


def _lanes(
    lanes: Sequence[CroppedLane], index: Mapping[tuple[bool, int], int], city: CityMap, centrelines: Polylines
) -> Lanes:
    limits = [cropped.lane.speed_limit_mps for cropped in lanes]
    widths = [_width_m(cropped, city) for cropped in lanes]
    left = list(_left_neighbours([cropped.lane for cropped in lanes], index))
    return Lanes(
        ids=tuple(f"{'connector' if cropped.lane.is_connector else 'lane'}_{cropped.lane.fid}" for cropped in lanes),
        types=np.array([cropped.lane.type for cropped in lanes], np.int8),
        centrelines=centrelines,
        speed_limit_mps=np.array([limit or 0 for limit in limits], np.float32),
        speed_limit_known=np.array([limit is not None for limit in limits], np.bool_),
        width_m=snap(np.array([width or 0 for width in widths], np.float64), 2.0**-10),
        width_known=np.array([width is not None for width in widths], np.bool_),
        in_junction=np.array([cropped.lane.is_connector for cropped in lanes], np.bool_),
        successors=as_pairs(_successors(lanes, index)),
        left_neighbours=as_pairs(left),
        right_neighbours=as_pairs((other, lane) for lane, other in left),
        graph_origin=GraphOrigin.RECORDED,
    )


def _successors(lanes: Sequence[CroppedLane], index: Mapping[tuple[bool, int], int]) -> Iterator[tuple[int, int]]:
    """A lane goes on in its connectors and these in lanes, where both sides of the joint are on the map."""
    for i, cropped in enumerate(lanes):
        if not cropped.lane.is_connector:
            continue
        before, after = cropped.lane.leaves, cropped.lane.leads_to
        j = None if before is None else index.get((False, before))
        if j is not None and lanes[j].ends and cropped.starts:
            yield j, i
        k = None if after is None else index.get((False, after))
        if k is not None and cropped.ends and lanes[k].starts:
            yield i, k


def _left_neighbours(lanes: Sequence[MapLane], index: Mapping[tuple[bool, int], int]) -> Iterator[tuple[int, int]]:
    """Pairs of a lane and the one to its left in the same group, by number, or by a common boundary without numbers."""
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
                    yield index[False, lane.fid], index[False, other.fid]


def _width_m(cropped: CroppedLane, city: CityMap) -> float | None:
    """Mean distance from the centreline to the left boundary plus that to the right one."""
    sides = [
        city.boundaries.get(fid) for fid in (cropped.lane.left_boundary, cropped.lane.right_boundary) if fid is not None
    ]
    points = shapely.points(resample(cropped.points_m, spacing_m=2.0))
    distances = [float(shapely.distance(points, side[0]).mean()) for side in sides if side is not None]
    return sum(distances) if len(distances) == 2 and sum(distances) > 0 else None


def _road_lines(
    lanes: Sequence[MapLane], city: CityMap, *, region: Any, border: Any
) -> Iterator[tuple[Float[np.ndarray, "_ 2"], LineType]]:
    """The boundaries of lanes that are no road edges.

    The map does not say how they are painted: a divider between lanes of one direction is taken for a broken line.
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
        for points in lines_of(shapely.intersection(line, region)):
            yield points, LineType.BROKEN_SINGLE_WHITE if one_way else LineType.UNKNOWN


def _lies_on(line: Any, border: Any) -> bool:
    """Whether most of a line runs along the border."""
    points = shapely.points(resample(points_of(line), spacing_m=2.0))
    return bool((shapely.distance(points, border) < ON_BORDER_M).mean() > 0.5)


def _stop_signs(
    signs: Sequence[StopSign],
    lanes: Sequence[CroppedLane],
    index: Mapping[tuple[bool, int], int],
    *,
    origin_m: tuple[float, float],
) -> StopSigns:
    """Stop signs in the middle of the areas in which to stop, and the lanes and connectors that they are for."""
    positions = np.array([shapely.get_coordinates(sign.polygon.centroid)[0] for sign in signs], np.float64)
    controls = []
    for i, sign in enumerate(signs):
        named = [*((False, fid) for fid in sign.lanes), *((True, fid) for fid in sign.connectors)]
        if not named:  # then for what leads through its area
            through = [cropped.lane for cropped in lanes if sign.polygon.intersects(cropped.lane.baseline)]
            named = [(lane.is_connector, lane.fid) for lane in through]
        controls += [(i, index[key]) for key in named if key in index]
    return StopSigns(position_m=to_scene_frame(positions.reshape(-1, 2), origin_m), controls=as_pairs(controls))
