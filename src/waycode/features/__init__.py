"""From scenes to tensors."""

from waycode.features.collate import collate
from waycode.features.extract import CutMap, Example, FeatureError, cut_map, extract
from waycode.features.types import Agents, Batch, FeatureConfig, Futures, SceneFeatures

__all__ = [
    "Agents",
    "Batch",
    "CutMap",
    "Example",
    "FeatureConfig",
    "FeatureError",
    "Futures",
    "SceneFeatures",
    "collate",
    "cut_map",
    "extract",
]
