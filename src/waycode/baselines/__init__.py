"""Planners that one would use instead: the log, constant velocity, IDM and PDM-Closed.

All are values without state: what they must remember within a scenario travels as the trajectory's `memory`.
"""

from waycode.baselines.constant_velocity import ConstantVelocity
from waycode.baselines.idm import IdmDriver
from waycode.baselines.pdm_closed import PdmClosed, PdmConfig
from waycode.baselines.replay import LogReplay

__all__ = ["ConstantVelocity", "IdmDriver", "LogReplay", "PdmClosed", "PdmConfig"]
