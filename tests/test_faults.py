"""Killed at any change of a file, with a full disk, or where nothing can be written: nothing is lost, no traceback.

50 kills over all commands; `python tests/fault_run.py train /tmp/faults 7 100 20` tries more of one.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from fault_run import COMMANDS

# name -> kills, full disks: as many as take about 20 s each
TRIALS = {
    "convert": (11, 3),
    "split": (11, 3),
    "sumo": (2, 1),
    "generate": (4, 1),
    "calibrate": (1, 1),
    "export-womd": (2, 1),
    "export-scenarionet": (3, 1),
    "export-nuplan": (3, 1),
    "train": (6, 2),
    "simulate": (5, 2),
    "evaluate": (2, 1),
}


def test_every_command_is_tried() -> None:
    assert TRIALS.keys() == COMMANDS.keys()
    assert sum(kills for kills, _ in TRIALS.values()) == 50


@pytest.mark.parametrize("name", TRIALS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    kills, full = TRIALS[name]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("fault_run.py"), name, tmp_path / "work", "0", str(kills), str(full)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{kills + full} trials, 0 findings\n"), done.stdout + done.stderr
