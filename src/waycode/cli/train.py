"""`waycode train`: trains a model from a recipe."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from waycode.cli.console import (
    STOPPED,
    Count,
    DatasetPath,
    Flag,
    Folder,
    MaybeCount,
    MaybeFolder,
    MinuteLog,
    check_at_least,
    complain,
    say_result,
)

if TYPE_CHECKING:
    from waycode.training.callbacks import StepReport, ValidationReport
    from waycode.training.run import Hooks

RecipeName = Literal[
    "tiny", "small", "small-paper", "small-joint", "paper", "paper-nuplan", "paper-joint", "closed-loop"
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model on a dataset of scenes. Ctrl-C and SIGTERM stop it after a step; --resume continues.

    The folder of the run holds training.json, metrics.csv, validation.jsonl, logs for TensorBoard, the last checkpoint,
    and the model at the last validation (model/), which every other command takes.
    """

    recipe: tyro.conf.Positional[RecipeName]
    """Model and training settings; docs/training.md describes each recipe."""
    data: tyro.conf.Positional[DatasetPath]
    """Dataset to train on: a folder, a Parquet file of scenes, or `sample`."""
    val: DatasetPath
    """Dataset to validate on: scenes that are not trained on."""
    out: Folder
    """Folder of the run."""
    init: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Start with the weights of another run, of a model's folder or of a bundled model."""
    resume: Flag = False
    """Continue the run in --out."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="NAME=VALUE")
    ] = ()
    """Change a setting of the recipe, such as model.width=128 or noise.target_ade_m=0.8; can be repeated."""
    steps: MaybeCount = None
    """Number of steps; that of the recipe if not given."""
    threads: MaybeCount = None
    """Number of threads; all cores if not given."""
    workers: Count = 1
    """Number of processes that read scenes."""
    accelerator: str = "auto"
    """Hardware to compute on: cpu, gpu, ..., or what there is (auto)."""
    devices: str = "auto"
    """Number of devices; a run uses one."""
    precision: str = "32-true"
    """Floating-point precision: 32-true, bf16-mixed or 16-mixed."""
    cache: MaybeFolder = None
    """Folder of prepared examples, kept for later runs; the variable WAYCODE_CACHE or the user's cache if not given."""
    val_scenes: Count = 100
    """Number of validation scenes to use, always the same ones."""
    json: Flag = False
    """Print the result as JSON."""

    def run(self) -> int:
        from waycode.training.config import RECIPES, override

        steps = [] if self.steps is None else [f"steps={self.steps}"]
        config = override(RECIPES[self.recipe](), [*self.settings, *steps])
        check_at_least(0, workers=self.workers)
        check_at_least(1, val_scenes=self.val_scenes, threads=self.threads)
        import torch

        from waycode.dataset.dataset import Dataset
        from waycode.evaluation.reconstruction import ReconstructionFigures
        from waycode.training.callbacks import RunStopped
        from waycode.training.run import Hardware, last_step, train

        hardware = Hardware(accelerator=self.accelerator, devices=self.devices, precision=self.precision)
        torch.set_num_threads(self.threads or os.cpu_count() or 1)
        figures = ReconstructionFigures(num_scenes=self.val_scenes, spread=config.gate_spread)
        num_scenes = len(Dataset(self.data))
        figures.check(Dataset(self.val))
        resumed = self.resume and self.out.exists()
        try:
            with (
                _TrainingDisplay(num_scenes=num_scenes, num_steps=config.steps) as display,
                _stop_on_interrupt(display) as stop_requested,
            ):
                train(
                    config, data=self.data, validation=self.val, out=self.out, validate=figures, init=self.init,
                    resume=self.resume, workers=self.workers, hooks=display.hooks(stop_requested),
                    hardware=hardware, cache=self.cache,
                )  # fmt: skip
        except RunStopped as stop:
            how = "the same command with --resume goes on from it"
            return complain(f"stopped after step {stop.step:,}: {how}", STOPPED)
        except KeyboardInterrupt:
            kept = last_step(self.out)
            how = f"--resume goes on from step {kept:,}" if kept else "nothing was kept yet"
            return complain(f"stopped at once: {how}", STOPPED)
        self._say_result(display, resumed=resumed)
        return 0

    def _say_result(self, display: "_TrainingDisplay", *, resumed: bool) -> None:
        from waycode.model.saved import MODEL_FOLDER

        step, report, folder = display.step, display.validation, self.out / MODEL_FOLDER
        result = {
            "model": str(folder),
            "step": step.step if step else None,
            "samples_per_s": step.samples_per_s if step else None,
            "waiting_share": step.waiting_share if step else None,
            "validation": None if report is None else asdict(report),
        }
        if report is None:
            text = f"{self.out} was finished already" if resumed else f"{self.out}: no step was made"
        else:
            text = f"{folder}: trained for {report.step:,} steps (more: {folder / 'MODEL_CARD.md'})"
        say_result(result, text, as_json=self.json)


class _TrainingDisplay:
    """Shows a run on stderr: a progress bar, and a table at every validation. Keeps the last reports."""

    def __init__(self, *, num_scenes: int, num_steps: int):
        self.step: StepReport | None = None
        self.validation: ValidationReport | None = None
        columns = (
            TextColumn("{task.description}"), BarColumn(bar_width=10), MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"), TimeRemainingColumn(compact=True), TextColumn("left"),
        )  # fmt: skip
        self._progress = Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty())
        self._num_steps, self._log = num_steps, MinuteLog()
        self._reading = self._progress.add_task("reading scenes", total=num_scenes, figures="")
        self._training: TaskID | None = None  # the bar of steps, which replaces that of reading

    def __enter__(self) -> "_TrainingDisplay":
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def hooks(self, stop_requested: Callable[[], bool]) -> "Hooks":
        # Imported before the run, not at its first validation: the code may be edited in the meantime.
        from waycode.cli.tables import validation_table
        from waycode.training.run import Hooks

        def on_validation(report: "ValidationReport") -> None:
            self.validation = report
            speed = self.step.samples_per_s if self.step else 0.0
            self._progress.console.print(validation_table(report, samples_per_s=speed))

        return Hooks(
            on_scenes=lambda count: self._progress.advance(self._reading, count),
            on_step=self._on_step,
            on_validation=on_validation,
            on_notice=lambda sentence: self._progress.console.print(
                f"waycode: {sentence}", markup=False, soft_wrap=True
            ),
            stop_requested=stop_requested,
        )

    def _on_step(self, report: "StepReport") -> None:
        if self._training is None:
            self._progress.remove_task(self._reading)
            self._training = self._progress.add_task("training", total=self._num_steps, figures="")
            self._progress.update(self._training, completed=report.step - 1)
        self.step = report
        figures = f"{report.samples_per_s:.0f} samples/s ADE {report.ade_m:.2f} sigma {report.sigma:.2f}"
        self._progress.update(self._training, completed=report.step, figures=figures)
        self._log.say(f"training: {report.step:,} of {self._num_steps:,} steps, {figures}")


@contextmanager
def _stop_on_interrupt(display: _TrainingDisplay) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM requests a stop after the current step; the next, or one before any step, stops now.

    Schedulers of clusters send SIGTERM some time before they kill.
    """
    requested: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if requested or display.step is None:
            raise KeyboardInterrupt
        requested.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(requested)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
