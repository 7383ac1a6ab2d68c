"""Prepared examples: they are those of the scenes, are made once, resume, and stay within a bound."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiny_model import FEATURES, assert_same_example
from waycode.dataset.files import DatasetError, only_writer
from waycode.demo import bundled_dataset
from waycode.scene.manoeuvre import classify
from waycode.training import examples
from waycode.training.examples import CACHE_VARIABLE, default_cache, prepare_examples, prepare_scene


def test_what_is_read_is_what_was_prepared(tmp_path: Path) -> None:
    dataset = bundled_dataset()
    prepared = prepare_examples(dataset, FEATURES, cache=tmp_path)
    for number in (0, 5, len(dataset) - 1):
        scene = dataset[number]
        expected = prepare_scene(scene, FEATURES, np.random.default_rng([examples._VERSION, number]))
        found = prepared[number]
        assert_same_example(found.example, expected.example, tolerance_m=0)
        np.testing.assert_array_equal(found.example.reachability, expected.example.reachability)
        np.testing.assert_array_equal(found.alternative_m, expected.alternative_m)
        np.testing.assert_array_equal(found.alternative_agent, expected.alternative_agent)
        assert {manoeuvre for _, manoeuvre in prepared.kinds(number)} <= set(classify(scene))


def test_scenes_are_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "_SCENES_PER_PART", 10)
    dataset, counted = bundled_dataset(), list[int]()
    first = prepare_examples(dataset, FEATURES, cache=tmp_path)
    parts = sorted(first.folder.glob("part-*"))
    made = {part: part.stat().st_mtime_ns for part in parts}
    parts[1].unlink()  # as if the run had been stopped
    prepare_examples(dataset, FEATURES, cache=tmp_path, on_scenes=counted.append)
    assert sum(counted) == len(dataset)
    assert [part.stat().st_mtime_ns == made[part] for part in parts] == [True, False, True]


def test_a_complete_entry_needs_no_lock(tmp_path: Path) -> None:
    """Two runs that start at the same moment both read it."""
    dataset = bundled_dataset()
    entry = prepare_examples(dataset, FEATURES, cache=tmp_path).folder
    with only_writer(entry):
        assert len(prepare_examples(dataset, FEATURES, cache=tmp_path)[0].example.agents) > 0
        next(entry.glob("part-*")).unlink()
        with pytest.raises(DatasetError, match="is being written by another run"):
            prepare_examples(dataset, FEATURES, cache=tmp_path)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    prepared = prepare_examples(bundled_dataset(), FEATURES, cache=tmp_path)
    part = next(prepared.folder.glob("part-*"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(DatasetError, match=r"part-00000.safetensors cannot be read .* remove it"):
        prepared[0]


def test_other_features_are_another_entry(tmp_path: Path) -> None:
    dataset = bundled_dataset()
    one = prepare_examples(dataset, FEATURES, cache=tmp_path)
    other = prepare_examples(dataset, replace(FEATURES, history_steps=4), cache=tmp_path)
    assert one.folder != other.folder
    assert other[0].example.history.shape[1] == 4


def test_the_cache_keeps_its_bound_and_the_entry_in_use(tmp_path: Path) -> None:
    dataset = bundled_dataset()
    one = prepare_examples(dataset, FEATURES, cache=tmp_path)
    other = prepare_examples(dataset, replace(FEATURES, history_steps=4), cache=tmp_path, bound_gb=0.0)
    assert not one.folder.exists()
    assert len(other[0].example.agents) > 0


def test_the_cache_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "here"))
    assert default_cache() == tmp_path / "here"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "waycode" / "examples"
