"""The nuPlan reader, on files of nuPlan's schema whose content is known. No real file was available."""

import pickle
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import shapely

import nuplan_files as files
from waycode.scene import LaneType, LineType, Scene, SignalState, TrackType
from waycode.sources import check_source, convert, nuplan
from waycode.sources.base import SourceError
from waycode.sources.nuplan import NuplanReference, NuplanSource
from waycode.sources.nuplan.crop import crop_map
from waycode.sources.nuplan.log import window_frames
from waycode.sources.nuplan.maps import city_map

FIRST_FRAME = 60  # of the scene around frame 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nuplan")
    files.write_map(folder / "maps")
    files.write_log(folder / "log.db")
    return folder


@pytest.fixture(scope="module")
def source(folder: Path) -> NuplanSource:
    return NuplanSource(folder / "log.db", folder / "maps")


@pytest.fixture(scope="module")
def scene(source: NuplanSource) -> Scene:
    return source.read(source.references()[0])


def frame_of(reference: NuplanReference) -> int:
    return int(reference.token[2:], 16)


def times_s() -> np.ndarray:
    return np.array([files.frame_time_us(FIRST_FRAME + 2 * i) - files.FIRST_US for i in range(101)]) / 1e6


def local_m(scene: Scene, points_m: np.ndarray) -> np.ndarray:
    """From the scene frame to that of the junction."""
    return points_m.astype(np.float64) + np.array(scene.origin_m) - files.CENTRE_M


def lane_pairs(scene: Scene, name: str) -> set[tuple[str, str]]:
    lanes = scene.map.lanes
    return {(lanes.ids[a], lanes.ids[b]) for a, b in getattr(lanes, name)}


def test_source_passes_the_checks(source: NuplanSource) -> None:
    report = check_source(source)
    assert report.faults == ()
    assert report.num_checked == 2
    assert len(pickle.dumps(source)) < 1000  # the map that it has read is not in it


def test_read_gives_every_scene(folder: Path) -> None:
    scenes = nuplan.read(folder, folder / "maps")
    assert [scene.id for scene in scenes] == ["log_04000000000000a0", "log_040000000000012c"]


def test_scenes_are_the_tagged_frames_with_a_whole_history_and_future(source: NuplanSource) -> None:
    assert [frame_of(reference) for reference in source.references()] == [100, 240]


def test_a_longer_future_fits_around_fewer_frames(folder: Path) -> None:
    source = NuplanSource(folder, folder / "maps", future_s=15.0)
    assert [frame_of(reference) for reference in source.references()] == [100]
    assert source.read(source.references()[0]).num_steps == 171


def test_frames_every_few_seconds(folder: Path) -> None:
    source = NuplanSource(folder, folder / "maps", every_s=5.0)
    assert [frame_of(reference) for reference in source.references()] == [40, 140, 240]
    tagged = NuplanSource(folder, folder / "maps", every_s=5.0, scenario_types=("on_intersection",))
    assert [frame_of(reference) for reference in tagged.references()] == [240]


def test_scenario_types_choose_among_the_tags(folder: Path) -> None:
    source = NuplanSource(folder, folder / "maps", scenario_types=("starting_left_turn",))
    assert [frame_of(reference) for reference in source.references()] == [100]
    with pytest.raises(SourceError, match="no frame has a tag of parking; there are near_multiple_vehicles, on_inter"):
        NuplanSource(folder, folder / "maps", scenario_types=("parking",)).references()


def test_steps_and_tags(scene: Scene) -> None:
    assert (scene.num_steps, scene.current_step, scene.dt_s) == (101, 20, 0.1)
    assert scene.tags == ("near_multiple_vehicles", "starting_left_turn")


