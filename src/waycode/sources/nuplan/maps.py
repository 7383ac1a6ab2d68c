"""Reads city maps from nuPlan's GeoPackages, in metres.

Layers are stored in degrees. Layer `meta` names the city's UTM zone (`projectedCoordSystem`), which the logs use.
Layers refer to each other's rows by `fid`. A lane connector continues lane `exit_lane_fid` and leads to lane
`entry_lane_fid`. The lanes of a group are numbered (`lane_index`) from left to right.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import shapely

from waycode.dataset.files import describe, parse_json
from waycode.scene import LaneType
from waycode.sources.base import SourceError, reading

VERSIONS_FILE = "nuplan-maps-v1.0.json"
_STOP_SIGN = 1  # of stop_polygon_type_fid: 0 crossing, 1 stop sign, 2 traffic light, 3 turn stop, 4 yield
_LANE_TYPES = {0: LaneType.STREET, 1: LaneType.BIKE}  # of lane_type_fid
_CACHED_CITIES = 4  # nuPlan has four cities: each worker reads a map at most once

_SQLITE_MAGIC = b"SQLite format 3\0"
_SPATIAL_INDEX = re.compile(r"\s*create\s+virtual\s+table\s+[\"'\w]+\s+using\s+\"?rtree\"?\s*\(", re.IGNORECASE)

_LAYERS: Mapping[str, tuple[str, ...]] = {
    "baseline_paths": ("lane_fid", "lane_connector_fid"),
    "lanes_polygons": (
        "lane_group_fid", "lane_index", "lane_type_fid", "left_boundary_fid", "right_boundary_fid", "speed_limit_mps",
    ),
    "lane_connectors": ("exit_lane_fid", "entry_lane_fid", "lane_group_connector_fid", "speed_limit_mps"),
    "boundaries": ("boundary_type_fid",),
    "stop_polygons": ("stop_polygon_type_fid",),
    "crosswalks": (),
    "road_segments": (),
    "intersections": (),
}  # fmt: skip
_OPTIONAL_LAYERS: Mapping[str, tuple[str, ...]] = {
    "generic_drivable_areas": (),
    "carpark_areas": (),
    "speed_bumps": (),
    "gen_lane_connectors_scaled_width_polygons": ("lane_connector_fid", "left_boundary_fid", "right_boundary_fid"),
}
_OPTIONAL_COLUMNS: Mapping[str, tuple[str, ...]] = {"stop_polygons": ("lane_fids", "lane_connector_fids")}
_DRIVABLE_LAYERS = ("road_segments", "intersections", "generic_drivable_areas", "carpark_areas")


LaneKey = tuple[bool, int]  # whether it is a connector, and its fid: lanes and connectors are numbered separately


@dataclass(frozen=True, kw_only=True)
class MapLane:
    """A lane or a lane connector. References are fids; None where the map has no value."""

    fid: int  # unique among lanes, and among connectors
    is_connector: bool
    baseline: Any  # shapely LineString, in driving direction
    group: int | None  # lane group ("roadblock") or lane group connector
    index: int | None = None  # within the group, from left to right; connectors have none
    type: LaneType = LaneType.STREET
    speed_limit_mps: float | None
    left_boundary: int | None = None  # fid of the line to the left
    right_boundary: int | None = None  # fid of the line to the right
    predecessor: int | None = None  # of a connector: the lane before it
    successor: int | None = None  # of a connector: the lane after it

    @property
    def key(self) -> LaneKey:
        return (self.is_connector, self.fid)


@dataclass(frozen=True)
class MapStopSign:
    """An area to stop in, and the fids of what it applies to; if both are empty, all lanes through the area."""

    polygon: Any  # shapely Polygon
    lanes: tuple[int, ...]
    connectors: tuple[int, ...]


class SpatialIndex:
    """Items with shapes, to be looked up by region."""

    def __init__(self, items: Sequence[Any], shapes: Sequence[Any]):
        self.items = list(items)
        self._tree = shapely.STRtree(list(shapes))

    def within(self, region: Any) -> list[Any]:
        """The items whose shapes intersect the region, in their original order."""
        return [self.items[i] for i in sorted(self._tree.query(region, predicate="intersects").tolist())]


@dataclass(frozen=True, kw_only=True)
class CityMap:
    """The map of a city, or of a part of it, in world coordinates."""

    lanes: SpatialIndex  # MapLane
    boundaries: Mapping[int, tuple[Any, int]]  # by fid: line, boundary_type_fid
    drivable: SpatialIndex  # polygons
    crosswalks: SpatialIndex  # polygons
    speed_bumps: SpatialIndex  # polygons
    stop_signs: SpatialIndex  # MapStopSign
    roadblocks: Mapping[int, tuple[MapLane, ...]]  # lanes by group, lane connectors by group connector

    @staticmethod
    def of(
        lanes: Sequence[MapLane],
        boundaries: Mapping[int, tuple[Any, int]],
        *,
        drivable: Sequence[Any],
        crosswalks: Sequence[Any] = (),
        speed_bumps: Sequence[Any] = (),
        stop_signs: Sequence[MapStopSign] = (),
    ) -> "CityMap":
        """Builds a map of lanes (connectors included), boundary lines by fid, and polygons."""
        return CityMap(
            lanes=SpatialIndex(lanes, [lane.baseline for lane in lanes]),
            boundaries=boundaries,
            drivable=SpatialIndex(drivable, drivable),
            crosswalks=SpatialIndex(crosswalks, crosswalks),
            speed_bumps=SpatialIndex(speed_bumps, speed_bumps),
            stop_signs=SpatialIndex(stop_signs, [sign.polygon for sign in stop_signs]),
            roadblocks={
                **_groups(lane for lane in lanes if lane.is_connector),
                **_groups(lane for lane in lanes if not lane.is_connector),
            },
        )


def map_file(maps_root: Path, names: Sequence[str], log: Path) -> Path:
    """Finds the GeoPackage <maps_root>/<name>/<version>/map.gpkg.

    Args:
        maps_root: folder of all maps.
        names: candidates for the name of the city's folder, best first.
        log: the log that needs the map, for the error message.
    """
    if not maps_root.is_dir():
        raise SourceError(f"{maps_root} does not exist: expected nuPlan's maps, <location>/<version>/map.gpkg")
    there = sorted(path.name for path in maps_root.iterdir() if path.is_dir())
    name = next((name for name in names if name in there), None)
    if name is None:
        raise SourceError(
            f"{log} needs {maps_root}/{names[0] if names else '<location>'}/<version>/map.gpkg; {maps_root} has "
            f"{', '.join(there) or 'no folders'}"
        )
    files = sorted((maps_root / name).glob("*/map.gpkg"))
    if len(files) > 1:
        files = [file for file in files if file.parent.name == _version(maps_root, name)]
    if len(files) != 1:
        raise SourceError(
            f"{maps_root / name} has {len(files)} files <version>/map.gpkg that could be meant, expected one, or "
            f"{maps_root / VERSIONS_FILE} to name the version"
        )
    return files[0]


def _version(maps_root: Path, name: str) -> str | None:
    """The version of a city's map by the list in the maps folder."""
    try:
        listed = parse_json((maps_root / VERSIONS_FILE).read_bytes())
        return str(listed[name]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@lru_cache(maxsize=_CACHED_CITIES)
def city_map(file: str) -> CityMap:
    """Reads a map. Each process caches the last few."""
    with reading(file):
        return _city_map(file)


def _city_map(file: str) -> CityMap:
    layers = _read_layers(file)
    lanes = [*_lanes(layers), *_connectors(layers)]
    if not lanes:
        raise SourceError(f"{file} has no lanes with a baseline")
    bounds = layers["boundaries"]
    return CityMap.of(
        lanes,
        {
            int(fid): (line, -1 if (kind := _number(raw)) is None else kind)
            for fid, line, raw in zip(bounds.index, bounds["geometry"], bounds["boundary_type_fid"], strict=True)
        },
        drivable=[shape for name in _DRIVABLE_LAYERS if name in layers for shape in layers[name]["geometry"]],
        crosswalks=list(layers["crosswalks"]["geometry"]),
        speed_bumps=list(layers["speed_bumps"]["geometry"]) if "speed_bumps" in layers else [],
        stop_signs=list(_stop_signs(layers["stop_polygons"])),
    )


def _read_layers(file: str) -> dict[str, Any]:
    """Layers as tables indexed by fid, in the city's UTM zone."""
    try:
        import geopandas  # noqa: F401 (pyogrio returns its tables)
        import pyogrio
    except ImportError as error:
        raise SourceError("nuPlan's maps need geopandas and pyogrio: pip install 'waycode[nuplan]'") from error
    _check_geopackage(Path(file))
    try:
        present = set(pyogrio.list_layers(file)[:, 0])
        missing = [name for name in ("meta", *_LAYERS) if name not in present]
        if missing:
            raise SourceError(f"{file} has no layer {', '.join(missing)}; it has {', '.join(sorted(present))}")
        meta = pyogrio.read_dataframe(file, layer="meta")
        systems = meta["value"][meta["key"] == "projectedCoordSystem"]
        if len(systems) != 1:
            raise SourceError(
                f"{file}: layer meta does not name one projectedCoordSystem; its keys are {list(meta['key'])}"
            )
        wanted = {**_LAYERS, **{name: columns for name, columns in _OPTIONAL_LAYERS.items() if name in present}}
        return {name: _read_layer(file, name, columns, systems.iloc[0]) for name, columns in wanted.items()}
    except SourceError:
        raise
    except Exception as error:  # of GDAL, PROJ, GEOS and pandas
        raise SourceError(f"{file} cannot be read as a nuPlan map ({describe(error)})") from error


def _check_geopackage(file: Path) -> None:
    """Raises `SourceError` unless the file is an SQLite file that GDAL takes for a GeoPackage.

    GDAL takes a file for what it contains, whatever its name: a few lines of text under this name could make it open
    other files or addresses. Only its driver for GeoPackages, which reads nothing but the file itself, may get it.
    """
    import pyogrio

    with file.open("rb") as content:
        header = content.read(len(_SQLITE_MAGIC))
    if header != _SQLITE_MAGIC:
        raise SourceError(f"{file} cannot be read as a nuPlan map: expected a GeoPackage, which is an SQLite file")
    _check_schema(file)
    driver = pyogrio.read_info(file, layer=0)["driver"] if len(pyogrio.list_layers(file)) else "GPKG"
    if driver != "GPKG":
        raise SourceError(f"{file} cannot be read as a nuPlan map: GDAL takes it for {driver}, expected GPKG")


def _check_schema(file: Path) -> None:
    """Raises `SourceError` for views, and for virtual tables other than the spatial indices of GeoPackages.

    GDAL's SQLite has modules whose virtual tables are other files, such as VirtualText, and functions that open
    addresses, which a view can call. Python's SQLite, which looks here, has neither.
    """
    with closing(sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT type, name, rootpage, sql FROM sqlite_master").fetchall()
    for kind, name, root_page, sql in rows:
        statement = re.sub(r"/\*.*?\*/|--[^\n]*", " ", str(sql), flags=re.DOTALL)
        is_virtual = kind == "table" and (not root_page or re.match(r"\s*create\s+virtual\b", statement, re.IGNORECASE))
        if kind == "view" or (is_virtual and not _SPATIAL_INDEX.match(statement)):
            what = f"{str(name)!r:.60} is a {'view' if kind == 'view' else 'virtual table'}"
            raise SourceError(
                f"{file} cannot be read as a nuPlan map: {what}, expected tables and spatial indices alone"
            )


def _read_layer(file: str, layer: str, columns: Sequence[str], system: str) -> Any:
    import pyogrio

    present = list(pyogrio.read_info(file, layer=layer)["fields"])
    missing = [column for column in columns if column not in present]
    if missing:
        raise SourceError(f"{file}: layer {layer} has no column {', '.join(missing)}; it has {', '.join(present)}")
    used = [*columns, *(column for column in _OPTIONAL_COLUMNS.get(layer, ()) if column in present)]
    table = pyogrio.read_dataframe(file, layer=layer, columns=used, fid_as_index=True, force_2d=True)
    if table.crs is None:
        raise SourceError(f"{file}: layer {layer} does not say in which coordinates it is stored")
    table = table[table["geometry"].notna() & ~table["geometry"].is_empty]
    with reading(f"layer {layer}"):
        return table.to_crs(system)


def _lanes(layers: Mapping[str, Any]) -> Iterator[MapLane]:
    baselines = _baselines(layers["baseline_paths"], "lane_fid")
    for row in layers["lanes_polygons"].itertuples():
        if int(row.Index) in baselines:
            kind = _number(row.lane_type_fid)
            yield MapLane(
                fid=int(row.Index),
                is_connector=False,
                baseline=baselines[int(row.Index)],
                group=_number(row.lane_group_fid),
                index=_number(row.lane_index),
                type=LaneType.UNKNOWN if kind is None else _LANE_TYPES.get(kind, LaneType.UNKNOWN),
                speed_limit_mps=_speed(row.speed_limit_mps),
                left_boundary=_number(row.left_boundary_fid),
                right_boundary=_number(row.right_boundary_fid),
            )


def _connectors(layers: Mapping[str, Any]) -> Iterator[MapLane]:
    baselines = _baselines(layers["baseline_paths"], "lane_connector_fid")
    polygons = layers.get("gen_lane_connectors_scaled_width_polygons")
    sides = {} if polygons is None else {_number(row.lane_connector_fid): row for row in polygons.itertuples()}
    for row in layers["lane_connectors"].itertuples():
        if int(row.Index) in baselines:
            side = sides.get(int(row.Index))
            yield MapLane(
                fid=int(row.Index),
                is_connector=True,
                baseline=baselines[int(row.Index)],
                group=_number(row.lane_group_connector_fid),
                speed_limit_mps=_speed(row.speed_limit_mps),
                left_boundary=None if side is None else _number(side.left_boundary_fid),
                right_boundary=None if side is None else _number(side.right_boundary_fid),
                predecessor=_number(row.exit_lane_fid),
                successor=_number(row.entry_lane_fid),
            )


def _baselines(paths: Any, column: str) -> dict[int, Any]:
    """The centreline of each lane (or connector). If a row has several pieces, the longest is used."""
    lines = {}
    for owner, shape in zip(paths[column], paths["geometry"], strict=True):
        fid = _number(owner)
        if fid is not None and shape.length > 0:
            lines[fid] = max(shapely.get_parts(shape), key=lambda part: float(part.length))
    return lines


def _stop_signs(polygons: Any) -> Iterator[MapStopSign]:
    for row in polygons.itertuples():
        if _number(row.stop_polygon_type_fid) == _STOP_SIGN:
            named = (_numbers(getattr(row, column, "")) for column in _OPTIONAL_COLUMNS["stop_polygons"])
            yield MapStopSign(row.geometry, *named)


def _groups(lanes: Iterator[MapLane]) -> dict[int, tuple[MapLane, ...]]:
    groups: dict[int, tuple[MapLane, ...]] = {}
    for lane in lanes:
        if lane.group is not None:
            groups[lane.group] = (*groups.get(lane.group, ()), lane)
    return groups


def _number(value: Any) -> int | None:
    """An integer, None if missing. Integer columns with gaps are read as floats with NaN, or as text."""
    if value is None or value == "" or value != value:
        return None
    return int(float(value))


def _numbers(text: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)) if isinstance(text, str) else ()


def _speed(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) and value > 0 else None
