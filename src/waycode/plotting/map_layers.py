"""Map layers: roads, paint, crosswalks, signs, the route and traffic lights."""

from collections import defaultdict
from typing import Any

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from waycode.plotting.shapes import (
    Polyline,
    dashes,
    fill,
    indices_in_bounds,
    offset_polyline,
    polygons_in_bounds,
    stroke,
)
from waycode.plotting.style import DEFAULT_STYLE, Layer, Style
from waycode.plotting.viewport import line_width_pt, points_per_metre, shown_bounds_m
from waycode.scene import EdgeType, Lanes, LaneType, LineType, MapFeatures, Scene, SignalState
from waycode.scene.frames import wrap_angle
from waycode.scene.geometry import directions, interpolate, project

ROUTE_ALPHA = 0.36  # opacity of the route
_DOUBLE_LINE_OFFSET_M = 0.17  # from the middle to each of two lines
_EDGE_GAP_M = 5.0  # widest gap between a lane of unknown width and the road edge that is drawn as road
_MAX_LEFTOVER_M2 = 400.0  # larger holes in the road are never filled
_ZEBRA_PERIOD_M, _ZEBRA_STRIPE_M = 1.1, 0.55  # from stripe to stripe, width of a stripe
_CROSSING_LANE_M = 10.0  # a lane farther from a crosswalk's centre does not cross it
_MAX_ZEBRA_M = 9.0  # a wider crosswalk polygon is a pedestrian area, drawn without stripes
_SAME_PLACE_M = 0.5  # signals nearer to each other than this share a bar
_YELLOW = {kind for kind in LineType if "YELLOW" in kind.name}
_BROKEN = {kind for kind in LineType if "BROKEN" in kind.name}
_DOUBLE = {kind for kind in LineType if "DOUBLE" in kind.name}


def draw_map(axes: Axes, scene: Scene, *, style: Style = DEFAULT_STYLE) -> None:
    """Draws the static map within the limits of the axes; set them first."""
    features = scene.map
    bounds = shown_bounds_m(axes)
    for driveway in polygons_in_bounds(features.driveways, bounds):
        fill(axes, driveway, colour=style.driveway, layer=Layer.DRIVEWAYS)
    _draw_road(axes, features, style)
    _draw_crosswalks(axes, features, style)
    for bump in polygons_in_bounds(features.speed_bumps, bounds):
        fill(axes, bump, colour=style.speed_bump, layer=Layer.CROSSWALKS, alpha=0.4)
    _draw_paint(axes, features, style)
    edges = indices_in_bounds(features.road_edges, bounds)
    for is_median, colour in ((False, style.road_edge), (True, style.median)):
        chosen = [edge for edge in edges if (features.road_edge_types[edge] == EdgeType.MEDIAN) == is_median]
        width = line_width_pt(axes, style.edge_width_m, least_pt=0.8)
        lines = [features.road_edges[edge] for edge in chosen]
        stroke(axes, lines, colour=colour, width=width, layer=Layer.EDGES, cap="round")
    _draw_stop_signs(axes, features, style)


def draw_route(axes: Axes, scene: Scene, *, style: Style = DEFAULT_STYLE) -> None:
    """Tints the lanes of the ego's route; draws nothing if the scene has no route."""
    if scene.route is None:
        return
    lanes = scene.map.lanes
    shown = set(indices_in_bounds(lanes.centrelines, shown_bounds_m(axes)))
    chosen = [int(lane) for lane in np.unique(scene.route.lanes) if int(lane) in shown]
    fill(axes, _lane_area(lanes, chosen, style), colour=style.route, layer=Layer.ROUTE, alpha=ROUTE_ALPHA)


def draw_signals(axes: Axes, scene: Scene, *, step: int | None = None, style: Style = DEFAULT_STYLE) -> None:
    """Draws each traffic light as a bar across its lane, in the colour of its state at a step (None: current).

    Signals at the same place whose colours differ share the bar, sorted from the left turn to the right turn.
    """
    step = scene.current_step if step is None else step
    signals = scene.signals
    thickness = line_width_pt(axes, 0.7, least_pt=2.2)
    casing = thickness + max(1.2, 0.25 * points_per_metre(axes))
    groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (x, y) in enumerate(np.round(signals.stop_point_m / _SAME_PLACE_M).astype(int).tolist()):
        groups[x, y].append(index)
    for group in groups.values():
        bar = _signal_bar(scene, group[0], style)
        stroke(axes, [bar], colour=style.ink, width=casing, layer=Layer.SIGNALS, cap="round")
        group.sort(key=lambda index: -_leftward_turn_rad(scene, index))
        states = [signals.states[index, step] if signals.valid[index, step] else SignalState.UNKNOWN for index in group]
        colours = list(dict.fromkeys(style.signals[SignalState(int(state))] for state in states))
        ends = np.linspace(bar[0], bar[1], len(colours) + 1)
        for position, colour in enumerate(colours):
            piece = ends[position : position + 2]
            stroke(axes, [piece], colour=colour, width=thickness, layer=Layer.SIGNALS, cap="round")