def test_ego_is_the_centre_of_its_box(scene: Scene) -> None:
    tracks = scene.tracks
    assert (tracks.ego_index, tracks.ids[0], tracks.to_predict.tolist()) == (0, "ego", [0])
    assert (tracks.length_m[0], tracks.width_m[0]) == (np.float32(5.176), np.float32(2.297))
    assert tracks.valid[0].all()
    x, y, heading, yaw_rate = np.array([files.ego_pose(time_s) for time_s in times_s()]).T
    centre = np.stack([x + 1.461 * np.cos(heading), y + 1.461 * np.sin(heading)], axis=-1)
    np.testing.assert_allclose(local_m(scene, tracks.position_m[0]), centre, atol=1e-3)
    np.testing.assert_allclose(tracks.heading_rad[0], heading, atol=1e-4)
    sideways = 1.461 * yaw_rate
    velocity_x = 8 * np.cos(heading) - sideways * np.sin(heading)
    velocity_y = 8 * np.sin(heading) + sideways * np.cos(heading)
    # Yaw rates are differences of the heading, and frames come a millisecond early or late.
    changes = np.diff(yaw_rate) != 0
    steady = ~(np.append(False, changes) | np.append(changes, False))
    np.testing.assert_allclose(tracks.vx_mps[0, steady], velocity_x[steady], atol=1e-2)
    np.testing.assert_allclose(tracks.vy_mps[0, steady], velocity_y[steady], atol=1e-2)
    assert heading.max() > 1  # most of the turn is in the window


def test_ego_velocity_is_the_derivative_of_its_position(scene: Scene) -> None:
    moved = np.diff(scene.tracks.position_m[0].astype(np.float64), axis=0)
    measured = moved / np.diff(times_s())[:, None]
    velocity = np.stack([scene.tracks.vx_mps[0], scene.tracks.vy_mps[0]], axis=-1)
    middle = (velocity[1:] + velocity[:-1]) / 2
    # Not where the circle begins and ends: the yaw rate, a central difference, changes over two steps there.
    jumps = np.abs(np.diff(velocity, axis=0)).max(axis=1) > 0.6
    steady = ~(jumps | np.append(jumps[1:], False) | np.append(False, jumps[:-1]))
    assert np.abs(measured - middle)[steady].max() < 0.05


def test_other_tracks(scene: Scene) -> None:
    tracks = scene.tracks
    rows = {int(track_id, 16) & 0xFF: i for i, track_id in enumerate(tracks.ids) if track_id != "ego"}
    cone, cyclist, pedestrian, car = (rows[i] for i in (files.CONE, files.CYCLIST, files.PEDESTRIAN, files.CAR))
    kinds = {
        cone: TrackType.OTHER,
        cyclist: TrackType.CYCLIST,
        pedestrian: TrackType.PEDESTRIAN,
        car: TrackType.VEHICLE,
    }
    assert {row: tracks.types[row] for row in kinds} == kinds
    assert (tracks.length_m[car], tracks.width_m[car]) == (np.float32(4.8), 2.0)
    np.testing.assert_allclose(local_m(scene, tracks.position_m[car])[:, 0], 90 - 6 * times_s(), atol=1e-3)
    np.testing.assert_allclose(np.abs(tracks.heading_rad[car]), np.pi, atol=1e-4)
    assert np.all(tracks.vx_mps[car] == -6)
    assert tracks.valid[cone].all()
    assert np.all(tracks.speed_mps[cone] == 0)
    seen = np.arange(FIRST_FRAME, 261, 2) >= 200
    assert np.array_equal(tracks.valid[pedestrian], seen)
    assert np.all(tracks.position_m[pedestrian][~seen] == 0)
    assert tracks.valid[cyclist].all()


def test_lanes_are_where_the_map_has_them(scene: Scene) -> None:
    lanes = scene.map.lanes
    index = {lane_id: i for i, lane_id in enumerate(lanes.ids)}
    assert set(index) == {f"lane_{i}" for i in files.LANES} | {f"connector_{i}" for i in files.CONNECTORS}
    for fid, (_, _, _, line) in files.CONNECTORS.items():
        centreline = local_m(scene, lanes.centrelines[index[f"connector_{fid}"]])
        np.testing.assert_allclose(centreline, shapely.get_coordinates(line), atol=2e-3)
    for fid, (_, _, line) in files.LANES.items():
        centreline = local_m(scene, lanes.centrelines[index[f"lane_{fid}"]])
        assert shapely.distance(shapely.points(centreline), line).max() < 2e-3
        into_junction = shapely.get_coordinates(line)[-1]
        if np.abs(into_junction).max() < 13:
            np.testing.assert_allclose(centreline[-1], into_junction, atol=2e-3)
    assert lanes.in_junction.tolist() == [lane_id.startswith("connector") for lane_id in lanes.ids]
    assert np.all(lanes.types == LaneType.STREET)


