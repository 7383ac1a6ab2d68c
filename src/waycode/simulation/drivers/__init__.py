"""Drivers by the model: latent token search, the paper's planner among its settings, and imitation."""

from waycode.simulation.drivers.latent import PAPER, ImitationDriver, LatentConfig, LatentDriver
from waycode.simulation.drivers.policy import PolicyConfig

__all__ = ["PAPER", "ImitationDriver", "LatentConfig", "LatentDriver", "PolicyConfig"]
