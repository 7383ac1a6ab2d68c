"""The JSON form of GPUDrive and Nocturne: small files with everything odd that was seen, and the real scenes."""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waycode.scene import EdgeType, GraphOrigin, LaneType, LineType, Scene, SignalState, TrackType
from waycode.scene.frames import wrap_angle
from waycode.sources import SourceError, check_source, gpudrive
from waycode.sources.gpudrive import GpuDriveSource, headings_in_degrees

NUM_STEPS = 12


def points(*positions: tuple[float, float]) -> list[dict[str, float]]:
    return [{"x": x, "y": y, "z": 1.0} for x, y in positions]


def road_user(number: int, kind: str, *, heading: float = 0.5, seen: int = NUM_STEPS) -> dict[str, Any]:
    """Drives at 10 m/s along its heading; what is not seen holds the form's magic number."""
    speed = (10 * np.cos(heading), 10 * np.sin(heading))
    path = [(-10_000.0 + 0.1 * step * speed[0], 50.0 + 0.1 * step * speed[1]) for step in range(NUM_STEPS)]
    absent = NUM_STEPS - seen
    return {
        "id": number,
        "type": kind,
        "position": points(*path[:seen], *[(-10_000.0, -10_000.0)] * absent),
        "velocity": points(*[speed] * seen, *[(-10_000.0, -10_000.0)] * absent),
        "heading": [heading] * seen + [-10_000.0] * absent,
        "valid": [True] * seen + [False] * absent,
        "length": 4.5,
        "width": 2.0,
        "height": 1.5,
    }


def road(number: int, kind: str, element: int, *positions: tuple[float, float]) -> dict[str, Any]:
    return {"id": number, "type": kind, "map_element_id": element, "geometry": points(*positions)}


def small_content() -> dict[str, Any]:
    return {
        "name": "small.json",
        "scenario_id": "abc",
        "objects": [
            road_user(7, "pedestrian", seen=0),
            road_user(8, "vehicle"),
            road_user(9, "unset", seen=5),
            road_user(10, "cyclist"),
        ],
        "roads": [
            road(1, "lane", 2, (-10_000, 40), (-9_980, 40)),
            road(2, "lane", 1, (-9_980, 40), (-9_960, 40)),
            road(3, "lane", 3, (-9_980, 40)),
            road(4, "lane", 0, (-10_000, 43.5), (-9_980, 43.5)),
            road(5, "road_line", 6, (0, 0), (1, 0)),
            road(6, "road_line", 13, (0, 0), (1, 0)),
            road(7, "road_line", 14, (0, 0), (1, 0)),
            road(8, "road_edge", 15, (0, 0), (1, 0)),
            road(9, "road_edge", 16, (0, 0), (1, 0)),
            road(10, "crosswalk", 18, (0, 0), (1, 0), (1, 1), (0, 0)),
            road(11, "stop_sign", 17, (5, 6)),
            road(12, "speed_bump", 19, (0, 0), (1, 0)),
            road(13, "driveway", 20, (0, 0), (1, 0), (1, 1), (0, 1)),
            road(14, "other", 99, (0, 0)),
        ],
        "tl_states": {
            "2": {"state": ["stop", "arrow_go"], "x": [-9979, -9979], "y": [40, 40], "time_index": [0, 3]},
            "55": {"state": [6], "x": [0], "y": [0], "time_index": [0]},
        },
        "metadata": {"sdc_track_index": 3, "tracks_to_predict": [{"track_index": 1}, {"track_index": 0}]},
    }


def read_content(folder: Path, content: Any) -> Scene:
    path = folder / "scene.json"
    path.write_text(json.dumps(content))
    (scene,) = gpudrive.read(path)
    scene.validate()
    return scene


def test_tracks_are_masked_typed_and_renumbered(tmp_path: Path) -> None:
    scene = read_content(tmp_path, small_content())
    tracks = scene.tracks
    assert (scene.id, scene.source, scene.dt_s, scene.current_step) == ("abc", "gpudrive", 0.1, 10)
    assert tracks.ids == ("8", "9", "10")
    assert tracks.types.tolist() == [TrackType.VEHICLE, TrackType.OTHER, TrackType.CYCLIST]
    assert tracks.valid.sum(axis=1).tolist() == [12, 5, 12]
    assert tracks.ego_index == 2
    assert tracks.to_predict.tolist() == [0]
    assert (tracks.position_m[0, 0] + scene.origin_m).tolist() == [-10_000.0, 50.0]


def test_magic_numbers_and_absurd_speeds_are_not_valid_whatever_the_file_says(tmp_path: Path) -> None:
    content = small_content()
    content["objects"][2]["valid"] = [True] * NUM_STEPS
    content["objects"][3]["velocity"][2] = {"x": 125.0, "y": 0.0}
    content["objects"][3]["position"][4]["x"] = float("nan")
    valid = read_content(tmp_path, content).tracks.valid
    assert valid.sum(axis=1).tolist() == [12, 5, 10]
    assert not valid[2, [2, 4]].any()


