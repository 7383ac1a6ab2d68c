"""The networks: from scenes and trajectories to tokens and back."""

from waycode.model.autoencoder import Model, PrefixDecoder, search_codes
from waycode.model.config import Bottleneck, ModelConfig
from waycode.model.decoder import MeanAndStd, PrefixCache, SceneEmbedding
from waycode.model.gate import Spread, VarianceGate
from waycode.model.scene_encoder import SceneTokens

__all__ = [
    "Bottleneck",
    "MeanAndStd",
    "Model",
    "ModelConfig",
    "PrefixCache",
    "PrefixDecoder",
    "SceneEmbedding",
    "SceneTokens",
    "Spread",
    "VarianceGate",
    "search_codes",
]