def test_lanes_end_at_the_radius(scene: Scene) -> None:
    lanes = scene.map.lanes
    path = shapely.linestrings(scene.tracks.position_m[0])
    start = lanes.centrelines[lanes.ids.index("lane_1")][0]
    assert shapely.distance(shapely.points(start), path) == pytest.approx(120, abs=0.5)


def test_speed_limits_and_widths(scene: Scene) -> None:
    lanes = scene.map.lanes
    unknown = [lanes.ids[i] for i in np.flatnonzero(~lanes.speed_limit_known)]
    assert unknown == ["lane_12", *(f"connector_{i}" for i in range(52, 59))]
    assert np.all(lanes.speed_limit_mps[lanes.speed_limit_known] == np.float32(files.SPEED_LIMIT_MPS))
    wide = [lanes.ids[i] for i in np.flatnonzero(lanes.width_known)]
    assert wide == [*(f"lane_{i}" for i in files.LANES), "connector_51"]
    np.testing.assert_allclose(lanes.width_m[lanes.width_known], 3.5, atol=5e-3)


def test_lane_graph(scene: Scene) -> None:
    joints = {(f"lane_{a}", f"connector_{i}") for i, (a, _, _, _) in files.CONNECTORS.items()}
    joints |= {(f"connector_{i}", f"lane_{b}") for i, (_, b, _, _) in files.CONNECTORS.items()}
    assert lane_pairs(scene, "successors") == joints
    left = {("lane_2", "lane_1"), ("lane_4", "lane_3"), ("lane_6", "lane_5"), ("lane_8", "lane_7")}
    assert lane_pairs(scene, "left_neighbours") == left
    assert lane_pairs(scene, "right_neighbours") == {(b, a) for a, b in left}


def test_no_joint_where_the_crop_has_cut(folder: Path) -> None:
    source = NuplanSource(folder, folder / "maps", map_radius_m=15.0)
    lanes = source.read(source.references()[0]).map.lanes  # the ego's way ends in the turn
    centrelines = lanes.centrelines.as_list()
    assert 0 < len(lanes.successors) < 16
    for before, after in lanes.successors:
        np.testing.assert_allclose(centrelines[before][-1], centrelines[after][0], atol=5e-3)


def test_road_lines(scene: Scene) -> None:
    lines, kinds = [local_m(scene, line) for line in scene.map.road_lines.as_list()], scene.map.road_line_types
    dividers = [lines[i] for i in np.flatnonzero(kinds == LineType.BROKEN_SINGLE_WHITE)]
    assert sorted(round(float(line[0, 1]), 1) for line in dividers) == [-3.5, -3.5, 3.5, 3.5]
    middles = [lines[i] for i in np.flatnonzero(kinds == LineType.UNKNOWN)]  # between the directions, paint unknown
    assert len(middles) == 4
    assert all(np.abs(line).min(axis=0).min() < 5e-3 for line in middles)


def test_road_edges_run_along_the_road_and_never_across(scene: Scene) -> None:
    rings = [local_m(scene, edge) for edge in scene.map.road_edges.as_list()]
    edges = shapely.multilinestrings([shapely.linestrings(ring) for ring in rings])
    lanes = [shapely.linestrings(local_m(scene, line)) for line in scene.map.lanes.centrelines.as_list()]
    assert not shapely.intersects(lanes, edges).any()
    island = [ring for ring in rings if np.allclose(ring.min(axis=0), [55, 20], atol=0.01)]
    assert len(island) == 1
    np.testing.assert_allclose(island[0].max(axis=0), [60, 25], atol=0.01)
    assert shapely.distance(edges, shapely.points(10, -55)) < 0.01  # the far end of the driveway
    assert shapely.distance(edges, shapely.points(3.5, -55)) > 4  # its opening to the road
    assert shapely.distance(edges, shapely.points(3.5, -30)) < 0.01  # the roadside


