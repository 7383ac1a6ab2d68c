"""A model on disk: a folder with `model.safetensors`, `config.json`, `thresholds.json` and `MODEL_CARD.md`.

Nothing is ever unpickled, and loading is strict: a file that does not fit is refused with the reason.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from waycode.dataset.files import replace_file
from waycode.model.autoencoder import Model
from waycode.model.config import ModelConfig, config_from_json
from waycode.scene import WaycodeError

CONFIG_VERSION = 5  # 5: feedback to the encoder; 4: one scene encoding for all agents, a prior over codes
MODEL_FOLDER, RUN_FILE = "model", "training.json"  # of a training run: its model, and the file that marks its folder
_WEIGHTS_FILE, _CONFIG_FILE, _THRESHOLDS_FILE = "model.safetensors", "config.json", "thresholds.json"
_CARD_FILE = "MODEL_CARD.md"


class ModelError(WaycodeError):
    """A model that cannot be loaded or saved."""


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A trained model with its thresholds and its card."""

    model: Model
    sigma_max_m: Mapping[int, float] = field(default_factory=dict)  # variance gate, by number of tokens
    card: str = ""  # the model card, Markdown


def save_model(
    folder: str | Path, model: Model, *, sigma_max_m: Mapping[int, float] | None = None, card: str = ""
) -> None:
    """Writes a model's folder; replaces an older model in it.

    Args:
        folder: created if needed.
        model: weights and configuration to save.
        sigma_max_m: by number of tokens, the final standard deviation in metres above which a plan is doubtful.
        card: the model card, Markdown.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder} cannot be made ({error}): choose another folder") from error
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    thresholds = {str(count): value for count, value in sorted((sigma_max_m or {}).items())}
    replace_file(folder / _WEIGHTS_FILE, lambda path: save_file(weights, path))
    _write_json(folder / _CONFIG_FILE, {"version": CONFIG_VERSION, "model": asdict(model.config)})
    _write_json(folder / _THRESHOLDS_FILE, {"sigma_max_m": thresholds})
    replace_file(folder / _CARD_FILE, lambda path: path.write_text(card))


def load_model(name_or_folder: str | Path) -> SavedModel:
    """Loads a model: a bundled one by its name, or from a model's folder or a training run's folder."""
    folder = _find(name_or_folder)
    model = Model(read_config(folder / _CONFIG_FILE))
    _load_weights(model, folder / _WEIGHTS_FILE)
    card = folder / _CARD_FILE
    return SavedModel(
        model=model.eval(),
        sigma_max_m=_read_thresholds(folder / _THRESHOLDS_FILE),
        card=card.read_text() if card.is_file() else "",
    )


def bundled_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = files("waycode") / "models"
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def read_config(path: Path) -> ModelConfig:
    """Reads a model's `config.json`; its version and all its fields must be those of this waycode."""
    content = _read_json(path)
    if content.get("version") != CONFIG_VERSION:
        raise ModelError(f"{path} has version {content.get('version')}, this waycode reads {CONFIG_VERSION}")
    try:
        return config_from_json(ModelConfig, content.get("model"))
    except ValueError as error:
        raise ModelError(f"{path} does not fit this waycode: {error}") from error


def _find(name_or_folder: str | Path) -> Path:
    folder = Path(name_or_folder)
    for candidate in (folder / MODEL_FOLDER, folder):
        if (candidate / _CONFIG_FILE).is_file():
            return candidate
    if (folder / RUN_FILE).is_file():
        raise ModelError(f"the run in {folder} has no model yet: the first is saved at its first validation")
    if str(name_or_folder) in bundled_models():
        return Path(str(files("waycode") / "models" / str(name_or_folder)))
    available = ", ".join(bundled_models()) or "none"
    raise ModelError(
        f"{name_or_folder} is neither a model's folder nor a run's folder nor a bundled model (available: {available})"
    )


def _load_weights(model: Model, path: Path) -> None:
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read ({error})") from error
    wanted = model.state_dict()
    missing, unexpected = sorted(set(wanted) - set(weights)), sorted(set(weights) - set(wanted))
    if missing or unexpected:
        raise ModelError(f"{path} does not fit its config: missing {missing[:3]}, unexpected {unexpected[:3]}")
    for name, tensor in weights.items():
        if tensor.shape != wanted[name].shape:
            shapes = f"shape {list(tensor.shape)}, expected {list(wanted[name].shape)}"
            raise ModelError(f"{path} does not fit its config: {name} has {shapes}")
    model.load_state_dict(weights)


def _read_thresholds(path: Path) -> dict[int, float]:
    try:
        return {int(count): float(value) for count, value in _read_json(path)["sigma_max_m"].items()}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error!r}): expected sigma_max_m by number of tokens") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error})") from error
    if not isinstance(content, Mapping):
        raise ModelError(f"{path} holds {content!r:.60}, expected a JSON object")
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    replace_file(path, lambda temporary: temporary.write_text(json.dumps(content, indent=1) + "\n"))
