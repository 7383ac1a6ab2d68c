"""Objectives: what a decoded trajectory costs, and how such costs are put together."""

from waycode.objectives.base import BaseObjective, Objective, as_objective
from waycode.objectives.candidates import Candidates
from waycode.objectives.comfort import Comfort
from waycode.objectives.errors import ObjectiveError
from waycode.objectives.following import KeepDistance
from waycode.objectives.goals import GoalPoint, Reconstruction
from waycode.objectives.lanes import LaneChange
from waycode.objectives.parser import parse_objective
from waycode.objectives.registry import OBJECTIVES, ObjectiveDescription, Parameter, describe_objectives
from waycode.objectives.route import RouteFollowing
from waycode.objectives.safety import Collision, RoadEdge
from waycode.objectives.setting import Setting
from waycode.objectives.speed import SlowDown, SpeedProfile, StopAt
from waycode.objectives.turns import LeftTurn, RightTurn
from waycode.objectives.uncertainty import TerminalVariance

__all__ = [
    "OBJECTIVES",
    "BaseObjective",
    "Candidates",
    "Collision",
    "Comfort",
    "GoalPoint",
    "KeepDistance",
    "LaneChange",
    "LeftTurn",
    "Objective",
    "ObjectiveDescription",
    "ObjectiveError",
    "Parameter",
    "Reconstruction",
    "RightTurn",
    "RoadEdge",
    "RouteFollowing",
    "Setting",
    "SlowDown",
    "SpeedProfile",
    "StopAt",
    "TerminalVariance",
    "as_objective",
    "describe_objectives",
    "parse_objective",
]
