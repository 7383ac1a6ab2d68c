"""Generated datasets: deterministic, balanced, free of accidents, and possible to bring back to life."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from waycode.dataset.dataset import Dataset
from waycode.dataset.storage import same_scene
from waycode.scene import Scene, SignalState, TrackType, WaycodeError
from waycode.scene.conflicts import overlapping_pairs, red_light_crossings
from waycode.scene.kinematics import comfortable
from waycode.scene.manoeuvre import Manoeuvre, classify
from waycode.sources.sumo import Family, SumoSettings, generate, generate_dataset
from waycode.sources.sumo.episode import rebuild_traffic
from waycode.sources.sumo.recording import SUMO_STEP_S, record

SETTINGS = SumoSettings(num_scenes=50, seed=11)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shard of scenes of all families, made by two workers."""
    path = tmp_path_factory.mktemp("sumo") / "dataset"
    generate_dataset(path, settings=SETTINGS, workers=2)
    return path


@pytest.fixture(scope="module")
def scenes(folder: Path) -> list[Scene]:
    return list(Dataset(folder))


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    few = SumoSettings(num_scenes=52, seed=3, families=(Family.ALL_WAY_STOP, Family.SIGNALS), duration_s=3.0)
    for workers in (1, 2):
        generate_dataset(tmp_path / str(workers), settings=few, workers=workers)
    names = sorted(path.name for path in (tmp_path / "1").glob("*.*"))
    assert names == ["dataset.json", "shard-00000.parquet", "shard-00001.parquet"]
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_another_seed_gives_other_scenes() -> None:
    one, other = (
        next(generate(SumoSettings(num_scenes=1, seed=seed, families=(Family.CURVED_ROAD,)))) for seed in (0, 1)
    )
    assert not same_scene(one, other)


def test_every_family_and_most_manoeuvres_are_there(scenes: list[Scene]) -> None:
    assert {scene.tags[0] for scene in scenes} == set(Family)
    done = {classify(scene)[scene.tracks.ego_index or 0] for scene in scenes}
    assert done >= {Manoeuvre.STRAIGHT, Manoeuvre.LEFT_TURN, Manoeuvre.RIGHT_TURN, Manoeuvre.STOP, Manoeuvre.START}
    assert done >= {Manoeuvre.STANDING, Manoeuvre.SLOW_DOWN, Manoeuvre.ROUNDABOUT}
    assert done & {Manoeuvre.LANE_CHANGE_LEFT, Manoeuvre.LANE_CHANGE_RIGHT}


def test_windows_have_one_second_of_history_and_eight_of_future(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert (scene.num_steps, scene.current_step, scene.dt_s) == (91, 10, 0.1)
        assert scene.tracks.ego_index is not None
        assert scene.tracks.valid[scene.tracks.ego_index].all()
        assert scene.route is not None
        assert scene.tracks.valid[scene.tracks.to_predict].all()


def test_all_kinds_of_road_users_take_part(scenes: list[Scene]) -> None:
    kinds = np.concatenate([scene.tracks.types for scene in scenes])
    assert set(kinds.tolist()) == {TrackType.VEHICLE, TrackType.PEDESTRIAN, TrackType.CYCLIST}
    lengths = np.concatenate([scene.tracks.length_m[scene.tracks.types == TrackType.VEHICLE] for scene in scenes])
    assert lengths.min() < 5 < 6.5 < lengths.max()


def test_no_boxes_overlap_and_nobody_drives_on_red(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert len(overlapping_pairs(scene.tracks, which=scene.tracks.types == TrackType.VEHICLE)) == 0
        assert red_light_crossings(scene) == []
    states = np.concatenate([scene.signals.states.ravel() for scene in scenes])
    assert set(np.unique(states).tolist()) >= {SignalState.STOP, SignalState.GO, SignalState.CAUTION}


def test_nine_tenths_of_the_moving_tracks_are_comfortable(scenes: list[Scene]) -> None:
    found = [comfortable(scene.tracks, dt_s=scene.dt_s) for scene in scenes]
    judged = sum(int(judged.sum()) for _, judged in found)
    assert judged > 300
    assert sum(int(comfort.sum()) for comfort, _ in found) / judged >= 0.9


def test_vehicles_stay_on_the_road(scenes: list[Scene]) -> None:
    """Centres of moving cars lie within 2.5 m of some lane's centreline."""
    for scene in scenes[::5]:
        tracks = scene.tracks
        cars = np.isin(np.arange(len(tracks)), tracks.to_predict) & (tracks.types == TrackType.VEHICLE)
        inside = np.linalg.norm(tracks.position_m[cars] - tracks.position_m[tracks.ego_index, 10], axis=-1) < 70
        lane = scene.map.lanes.graph.lane_at(tracks.position_m[cars], tracks.heading_rad[cars])
        assert (lane[inside] >= 0).mean() > 0.97


def test_a_scene_can_be_brought_back_to_life(scenes: list[Scene], tmp_path: Path) -> None:
    scene = next(scene for scene in scenes if scene.tags == ("signals",))
    traffic, window = rebuild_traffic(scene, tmp_path)
    recording = record(replace(traffic, num_steps=window.steps.stop), tmp_path)
    track = next(track for track in recording.tracks if track.id == window.ego)
    bumper = track.position_m[window.current_step - track.first_step]
    tracks, ego = scene.tracks, scene.tracks.ego_index or 0
    heading = tracks.heading_rad[ego, scene.current_step]
    front = tracks.position_m[ego, scene.current_step] + scene.origin_m
    front = front + tracks.length_m[ego] / 2 * np.array([np.cos(heading), np.sin(heading)])
    np.testing.assert_allclose(front, bumper, atol=0.3)
    assert window.future_steps * SUMO_STEP_S == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"num_scenes": 0}, "num_scenes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"duration_s": 100.0}, "expected 1 to 30"),
        ({"families": ()}, "all_way_stop"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(WaycodeError, match=sentence):
        SumoSettings(**wrong)  # type: ignore[arg-type]
