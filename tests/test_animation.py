"""Animations of drives: frames, text, plans, several drives side by side, GIF and MP4."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from driving_scenes import NOW, road_scene
from waycode.baselines import ConstantVelocity
from waycode.evaluation.drive_video import drive_to_show, running_scores
from waycode.plotting import PlottingError
from waycode.plotting.animation import ShownDrive, save_animation
from waycode.scene import Scene
from waycode.simulation.metrics import score_run
from waycode.simulation.rollout import Rollout, SimulationConfig, simulate

GREEN = (20, 148, 90)  # of the plan


@pytest.fixture(scope="module")
def scene() -> Scene:
    return road_scene(others=((20.0, 0.0, 5.0),))


@pytest.fixture(scope="module")
def rollout(scene: Scene) -> Rollout:
    return simulate(scene, ConstantVelocity(), config=SimulationConfig(keep_plans=True, horizon_s=3.0))


def frames_of(path: Path) -> list[np.ndarray]:
    with Image.open(path) as picture:
        frames = []
        for index in range(picture.n_frames):  # type: ignore[attr-defined]
            picture.seek(index)
            frames.append(np.asarray(picture.convert("RGB")).astype(int))
    return frames


def share_of(frame: np.ndarray, colour: tuple[int, int, int]) -> float:
    return float((np.abs(frame - np.array(colour)).max(axis=-1) < 12).mean())


def test_an_animation_has_a_frame_per_step_asked_for(scene: Scene, tmp_path: Path) -> None:
    path = save_animation([ShownDrive(scene=scene, first_step=NOW)], tmp_path / "a" / "b.gif", every=20, side_px=120)
    frames = frames_of(path)
    assert len(frames) == 4  # steps 10, 30, 50 and 70
    assert frames[0].shape == (164, 120, 3)
    assert np.abs(frames[0] - frames[-1]).max() > 50  # the others move


def test_the_plan_is_drawn_while_there_is_one(scene: Scene, rollout: Rollout, tmp_path: Path) -> None:
    drive = drive_to_show(scene, rollout, name="constant-velocity")
    (first, *_, last) = frames_of(save_animation([drive], tmp_path / "a.gif", every=5, side_px=200))
    assert share_of(first[44:], GREEN) > 0.002
    assert share_of(last[44:], GREEN) == 0  # the drive has ended: nothing is planned any more


def test_two_drives_stand_side_by_side(scene: Scene, rollout: Rollout, tmp_path: Path) -> None:
    drives = [drive_to_show(scene, rollout, name=name) for name in ("one", "two")]
    frame = frames_of(save_animation(drives, tmp_path / "a.gif", every=30, side_px=200))[0]
    assert frame.shape == (244, 408, 3)
    np.testing.assert_array_equal(frame[44:, :200], frame[44:, 208:])  # the same drive, but for its name
    assert np.abs(frame[:44, :200] - frame[:44, 208:]).max() > 50


def test_mp4_has_the_same_frames(scene: Scene, rollout: Rollout, tmp_path: Path) -> None:
    import imageio_ffmpeg

    drive = drive_to_show(scene, rollout, name="constant-velocity")
    path = save_animation([drive], tmp_path / "a.mp4", every=10, side_px=121)  # odd: the codec wants even sizes
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert count == 4


def test_scores_so_far_end_with_the_score(rollout: Rollout) -> None:
    scores = running_scores(rollout.history)
    assert len(scores) == len(rollout.history.ego)
    assert scores[-1] == score_run(rollout.history).score
    assert ((scores >= 0) & (scores <= 1)).all()


def test_mp4_asks_for_its_extra(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def load_without(name: str, *values: Any, **options: Any) -> Any:
        if name == "imageio_ffmpeg":
            raise ImportError(name)
        return load(name, *values, **options)

    monkeypatch.setattr(builtins, "__import__", load_without)
    with pytest.raises(PlottingError, match=r"MP4 needs ffmpeg, .* `pip install 'waycode\[video\]'`"):
        save_animation([ShownDrive(scene=scene)], tmp_path / "a.mp4")


def test_animations_that_cannot_be_are_refused(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(PlottingError, match=r"expected a file that ends in \.gif, \.mp4"):
        save_animation([ShownDrive(scene=scene)], tmp_path / "a.png")
    with pytest.raises(PlottingError, match="first_step is 500, expected 0 to 70"):
        ShownDrive(scene=scene, first_step=500)
    with pytest.raises(PlottingError, match="got 0 drives"):
        save_animation([], tmp_path / "a.gif")
