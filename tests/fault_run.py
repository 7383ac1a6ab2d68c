"""Kills, full disks and folders that cannot be written, for every command that writes: COMMAND FOLDER SEED KILLS FULL.

A program of its own, which imports everything once and forks a process per trial. A kill comes at a random change of a
file, which is where damage is done: the audit hook of Python sees them. A full disk is a limit on the size of files.
Prints a sentence per trial that broke a promise, and the number of trials last.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate")
_KILLED, _REFUSED = -signal.SIGKILL, 2
_LEAST_BYTES = 500  # of a file on a full disk: the complaint itself is written to one


@dataclass(frozen=True)
class Command:
    """A command that writes, and what it leaves behind that matters."""

    arguments: Callable[[Path, Path], list[str]]  # from the folder of inputs and the folder to write
    result: Callable[[Path], Any]  # of the written folder; equal for equal runs
    written: str = "*"  # names of the files that it writes; others were there before


def in_child(
    arguments: list[str], out: Path, *, kill_at: int | None = None, max_bytes: int | None = None
) -> tuple[int, int, str]:
    """Runs a command in a process of its own: its exit code, the number of changes to files, and its stderr."""
    read_end, write_end = os.pipe()
    said = out.with_name(f"{out.name}.stderr")
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        changes = 0

        def on_event(event: str, details: tuple[Any, ...]) -> None:
            nonlocal changes
            is_write = event == "open" and isinstance(details[2], int) and bool(details[2] & _WRITING)
            if (is_write or event in _CHANGES) and str(details[0]).startswith(str(out)):
                changes += 1
                if changes == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(on_event)
        if max_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
        code = 99
        try:
            from waycode.cli import main

            code = main(arguments)
        except BaseException as error:  # whatever it is, it is a finding
            os.write(2, f"Traceback: {type(error).__name__}: {error}\n".encode())
        os.write(write_end, changes.to_bytes(8, "big"))
        os._exit(code)
    os.close(write_end)
    changes = int.from_bytes(os.read(read_end, 8), "big")
    os.close(read_end)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, changes, said.read_text(errors="replace")


def dataset_bytes(out: Path) -> Mapping[str, bytes]:
    """All files but the lock of a run that was killed after it had finished the dataset: nobody minds it."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def sizes(out: Path) -> Mapping[str, int]:
    """Sizes of all files, where the content has the time of writing in it."""
    return {str(path.relative_to(out)): path.stat().st_size for path in sorted(out.rglob("*")) if path.is_file()}


def trained_weights(out: Path) -> Any:
    import torch

    checkpoint = torch.load(out / "last.ckpt", weights_only=True)
    steps = [line.split(",")[0] for line in (out / "validation.jsonl").read_text().splitlines()]
    leftovers = [path.name for path in out.rglob(".*")]
    return {name: value.numpy().tobytes() for name, value in checkpoint["state_dict"].items()}, steps, leftovers


def scores(out: Path) -> Any:
    import pyarrow.parquet as pq

    table = pq.read_table(out / "scores.parquet")
    rows = table.drop_columns([name for name in table.schema.names if name == "planning_s"]).to_pylist()
    rows = [{name: repr(value) for name, value in row.items()} for row in rows]  # NaN, for what is not judged, is NaN
    return rows, sorted(path.name for path in out.iterdir())


def report(out: Path) -> Any:
    import json

    content = json.loads((out / "reconstruction.json").read_text())
    return content["table"], sorted(path.name for path in out.iterdir())


def _sample() -> str:
    from waycode.demo import bundled_dataset

    return str(bundled_dataset().folder)


def _train(inputs: Path, out: Path) -> list[str]:
    fast = ["--workers", "0", "--threads", "1", "--val-scenes", "1", "--set", "scenes_per_batch=1", "--steps", "4"]
    every = ["--set", "checkpoint_every=1", "--set", "validate_every=2", "--cache", str(inputs / "cache"), "--resume"]
    return ["train", "tiny", _sample(), "--val", _sample(), "--out", str(out), *fast, *every]


def _export(form: str) -> Callable[[Path, Path], list[str]]:
    return lambda inputs, out: ["data", "export", _sample(), "--to", form, "--index", "0", "3", "--out", str(out)]


def _generate(inputs: Path, out: Path) -> list[str]:
    return ["generate", _sample(), "--model", str(inputs / "model"), "--count", "2", "--out", str(out)]


def _calibrate(inputs: Path, out: Path) -> list[str]:
    """Calibration writes into the folder of a model: each trial gets a copy."""
    import shutil

    if not out.exists() and out.parent.is_dir():
        shutil.copytree(inputs / "model", out)
    return ["calibrate", _sample(), _sample(), "--model", str(out), "--scenes", "20"]


