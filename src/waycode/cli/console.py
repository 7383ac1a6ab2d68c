"""Shared by all commands: checks of options, results on stdout, progress and errors on stderr."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from waycode.scene import WaycodeError

_LOG_EVERY_S = 60.0  # between lines of progress where there is no terminal
FAILED, BAD_INPUT, STOPPED = 1, 2, 130  # exit codes; 0 is success
Flag = tyro.conf.FlagCreatePairsOff[bool]  # --name without --no-name

# Types of options, with the word that the help shows for their value. One meaning has one type in all commands.
DatasetPath = Annotated[Path, tyro.conf.arg(metavar="DATASET")]  # a folder, a file of scenes, `sample`, ...
Folder = Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
MaybeFolder = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")]
File = Annotated[Path, tyro.conf.arg(metavar="FILE")]
MaybeFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Picture = Annotated[Path, tyro.conf.arg(metavar="PICTURE")]
MaybePicture = Annotated[Path | None, tyro.conf.arg(metavar="PICTURE")]
ModelName = Annotated[str, tyro.conf.arg(metavar="MODEL")]
MaybeAgent = Annotated[str | None, tyro.conf.arg(metavar="AGENT")]
Count = Annotated[int, tyro.conf.arg(metavar="N")]
MaybeCount = Annotated[int | None, tyro.conf.arg(metavar="N")]
Seconds = Annotated[float, tyro.conf.arg(metavar="SECONDS")]
MaybeSeconds = Annotated[float | None, tyro.conf.arg(metavar="SECONDS")]
Metres = Annotated[float, tyro.conf.arg(metavar="METRES")]


class UsageError(WaycodeError):
    """Options that are out of range or do not go together."""


def check_at_least(least: int, **options: int | None) -> None:
    """Raises a `UsageError` for the first option below `least`; options that are not given (None) pass."""
    for name, value in options.items():
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} is {value}, expected at least {least}")


def say(text: RenderableType) -> None:
    """Prints to stdout, as plain text where it is not a terminal."""
    Console(file=sys.stdout, soft_wrap=isinstance(text, str), highlight=False, markup=False).print(text)


def say_result(result: Any, *texts: RenderableType, as_json: bool) -> None:
    """Prints the result of a command.

    Args:
        result: Printed with --json: a dataclass or anything that `json.dumps` takes.
        *texts: Printed otherwise, one below the other.
        as_json: Whether --json was given.
    """
    if as_json:
        content = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
        sys.stdout.write(json.dumps(content, indent=2, default=str) + "\n")
    else:
        for text in texts:
            say(text)


def complain(sentence: str, exit_code: int) -> int:
    """Prints one line on stderr and returns the exit code."""
    sys.stderr.write(f"waycode: {' '.join(sentence.split())}\n")
    return exit_code


class MinuteLog:
    """Writes a line to stderr at most once a minute, for logs of schedulers; nothing where stderr is a terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._began = self._last = clock()

    def say(self, sentence: str) -> None:
        """Writes the sentence with the time since the start, if a minute has passed since the last one."""
        now = self._clock()
        if now - self._last >= _LOG_EVERY_S and not sys.stderr.isatty():
            self._last = now
            sys.stderr.write(f"{sentence} after {(now - self._began) / 60:.0f} min\n")
            sys.stderr.flush()


@contextmanager
def progress_bar(
    description: str, total: int | None, *, unit: str = "scenes", clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr if that is a terminal, else a line a minute.

    Args:
        description: what is being done, such as "driving".
        total: number of units; None if it is not known.
        unit: what is counted.
        clock: seconds, for the lines.

    Yields:
        A function that advances the bar by a number of units.
    """
    log, done = MinuteLog(clock), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        bar.advance(task, count)
        log.say(f"{description}: {done:,} {'' if total is None else f'of {total:,} '}{unit}")

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit),
        TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(description, total=total)
        yield advance