def _leftward_turn_rad(scene: Scene, signal: int) -> float:
    """Heading change of the signalled lane, left positive."""
    heading = directions(scene.map.lanes.centrelines[int(scene.signals.lanes[signal])])
    return float(wrap_angle(np.asarray(heading[-1] - heading[0], np.float64)))


def _signal_bar(scene: Scene, signal: int, style: Style) -> Polyline:
    """A line from left to right across the lane, at the projection of the signal's stop point."""
    lane = int(scene.signals.lanes[signal])
    centreline = scene.map.lanes.centrelines[lane].astype(np.float64)
    half_m = max(0.8, _lane_width_m(scene.map.lanes, lane, style) / 2 - 0.55)
    along, _, segment = project(scene.signals.stop_point_m[signal][None].astype(np.float64), centreline)
    heading = directions(centreline)[segment[0]]
    normal = np.array([-np.sin(heading), np.cos(heading)])
    middle = interpolate(centreline, along)[0]
    return np.stack([middle + half_m * normal, middle - half_m * normal])


def _draw_road(axes: Axes, features: MapFeatures, style: Style) -> None:
    bounds = shown_bounds_m(axes)
    lanes = features.lanes
    shown = indices_in_bounds(lanes.centrelines, bounds)
    bikes = [lane for lane in shown if lanes.types[lane] == LaneType.BIKE and not lanes.in_junction[lane]]
    roads = [lane for lane in shown if lane not in bikes]
    area = _lane_area(lanes, roads, style)
    if len(roads) and not lanes.width_known[roads].all():
        edges = [features.road_edges[index] for index in indices_in_bounds(features.road_edges, bounds)]
        area = _widened_to_edges(area, edges)
    areas = polygons_in_bounds(features.drivable_areas, bounds)
    fill(axes, shapely.union_all([area, *areas]), colour=style.asphalt, layer=Layer.ROAD)
    fill(axes, _lane_area(lanes, bikes, style), colour=style.bike_lane, layer=Layer.ROAD)


def _widened_to_edges(area: Any, edges: list[Polyline]) -> Any:
    """Grows the area of lanes of unknown width over the gaps up to the road edges, but not beyond them."""
    if not edges:
        return area
    curbs = shapely.union_all([shapely.LineString(edge).buffer(0.05, cap_style="flat") for edge in edges])
    closed = shapely.union(area, curbs).buffer(_EDGE_GAP_M / 2).buffer(-_EDGE_GAP_M / 2)
    pieces = shapely.get_parts(shapely.difference(closed, curbs))
    on_road = shapely.area(shapely.intersection(pieces, area)) > 0.25 * shapely.area(pieces)  # else: beyond the edge
    road = shapely.union_all([*pieces[on_road], area]).buffer(0.06)
    parts = [part for part in shapely.get_parts(road) if part.geom_type == "Polygon"]
    holes = [shapely.Polygon(ring) for part in parts for ring in part.interiors]
    return shapely.union_all([road, *(hole for hole in holes if _is_leftover(hole, curbs))])


def _is_leftover(hole: Any, curbs: Any) -> bool:
    """Whether a hole in the road is a gap that remained, and not a traffic island with a curb around it."""
    bounded = hole.exterior.intersection(curbs.buffer(0.2)).length / hole.exterior.length
    return bool(hole.area < _MAX_LEFTOVER_M2 and bounded < 0.6)


def _lane_area(lanes: Lanes, chosen: list[int], style: Style) -> Any:
    """The union of the lanes' areas: drawn one by one, overlapping transparent lanes would look darker."""
    ribbons = [
        shapely.LineString(lanes.centrelines[lane]).buffer(_lane_width_m(lanes, lane, style) / 2, cap_style="flat")
        for lane in chosen
    ]
    # Close the small gaps between ribbons (between directions, at the seams of curves): they are asphalt too.
    return shapely.union_all(ribbons).buffer(0.8, join_style="mitre").buffer(-0.8, join_style="mitre")


def _lane_width_m(lanes: Lanes, lane: int, style: Style) -> float:
    if lanes.width_known[lane]:
        return float(lanes.width_m[lane])
    return 1.6 if lanes.types[lane] == LaneType.BIKE else style.assumed_lane_width_m


