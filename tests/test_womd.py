"""WOMD without TensorFlow: the message schema, TFRecord framing with all its ways to break, and a real scenario."""

import gzip
import re
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c

from waycode.scene import GraphOrigin, LaneType, Scene, SignalState, TrackType
from waycode.sources import SourceError, check_source, convert, womd
from waycode.sources.womd import WomdSource
from waycode.sources.womd.scenario import file_descriptor, proto_text, scenario_class
from waycode.sources.womd.tfrecord import read_record, record_offsets


def framed(payload: bytes) -> bytes:
    """A payload as a TFRecord."""

    def checksum(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(payload))
    return length + checksum(length) + payload + checksum(payload)


def small_scenario(name: str = "a") -> Any:
    """One car that drives east for 12 steps, one track that is never seen, one cyclist; three lanes."""
    scenario = scenario_class()(scenario_id=name, current_time_index=10, sdc_track_index=2)
    scenario.timestamps_seconds.extend(0.1 * step for step in range(12))
    scenario.tracks_to_predict.add(track_index=2)
    scenario.tracks_to_predict.add(track_index=1)
    for index, (kind, seen) in enumerate([(3, 4), (1, 0), (1, 12)]):
        track = scenario.tracks.add(id=70 + index, object_type=kind)
        for step in range(12):
            state = track.states.add(valid=step < seen, center_x=9000.0 + step, center_y=-500.25)
            state.length, state.width = 4.0 + 0.5 * (step % 3), 2.0
            state.heading, state.velocity_x, state.velocity_y = 7.0, 10.0, 0.5
        scenario.dynamic_map_states.add()
    lanes: dict[int, list[tuple[float, float]]] = {
        5: [(9000, -500), (9010, -500)],
        6: [(9010, -500), (9020, -500)],
        7: [(9020, -500)],
        8: [(9000, -496.5), (9010, -496.5)],
    }
    for lane_id, points in lanes.items():
        lane = scenario.map_features.add(id=lane_id).lane
        lane.type, lane.speed_limit_mph, lane.interpolating = 2, 45.0 * (lane_id == 5), lane_id == 6
        for x, y in points:
            lane.polyline.add(x=x, y=y)
    by_id = {feature.id: feature.lane for feature in scenario.map_features}
    by_id[5].exit_lanes.append(6)
    by_id[6].entry_lanes.extend([5, 99])
    by_id[6].exit_lanes.append(7)
    by_id[5].left_neighbors.add(feature_id=8)
    by_id[8].right_neighbors.add(feature_id=5)
    return scenario


def write(path: Path, *payloads: bytes) -> Path:
    path.write_bytes(b"".join(map(framed, payloads)))
    return path


def serialized(*names: str) -> list[bytes]:
    return [small_scenario(name).SerializeToString() for name in names]


def test_the_descriptor_says_what_the_proto_file_says() -> None:
    text = re.sub(r"//.*", "", proto_text())
    written = re.findall(r"(\w+) (\w+) (\w+) = (\d+);", text)
    fields = [(field, message) for message in file_descriptor(proto_text()).message_type for field in message.field]
    assert len(fields) == len(written) == text.count(";") - 2  # all but `syntax` and `package`
    for (_, kind, name, number), (field, message) in zip(written, fields, strict=True):
        assert (field.name, field.number) == (name, int(number)), message.name
        assert field.type_name.endswith(f".{kind}") or field.Type.Name(field.type) == f"TYPE_{kind.upper()}"


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("Scenario.tracks", 2),
        ("Scenario.sdc_track_index", 6),
        ("Scenario.tracks_to_predict", 11),
        ("ObjectState.velocity_y", 10),
        ("MapFeature.driveway", 10),
        ("LaneCenter.polyline", 8),
        ("LaneCenter.right_neighbors", 12),
        ("TrafficSignalLaneState.stop_point", 3),
    ],
)
def test_field_numbers_are_the_public_ones(path: str, number: int) -> None:
    message_name, field_name = path.split(".")
    messages = {message.name: message for message in file_descriptor(proto_text()).message_type}
    assert {field.name: field.number for field in messages[message_name].field}[field_name] == number


