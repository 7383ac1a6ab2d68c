"""Generated traffic: random road networks, simulated with SUMO, cut into scenes."""

from waycode.sources.sumo.families import Family
from waycode.sources.sumo.generate import SumoSettings, generate, generate_dataset

__all__ = ["Family", "SumoSettings", "generate", "generate_dataset"]
