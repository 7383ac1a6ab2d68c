"""Planners that drive by the model: latent token search, and the surest code without an objective."""

from waycode.simulation.planners.imitation import ImitationPlanner
from waycode.simulation.planners.judge import JudgeConfig
from waycode.simulation.planners.latent import LatentConfig, LatentPlanner

__all__ = ["ImitationPlanner", "JudgeConfig", "LatentConfig", "LatentPlanner"]
