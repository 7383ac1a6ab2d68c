"""Writes maps of scenes as one nuPlan map (GeoPackage), as nuplan-devkit's readers accept it.

nuPlan's lanes continue each other through lane connectors only. Lanes of a junction become connectors, a row of several
one connector. Where a lane goes directly into another, its last `_JOINT_M` become a connector. A junction lane that no
lane leads to, or that leads to none, as at the border of a cropped map, is written as a lane.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from jaxtyping import Float
from shapely.ops import substring

from waycode.dataset.files import describe, replace_file, temporary_folder
from waycode.scene import Lanes, LaneType, Route, Scene
from waycode.scene.geometry import directions
from waycode.scene.lane_graph import UNKNOWN_LANE_WIDTH_M
from waycode.sources.base import SourceError
from waycode.sources.nuplan.crop import DIVIDER, ROADSIDE
from waycode.sources.nuplan.maps import VERSIONS_FILE

EXPORTED_CITY = "us-nv-las-vegas-strip"  # all scenes lie in this city
CITY_CENTRE_M = np.array([664_430.0, 3_997_650.0])
EPSG = 32611  # of the city's UTM zone
# The devkit opens all four cities' maps, whichever the logs need.
CITIES = {
    EXPORTED_CITY: "9.15.1915",
    "sg-one-north": "9.17.1964",
    "us-ma-boston": "9.12.1817",
    "us-pa-pittsburgh-hazelwood": "9.17.1937",
}
_VIRTUAL = 3  # boundary_type_fid of a line that is not painted
_STOP_SIGN, _TRAFFIC_LIGHT = 1, 2  # stop_polygon_type_fid
_JOINT_M = 0.5
_STOP_RADIUS_M = 1.0  # of the areas to stop in
_CRACK_M = 1e-5  # between lanes: the devkit refuses a point that lies in two, and PDM-Closed one that lies in none
# The devkit looks lanes and connectors, and their groups, up by number alone: no number may be in both layers.
_FIRST_FID = {"lane_connectors": 10**7, "lane_groups_polygons": 2 * 10**7, "lane_group_connectors": 3 * 10**7}

Chain = tuple[int, ...]  # lanes of a scene in a row


@dataclass
class MapLayers:
    """Rows of the map's layers; fids count up in each layer."""

    rows: dict[str, list[tuple[int, Any, dict[str, Any]]]] = field(default_factory=dict)

    def add(self, layer: str, shape: Any, **columns: Any) -> int:
        """Adds a row and returns its fid."""
        rows = self.rows.setdefault(layer, [])
        rows.append((_FIRST_FID.get(layer, 0) + len(rows) + 1, shape, columns))
        return rows[-1][0]


@dataclass(frozen=True, kw_only=True)
class _Connector:
    """A way from a lane to a lane."""

    start: int  # lane of the scene
    end: int
    chain: Chain  # lanes in between; empty where the lanes touch
    line: Any  # shapely LineString in world coordinates
    width_m: float
    speed_limit_mps: float  # NaN if not known

    @property
    def surface(self) -> Any:
        return shapely.buffer(self.line, self.width_m / 2, cap_style="flat", join_style="mitre")


