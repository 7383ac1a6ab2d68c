"""Objectives: costs of decoded trajectories, and how costs are combined."""

from waycode.objectives.base import BaseObjective, Objective, as_objective
from waycode.objectives.candidates import Candidates, JointCandidates
from waycode.objectives.comfort import Comfort
from waycode.objectives.driving import (
    DRIVING_OBJECTIVE,
    AtFaultCollision,
    ComfortLimits,
    OffRoad,
    RedLight,
    RoadReserve,
    RoomToBrake,
    RouteEnd,
    RouteProgress,
    SpeedLimit,
    TimeToCollision,
)
from waycode.objectives.goals import GoalPoint, Reconstruction
from waycode.objectives.lanes import LaneChange
from waycode.objectives.parser import parse_objective
from waycode.objectives.plausibility import Likelihood, TerminalVariance
from waycode.objectives.registry import OBJECTIVES, ObjectiveDescription, Parameter, describe_objectives
from waycode.objectives.route import RouteFollowing
from waycode.objectives.safety import Collision, KeepDistance, RoadEdge
from waycode.objectives.setting import ObjectiveError, Setting
from waycode.objectives.speed import SlowDown, SpeedProfile, StopAt
from waycode.objectives.together import FollowingGap, GoesFirst, NoCollision
from waycode.objectives.turns import LeftTurn, RightTurn
from waycode.objectives.verdict import Verdict

__all__ = [
    "DRIVING_OBJECTIVE",
    "OBJECTIVES",
    "AtFaultCollision",
    "BaseObjective",
    "Candidates",
    "Collision",
    "Comfort",
    "ComfortLimits",
    "FollowingGap",
    "GoalPoint",
    "GoesFirst",
    "JointCandidates",
    "KeepDistance",
    "LaneChange",
    "LeftTurn",
    "Likelihood",
    "NoCollision",
    "Objective",
    "ObjectiveDescription",
    "ObjectiveError",
    "OffRoad",
    "Parameter",
    "Reconstruction",
    "RedLight",
    "RightTurn",
    "RoadEdge",
    "RoadReserve",
    "RoomToBrake",
    "RouteEnd",
    "RouteFollowing",
    "RouteProgress",
    "Setting",
    "SlowDown",
    "SpeedLimit",
    "SpeedProfile",
    "StopAt",
    "TerminalVariance",
    "TimeToCollision",
    "Verdict",
    "as_objective",
    "describe_objectives",
    "parse_objective",
]
