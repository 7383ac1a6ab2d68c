"""`waycode train`: trains a model from a recipe."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from waycode.cli.console import complain, say, say_json
from waycode.cli.data import Flag, UsageError

if TYPE_CHECKING:
    from waycode.training.config import TrainingConfig
    from waycode.training.journal import StepReport
    from waycode.training.validation import ValidationReport

RecipeName = Literal["tiny", "small", "small-finish", "paper", "paper-nuplan", "closed-loop"]
STOPPED = 130


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model on datasets of scenes. Ctrl-C stops it after a step; the same command with --resume goes on.

    The run's folder holds training.json, metrics.csv, validation.jsonl, logs for TensorBoard, the last checkpoint, and
    the model as it was at the last validation (model/), which every other command takes.
    """

    recipe: tyro.conf.Positional[RecipeName]
    """What is trained, and how; docs/training.md describes each."""
    data: Path
    """Dataset to train on."""
    val: Path
    """Dataset to validate with: scenes that training never sees."""
    out: Path
    """Folder of the run."""
    init: str | None = None
    """Begin with the weights of another run, a model's folder or a bundled model."""
    resume: Flag = False
    """Go on with the run in --out."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="NAME=VALUE")
    ] = ()
    """Change a setting of the recipe, such as model.width=128 or noise.target_ade_m=0.8; can be given several times."""
    steps: int | None = None
    """Number of steps; that of the recipe if not given."""
    threads: int | None = None
    """Threads to compute with; all cores if not given."""
    workers: int = 1
    """Processes that read scenes."""
    val_scenes: int = 100
    """How many of the validation scenes are used, always the same ones."""
    json: Flag = False
    """Print the result as JSON."""

    def run(self) -> int:
        config = self._config()
        self._check()
        import torch

        from waycode.cli.learning_tables import validation_table  # now: the code may be edited while the run goes on
        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.validation_figures import ReconstructionFigures
        from waycode.training.errors import RunStopped
        from waycode.training.run import last_step, train

        torch.set_num_threads(self.threads or os.cpu_count() or 1)
        judge, total = ReconstructionFigures(num_scenes=self.val_scenes), len(Dataset(self.data))
        judge.check(Dataset(self.val))
        resumed = self.resume and self.out.exists()
        try:
            with (
                _Show(total_scenes=total, config=config, table=validation_table) as show,
                stop_on_interrupt(show) as stop_requested,
            ):
                train(
                    config, data=self.data, validation=self.val, out=self.out, judge=judge, init=self.init,
                    resume=self.resume, workers=self.workers, hooks=show.hooks(stop_requested),
                )  # fmt: skip
        except RunStopped as stop:
            return complain(
                f"stopped after step {stop.step:,}: the same command with --resume goes on from it", STOPPED
            )
        except KeyboardInterrupt:
            kept = last_step(self.out)
            how = f"--resume goes on from step {kept:,}" if kept else "nothing was kept yet"
            return complain(f"stopped at once: {how}", STOPPED)
        self._say_result(show, resumed=resumed)
        return 0

    def _config(self) -> "TrainingConfig":
        from waycode.training.config import RECIPES
        from waycode.training.overrides import override

        steps = [] if self.steps is None else [f"steps={self.steps}"]
        return override(RECIPES[self.recipe](), [*self.settings, *steps])

    def _check(self) -> None:
        for name, least in (("workers", 0), ("val_scenes", 1)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}, expected at least {least}"
                )  # fmt: skip
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"--threads is {self.threads}, expected at least 1")

    def _say_result(self, show: "_Show", *, resumed: bool) -> None:
        from waycode.training.folders import MODEL_FOLDER

        step, report = show.step, show.validation
        if self.json:
            say_json(
                {
                    "model": str(self.out / MODEL_FOLDER),
                    "step": step.step if step else None,
                    "samples_per_s": step.samples_per_s if step else None,
                    "waiting_share": step.waiting_share if step else None,
                    "validation": None if report is None else asdict(report),
                }
            )
        elif report is None:
            say(f"{self.out} was finished already" if resumed else f"{self.out}: no step was made")
        else:
            folder = self.out / MODEL_FOLDER
            say(f"{folder}: trained for {report.step:,} steps (more: {folder / 'MODEL_CARD.md'})")


@dataclass
class _Show:
    """What a person sees of a run: a bar while it goes, and a small table at every validation, all on stderr."""

    total_scenes: int
    config: "TrainingConfig"
    table: Callable[..., RenderableType]
    step: "StepReport | None" = None
    validation: "ValidationReport | None" = None
    _progress: Progress = field(init=False)
    _looking: TaskID = field(init=False)
    _training: TaskID | None = None

    def __post_init__(self) -> None:
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=10), MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(compact=True), TextColumn("left"),
        )  # fmt: skip
        self._progress = Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty())

    def __enter__(self) -> "_Show":
        self._progress.start()
        self._looking = self._progress.add_task("looking through scenes", total=self.total_scenes, figures="")
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    @property
    def has_begun(self) -> bool:
        return self.step is not None

    def hooks(self, stop_requested: Callable[[], bool]) -> Any:
        from waycode.training.run import Hooks

        return Hooks(
            on_scenes=lambda count: self._progress.advance(self._looking, count),
            on_step=self._on_step,
            on_validation=self._on_validation,
            stop_requested=stop_requested,
        )

    def _on_step(self, report: "StepReport") -> None:
        if self._training is None:
            self._progress.remove_task(self._looking)
            self._training = self._progress.add_task("training", total=self.config.steps, figures="")
            self._progress.update(self._training, completed=report.step - 1)
        self.step = report
        figures = f"{report.samples_per_s:.0f} samples/s ADE {report.ade_m:.2f} sigma {report.sigma:.2f}"
        self._progress.update(self._training, completed=report.step, figures=figures)

    def _on_validation(self, report: "ValidationReport") -> None:
        self.validation = report
        speed = self.step.samples_per_s if self.step else 0.0
        self._progress.console.print(self.table(report, samples_per_s=speed))


@contextmanager
def stop_on_interrupt(show: _Show) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks the run to stop after its step; the second, or one before any step, stops at once."""
    requested: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if requested or not show.has_begun:
            raise KeyboardInterrupt
        requested.append(number)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(requested)
    finally:
        signal.signal(signal.SIGINT, before)