COMMANDS: dict[str, Command] = {
    "convert": Command(
        lambda inputs, out: ["data", "convert", str(inputs / "raw"), "--from", "gpudrive", "--out", str(out)],
        dataset_bytes,
    ),
    "split": Command(
        lambda inputs, out: ["data", "split", _sample(), "--out", str(out)],
        dataset_bytes,
    ),
    "sumo": Command(
        lambda inputs, out: ["data", "sumo", "--out", str(out), "--scenes", "2", "--families", "curved_road"],
        dataset_bytes,
    ),
    "generate": Command(_generate, dataset_bytes),
    "calibrate": Command(_calibrate, dataset_bytes, written="familiarity.safetensors"),
    "export-womd": Command(_export("womd"), dataset_bytes),
    "export-scenarionet": Command(_export("scenarionet"), dataset_bytes),
    "export-nuplan": Command(_export("nuplan"), sizes),
    "train": Command(_train, trained_weights),
    "simulate": Command(
        lambda inputs, out: ["simulate", _sample(), "--planner", "constant-velocity", "--scenes", "2",
                             "--horizon-s", "1", "--worst", "1", "--out", str(out)],
        scores,
    ),
    "evaluate": Command(
        lambda inputs, out: ["eval", "reconstruction", _sample(), "--model", "sumo-small", "--scenes", "1",
                             "--no-refine", "--threads", "1", "--out", str(out)],
        report,
    ),
}  # fmt: skip


def prepare(name: str, inputs: Path) -> None:
    """Writes what the command reads, and imports what it imports, once for all trials."""
    import json

    inputs.mkdir(parents=True, exist_ok=True)
    if name == "convert":
        import test_gpudrive
        import waycode.sources.base as base

        base._SCENES_PER_SHARD = 2
        (inputs / "raw").mkdir()
        for number in range(6):
            content = {**test_gpudrive.small_content(), "scenario_id": f"scene-{number}"}
            (inputs / "raw" / f"{number}.json").write_text(json.dumps(content))
    elif name == "split":
        import waycode.dataset.split as split

        split._SCENES_PER_SHARD = 4
    if name in ("generate", "calibrate"):
        from tiny_model import tiny_model
        from waycode.model.saved import save_model

        save_model(inputs / "model", tiny_model(joint=name == "generate", width=8, heads=1))
    if name in ("train", "simulate", "evaluate", "generate", "calibrate"):
        import torch

        import waycode.evaluation.closed_loop
        import waycode.evaluation.reconstruction
        import waycode.training.run  # noqa: F401

        torch.set_num_threads(1)


def is_refusal(code: int, said: str) -> bool:
    """Whether a command ended with one sentence; training may have given its notices before."""
    notices = ("holds no run to resume: a new one begins", "its figures say nothing about other scenes")
    sentences = [line for line in said.splitlines() if not line.endswith(notices)]
    return code == _REFUSED and len(sentences) == 1 and "Traceback" not in said


def trials(name: str, folder: Path, *, seed: int, kills: int, full: int) -> int:
    """Runs the trials of one command and prints what broke; returns the number of findings."""
    command, random, findings = COMMANDS[name], np.random.default_rng(seed), 0
    inputs = folder / "inputs"
    prepare(name, inputs)

    def arguments(out: Path) -> list[str]:
        return command.arguments(inputs, out)

    def found(sentence: str) -> None:
        nonlocal findings
        findings += 1
        sys.stdout.write(f"{name}: {sentence}\n")

    whole = folder / "whole"
    code, num_changes, said = in_child(arguments(whole), whole)
    if code != 0:
        found(f"the undisturbed run ends with {code}: {said}")
        return findings
    expected = command.result(whole)
    largest = max(path.stat().st_size for path in whole.rglob(command.written) if path.is_file())
    for trial in range(kills + full):
        out = folder / f"trial-{trial}"
        if trial < kills:
            kill_at = int(random.integers(1, num_changes + 1))
            code, _, said = in_child(arguments(out), out, kill_at=kill_at)
            what = f"seed {seed}, killed at change {kill_at} of {num_changes}"
            if code not in (_KILLED, 0):
                found(f"{what}: it ended with {code}: {said}")
        else:
            limit = int(random.integers(_LEAST_BYTES, largest))
            code, _, said = in_child(arguments(out), out, max_bytes=limit)
            what = f"seed {seed}, disk full after {limit} bytes of a file"
            if not is_refusal(code, said):
                found(f"{what}: it ended with {code}, and said: {said[-600:]}")
        code, _, said = in_child(arguments(out), out)
        if code != 0:
            found(f"{what}: going on ended with {code}: {said[-600:]}")
        elif command.result(out) != expected:
            found(f"{what}: the result differs from that of an undisturbed run")
    for out in (folder / "whole" / "file.txt" / "below", Path("/proc/waycode/out")):
        (folder / "whole" / "file.txt").write_text("in the way")
        code, _, said = in_child(arguments(out), folder / "nowhere")
        if not is_refusal(code, said):
            found(f"writing to {out} ended with {code}, and said: {said[-600:]}")
    return findings


if __name__ == "__main__":
    command_name, work = sys.argv[1], Path(sys.argv[2])
    numbers = [int(text) for text in sys.argv[3:6]]
    broken = trials(command_name, work, seed=numbers[0], kills=numbers[1], full=numbers[2])
    sys.stdout.write(f"{sum(numbers[1:])} trials, {broken} findings\n")
    sys.exit(int(broken > 0))
