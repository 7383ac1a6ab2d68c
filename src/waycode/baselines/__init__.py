"""Drivers to compare with: log replay, constant velocity, IDM and PDM-Closed."""

from waycode.baselines.idm import IdmDriver
from waycode.baselines.pdm_closed import PdmClosed, PdmConfig
from waycode.baselines.simple import ConstantVelocity, LogReplay

__all__ = ["ConstantVelocity", "IdmDriver", "LogReplay", "PdmClosed", "PdmConfig"]
