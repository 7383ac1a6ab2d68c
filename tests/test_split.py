"""Scenes held out by their ids."""

from pathlib import Path

import pytest

from scenes import small_scene
from waycode.dataset.dataset import Dataset, DatasetError, ShardContents, write_dataset
from waycode.dataset.split import is_held_out, split_dataset
from waycode.dataset.storage import same_scene
from waycode.scene import Scene


def make(scenes: list[Scene]) -> ShardContents:
    return ShardContents(scenes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    scenes = [small_scene(f"scene {number}") for number in range(40)]
    write_dataset(tmp_path / "all", [scenes[:30], scenes[30:]], make=make, source="made-up", settings={})
    return tmp_path / "all"


def test_every_scene_is_on_exactly_one_side_and_unchanged(folder: Path, tmp_path: Path) -> None:
    kept, held_out = split_dataset(folder, kept=tmp_path / "kept", held_out=tmp_path / "held", share=0.3)
    assert kept.num_scenes + held_out.num_scenes == 40
    assert 4 <= held_out.num_scenes <= 20
    before = {scene.id: scene for scene in Dataset(folder)}
    sides = [{scene.id: scene for scene in Dataset(tmp_path / name)} for name in ("kept", "held")]
    assert not set(sides[0]) & set(sides[1])
    for side in sides:
        assert all(same_scene(scene, before[name]) for name, scene in side.items())
    assert all(is_held_out(name, 0.3) for name in sides[1])
    assert Dataset(folder).ids() == list(before)


def test_a_larger_share_holds_out_the_same_scenes_and_more() -> None:
    names = [f"scene {number}" for number in range(2000)]
    few = {name for name in names if is_held_out(name, 0.1)}
    more = {name for name in names if is_held_out(name, 0.25)}
    assert few < more
    assert 0.08 < len(few) / 2000 < 0.12


@pytest.mark.parametrize(("share", "sentence"), [(0.0, "between 0 and 1"), (1e-9, "no scene of")])
def test_bad_shares_are_refused(folder: Path, tmp_path: Path, share: float, sentence: str) -> None:
    with pytest.raises(DatasetError, match=sentence):
        split_dataset(folder, kept=tmp_path / "kept", held_out=tmp_path / "held", share=share)
