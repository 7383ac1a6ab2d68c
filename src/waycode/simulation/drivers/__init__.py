"""Drivers that use the model: latent token search, with the paper's planner as a configuration, and imitation."""

from waycode.simulation.drivers.latent import PAPER, ImitationDriver, LatentConfig, LatentDriver
from waycode.simulation.drivers.pdm_score import PDM_SCORE
from waycode.simulation.drivers.policy import PolicyConfig

__all__ = ["PAPER", "PDM_SCORE", "ImitationDriver", "LatentConfig", "LatentDriver", "PolicyConfig"]
