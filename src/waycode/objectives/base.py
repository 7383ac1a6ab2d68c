"""What an objective is, and how objectives are combined.

An objective is any callable from `Candidates` to costs [K], or [K, M] in lexicographic order: the first level that
differs decides (paper, appendix "Details on Planning Objective Functions"). Lower is better.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from math import isfinite
from numbers import Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives.candidates import AnyCandidates, Candidates, JointCandidates
from waycode.objectives.setting import ObjectiveError
from waycode.objectives.verdict import Verdict, as_constraint, combined
from waycode.scene.arguments import check_kind

# Costs [K], [K, M] in lexicographic order, or a sequence of K values that Python can order.
Objective = Callable[[Any], Any]  # from `Candidates`, or from `JointCandidates` where several agents are planned for

# What an objective is about: one agent, the agents of a joint future together, or either, as its parts are.
Scope = Literal["agent", "agents", "parts"]


class BaseObjective(ABC):
    """A named cost that can be weighted, added and ordered with others: `2.0 * a + b`, `a.then(b)`."""

    differentiable: ClassVar[bool] = False  # whether `View.refine` may descend its gradient
    scope: ClassVar[Scope] = "agent"

    @abstractmethod
    def __call__(self, candidates: Any) -> Float[Tensor, "K *M"]:
        """Costs [K], or [K, M] in lexicographic order, of `Candidates` or `JointCandidates`: see `scope`."""

    def __post_init__(self) -> None:
        for parameter in _parameters(self):
            _check(self.name, parameter, getattr(self, parameter.name))

    @property
    def name(self) -> str:
        """The name in text: `lane-change` for the class `LaneChange`."""
        return _name_in_text(type(self))

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the M levels of the cost."""
        return (self.name,)

    def levels(self, candidates: AnyCandidates) -> Float[Tensor, "K M"]:
        """The costs as [K, M], M = len(level_names)."""
        self.check_scope(candidates)
        costs = self(candidates)
        expected = [len(candidates), len(self.level_names)]
        if isinstance(costs, Tensor) and costs.ndim == 1:
            costs = costs[:, None]
        if not isinstance(costs, Tensor) or list(costs.shape) != expected:
            got = f"a tensor of shape {list(costs.shape)}" if isinstance(costs, Tensor) else type(costs).__name__
            raise ObjectiveError(f"{self.name} gave {got}, expected a tensor of shape {expected}")
        return costs if costs.is_floating_point() else costs.to(candidates.position_m)

    def check_scope(self, candidates: AnyCandidates) -> None:
        """Raises `ObjectiveError` if the objective is about one agent and several are planned for, or vice versa."""
        if self.scope == "agent" and isinstance(candidates, JointCandidates):
            raise ObjectiveError(
                f"{self.name} is about one agent, and several are planned for: expected agent(ID): {self.name}, or "
                f"all: {self.name}"
            )
        if self.scope == "agents" and isinstance(candidates, Candidates):
            raise ObjectiveError(f"{self.name} is about several agents, and one is planned for: plan them jointly")

    def explain(self, candidates: Any) -> dict[str, Float[Tensor, " K"]]:
        """The cost of every part of the objective by name, without weights."""
        return dict(zip(self.level_names, self.levels(candidates).unbind(dim=1), strict=True))

    def met(self, candidates: Any) -> list[Verdict]:
        """Whether each of the K candidates does what is asked for; by default there is no notion of it."""
        return [Verdict()] * len(candidates)

    def differentiable_parts(self) -> "list[BaseObjective]":
        """The parts that have a gradient; for a lexicographic objective, those of its levels."""
        return [self] if self.differentiable else []

    def __add__(self, other: Objective) -> "Sum":
        return Sum((*(self.parts if isinstance(self, Sum) else (self,)), as_objective(other)))

    def __radd__(self, other: Objective) -> "Sum":
        return Sum((as_objective(other), self))

    def __mul__(self, weight: float | int) -> "Scaled":
        check_kind("a number", ObjectiveError, weight=weight)
        return Scaled((self,), float(weight))

    __rmul__ = __mul__

    def then(self, other: Objective) -> "Then":
        """Lexicographic order: this objective first, the other among candidates that it rates equal."""
        return Then((self, as_objective(other)))

    def where(self, constraint: Objective) -> "Where":
        """This objective under a constraint, whose levels come first."""
        return Where((as_objective(constraint), self))

    def for_agent(self, agent_id: str) -> "ForAgent":
        """This objective for the track with that id; zero for all other agents."""
        return ForAgent((self,), agent_id)

    def __str__(self) -> str:
        """The objective as text that `parse_objective` reads."""
        given = []
        for parameter in _parameters(self):
            value = getattr(self, parameter.name)
            if parameter.default is MISSING or value != parameter.default:
                given.append(f"{parameter.name}={_as_text(value)}")
        return f"{self.name}({', '.join(given)})" if given else self.name