@dataclass(frozen=True)
class ExportedMap:
    """The fids of what a scene's lanes became."""

    groups: dict[int, int] = field(default_factory=dict)  # lane of the scene -> fid of its group
    connectors: dict[tuple[int, Chain, int], int] = field(default_factory=dict)  # lane, chain, lane -> fid
    group_connectors: dict[tuple[int, int], int] = field(default_factory=dict)  # group, group -> fid

    def connectors_of(self, lane: int) -> list[int]:
        """Fids of the connectors that a lane of a junction is a part of."""
        return [fid for (_, chain, _), fid in self.connectors.items() if lane in chain]

    def roadblocks(self, route: Route | None) -> list[int]:
        """A route as fids: groups of lanes, and the group connectors between them."""
        if route is None:
            return []
        sections = [route.lanes[route.sections == number].tolist() for number in range(int(route.sections.max()) + 1)]
        known = [[self.groups[lane] for lane in section if lane in self.groups] for section in sections]
        groups = [block[0] for block in known if block]
        groups = [group for i, group in enumerate(groups) if i == 0 or group != groups[i - 1]]
        blocks: list[int] = []
        for before, after in zip([None, *groups], groups, strict=False):
            if before is not None and (before, after) in self.group_connectors:
                blocks.append(self.group_connectors[before, after])
            blocks.append(after)
        first, last = self._through(sections[0], 1), self._through(sections[-1], 0)
        # A route may begin or end in a junction.
        if not known[0] and groups:
            blocks = [fid for pair, fid in first if pair[1] == groups[0]][:1] + blocks
        if not known[-1] and groups:
            blocks += [fid for pair, fid in last if pair[0] == groups[-1]][:1]
        return blocks

    def _through(self, section: Sequence[int], end: int) -> list[tuple[tuple[int, int], int]]:
        """Group connectors with a chain through a section."""
        pairs = {
            (self.groups[start], self.groups[stop]): None
            for start, chain, stop in self.connectors
            if set(chain) & set(section)
        }
        return [(pair, self.group_connectors[pair]) for pair in pairs if pair[end] is not None]


def add_map(layers: MapLayers, scene: Scene, origin_m: Float[np.ndarray, " 2"]) -> ExportedMap:
    """Adds a scene's map to the layers.

    Args:
        layers: of the city.
        scene: a valid scene.
        origin_m: where its scene frame lies in the city.
    """
    lanes = scene.map.lanes
    through = _connector_lanes(lanes)
    lines = [shapely.LineString(line.astype(np.float64) + origin_m) for line in lanes.centrelines.as_list()]
    connectors = list(_connectors(lanes, lines, through))
    for lane, length_m in {joint.start: joint.line.length for joint in connectors if not joint.chain}.items():
        lines[lane] = substring(lines[lane], 0.0, -length_m)  # the rest is the line of its connectors
    exported = ExportedMap()
    on_route = set() if scene.route is None else set(scene.route.lanes.tolist())
    lane_fids = _add_lanes(layers, lanes, lines, through=through, exported=exported, on_route=on_route)
    drivable = [_polygon(ring, origin_m) for ring in scene.map.drivable_areas.as_list()]
    _add_connectors(layers, connectors, lane_fids, exported=exported, drivable=drivable)
    for area in drivable:
        layers.add("generic_drivable_areas", area)
    for ring in scene.map.crosswalks.as_list():
        layers.add("crosswalks", _polygon(ring, origin_m), is_marked=True)
    for ring in scene.map.speed_bumps.as_list():
        layers.add("speed_bumps", _polygon(ring, origin_m))
    _add_stop_signs(layers, scene, origin_m, lane_fids=lane_fids, exported=exported)
    _add_stop_lines(layers, scene, exported)
    return exported


def _polygon(ring: np.ndarray, origin_m: np.ndarray) -> Any:
    return _largest(shapely.make_valid(shapely.Polygon(ring.astype(np.float64) + origin_m)))


def _largest(shape: Any) -> Any:
    """The largest polygon of a shape."""
    return max(shapely.get_parts(shape), key=lambda part: float(part.area))


def _connector_lanes(lanes: Lanes) -> set[int]:
    """The lanes of junctions that lie between two lanes: those that become connectors, or parts of them."""
    graph = lanes.graph
    through = {lane for lane in range(len(lanes)) if lanes.in_junction[lane]}
    while True:
        covered = {
            piece
            for lane in range(len(lanes))
            if lane not in through
            for chain, _ in _ways(lanes, lane, through)
            for piece in chain
        }
        # What has no lane before or after it becomes a lane, from which others may now lead on.
        left = sorted(through - covered)
        if not left:
            return through
        ends = [lane for lane in left if not len(graph.predecessors[lane]) or not len(graph.successors[lane])]
        through -= set(ends or left)


def _ways(lanes: Lanes, start: int, through: set[int]) -> Iterator[tuple[Chain, int]]:
    """Chains of lanes `through` a junction from a lane, and the lanes after them; an empty chain where they touch."""
    waiting: list[tuple[Chain, int]] = [((), int(after)) for after in lanes.graph.successors[start]]
    while waiting:
        chain, after = waiting.pop()
        if after not in through:
            if after != start:
                yield chain, after
        elif after not in chain:
            waiting += [((*chain, after), int(further)) for further in lanes.graph.successors[after]]