def test_every_record_of_a_file_becomes_a_scene(tmp_path: Path) -> None:
    path = write(tmp_path / "some.tfrecord-00000-of-00001", *serialized("a", "b", "c"))
    (tmp_path / "notes.txt").write_text("not a record")
    assert [scene.id for scene in womd.read(path)] == ["a", "b", "c"]
    source = WomdSource([str(tmp_path)])
    assert source.references()[0] == (str(path), 0)
    report = check_source(source)
    assert report.passed, report.faults
    assert report.num_checked == 3


@pytest.fixture(scope="module")
def small_scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    scenario = small_scenario()
    for kind, points in {"crosswalk": 5, "speed_bump": 4, "driveway": 3}.items():
        polygon = getattr(scenario.map_features.add(id=20 + points), kind).polygon
        for x, y in [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)][:points]:
            polygon.add(x=9000 + x, y=-500 + y)
    edge = scenario.map_features.add(id=30).road_edge
    edge.type = 2
    line = scenario.map_features.add(id=31).road_line
    line.type = 7
    for x in (9000, 9010):
        edge.polyline.add(x=x, y=-503)
        line.polyline.add(x=x, y=-498)
    sign = scenario.map_features.add(id=32).stop_sign
    sign.lane.extend([6, 7])
    sign.position.x, sign.position.y = 9008, -503
    for step, state in ((0, 4), (1, 6)):
        light = scenario.dynamic_map_states[step].lane_states.add(lane=6, state=state)
        light.stop_point.x, light.stop_point.y = 9012 + step, -500
    scenario.dynamic_map_states[0].lane_states.add(lane=5, state=1)  # without a stop point
    scenario.dynamic_map_states[0].lane_states.add(lane=7, state=1)  # of a lane that is left out
    folder = tmp_path_factory.mktemp("small")
    (scene,) = womd.read(write(folder / "small.tfrecord", scenario.SerializeToString()))
    scene.validate()
    return scene


def test_tracks_that_were_never_seen_are_dropped_and_indices_follow(small_scene: Scene) -> None:
    tracks = small_scene.tracks
    assert tracks.ids == ("70", "72")
    assert tracks.types.tolist() == [TrackType.CYCLIST, TrackType.VEHICLE]
    assert tracks.ego_index == 1
    assert tracks.to_predict.tolist() == [1]
    assert tracks.valid.sum(axis=1).tolist() == [4, 12]
    assert tracks.length_m.tolist() == [4.25, 4.5]
    assert np.allclose(tracks.heading_rad[1], 7.0 - 2 * np.pi, atol=1e-3)
    assert np.all(tracks.position_m[1, 3] + small_scene.origin_m == (9003.0, -500.25))
    assert (small_scene.dt_s, small_scene.current_step) == (0.1, 10)


def test_lanes_carry_the_recorded_graph_without_lanes_of_one_point(small_scene: Scene) -> None:
    lanes = small_scene.map.lanes
    assert lanes.ids == ("5", "6", "8")
    assert lanes.graph_origin == GraphOrigin.RECORDED
    assert lanes.types.tolist() == [LaneType.STREET] * 3
    assert lanes.successors.tolist() == [[0, 1]]
    assert lanes.left_neighbours.tolist() == [[0, 2]]
    assert lanes.right_neighbours.tolist() == [[2, 0]]
    assert lanes.speed_limit_known.tolist() == [True, False, False]
    assert lanes.speed_limit_mps[0] == pytest.approx(20.1168)
    assert lanes.in_junction.tolist() == [False, True, False]


