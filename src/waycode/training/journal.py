"""What a run writes down while it goes: figures of every step, how fast it is, and how long it waits for data."""

import csv
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from waycode.features import Batch
from waycode.training.data import SceneData
from waycode.training.errors import RunStopped
from waycode.training.module import AutoencoderModule

WRITE_EVERY = 20  # steps; each row is the mean over as many
SHOWN_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """The means over the last steps."""

    step: int
    loss: float
    ade_m: float
    sigma: float
    learning_rate: float
    samples_per_s: float  # a sample is one modelled agent; validation and checkpoints do not count
    waiting_share: float  # of the time, waiting for data


@dataclass
class Effort:
    """What the run has cost so far, over all sittings; part of every checkpoint."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        return self.waited_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class _Step:
    loss: float
    ade_m: float
    samples: int
    seconds: float
    waited_s: float


class Journal(Callback):
    """Times every step, writes a CSV file and TensorBoard events, and tells who listens."""

    def __init__(self, data: SceneData, path: Path, on_step: Callable[[StepReport], None]):
        self.data, self.path, self.on_step = data, path, on_step
        self.effort = Effort()
        self._recent: deque[_Step] = deque(maxlen=WRITE_EVERY)
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
        module, waited_s = as_autoencoder(pl_module), self.data.take_waited_s()
        step = _Step(
            loss=float(outputs["loss"]),
            ade_m=float(outputs["ade"]),
            samples=_num_samples(batch),
            seconds=time.perf_counter() - self._began + waited_s,
            waited_s=waited_s,
        )
        self._recent.append(step)
        self.effort.steps += 1
        self.effort.samples += step.samples
        self.effort.seconds += step.seconds
        self.effort.waited_s += waited_s
        report = self._report(trainer, module)
        if trainer.global_step % WRITE_EVERY == 0:
            append_row(self.path, report)
            log_figures(trainer, {name: value for name, value in asdict(report).items() if name != "step"})
        self.on_step(report)

    def _report(self, trainer: lightning.Trainer, module: AutoencoderModule) -> StepReport:
        count, seconds = len(self._recent), sum(step.seconds for step in self._recent)
        return StepReport(
            step=trainer.global_step,
            loss=sum(step.loss for step in self._recent) / count,
            ade_m=sum(step.ade_m for step in self._recent) / count,
            sigma=module.sigma,
            learning_rate=float(trainer.optimizers[0].param_groups[0]["lr"]),
            samples_per_s=sum(step.samples for step in self._recent) / seconds,
            waiting_share=sum(step.waited_s for step in self._recent) / seconds,
        )


class Stopping(Callback):
    """Ends the run between two steps when asked to, with a checkpoint of exactly that moment."""

    def __init__(self, checkpoint: Path, stop_requested: Callable[[], bool]):
        self.checkpoint, self.stop_requested = checkpoint, stop_requested

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.stop_requested():
            trainer.save_checkpoint(self.checkpoint)
            raise RunStopped(trainer.global_step)


def as_autoencoder(module: lightning.LightningModule) -> AutoencoderModule:
    if not isinstance(module, AutoencoderModule):
        raise TypeError(f"expected an AutoencoderModule, got {type(module).__name__}")
    return module


def log_figures(trainer: lightning.Trainer, figures: Mapping[str, float]) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(dict(figures), step=trainer.global_step)


def append_row(path: Path, report: StepReport) -> None:
    """Adds a line to a CSV file, which is begun with a line of names."""
    begin = not path.exists()
    row = asdict(report)
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if begin:
            writer.writerow(row)
        writer.writerow(value if isinstance(value, int) else f"{value:.{SHOWN_DIGITS}g}" for value in row.values())


def keep_rows(path: Path, *, up_to_step: int) -> None:
    """Drops what was written after the checkpoint from which the run goes on: these steps come again."""
    if not path.exists():
        return
    header, *lines = path.read_text().splitlines()
    kept = [line for line in lines if int(line.partition(",")[0]) <= up_to_step]
    path.write_text("\n".join([header, *kept]) + "\n")


def _num_samples(batch: Batch) -> int:
    return int(batch.agents.mask.sum())
