"""A model on disk: a folder with `model.safetensors`, `config.json`, `thresholds.json` and `MODEL_CARD.md`.

Nothing is ever unpickled, and loading is strict: a file that does not fit is refused with the reason.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from waycode.dataset.files import describe, parse_json, replace_file
from waycode.model.autoencoder import Model
from waycode.model.config import ModelConfig, config_from_json
from waycode.model.gate import Spread, VarianceGate
from waycode.scene import WaycodeError

CONFIG_VERSION = 5  # 5: feedback to the encoder; 4: one scene encoding for all agents, a prior over codes
MODEL_FOLDER, RUN_FILE = "model", "training.json"  # of a training run: its model, and the file that marks its folder
_WEIGHTS_FILE, _CONFIG_FILE, _THRESHOLDS_FILE = "model.safetensors", "config.json", "thresholds.json"
_CARD_FILE = "MODEL_CARD.md"
_MAX_COUNT = 4096  # of steps, tokens and neighbours in a config


class ModelError(WaycodeError):
    """A model that cannot be loaded or saved."""


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A trained model with its thresholds and its card."""

    model: Model
    gate: VarianceGate = field(default_factory=VarianceGate)
    card: str = ""  # the model card, Markdown


def save_model(folder: str | Path, model: Model, *, gate: VarianceGate | None = None, card: str = "") -> None:
    """Writes a model's folder; replaces an older model in it.

    Args:
        folder: created if needed.
        model: weights and configuration to save.
        gate: its thresholds; None: not calibrated.
        card: the model card, Markdown.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder} cannot be made ({error}): choose another folder") from error
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    replace_file(folder / _WEIGHTS_FILE, lambda path: path.write_bytes(save(weights)))
    _write_json(folder / _CONFIG_FILE, {"version": CONFIG_VERSION, "model": asdict(model.config)})
    save_thresholds(folder, gate or VarianceGate())
    replace_file(folder / _CARD_FILE, lambda path: path.write_text(card))


def save_thresholds(folder: str | Path, gate: VarianceGate) -> Path:
    """Replaces the thresholds of a saved model's gate; arguments as for `save_model`."""
    path = Path(folder) / _THRESHOLDS_FILE
    limits = {str(count): value for count, value in sorted(gate.sigma_max_m.items())}
    _write_json(path, {"spread": str(gate.spread), "sigma_max_m": limits})
    return path


def load_model(name_or_folder: str | Path) -> SavedModel:
    """Loads a model: a bundled one by its name, or from a model's folder or a training run's folder."""
    folder = find_model(name_or_folder)
    config, gate = read_config(folder / _CONFIG_FILE), _read_thresholds(folder / _THRESHOLDS_FILE)
    model = _build(config, folder / _WEIGHTS_FILE)
    card = folder / _CARD_FILE
    return SavedModel(
        model=model.eval(),
        gate=gate,
        card=card.read_text(errors="replace") if card.is_file() else "",
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
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{path} does not fit this waycode: {describe(error)}") from error


def find_model(name_or_folder: str | Path) -> Path:
    """The folder with the weights: of a bundled model by its name, of a model's folder or of a run's folder."""
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


def _build(config: ModelConfig, path: Path) -> Model:
    """The model with the weights of a file. Their shapes bound the config's sizes before anything is made."""
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dict)
        _check_sizes(config, shapes)
        model, weights = Model(config), load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read ({error})") from error
    except Exception as error:  # of torch and scipy, for sizes that make no sense together
        raise ModelError(f"{path} does not fit its config: {describe(error)}") from error
    wanted = model.state_dict()
    missing, unexpected = sorted(set(wanted) - set(weights)), sorted(set(weights) - set(wanted))
    if missing or unexpected:
        raise ModelError(f"{path} does not fit its config: missing {missing[:3]}, unexpected {unexpected[:3]}")
    for name, tensor in weights.items():
        for what, got, expected in (
            ("shape", list(tensor.shape), list(wanted[name].shape)),
            ("values of", tensor.dtype, wanted[name].dtype),
        ):
            if got != expected:
                raise ModelError(f"{path} does not fit its config: {name} has {what} {got}, expected {expected}")
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path} is damaged: {name} has values that are not finite")
    model.load_state_dict(weights)
    return model


def _check_sizes(config: ModelConfig, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises `ValueError` for sizes beyond the weights: building such a model could take hours and all memory."""
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    sides = ("width", "heads", "feed_forward", "relation_width", "correction_width", "registers")
    for part in (config, config.features):
        for one in fields(part):
            # A width is the side of some weight. The other numbers count steps, layers, tokens and neighbours.
            value, most = getattr(part, one.name), largest if one.name in sides else _MAX_COUNT
            if isinstance(value, int) and value > most:
                raise ValueError(f"{one.name} is {value}, expected at most {most} with these weights")
    num_layers = config.scene_layers + config.encoder_layers + config.decoder_layers
    least = num_layers * config.width * (config.width + config.feed_forward)  # a layer has four times as many
    available = sum(math.prod(shape) for shape in shapes.values())
    if least > available:
        sizes = f"{num_layers} layers of width {config.width} and feed_forward {config.feed_forward}"
        raise ValueError(f"{sizes} have more than {least:,} weights, but there are {available:,}")


def _read_thresholds(path: Path) -> VarianceGate:
    try:
        content = _read_json(path)
        spread = Spread(content.get("spread", Spread.BOTH))  # files of earlier versions have none
        found = {int(count): float(value) for count, value in content["sigma_max_m"].items()}
        wrong = {count: value for count, value in found.items() if count < 1 or not 0 <= value < math.inf}
        if wrong:
            raise ValueError(f"it has {wrong}")
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{path} is damaged ({describe(error)}): expected sigma_max_m by number of tokens") from error
    return VarianceGate(sigma_max_m=found, spread=spread)


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error})") from error
    if not isinstance(content, Mapping):
        raise ModelError(f"{path} holds {content!r:.60}, expected a JSON object")
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    replace_file(path, lambda temporary: temporary.write_text(json.dumps(content, indent=1) + "\n"))