def test_drivable_areas_leave_holes_out(scene: Scene) -> None:
    polygons = [shapely.polygons(local_m(scene, ring)) for ring in scene.map.drivable_areas.as_list()]
    arms = 2 * 188 * 14 + 2 * 188 * 7
    expected = arms + 24 * 24 + 6.5 * 10 + files.CAR_PARK.area
    assert sum(polygon.area for polygon in polygons) == pytest.approx(expected, rel=1e-3)
    assert not any(polygon.contains(shapely.points(57.5, 22.5)) for polygon in polygons)


def test_crosswalks_speed_bumps_and_stop_signs(scene: Scene) -> None:
    assert len(scene.map.crosswalks) == 1
    np.testing.assert_allclose(local_m(scene, scene.map.crosswalks[0]).min(axis=0), [-17, -7], atol=5e-3)
    assert len(scene.map.speed_bumps) == 1
    signs = scene.map.stop_signs
    np.testing.assert_allclose(local_m(scene, signs.position_m), [[-1.75, 13]], atol=5e-3)
    assert {scene.map.lanes.ids[lane] for _, lane in signs.controls} == {"lane_11", "connector_56"}


def test_signals_are_those_of_the_connectors(scene: Scene) -> None:
    signals = scene.signals
    row = {scene.map.lanes.ids[lane]: i for i, lane in enumerate(signals.lanes)}
    assert set(row) == {"connector_51", "connector_53", "connector_57"}
    turn = row["connector_57"]
    green = np.arange(FIRST_FRAME, 261, 2) >= 200
    assert np.array_equal(signals.states[turn], np.where(green, SignalState.GO, SignalState.STOP))
    assert np.all(signals.states[row["connector_53"]] == SignalState.UNKNOWN)
    assert signals.valid.all()
    np.testing.assert_allclose(local_m(scene, signals.stop_point_m[turn]), [-12, -1.75], atol=5e-3)


def test_route_goes_through_the_roadblocks(scene: Scene) -> None:
    assert scene.route is not None
    assert [scene.map.lanes.ids[lane] for lane in scene.route.lanes] == ["lane_1", "lane_2", "connector_57", "lane_10"]
    assert scene.route.sections.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("missing", "masked_steps"),
    [([130], [35]), ([131], []), (range(130, 136), [35, 36, 37]), ([164, 190], [52, 65])],
    ids=["one", "between steps", "three in a row", "two apart"],
)
def test_missing_frames_are_masked_steps(
    folder: Path, tmp_path: Path, missing: list[int], masked_steps: list[int]
) -> None:
    source = NuplanSource(files.write_log(tmp_path / "gap.db", missing=missing), folder / "maps")
    scene = source.read(source.references()[0])
    scene.validate()
    seen = ~np.isin(np.arange(101), masked_steps)
    assert np.array_equal(scene.tracks.valid[0], seen)
    assert np.array_equal(scene.signals.valid[0], seen)
    x = np.array([files.ego_pose(time_s)[0] for time_s in times_s()])
    np.testing.assert_allclose(local_m(scene, scene.tracks.position_m[0])[:20, 0], x[:20] + 1.461, atol=1e-3)


def test_windows_with_a_long_gap_are_not_offered(folder: Path, tmp_path: Path) -> None:
    source = NuplanSource(files.write_log(tmp_path / "gap.db", missing=range(130, 138)), folder / "maps")
    assert [frame_of(reference) for reference in source.references()] == [240]
    with pytest.raises(SourceError, match="does not cover 101 steps"):
        source.read(NuplanReference(str(tmp_path / "gap.db"), files.token(4, 100).hex()))


def test_steps_take_the_nearest_frame() -> None:
    times_us = np.array([0, 49_000, 101_000, 150_000, 203_000, 251_000, 299_000], np.int64)
    frames, good = window_frames(times_us, np.array([2]), np.array([-1, 0, 1, 2]))
    assert frames.tolist() == [[0, 2, 4, 6]]
    assert good.tolist() == [True]
    frames, good = window_frames(times_us, np.array([2, 6]), np.array([-2, 0]))
    assert frames.tolist() == [[-1, 2], [2, 6]]
    assert good.tolist() == [False, True]


