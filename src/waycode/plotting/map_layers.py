"""The static world: roads, paint, crosswalks and signs."""

from typing import Any

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from waycode.plotting.shapes import Points, beside, dashes, fill, near, polygons_of, stroke
from waycode.plotting.style import Layer, Style
from waycode.plotting.viewport import shown_bounds_m, width_pt
from waycode.scene import EdgeType, Lanes, LaneType, LineType, MapFeatures, Scene
from waycode.scene.geometry import directions, project

DOUBLE_LINE_OFFSET_M = 0.17
EDGE_GAP_M = 5.0
ROUTE_ALPHA = 0.36
LARGEST_LEFTOVER_M2 = 400.0
ZEBRA_PERIOD_M = 1.1
ZEBRA_STRIPE_M = 0.55
CROSSING_LANE_M = 10.0
WIDEST_ZEBRA_M = 9.0  # what is wider is a place for people, not a crossing
_YELLOW = {
    LineType.BROKEN_SINGLE_YELLOW,
    LineType.BROKEN_DOUBLE_YELLOW,
    LineType.SOLID_SINGLE_YELLOW,
    LineType.SOLID_DOUBLE_YELLOW,
    LineType.PASSING_DOUBLE_YELLOW,
}
_BROKEN = {LineType.BROKEN_SINGLE_WHITE, LineType.BROKEN_SINGLE_YELLOW, LineType.BROKEN_DOUBLE_YELLOW}
_DOUBLE = {
    LineType.SOLID_DOUBLE_WHITE,
    LineType.BROKEN_DOUBLE_YELLOW,
    LineType.SOLID_DOUBLE_YELLOW,
    LineType.PASSING_DOUBLE_YELLOW,
}


def draw_map(axes: Axes, scene: Scene, *, style: Style | None = None) -> None:
    """Draws what never moves, as far as the axes show it (set their limits first)."""
    style = style or Style()
    features = scene.map
    bounds = shown_bounds_m(axes)
    for driveway in polygons_of(features.driveways, bounds):
        fill(axes, driveway, colour=style.driveway, layer=Layer.DRIVEWAYS)
    _draw_road(axes, features, style)
    _draw_crosswalks(axes, features, style)
    for bump in polygons_of(features.speed_bumps, bounds):
        fill(axes, bump, colour=style.speed_bump, layer=Layer.CROSSWALKS, alpha=0.4)
    _draw_paint(axes, features, style)
    _draw_edges(axes, features, style)
    _draw_stop_signs(axes, features, style)


def _draw_road(axes: Axes, features: MapFeatures, style: Style) -> None:
    bounds = shown_bounds_m(axes)
    lanes = features.lanes
    shown = near(lanes.centrelines, bounds)
    bikes = [lane for lane in shown if lanes.types[lane] == LaneType.BIKE and not lanes.in_junction[lane]]
    roads = [lane for lane in shown if lanes.types[lane] != LaneType.BIKE or lanes.in_junction[lane]]
    area = _lane_area(lanes, roads, style)
    if len(roads) and not lanes.width_known[roads].all():
        area = _widened_to_edges(area, [features.road_edges[index] for index in near(features.road_edges, bounds)])
    areas = polygons_of(features.drivable_areas, bounds)
    fill(axes, shapely.union_all([area, *areas]), colour=style.asphalt, layer=Layer.ROAD)
    fill(axes, _lane_area(lanes, bikes, style), colour=style.bike_lane, layer=Layer.ROAD)


def _widened_to_edges(area: Any, edges: list[Points]) -> Any:
    """The area of lanes of unknown width, grown over the gaps between them and the road's edges, but not beyond."""
    if not edges:
        return area
    curbs = shapely.union_all([shapely.LineString(edge).buffer(0.05, cap_style="flat") for edge in edges])
    closed = shapely.union(area, curbs).buffer(EDGE_GAP_M / 2).buffer(-EDGE_GAP_M / 2)
    pieces = shapely.get_parts(shapely.difference(closed, curbs))
    on_road = shapely.area(shapely.intersection(pieces, area)) > 0.25 * shapely.area(pieces)  # else: beyond the edge
    road = shapely.union_all([*pieces[on_road], area]).buffer(0.06)
    return shapely.union_all([road, *(hole for hole in _holes(road) if _is_leftover(hole, curbs))])


