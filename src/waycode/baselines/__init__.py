"""Drivers to compare with: log replay, constant velocity, IDM and PDM-Closed."""

from waycode.baselines.idm import IdmDriver
from waycode.baselines.pdm_closed import PDM_ADAPTED, PdmClosed, PdmConfig
from waycode.baselines.simple import ConstantVelocity, LogReplay

__all__ = ["PDM_ADAPTED", "ConstantVelocity", "IdmDriver", "LogReplay", "PdmClosed", "PdmConfig"]