def test_missing_maps_say_what_was_looked_for(folder: Path, tmp_path: Path) -> None:
    reference = NuplanSource(folder, folder / "maps").references()[0]
    with pytest.raises(SourceError, match=r"nowhere does not exist: expected nuPlan's maps, <location>/<version>/map"):
        NuplanSource(folder, tmp_path / "nowhere").read(reference)
    (tmp_path / "us-ma-boston").mkdir()
    with pytest.raises(SourceError, match=r"us-nv-las-vegas-strip/<version>/map.gpkg; .* has us-ma-boston"):
        NuplanSource(folder, tmp_path).read(reference)
    (tmp_path / files.LOCATION).mkdir()
    with pytest.raises(SourceError, match=r"has 0 files <version>/map.gpkg"):
        NuplanSource(folder, tmp_path).read(reference)


def test_the_list_of_versions_decides_between_maps(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "maps", tmp_path, dirs_exist_ok=True)
    (tmp_path / files.LOCATION / "9.14").mkdir()
    (tmp_path / files.LOCATION / "9.14" / "map.gpkg").write_bytes(b"")
    source = NuplanSource(folder, tmp_path)
    with pytest.raises(
        SourceError, match=r"has 0 files .* expected one, or .*nuplan-maps-v1.0.json to name the version"
    ):
        source.read(source.references()[0])
    (tmp_path / "nuplan-maps-v1.0.json").write_text(f'{{"{files.LOCATION}": {{"version": "{files.VERSION}"}}}}')
    source.read(source.references()[0]).validate()


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ({"without_table": "ego_pose"}, "has no table ego_pose; it has category, lidar, lidar_box"),
        ({"without_column": "lidar_box.yaw"}, "table lidar_box has no column yaw; it has .*'confidence'"),
    ],
)
def test_a_log_of_another_schema_is_named(folder: Path, tmp_path: Path, left_out: dict[str, str], message: str) -> None:
    log = files.write_log(tmp_path / "log.db", **left_out)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=message):
        NuplanSource(log, folder / "maps").references()


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ({"without_layer": "boundaries"}, "has no layer boundaries; it has baseline_paths"),
        ({"without_column": "lane_index"}, "layer lanes_polygons has no column lane_index; it has lane_group_fid"),
    ],
)
def test_a_map_of_another_schema_is_named(folder: Path, tmp_path: Path, left_out: dict[str, str], message: str) -> None:
    files.write_map(tmp_path, **left_out)
    source = NuplanSource(folder, tmp_path)
    with pytest.raises(SourceError, match=message):
        source.read(source.references()[0])


@pytest.mark.parametrize(
    "left_out",
    [{"without_layer": "speed_bumps"}, {"without_layer": "carpark_areas"}, {"without_column": "lane_fids"}],
    ids=lambda left_out: next(iter(left_out.values())),
)
def test_a_map_may_lack_what_not_every_city_has(folder: Path, tmp_path: Path, left_out: dict[str, str]) -> None:
    files.write_map(tmp_path, **left_out)
    source = NuplanSource(folder, tmp_path)
    scene = source.read(source.references()[0])
    scene.validate()
    assert len(scene.map.stop_signs.controls) == (1 if left_out.get("without_column") else 2)


def test_a_standing_ego_has_a_map_too(folder: Path) -> None:
    city = city_map(str(folder / "maps" / files.LOCATION / files.VERSION / "map.gpkg"))
    cropped = crop_map(city, np.tile(files.CENTRE_M, (5, 1)), radius_m=30.0, origin_m=(0.0, 0.0))
    assert len(cropped.features.lanes) == 20
    alone = crop_map(city, files.CENTRE_M[None] + 500.0, radius_m=30.0, origin_m=(0.0, 0.0))
    assert len(alone.features.lanes) == 0
    assert len(alone.features.road_edges) == 0
    assert alone.route(city, [100]) is None