def _draw_crosswalks(axes: Axes, features: MapFeatures, style: Style) -> None:
    for polygon in polygons_in_bounds(features.crosswalks, shown_bounds_m(axes)):
        corners = np.asarray(shapely.minimum_rotated_rectangle(polygon).exterior.coords)[:3]
        if np.linalg.norm(np.diff(corners, axis=0), axis=1).min() > _MAX_ZEBRA_M:
            fill(axes, polygon, colour=style.white_paint, layer=Layer.CROSSWALKS, alpha=0.35)
            continue
        # A crosswalk may reach beyond the lanes; white stripes need asphalt under them to be seen.
        fill(axes, polygon.buffer(0.3, join_style="mitre"), colour=style.asphalt, layer=Layer.ROAD)
        stripes = zebra_stripes(polygon, driving_rad=_driving_rad(features.lanes, polygon))
        fill(axes, stripes, colour=style.white_paint, layer=Layer.CROSSWALKS, alpha=0.92)


def _driving_rad(lanes: Lanes, crosswalk: Any) -> float | None:
    """Heading of the lane that passes nearest to the centre of a crosswalk; None if there is none."""
    best, heading = _CROSSING_LANE_M, None
    centre = np.asarray(crosswalk.centroid.coords)
    for lane in indices_in_bounds(lanes.centrelines, crosswalk.bounds, margin_m=0.0):
        centreline = lanes.centrelines[lane].astype(np.float64)
        _, offset, segment = project(centre, centreline)
        if abs(offset[0]) < best:
            best, heading = abs(float(offset[0])), float(directions(centreline)[segment[0]])
    return heading


def zebra_stripes(crosswalk: Any, *, driving_rad: float | None = None) -> Any:
    """The stripes of a crosswalk polygon, parallel to the traffic.

    Args:
        crosswalk: A shapely polygon.
        driving_rad: Heading of the traffic. None: the stripes run across the longer side.
    """
    corners = np.asarray(shapely.minimum_rotated_rectangle(crosswalk).exterior.coords)[:4]
    first, second = corners[1] - corners[0], corners[2] - corners[1]
    if driving_rad is None:
        starts_at_second = np.linalg.norm(first) < np.linalg.norm(second)
    else:
        driving = np.array([np.cos(driving_rad), np.sin(driving_rad)])
        starts_at_second = abs(first @ driving) / np.linalg.norm(first) > abs(second @ driving) / np.linalg.norm(second)
    if starts_at_second:
        corners = np.roll(corners, -1, axis=0)
    start, along, across = corners[0], corners[1] - corners[0], corners[3] - corners[0]
    length = float(np.linalg.norm(along))
    count = max(1, int(length / _ZEBRA_PERIOD_M))
    period = length / count
    unit = along / max(length, 1e-9)
    stripes = []
    for index in range(count):
        begin = start + unit * (index + 0.5) * period - unit * _ZEBRA_STRIPE_M / 2
        end = begin + unit * _ZEBRA_STRIPE_M
        stripes.append(shapely.Polygon([begin, end, end + across, begin + across]))
    return shapely.union_all(shapely.intersection(np.array(stripes), crosswalk))


def _draw_paint(axes: Axes, features: MapFeatures, style: Style) -> None:
    width = line_width_pt(axes, style.paint_width_m, least_pt=0.7)
    painted: dict[str, list[Polyline]] = {style.white_paint: [], style.yellow_paint: []}
    for index in indices_in_bounds(features.road_lines, shown_bounds_m(axes)):
        kind = LineType(int(features.road_line_types[index]))
        colour = style.yellow_paint if kind in _YELLOW else style.white_paint
        painted[colour] += _painted_pieces(features.road_lines[index], kind, style)
    for colour, lines in painted.items():
        stroke(axes, lines, colour=colour, width=width, layer=Layer.MARKINGS)


def _painted_pieces(points_m: Polyline, kind: LineType, style: Style) -> list[Polyline]:
    """The lines and dashes of a road line; double lines run beside its points."""

    def broken(line: Polyline) -> list[Polyline]:
        return dashes(line, dash_m=style.dash_m, gap_m=style.dash_gap_m)

    if kind not in _DOUBLE:
        return broken(points_m) if kind in _BROKEN else [points_m]
    left, right = (offset_polyline(points_m, sign * _DOUBLE_LINE_OFFSET_M) for sign in (1, -1))
    if kind == LineType.PASSING_DOUBLE_YELLOW:
        return [left, *broken(right)]
    return [*broken(left), *broken(right)] if kind in _BROKEN else [left, right]


def _draw_stop_signs(axes: Axes, features: MapFeatures, style: Style) -> None:
    position = features.stop_signs.position_m
    if len(position) == 0:
        return
    size = line_width_pt(axes, 2.8, least_pt=7.0)
    octagon = MarkerStyle(Outline.unit_regular_polygon(8).transformed(Affine2D().rotate_deg(22.5)))
    for scale, colour in ((1.0, style.stop_sign), (0.82, "white"), (0.66, style.stop_sign)):
        axes.scatter(
            position[:, 0], position[:, 1], s=(size * scale) ** 2, marker=octagon, color=colour,
            linewidths=0, zorder=Layer.SIGNALS,
        )  # fmt: skip
