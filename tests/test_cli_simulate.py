"""`waycode simulate` and `waycode eval closed-loop` as a user meets them."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow.parquet as pq
import pytest

from waycode.baselines import ConstantVelocity
from waycode.cli import main
from waycode.cli.simulate import Simulate
from waycode.dataset.dataset import DatasetError, load_scene, save_scene
from waycode.dataset.storage import write_shard
from waycode.demo import bundled_dataset
from waycode.evaluation import closed_loop_studies
from waycode.evaluation.closed_loop_studies import cell_of
from waycode.simulation.drive_file import (
    DRIVES_FOLDER,
    Drive,
    drive_notes,
    drive_path,
    drive_paths,
    load_drive,
    save_drive,
)
from waycode.simulation.drivers import LatentConfig, PolicyConfig
from waycode.simulation.registry import PLANNERS
from waycode.simulation.rollout import SimulationConfig, simulate

SAMPLES = str(Path(str(files("waycode"))) / "samples" / "sumo")
OPTIONS = ["--planner", "constant-velocity", "--scenes", "2", "--horizon-s", "1.5"]
QUICK = ["simulate", SAMPLES, *OPTIONS]


def test_a_table_and_scores_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", str(tmp_path), "--worst", "1", "--video", "gif"]) == 0
    shown = capsys.readouterr().out
    assert "constant-velocity" in shown
    assert "S-CR" in shown
    assert pq.read_table(tmp_path / "scores.parquet").num_rows == 2
    assert len(list(tmp_path.glob("worst-1-scene-*.png"))) == 1
    assert len(list(tmp_path.glob("worst-1-scene-*.gif"))) == 1


def test_two_drivers_side_by_side_as_mp4(tmp_path: Path) -> None:
    more = ["--worst", "1", "--video", "mp4", "--beside", "idm", "--horizon-s", "0.5"]
    assert main(["simulate", SAMPLES, "--planner", "replay", "--scenes", "1", "--out", str(tmp_path), *more]) == 0
    assert len(list(tmp_path.glob("worst-1-scene-*.mp4"))) == 1


def test_sumo_does_not_drive_recorded_scenes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_scene(replace(load_scene("sample", 0), rebuild=None), tmp_path / "recorded.parquet")
    assert main(["simulate", str(tmp_path / "recorded.parquet"), "--traffic", "sumo"]) == 2
    assert "needs generated scenes" in capsys.readouterr().err


def test_every_drive_is_kept_with_its_score_over_time(tmp_path: Path) -> None:
    assert main([*QUICK, "--out", str(tmp_path), "--worst", "0"]) == 0
    rows = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    for row in rows:
        path = drive_path(tmp_path / DRIVES_FOLDER, row["index"])
        drive = load_drive(path)
        assert (drive.planner, drive.traffic) == ("constant-velocity", "replay")
        assert drive.score == pytest.approx(row["score"], abs=1e-4)
        assert drive.scores[-1] == drive.score
        assert drive.score_time_s == pytest.approx([0.5, 1.0, 1.5])
        assert len(drive.speed_mps) == len(drive.expert_m) == len(drive.plans_m) + 1 == 16
        recorded = bundled_dataset()[row["index"]]
        assert load_scene(path).id == drive.scene.id == recorded.id
        assert drive.scene.current_step == recorded.current_step
    # A run with other scenes leaves no drive of this one behind.
    assert main([*QUICK, "--scenes", "1", "--out", str(tmp_path), "--worst", "0"]) == 0
    kept = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    assert drive_paths(tmp_path / DRIVES_FOLDER) == [drive_path(tmp_path / DRIVES_FOLDER, one["index"]) for one in kept]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"speed_mps": [1.0]}, "it has 1 speeds, expected"),
        ({"score": float("nan")}, "not finite"),
        ({"plans_m": [[[1.0]]]}, "cannot be read"),
        ({"unknown": 1}, "unknown"),
        ({"reasons": 3}, "cannot be read"),
    ],
)
def test_a_damaged_drive_gets_one_sentence(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    path, scene = tmp_path / "scene-000000.parquet", bundled_dataset()[0]
    rollout = simulate(scene, ConstantVelocity(), config=SimulationConfig(horizon_s=1.0))
    save_drive(Drive.of(scene, rollout, planner="constant-velocity", traffic="replay"), path)
    assert load_drive(path).scene.num_steps == scene.current_step + 11
    write_shard(path, [load_scene(path)], metadata={"drive": {**drive_notes(path), **change}})
    with pytest.raises(DatasetError, match=sentence):
        load_drive(path)
    save_scene(scene, path)
    with pytest.raises(DatasetError, match="expected a drive of `waycode simulate --out`"):
        load_drive(path)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--traffic", "idm", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["planner"], content["traffic"], content["num_scenarios"]) == ("constant-velocity", "idm", 2)
    assert 0 <= content["cls"]["mean"] <= 100
    assert (content["num_episodes"], content["seed_role"], content["published"]) == (2, "development", False)


def test_the_papers_planner_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", SAMPLES, "--planner", "paper", "--scenes", "1", "--horizon-s", "0.3", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["planner"], content["failed"]) == ("paper", {})


def test_the_names_of_the_command_line_are_those_of_the_registry() -> None:
    assert get_args(get_type_hints(Simulate)["planner"]) == PLANNERS


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--scenes", "0"], "--scenes is 0, expected at least 1"),
        (["--horizon-s", "0"], "--horizon-s is 0.0, expected more than 0"),
        (["--video", "gif"], "--video needs a folder to write to: give --out"),
        (["--planner", "latent", "--model", "nobody"], "nobody"),
    ],
)
def test_bad_input_gets_one_sentence(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, *options]) == 2
    complaint = capsys.readouterr().err
    assert sentence in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize("what", ["closed-loop", "closed-loop-ablation"])
def test_tables_of_planners_and_of_settings(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer rows than a user gets, who waits for all of them."""
    monkeypatch.setattr(closed_loop_studies, "COMPARED_PLANNERS", ("constant-velocity", "pdm-closed"))
    quick = LatentConfig(depth=1, beam_width=1, policy=PolicyConfig(replan_steps=40))
    monkeypatch.setattr(closed_loop_studies, "ABLATIONS", {"depth 1, beam 1": quick})
    words = ["eval", what, "--model", "sumo-small", SAMPLES, "--scenes", "2", "--out", str(tmp_path)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    rows = {"closed-loop": ["constant-velocity", "pdm-closed"], "closed-loop-ablation": ["depth 1, beam 1"]}[what]
    assert all(row in shown for row in rows)
    report = json.loads((tmp_path / f"{what}.json").read_text())
    assert (report["num_scenes"], report["num_episodes"], report["seed_role"]) == (2, 2, "development")
    kinds = {"closed-loop": ["replay", "idm"], "closed-loop-ablation": ["replay"]}[what]
    assert [(row["planner"], row["traffic"]) for row in report["rows"]] == [(a, b) for b in kinds for a in rows]
    assert pq.read_table(tmp_path / f"{what}.parquet").num_rows == 2 * len(report["rows"])
    compared = [(one["planner"], one["traffic"]) for one in report["differences"]]
    assert compared == [("constant-velocity", kind) for kind in kinds if what == "closed-loop"]
    assert (tmp_path / f"{what}.png").exists()
    assert not (tmp_path / f"{what}.unfinished").exists()


def test_a_table_of_proposals_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "proposals", SAMPLES, "--scenes", "1", "--out", str(tmp_path), "--proposals", "centreline"]
    assert main([*words, "--judges", "driving", "PDM"]) == 0
    assert "no kept plan" in capsys.readouterr().out
    report = json.loads((tmp_path / "proposals.json").read_text())
    cells = [cell_of(row["planner"]) for row in report["rows"]]
    assert cells[:2] == [("centreline", "driving", "whole policy"), ("centreline", "PDM", "whole policy")]
    assert {policy for _, _, policy in cells} == set(closed_loop_studies.POLICIES)
    assert all(row["failed"] == {} for row in report["rows"])
    assert (tmp_path / "proposals.png").exists()
    assert main([*words, "--judges", "nobody"]) == 2
    assert "judges has nobody, expected some of driving, PDM, paper" in capsys.readouterr().err


def test_a_dataset_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "nowhere", *OPTIONS]) == 2
    assert "nowhere is not a dataset" in capsys.readouterr().err
