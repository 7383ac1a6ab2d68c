"""From scenes to tensors."""

from waycode.features.collate import collate
from waycode.features.extract import Example, FeatureError, extract
from waycode.features.types import Agents, Batch, FeatureConfig, Futures, SceneFeatures

__all__ = [
    "Agents",
    "Batch",
    "Example",
    "FeatureConfig",
    "FeatureError",
    "Futures",
    "SceneFeatures",
    "collate",
    "extract",
]
