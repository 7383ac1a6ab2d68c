"""The command line: `waycode data ...`, `train`, `eval ...`, `ablate`, `plan`, `simulate`, `swap`, `find`, `demo`, ...

Each command is a frozen dataclass whose fields are its options; `run` prints the result and returns the exit code:
0 success, 1 a dataset with faults, 2 bad input (one sentence on stderr), 130 stopped by the user.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import reduce
from operator import or_
from types import FrameType
from typing import Annotated, Any

import tyro

from waycode import __version__
from waycode.cli.ablate import Ablate
from waycode.cli.calibrate import Calibrate
from waycode.cli.console import BAD_INPUT, FAILED, STOPPED, complain, say
from waycode.cli.data import Data
from waycode.cli.doctor import Doctor, Models
from waycode.cli.evaluate import Evaluate
from waycode.cli.generate import Generate
from waycode.cli.planning import Demo, Find, Objectives, PlanCommand, Swap
from waycode.cli.simulate import Simulate
from waycode.cli.studio import StudioCommand
from waycode.cli.train import Train
from waycode.scene import WaycodeError

# The commands by what a user wants, with a line each for the top-level help.
_GROUPS: dict[str, dict[str, tuple[Any, str]]] = {
    "Start here": {
        "demo": (Demo, "plan in the bundled scenes, and write a page of results"),
        "studio": (StudioCommand, "plan by clicking, in the browser"),
        "doctor": (Doctor, "check the installation"),
    },
    "Plan": {
        "plan": (PlanCommand, "plan the path of a road user for an objective"),
        "objectives": (Objectives, "list the objectives and how to combine them"),
        "models": (Models, "list the bundled models"),
        "swap": (Swap, "decode a manoeuvre of one scene in another"),
        "find": (Find, "find road users with the same manoeuvre"),
        "generate": (Generate, "make new scenarios from a scene, with a joint model"),
        "simulate": (Simulate, "drive in a closed loop, and score the drive"),
    },
    "Scenes": {
        "data": (Data, "generate, convert, describe, split, check, draw, export"),
    },
    "Models": {
        "train": (Train, "train a model"),
        "eval": (Evaluate, "measure a model: the paper's tables and figures"),
        "calibrate": (Calibrate, "calibrate the gate of a model"),
        "ablate": (Ablate, "train and measure without each addition of ours"),
    },
}
_COMMANDS = {name: command for group in _GROUPS.values() for name, (command, _) in group.items()}
_AnyCommand: Any = reduce(
    or_, (Annotated[command, tyro.conf.subcommand(name)] for name, command in _COMMANDS.items())
)  # fmt: skip


def _help() -> str:
    """The top-level help: commands in groups; fits 80 columns."""
    lines = ["usage: waycode COMMAND ...", "", "Waycode plans motion by search over learned tokens.", ""]
    for group, commands in _GROUPS.items():
        lines += [f"{group}:", *(f"  {name:12}{line}" for name, (_, line) in commands.items()), ""]
    lines += [
        "Options:",
        "  --help      show this help; `waycode COMMAND --help` shows that of a command",
        "  --version   show the version",
        "",
        "DATASET is a folder of scenes, a Parquet file of scenes, or `sample` or",
        "`sample-crossings` for the scenes that come with the package. Try:",
        "  waycode plan sample-crossings --index 2 --objective left-turn --out plan.png",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; `arguments` are those of the process if None."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # Threads of torch that wait for each other go to sleep soon instead of spinning for a millisecond. Two trainings at
    # once are 3.5 times faster, and one on an idle machine is at most a tenth slower. The variable is read when torch
    # is imported, which commands do in `run`.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if arguments == ["--version"]:
        say(f"waycode {__version__}")
        return 0
    if arguments in (["--help"], ["-h"]):
        say(_help())
        return 0
    if not arguments:
        sys.stderr.write(_help() + "\n")
        return BAD_INPUT
    before = _stop_on_sigterm()
    try:
        command = tyro.cli(
            _AnyCommand,
            prog="waycode",
            description="Waycode plans motion by search over learned tokens.",
            args=arguments,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        )
        exit_code: int = command.run()
        return exit_code
    except SystemExit as end:  # tyro has printed its help (0) or what it could not parse (2)
        return end.code if isinstance(end.code, int) else BAD_INPUT
    except WaycodeError as error:
        return complain(str(error), BAD_INPUT)
    except BrokenPipeError:  # the reader of our output (head, less) has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BrokenProcessPool:
        return complain("a worker process was killed, possibly for lack of memory: try fewer --workers", FAILED)
    except OSError as error:
        return complain(str(error), BAD_INPUT)
    except KeyboardInterrupt:
        return complain("stopped; run again to continue", STOPPED)
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _stop_on_sigterm() -> Any:
    """Lets SIGTERM, which schedulers send, do what Ctrl-C does: it removes temporary files. Returns the old handler."""
    if threading.current_thread() is not threading.main_thread():
        return None  # only the main thread may set handlers

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    return signal.signal(signal.SIGTERM, stop)
