"""`waycode train` and `waycode eval`: results, exit codes, Ctrl-C, and one sentence for everything that is wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from command_output import Output, complaint_of
from waycode.cli import main
from waycode.cli.train import RecipeName
from waycode.demo import bundled_dataset
from waycode.evaluation.reconstruction_report import PAPER_ADE_M
from waycode.training.config import RECIPES
from waycode.training.run import last_step

SAMPLE = str(bundled_dataset().folder)
SCENES = [SAMPLE, "--val", SAMPLE]
FAST = ["--workers", "0", "--threads", "1", "--val-scenes", "2", "--set", "scenes_per_batch=2"]


def train_command(out: Path, *more: str) -> list[str]:
    return ["train", "tiny", *SCENES, "--out", str(out), *FAST, *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(train_command(out, "--steps", "3")) == 0
    return out


def test_recipes_of_the_command_line_are_all_recipes() -> None:
    assert get_args(RecipeName) == tuple(RECIPES)


@pytest.mark.parametrize("command", [["train"], ["eval"]])
def test_help_shows_every_option_with_its_default(command: list[str], capsys: Output) -> None:
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    options = re.findall(r"^[│ ]*(--[a-z][a-z-]*)", text, flags=re.MULTILINE)
    assert "--json" in options
    assert text.count("(default:") + text.count("(required)") + text.count("(repeatable)") >= len(options)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["train", "--help"], ["eval", "--help"]])
def test_nothing_heavy_is_loaded_to_say_what_there_is(arguments: list[str]) -> None:
    program = (
        "import sys; from waycode.cli import main; code = main(sys.argv[1:]);"
        "sys.exit(code or sum(name in sys.modules for name in ('torch', 'lightning', 'matplotlib', 'pyarrow')))"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=False)
    assert done.returncode == 0


def test_train_shows_the_table_and_says_where_the_model_is(tmp_path: Path, capfd: Output) -> None:
    out = tmp_path / "run"
    assert main(train_command(out, "--steps", "2", "--set", "validate_every=1")) == 0
    output = capfd.readouterr()
    assert output.out == f"{out}/model: trained for 2 steps (more: {out}/model/MODEL_CARD.md)\n"
    assert output.err.count("samples/s") == 2  # a table at each validation
    for words in ("step 2: sigma", "encoder N_l = 2", "encoder continuous", "greedy N_l = 2"):
        assert words in output.err
    for chatter in ("GPU", "Tip", "Warning", "litlogger"):
        assert chatter not in output.err


def test_train_for_programs(tmp_path: Path, capsys: Output) -> None:
    assert main(train_command(tmp_path / "run", "--steps", "1", "--json")) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["step"] == content["validation"]["step"] == 1
    assert content["samples_per_s"] > 0
    assert "greedy N_l = 2/3" in content["validation"]["figures"]
    assert main(train_command(tmp_path / "run", "--steps", "1", "--resume")) == 0
    assert "was finished already" in capsys.readouterr().out
    assert main(train_command(tmp_path / "run", "--steps", "2", "--resume", "--json")) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["step"] == 2
    assert "the run of 1 steps is extended to 2" in output.err


def test_resume_without_a_run_says_so(tmp_path: Path, capsys: Output) -> None:
    assert main(train_command(tmp_path / "run", "--steps", "1", "--resume")) == 0
    assert "holds no run to resume: a new one begins" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("train tiny {tmp}/no --val {sample} --out {tmp}/new", "is not a dataset"),
        ("train tiny {sample} --val {tmp}/no --out {tmp}/new", "is not a dataset"),
        ("train tiny {sample} --val {sample} --out {run}", "holds a run already: --resume"),
        ("train tiny {sample} --val {sample} --out {run} --resume --steps 2", "steps is 3, asked for 2"),
        ("train tiny {sample} --val {sample} --out {sample}", "holds no run: choose another folder"),
        (
            "train tiny {sample} --val {sample} --out {tmp}/new --set model.x=1",
            "there is no setting 'x' in model",
        ),
        ("train tiny {sample} --val {sample} --out {tmp}/new --set mirror=2", "expected true or false"),
        ("train tiny {sample} --val {sample} --out {tmp}/new --steps 0", "steps is 0, expected at least 1"),
        (
            "train tiny {sample} --val {sample} --out {tmp}/new --threads 0",
            "--threads is 0, expected at least 1",
        ),
        ("train tiny {sample} --val {sample} --out {tmp}/new --workers -1", "expected at least 0"),
        ("train tiny {sample} --val {sample} --out {tmp}/new --init nobody", "neither a model's folder nor"),
        ("train small {sample} --val {sample} --out {tmp}/new --init {run}", "width is 32, asked for 64"),
        ("eval reconstruction --model nobody {sample}", "neither a model's folder nor"),
        ("eval reconstruction --model {run} {tmp}", "is not a dataset"),
        ("eval reconstruction --model {run} {sample} --scenes 0", "--scenes is 0, expected at least 1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, trained: Path, tmp_path: Path, capsys: Output
) -> None:
    capsys.readouterr()
    assert main(arguments.format(tmp=tmp_path, sample=SAMPLE, run=trained).split()) == 2
    assert sentence in complaint_of(capsys)
    assert not (tmp_path / "new").exists()


def test_unknown_recipes_are_refused(tmp_path: Path, capsys: Output) -> None:
    assert main(["train", "huge", *SCENES, "--out", str(tmp_path / "new")]) == 2
    assert "closed-loop" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_keeps_the_step_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    """Terminals and schedulers send it to the whole process group, so to the processes that read scenes too."""
    command = [sys.executable, "-m", "waycode.cli", *train_command(tmp_path / "run", "--set", "checkpoint_every=500")]
    command = [*command, "--steps", "4000", "--set", "validate_every=4000", "--workers", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 600
        while not (tmp_path / "run" / "metrics.csv").exists() and time.monotonic() < deadline:  # 20 steps are made
            time.sleep(0.1)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert not out
    warning, stopped = err.splitlines()
    assert "files of the validation are trained on too" in warning
    found = re.fullmatch(r"waycode: stopped after step (\d+): the same command with --resume goes on from it", stopped)
    assert found is not None, err
    assert last_step(tmp_path / "run") == int(found[1]) >= 20


def test_eval_prints_tables_and_writes_a_report(trained: Path, tmp_path: Path, capsys: Output) -> None:
    command = ["eval", "reconstruction", "--model", str(trained), SAMPLE, "--scenes", "2", "--threads", "1"]
    capsys.readouterr()
    assert main([*command, "--out", str(tmp_path / "report")]) == 0
    text = " ".join(capsys.readouterr().out.split())  # long lines are wrapped
    for words in (
        "continuous",
        "refined 40",
        "of type vehicle",
        "at 2 Hz, as WOMD's official metrics",
        "at 2 Hz: the same over the steps at 0.5, 1.0, 1.5, ... s",
        "beam width",
        "more tokens are better",
        "3 / 1 tokens, encoder N_l = 2",
        "encoder continuous / refined 40",
        "share",
        "reconstruction.json",
    ):
        assert words in text
    assert (tmp_path / "report" / "reconstruction.png").stat().st_size > 10_000
    assert main([*command[:3], str(trained / "model"), *command[4:], "--no-refine", "--json"]) == 0
    content: Any = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "report" / "reconstruction.json").read_text())
    assert content["table"] == {name: written["table"][name] for name in PAPER_ADE_M}  # without the refined columns
    assert (content["num_scenes"], content["num_episodes"], content["published"]) == (2, 2, False)


def test_checkpoints_of_the_command_line_are_plain(trained: Path) -> None:
    assert torch.load(trained / "last.ckpt", weights_only=True)["global_step"] == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--accelerator", "abacus"], "accelerator is 'abacus'"),
        (["--precision", "12"], "precision '12'"),
        (["--devices", "4"], "devices is '4', expected 1 or 'auto'"),
    ],
    ids=["accelerator", "precision", "devices"],
)
def test_hardware_that_is_not_there_leaves_no_run(
    tmp_path: Path, capsys: Output, options: list[str], sentence: str
) -> None:
    sample, out = str(bundled_dataset().folder), tmp_path / "run"
    assert main(["train", "tiny", sample, "--val", sample, "--out", str(out), *options]) == 2
    assert sentence in complaint_of(capsys)
    assert not out.exists()
