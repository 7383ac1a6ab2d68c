"""Planners that drive by the model: latent token search, and the surest code without an objective."""

from waycode.simulation.drivers.imitation import ImitationDriver
from waycode.simulation.drivers.judge import JudgeConfig
from waycode.simulation.drivers.latent import LatentConfig, LatentDriver

__all__ = ["ImitationDriver", "JudgeConfig", "LatentConfig", "LatentDriver"]
