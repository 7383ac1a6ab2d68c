"""The command line: `waycode data ...`, `train`, `eval ...`, `plan`, `simulate`, `swap`, `find`, `objectives`, `demo`.

Each command is a frozen dataclass, its fields are the options, and its `run` prints what was found and returns the exit
code: 0 is success, 1 a dataset with faults, 2 bad input (one sentence on stderr), 130 a run that the user stopped.
"""

import os
import sys
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Annotated, Protocol, runtime_checkable

import tyro

from waycode import __version__
from waycode.cli.console import complain, say
from waycode.cli.data import Data
from waycode.cli.demo import Demo
from waycode.cli.evaluate import Evaluate
from waycode.cli.find import Find
from waycode.cli.objectives import Objectives
from waycode.cli.plan import PlanCommand
from waycode.cli.simulate import Simulate
from waycode.cli.swap import Swap
from waycode.cli.train import Train
from waycode.scene import WaycodeError

FAILED, BAD_INPUT, STOPPED = 1, 2, 130
Command = (
    Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("eval")]
    | Annotated[PlanCommand, tyro.conf.subcommand("plan")]
    | Annotated[Simulate, tyro.conf.subcommand("simulate")]
    | Annotated[Swap, tyro.conf.subcommand("swap")]
    | Annotated[Find, tyro.conf.subcommand("find")]
    | Annotated[Objectives, tyro.conf.subcommand("objectives")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)
DESCRIPTION = "Waycode plans motion by searching a compressed code of the way ahead."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        say(f"waycode {__version__}")
        return 0
    try:
        return _parse(arguments).run()
    except SystemExit as end:  # tyro has printed its help (0) or what it could not parse (2)
        return end.code if isinstance(end.code, int) else BAD_INPUT
    except WaycodeError as error:
        return complain(str(error), BAD_INPUT)
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BrokenProcessPool:
        return complain("a worker process was killed, perhaps for want of memory: try fewer --workers", FAILED)
    except OSError as error:
        return complain(str(error), BAD_INPUT)
    except KeyboardInterrupt:
        return complain("stopped; run again to continue", STOPPED)


@runtime_checkable
class _Runnable(Protocol):
    def run(self) -> int: ...


def _parse(arguments: list[str]) -> _Runnable:
    command: _Runnable = tyro.cli(
        Command,
        prog="waycode",
        description=DESCRIPTION,
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    return command
