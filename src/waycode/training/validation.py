"""Judges a run every so many steps, and saves the model as it then is."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from waycode.dataset.dataset import Dataset
from waycode.model import Model
from waycode.model.saved import save_model
from waycode.training.card import TrainingData, model_card
from waycode.training.journal import Journal, as_autoencoder, log_figures
from waycode.training.module import AutoencoderModule

# Judges a model on validation scenes: gives figures named `column/tokens`, and the thresholds of its variance gate.
Judge = Callable[[Model, Dataset], tuple[dict[str, float], dict[int, float]]]


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """A row of `validation.jsonl`."""

    step: int
    sigma: float
    minutes: float  # of training, over all sittings
    figures: dict[str, float] = field(default_factory=dict)


class Validation(Callback):
    """Writes the figures down, and saves the model with its thresholds and its card."""

    def __init__(
        self,
        dataset: Dataset,
        judge: Judge,
        journal: Journal,
        *,
        about: TrainingData,
        model_folder: Path,
        table: Path,
        on_report: Callable[[ValidationReport], None],
    ):
        self.dataset, self.judge, self.journal, self.about = dataset, judge, journal, about
        self.model_folder, self.table, self.on_report = model_folder, table, on_report

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self.table.exists():  # what was judged after the checkpoint will be judged again
            rows = [line for line in self.table.read_text().splitlines() if line]
            kept = [row for row in rows if json.loads(row)["step"] <= trainer.global_step]
            self.table.write_text("".join(row + "\n" for row in kept))

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        module = as_autoencoder(pl_module)
        step, config = trainer.global_step, module.config
        if step % config.validate_every == 0 or step == config.steps:
            report = self._judge_and_save(module, step)
            log_figures(trainer, {_tag(name): value for name, value in report.figures.items()})
            self.on_report(report)

    def _judge_and_save(self, module: AutoencoderModule, step: int) -> ValidationReport:
        model, effort = module.model.eval(), self.journal.effort
        with torch.no_grad():
            figures, thresholds = self.judge(model, self.dataset)
        model.train()
        report = ValidationReport(step=step, sigma=module.sigma, minutes=effort.seconds / 60, figures=figures)
        row = {"step": step, "sigma": report.sigma, "minutes": report.minutes, **figures}
        with self.table.open("a") as file:
            file.write(json.dumps(row) + "\n")
        card = model_card(
            module.config, self.about, step=step, sigma=module.sigma, num_parameters=model.num_parameters,
            effort=effort, figures=figures, thresholds=thresholds,
        )  # fmt: skip
        save_model(self.model_folder, model, sigma_max_m=thresholds, card=card)
        return report


def _tag(name: str) -> str:
    """`greedy N_l = 2/3` as a name that TensorBoard takes: `validation/greedy_N_l_2/3_tokens`."""
    column, _, tokens = name.rpartition("/")
    return f"validation/{'_'.join(column.replace('=', ' ').split())}/{tokens}_tokens"
