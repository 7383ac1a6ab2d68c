"""The Argoverse 2 reader, on one real scenario and on a small one whose content is known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from waycode.scene import GraphOrigin, LaneType, LineType, Scene, TrackType
from waycode.scene.geometry import directions
from waycode.sources import argoverse2, check_source, convert
from waycode.sources.argoverse2 import Argoverse2Source
from waycode.sources.base import SourceError

SCENARIO = "0a1e6f0a-1817-4a98-b02e-db8c9327d151"

# Small scenario: a road to the east with two lanes there (1 left, 2 right) and one back (3), lane 4 goes on from 1.
LEFT_M = {1: [(0, 0), (50, 0)], 2: [(0, -3), (50, -3)], 3: [(50, 0), (0, 0)], 4: [(50, 0), (90, 0)]}
RIGHT_M = {1: [(0, -3), (50, -3)], 2: [(0, -7), (20, -7), (50, -7)], 3: [(50, 4), (0, 4)], 4: [(50, -3), (90, -3)]}
MARKS = {
    1: ("DOUBLE_SOLID_YELLOW", "DASHED_WHITE"),
    2: ("DASHED_WHITE", "NONE"),
    3: ("DOUBLE_SOLID_YELLOW", "SOLID_WHITE"),
    4: ("SOLID_DASH_YELLOW", "SOLID_BLUE"),
}
NEIGHBOURS = {1: (3, 2), 2: (1, None), 3: (1, None), 4: (None, None)}  # left, right
ROAD_USERS = [
    ("AV", "vehicle", 1, range(110)),
    ("17", "motorcyclist", 2, range(20, 110)),
    ("18", "bus", 3, range(110)),
    ("19", "cyclist", 0, range(30)),
    ("20", "pedestrian", 2, range(110)),
    ("21", "riderless_bicycle", 0, range(110)),
    ("22", "static", 0, range(110)),
]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with two small scenarios in the older form, without centrelines."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(small_table(name), folder / f"scenario_{name}.parquet")
        (folder / f"log_map_archive_{name}.json").write_text(json.dumps(small_map()))
    return tmp_path


def small_table(name: str) -> pa.Table:
    samples = [
        (track, kind, category, step, 1000.0 + number + 0.5 * step, 2000.0 - 1.5 * number, 3.5 if number else 0.0)
        for number, (track, kind, category, steps) in enumerate(ROAD_USERS)
        for step in steps
    ]
    columns: dict[str, Any] = dict(
        zip(
            ("track_id", "object_type", "object_category", "timestep", "position_x", "position_y", "heading"),
            zip(*samples, strict=True),
            strict=True,
        )
    )
    count = len(samples)
    columns |= {"velocity_x": [5.0] * count, "velocity_y": [0.0] * count, "scenario_id": [name] * count}
    columns |= {"num_timestamps": [110] * count, "city": ["austin"] * count, "focal_track_id": ["18"] * count}
    return pa.table(columns)


def small_map() -> dict[str, Any]:
    def points(line: Sequence[tuple[float, float]]) -> list[dict[str, float]]:
        return [{"x": 1000.0 + x, "y": 2000.0 + y, "z": 0.0} for x, y in line]

    segments = {
        str(i): {
            "id": i,
            "is_intersection": i == 4,
            "lane_type": "BUS" if i == 2 else "VEHICLE",
            "left_lane_boundary": points(LEFT_M[i]),
            "right_lane_boundary": points(RIGHT_M[i]),
            "left_lane_mark_type": MARKS[i][0],
            "right_lane_mark_type": MARKS[i][1],
            "left_neighbor_id": NEIGHBOURS[i][0],
            "right_neighbor_id": NEIGHBOURS[i][1],
            "successors": [4, 77] if i == 1 else [],  # lane 77 is beyond the map
            "predecessors": [1] if i == 4 else [],
        }
        for i in LEFT_M
    }
    areas = [[(0, -8), (60, -8), (60, 5), (0, 5)], [(60, -8), (90, -8), (90, 5), (60, 5)]]
    crossing = {"id": 9, "edge1": points([(10, -7), (10, 4)]), "edge2": points([(13, 4), (13, -7)])}
    return {
        "lane_segments": segments,
        "drivable_areas": {str(i): {"id": i, "area_boundary": points(area)} for i, area in enumerate(areas)},
        "pedestrian_crossings": {"9": crossing},
    }


def in_road_frame(scene: Scene, points_m: np.ndarray) -> np.ndarray:
    return points_m.astype(np.float64) + np.array(scene.origin_m) - [1000, 2000]


def test_small_source_passes_the_checks(small: Path) -> None:
    report = check_source(Argoverse2Source(small))
    assert report.faults == ()
    assert report.num_checked == 2
    assert [scene.id for scene in argoverse2.read([small / "two", small / "one"])] == ["two", "one"]


def test_small_tracks(small: Path) -> None:
    scene = next(argoverse2.read(small))
    tracks = scene.tracks
    assert tracks.ids == ("AV", "17", "18", "19", "20", "21", "22")
    expected = [TrackType.VEHICLE] * 3 + [TrackType.CYCLIST, TrackType.PEDESTRIAN] + [TrackType.OTHER] * 2
    assert tracks.types.tolist() == expected
    assert tracks.ego_index == 0
    assert tracks.to_predict.tolist() == [2, 1, 4]  # the focal track, then the scored ones
    assert tracks.length_m[2] > tracks.length_m[0] > tracks.length_m[1] > tracks.length_m[4]
    assert tracks.valid[1].sum() == 90
    assert not tracks.valid[1, :20].any()
    assert np.all(tracks.position_m[3, 30:] == 0)
    np.testing.assert_allclose(in_road_frame(scene, tracks.position_m[0])[:, 0], 0.5 * np.arange(110))
    assert tracks.heading_rad[1, 50] == pytest.approx(3.5 - 2 * np.pi, abs=1e-4)


def test_small_lanes(small: Path) -> None:
    scene = next(argoverse2.read(small))
    lanes = scene.map.lanes
    assert lanes.ids == ("1", "2", "3", "4")
    assert lanes.types.tolist() == [LaneType.STREET, LaneType.BUS, LaneType.STREET, LaneType.STREET]
    assert lanes.in_junction.tolist() == [False, False, False, True]
    np.testing.assert_allclose(lanes.width_m, [3, 4, 4, 3], atol=1e-3)
    np.testing.assert_allclose(in_road_frame(scene, lanes.centrelines[1])[:, 1], -5, atol=1e-3)
    np.testing.assert_allclose(in_road_frame(scene, lanes.centrelines[2])[[0, -1]], [[50, 2], [0, 2]], atol=1e-3)
    assert lanes.successors.tolist() == [[0, 3]]
    assert lanes.left_neighbours.tolist() == [[1, 0]]  # not lane 3: it comes the other way
    assert lanes.right_neighbours.tolist() == [[0, 1]]
    assert not lanes.speed_limit_known.any()
    assert lanes.graph_origin == GraphOrigin.RECORDED


def test_small_lines_come_once(small: Path) -> None:
    scene = next(argoverse2.read(small))
    assert scene.map.road_line_types.tolist() == [
        LineType.SOLID_DOUBLE_YELLOW,
        LineType.BROKEN_SINGLE_WHITE,
        LineType.SOLID_SINGLE_WHITE,
        LineType.PASSING_DOUBLE_YELLOW,
        LineType.UNKNOWN,
    ]


def test_small_areas(small: Path) -> None:
    scene = next(argoverse2.read(small))
    edges = sorted((in_road_frame(scene, edge) for edge in scene.map.road_edges.as_list()), key=lambda e: e[0, 1])
    assert [edge[:, 1].round(2).tolist() for edge in edges] == [[-8.0] * len(edges[0]), [5.0] * len(edges[1])]
    assert len(scene.map.drivable_areas) == 2
    crosswalk = shapely.polygons(in_road_frame(scene, scene.map.crosswalks[0]))
    assert crosswalk.is_valid
    assert crosswalk.area == pytest.approx(33)


def test_errors_name_the_file_and_what_is_there(small: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere does not exist"):
        Argoverse2Source(tmp_path / "nowhere").references()
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"empty holds no file that matches scenario_\*\.parquet"):
        Argoverse2Source(tmp_path / "empty").references()
    source = Argoverse2Source(small / "one")
    (reference,) = source.references()
    whole = Path(reference).read_bytes()
    Path(reference).write_bytes(whole[:1000])
    with pytest.raises(SourceError, match="cannot be read as a Parquet file"):
        source.read(reference)
    pq.write_table(small_table("one").drop_columns(["heading"]), reference)
    with pytest.raises(SourceError, match="has no column heading; it has track_id, object_type"):
        source.read(reference)
    Path(reference).write_bytes(whole)
    map_file = small / "one" / "log_map_archive_one.json"
    map_file.write_text('{"lane_segments": {}, "drivable_areas": {}}')
    with pytest.raises(SourceError, match="has no pedestrian_crossings; it has lane_segments, drivable_areas"):
        source.read(reference)
    map_file.write_text('{"lane_seg')
    with pytest.raises(SourceError, match="cannot be read as JSON"):
        source.read(reference)
    map_file.unlink()
    with pytest.raises(SourceError, match="has 0 files log_map_archive"):
        source.read(reference)


@pytest.fixture(scope="module")
def real(shared_data: Path) -> Scene:
    return next(argoverse2.read(shared_data / "argoverse2"))


@pytest.mark.real_data
def test_real_source_passes_the_checks(shared_data: Path) -> None:
    assert check_source(Argoverse2Source(shared_data / "argoverse2" / SCENARIO)).faults == ()


@pytest.mark.real_data
def test_real_scenario_has_its_tracks(real: Scene) -> None:
    tracks = real.tracks
    assert (real.id, real.num_steps, real.current_step, real.dt_s) == (SCENARIO, 110, 49, 0.1)
    assert len(tracks) == 58
    assert tracks.ego_index is not None
    assert tracks.ids[tracks.ego_index] == "AV"
    assert tracks.ids[tracks.to_predict[0]] == "138951"
    assert len(tracks.to_predict) == 2
    assert np.bincount(tracks.types, minlength=5).tolist() == [0, 32, 12, 0, 14]
    assert real.tags == ("austin",)
    world_m = tracks.position_m[tracks.ego_index, 0].astype(np.float64) + np.array(real.origin_m)
    np.testing.assert_allclose(world_m, [-433.710315, 1326.42298], atol=1e-3)


@pytest.mark.real_data
def test_real_velocities_fit_the_positions(real: Scene) -> None:
    tracks = real.tracks
    for track in (*tracks.to_predict, tracks.ego_index):
        seen = tracks.valid[track, 10:]  # a filter starts in the first steps
        moved = np.gradient(tracks.position_m[track, 10:].astype(np.float64), 0.1, axis=0)
        velocity = np.stack([tracks.vx_mps[track, 10:], tracks.vy_mps[track, 10:]], axis=-1)
        assert np.linalg.norm(moved - velocity, axis=-1)[seen].mean() < 0.5


@pytest.mark.real_data
def test_real_map_hangs_together(real: Scene) -> None:
    lanes = real.map.lanes
    assert len(lanes) == 71
    assert (lanes.types == LaneType.BIKE).sum() == 37
    assert lanes.in_junction.sum() == 32
    assert np.all((lanes.width_m > 1) & (lanes.width_m < 6))
    centrelines = lanes.centrelines.as_list()
    for before, after in lanes.successors:
        assert np.linalg.norm(centrelines[before][-1] - centrelines[after][0]) < 0.5
    for pairs, side in ((lanes.left_neighbours, 1), (lanes.right_neighbours, -1)):
        assert len(pairs) == 7
        for lane, other in pairs:
            heading = directions(centrelines[lane])[0]
            across = centrelines[other].mean(axis=0) - centrelines[lane].mean(axis=0)
            assert side * (np.cos(heading) * across[1] - np.sin(heading) * across[0]) > 1


@pytest.mark.real_data
def test_real_road_edges_do_not_cross_lanes(real: Scene) -> None:
    edges = shapely.multilinestrings([shapely.linestrings(edge) for edge in real.map.road_edges.as_list()])
    lanes = [shapely.linestrings(line) for line in real.map.lanes.centrelines.as_list()]
    assert not shapely.crosses(lanes, edges).any()
    assert len(real.map.crosswalks) == 6
    assert all(shapely.polygons(ring).is_valid for ring in real.map.crosswalks.as_list())


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("heading", "text", "column heading: it holds string"),
        ("timestep", 0.5, "column timestep"),
        ("timestep", 10**12, "has steps"),
        ("num_timestamps", 10**12, "has steps"),
        ("track_id", 7, "column track_id"),
        ("position_x", None, "column position_x"),
    ],
)
def test_columns_of_other_values_are_named(small: Path, column: str, values: Any, sentence: str) -> None:
    file = small / "one" / "scenario_one.parquet"
    table = small_table("one")
    broken = pa.array([values] * table.num_rows)
    pq.write_table(table.set_column(table.schema.names.index(column), column, broken), file)
    with pytest.raises(SourceError, match=f"scenario_one.parquet.*{sentence}"):
        Argoverse2Source(small).read(str(file))


@pytest.mark.parametrize("part", ["lane_segments", "drivable_areas", "pedestrian_crossings"])
@pytest.mark.parametrize("value", [[], [1], {"1": None}, {"1": []}, None, {"1": {"id": float("inf")}}])
def test_damaged_maps_are_named(small: Path, part: str, value: Any) -> None:
    if value == [] and part != "lane_segments":
        value = 7
    (small / "one" / "log_map_archive_one.json").write_text(json.dumps({**small_map(), part: value}))
    with pytest.raises(SourceError, match=rf"scenario_one.parquet: its map cannot be converted: {part}: "):
        Argoverse2Source(small).read(str(small / "one" / "scenario_one.parquet"))


def test_one_bad_file_does_not_end_a_conversion(small: Path, tmp_path: Path) -> None:
    (small / "one" / "log_map_archive_one.json").write_text("[" * 100_000)
    with pytest.raises(SourceError, match="nested too deeply"):
        convert(Argoverse2Source(small), tmp_path / "none", settings={})
    info = convert(Argoverse2Source(small), tmp_path / "data", settings={}, skip_bad=True)
    assert (info.num_scenes, dict(info.rejected)) == (1, {"SourceError": 1})