def _parameters(objective: BaseObjective) -> tuple[Field[Any], ...]:
    return fields(objective) if is_dataclass(objective) else ()  # a user's objective need not be a dataclass


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_as_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _check(name: str, parameter: Field[Any], value: Any) -> None:
    """Raises for a value of another type, a word that is no choice, and a number that is not finite or negative."""
    if get_origin(parameter.type) is Literal and value not in get_args(parameter.type):
        choices = ", ".join(map(repr, get_args(parameter.type)))
        raise ObjectiveError(f"{parameter.name} of {name} is {value!r}, expected one of {choices}")
    kinds = get_args(parameter.type) if isinstance(parameter.type, UnionType) else (parameter.type,)
    if value is None and NoneType in kinds:
        return
    expected = next((words for kind, (words, _) in _PARAMETER_KINDS.items() if kind in kinds), None)
    if expected is None:
        return  # arrays and functions: checked where they are used
    if not any(kind in kinds and fits(value) for kind, (_, fits) in _PARAMETER_KINDS.items()):
        raise ObjectiveError(f"{parameter.name} of {name} is {value!r}, expected {expected}")
    numbers = value if isinstance(value, tuple | list) else [value]
    if not all(isfinite(number) for number in numbers):
        raise ObjectiveError(f"{parameter.name} of {name} is {value}, expected finite numbers")
    is_size = parameter.name not in _ANY_SIGN and int not in kinds
    if is_size and min(numbers, default=0) < 0:
        raise ObjectiveError(f"{parameter.name} of {name} is {value}, expected at least 0")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


_ANY_SIGN = ("x_m", "y_m")  # all other real parameters are sizes: at least 0
_PARAMETER_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    float: ("a number", _is_number),
    int: ("a whole number", lambda value: _is_number(value) and float(value).is_integer()),
    bool: ("true or false", lambda value: isinstance(value, bool | np.bool_)),
    tuple[float, ...]: (
        "a tuple of numbers",
        lambda value: isinstance(value, tuple | list) and all(map(_is_number, value)),
    ),
}


@cache
def _name_in_text(kind: type[BaseObjective]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def as_objective(objective: object, *, name: str | None = None) -> BaseObjective:
    """Wraps a plain function from candidates to costs [K] as an objective; objectives are returned unchanged."""
    if isinstance(objective, BaseObjective):
        return objective
    if not callable(objective):
        raise ObjectiveError(f"got {objective!r}, expected an objective or a function from candidates to costs")
    return FromFunction(objective, name or str(getattr(objective, "__name__", type(objective).__name__)))


@dataclass(frozen=True)
class FromFunction(BaseObjective):
    """A plain function as an objective of one level."""

    function: Objective
    function_name: str

    @property
    def name(self) -> str:
        return self.function_name

    def __call__(self, candidates: Candidates) -> Any:
        return self.function(candidates)  # `levels` checks it

    def __str__(self) -> str:
        return self.function_name


@dataclass(frozen=True)
class _Combined(BaseObjective):
    """An objective made of other objectives."""

    parts: tuple[BaseObjective, ...]

    scope: ClassVar[Scope] = "parts"

    def __post_init__(self) -> None:
        """Nothing to check: the parts have checked their own parameters."""

    @property
    def name(self) -> str:
        return str(self)

    @property
    def differentiable(self) -> bool:  # type: ignore[override]  # a class attribute of plain objectives
        return all(part.differentiable for part in self.parts)

    def explain(self, candidates: AnyCandidates) -> dict[str, Float[Tensor, " K"]]:
        explained: dict[str, Tensor] = {}
        for part in self.parts:
            for name, costs in part.explain(candidates).items():
                number = 1 + sum(known == name or known.startswith(f"{name} (") for known in explained)
                explained[name if number == 1 else f"{name} ({number})"] = costs
        return explained

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        """Satisfied if every part is that has a notion of it."""
        return [combined(parts) for parts in zip(*(part.met(candidates) for part in self.parts), strict=True)]


@dataclass(frozen=True)
class Sum(_Combined):
    """The sum of objectives of one level each."""

    def __post_init__(self) -> None:
        for term in self.parts:
            if len(term.level_names) != 1:
                names = ", ".join(term.level_names)
                raise ObjectiveError(
                    f"cannot add {term.name}, which has the levels {names}: expected one; use 'then' instead of '+'"
                )

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        return (" + ".join(term.level_names[0] for term in self.parts),)

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, " K"]:
        first, *others = (term.levels(candidates) for term in self.parts)
        return sum(others, start=first)[:, 0]

    def __str__(self) -> str:
        return " + ".join(_bracketed(term, Then) for term in self.parts)


