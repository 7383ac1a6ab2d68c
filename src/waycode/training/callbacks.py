"""Callbacks of a run: logs of every step, validation of the current model, a stop between two steps."""

import csv
import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import parse_json, replace_file
from waycode.model import Model, VarianceGate
from waycode.model.saved import save_model
from waycode.training.card import Effort, TrainingData, model_card
from waycode.training.data import SceneData
from waycode.training.module import AutoencoderModule

_WRITE_EVERY = 20  # steps; each row is the mean over as many
_SHOWN_DIGITS = 6
_MAX_DIGITS = 12  # of the number of a step

# From a model and the validation scenes to figures named `column/tokens`, and the thresholds of the variance gate.
Validate = Callable[[Model, Dataset], tuple[dict[str, float], VarianceGate]]


class RunStopped(Exception):  # noqa: N818 (no error: the user requested it)
    """The run was stopped on request, and has saved everything up to this step."""

    def __init__(self, step: int):
        self.step = step
        super().__init__(f"the run was stopped after step {step}")


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """Means over the last steps: a row of `metrics.csv`."""

    step: int
    loss: float
    ade_m: float
    sigma: float
    learning_rate: float
    samples_per_s: float  # a sample is one modelled agent; validation and checkpoints are not counted
    waiting_share: float  # share of the time spent waiting for data


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """A row of `validation.jsonl`."""

    step: int
    sigma: float
    minutes: float  # of training, over all sessions
    figures: dict[str, float] = field(default_factory=dict)  # ADE in metres, by `column/tokens`


class Journal(Callback):
    """Times every step; writes a CSV file and TensorBoard events. The class name is a key of checkpoints.

    Args:
        data: measures the time spent waiting for batches.
        path: of the CSV file.
        on_step: called with the means over the last steps, after every step.
    """

    def __init__(self, data: SceneData, path: Path, on_step: Callable[[StepReport], None]):
        self.data, self.path, self.on_step = data, path, on_step
        self.effort = Effort()
        self._recent: deque[tuple[float, ...]] = deque(maxlen=_WRITE_EVERY)  # loss, ADE, samples, seconds, waited
        self._began = 0.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self.effort)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.effort = Effort(**state_dict)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        keep_rows(self.path, up_to_step=trainer.global_step)

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        waited_s = self.data.take_waited_s()
        seconds, samples = time.perf_counter() - self._began + waited_s, int(batch.agents.mask.sum())
        self.effort.steps += 1
        self.effort.samples += samples
        self.effort.seconds += seconds
        self.effort.waited_s += waited_s
        self._recent.append((float(outputs["loss"]), float(outputs["ade"]), samples, seconds, waited_s))
        loss, ade_m, recent_samples, recent_s, recent_waited_s = map(sum, zip(*self._recent, strict=True))
        report = StepReport(
            step=trainer.global_step,
            loss=loss / len(self._recent),
            ade_m=ade_m / len(self._recent),
            sigma=_autoencoder(pl_module).sigma,
            learning_rate=float(trainer.optimizers[0].param_groups[0]["lr"]),
            samples_per_s=recent_samples / recent_s,
            waiting_share=recent_waited_s / recent_s,
        )
        if trainer.global_step % _WRITE_EVERY == 0:
            append_row(self.path, report)
            _log(trainer, {name: value for name, value in asdict(report).items() if name != "step"})
        self.on_step(report)


