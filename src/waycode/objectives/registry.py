"""The objectives by name, with descriptions of their parameters."""

from dataclasses import MISSING, Field, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from waycode.objectives.base import BaseObjective
from waycode.objectives.comfort import Comfort
from waycode.objectives.driving import (
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
from waycode.objectives.plausibility import Likelihood, TerminalVariance
from waycode.objectives.route import RouteFollowing
from waycode.objectives.safety import Collision, KeepDistance, RoadEdge
from waycode.objectives.speed import SlowDown, SpeedProfile, StopAt
from waycode.objectives.together import FollowingGap, GoesFirst, NoCollision
from waycode.objectives.turns import LeftTurn, RightTurn

OBJECTIVES: dict[str, type[BaseObjective]] = {
    "left-turn": LeftTurn,
    "right-turn": RightTurn,
    "lane-change": LaneChange,
    "slow-down": SlowDown,
    "speed-profile": SpeedProfile,
    "stop-at": StopAt,
    "goal-point": GoalPoint,
    "route-following": RouteFollowing,
    "keep-distance": KeepDistance,
    "road-edge": RoadEdge,
    "collision": Collision,
    "comfort": Comfort,
    "reconstruction": Reconstruction,
    "terminal-variance": TerminalVariance,
    "likelihood": Likelihood,
    "at-fault-collision": AtFaultCollision,
    "off-road": OffRoad,
    "road-reserve": RoadReserve,
    "room-to-brake": RoomToBrake,
    "red-light": RedLight,
    "route-end": RouteEnd,
    "route-progress": RouteProgress,
    "time-to-collision": TimeToCollision,
    "speed-limit": SpeedLimit,
    "comfort-limits": ComfortLimits,
    "no-collision": NoCollision,
    "following-gap": FollowingGap,
    "goes-first": GoesFirst,
}

UNITS = {"m": "m", "s": "s", "mps": "m/s", "rad": "rad", "1pm": "1/m"}  # by the suffix of a parameter's name
KINDS: dict[Any, str] = {
    float: "number",
    int: "whole number",
    bool: "true or false",
    tuple[float, ...]: "list of numbers",
    str: "id of an agent",
}
ONLY_IN_PYTHON = "array, in Python only"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of an objective, in text and in Python."""

    name: str
    kind: str  # one of KINDS, or the words to choose from
    unit: str | None
    default: Any
    required: bool
    positional: bool  # may be given without its name
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObjectiveDescription:
    """Description of an objective, for help texts and forms."""

    name: str
    summary: str  # one sentence
    parameters: tuple[Parameter, ...]
    differentiable: bool


def describe_objectives() -> tuple[ObjectiveDescription, ...]:
    """Descriptions of all objectives that text can name, in the order of the registry."""
    return tuple(
        ObjectiveDescription(
            name=name,
            summary=(kind.__doc__ or "").splitlines()[0],
            parameters=parameters_of(kind),
            differentiable=kind.differentiable,
        )
        for name, kind in OBJECTIVES.items()
    )


def parameters_of(objective: type[BaseObjective]) -> tuple[Parameter, ...]:
    """The parameters of an objective, in the order in which they can be given."""
    return tuple(_parameter(parameter) for parameter in fields(objective))  # type: ignore[arg-type]  # a dataclass


def _parameter(parameter: Field[Any]) -> Parameter:
    given = [kind for kind in get_args(parameter.type) if kind is not NoneType]
    kind = given[0] if len(given) == 1 and isinstance(parameter.type, UnionType) else parameter.type
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return Parameter(
        name=parameter.name,
        kind=" or ".join(choices) or KINDS.get(kind, ONLY_IN_PYTHON),
        unit=UNITS.get(parameter.name.rpartition("_")[2]),
        default=None if parameter.default is MISSING else parameter.default,
        required=parameter.default is MISSING,
        positional=not parameter.kw_only,
        choices=choices,
    )
