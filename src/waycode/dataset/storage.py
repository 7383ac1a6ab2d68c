"""The Parquet form of scenes: one row per scene, one row group per row, so that each scene can be read alone.

Each field of `Scene` is a column named by its path (`tracks.x_m` is `tracks_x_m`). Arrays are lists: [A, T] arrays are
stored track by track, [P, 2] arrays as all x, then all y. `COLUMNS` is the whole schema with the documentation of each
column; `docs/dataset_columns.py` writes it to docs/dataset.md.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from waycode.scene.types import (
    GraphOrigin,
    Lanes,
    MapFeatures,
    Polylines,
    Route,
    Scene,
    Signals,
    StopSigns,
    Tracks,
)

SCHEMA_VERSION = 1


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))  # without nulls: faster to read


_FLOATS, _DOUBLES, _INTS = _list_of(pa.float32()), _list_of(pa.float64()), _list_of(pa.int32())
_BYTES, _BOOLS, _STRINGS = _list_of(pa.int8()), _list_of(pa.bool_()), _list_of(pa.string())
_NULLABLE = ("rebuild", "tracks.ego_index", "route.lanes", "route.sections")


@dataclass(frozen=True)
class Column:
    """A field of `Scene` on disk."""

    path: str  # from the scene to the field, such as "tracks.x_m"
    type: pa.DataType
    axes: str  # of the array ("P 2" is stored as "2 P"); "" for a single value
    doc: str  # description in docs/dataset.md

    @cached_property
    def name(self) -> str:
        return self.path.replace(".", "_")

    @cached_property
    def is_array(self) -> bool:
        return bool(pa.types.is_list(self.type) and self.type != _STRINGS)

    @cached_property
    def is_points(self) -> bool:
        return self.axes.endswith(" 2")

    @cached_property
    def is_per_step(self) -> bool:
        return self.axes.endswith(" T")


def _polyline_columns(path: str, doc: str) -> tuple[Column, Column]:
    return (
        Column(f"{path}.points_m", _FLOATS, "P 2", f"{doc}: points, all x, then all y"),
        Column(f"{path}.starts", _INTS, "N+1", f"{doc}: polyline i is points starts[i] to starts[i + 1]"),
    )


COLUMNS: tuple[Column, ...] = (
    Column("id", pa.string(), "", "name of the scene, unique in the dataset"),
    Column("source", pa.string(), "", "where it comes from: sumo, womd, gpudrive, nuplan, argoverse2 or a user's own"),
    Column("dt_s", pa.float64(), "", "seconds between steps"),
    Column("current_step", pa.int32(), "", "index of the last observed step"),
    Column("num_steps", pa.int32(), "", "number of time steps T"),
    Column("origin_m", _DOUBLES, "2", "world position of the scene frame's (0, 0)"),
    Column("tags", _STRINGS, "K", "what the source says of the scene"),
    Column("rebuild", pa.string(), "", "JSON with which the source can run the same world live, or null"),
    Column("tracks.ids", _STRINGS, "A", "road users"),
    Column("tracks.types", _BYTES, "A", "1 vehicle, 2 pedestrian, 3 cyclist, 4 other"),
    Column("tracks.length_m", _FLOATS, "A", "length of the box"),
    Column("tracks.width_m", _FLOATS, "A", "width of the box"),
    Column("tracks.x_m", _FLOATS, "A T", "centre of the box in the scene frame"),
    Column("tracks.y_m", _FLOATS, "A T", "centre of the box in the scene frame"),
    Column("tracks.heading_rad", _FLOATS, "A T", "heading in [-pi, pi]"),
    Column("tracks.vx_mps", _FLOATS, "A T", "velocity"),
    Column("tracks.vy_mps", _FLOATS, "A T", "velocity"),
    Column("tracks.valid", _BOOLS, "A T", "whether the sample was observed; everything else is 0 where it was not"),
    Column("tracks.to_predict", _INTS, "R", "indices of the tracks whose future is of interest"),
    Column("tracks.ego_index", pa.int32(), "", "index of the ego's track, or null"),
    Column("map.lanes.ids", _STRINGS, "L", "lanes"),
    Column("map.lanes.types", _BYTES, "L", "0 unknown, 1 freeway, 2 street, 3 bike, 4 bus"),
    *_polyline_columns("map.lanes.centrelines", "lane centrelines in driving direction"),
    Column("map.lanes.speed_limit_mps", _FLOATS, "L", "speed limit, 0 where not known"),
    Column("map.lanes.speed_limit_known", _BOOLS, "L", "whether the speed limit is known"),
    Column("map.lanes.width_m", _FLOATS, "L", "lane width, 0 where not known"),
    Column("map.lanes.width_known", _BOOLS, "L", "whether the width is known"),
    Column("map.lanes.in_junction", _BOOLS, "L", "whether the lane lies within a junction"),
    Column("map.lanes.successors", _INTS, "E 2", "pairs (lane, lane that continues it)"),
    Column("map.lanes.left_neighbours", _INTS, "E 2", "pairs (lane, lane to its left in the same direction)"),
    Column("map.lanes.right_neighbours", _INTS, "E 2", "pairs (lane, lane to its right in the same direction)"),
    Column("map.lanes.graph_origin", pa.int8(), "", "0 no lane graph, 1 inferred from geometry, 2 recorded"),
    *_polyline_columns("map.road_lines", "painted lines"),
    Column("map.road_line_types", _BYTES, "N", "LineType of each painted line"),
    *_polyline_columns("map.road_edges", "edges of the drivable road"),
    Column("map.road_edge_types", _BYTES, "N", "0 unknown, 1 boundary, 2 median"),
    *_polyline_columns("map.crosswalks", "crosswalk polygons"),
    *_polyline_columns("map.speed_bumps", "speed bump polygons"),
    *_polyline_columns("map.driveways", "driveway polygons"),
    *_polyline_columns("map.drivable_areas", "drivable area polygons"),
    Column("map.stop_signs.position_m", _FLOATS, "S 2", "stop signs, all x, then all y"),
    Column("map.stop_signs.controls", _INTS, "E 2", "pairs (stop sign, lane that it controls)"),
    Column("signals.lanes", _INTS, "G", "indices of the signalled lanes"),
    Column("signals.stop_point_m", _FLOATS, "G 2", "where to stop, all x, then all y"),
    Column("signals.states", _BYTES, "G T", "SignalState per lane and step"),
    Column("signals.valid", _BOOLS, "G T", "whether the state was observed"),
    Column("route.lanes", _INTS, "R", "lanes of the route, or null if there is no route"),
    Column("route.sections", _INTS, "R", "the section of the route that the lane belongs to, or null"),
)

SCHEMA = pa.schema([pa.field(column.name, column.type, nullable=column.path in _NULLABLE) for column in COLUMNS])
_NAMES = [column.name for column in COLUMNS]
_POLYLINES = ("road_lines", "road_edges", "crosswalks", "speed_bumps", "driveways", "drivable_areas")


def scenes_to_table(scenes: Iterable[Scene]) -> pa.Table:
    """A table with one row per scene."""
    rows = list(scenes)
    return pa.table([_column_array(column, rows) for column in COLUMNS], schema=SCHEMA)


def read_scene(file: pq.ParquetFile, row: int) -> Scene:
    """The scene in one row group of a file."""
    table = file.read_row_group(row, use_threads=False)
    if table.num_rows != 1:
        raise ValueError(f"row group {row} has {table.num_rows} rows, expected one scene")
    return scene_from_row(table)


def scene_from_row(batch: pa.RecordBatch | pa.Table, row: int = 0) -> Scene:
    """The scene in one row of a table with this schema; its arrays are read-only.

    Raises `KeyError` for missing columns and `ValueError` for columns of another type or size. The values are as
    stored: `Scene.validate` judges them.
    """
    if batch.schema.names != _NAMES:
        batch = batch.select(_NAMES)  # another tool may have written the columns in another order
    if batch.schema.types != SCHEMA.types:
        _check_types(batch.schema)
    scalars = [column[row] for column in batch.columns]
    num_steps = scalars[_NAMES.index("num_steps")].as_py()
    groups: dict[str, dict[str, Any]] = {}  # the values under each path: groups["map.lanes"]["types"]
    for column, scalar in zip(COLUMNS, scalars, strict=True):
        group, _, name = column.path.rpartition(".")
        groups.setdefault(group, {})[name] = _value(column, scalar, num_steps)
    scene, lanes, route = groups[""], groups["map.lanes"], groups["route"]
    del scene["num_steps"]
    scene["origin_m"] = tuple(scene["origin_m"].tolist())
    lanes["graph_origin"] = GraphOrigin(lanes["graph_origin"])
    polylines: dict[str, Any] = {name: Polylines(**groups[f"map.{name}"]) for name in _POLYLINES}
    return Scene(
        **scene,
        tracks=Tracks(**groups["tracks"]),
        map=MapFeatures(
            lanes=Lanes(**lanes, centrelines=Polylines(**groups["map.lanes.centrelines"])),
            stop_signs=StopSigns(**groups["map.stop_signs"]),
            **polylines,
            **groups["map"],
        ),
        signals=Signals(**groups["signals"]),
        route=None if route["lanes"] is None else Route(**route),
    )


def _check_types(schema: pa.Schema) -> None:
    """Raises `ValueError` for columns of another type; other tools may use Arrow's types for large values."""
    for column, kind in zip(COLUMNS, schema.types, strict=True):
        if _plain_type(kind) != _plain_type(column.type):
            raise ValueError(f"column {column.name} holds {kind}, expected {column.type}")