def _connectors(lanes: Lanes, lines: Sequence[Any], through: set[int]) -> Iterator[_Connector]:
    for start in range(len(lanes)):
        for chain, end in _ways(lanes, start, through) if start not in through else ():
            first = chain[0] if chain else start
            limit = float(lanes.speed_limit_mps[first]) if lanes.speed_limit_known[first] else float("nan")
            if chain:
                points = np.concatenate([np.asarray(lines[piece].coords) for piece in chain])
                apart = np.linalg.norm(np.diff(points, axis=0), axis=1)
                line = shapely.LineString(points[np.concatenate([[True], apart > _CRACK_M])])
            else:
                line = substring(lines[start], -min(_JOINT_M, lines[start].length / 2), lines[start].length)
            yield _Connector(
                start=start, end=end, chain=chain, line=line, width_m=_width_m(lanes, first), speed_limit_mps=limit
            )


def _width_m(lanes: Lanes, lane: int) -> float:
    return float(lanes.width_m[lane]) if lanes.width_known[lane] else UNKNOWN_LANE_WIDTH_M


def _side(line: Any, offset_m: float) -> Any:
    """A line beside another, to the left if `offset_m` is positive."""
    points = np.asarray(line.coords)
    heading = directions(points)
    return shapely.LineString(points + offset_m * np.stack([-np.sin(heading), np.cos(heading)], axis=-1))


def _rows_of_lanes(lanes: Lanes, through: set[int]) -> list[list[int]]:
    """Lanes side by side, from left to right. Only mutual neighbours count, so that each has one to each side."""

    def single(relation: np.ndarray) -> dict[int, int]:
        pairs = [(a, b) for a, b in relation.tolist() if a not in through and b not in through]
        return {a: b for a, b in pairs if sum(a == other for other, _ in pairs) == 1}

    left, right = single(lanes.left_neighbours), single(lanes.right_neighbours)
    right = {a: b for a, b in right.items() if left.get(b) == a}
    beside = set(right.values())
    rows = []
    for lane in (lane for lane in range(len(lanes)) if lane not in through and lane not in beside):
        row = [lane]
        while row[-1] in right:
            row.append(right[row[-1]])
        rows.append(row)
    return rows


def _add_lanes(
    layers: MapLayers,
    lanes: Lanes,
    lines: Sequence[Any],
    *,
    through: set[int],
    exported: ExportedMap,
    on_route: set[int],
) -> dict[int, int]:
    """Adds groups of lanes, their boundaries and centrelines; returns the fid of each lane.

    Where lanes overlap, as those that end in a junction at the map's border do, the first one keeps its area: the
    route's lanes come first, so that none of them is cut in two, and lanes of junctions last.
    """

    def rank(row: list[int]) -> int:
        return 0 if on_route.intersection(row) else 1 + int(lanes.in_junction[row[0]])

    fids: dict[int, int] = {}
    taken: list[Any] = []
    for row in sorted(_rows_of_lanes(lanes, through), key=rank):
        polygons = []
        for lane in row:
            strip = shapely.buffer(lines[lane], _width_m(lanes, lane) / 2, cap_style="flat", join_style="mitre")
            others = [other for other in taken if other.intersects(strip)]
            free = shapely.make_valid(strip.difference(shapely.union_all(others))) if others else strip
            polygons.append(_largest(free) if free.area > 0 else lines[lane].buffer(_CRACK_M))
            taken.append(polygons[-1].buffer(_CRACK_M))
        whole = _largest(shapely.union_all([shape.buffer(2 * _CRACK_M) for shape in polygons]))
        group = layers.add("lane_groups_polygons", whole)
        layers.add("road_segments", whole, lane_group_fids=str(group))
        half_m = _width_m(lanes, row[0]) / 2
        left = layers.add("boundaries", _side(lines[row[0]], half_m), boundary_type_fid=ROADSIDE)
        for index, lane in enumerate(row):
            kind = ROADSIDE if index == len(row) - 1 else DIVIDER
            right = layers.add("boundaries", _side(lines[lane], -_width_m(lanes, lane) / 2), boundary_type_fid=kind)
            fid = len(layers.rows.get("lanes_polygons", [])) + 1
            layers.add(
                "lanes_polygons",
                polygons[index],
                lane_group_fid=group,
                lane_fid=fid,
                lane_index=index,
                lane_type_fid=int(lanes.types[lane] == LaneType.BIKE),
                left_boundary_fid=left,
                right_boundary_fid=right,
                speed_limit_mps=float(lanes.speed_limit_mps[lane]) if lanes.speed_limit_known[lane] else np.nan,
            )
            layers.add("baseline_paths", lines[lane], path_type_fid=0, lane_fid=float(fid), lane_connector_fid=np.nan)
            fids[lane], exported.groups[lane], left = fid, group, right
    return fids


