"""Roles of seeds, what they forbid, and the episodes of scenes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from command_output import Output, complaint_of
from scenes import small_scene
from waycode.cli import main
from waycode.dataset.dataset import Dataset, DatasetError, DatasetInfo, ShardContents, write_dataset
from waycode.dataset.seeds import SeedRole, check_not_test, episode_of, episodes_in, seed_of, seed_role
from waycode.dataset.split import split_dataset
from waycode.demo import bundled_dataset
from waycode.evaluation.report import EvaluationError, Provenance
from waycode.scene import Scene

TEST_SEED = 9001


def make(scenes: list[Scene]) -> ShardContents:
    return ShardContents(scenes)


def generated(folder: Path, *, seed: int, count: int = 1, source: str = "sumo") -> Dataset:
    """A dataset as `waycode data sumo` writes it, with scenes made by hand: two of each episode."""
    scenes = [
        replace(small_scene(f"scene {number}"), source=source, rebuild=rebuild_of(seed, number // 2))
        for number in range(count)
    ]
    write_dataset(folder, [scenes], make=make, source=source, settings={"seed": seed})
    return Dataset(folder)


def rebuild_of(seed: int, attempt: int) -> str:
    episode = {"family": "signals", "numbers": [seed, 3, attempt], "version": 2}
    return json.dumps({"episode": episode, "window": {"ego": "car", "current_step": 300}})


@pytest.mark.parametrize(
    ("seed", "role"),
    [
        (0, "development"),
        (999, "development"),
        (1000, "training"),
        (1999, "training"),
        (2000, "development"),
        (8999, "development"),
        (9000, "test"),
        (123456, "test"),
    ],
)
def test_every_seed_has_a_role(seed: int, role: str, tmp_path: Path) -> None:
    assert SeedRole.of(seed) == role
    info = generated(tmp_path / "data", seed=seed).info
    assert (seed_of(info), seed_role(info)) == (seed, role)


def test_other_sources_have_no_role(tmp_path: Path) -> None:
    info = generated(tmp_path / "data", seed=TEST_SEED, source="made-up").info
    assert (seed_of(info), seed_role(info)) == (None, None)


def test_the_parts_of_a_split_have_the_role_of_the_whole(tmp_path: Path) -> None:
    generated(tmp_path / "all", seed=TEST_SEED, count=30)
    sides = split_dataset(tmp_path / "all", kept=tmp_path / "kept", held_out=tmp_path / "held", share=0.5)
    assert [seed_of(side) for side in sides] == [TEST_SEED, TEST_SEED]
    again = split_dataset(tmp_path / "held", kept=tmp_path / "a", held_out=tmp_path / "b", share=0.2)
    assert [seed_role(side) for side in again] == [SeedRole.TEST, SeedRole.TEST]


def test_a_split_of_another_source_gets_no_seed(tmp_path: Path) -> None:
    generated(tmp_path / "all", seed=TEST_SEED, count=30, source="made-up")
    split_dataset(tmp_path / "all", kept=tmp_path / "kept", held_out=tmp_path / "held", share=0.5)
    assert DatasetInfo.read(tmp_path / "kept").settings.keys() == {"split_of", "share", "side"}


def test_nothing_is_trained_or_validated_on_test_seeds(tmp_path: Path, capsys: Output) -> None:
    check_not_test(bundled_dataset())
    with pytest.raises(DatasetError, match="was generated with seed 9001, a test seed: expected another dataset"):
        check_not_test(generated(tmp_path / "test", seed=TEST_SEED))
    sample, test = str(bundled_dataset().folder), str(tmp_path / "test")
    for data, val in ((sample, test), (test, sample)):
        assert main(["train", "tiny", data, "--val", val, "--out", str(tmp_path / "run")]) == 2
        assert "seed 9001, a test seed" in complaint_of(capsys)
        assert not (tmp_path / "run").exists()


def test_reports_on_test_seeds_are_for_publication_alone(tmp_path: Path) -> None:
    dataset = generated(tmp_path / "data", seed=TEST_SEED)
    with pytest.raises(EvaluationError, match=r"seed 9001, a test seed: .* or --publish for final figures"):
        Provenance.of(dataset, model="m")
    assert Provenance.of(dataset, model="m", publish=True) == Provenance(
        model="m",
        data=str(tmp_path / "data"),
        settings_sha256=dataset.info.settings_sha256,
        data_seed=TEST_SEED,
        seed_role=SeedRole.TEST,
        published=True,
        seed=0,
    )


@pytest.mark.parametrize(
    "command",
    ["eval reconstruction --model m", "eval left-turn --model m", "eval closed-loop --model m", "simulate"],
)
def test_commands_refuse_test_seeds_in_one_sentence(command: str, tmp_path: Path, capsys: Output) -> None:
    generated(tmp_path / "data", seed=TEST_SEED)
    words = [*command.split(), str(tmp_path / "data")]
    assert main(words) == 2
    assert "or --publish for final figures" in complaint_of(capsys)


def test_published_scores_say_so(tmp_path: Path, capsys: Output) -> None:
    generated(tmp_path / "data", seed=TEST_SEED)
    words = ["simulate", str(tmp_path / "data"), "--planner", "constant-velocity", "--publish", "--json"]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["seed_role"], content["data_seed"], content["published"]) == ("test", TEST_SEED, True)
    assert content["settings_sha256"] == Dataset(tmp_path / "data").info.settings_sha256
    assert (content["model"], content["seed"]) == ("", 0)


def test_windows_of_one_world_have_one_episode(tmp_path: Path) -> None:
    dataset = generated(tmp_path / "data", seed=2000, count=4)
    assert [episode_of(scene) for scene in dataset] == [*["signals-2000-3-0"] * 2, *["signals-2000-3-1"] * 2]
    assert episodes_in(dataset) == [episode_of(scene) for scene in dataset]


def test_the_episodes_of_bundled_scenes() -> None:
    dataset = bundled_dataset()
    found = episodes_in(dataset)
    assert found[0] == "all_way_stop-7-0-0"
    assert len(set(found)) == 10  # a family each
    assert len(found) == 24


def test_scenes_of_other_sources_are_their_own_episodes() -> None:
    scene = small_scene("scene 5")
    assert episode_of(scene) == "scene 5"
    assert episode_of(replace(scene, source="sumo", rebuild=None)) == "scene 5"  # without a world to rebuild
