"""The Parquet form: nothing is lost, any tool can read it, and the same scenes give the same bytes."""

import math
import struct
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenes import bare_scene, small_scene, traffic_scene
from waycode.dataset.storage import COLUMNS, SCHEMA, same_scene, scene_from_row, scenes_to_table, write_shard
from waycode.scene import (
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
from waycode.scene.frames import POSITION_STEP_M, scene_origin, to_scene_frame

NAMES = st.lists(st.text(max_size=8), min_size=1, max_size=4)  # any letters, emoji and zero bytes
SEEDS = st.integers(0, 2**32 - 1)
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3.4e38], np.float32)


class AnyScene:
    """Makes scenes out of random bits: every float32 there is, with or without each part.

    Not a strategy of hypothesis, as beartype, which checks every part that is made, itself draws random numbers.
    """

    def __init__(self, seed: int, names: list[str]):
        self.random = np.random.default_rng(seed)
        self.names = names

    def size(self) -> int:
        return int(self.random.integers(0, 5))

    def maybe(self) -> bool:
        return bool(self.random.integers(0, 2))

    def texts(self, count: int) -> tuple[str, ...]:
        return tuple(self.names[self.random.integers(0, len(self.names))] for _ in range(count))

    def floats(self, *shape: int) -> np.ndarray:
        bits = self.random.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        return np.where(self.random.random(shape) < 0.3, self.random.choice(SPECIAL, shape), bits)

    def whole(self, kind: type[np.int8 | np.int32 | np.bool_], *shape: int) -> np.ndarray:
        bits = np.frombuffer(self.random.bytes(4 * math.prod(shape)), np.int32).reshape(shape)
        return bits % 2 == 0 if kind is np.bool_ else bits.astype(kind)

    def polylines(self, count: int) -> Polylines:
        return Polylines.of([self.floats(self.size(), 2) for _ in range(count)])

    def tracks(self, num_steps: int) -> Tracks:
        count = self.size()
        per_step = {name: self.floats(count, num_steps) for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps")}
        return Tracks(
            ids=self.texts(count),
            types=self.whole(np.int8, count),
            length_m=self.floats(count),
            width_m=self.floats(count),
            valid=self.whole(np.bool_, count, num_steps),
            to_predict=self.whole(np.int32, self.size()),
            ego_index=self.size() if self.maybe() else None,
            **per_step,
        )

    def lanes(self) -> Lanes:
        count = self.size()
        return Lanes(
            ids=self.texts(count),
            types=self.whole(np.int8, count),
            centrelines=self.polylines(count),
            speed_limit_mps=self.floats(count),
            speed_limit_known=self.whole(np.bool_, count),
            width_m=self.floats(count),
            width_known=self.whole(np.bool_, count),
            in_junction=self.whole(np.bool_, count),
            successors=self.whole(np.int32, self.size(), 2),
            left_neighbours=self.whole(np.int32, self.size(), 2),
            right_neighbours=self.whole(np.int32, self.size(), 2),
            graph_origin=GraphOrigin(int(self.random.integers(0, 3))),
        )

    def map(self) -> MapFeatures:
        num_lines, num_edges = self.size(), self.size()
        return MapFeatures(
            lanes=self.lanes(),
            road_lines=self.polylines(num_lines),
            road_line_types=self.whole(np.int8, num_lines),
            road_edges=self.polylines(num_edges),
            road_edge_types=self.whole(np.int8, num_edges),
            crosswalks=self.polylines(self.size()),
            speed_bumps=self.polylines(self.size()),
            driveways=self.polylines(self.size()),
            drivable_areas=self.polylines(self.size()),
            stop_signs=StopSigns(position_m=self.floats(self.size(), 2), controls=self.whole(np.int32, self.size(), 2)),
        )

    def signals(self, num_steps: int) -> Signals:
        count = self.size()
        return Signals(
            lanes=self.whole(np.int32, count),
            stop_point_m=self.floats(count, 2),
            states=self.whole(np.int8, count, num_steps),
            valid=self.whole(np.bool_, count, num_steps),
        )

    def route(self) -> Route:
        count = self.size()
        return Route(lanes=self.whole(np.int32, count), sections=self.whole(np.int32, count))

    def scene(self) -> Scene:
        num_steps = 1 + self.size()
        return Scene(
            id=self.texts(1)[0],
            source=self.texts(1)[0],
            dt_s=float(self.random.exponential()),
            current_step=self.size(),
            origin_m=(float(self.random.normal(0, 1e7)), -0.0),
            tracks=self.tracks(num_steps),
            map=self.map() if self.maybe() else MapFeatures(),
            signals=self.signals(num_steps) if self.maybe() else Signals(),
            route=self.route() if self.maybe() else None,
            tags=self.texts(self.size()),
            rebuild=self.texts(1)[0] if self.maybe() else None,
        )


def through_a_file(scenes: list[Scene]) -> list[Scene]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard.parquet"
        write_shard(path, scenes, metadata={})
        with pq.ParquetFile(path) as file:
            return [scene_from_row(file.read_row_group(row)) for row in range(len(scenes))]


@given(SEEDS, NAMES, st.integers(1, 3))
@settings(deadline=None)
def test_round_trip_is_exact_for_any_scene(seed: int, names: list[str], count: int) -> None:
    anything = AnyScene(seed, names)
    scenes = [anything.scene() for _ in range(count)]
    for before, after in zip(scenes, through_a_file(scenes), strict=True):
        assert same_scene(before, after)
        assert after.num_steps == before.num_steps
        assert type(after.map.lanes.graph_origin) is GraphOrigin


@given(SEEDS, NAMES)
@settings(max_examples=50, deadline=None)
def test_round_trip_keeps_every_bit(seed: int, names: list[str]) -> None:
    """As above, but not trusting `same_scene`: the arrays' bytes, shapes and kinds, field by field."""
    scene = AnyScene(seed, names).scene()
    (after,) = through_a_file([scene])
    for name in ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid", "types", "length_m", "to_predict"):
        one, other = getattr(scene.tracks, name), getattr(after.tracks, name)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    for name in ("road_lines", "crosswalks", "drivable_areas"):
        one, other = getattr(scene.map, name), getattr(after.map, name)
        assert one.points_m.tobytes() == other.points_m.tobytes()
        assert one.starts.tolist() == other.starts.tolist()
    assert (after.tracks.ids, after.tags, after.rebuild) == (scene.tracks.ids, scene.tags, scene.rebuild)
    assert struct.pack("3d", after.dt_s, *after.origin_m) == struct.pack("3d", scene.dt_s, *scene.origin_m)


@pytest.mark.parametrize("scene", [small_scene(), bare_scene(), traffic_scene(1)], ids=lambda scene: scene.id)
def test_round_trip_of_usual_scenes(scene: Scene) -> None:
    (after,) = through_a_file([scene])
    assert same_scene(scene, after)
    after.validate()


def test_arrays_from_disk_cannot_be_written_to() -> None:
    (scene,) = through_a_file([small_scene()])
    for array in (scene.tracks.x_m, scene.tracks.valid, scene.map.road_edges.points_m, scene.map.lanes.successors):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_world_coordinates_of_seven_digits_keep_millimetres() -> None:
    world_m = np.array([[[6_543_210.123, -7_654_321.987], [6_543_299.001, -7_654_300.5]]])
    valid = np.ones((1, 2), np.bool_)
    origin_m = scene_origin(world_m, valid)
    local_m = to_scene_frame(world_m, origin_m)
    tracks = replace(bare_scene().tracks, x_m=local_m[..., 0], y_m=local_m[..., 1])
    (after,) = through_a_file([replace(bare_scene(), tracks=tracks, origin_m=origin_m)])
    back_m = after.tracks.position_m.astype(np.float64) + np.array(after.origin_m)
    np.testing.assert_allclose(back_m, world_m, rtol=0, atol=POSITION_STEP_M / 2 + 1e-8)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"route": None},
        {"route": replace(small_scene().route, sections=np.array([0, 1, 1], np.int32))},  # type: ignore[type-var]
        {"tracks": replace(small_scene().tracks, heading_rad=-small_scene().tracks.heading_rad)},  # minus zero
        {"tracks": replace(small_scene().tracks, ego_index=None)},
        {"map": replace(small_scene().map, driveways=Polylines.of([]))},
        {"rebuild": None},
    ],
)
def test_scenes_that_differ_are_not_the_same(change: dict[str, Any]) -> None:
    assert same_scene(small_scene(), small_scene())
    assert not same_scene(small_scene(), replace(small_scene(), **change))
    assert not same_scene(replace(small_scene(), **change), small_scene())


