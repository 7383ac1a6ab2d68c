"""Checkpoints of a run: each is written whole or not at all, and the one before the last is kept."""

import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from waycode.dataset.files import describe, replace_file
from waycode.training.config import TrainingError

CHECKPOINT_FILE, PREVIOUS_FILE = "last.ckpt", "previous.ckpt"
_CONFIG_KEY = "waycode_config"  # of the run's configuration, which `training.json` holds too


class WholeCheckpoints(TorchCheckpointIO):
    """How Lightning writes checkpoints: beside the target, synced to disk, then renamed.

    Lightning itself writes to the temporary folder and moves the file. Across file systems that is a copy, of which a
    full disk or a kill leaves a part.

    Args:
        config: configuration of the run as JSON, stored in each checkpoint.
    """

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        self.config = config
        self._last_step = -1

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        content, path, step = BytesIO(), Path(path), int(checkpoint["global_step"])
        torch.save({**checkpoint, _CONFIG_KEY: self.config}, content)
        # The same step may be saved twice, at a checkpoint and at the end: the previous one stays another step.
        keep = None if step == self._last_step else path.with_name(PREVIOUS_FILE)
        replace_file(path, lambda temporary: temporary.write_bytes(content.getbuffer()), keep=keep)
        self._last_step = step


def newest_checkpoint(out: Path, *, on_notice: Callable[[str], None] = lambda sentence: None) -> Path | None:
    """The newest checkpoint of a run that is whole; None if there is no file of one.

    Args:
        out: folder of the run.
        on_notice: called with a sentence for each newer checkpoint that is damaged.
    """
    reasons = []
    for path in (out / CHECKPOINT_FILE, out / PREVIOUS_FILE):
        if not path.exists():
            continue
        try:
            step = int(load_checkpoint(path)["global_step"])
        except TrainingError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            on_notice(f"{reason}: the run goes on from {path.name}, step {step:,}")
        return path
    if reasons:
        raise TrainingError(f"{'; '.join(reasons)}: the run cannot go on, choose another folder")
    return None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint: tensors and plain values; nothing in it is ever run.

    Raises `TrainingError` for a file that is damaged, by the checksums of its parts, or holds something else.
    """
    try:
        with zipfile.ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of its part {damaged} does not match")
        content = torch.load(path, weights_only=True, map_location="cpu")
        kinds = {"global_step": int, "state_dict": dict, "optimizer_states": list, "loops": dict, "callbacks": dict}
        for name, kind in kinds.items():
            if not isinstance(content.get(name), kind):
                raise ValueError(f"it has no {name}")
    except Exception as error:  # zipfile and torch raise errors of many kinds for damaged files
        raise TrainingError(f"{path} is no whole checkpoint ({describe(error)})") from error
    return dict(content)


def config_in(checkpoint: Path) -> Any:
    """The configuration as JSON of the run that wrote a checkpoint; None in those of older versions."""
    return load_checkpoint(checkpoint).get(_CONFIG_KEY)