def _holes(area: Any) -> list[Any]:
    parts = [part for part in shapely.get_parts(area) if part.geom_type == "Polygon"]
    return [shapely.Polygon(ring) for part in parts for ring in part.interiors]


def _is_leftover(hole: Any, curbs: Any) -> bool:
    """Whether a hole in the road is one that growing left open, and not an island with a curb around it."""
    bounded = hole.exterior.intersection(curbs.buffer(0.2)).length / hole.exterior.length
    return bool(hole.area < LARGEST_LEFTOVER_M2 and bounded < 0.6)


def _lane_area(lanes: Lanes, chosen: list[int], style: Style) -> Any:
    """The ground that the lanes cover, as one shape, so that lanes over lanes are not darker than others."""
    ribbons = [
        shapely.LineString(lanes.centrelines[lane]).buffer(lane_width_m(lanes, lane, style) / 2, cap_style="flat")
        for lane in chosen
    ]
    # Small gaps between ribbons (between directions, at the seams of curves) are asphalt too: close them.
    return shapely.union_all(ribbons).buffer(0.8, join_style="mitre").buffer(-0.8, join_style="mitre")


def lane_width_m(lanes: Lanes, lane: int, style: Style) -> float:
    """The width of a lane, or a usual one where it is not known."""
    if lanes.width_known[lane]:
        return float(lanes.width_m[lane])
    return 1.6 if lanes.types[lane] == LaneType.BIKE else style.assumed_lane_width_m


def _draw_crosswalks(axes: Axes, features: MapFeatures, style: Style) -> None:
    for polygon in polygons_of(features.crosswalks, shown_bounds_m(axes)):
        if _narrow_side_m(polygon) > WIDEST_ZEBRA_M:
            fill(axes, polygon, colour=style.white_paint, layer=Layer.CROSSWALKS, alpha=0.35)
            continue
        # A crosswalk may reach beyond the lanes: it gets asphalt of its own, or white paint would lie on light ground.
        fill(axes, polygon.buffer(0.3, join_style="mitre"), colour=style.asphalt, layer=Layer.ROAD)
        fill(
            axes,
            zebra(polygon, driving_rad=_driving_rad(features.lanes, polygon)),
            colour=style.white_paint,
            layer=Layer.CROSSWALKS,
            alpha=0.92,
        )


def _narrow_side_m(polygon: Any) -> float:
    corners = np.asarray(shapely.minimum_rotated_rectangle(polygon).exterior.coords)[:3]
    return float(np.linalg.norm(np.diff(corners, axis=0), axis=1).min())


def _driving_rad(lanes: Lanes, crosswalk: Any) -> float | None:
    """Heading of the lane that crosses nearest to the middle of a crosswalk."""
    best, heading = CROSSING_LANE_M, None
    centre = np.asarray(crosswalk.centroid.coords)
    for lane in near(lanes.centrelines, crosswalk.bounds, margin_m=0.0):
        centreline = lanes.centrelines[lane].astype(np.float64)
        _, offset, segment = project(centre, centreline)
        if abs(offset[0]) < best:
            best, heading = abs(float(offset[0])), float(directions(centreline)[segment[0]])
    return heading


