"""What `waycode data info` and `waycode data check` find in datasets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenes import bare_scene, small_scene, traffic_scene
from waycode.dataset.checks import check_dataset
from waycode.dataset.dataset import DatasetError, ShardContents, write_dataset
from waycode.dataset.storage import write_shard
from waycode.dataset.summary import summarise, tally_scenes
from waycode.scene import Scene


def make_shard(task: list[Scene]) -> ShardContents:
    return ShardContents(task, {"overlap": len(task)})


def dataset_of(folder: Path, *shards: list[Scene]) -> Path:
    write_dataset(folder, list(shards), make=make_shard, source="made-up", settings={"seed": 3})
    return folder


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return dataset_of(tmp_path / "mixed", [small_scene("a", num_steps=91), bare_scene("b")], [small_scene("c")])


def test_scenes_road_users_and_features_are_counted(mixed: Path) -> None:
    summary = summarise(mixed)
    assert (summary.num_scenes, summary.num_shards, summary.source) == (3, 2, "made-up")
    assert summary.bytes_per_scene == pytest.approx(summary.num_bytes / 3)
    assert summary.steps == {2: 1, 5: 1, 91: 1}
    assert summary.dt_s == {0.1: 3}
    assert {kind: counts.total for kind, counts in summary.road_users.items()} == {
        "vehicle": 3, "pedestrian": 2, "cyclist": 2, "other": 2, "all": 9,
    }  # fmt: skip
    assert summary.road_users["vehicle"].to_predict == 2
    assert summary.road_users["all"].per_scene == pytest.approx(3)
    assert summary.map_features["lanes"] == 6
    assert summary.map_features["signalled lanes"] == 2
    assert summary.scenes_with["an ego"] == summary.scenes_with["a route"] == 2
    assert summary.tags == {"straße": 2, "test": 2}
    assert summary.rejected == {"overlap": 3}
    assert summary.settings["seed"] == 3


def test_motion_is_judged(mixed: Path) -> None:
    vehicles = summarise(mixed).road_users["vehicle"]
    assert vehicles.moving == 2  # 90 m in 9 s, and 4 m in 0.4 s
    assert vehicles.judged == vehicles.comfortable == vehicles.comfortable_to_predict == 1  # 0.4 s are too short


def test_manoeuvres_of_all_tracks_and_of_those_to_predict_are_counted(mixed: Path) -> None:
    summary = summarise(mixed)
    assert sum(summary.manoeuvres.values()) == 9
    assert sum(summary.predicted_manoeuvres.values()) == 4
    assert summary.manoeuvres["straight"] == 3  # the car, the walker and the rider of the long scene


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    scenes = [traffic_scene(seed, num_tracks=6, num_lanes=12) for seed in range(40)]
    folder = dataset_of(tmp_path / "traffic", scenes[:20], scenes[20:])
    read: list[int] = []
    assert summarise(folder, workers=2, on_scenes=read.append) == summarise(folder)
    assert sum(read) == 40


def test_tallies_add_up() -> None:
    one, other = tally_scenes([small_scene("a")]), tally_scenes([bare_scene("b")])
    one.merge(other)
    assert one == tally_scenes([small_scene("a"), bare_scene("b")])


def test_a_whole_dataset_passes(mixed: Path) -> None:
    report = check_dataset(mixed)
    assert report.passed
    assert (report.num_scenes, report.num_shards) == (3, 2)
    assert check_dataset(mixed, workers=2) == report


def test_a_damaged_shard_is_named(mixed: Path) -> None:
    shard = mixed / "shard-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-30])
    report = check_dataset(mixed)
    assert not report.passed
    assert report.num_scenes == 2
    assert [fault.split()[0].rstrip(",") for fault in report.faults] == ["shard-00001.parquet"] * 2


def test_a_missing_shard_is_named(mixed: Path) -> None:
    (mixed / "shard-00000.parquet").unlink()
    assert check_dataset(mixed).faults == ("shard-00000.parquet is missing",)


def test_ids_used_twice_are_named(tmp_path: Path) -> None:
    folder = dataset_of(tmp_path / "twice", [small_scene("same")], [small_scene("same")])
    assert check_dataset(folder).faults == ("2 scenes have the id 'same'",)


def test_an_invalid_scene_is_named_with_its_place(mixed: Path) -> None:
    scene = small_scene("c")
    broken = replace(scene, tracks=replace(scene.tracks, to_predict=np.array([99], np.int32)))
    write_shard(mixed / "shard-00001.parquet", [broken], metadata={})
    faults = check_dataset(mixed).faults
    assert any("shard-00001.parquet, scene 0 (c)" in fault and "to_predict" in fault for fault in faults)


def test_only_datasets_are_summarised(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a dataset"):
        summarise(tmp_path)