def test_the_rest_of_the_map_and_the_signals(small_scene: Scene) -> None:
    features, signals = small_scene.map, small_scene.signals
    assert [len(features.crosswalks[0]), len(features.speed_bumps[0]), len(features.driveways[0])] == [4, 4, 3]
    assert (features.road_edge_types.tolist(), features.road_line_types.tolist()) == ([2], [7])
    assert features.stop_signs.controls.tolist() == [[0, 1]]
    assert signals.lanes.tolist() == [0, 1]
    assert signals.valid[:, :2].tolist() == [[True, False], [True, True]]
    assert signals.states[1, :3].tolist() == [SignalState.STOP, SignalState.GO, 0]
    assert (signals.stop_point_m + small_scene.origin_m).tolist() == [[9000, -500], [9012, -500]]


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "bad_record", "readable", "complaint"),
    [
        pytest.param(lambda c, r: flip(c, r + 40), 1, "ac", "checksum of its", id="a byte of the payload"),
        pytest.param(lambda c, r: flip(c, 2 * r - 1), 1, "ac", "checksum of its", id="a byte of the last checksum"),
        pytest.param(lambda c, r: flip(c, r), 1, "ac", "length's checksum", id="a byte of the length"),
        pytest.param(lambda c, r: flip(c, r + 9), 1, "ac", "length's checksum", id="a byte of the length's checksum"),
        pytest.param(lambda c, r: c[:-30], 2, "ab", "truncated", id="the tail cut within a payload"),
        pytest.param(lambda c, r: c[: 2 * r + 5], 2, "ab", "truncated", id="the tail cut within a header"),
        pytest.param(lambda c, r: c + b"junk" * 9, 3, "abc", "length's checksum", id="junk after the end"),
    ],
)
def test_damage_is_named_with_its_place_and_can_be_skipped(
    tmp_path: Path, damage: Callable[[bytes, int], bytes], bad_record: int, readable: str, complaint: str
) -> None:
    path = write(tmp_path / "bad.tfrecord", *serialized(*"abc"))
    size = path.stat().st_size // 3
    path.write_bytes(damage(path.read_bytes(), size))
    source = WomdSource(path)
    assert (str(path), bad_record * size) in source.references()
    with pytest.raises(SourceError, match=rf"bad.tfrecord, record at byte {bad_record * size}: .*{complaint}"):
        source.read((str(path), bad_record * size))
    info = convert(source, tmp_path / "out", settings={}, skip_bad=True)
    assert info.num_scenes == len(readable)
    assert info.rejected == {"SourceError": 1}
    with pytest.raises(SourceError):
        convert(source, tmp_path / "strict", settings={})


def test_the_search_for_the_next_header_crosses_the_pieces_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "bad.tfrecord", bytes(1000), b"b" * 300, b"c" * 200)
    content = flip(path.read_bytes(), 3)
    path.write_bytes(content)
    for piece in (13, 64, 1016, 1 << 20):
        monkeypatch.setattr("waycode.sources.womd.tfrecord._CHUNK_BYTES", piece)
        assert record_offsets(path) == [0, 1016, 1332]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"", "truncated or empty", id="an empty file"),
        pytest.param(b"no record at all", "length's checksum", id="another kind of file"),
        pytest.param(framed(b"\x0a\x05\x0a\x03abc"), "tf.Example", id="a tf.Example"),
        pytest.param(framed(b""), "no tracks", id="an empty record"),
    ],
)
def test_files_without_a_scenario(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "other.tfrecord"
    path.write_bytes(content)
    assert WomdSource(path).references() == [(str(path), 0)]
    with pytest.raises(SourceError, match=complaint):
        next(womd.read(path))


def test_gzip_and_missing_files_are_refused_at_once(tmp_path: Path) -> None:
    packed = tmp_path / "packed.tfrecord"
    packed.write_bytes(gzip.compress(framed(b"some payload that is long enough")))
    with pytest.raises(SourceError, match="compressed with gzip"):
        WomdSource(packed).references()
    with pytest.raises(SourceError, match="compressed with gzip"):
        read_record(packed, 0)
    with pytest.raises(SourceError, match="nowhere does not exist"):
        WomdSource(tmp_path / "nowhere").references()
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"holds no file that matches \*.tfrecord"):
        WomdSource(tmp_path / "empty").references()