class Validation(Callback):
    """Validates every `validate_every` steps: writes the figures, and saves the model with its thresholds and card.

    Args:
        dataset: validation scenes.
        validate: computes the figures.
        journal: measures the effort, for the card.
        data: origin of the model, for the card.
        model_folder: the model is saved here.
        table: JSON Lines file, a row per validation.
        on_report: called after every validation.
    """

    def __init__(
        self,
        dataset: Dataset,
        validate: Validate,
        journal: Journal,
        *,
        data: TrainingData,
        model_folder: Path,
        table: Path,
        on_report: Callable[[ValidationReport], None],
    ):
        self.dataset, self.validate, self.journal, self.data = dataset, validate, journal, data
        self.model_folder, self.table, self.on_report = model_folder, table, on_report

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self.table.exists():  # validations after the checkpoint will be repeated
            rows = self.table.read_text(errors="replace").splitlines()
            text = "".join(row + "\n" for row in rows if _step_of_json(row) <= trainer.global_step)
            replace_file(self.table, lambda path: path.write_text(text))

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        module, step = _autoencoder(pl_module), trainer.global_step
        config, model, effort = module.config, module.model, self.journal.effort
        if step % config.validate_every != 0 and step != config.steps:
            return
        with torch.no_grad():
            figures, gate = self.validate(model.eval(), self.dataset)
        model.train()
        report = ValidationReport(step=step, sigma=module.sigma, minutes=effort.seconds / 60, figures=figures)
        row = {"step": step, "sigma": report.sigma, "minutes": report.minutes, **figures}
        with self.table.open("a") as file:
            file.write(json.dumps(row) + "\n")
        card = model_card(
            config, self.data, step=step, sigma=module.sigma, num_parameters=model.num_parameters, effort=effort,
            figures=figures,
        )  # fmt: skip
        save_model(self.model_folder, model, gate=gate, card=card)
        _log(trainer, {_tag(name): value for name, value in figures.items()})
        self.on_report(report)


class Stopping(Callback):
    """Ends the run after the current step when requested, with a checkpoint of exactly that step."""

    def __init__(self, checkpoint: Path, stop_requested: Callable[[], bool]):
        self.checkpoint, self.stop_requested = checkpoint, stop_requested

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.stop_requested():
            trainer.save_checkpoint(self.checkpoint)
            raise RunStopped(trainer.global_step)


def _autoencoder(module: lightning.LightningModule) -> AutoencoderModule:
    if not isinstance(module, AutoencoderModule):
        raise TypeError(f"expected an AutoencoderModule, got {type(module).__name__}")
    return module


def _log(trainer: lightning.Trainer, figures: Mapping[str, float]) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(dict(figures), step=trainer.global_step)


def _tag(name: str) -> str:
    """TensorBoard's name of a figure: `greedy N_l = 2/3` becomes `validation/greedy_N_l_2/3_tokens`."""
    column, _, tokens = name.rpartition("/")
    return f"validation/{'_'.join(column.replace('=', ' ').split())}/{tokens}_tokens"


def append_row(path: Path, report: StepReport) -> None:
    """Adds a row to a CSV file; a new file starts with the names of the columns."""
    is_new = not path.exists()
    row = asdict(report)
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(row)
        writer.writerow(value if isinstance(value, int) else f"{value:.{_SHOWN_DIGITS}g}" for value in row.values())


def keep_rows(path: Path, *, up_to_step: int) -> None:
    """Drops the rows after the checkpoint that a run resumes from, which will be repeated, and what is no whole row."""
    if not path.exists():
        return
    first, *lines = path.read_text(errors="replace").splitlines() or [""]
    header = first if first.startswith("step,") else ",".join(one.name for one in fields(StepReport))
    kept = [line for line in lines if line.count(",") == header.count(",") and _step_of_csv(line) <= up_to_step]
    replace_file(path, lambda temporary: temporary.write_text("\n".join([header, *kept]) + "\n"))


def _step_of_csv(row: str) -> float:
    number = row.partition(",")[0]
    return float(number) if number.isdecimal() and len(number) < _MAX_DIGITS else math.inf


def _step_of_json(row: str) -> float:
    """The step of a row of `validation.jsonl`; infinity for what is no whole row."""
    try:
        step = parse_json(row)["step"]
    except (ValueError, TypeError, KeyError, IndexError):
        return math.inf
    return float(step) if isinstance(step, int) and abs(step) < 10**_MAX_DIGITS else math.inf