def test_the_map_keeps_what_has_an_extent(tmp_path: Path) -> None:
    features = read_content(tmp_path, small_content()).map
    assert features.lanes.ids == ("1", "2", "4")
    assert features.lanes.types.tolist() == [LaneType.STREET, LaneType.FREEWAY, LaneType.UNKNOWN]
    assert not features.lanes.speed_limit_known.any()
    lines = [LineType.BROKEN_SINGLE_WHITE, LineType.PASSING_DOUBLE_YELLOW, LineType.UNKNOWN]
    assert features.road_line_types.tolist() == lines
    assert features.road_edge_types.tolist() == [EdgeType.BOUNDARY, EdgeType.MEDIAN]
    assert len(features.crosswalks[0]) == 3
    assert (len(features.stop_signs), len(features.speed_bumps), len(features.driveways)) == (1, 0, 1)


def test_the_lane_graph_is_inferred(tmp_path: Path) -> None:
    lanes = read_content(tmp_path, small_content()).map.lanes
    assert lanes.graph_origin == GraphOrigin.INFERRED
    assert lanes.successors.tolist() == [[0, 1]]
    assert lanes.left_neighbours.tolist() == [[0, 2]]
    assert lanes.right_neighbours.tolist() == [[2, 0]]


def test_lights_of_lanes_that_are_known(tmp_path: Path) -> None:
    scene = read_content(tmp_path, small_content())
    assert scene.signals.lanes.tolist() == [1]
    assert np.flatnonzero(scene.signals.valid[0]).tolist() == [0, 3]
    assert scene.signals.states[0, [0, 3]].tolist() == [SignalState.STOP, SignalState.ARROW_GO]
    assert (scene.signals.stop_point_m + scene.origin_m).tolist() == [[-9979, 40]]


def test_files_of_nocturne_without_ids_metadata_and_lights(tmp_path: Path) -> None:
    content = small_content()
    for name in ("scenario_id", "metadata", "tl_states"):
        del content[name]
    for item in [*content["objects"], *content["roads"]]:
        del item["id"]
    for item in content["roads"]:
        del item["map_element_id"]
    content["roads"][10]["geometry"] = content["roads"][10]["geometry"][0]
    scene = read_content(tmp_path, content)
    assert scene.id == "scene"
    assert scene.tracks.ego_index is None
    assert len(scene.tracks.to_predict) == len(scene.signals) == 0
    assert len(scene.map.stop_signs) == 1
    assert set(scene.map.lanes.types.tolist()) == {LaneType.UNKNOWN}


@pytest.mark.parametrize(
    ("course_deg", "written_in", "expected"),
    [
        pytest.param([10.0, 170.0], "degrees", True, id="more than a turn of radians"),
        pytest.param([10.0, -179.0], "radians", False, id="radians"),
        pytest.param([2.0, -4.0], "degrees", True, id="degrees of cars that all drive along +x"),
        pytest.param([2.0, -4.0], "radians", False, id="radians of cars that all drive along +x"),
        pytest.param([0.0, 0.0], "degrees", False, id="no difference"),
    ],
)
def test_headings_in_degrees_are_noticed(course_deg: list[float], written_in: str, expected: bool) -> None:
    course = np.radians(np.array(course_deg))
    written = np.array(course_deg) if written_in == "degrees" else course
    velocity = 8.0 * np.stack([np.cos(course), np.sin(course)], axis=-1)
    arguments = {"seen": np.ones((2, 1), np.bool_), "is_vehicle": np.ones(2, np.bool_)}
    assert headings_in_degrees(written[:, None], velocity[:, None], **arguments) is expected


def test_headings_in_degrees_are_converted(tmp_path: Path) -> None:
    content = small_content()
    for item in content["objects"]:
        item["heading"] = [np.degrees(value) if value > -1000 else value for value in item["heading"]]
    assert read_content(tmp_path, content).tracks.heading_rad[0] == pytest.approx(0.5, abs=1e-3)


def test_parked_cars_are_taken_at_their_word() -> None:
    still = np.zeros((2, 1, 2))
    seen, is_vehicle = np.ones((2, 1), np.bool_), np.ones(2, np.bool_)
    assert headings_in_degrees(np.array([[1.0], [2.0]]), still, seen=seen, is_vehicle=is_vehicle) is False