def _add_connectors(
    layers: MapLayers,
    connectors: Sequence[_Connector],
    lane_fids: Mapping[int, int],
    *,
    exported: ExportedMap,
    drivable: Sequence[Any],
) -> None:
    groups: dict[tuple[int, int], list[_Connector]] = {}
    for connector in connectors:
        pair = (exported.groups[connector.start], exported.groups[connector.end])
        groups.setdefault(pair, []).append(connector)
    junctions = _intersections([connector.surface for connector in connectors], drivable)
    numbers = [layers.add("intersections", area, intersection_type_fid=1) for area in junctions]
    for (before, after), members in groups.items():
        group = layers.add(
            "lane_group_connectors",
            _largest(shapely.union_all([connector.surface for connector in members])),
            from_lane_group_fid=before,
            to_lane_group_fid=after,
        )
        exported.group_connectors[before, after] = group
        for connector in members:
            inside = [
                number for number, area in zip(numbers, junctions, strict=True) if area.intersects(connector.line)
            ]
            fid = layers.add(
                "lane_connectors",
                connector.line,
                exit_lane_fid=lane_fids[connector.start],
                entry_lane_fid=lane_fids[connector.end],
                exit_lane_group_fid=before,
                entry_lane_group_fid=after,
                lane_group_connector_fid=group,
                intersection_fid=inside[0] if inside else numbers[0],
                traffic_light_stop_line_fids="",
                turn_type_fid=0,
                speed_limit_mps=connector.speed_limit_mps,
            )
            left, right = (
                layers.add(
                    "boundaries", _side(connector.line, sign * connector.width_m / 2), boundary_type_fid=_VIRTUAL
                )
                for sign in (1, -1)
            )
            layers.add(
                "gen_lane_connectors_scaled_width_polygons",
                connector.surface,
                lane_connector_fid=fid,
                left_boundary_fid=left,
                right_boundary_fid=right,
            )
            path = {"path_type_fid": 0, "lane_fid": np.nan, "lane_connector_fid": float(fid)}
            layers.add("baseline_paths", connector.line, **path)
            exported.connectors[connector.start, connector.chain, connector.end] = fid


def _intersections(surfaces: Sequence[Any], drivable: Sequence[Any]) -> list[Any]:
    """The areas of junctions: what connectors cover, without holes, but no more than is drivable."""
    if not surfaces:
        return []
    areas = shapely.union_all(
        [shapely.Polygon(area.exterior) for area in shapely.get_parts(shapely.union_all(surfaces))]
    )
    if drivable:
        areas = shapely.union_all([areas.intersection(shapely.union_all(drivable)), *surfaces])
    return [area for area in shapely.get_parts(areas) if area.geom_type == "Polygon" and area.area > 0]


def _add_stop_signs(
    layers: MapLayers, scene: Scene, origin_m: np.ndarray, *, lane_fids: Mapping[int, int], exported: ExportedMap
) -> None:
    signs = scene.map.stop_signs
    for number, position_m in enumerate(signs.position_m.astype(np.float64) + origin_m):
        controlled = [lane for sign, lane in signs.controls.tolist() if sign == number]
        through = {fid: None for lane in controlled for fid in exported.connectors_of(lane)}
        layers.add(
            "stop_polygons",
            shapely.Point(position_m).buffer(_STOP_RADIUS_M),
            stop_polygon_type_fid=_STOP_SIGN,
            lane_fids=",".join(str(lane_fids[lane]) for lane in controlled if lane in lane_fids),
            lane_connector_fids=",".join(map(str, through)),
        )


