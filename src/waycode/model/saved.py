"""A model on disk: a folder with `model.safetensors`, `config.json`, `thresholds.json` and `MODEL_CARD.md`.

Nothing is ever unpickled, and loading is strict: a file that does not fit is refused with a sentence that says why.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from waycode.dataset.files import replace_file
from waycode.features import FeatureConfig
from waycode.model.autoencoder import Model
from waycode.model.config import Bottleneck, ModelConfig
from waycode.scene import WaycodeError

CONFIG_VERSION = 3  # 3: the decoded way is put right by the map; 2: it starts with the current velocity
WEIGHTS_FILE, CONFIG_FILE, THRESHOLDS_FILE, CARD_FILE = (
    "model.safetensors",
    "config.json",
    "thresholds.json",
    "MODEL_CARD.md",
)


class ModelError(WaycodeError):
    """A model that cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A trained model and what belongs to it."""

    model: Model
    sigma_max_m: Mapping[int, float] = field(default_factory=dict)  # by number of tokens: above it, a plan is doubtful


def save_model(
    folder: str | Path, model: Model, *, sigma_max_m: Mapping[int, float] | None = None, card: str = ""
) -> None:
    """Writes the folder; an older model in it is replaced, file by file."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder} cannot be made ({error}): choose another folder") from error
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    thresholds = {str(count): value for count, value in sorted((sigma_max_m or {}).items())}
    replace_file(folder / WEIGHTS_FILE, lambda path: save_file(weights, path))
    _write_json(folder / CONFIG_FILE, {"version": CONFIG_VERSION, "model": asdict(model.config)})
    _write_json(folder / THRESHOLDS_FILE, {"sigma_max_m": thresholds})
    replace_file(folder / CARD_FILE, lambda path: path.write_text(card))


def load_model(name_or_folder: str | Path) -> SavedModel:
    """A model from its folder, or a bundled one by its name."""
    folder = _find(name_or_folder)
    model = Model(read_config(folder / CONFIG_FILE))
    _load_weights(model, folder / WEIGHTS_FILE)
    return SavedModel(model=model.eval(), sigma_max_m=_read_thresholds(folder / THRESHOLDS_FILE))


def read_config(path: Path) -> ModelConfig:
    """The configuration, every field of it known and of this version."""
    content = _read_json(path)
    if content.get("version") != CONFIG_VERSION:
        raise ModelError(f"{path} has version {content.get('version')}, this waycode reads {CONFIG_VERSION}")
    return config_from_dict(content.get("model"))


def config_from_dict(content: Any) -> ModelConfig:
    """The configuration from what JSON holds of it; no field may be missing, unknown or of another type."""
    values = _fields_of(ModelConfig, content)
    try:
        features = FeatureConfig(**_fields_of(FeatureConfig, values["features"]))
        return ModelConfig(**{**values, "bottleneck": Bottleneck(values["bottleneck"]), "features": features})
    except ValueError as error:
        raise ModelError(f"the model's config does not fit this waycode: {error}") from error


def _fields_of(kind: type[ModelConfig] | type[FeatureConfig], content: Any) -> dict[str, Any]:
    """The content, if it has exactly the fields of the configuration."""
    if not isinstance(content, Mapping):
        raise ModelError(f"the model's config has {content!r:.60} for {kind.__name__}, expected its fields")
    known: dict[str, Any] = {field.name: field.type for field in fields(kind)}
    missing, unknown = sorted(set(known) - set(content)), sorted(set(content) - set(known))
    if missing or unknown:
        raise ModelError(f"the model's config does not fit this waycode: missing {missing}, unknown {unknown}")
    in_json = {float: int | float, Bottleneck: str, FeatureConfig: Mapping}  # types that JSON writes in another way
    for name, value in content.items():
        if not isinstance(value, in_json.get(known[name], known[name])):
            raise ModelError(f"the model's config has {name} = {value!r:.60}, expected {known[name]}")
    return {name: float(value) if known[name] is float else value for name, value in content.items()}


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


def bundled_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = files("waycode") / "models"
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def _find(name_or_folder: str | Path) -> Path:
    folder = Path(name_or_folder)
    if (folder / CONFIG_FILE).is_file():
        return folder
    if str(name_or_folder) in bundled_models():
        return Path(str(files("waycode") / "models" / str(name_or_folder)))
    available = ", ".join(bundled_models()) or "none"
    raise ModelError(f"{name_or_folder} is neither a model's folder nor a bundled model (available: {available})")
