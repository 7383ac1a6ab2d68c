"""The bundled scenes, one of each family of road networks, on a sheet."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np

from waycode.dataset.dataset import Dataset, DatasetError
from waycode.plotting import save_contact_sheet
from waycode.scene import Scene
from waycode.scene.kinematics import moving

NEAR_M = 50.0


def bundled_dataset() -> Dataset:
    """The sample of generated scenes that comes with the package."""
    folder = Path(str(files("waycode"))) / "samples" / "sumo"
    if not folder.is_dir():
        raise DatasetError(f"the bundled sample is not there: expected a dataset in {folder}; install waycode again")
    return Dataset(folder)


def save_gallery(scenes: Mapping[str, Scene], path: str | Path) -> None:
    """Draws scenes side by side, under the names that they have here."""
    captions = [name.replace("_", " ") for name in scenes]
    save_contact_sheet(list(scenes.values()), path, captions=captions, columns=5, radius_m=NEAR_M, tile_in=3.2)


def one_per_family(dataset: Dataset) -> dict[str, Scene]:
    """The scene with the most moving road users of each family (a scene's first tag), by the family's name."""
    chosen: dict[str, Scene] = {}
    for scene in dataset:
        family = scene.tags[0] if scene.tags else scene.source
        if family not in chosen or _liveliness(scene) > _liveliness(chosen[family]):
            chosen[family] = scene
    return dict(sorted(chosen.items()))


def _liveliness(scene: Scene) -> int:
    """Number of moving road users that are near the ego now."""
    tracks, step = scene.tracks, scene.current_step
    position = tracks.position_m[:, step]
    centre = np.zeros(2) if tracks.ego_index is None else position[tracks.ego_index]
    near = np.linalg.norm(position - centre, axis=1) < NEAR_M
    return int((moving(tracks) & tracks.valid[:, step] & near).sum())