def test_plain_and_packed_files_below_a_folder_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for path, pack in (("c.json", bytes), ("b.json.gz", gzip.compress), ("below/a.json.xz", lzma.compress)):
        content = {**small_content(), "scenario_id": path}
        (tmp_path / path).write_bytes(pack(json.dumps(content).encode()))
    (tmp_path / "notes.txt").write_text("not a scene")
    source = GpuDriveSource(tmp_path)
    assert [scene.id for scene in gpudrive.read([tmp_path])] == ["b.json.gz", "below/a.json.xz", "c.json"]
    report = check_source(source)
    assert report.passed, report.faults


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        pytest.param("bad.json", b"{", "cannot be read", id="broken JSON"),
        pytest.param("bad.json", b"\xff\xfe\x00", "cannot be read", id="not text"),
        pytest.param("bad.json.xz", b"not packed", "cannot be read", id="not xz"),
        pytest.param("bad.json.gz", b"not packed", "cannot be read", id="not gzip"),
        pytest.param("bad.json.gz", gzip.compress(b"{}" * 99)[:-9], "cannot be read", id="cut gzip"),
        pytest.param("bad.json.xz", lzma.compress(b"{}" * 99)[:-9], "cannot be read", id="cut xz"),
        pytest.param("bad.json", b"[]", "not a scene", id="a list"),
        pytest.param("bad.json", b"[" * 100_000, "nested too deeply", id="nested"),
        pytest.param("bad.json", b"1" * 5000, "cannot be read", id="digits"),
        pytest.param("bad.json", b"{}", "KeyError: 'objects'", id="nothing in it"),
        pytest.param("bad.json", b'{"objects": [], "roads": []}', "at least one road user", id="no road users"),
        pytest.param("bad.json", b'{"objects": [{"type": "vehicle"}]}', "KeyError: 'position'", id="half a road user"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SourceError, match=complaint) as raised:
        GpuDriveSource(tmp_path).read(str(path))
    assert str(path) in str(raised.value)


def test_tracks_of_different_lengths_and_wrong_indices_are_errors(tmp_path: Path) -> None:
    content = small_content()
    content["objects"][1]["heading"].pop()
    with pytest.raises(SourceError, match=r"scene\.json"):
        read_content(tmp_path, content)
    content = small_content()
    content["metadata"]["sdc_track_index"] = 4
    with pytest.raises(SourceError, match=r"scene\.json.* track 4, but there are 4 tracks"):
        read_content(tmp_path, content)


def test_bad_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere does not exist"):
        GpuDriveSource(tmp_path / "nowhere").references()
    with pytest.raises(SourceError, match=r"holds no file that matches \*.json"):
        gpudrive.read(tmp_path)


@pytest.mark.real_data
def test_real_scenes_pass_the_checks_of_every_source(shared_data: Path) -> None:
    report = check_source(GpuDriveSource(shared_data / "womd-json"), limit=20)
    assert report.passed, report.faults
    assert report.num_references == 980


@pytest.mark.real_data
def test_real_scenes_are_valid_and_their_headings_fit_their_motion(shared_data: Path) -> None:
    """Every seventh file, and the two whose tracks jump at absurd speeds.

    All 980 take two minutes: list(map(Scene.validate, gpudrive.read("shared/data/womd-json"))).
    """
    source = GpuDriveSource(shared_data / "womd-json")
    jumping = ("tfrecord-00477-of-01000_158.json.xz", "tfrecord-00949-of-01000_123.json.xz")
    references = source.references()
    ids = set()
    for reference in [*references[::7], *(name for name in references if name.endswith(jumping))]:
        scene = source.read(reference)
        scene.validate()
        ids.add(scene.id)
        tracks = scene.tracks
        assert tracks.ego_index is not None
        assert tracks.valid[tracks.ego_index, scene.current_step]
        moving = tracks.valid & (tracks.speed_mps > 2) & (tracks.types == TrackType.VEHICLE)[:, None]
        course = np.arctan2(tracks.vy_mps[moving], tracks.vx_mps[moving])
        if moving.any():
            assert np.median(np.abs(wrap_angle(tracks.heading_rad[moving] - course))) < 0.3
    assert len(ids) == 141  # one of the two is a seventh file


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), ("", bytes)])
def test_what_is_unpacked_has_a_bound(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"scene.json{suffix}"
    path.write_bytes(pack(b'"' + b"a" * 3_000_000 + b'"'))
    with pytest.raises(SourceError, match="it has more than max_unpacked_mb = 2 MB when unpacked"):
        GpuDriveSource(tmp_path, max_unpacked_mb=2).read(str(path))
    with pytest.raises(SourceError, match="not a scene in GPUDrive's format"):
        GpuDriveSource(tmp_path, max_unpacked_mb=4).read(str(path))


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("objects", 1, "position", 0, "x"), 10**400, "objects"),
        (("objects", 1, "length"), "long", "objects"),
        (("objects", 1, "valid"), ["false"] * 12, "objects"),
        (("objects", 0), [], "objects"),
        (("roads", 0, "map_element_id"), float("inf"), r"roads\[0\]"),
        (("roads", 0, "geometry"), [7], r"roads\[0\]"),
        (("metadata",), [], "objects"),
        (("metadata", "sdc_track_index"), 0.5, "objects"),
        (("tl_states",), {"1": 3}, "tl_states of lane 1"),
    ],
)
def test_damaged_values_are_named_with_their_place(
    tmp_path: Path, path: tuple[Any, ...], value: Any, place: str
) -> None:
    content: Any = small_content()
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(SourceError, match=rf"scene\.json: not a scene in GPUDrive's format: {place}"):
        read_content(tmp_path, content)