@dataclass(frozen=True)
class Scaled(_Combined):
    """An objective (the only part) times a weight, in all levels."""

    weight: float

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and self.weight >= 0):
            raise ObjectiveError(
                f"the weight of {self.parts[0].name} is {self.weight}, expected a number of at least 0"
            )

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        return tuple(f"{_as_text(self.weight)} * {name}" for name in self.parts[0].level_names)

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, "K M"]:
        return self.weight * self.parts[0].levels(candidates)

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        return super().met(candidates) if self.weight > 0 else [Verdict()] * len(candidates)

    def __str__(self) -> str:
        return f"{_as_text(self.weight)} * {_bracketed(self.parts[0], Sum, Then)}"


@dataclass(frozen=True)
class Then(_Combined):
    """Objectives in lexicographic order."""

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.level_names)

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        return False  # a lexicographic order has no gradient

    def differentiable_parts(self) -> list[BaseObjective]:
        return [leaf for part in self.parts for leaf in part.differentiable_parts()]

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, "K M"]:
        return torch.cat([part.levels(candidates) for part in self.parts], dim=1)

    def __str__(self) -> str:
        return " then ".join(_bracketed(part, Where) for part in self.parts)


@dataclass(frozen=True)
class Where(Then):
    """An objective under a constraint: `Then` with the parts (constraint, objective), written in another order."""

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        constraint, objective = self.parts
        both = zip(constraint.met(candidates), objective.met(candidates), strict=True)
        return [combined([as_constraint(kept), met]) for kept, met in both]

    def __str__(self) -> str:
        constraint, objective = self.parts
        return f"{objective} where {_bracketed(constraint, Where)}"


@dataclass(frozen=True)
class ForAgent(_Combined):
    """An objective (the only part) of one agent, alone or of a joint future; it is zero for all others."""

    agent_id: str

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        return self.parts[0].level_names

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, "K M"]:
        mine = self._mine(candidates)
        if mine is None:
            return candidates.position_m.new_zeros(len(candidates), len(self.level_names))
        return self.parts[0].levels(mine)

    def explain(self, candidates: AnyCandidates) -> dict[str, Float[Tensor, " K"]]:
        mine = self._mine(candidates)
        if mine is None:
            return {}
        prefix = f"agent({self.agent_id}): " if isinstance(candidates, JointCandidates) else ""
        return {prefix + name: costs for name, costs in self.parts[0].explain(mine).items()}

    def _mine(self, candidates: AnyCandidates) -> Candidates | None:
        if isinstance(candidates, JointCandidates):
            return candidates.of(self.agent_id)
        return candidates if candidates.setting.agent_id == self.agent_id else None

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        mine = self._mine(candidates)
        if mine is None:
            return [Verdict()] * len(candidates)
        verdicts = self.parts[0].met(mine)
        return [_of_agent(self.agent_id, one) for one in verdicts] if mine is not candidates else verdicts

    def __str__(self) -> str:
        return f"agent({self.agent_id}): {_bracketed(self.parts[0], Sum, Then)}"


@dataclass(frozen=True)
class EveryAgent(_Combined):
    """An objective (the only part) of every agent of a joint future: the sum over the agents, level by level."""

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        return self.parts[0].level_names

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, "K M"]:
        if isinstance(candidates, Candidates) or self.parts[0].scope == "agents":
            return self.parts[0].levels(candidates)
        return torch.stack([self.parts[0].levels(one) for one in candidates.agents]).sum(dim=0)

    def explain(self, candidates: AnyCandidates) -> dict[str, Float[Tensor, " K"]]:
        if isinstance(candidates, Candidates) or self.parts[0].scope == "agents":
            return self.parts[0].explain(candidates)
        return {
            f"agent({one.setting.agent_id}): {name}": costs
            for one in candidates.agents
            for name, costs in self.parts[0].explain(one).items()
        }

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        if isinstance(candidates, Candidates) or self.parts[0].scope == "agents":
            return self.parts[0].met(candidates)
        by_agent = [
            [_of_agent(one.setting.agent_id, verdict) for verdict in self.parts[0].met(one)]
            for one in candidates.agents
        ]
        return [combined(verdicts) for verdicts in zip(*by_agent, strict=True)]

    def __str__(self) -> str:
        return f"all: {_bracketed(self.parts[0], Sum, Then)}"


def _of_agent(agent_id: str, verdict: Verdict) -> Verdict:
    """A verdict of a joint future that names its agent."""
    return replace(verdict, sentence=f"{agent_id} {verdict.sentence}") if verdict.sentence else verdict


def _bracketed(part: BaseObjective, *looser: type[BaseObjective]) -> str:
    """The part as text, in brackets if it binds looser than its surroundings."""
    return f"({part})" if isinstance(part, looser) else str(part)
