"""Converts a built network to the map of a scene.

- Lanes are all lanes for vehicles, including those in junctions; sidewalks are left out. Junction lanes that SUMO
  splits at waiting points are split here, too. Neighbours are lanes of one edge between which vehicles can change.
- The road surface is the union of all lanes, with the gaps between them closed. Its polygons are `drivable_areas`; a
  polygon with a hole (an island) is cut through the hole into pieces without holes.
- Road edges are the boundary of the surface, except where the network ends. Those to the left of traffic are medians.
- A stop sign stands to the right of the end of an edge and controls the lanes of that edge.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import shapely

from waycode.scene import EdgeType, GraphOrigin, Lanes, LaneType, LineType, MapFeatures, Polylines, StopSigns, as_pairs
from waycode.scene.frames import to_scene_frame
from waycode.scene.geometry import arclengths, directions, interpolate, project
from waycode.sources.sumo.netconvert import LaneInfo, RoadNetwork
from waycode.sources.sumo.plain import MOTOR_CLASSES, LinePoints, offset_line
from waycode.sources.world import CroppedLine, crop_line, merged_lines, pieces_without_holes, scene_polylines

_CHORD_ERROR_M = 0.01  # of simplified lines
_MAX_SPACING_M = 5.0  # between the points of lines
_MIN_PIECE_M = 0.5  # shorter remains of cut lines are left out
_CLOSED_GAP_M = 0.8  # gaps between adjacent lanes that are closed
_JUNCTION_GAP_M = 6.0  # gaps between diverging or crossing lanes of a junction that are closed
_END_CUT_M = 0.15  # half-width of the strip across the road that is cut from the edges where the network ends
_STREET_TAPER_M, _FREEWAY_TAPER_M = 12.0, 40.0  # length on which the road widens or narrows by a lane
_CIRCLE_SEGMENTS = 16  # per quarter of the circle that crops the map
_STOP_STATES = ("s", "w")  # SUMO's connection states at stop signs and all-way stops
_Point = tuple[float, float]  # in world coordinates
_Type = TypeVar("_Type", EdgeType, LineType)


@dataclass(frozen=True)
class SumoStopSign:
    """A stop sign and the ids of the lanes that end at it."""

    position_m: _Point
    lanes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RoadMap:
    """The map features of a whole network in world coordinates (float64); built once, cropped for every scene."""

    network: RoadNetwork
    lane_ids: tuple[str, ...]  # lanes for vehicles, sorted
    lane_lines: tuple[shapely.LineString, ...]  # their centrelines
    surface: shapely.MultiPolygon  # drivable area
    road_edges: tuple[tuple[shapely.LineString, EdgeType], ...]
    road_lines: tuple[tuple[shapely.LineString, LineType], ...]
    crosswalks: tuple[shapely.Polygon, ...]
    stop_signs: tuple[SumoStopSign, ...]


def build_road_map(network: RoadNetwork) -> RoadMap:
    """Computes the road surface, its edges and the painted lines of the whole network (slow)."""
    lanes = [lane for lane in network.lanes.values() if lane.is_for_vehicles]
    surface = _surface(network, lanes)
    crosswalks = [
        shapely.LineString(crossing.shape_m).buffer(crossing.width_m / 2, cap_style="flat")
        for crossing in network.crossings
    ]
    return RoadMap(
        network=network,
        lane_ids=tuple(lane.id for lane in lanes),
        lane_lines=tuple(_tidy(shapely.LineString(lane.shape_m)) for lane in lanes),
        surface=surface,
        road_edges=tuple(_road_edges(network, surface, lanes)),
        road_lines=(*_lines_between_lanes(network), *_lines_between_directions(network)),
        crosswalks=tuple(crosswalks),
        stop_signs=tuple(_stop_signs(network)),
    )


def crop_road_map(
    roads: RoadMap, origin_m: _Point, *, centre_m: _Point, radius_m: float
) -> tuple[MapFeatures, dict[str, int]]:
    """The map within a circle, in the scene frame. Lanes are cut where they leave the circle.

    Args:
        roads: map of the whole network.
        origin_m: origin of the scene frame, in world coordinates.
        centre_m: centre of the circle, in world coordinates.
        radius_m: of the circle.

    Returns:
        The map, and the index in it of each SUMO lane within the circle.
    """
    circle = shapely.Point(centre_m).buffer(radius_m, quad_segs=_CIRCLE_SEGMENTS)
    touched = np.flatnonzero(shapely.intersects(circle, np.array(roads.lane_lines, object))).tolist()
    cropped = {roads.lane_ids[index]: crop_line(roads.lane_lines[index], circle) for index in touched}
    lanes = {name: lane for name, lane in cropped.items() if lane is not None}
    lane_index = {name: index for index, name in enumerate(lanes)}
    edges = _cut_lines(roads.road_edges, circle)
    lines = _cut_lines(roads.road_lines, circle)
    areas = pieces_without_holes(roads.surface.intersection(circle), min_area_m2=_MIN_PIECE_M**2)
    areas.sort(key=lambda piece: piece.bounds)
    crosswalks = [polygon for polygon in roads.crosswalks if circle.contains(polygon.centroid)]
    features = MapFeatures(
        lanes=_lanes(roads.network, lanes, lane_index, origin_m),
        road_lines=scene_polylines([points for points, _ in lines], origin_m),
        road_line_types=np.array([kind for _, kind in lines], np.int8),
        road_edges=scene_polylines([points for points, _ in edges], origin_m),
        road_edge_types=np.array([kind for _, kind in edges], np.int8),
        crosswalks=_polygons(crosswalks, origin_m),
        drivable_areas=_polygons(areas, origin_m),
        stop_signs=_stop_sign_features(roads, lanes, lane_index, origin_m),
    )
    return features, lane_index


def _cut_lines(
    lines: Sequence[tuple[shapely.LineString, _Type]], circle: shapely.Polygon
) -> list[tuple[LinePoints, _Type]]:
    return [
        (_dense(shapely.get_coordinates(piece)), kind)
        for line, kind in lines
        for piece in merged_lines(line.intersection(circle), min_length_m=_MIN_PIECE_M)
    ]


def _lanes(
    network: RoadNetwork, cropped: Mapping[str, CroppedLine], index: Mapping[str, int], origin_m: _Point
) -> Lanes:
    infos = [network.lanes[name] for name in cropped]
    starts = {name for name, line in cropped.items() if line.keeps_start}
    ends = {name for name, line in cropped.items() if line.keeps_end}
    follows = [(link.from_lane, link.via_lane or link.to_lane) for link in network.connections]
    to_left = [(index[one], index[other]) for one, other in _neighbours(infos)]
    return Lanes(
        ids=tuple(cropped),
        types=np.array([_lane_type(info, network.is_freeway) for info in infos], np.int8),
        centrelines=scene_polylines([_dense(line.points_m) for line in cropped.values()], origin_m),
        speed_limit_mps=np.array([info.speed_mps for info in infos], np.float32),
        speed_limit_known=np.ones(len(infos), np.bool_),
        width_m=np.array([info.width_m for info in infos], np.float32),
        width_known=np.ones(len(infos), np.bool_),
        in_junction=np.array([info.is_internal for info in infos], np.bool_),
        # A lane that was cut has no successor at the cut.
        successors=as_pairs((index[one], index[other]) for one, other in follows if one in ends and other in starts),
        left_neighbours=as_pairs(to_left),
        right_neighbours=as_pairs((left, right) for right, left in to_left),
        graph_origin=GraphOrigin.RECORDED,
    )


def _lane_type(lane: LaneInfo, is_freeway: bool) -> LaneType:
    if lane.is_bike_lane:
        return LaneType.BIKE
    return LaneType.FREEWAY if is_freeway else LaneType.STREET


def _neighbours(lanes: Iterable[LaneInfo]) -> list[tuple[str, str]]:
    """Pairs (lane, lane to its left) of one edge, both motor lanes or both bicycle lanes."""
    by_place = {(lane.edge_id, lane.index): lane for lane in lanes}
    pairs = []
    for (edge, place), lane in by_place.items():
        left = by_place.get((edge, place + 1))
        if left is not None and left.is_bike_lane == lane.is_bike_lane:
            pairs.append((lane.id, left.id))
    return pairs


def _surface(network: RoadNetwork, lanes: Sequence[LaneInfo]) -> shapely.MultiPolygon:
    """The union of all lanes with the gaps between them closed; in junctions, wide gaps, too.

    SUMO's junction outlines contain sidewalks and cut through islands, so they only limit where wide gaps are closed.
    """
    lines = [_tidy(shapely.LineString(lane.shape_m)) for lane in lanes]
    half_m = np.array([lane.width_m / 2 for lane in lanes])
    boxes = shapely.buffer(lines, half_m, cap_style="flat", join_style="mitre", mitre_limit=1.5)
    strips = shapely.union_all([*boxes, *_tapers(network, lanes)])
    junctions = shapely.union_all([shapely.Polygon(shape).buffer(0) for shape in network.junction_shapes_m.values()])
    within = strips.intersection(junctions)
    filled = within.buffer(_JUNCTION_GAP_M / 2).buffer(-_JUNCTION_GAP_M / 2).intersection(junctions)
    half_gap_m = _CLOSED_GAP_M / 2
    whole = strips.union(filled).buffer(half_gap_m, join_style="mitre").buffer(-half_gap_m, join_style="mitre")
    polygons = [_without_gaps(polygon, junctions) for polygon in shapely.get_parts(whole.simplify(_CHORD_ERROR_M))]
    return shapely.MultiPolygon([polygon for polygon in polygons if polygon.area > 5])


def _tapers(network: RoadNetwork, lanes: Sequence[LaneInfo]) -> list[shapely.Polygon]:
    """Triangles where a lane begins or ends beside lanes that continue, such as pockets and merge lanes."""
    ends_on = {link.from_lane for link in network.connections}
    starts_on = {link.to_lane for link in network.connections}
    left, reached = ({network.lanes[lane].edge_id for lane in known} for known in (ends_on, starts_on))
    length_m = _FREEWAY_TAPER_M if network.is_freeway else _STREET_TAPER_M
    triangles = []
    for lane in [lane for lane in lanes if not lane.is_internal]:
        side = 1 if lane.id == network.edges[lane.edge_id].lanes[-1] else -1  # 1 if the kerb is on the left
        headings = directions(lane.shape_m)
        for place, outwards, known, edges in ((0, -1, starts_on, reached), (-1, 1, ends_on, left)):
            if lane.id not in known and lane.edge_id in edges:
                ahead = np.array([np.cos(headings[place]), np.sin(headings[place])])
                aside = side * lane.width_m / 2 * np.array([-ahead[1], ahead[0]])
                inner_m = lane.shape_m[place] - aside
                corners = [
                    inner_m - outwards * ahead,
                    inner_m + outwards * length_m * ahead,
                    lane.shape_m[place] + aside,
                ]
                triangles.append(shapely.Polygon(corners))
    return triangles


def _without_gaps(polygon: shapely.Polygon, junctions: shapely.Geometry) -> shapely.Polygon:
    """The polygon without small holes and holes within junctions; the remaining holes are islands."""
    holes = [shapely.Polygon(ring) for ring in polygon.interiors]
    islands = [hole for hole in holes if hole.area > 4 and hole.intersection(junctions).area < 0.9 * hole.area]
    return shapely.Polygon(polygon.exterior, [island.exterior for island in islands])


def _road_edges(
    network: RoadNetwork, surface: shapely.MultiPolygon, lanes: Sequence[LaneInfo]
) -> list[tuple[shapely.LineString, EdgeType]]:
    """The boundary of the surface, without its parts across the road where the network ends."""
    normal = [lane for lane in lanes if not lane.is_internal]
    ends = shapely.union_all(_network_ends(network, normal))
    tree = shapely.STRtree([shapely.LineString(lane.shape_m) for lane in normal])
    edges = []
    for polygon in surface.geoms:
        for ring in (polygon.exterior, *polygon.interiors):
            for piece in merged_lines(shapely.LineString(ring).difference(ends), min_length_m=_MIN_PIECE_M):
                line = _tidy(piece)
                edges.append((line, _edge_type(line, tree, normal)))
    return edges


def _network_ends(network: RoadNetwork, lanes: Sequence[LaneInfo]) -> list[shapely.Polygon]:
    """Thin boxes across the lanes at the ends of the network."""
    left = {network.lanes[link.from_lane].edge_id for link in network.connections}
    reached = {network.lanes[link.to_lane].edge_id for link in network.connections}
    boxes = []
    for lane in lanes:
        headings = directions(lane.shape_m)
        for place, led_to in ((0, reached), (-1, left)):
            if lane.edge_id not in led_to:
                across = np.array([-np.sin(headings[place]), np.cos(headings[place])]) * (lane.width_m / 2 + 0.1)
                line = shapely.LineString([lane.shape_m[place] - across, lane.shape_m[place] + across])
                boxes.append(line.buffer(_END_CUT_M, cap_style="flat"))
    return boxes


def _edge_type(line: shapely.LineString, tree: shapely.STRtree, lanes: Sequence[LaneInfo]) -> EdgeType:
    """A median if most of the line is to the left of the nearest lanes."""
    points_m = interpolate(shapely.get_coordinates(line), np.linspace(0, line.length, 11)[1:-1])
    nearest = tree.nearest(shapely.points(points_m))
    votes = [project(point[None], lanes[lane].shape_m)[1][0] > 0 for point, lane in zip(points_m, nearest, strict=True)]
    return EdgeType.MEDIAN if np.mean(votes) > 0.5 else EdgeType.BOUNDARY


def _lines_between_lanes(network: RoadNetwork) -> list[tuple[shapely.LineString, LineType]]:
    lines = []
    for edge in network.edges.values():
        lanes = [network.lanes[lane] for lane in edge.lanes if network.lanes[lane].is_for_vehicles]
        for lane, left in pairwise(lanes):
            same = lane.is_bike_lane == left.is_bike_lane
            kind = LineType.BROKEN_SINGLE_WHITE if same else LineType.SOLID_SINGLE_WHITE
            lines.append((_left_side(lane), kind))
    return lines


def _lines_between_directions(network: RoadNetwork) -> list[tuple[shapely.LineString, LineType]]:
    """Lines along the left sides of edges where the left side of an edge in the other direction coincides."""
    leftmost = [network.lanes[edge.lanes[-1]] for edge in network.edges.values()]
    sides = [_left_side(lane) for lane in leftmost]
    near = [side.buffer(_CLOSED_GAP_M / 2, cap_style="flat") for side in sides]
    lines = []
    for one, other in sorted(shapely.STRtree(near).query(sides, predicate="intersects").T.tolist()):
        if one >= other or not _are_opposite(leftmost[one], leftmost[other]):
            continue
        edges = [network.edges[leftmost[index].edge_id] for index in (one, other)]
        narrow = all(_num_motor_lanes(network, edge.lanes) == 1 and edge.speed_mps < 12 for edge in edges)
        kind = LineType.BROKEN_SINGLE_YELLOW if narrow else LineType.SOLID_DOUBLE_YELLOW
        lines += [
            (_tidy(piece), kind)
            for piece in merged_lines(sides[one].intersection(near[other]), min_length_m=_MIN_PIECE_M)
        ]
    return lines


def _are_opposite(one: LaneInfo, other: LaneInfo) -> bool:
    middle_m = interpolate(one.shape_m, arclengths(one.shape_m)[-1:] / 2)
    headings = [directions(lane.shape_m)[project(middle_m, lane.shape_m)[2][0]] for lane in (one, other)]
    return bool(np.cos(headings[0] - headings[1]) < 0)


def _num_motor_lanes(network: RoadNetwork, lanes: Iterable[str]) -> int:
    return sum(bool(network.lanes[lane].allowed & MOTOR_CLASSES) for lane in lanes)


def _left_side(lane: LaneInfo) -> shapely.LineString:
    return _tidy(shapely.LineString(offset_line(lane.shape_m, lane.width_m / 2)))


def _stop_signs(network: RoadNetwork) -> list[SumoStopSign]:
    stopping = {
        link.from_lane
        for link in network.connections
        if link.state in _STOP_STATES and not network.lanes[link.from_lane].is_internal
    }
    signs = []
    for edge in network.edges.values():
        lanes = [network.lanes[lane] for lane in edge.lanes if lane in stopping]
        if lanes:
            outermost = lanes[0]
            x_m, y_m = offset_line(outermost.shape_m[-2:], -(outermost.width_m / 2 + 0.5))[-1].tolist()
            signs.append(SumoStopSign((x_m, y_m), tuple(lane.id for lane in lanes)))
    return signs


def _stop_sign_features(
    roads: RoadMap, cropped: Mapping[str, CroppedLine], index: Mapping[str, int], origin_m: _Point
) -> StopSigns:
    """The stop signs of lanes whose ends are on the map."""
    ends = {name for name, line in cropped.items() if line.keeps_end}
    signs = [sign for sign in roads.stop_signs if not ends.isdisjoint(sign.lanes)]
    positions = np.array([sign.position_m for sign in signs], np.float64).reshape(-1, 2)
    controls = [(number, index[lane]) for number, sign in enumerate(signs) for lane in sign.lanes if lane in ends]
    return StopSigns(position_m=to_scene_frame(positions, origin_m), controls=as_pairs(controls))


def _tidy(line: shapely.LineString) -> shapely.LineString:
    """The line without redundant points."""
    return line.simplify(_CHORD_ERROR_M)


def _dense(points_m: LinePoints) -> LinePoints:
    """The same line with points added on long segments."""
    at_m = arclengths(points_m)
    counts = np.maximum(np.ceil(np.diff(at_m) / _MAX_SPACING_M - 1e-6), 1).astype(int)
    parts = [
        np.linspace(start, end, count, endpoint=False)
        for start, end, count in zip(at_m, at_m[1:], counts, strict=False)
    ]
    return interpolate(points_m, np.concatenate([*parts, at_m[-1:]]))


def _polygons(polygons: Sequence[shapely.Polygon], origin_m: _Point) -> Polylines:
    return scene_polylines([shapely.get_coordinates(polygon.exterior)[:-1] for polygon in polygons], origin_m)
