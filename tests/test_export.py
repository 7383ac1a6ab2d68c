"""Exports are read back: by our own sources, and by the format's own library where it is installed."""

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from command_output import Output, complaint_of
from fuzz_text import example_plan
from scenes import bare_scene, small_scene
from waycode.cli import main
from waycode.dataset.dataset import save_scene
from waycode.demo import bundled_dataset
from waycode.planner import Plan, PlannerError
from waycode.scene import Scene, SignalState, TrackType
from waycode.sources import SourceError
from waycode.sources.export import ExportFormat, export_scenes
from waycode.sources.gpudrive import GpuDriveSource
from waycode.sources.nuplan import NuplanSource
from waycode.sources.womd import WomdSource


def scenes() -> list[Scene]:
    return [bundled_dataset()[0], bundled_dataset()[5], small_scene("$odd/../id", num_steps=30)]


def world_m(scene: Scene, row: int) -> np.ndarray:
    valid = scene.tracks.valid[row]
    return scene.tracks.position_m[row, valid].astype(np.float64) + np.asarray(scene.origin_m)


def assert_same_tracks(before: Scene, after: Scene, tolerance_m: float = 0.0011) -> None:
    seen = np.flatnonzero(before.tracks.valid.any(axis=1)).tolist()  # tracks that were never observed are left out
    assert len(after.tracks) == len(seen)
    assert after.tracks.ego_index == (None if before.tracks.ego_index is None else seen.index(before.tracks.ego_index))
    assert after.tracks.to_predict.tolist() == [seen.index(track) for track in before.tracks.to_predict.tolist()]
    for new, old in enumerate(seen):
        np.testing.assert_array_equal(after.tracks.valid[new], before.tracks.valid[old])
        np.testing.assert_allclose(world_m(after, new), world_m(before, old), rtol=0, atol=tolerance_m)
    kinds = ("types", "length_m", "width_m")
    for name in (*kinds, "heading_rad", "vx_mps", "vy_mps"):
        np.testing.assert_allclose(getattr(after.tracks, name), getattr(before.tracks, name)[seen], rtol=0, atol=2e-3)


def assert_same_lines(before: Scene, after: Scene) -> None:
    shift = np.asarray(before.origin_m) - np.asarray(after.origin_m)
    for name in ("road_lines", "road_edges", "crosswalks", "speed_bumps", "driveways"):
        one, other = getattr(before.map, name), getattr(after.map, name)
        np.testing.assert_array_equal(one.starts, other.starts)
        np.testing.assert_allclose(other.points_m, one.points_m + shift, rtol=0, atol=2e-3)
    np.testing.assert_array_equal(after.map.road_line_types, before.map.road_line_types)
    assert len(after.map.stop_signs) == len(before.map.stop_signs)
    one, other = before.map.lanes.centrelines, after.map.lanes.centrelines
    np.testing.assert_allclose(other.points_m, one.points_m + shift, rtol=0, atol=2e-3)
    np.testing.assert_array_equal(after.signals.lanes, before.signals.lanes)
    np.testing.assert_array_equal(after.signals.states, before.signals.states)


