"""From scenes to tensors."""

from waycode.features.batch import collate, mirror
from waycode.features.extract import Example, FeatureError, SegmentedMap, extract, segment_map
from waycode.features.types import Agents, Batch, FeatureConfig, SceneFeatures

__all__ = [
    "Agents",
    "Batch",
    "Example",
    "FeatureConfig",
    "FeatureError",
    "SceneFeatures",
    "SegmentedMap",
    "collate",
    "extract",
    "mirror",
    "segment_map",
]
