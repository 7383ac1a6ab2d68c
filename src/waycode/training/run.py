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
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import is_leftover, only_writer, parse_json, remove_unfinished, replace_file
from waycode.dataset.seeds import check_not_test
from waycode.model.saved import MODEL_FOLDER, RUN_FILE, load_model
from waycode.training.callbacks import Journal, StepReport, Stopping, Validate, Validation, ValidationReport
from waycode.training.card import TrainingData, is_free
from waycode.training.checkpoints import (
    CHECKPOINT_FILE,
    WholeCheckpoints,
    config_in,
    load_checkpoint,
    newest_checkpoint,
)
from waycode.training.config import TrainingConfig, TrainingError, check_fit, config_as_json, config_changes
from waycode.training.data import SceneData
from waycode.training.module import AutoencoderModule

_TABLE_FILE, _METRICS_FILE, _LOG_FOLDER = "validation.jsonl", "metrics.csv", "logs"


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What a run computes on, as `lightning.Trainer` takes it. It is not part of the run's configuration."""

    accelerator: str = "auto"  # "cpu", "gpu", ...; "auto" takes what there is
    devices: int | str = "auto"  # how many; validation and logs need a single process, so more than one is refused
    precision: str = "32-true"  # or "bf16-mixed", "16-mixed"

    def __post_init__(self) -> None:
        if self.devices not in ("auto", "1", 1):
            raise TrainingError(f"devices is {self.devices!r}, expected 1 or 'auto': a run uses one device")
        try:
            with _quiet():
                lightning.Trainer(**self.options, logger=False, enable_checkpointing=False)
        except (ValueError, MisconfigurationException) as error:  # Lightning's sentence names what is available
            raise TrainingError(
                f"accelerator is {self.accelerator!r} and precision {self.precision!r}, expected others: {error}"
            ) from error

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `lightning.Trainer`."""
        return {"accelerator": self.accelerator, "devices": 1, "precision": self.precision}


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Callbacks for progress and for a request to stop."""

    on_scenes: Callable[[int], None] = lambda count: None  # number of scenes indexed before the first step
    on_step: Callable[[StepReport], None] = lambda report: None
    on_validation: Callable[[ValidationReport], None] = lambda report: None
    on_notice: Callable[[str], None] = lambda sentence: None  # damaged files that were found, and what is used instead
    stop_requested: Callable[[], bool] = lambda: False  # asked after every step; True raises `RunStopped`


def train(
    config: TrainingConfig,
    *,
    data: Path,
    validation: Path,
    out: Path,
    validate: Validate,
    init: str | Path | None = None,
    resume: bool = False,
    workers: int = 1,
    hardware: Hardware | None = None,
    cache: Path | None = None,
    hooks: Hooks | None = None,
) -> Path:
    """Trains a model and returns its folder.

    Args:
        config: model and training; see the recipes in `training.config`.
        data: dataset to train on.
        validation: dataset to validate on.
        out: folder of the run, new or empty.
        validate: computes the validation figures, such as `evaluation.reconstruction.ReconstructionFigures()`.
        init: initial weights: a bundled model's name, a model's folder or a run's folder.
        resume: continue the run in `out` from its newest whole checkpoint; the result is that of an uninterrupted run.
        workers: processes that read scenes; 0 reads them in this process.
        hardware: device and precision; by default what there is, in float32.
        cache: folder of prepared examples; by default that of `training.examples`.
        hooks: progress and stop requests.
    """
    hooks = hooks or Hooks()
    checkpoint = _check_folder(out, config, resume=resume, on_notice=hooks.on_notice)
    validation_data = Dataset(validation)
    for dataset in (Dataset(data), validation_data):
        check_not_test(dataset)
    check_fit(validation_data, config.model.features)
    lightning.seed_everything(config.seed, verbose=False)
    module = AutoencoderModule(config)
    init_is_free = True
    if init is not None:
        initial = load_model(init)
        found = config_changes(asdict(initial.model.config), asdict(config.model))
        if found:
            raise TrainingError(f"the model of {init} has another form ({'; '.join(found)}): its weights do not fit")
        module.model.load_state_dict(initial.model.state_dict())
        init_is_free = is_free(initial)
    scenes = SceneData(data, config, workers=workers, cache=cache, on_scenes=hooks.on_scenes)
    origin = TrainingData(
        training=scenes.dataset.info, validation=validation_data.info, num_agents=len(scenes.agents.weights),
        init=None if init is None else str(init), init_is_free=init_is_free,
    )  # fmt: skip
    _warn_of_seen_scenes(scenes.dataset, validation_data, hooks.on_notice)
    journal = Journal(scenes, out / _METRICS_FILE, hooks.on_step)
    validator = Validation(
        validation_data, validate, journal, data=origin, model_folder=out / MODEL_FOLDER, table=out / _TABLE_FILE,
        on_report=hooks.on_validation,
    )  # fmt: skip
    stopping = Stopping(out / CHECKPOINT_FILE, hooks.stop_requested)
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out), _quiet():
        for folder in (out, out / MODEL_FOLDER):
            remove_unfinished(folder)
        text = json.dumps(config_as_json(config), indent=1) + "\n"
        replace_file(out / RUN_FILE, lambda path: path.write_text(text))
        callbacks = [journal, validator, stopping]
        _fit(module, scenes, out=out, checkpoint=checkpoint, hardware=hardware or Hardware(), callbacks=callbacks)
    return out / MODEL_FOLDER