def _add_stop_lines(layers: MapLayers, scene: Scene, exported: ExportedMap) -> None:
    """Areas to stop in at the starts of signalled connectors."""
    signalled = {fid for lane in scene.signals.lanes.tolist() for fid in exported.connectors_of(lane)}
    for fid, line, columns in layers.rows.get("lane_connectors", ()):
        if fid in signalled:
            stop = shapely.Point(line.coords[0]).buffer(_STOP_RADIUS_M)
            named = {"lane_fids": "", "lane_connector_fids": str(fid)}
            number = layers.add("stop_polygons", stop, stop_polygon_type_fid=_TRAFFIC_LIGHT, **named)
            columns["traffic_light_stop_line_fids"] = str(number)


def write_maps(layers: MapLayers, maps_root: Path, *, nowhere_m: Float[np.ndarray, " 2"]) -> Path:
    """Writes <maps_root>/<city>/<version>/map.gpkg for nuPlan's four cities, and their list; returns ours.

    Args:
        layers: of the city.
        maps_root: folder of all maps.
        nowhere_m: a place far from all scenes: the devkit refuses empty layers, so a small square lies there.
    """
    stops = {"stop_polygon_type_fid": 0, "lane_fids": "", "lane_connector_fids": ""}
    never_empty: dict[str, dict[str, Any]] = {
        "carpark_areas": {"heading": 0.0}, "walkways": {}, "speed_bumps": {}, "crosswalks": {"is_marked": True},
        "stop_polygons": stops, "generic_drivable_areas": {},
    }  # fmt: skip
    for name, columns in never_empty.items():
        layers.add(name, shapely.box(*nowhere_m, *(nowhere_m + 5)), **columns)
    file = maps_root / EXPORTED_CITY / CITIES[EXPORTED_CITY] / "map.gpkg"
    for city, version in CITIES.items():
        (maps_root / city / version).mkdir(parents=True, exist_ok=True)
    with temporary_folder("waycode-nuplan-") as folder:
        whole = folder / "map.gpkg"  # GDAL goes by the ending of the name
        try:
            _write_geopackage(layers, whole)
        except RuntimeError as error:  # GDAL's, where the disk is full
            raise SourceError(f"{file} could not be written ({describe(error)}): no part of it was left") from error
        replace_file(file, lambda temporary: shutil.copyfile(whole, temporary))
    for city, version in CITIES.items():
        if city != EXPORTED_CITY:
            replace_file(maps_root / city / version / "map.gpkg", lambda temporary: shutil.copyfile(file, temporary))
    versions = json.dumps({city: {"version": version, "layers": {}} for city, version in CITIES.items()})
    replace_file(maps_root / VERSIONS_FILE, lambda temporary: temporary.write_text(versions))
    return file


def _write_geopackage(layers: MapLayers, file: Path) -> None:
    try:
        import geopandas
        import pandas
        import pyogrio
    except ImportError as error:
        raise SourceError("nuPlan's maps need geopandas and pyogrio: pip install 'waycode[nuplan]'") from error
    pyogrio.set_gdal_config_options({"OGR_SQLITE_SYNCHRONOUS": "OFF"})
    written = False
    for name, rows in layers.rows.items():
        columns = pandas.DataFrame([values for _, _, values in rows])
        table = {"fid": [fid for fid, _, _ in rows], **{column: columns[column] for column in columns.columns}}
        frame = geopandas.GeoDataFrame(table, geometry=[shape for _, shape, _ in rows], crs=f"epsg:{EPSG}")
        options = {"FID": "fid", "GEOMETRY_NAME": "geom"}
        pyogrio.write_dataframe(
            frame.to_crs("epsg:4326"), file, layer=name, driver="GPKG", append=written, layer_options=options
        )
        written = True
    systems = {"key": ["geographicCoordSystem", "projectedCoordSystem"], "value": ["epsg:4326", f"epsg:{EPSG}"]}
    pyogrio.write_dataframe(pandas.DataFrame(systems), file, layer="meta", driver="GPKG", append=True)
