"""Generated scenes: random road networks with traffic that SUMO simulates."""

from waycode.sources.sumo.families import Family
from waycode.sources.sumo.generate import SumoSettings, generate, generate_dataset

__all__ = ["Family", "SumoSettings", "generate", "generate_dataset"]