def _plain_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_plain_type(kind.value_type)}"
    return "string" if pa.types.is_large_string(kind) else str(kind)


def write_shard(path: Path, scenes: Iterable[Scene], *, metadata: Mapping[str, Any]) -> None:
    """Writes scenes to one Parquet file, one row group each; the same scenes always give the same bytes.

    Args:
        path: the file.
        scenes: valid scenes.
        metadata: JSON values to store in the file's metadata, beside the schema version.
    """
    notes = {b"waycode": json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True).encode()}
    floats = [_leaf(column) for column in COLUMNS if column.type == _FLOATS]
    pq.write_table(
        scenes_to_table(scenes).replace_schema_metadata(notes),
        path,
        row_group_size=1,
        # Only the long columns are worth compressing: decompressing fifty short ones would double the time of a read.
        compression={_leaf(column): "zstd" if column.type == _FLOATS else "none" for column in COLUMNS},
        compression_level=dict.fromkeys(floats, 9),
        use_dictionary=False,
        use_byte_stream_split=floats,
        write_statistics=False,
        write_page_checksum=True,  # a flipped bit in a file without a dataset.json is found too
    )


def _leaf(column: Column) -> str:
    """The path of the column's values in the Parquet schema."""
    return f"{column.name}.list.element" if pa.types.is_list(column.type) else column.name