def test_damaged_files_are_named(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "log.db").read_bytes()
    (tmp_path / "cut.db").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(SourceError, match=r"cut.db cannot be read as a nuPlan log \(.*\): is it a whole sqlite file"):
        NuplanSource(tmp_path / "cut.db", folder / "maps").references()
    (tmp_path / "text.db").write_text("not a database at all, but a text of some length" * 30)
    with pytest.raises(SourceError, match=r"text.db cannot be read"):
        NuplanSource(tmp_path / "text.db", folder / "maps").references()
    with pytest.raises(SourceError, match=r"absent.db does not exist"):
        NuplanSource(tmp_path / "absent.db", folder / "maps").references()
    file = tmp_path / files.LOCATION / "1" / "map.gpkg"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"nothing")
    with pytest.raises(SourceError, match=r"map.gpkg cannot be read as a nuPlan map"):
        NuplanSource(folder, tmp_path).read(NuplanSource(folder, folder / "maps").references()[0])


def test_the_extra_to_install_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder / "maps", tmp_path, dirs_exist_ok=True)
    source = NuplanSource(folder, tmp_path)
    monkeypatch.setitem(sys.modules, "pyogrio", None)
    with pytest.raises(SourceError, match=r"pip install 'waycode\[nuplan\]'"):
        source.read(source.references()[0])


def test_settings_are_checked(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"future_s is 0.0, expected a positive number"):
        NuplanSource(folder, folder, future_s=0.0)
    with pytest.raises(SourceError, match=r"maps holds no file that matches \*.db"):
        NuplanSource(folder / "maps", folder).references()


@pytest.mark.parametrize(
    "content",
    [
        '<OGRVRTDataSource><OGRVRTLayer name="a"><SrcDataSource>/a</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>',
        '{"type": "FeatureCollection", "features": []}',
        "http://localhost:1/map.gpkg",
    ],
    ids=["VRT", "GeoJSON", "an address"],
)
def test_gdal_sees_no_file_but_a_geopackage(
    folder: Path, tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyogrio

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("GDAL got the file")

    for name in ("list_layers", "read_info", "read_dataframe"):
        monkeypatch.setattr(pyogrio, name, refuse)
    file = tmp_path / files.LOCATION / "1" / "map.gpkg"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(SourceError, match=r"map.gpkg cannot be read as a nuPlan map: expected a GeoPackage"):
        NuplanSource(folder, tmp_path).read(NuplanSource(folder, folder / "maps").references()[0])


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE lidar_pc SET timestamp = 'noon' WHERE rowid = 5", "table lidar_pc"),
        ("UPDATE lidar_pc SET timestamp = NULL WHERE rowid = 5", "table lidar_pc"),
        ("UPDATE lidar_pc SET token = 'a' WHERE rowid = 5", "table lidar_pc: a token is 'a', expected bytes"),
        ("UPDATE scenario_tag SET type = 7 WHERE rowid = 1", ""),
        ("UPDATE ego_pose SET x = 'east'", "table ego_pose: column x holds 'east', expected a number"),
        ("UPDATE lidar_box SET yaw = 'north'", "table lidar_box: column yaw holds 'north', expected a number"),
        ("UPDATE traffic_light_status SET lane_connector_id = 'a'", "table traffic_light_status"),
        ("UPDATE scene SET roadblock_ids = x'00'", "table scene"),
    ],
)
def test_damaged_rows_are_named_with_their_table(folder: Path, tmp_path: Path, statement: str, sentence: str) -> None:
    log = Path(shutil.copy(folder / "log.db", tmp_path / "log.db"))
    with closing(sqlite3.connect(log)) as connection, connection:
        connection.execute(statement)
    source = NuplanSource(log, folder / "maps")
    try:
        for reference in source.references():
            source.read(reference)
    except SourceError as error:
        assert str(log) in str(error)  # noqa: PT017
        assert sentence in str(error)  # noqa: PT017
    else:
        assert not sentence


def test_one_bad_log_does_not_end_a_conversion(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    shutil.copy(folder / "log.db", tmp_path / "logs" / "good.db")
    (tmp_path / "logs" / "bad.db").write_text("not a database")
    source = NuplanSource(tmp_path / "logs", folder / "maps")
    assert len(source.references()) == 3
    with pytest.raises(SourceError, match=r"bad.db cannot be read as a nuPlan log"):
        convert(source, tmp_path / "none", settings={})
    info = convert(source, tmp_path / "data", settings={}, skip_bad=True)
    assert (info.num_scenes, dict(info.rejected)) == (2, {"SourceError": 1})