def test_womd_is_read_back(tmp_path: Path) -> None:
    (path,) = export_scenes(scenes(), tmp_path, form="womd")
    source = WomdSource(path)
    read = [source.read(reference) for reference in source.references()]
    assert len(read) == 3
    for before, after in zip(scenes(), read, strict=True):
        after.validate()
        assert (after.id, after.dt_s, after.current_step) == (before.id, before.dt_s, before.current_step)
        assert_same_tracks(before, after)
        assert_same_lines(before, after)
        one, other = before.map.lanes, after.map.lanes
        for name in ("successors", "types", "in_junction", "speed_limit_known", "left_neighbours", "right_neighbours"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
        np.testing.assert_allclose(other.speed_limit_mps, one.speed_limit_mps, rtol=1e-6)
        np.testing.assert_array_equal(after.map.stop_signs.controls, before.map.stop_signs.controls)


def test_gpudrive_is_read_back(tmp_path: Path) -> None:
    paths = export_scenes(scenes(), tmp_path, form="gpudrive")
    assert [path.name for path in paths][2] == "00002-_odd_.._id.json"
    for before, path in zip(scenes(), paths, strict=True):
        after = GpuDriveSource(tmp_path).read(str(path))
        after.validate()
        assert after.id == before.id
        assert_same_tracks(before, after)
        assert_same_lines(before, after)


def test_nuplan_is_read_back(tmp_path: Path) -> None:
    before = [bundled_dataset()[index] for index in (0, 3, 12)]  # no junction is cut by the map's border
    *logs, map_file = export_scenes(before, tmp_path, form="nuplan")
    source = NuplanSource(tmp_path / "nuplan-v1.1", tmp_path / "maps", history_s=1.0, future_s=7.0, map_radius_m=400.0)
    assert [Path(reference.log) for reference in source.references()] == logs
    assert map_file.parent.parent.name == "us-nv-las-vegas-strip"
    for scene, reference in zip(before, source.references(), strict=True):
        after = source.read(reference)
        after.validate()
        assert_same_scene_of_nuplan(scene, after)


def assert_same_scene_of_nuplan(before: Scene, after: Scene) -> None:
    """Tracks, lanes and their graph, lights, route and drivable area; the ego comes first and is nuPlan's car."""
    steps = slice(before.current_step - after.current_step, before.current_step - after.current_step + after.num_steps)
    ego = before.tracks.ego_index
    assert ego is not None
    seen = [i for i in range(len(before.tracks)) if i != ego and before.tracks.valid[i, steps].any()]
    order, tracks = [ego, *seen], after.tracks
    assert len(tracks) == len(order)
    valid = before.tracks.valid[order, steps]
    np.testing.assert_array_equal(tracks.valid, valid)
    moved_m = (before.tracks.position_m[order, steps] - tracks.position_m)[valid]
    assert np.ptp(moved_m, axis=0).max() < 3e-3  # the scene frame may lie elsewhere
    shift_m = np.median(moved_m, axis=0)
    for name, most in (("heading_rad", 2e-3), ("vx_mps", 2e-2), ("vy_mps", 2e-2)):
        np.testing.assert_allclose(getattr(tracks, name), getattr(before.tracks, name)[order, steps], atol=most, rtol=0)
    for name in ("types", "length_m", "width_m"):
        np.testing.assert_allclose(getattr(tracks, name)[1:], getattr(before.tracks, name)[seen], atol=1e-6)
    assert (tracks.length_m[0], tracks.width_m[0]) == (np.float32(5.176), np.float32(2.297))

    def lanes_of(scene: Scene, shift: np.ndarray) -> list[shapely.LineString]:
        return [shapely.LineString(line + shift) for line in scene.map.lanes.centrelines.as_list()]

    def through(scene: Scene, lane: int) -> bool:
        """Whether a lane lies in a junction and between two others: the border of the map cuts some."""
        graph = scene.map.lanes.graph
        between = len(graph.successors[lane]) and len(graph.predecessors[lane])
        return bool(scene.map.lanes.in_junction[lane] and between)

    old, new = lanes_of(before, np.zeros(2)), lanes_of(after, shift_m)
    whole_old, whole_new = shapely.union_all(old), shapely.union_all(new)
    assert shapely.hausdorff_distance(whole_old, whole_new) < 0.01
    # Lanes between junctions are the same ones, in the same order of groups, with their limits and widths.
    matched = {}
    for i in (i for i in range(len(old)) if not through(before, i)):
        streets = np.flatnonzero(~after.map.lanes.in_junction).tolist()
        near = [min(streets, key=lambda j, i=i: new[j].hausdorff_distance(old[i]))]  # type: ignore[misc]
        assert new[near[0]].hausdorff_distance(old[i]) < 0.6  # a lane that goes into another gives it 0.5 m
        (matched[i],) = near
        for name in ("speed_limit_mps", "speed_limit_known"):
            assert getattr(after.map.lanes, name)[near[0]] == pytest.approx(
                getattr(before.map.lanes, name)[i], abs=1e-4
            )
        if before.map.lanes.width_known[i]:
            assert after.map.lanes.width_m[near[0]] == pytest.approx(before.map.lanes.width_m[i], abs=0.05)

    def reached(scene: Scene, lane: int) -> set[int]:
        """Lanes between junctions that come next."""
        found, waiting = set(), list(scene.map.lanes.graph.successors[lane])
        while waiting:
            after_it = int(waiting.pop())
            if through(scene, after_it):
                waiting += scene.map.lanes.graph.successors[after_it]
            else:
                found.add(after_it)
        return found

    for i, j in matched.items():
        assert {matched[k] for k in reached(before, i)} == reached(after, j)
    left = {(matched[a], matched[b]) for a, b in before.map.lanes.left_neighbours.tolist() if a in matched}
    assert left == {tuple(pair) for pair in after.map.lanes.left_neighbours.tolist()}
    assert before.route is not None
    assert after.route is not None
    on_street = {matched[lane] for lane in before.route.lanes.tolist() if lane in matched}
    assert on_street <= set(after.route.lanes.tolist())
    areas = [
        shapely.union_all([shapely.Polygon(ring + shift).buffer(0.01) for ring in scene.map.drivable_areas.as_list()])
        for scene, shift in ((before, np.zeros(2)), (after, shift_m))
    ]
    assert areas[0].symmetric_difference(areas[1]).area < 0.03 * areas[0].area
    assert len(after.map.stop_signs) == len(before.map.stop_signs)
    assert len(after.map.crosswalks) == len(before.map.crosswalks)
    assert (len(after.signals) > 0) == (len(before.signals) > 0)


def test_nuplan_needs_an_ego_and_time(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no ego, expected one"):
        export_scenes([bare_scene()], tmp_path, form="nuplan")
    with pytest.raises(SourceError, match="no ego at step 31 of 5"):
        export_scenes([small_scene()], tmp_path, form="nuplan")


def test_nuplan_keeps_what_a_cropped_map_cuts(tmp_path: Path) -> None:
    """A light on a lane that ends within the junction, a lane that goes directly into another, and own tags."""
    scene = small_scene("$odd/../id", num_steps=60)
    export_scenes([scene], tmp_path, form="nuplan")
    source = NuplanSource(tmp_path, tmp_path / "maps", history_s=0.1, future_s=4.0)
    (reference,) = source.references()
    after = source.read(reference)
    after.validate()
    assert set(scene.tags) < set(after.tags)
    lanes = after.map.lanes
    assert lanes.ids == ("lane_1", "lane_2", "lane_3", "connector_10000001")
    np.testing.assert_allclose(
        [line[-1, 0] - line[0, 0] for line in lanes.centrelines.as_list()], [20, 19.5, 20, 0.5], atol=2e-3
    )
    assert lanes.successors.tolist() == [[1, 3], [3, 2]]


class _PlainUnpickler(pickle.Unpickler):
    """Allows the one name that our pickles need."""

    def find_class(self, module: str, name: str) -> Any:
        assert (module, name) == ("numpy", "array")
        return np.array


def unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        return _PlainUnpickler(file).load()


def test_scenarionet_is_read_back(tmp_path: Path) -> None:
    *paths, summary, mapping = export_scenes(scenes(), tmp_path, form="scenarionet")
    assert [summary.name, mapping.name] == ["dataset_summary.pkl", "dataset_mapping.pkl"]
    assert unpickled(mapping) == {path.name: "" for path in paths}
    assert list(unpickled(summary)) == [path.name for path in paths]
    assert [path.name for path in paths][2] == "sd_waycode_1_00002-_odd_.._id.pkl"
    for before, path in zip(scenes(), paths, strict=True):
        content = unpickled(path)
        metadata, tracks, lanes = content["metadata"], before.tracks, before.map.lanes
        assert (content["id"], content["length"]) == (before.id, before.num_steps)
        assert metadata["current_time_index"] == before.current_step
        np.testing.assert_allclose(np.diff(metadata["ts"]), before.dt_s, atol=1e-5)
        assert metadata["waycode"]["origin_m"] == list(before.origin_m)
        assert unpickled(summary)[path.name]["ts"] == metadata["ts"].tolist()
        seen = [row for row in range(len(tracks)) if tracks.valid[row].any()]
        assert list(content["tracks"]) == [tracks.ids[row] for row in seen]
        assert tracks.ego_index is not None
        assert metadata["sdc_id"] == tracks.ids[tracks.ego_index]
        assert list(metadata["tracks_to_predict"]) == [tracks.ids[row] for row in tracks.to_predict.tolist()]
        for row in seen:
            track, valid = content["tracks"][tracks.ids[row]], tracks.valid[row]
            state = track["state"]
            assert track["type"] == TrackType(int(tracks.types[row])).name
            assert {(value.dtype, len(value)) for name, value in state.items() if name != "valid"} == {
                (np.dtype(np.float32), before.num_steps)
            }
            np.testing.assert_array_equal(state["valid"], valid)
            np.testing.assert_array_equal(state["position"][:, :2], tracks.position_m[row])
            np.testing.assert_array_equal(state["heading"], tracks.heading_rad[row])
            np.testing.assert_array_equal(state["velocity"][:, 0], tracks.vx_mps[row])
            np.testing.assert_array_equal(state["length"], tracks.length_m[row] * valid)
            about = metadata["object_summary"][tracks.ids[row]]
            assert about["valid_length"] == valid.sum() >= about["continuous_valid_length"] > 0
        features = content["map_features"]
        for lane, lane_id in enumerate(lanes.ids):
            feature = features[lane_id]
            np.testing.assert_array_equal(feature["polyline"][:, :2], lanes.centrelines[lane])
            assert set(feature["exit_lanes"]) == {lanes.ids[b] for a, b in lanes.successors.tolist() if a == lane}
            assert set(feature["entry_lanes"]) == {lanes.ids[a] for a, b in lanes.successors.tolist() if b == lane}
            assert set(feature["left_neighbor"]) == {
                lanes.ids[b] for a, b in lanes.left_neighbours.tolist() if a == lane
            }
            assert ("speed_limit_kmh" in feature) == lanes.speed_limit_known[lane]
            if lanes.width_known[lane]:
                np.testing.assert_allclose(feature["width"].sum(axis=1), lanes.width_m[lane], rtol=1e-5)
        kinds = Counter(feature["type"] for feature in features.values())
        for name in ("crosswalks", "speed_bumps", "driveways", "stop_signs"):
            assert kinds[name.removesuffix("s").upper()] == len(getattr(before.map, name))
        for prefix, lines in (("road_line_", before.map.road_lines), ("road_edge_", before.map.road_edges)):
            for number, line_m in enumerate(lines.as_list()):
                np.testing.assert_array_equal(features[f"{prefix}{number}"]["polyline"][:, :2], line_m)
        assert list(content["dynamic_map_states"]) == [lanes.ids[lane] for lane in before.signals.lanes.tolist()]
        for row, light in enumerate(content["dynamic_map_states"].values()):
            np.testing.assert_array_equal(light["stop_point"][:2], before.signals.stop_point_m[row])
            for step, state in enumerate(light["state"]["object_state"]):
                observed = bool(before.signals.valid[row, step])
                expected = SignalState(int(before.signals.states[row, step])).name
                assert state == (f"LANE_STATE_{expected}" if observed else None)


def test_scenarionet_keeps_lanes_with_the_names_of_other_features(tmp_path: Path) -> None:
    scene = small_scene("a", num_steps=30)
    lanes = replace(scene.map.lanes, ids=("road_line_0", "road_line_1", "road_edge_0")[: len(scene.map.lanes)])
    path, *_ = export_scenes([replace(scene, map=replace(scene.map, lanes=lanes))], tmp_path, form="scenarionet")
    features = unpickled(path)["map_features"]
    features_before = unpickled(export_scenes([scene], tmp_path, form="scenarionet")[0])["map_features"]
    assert len(features) == len(features_before)
    assert features["road_line_0"]["type"].startswith("LANE_")


def test_commonroad_is_read_back(tmp_path: Path) -> None:
    """In a process of its own, with the older protobuf of commonroad-io: see tests/commonroad_run.py."""
    here = Path(__file__).parent
    installed = here.parent / "build" / "commonroad"
    if not (installed / "commonroad").is_dir():
        pytest.skip("commonroad-io is not here: `make commonroad` installs it")
    path = os.pathsep.join(map(str, [installed, here.parent / "src", here]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", here / "commonroad_run.py", tmp_path / "out"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["3 scenes read back"]), done.stderr


def test_without_commonroad_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "commonroad.common.file_writer", None)
    with pytest.raises(SourceError, match="pip install commonroad-io"):
        export_scenes([bare_scene()], tmp_path, form="commonroad")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["womd", "gpudrive", "nuplan", "scenarionet"])
def test_the_command(tmp_path: Path, capsys: Output, form: ExportFormat) -> None:
    folder, out = str(bundled_dataset().folder), tmp_path / "out"
    assert main(["data", "export", folder, "--to", form, "--out", str(out), "--index", "0", "3", "--json"]) == 0
    files = [Path(name) for name in json.loads(capsys.readouterr().out)["files"]]
    assert len(files) == {"womd": 1, "gpudrive": 2, "nuplan": 3, "scenarionet": 4}[form]
    assert all(file.stat().st_size > 10_000 for file in files if not file.name.startswith("dataset_"))
    assert main(["data", "export", str(tmp_path / "no"), "--to", form, "--out", str(out)]) == 2
    assert "is not a dataset" in complaint_of(capsys)


def test_a_plan_becomes_the_future_of_its_agent(tmp_path: Path, capsys: Output) -> None:
    scene = small_scene("a", num_steps=8)
    plan = replace(example_plan(), scene_id="a", agent_id="car", x_m=scene.origin_m[0] + np.arange(1.0, 9.0),
                   y_m=scene.origin_m[1] + np.zeros(8), speed_mps=np.full(8, 10.0))  # fmt: skip
    planned = plan.in_scene(scene)
    planned.validate()
    np.testing.assert_array_equal(planned.tracks.x_m[0, 2:], np.arange(1.0, 7.0))
    np.testing.assert_array_equal(planned.tracks.x_m[1:], scene.tracks.x_m[1:])
    np.testing.assert_array_equal(planned.tracks.x_m[0, :2], scene.tracks.x_m[0, :2])
    with pytest.raises(PlannerError, match="which scene 'b' does not have"):
        plan.in_scene(small_scene("b"))
    save_scene(scene, tmp_path / "scene.parquet")
    (tmp_path / "plan.json").write_text(plan.to_json())
    options = ["--to", "womd", "--out", str(tmp_path), "--plan", str(tmp_path / "plan.json")]
    assert main(["data", "export", str(tmp_path / "scene.parquet"), "--index", "0", *options]) == 0
    (read,) = [WomdSource(tmp_path).read(reference) for reference in WomdSource(tmp_path).references()]
    np.testing.assert_allclose(world_m(read, 0)[2:, 0], plan.x_m[:6], atol=1e-3)
    assert main(["data", "export", str(tmp_path / "scene.parquet"), *options]) == 2
    capsys.readouterr()
    assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()