def same_scene(one: Scene, other: Scene) -> bool:
    """Whether two scenes are equal bit by bit; empty arrays are equal whatever their shape."""
    if (one.route is None) != (other.route is None):
        return False
    return all(
        _same(_get(column, one), _get(column, other))
        for column in COLUMNS
        if not (column.path.startswith("route.") and one.route is None)
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        same_shape = one.shape == other.shape or one.size == other.size == 0
        return bool(one.dtype == other.dtype and same_shape and one.tobytes() == other.tobytes())
    return bool(one == other)


def _get(column: Column, scene: Scene) -> Any:
    return attrgetter(column.path)(scene)


def _column_array(column: Column, scenes: list[Scene]) -> pa.Array:
    """The values of one column; arrays go to Arrow without becoming Python numbers."""
    if column.path.startswith("route."):
        return pa.array([None if scene.route is None else _get(column, scene) for scene in scenes], type=column.type)
    values = [_get(column, scene) for scene in scenes]
    if not column.is_array:
        return pa.array([int(value) if isinstance(value, GraphOrigin) else value for value in values], type=column.type)
    flat = [np.ravel(np.asarray(value).T if column.is_points else np.asarray(value)) for value in values]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in flat])]).astype(np.int32)
    joined = np.concatenate(flat) if flat else np.zeros(0)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(joined, type=column.type.value_type), type=column.type)


def _value(column: Column, scalar: pa.Scalar, num_steps: int) -> Any:
    if not scalar.is_valid:
        if column.path not in _NULLABLE:
            raise ValueError(f"column {column.name} is null, expected a value")
        return None
    if not column.is_array:
        value = scalar.as_py()
        return tuple(value) if column.type is _STRINGS else value
    if scalar.values.null_count:
        raise ValueError(f"column {column.name} has {scalar.values.null_count} nulls, expected numbers")
    array = scalar.values.to_numpy(zero_copy_only=False)
    try:
        if column.is_points:
            array = np.ascontiguousarray(array.reshape(2, -1).T)
        elif column.is_per_step:
            array = array.reshape(-1, num_steps)
        elif column.axes == "2":
            array = array.reshape(2)
    except ValueError as error:
        raise ValueError(f"column {column.name} has {array.size} values, expected [{column.axes}]") from error
    array.flags.writeable = False  # views of Arrow's memory are read-only already
    return array
