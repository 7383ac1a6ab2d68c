"""How commands speak: results on stdout, progress and complaints on stderr."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[int], None]


def say(what: RenderableType) -> None:
    """Prints a result; plain text where stdout is not a terminal."""
    Console(file=sys.stdout, soft_wrap=isinstance(what, str), highlight=False, markup=False).print(what)


def say_json(result: Any) -> None:
    """Prints a result for programs."""
    content = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
    sys.stdout.write(json.dumps(content, indent=2, default=str) + "\n")


def complain(sentence: str, exit_code: int) -> int:
    """Prints one line on stderr and hands back the exit code."""
    sys.stderr.write(f"waycode: {' '.join(sentence.split())}\n")
    return exit_code


@contextmanager
def progress(description: str, total: int | None, *, unit: str = "scenes") -> Iterator[Advance]:
    """A bar on stderr, if that is a terminal; call what it gives with the number of units done since the last call."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit),
        TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