def _warn_of_seen_scenes(data: Dataset, validation: Dataset, on_notice: Callable[[str], None]) -> None:
    """Says if files of the validation are trained on."""
    both = {shard.sha256 for shard in data.info.shards} & {shard.sha256 for shard in validation.info.shards}
    if both:
        share = f"{len(both)} of {len(validation.info.shards)} files of the validation are trained on too"
        on_notice(f"{share}: its figures say nothing about other scenes")


def last_step(out: Path) -> int:
    """The step of a run's newest whole checkpoint; 0 without one."""
    checkpoint = newest_checkpoint(out)
    return 0 if checkpoint is None else int(load_checkpoint(checkpoint)["global_step"])


def _fit(
    module: AutoencoderModule,
    scenes: SceneData,
    *,
    out: Path,
    checkpoint: Path | None,
    hardware: Hardware,
    callbacks: list[lightning.Callback],
) -> None:
    """Trains from a checkpoint, or from step 0 without one, to the last step."""
    config = module.config
    keep = ModelCheckpoint(
        out, filename="last", every_n_train_steps=config.checkpoint_every, enable_version_counter=False
    )
    trainer = lightning.Trainer(
        **hardware.options,
        max_steps=config.steps,
        max_epochs=-1,
        gradient_clip_val=config.clip_norm,
        logger=TensorBoardLogger(out, name=_LOG_FOLDER, version="tensorboard"),
        callbacks=[*callbacks, keep],
        plugins=[WholeCheckpoints(config_as_json(config))],
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    try:
        # weights_only: a checkpoint is tensors and plain values; nothing in it is ever run.
        trainer.fit(module, scenes, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as end:  # Lightning exits on Ctrl-C
        raise KeyboardInterrupt from end
    trainer.save_checkpoint(out / CHECKPOINT_FILE)


def _check_folder(out: Path, config: TrainingConfig, *, resume: bool, on_notice: Callable[[str], None]) -> Path | None:
    """The checkpoint to go on from, None for a new run. Raises `TrainingError` for a folder of something else."""
    if out.exists() and not out.is_dir():
        raise TrainingError(f"{out} is a file: expected a folder, or the name of a new one")
    path = out / RUN_FILE
    if not path.exists() and not (out / CHECKPOINT_FILE).exists():
        if out.exists() and not all(is_leftover(entry) for entry in out.iterdir()):
            raise TrainingError(f"{out} is not empty and holds no run: choose another folder")
        if resume:
            on_notice(f"{out} holds no run to resume: a new one begins")
        return None
    if not resume:
        raise TrainingError(f"{out} holds a run already: --resume goes on with it, or choose another folder")
    checkpoint = newest_checkpoint(out, on_notice=on_notice)
    try:
        before = _config_before(parse_json(path.read_bytes()))
    except (OSError, ValueError) as error:
        if checkpoint is None:
            on_notice(f"{path} is damaged ({error}), and no step was kept: the run begins anew")
            return None
        try:
            before = _config_before(config_in(checkpoint))
        except ValueError as other:
            raise TrainingError(
                f"{path} is damaged ({error}), and {checkpoint.name} has no configuration ({other}): it is not known "
                "which run this is, so choose another folder"
            ) from error
        on_notice(f"{path} is damaged ({error}): the configuration in {checkpoint.name} is compared instead")
    found = config_changes(before, config_as_json(config))
    steps = before.get("steps")  # of a file that may be damaged
    is_longer = isinstance(steps, int) and steps < config.steps and len(found) == 1  # nothing but the number of steps
    if is_longer:
        on_notice(
            f"the run of {steps:,} steps is extended to {config.steps:,}: from here on, its schedules are "
            "those of the longer run"
        )
    elif found:
        raise TrainingError(f"{out} holds a run with another configuration ({'; '.join(found)}): choose another folder")
    return checkpoint


def _config_before(content: Any, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    """A stored configuration; fields that did not exist when the run began have their defaults."""
    defaults = config_as_json(TrainingConfig()) if defaults is None else defaults
    if not isinstance(content, dict):
        raise ValueError(f"it holds {content!r:.60}, expected the settings of a run")
    groups = {name: value for name, value in defaults.items() if isinstance(value, dict)}
    inner = {name: _config_before(content.get(name, {}), value) for name, value in groups.items()}
    return {**defaults, **content, **inner}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences Lightning's messages about accelerators, tips and workers."""
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
