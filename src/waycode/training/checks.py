"""What can be known to be wrong before a long run begins."""

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.features import FeatureConfig
from waycode.training.errors import TrainingError


def check_fit(dataset: Dataset, features: FeatureConfig) -> None:
    """Refuses scenes that a model can neither be trained on nor be judged by."""
    if len(dataset) == 0:
        raise TrainingError(f"{dataset.folder} has no scenes")
    scene = dataset[0]
    if not np.isclose(scene.dt_s, features.dt_s):
        raise TrainingError(
            f"the scenes of {dataset.folder} have steps of {scene.dt_s:g} s, the model expects {features.dt_s:g} s"
        )
