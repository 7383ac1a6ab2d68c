"""Hydra's configuration group for nuplan-devkit: hydra.searchpath=[pkg://waycode.simulation.nuplan.config, ...]."""