def zebra(crosswalk: Any, *, driving_rad: float | None = None) -> Any:
    """The painted stripes of a crosswalk polygon: they run the way of the traffic, else across the longer axis."""
    corners = np.asarray(shapely.minimum_rotated_rectangle(crosswalk).exterior.coords)[:4]
    first, second = corners[1] - corners[0], corners[2] - corners[1]
    if driving_rad is None:
        turned = np.linalg.norm(first) < np.linalg.norm(second)
    else:
        driving = np.array([np.cos(driving_rad), np.sin(driving_rad)])
        turned = abs(first @ driving) / np.linalg.norm(first) > abs(second @ driving) / np.linalg.norm(second)
    if turned:
        corners = np.roll(corners, -1, axis=0)
    start, along, across = corners[0], corners[1] - corners[0], corners[3] - corners[0]
    length = float(np.linalg.norm(along))
    count = max(1, int(length / ZEBRA_PERIOD_M))
    period = length / count
    unit = along / max(length, 1e-9)
    stripes = []
    for index in range(count):
        begin = start + unit * (index + 0.5) * period - unit * ZEBRA_STRIPE_M / 2
        end = begin + unit * ZEBRA_STRIPE_M
        stripes.append(shapely.Polygon([begin, end, end + across, begin + across]))
    return shapely.union_all(shapely.intersection(np.array(stripes), crosswalk))


def _draw_paint(axes: Axes, features: MapFeatures, style: Style) -> None:
    width = width_pt(axes, style.paint_width_m, least_pt=0.7)
    painted: dict[str, list[Points]] = {style.white_paint: [], style.yellow_paint: []}
    for index in near(features.road_lines, shown_bounds_m(axes)):
        kind = LineType(int(features.road_line_types[index]))
        colour = style.yellow_paint if kind in _YELLOW else style.white_paint
        painted[colour] += _painted_pieces(features.road_lines[index], kind, style)
    for colour, lines in painted.items():
        stroke(axes, lines, colour=colour, width=width, layer=Layer.MARKINGS)


def _painted_pieces(points_m: Points, kind: LineType, style: Style) -> list[Points]:
    def broken(line: Points) -> list[Points]:
        return dashes(line, dash_m=style.dash_m, gap_m=style.dash_gap_m)

    if kind not in _DOUBLE:
        return broken(points_m) if kind in _BROKEN else [points_m]
    left, right = beside(points_m, DOUBLE_LINE_OFFSET_M), beside(points_m, -DOUBLE_LINE_OFFSET_M)
    if kind == LineType.PASSING_DOUBLE_YELLOW:
        return [left, *broken(right)]
    return [*broken(left), *broken(right)] if kind in _BROKEN else [left, right]


def _draw_edges(axes: Axes, features: MapFeatures, style: Style) -> None:
    shown = near(features.road_edges, shown_bounds_m(axes))
    width = width_pt(axes, style.edge_width_m, least_pt=0.8)
    medians = [index for index in shown if features.road_edge_types[index] == EdgeType.MEDIAN]
    others = [index for index in shown if features.road_edge_types[index] != EdgeType.MEDIAN]
    for chosen, colour in ((others, style.road_edge), (medians, style.median)):
        lines = [features.road_edges[index] for index in chosen]
        stroke(axes, lines, colour=colour, width=width, layer=Layer.EDGES, cap="round")


def _draw_stop_signs(axes: Axes, features: MapFeatures, style: Style) -> None:
    position = features.stop_signs.position_m
    if len(position) == 0:
        return
    size = width_pt(axes, 2.8, least_pt=7.0)
    octagon = MarkerStyle(Outline.unit_regular_polygon(8).transformed(Affine2D().rotate_deg(22.5)))
    for scale, colour in ((1.0, style.stop_sign), (0.82, "white"), (0.66, style.stop_sign)):
        axes.scatter(
            position[:, 0], position[:, 1], s=(size * scale) ** 2, marker=octagon, color=colour,
            linewidths=0, zorder=Layer.SIGNALS,
        )  # fmt: skip


def draw_route(axes: Axes, scene: Scene, *, style: Style | None = None) -> None:
    """Tints the lanes of the ego's route, where the scene has one."""
    style = style or Style()
    if scene.route is None:
        return
    lanes = scene.map.lanes
    shown = set(near(lanes.centrelines, shown_bounds_m(axes)))
    chosen = [int(lane) for lane in np.unique(scene.route.lanes) if int(lane) in shown]
    fill(axes, _lane_area(lanes, chosen, style), colour=style.route, layer=Layer.ROUTE, alpha=ROUTE_ALPHA)
