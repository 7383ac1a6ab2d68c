"""Where things are in a run's folder, and how its model, any other, or a bundled one is found."""

from pathlib import Path

from waycode.model.saved import SavedModel, load_model
from waycode.training.errors import TrainingError

CONFIG_FILE, CHECKPOINT_FILE, MODEL_FOLDER = "training.json", "last.ckpt", "model"
TABLE_FILE, METRICS_FILE, LOG_FOLDER = "validation.jsonl", "metrics.csv", "logs"


def open_model(name_or_folder: str | Path) -> SavedModel:
    """The model of a folder, of a run, or a bundled one by its name."""
    return load_model(model_folder(name_or_folder) or name_or_folder)


def model_folder(name_or_folder: str | Path) -> Path | None:
    """The folder of a model or of a run's model; None if there is no such folder (it may be a bundled model's name)."""
    folder = Path(name_or_folder)
    if (folder / MODEL_FOLDER).is_dir():
        return folder / MODEL_FOLDER
    if (folder / CONFIG_FILE).is_file():
        raise TrainingError(f"the run in {folder} has no model yet: the first one is saved when it is first validated")
    return folder if folder.is_dir() else None
