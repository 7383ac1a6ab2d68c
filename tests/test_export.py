"""Exports are read back: by our own sources, and by the format's own library where it is installed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_output import Output, complaint_of
from fuzz_targets import example_plan
from scenes import bare_scene, small_scene
from waycode.cli import main
from waycode.dataset.dataset import save_scene
from waycode.demo import bundled_dataset
from waycode.planner import Plan, PlannerError
from waycode.scene import Scene
from waycode.sources import SourceError
from waycode.sources.export import ExportFormat, export_scenes
from waycode.sources.gpudrive import GpuDriveSource
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


@pytest.mark.filterwarnings("ignore")  # of commonroad-io and its protobuf
def test_commonroad_is_read_back(tmp_path: Path) -> None:
    reason = "commonroad-io is not here: it needs protobuf 3.20, which the reader of WOMD does not run with"
    try:
        from commonroad.common.file_reader import CommonRoadFileReader
    except (ImportError, TypeError):  # a TypeError of protobuf
        pytest.skip(reason)
    for before, path in zip(scenes(), export_scenes(scenes(), tmp_path, form="commonroad"), strict=True):
        scenario, _ = CommonRoadFileReader(str(path)).open()
        lanes, tracks, first = before.map.lanes, before.tracks, before.current_step
        assert len(scenario.lanelet_network.lanelets) == len(lanes)
        pairs = {
            (one.lanelet_id - 1, other - 1) for one in scenario.lanelet_network.lanelets for other in one.successor
        }
        assert pairs == {tuple(pair) for pair in lanes.successors.tolist()}
        observed = np.flatnonzero(tracks.valid[:, first]).tolist()
        assert len(scenario.dynamic_obstacles) == len(observed)
        for row, obstacle in zip(observed, scenario.dynamic_obstacles, strict=True):
            for step in range(first, before.num_steps):
                state = obstacle.state_at_time(step - first)
                if state is None:
                    assert not tracks.valid[row, first : step + 1].all()
                    break
                expected = tracks.position_m[row, step].astype(np.float64) + np.asarray(before.origin_m)
                np.testing.assert_allclose(state.position, expected, rtol=0, atol=1e-3)


def test_without_commonroad_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "commonroad.common.file_writer", None)
    with pytest.raises(SourceError, match="pip install commonroad-io"):
        export_scenes([bare_scene()], tmp_path, form="commonroad")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["womd", "gpudrive"])
def test_the_command(tmp_path: Path, capsys: Output, form: ExportFormat) -> None:
    folder, out = str(bundled_dataset().folder), tmp_path / "out"
    assert main(["data", "export", folder, "--to", form, "--out", str(out), "--index", "0", "3", "--json"]) == 0
    files = [Path(name) for name in json.loads(capsys.readouterr().out)["files"]]
    assert len(files) == (1 if form == "womd" else 2)
    assert all(file.stat().st_size > 10_000 for file in files)
    assert main(["data", "export", str(tmp_path / "no"), "--to", form, "--out", str(out)]) == 2
    assert "does not exist" in complaint_of(capsys)


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
