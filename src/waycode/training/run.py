"""A training run: a folder with the config, logs, the last checkpoint, and the model of the last validation."""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import is_leftover, only_writer, replace_file
from waycode.training.card import TrainingData, is_free
from waycode.training.checks import check_fit
from waycode.training.config import TrainingConfig
from waycode.training.data import SceneData
from waycode.training.errors import TrainingError
from waycode.training.folders import (
    CHECKPOINT_FILE,
    CONFIG_FILE,
    LOG_FOLDER,
    METRICS_FILE,
    MODEL_FOLDER,
    TABLE_FILE,
    open_model,
)
from waycode.training.journal import Journal, StepReport, Stopping
from waycode.training.module import AutoencoderModule
from waycode.training.overrides import differences
from waycode.training.validation import Judge, Validation, ValidationReport


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Whom a run tells how it goes, and who may stop it."""

    on_scenes: Callable[[int], None] = lambda count: None  # scenes looked through before the first step
    on_step: Callable[[StepReport], None] = lambda report: None
    on_validation: Callable[[ValidationReport], None] = lambda report: None
    stop_requested: Callable[[], bool] = lambda: False  # asked after every step; raises `RunStopped` if true


def train(
    config: TrainingConfig,
    *,
    data: Path,
    validation: Path,
    out: Path,
    judge: Judge,
    init: str | Path | None = None,
    resume: bool = False,
    workers: int = 1,
    hooks: Hooks | None = None,
) -> Path:
    """Trains a model and returns its folder; `resume` goes on from the last checkpoint, exactly."""
    hooks = hooks or Hooks()
    _check_claim(out, config, resume=resume)
    judged = Dataset(validation)
    check_fit(judged, config.model.features)
    lightning.seed_everything(config.seed, verbose=False)
    module = AutoencoderModule(config)
    if init is not None:
        module.model.load_state_dict(_initial_weights(init, config))
    scenes = SceneData(data, config, workers=workers, on_scenes=hooks.on_scenes)
    about = TrainingData(
        training=scenes.dataset.info, validation=judged.info, num_agents=len(scenes.agents.tracks),
        init=None if init is None else str(init), init_is_free=init is None or is_free(init),
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out), _quiet():
        _claim(out, config)
        _fit(module, scenes, judged, out=out, judge=judge, about=about, hooks=hooks)
    return out / MODEL_FOLDER


def _fit(
    module: AutoencoderModule,
    scenes: SceneData,
    judged: Dataset,
    *,
    out: Path,
    judge: Judge,
    about: TrainingData,
    hooks: Hooks,
) -> None:
    """All steps that are still to be made."""
    config, checkpoint = module.config, out / CHECKPOINT_FILE
    journal = Journal(scenes, out / METRICS_FILE, hooks.on_step)
    validation = Validation(
        judged, judge, journal, about=about, model_folder=out / MODEL_FOLDER, table=out / TABLE_FILE,
        on_report=hooks.on_validation,
    )  # fmt: skip
    keep = ModelCheckpoint(
        out, filename="last", every_n_train_steps=config.checkpoint_every, enable_version_counter=False
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=config.steps,
        max_epochs=-1,
        gradient_clip_val=config.clip_norm,
        logger=TensorBoardLogger(out, name=LOG_FOLDER, version="tensorboard"),
        callbacks=[journal, validation, Stopping(checkpoint, hooks.stop_requested), keep],
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    try:
        # weights_only: a checkpoint is tensors and plain values; nothing in it is ever run.
        trainer.fit(module, scenes, ckpt_path=checkpoint if checkpoint.exists() else None, weights_only=True)
    except SystemExit as end:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt from end
    trainer.save_checkpoint(checkpoint)


def last_step(out: Path) -> int:
    """The step of a run's last checkpoint; 0 if there is none."""
    checkpoint = out / CHECKPOINT_FILE
    return int(torch.load(checkpoint, weights_only=True)["global_step"]) if checkpoint.exists() else 0


def _check_claim(out: Path, config: TrainingConfig, *, resume: bool) -> None:
    """Refuses a folder that holds something else than this run."""
    if out.exists() and not out.is_dir():
        raise TrainingError(f"{out} is a file: expected a folder, or the name of one to make")
    path = out / CONFIG_FILE
    if not path.exists():
        if out.exists() and not all(is_leftover(entry) for entry in out.iterdir()):
            raise TrainingError(f"{out} is not empty and holds no run: choose another folder")
        return
    if not resume:
        raise TrainingError(f"{out} holds a run already: --resume goes on with it, or choose another folder")
    # A field that did not exist when the run began has had its default ever since.
    found = differences(_filled(json.loads(path.read_text()), _as_json(TrainingConfig())), _as_json(config))
    if found:
        raise TrainingError(f"{out} holds a run with another configuration ({'; '.join(found)}): choose another folder")


def _claim(out: Path, config: TrainingConfig) -> None:
    text = json.dumps(_as_json(config), indent=1) + "\n"
    replace_file(out / CONFIG_FILE, lambda path: path.write_text(text))


def _as_json(config: TrainingConfig) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return content


def _filled(content: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    inner = {name: _filled(content.get(name, {}), value) for name, value in defaults.items() if isinstance(value, dict)}
    return {**defaults, **content, **inner}


def _initial_weights(init: str | Path, config: TrainingConfig) -> dict[str, torch.Tensor]:
    """Weights of another run or model, which must have the same configuration."""
    other = open_model(init).model
    found = differences(asdict(other.config), asdict(config.model))
    if found:
        raise TrainingError(f"the model of {init} has another form ({'; '.join(found)}): its weights do not fit")
    return dict(other.state_dict())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Lightning from talking about accelerators, tips and workers."""
    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