def test_the_same_scenes_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_shard(tmp_path / name, [traffic_scene(0), small_scene()], metadata={"b": 1, "a": [2]})
    write_shard(tmp_path / "three", through_a_file([traffic_scene(0), small_scene()]), metadata={"a": [2], "b": 1})
    first = (tmp_path / "one").read_bytes()
    assert first == (tmp_path / "two").read_bytes() == (tmp_path / "three").read_bytes()


def test_any_parquet_tool_reads_the_documented_columns(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.parquet", [small_scene(), bare_scene()], metadata={})
    table = pq.read_table(tmp_path / "s.parquet")
    assert table.schema.names == [column.name for column in COLUMNS]
    assert [field.type for field in table.schema] == [column.type for column in COLUMNS]
    frame = pd.read_parquet(tmp_path / "s.parquet")
    assert frame["id"].tolist() == ["small", "bare"]
    row = frame.iloc[0]
    x_m = row["tracks_x_m"].reshape(-1, row["num_steps"])
    np.testing.assert_array_equal(x_m, small_scene().tracks.x_m)
    points_m = row["map_road_edges_points_m"].reshape(2, -1).T
    np.testing.assert_array_equal(points_m, small_scene().map.road_edges.points_m)
    assert frame["route_lanes"][1] is None
    assert pd.isna(frame["tracks_ego_index"][1])


def test_one_row_group_per_scene(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.parquet", [small_scene(str(index)) for index in range(5)], metadata={})
    metadata = pq.read_metadata(tmp_path / "s.parquet")
    assert metadata.num_row_groups == metadata.num_rows == 5


def test_a_shard_without_scenes_can_be_written(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.parquet", [], metadata={"rejected": {"overlap": 3}})
    assert pq.read_metadata(tmp_path / "s.parquet").num_rows == 0


def test_columns_in_another_order_are_found_by_name() -> None:
    table = scenes_to_table([small_scene("a"), small_scene("b")])
    turned = table.select(table.schema.names[::-1]).append_column("extra", pa.array([1, 2]))
    assert same_scene(scene_from_row(turned, 1), small_scene("b"))
    assert same_scene(scene_from_row(table.to_batches()[0], 0), small_scene("a"))
    with pytest.raises(KeyError, match="tracks_x_m"):
        scene_from_row(table.drop_columns(["tracks_x_m"]))


def test_every_field_of_a_scene_has_a_column() -> None:
    """A field that is added to the types and forgotten here would be lost on disk."""
    scene = small_scene()
    paths = {column.path for column in COLUMNS}
    parts = {"tracks.": scene.tracks, "map.lanes.": scene.map.lanes, "map.": scene.map, "signals.": scene.signals,
             "map.stop_signs.": scene.map.stop_signs, "route.": scene.route, "": scene}  # fmt: skip
    for prefix, part in parts.items():
        for name, value in vars(part).items():
            children = (Polylines, Lanes, StopSigns, Tracks, MapFeatures, Signals, Route)
            if isinstance(value, Polylines):
                assert {f"{prefix}{name}.points_m", f"{prefix}{name}.starts"} <= paths
            elif not isinstance(value, children):
                assert f"{prefix}{name}" in paths
    assert len(SCHEMA.names) == len(set(SCHEMA.names)) == len(COLUMNS)