def test_parts_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    scenario = small_scenario()
    del scenario.tracks[0].states[-1]
    path = write(tmp_path / "odd.tfrecord", scenario.SerializeToString())
    with pytest.raises(SourceError, match=r"byte 0: track 70 has 11 states, expected 12"):
        next(womd.read(path))
    scenario = small_scenario()
    scenario.sdc_track_index = 9
    path = write(tmp_path / "odd.tfrecord", scenario.SerializeToString())
    with pytest.raises(SourceError, match="track 9, but there are 3 tracks"):
        next(womd.read(path))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    payload = bytes(200_000)
    path = write(tmp_path / "long.tfrecord", *[payload] * 30)
    tracemalloc.start()
    try:
        for offset in record_offsets(path):
            assert len(read_record(path, offset)) == len(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(payload)


@pytest.mark.parametrize(("module", "package"), [("crc32c", "crc32c"), ("google.protobuf.descriptor_pool", "protobuf")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    scenario_class.cache_clear()
    call = scenario_class if package == "protobuf" else lambda: record_offsets(Path("some.tfrecord"))
    with pytest.raises(SourceError, match=rf"needs {package}: run `pip install 'waycode\[womd\]'`"):
        call()


@pytest.mark.real_data
def test_the_real_scenario(shared_data: Path) -> None:
    source = WomdSource(shared_data / "womd-tfrecord")
    (reference,) = source.references()
    scene = source.read(reference)
    assert (scene.id, scene.num_steps, scene.dt_s, scene.current_step) == ("637f20cafde22ff8", 91, 0.1, 10)
    assert (len(scene.tracks), scene.tracks.ego_index) == (83, 82)
    assert scene.tracks.to_predict.tolist() == [72, 43, 42]
    counts = {kind: int((scene.tracks.types == kind).sum()) for kind in TrackType}
    assert counts == {TrackType.VEHICLE: 70, TrackType.PEDESTRIAN: 10, TrackType.CYCLIST: 3, TrackType.OTHER: 0}
    features = scene.map
    assert len(features.lanes) == 198  # of 199: one has a single point
    assert len(features.lanes.successors) == 192  # of 193: one leads to that lane
    assert len(features.lanes.left_neighbours) == len(features.lanes.right_neighbours) == 191
    assert set(np.unique(np.round(features.lanes.speed_limit_mps / 0.44704))) == {0, 10, 15, 40, 45}
    assert (len(features.road_edges), len(features.road_lines)) == (28, 58)  # of 59 lines, one has a single point
    assert len(features.stop_signs) == 8
    assert (len(features.crosswalks), len(features.speed_bumps), len(features.driveways)) == (4, 3, 0)
    assert len(features.stop_signs.controls) == 8
    assert scene.signals.valid.sum(axis=0).max() == 12


@pytest.mark.real_data
def test_the_real_scenario_hangs_together(shared_data: Path) -> None:
    source = WomdSource(shared_data / "womd-tfrecord")
    report = check_source(source)
    assert report.passed, report.faults
    (scene,) = womd.read(shared_data / "womd-tfrecord")
    tracks = scene.tracks
    moving = tracks.valid[:, 1:] & tracks.valid[:, :-1] & (tracks.speed_mps[:, 1:] > 2)
    step_m = np.linalg.norm(np.diff(tracks.position_m, axis=1), axis=-1)
    assert np.median(np.abs(step_m - 0.1 * tracks.speed_mps[:, 1:])[moving]) < 0.05
    lines = scene.map.lanes.centrelines
    for before, after in scene.map.lanes.successors.tolist():
        assert np.linalg.norm(lines[before][-1] - lines[after][0]) < 0.01
    for lane, point in zip(scene.signals.lanes.tolist(), scene.signals.stop_point_m, strict=True):
        assert np.linalg.norm(lines[lane] - point, axis=1).min() < 2.0
