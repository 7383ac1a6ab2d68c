"""The networks: from scenes and trajectories to tokens and back."""

from waycode.model.autoencoder import Model
from waycode.model.config import Bottleneck, ModelConfig
from waycode.model.decoder import Prefix, SceneMemory, Trajectories
from waycode.model.scene_encoder import SceneTokens

__all__ = ["Bottleneck", "Model", "ModelConfig", "Prefix", "SceneMemory", "SceneTokens", "Trajectories"]
