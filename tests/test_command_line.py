"""Names of the command line that are the same everywhere, `waycode models`, `waycode doctor`, files as datasets."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_output import Output
from waycode.cli import _COMMANDS, main
from waycode.cli.console import progress_bar
from waycode.dataset.dataset import Dataset, load_scene, save_scene
from waycode.dataset.samples import bundled_folder
from waycode.dataset.seeds import seed_of
from waycode.evaluation import doctor
from waycode.model.saved import bundled_models


def test_the_help_lists_every_command_and_fits_80_columns(capsys: Output) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert set(_COMMANDS) <= set(re.findall(r"^  ([a-z]+) ", text, flags=re.MULTILINE))
    assert "--version" in text


@pytest.mark.parametrize("command", ["train", "ablate", "calibrate", "eval", "plan", "generate", "simulate", "find"])
def test_the_dataset_is_positional_and_outputs_are_called_out(command: str, capsys: Output) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "DATASET" in text.split("\n\n")[0]
    names = set(re.findall(r"(--[a-z][a-z-]*)", text))
    assert not names & {"--data", "--plot", "--limit", "--save", "--duration", "--radius"}


def test_the_package_is_a_command_too() -> None:
    command = [sys.executable, "-m", "waycode", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("waycode ")


def test_a_file_is_a_dataset(tmp_path: Path, capsys: Output) -> None:
    save_scene(load_scene("sample", 3), tmp_path / "scene.parquet")
    alone = Dataset(tmp_path / "scene.parquet")
    assert [scene.id for scene in alone] == [load_scene("sample", 3).id]
    assert main(["data", "info", str(tmp_path / "scene.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_scenes"] == 1
    assert main(["data", "check", str(tmp_path / "scene.parquet")]) == 0


def test_a_shard_keeps_the_seed_of_its_dataset() -> None:
    whole, shard = Dataset("sample"), Dataset(bundled_folder("sumo") / "shard-00000.parquet")
    assert seed_of(shard.info) == seed_of(whole.info) is not None
    assert shard.ids() == whole.ids()[: len(shard)]


def test_models_are_listed(capsys: Output) -> None:
    assert main(["models", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == bundled_models()


def test_the_stored_outputs_are_those_of_the_bundled_models() -> None:
    """After a change of the models: python docs/golden.py."""
    assert set(doctor.read_golden()) == set(bundled_models())
    failed = [check for check in doctor.run_checks() if check.result == "failed"]
    assert not failed


def test_the_doctor_finds_other_weights(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    golden = doctor.read_golden()
    golden["sumo-small"]["sha256"]["model.safetensors"] = "0" * 64
    golden["sumo-small"]["position_m"]["0"][0][0] += 1.0
    monkeypatch.setattr(doctor, "read_golden", lambda: golden)
    assert main(["doctor", "--json"]) == 1
    failed = {check["name"] for check in json.loads(capsys.readouterr().out) if check["result"] == "failed"}
    assert failed == {"files of sumo-small", "outputs of sumo-small"}


def test_without_a_terminal_progress_is_a_line_a_minute(capsys: Output) -> None:
    times_s = iter([0.0, 30.0, 61.0, 70.0, 125.0])
    with progress_bar("driving", 40, clock=lambda: next(times_s)) as advance:
        for _ in range(4):
            advance(2)
    assert capsys.readouterr().err == "driving: 4 of 40 scenes after 1 min\ndriving: 8 of 40 scenes after 2 min\n"


def test_a_conversion_that_skips_everything_fails(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "bad.json").write_text("{}")
    command = ["data", "convert", str(tmp_path / "bad.json"), "--from", "gpudrive", "--skip-bad"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 1
    assert "could be read: all were skipped" in capsys.readouterr().err
