"""Fuzzing for as long as you like: `make fuzz MINUTES=30`, or `python tests/fuzz.py --minutes 30 --targets womd`.

Each execution damages a good input at random and reads it. Allowed are a valid result and an error of ours that names
the file, in bounded time and memory; everything else is a finding. The damage is a function of one seed, which is
printed with the finding and repeats it: `--seeds 123`.

The search is guided by coverage: the damage of an execution that reached new lines of waycode is built upon. The random
numbers of that execution are drawn again up to a random point, then new ones, so that its first decisions are kept.
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import waycode
from fuzz_base import Finding, Target
from fuzz_targets import TARGETS

_PACKAGE = str(Path(waycode.__file__).parent)
_MAX_SECONDS, _MAX_BYTES = 20, 6 * 10**9  # of one execution, of the process
_TRACED_SHARE = 0.2  # executions that are traced for coverage, which slows them down
_SLICE_S = 5.0  # of each target in turn
_TEXT_SLICE_S, _TEXT_TARGETS = 1.0, ("objectivetext", "planjson")  # a hundred times faster than those that read files
_REPORT_EVERY_S = 300.0
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 (files are synced to disk, which would take most of the time)


@dataclass
class Tally:
    """What was done with one target."""

    executions: int = 0
    accepted: int = 0  # executions whose damage was harmless or could not be seen
    findings: dict[str, int] = field(default_factory=dict)  # the last line of the traceback -> the first seed
    lines: set[tuple[str, int]] = field(default_factory=set)
    corpus: list[tuple[int, ...]] = field(default_factory=list)  # seeds that reached new lines


class GuidedRandom(np.random.Generator):
    """Random numbers that follow an earlier seed for some draws, then their own."""

    def __init__(self, seeds: tuple[int, ...]):
        super().__init__(np.random.PCG64(seeds[-1]))
        self._before = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds[:-1]]
        draws = np.random.Generator(self.bit_generator)
        self._left = [int(draws.integers(1, 12)) for _ in self._before]

    def _source(self) -> np.random.Generator | None:
        while self._before:
            if self._left[0] > 0:
                self._left[0] -= 1
                return self._before[0]
            del self._before[0], self._left[0]
        return None

    def integers(self, *arguments: Any, **options: Any) -> Any:
        source = self._source()
        return super().integers(*arguments, **options) if source is None else source.integers(*arguments, **options)

    def random(self, *arguments: Any, **options: Any) -> Any:
        source = self._source()
        return super().random(*arguments, **options) if source is None else source.random(*arguments, **options)


def execute(target: Target, seeds: tuple[int, ...]) -> tuple[bool, str | None]:
    """Runs one damaged input: whether it was accepted, and the finding as text, None if there is none."""
    try:
        with _time_limit(_MAX_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return target.run(GuidedRandom(seeds)), None
    except Exception:  # what is allowed was caught by the target
        return False, traceback.format_exc()


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Finding(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _traced(lines: set[tuple[str, int]]) -> Iterator[None]:
    """Adds the lines of waycode that are run within."""

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(_PACKAGE) else None

    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(None)


def fuzz(target: Target, tally: Tally, *, until: float, random: np.random.Generator) -> None:
    """Executes a target until a time of `time.monotonic`."""
    while time.monotonic() < until:
        seeds: tuple[int, ...] = (int(random.integers(2**32)),)
        if tally.corpus and random.random() < 0.5:
            seeds = (*tally.corpus[int(random.integers(len(tally.corpus)))][-2:], *seeds)
        if random.random() < _TRACED_SHARE:
            found_lines: set[tuple[str, int]] = set()
            with _traced(found_lines):
                accepted, finding = execute(target, seeds)
            if found_lines - tally.lines:
                tally.lines |= found_lines
                tally.corpus.append(seeds)
        else:
            accepted, finding = execute(target, seeds)
        tally.executions += 1
        tally.accepted += accepted
        if finding is not None:
            last = finding.strip().splitlines()[-1]
            kind = "".join(letter for letter in last if not letter.isdigit())[:120]
            if kind not in tally.findings:
                tally.findings[kind] = seeds[-1]
                say(f"FINDING in {target.name}, --targets {target.name} --seeds {' '.join(map(str, seeds))}\n{finding}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    by_name = {kind.__name__.lower(): kind for kind in TARGETS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--targets", nargs="+", choices=sorted(by_name), default=sorted(by_name))
    parser.add_argument("--seed", type=int, default=None, help="of the whole run; random by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="repeat one execution, by its seeds")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, resource.RLIM_INFINITY))
    seed = int.from_bytes(os.urandom(4), "big") if options.seed is None else options.seed
    random, tallies = np.random.default_rng(seed), {name: Tally() for name in options.targets}
    memory = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="waycode-fuzz-", dir=memory) as folder:
        targets = {name: by_name[name](Path(folder) / name) for name in options.targets}
        for target in targets.values():
            target.prepare()
        if options.seeds is not None:
            _, finding = execute(next(iter(targets.values())), tuple(options.seeds))
            say(finding or "nothing found")
            return int(finding is not None)
        end = time.monotonic() + 60 * options.minutes
        next_report = time.monotonic() + _REPORT_EVERY_S
        while time.monotonic() < end:
            for name, target in targets.items():
                slice_s = _TEXT_SLICE_S if name in _TEXT_TARGETS else _SLICE_S
                fuzz(target, tallies[name], until=min(end, time.monotonic() + slice_s), random=random)
            if time.monotonic() > next_report:
                next_report += _REPORT_EVERY_S
                report(tallies, seed)
    return int(report(tallies, seed) > 0)


def report(tallies: Mapping[str, Tally], seed: int) -> int:
    """Prints what was done so far; returns the number of findings."""
    for name, tally in tallies.items():
        lines = f"{len(tally.lines)} lines reached, {len(tally.corpus)} inputs kept"
        counts = f"{tally.executions:,} executions ({tally.accepted:,} accepted)"
        say(f"{name}: {counts}, {lines}, {len(tally.findings)} findings")
    total = sum(tally.executions for tally in tallies.values())
    findings = sum(len(tally.findings) for tally in tallies.values())
    say(f"{total:,} executions with --seed {seed}, {findings} findings")
    return findings


if __name__ == "__main__":
    sys.exit(main())
