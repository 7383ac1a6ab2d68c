"""Objectives as the lines of a form."""

from dataclasses import MISSING, fields
from typing import Literal

from waycode.objectives import BaseObjective, parse_objective
from waycode.objectives.base import EveryAgent, ForAgent, Scaled, Sum, Then, Where
from waycode.objectives.registry import OBJECTIVES, ONLY_IN_PYTHON, describe_objectives
from waycode.studio.messages import ArgumentValue, ObjectiveReply, ObjectiveRow, ParameterReply, ParsedObjective

_Joined = Literal["first", "+", "then", "where"]


class _BracketsError(Exception):
    """The objective has no flat form."""


def objective_replies() -> list[ObjectiveReply]:
    """The registry, for forms."""
    return [
        ObjectiveReply(
            name=described.name,
            summary=described.summary,
            parameters=[
                ParameterReply(
                    name=one.name,
                    kind=one.kind,
                    unit=one.unit,
                    default=_plain(one.default),
                    required=one.required,
                    positional=one.positional,
                    choices=list(one.choices),
                    in_text=one.kind != ONLY_IN_PYTHON,
                )
                for one in described.parameters
            ],
            differentiable=described.differentiable,
            only_joint=OBJECTIVES[described.name].scope == "agents",
        )
        for described in describe_objectives()
    ]


def parsed_objective(text: str) -> ParsedObjective:
    """What the registry's parser makes of a text; raises `ObjectiveError` with the place of a mistake."""
    objective = parse_objective(text)
    try:
        rows = _rows(objective, "first", (Where, Then, Sum, Scaled))
    except _BracketsError:
        rows = None
    return ParsedObjective(
        text=str(objective),
        rows=rows,
        level_names=list(objective.level_names),
        is_differentiable=bool(objective.differentiable_parts()),
    )


def _rows(objective: BaseObjective, joined: _Joined, allowed: tuple[type, ...]) -> list[ObjectiveRow]:
    """The lines of an objective; each combinator may contain only those that bind tighter."""
    if isinstance(objective, Then | Sum | Scaled) and type(objective) not in allowed:  # `Where` is a kind of `Then`
        raise _BracketsError
    if isinstance(objective, Where):
        constraint, aim = objective.parts
        return _rows(aim, joined, allowed) + _rows(constraint, "where", (Then, Sum, Scaled))
    if isinstance(objective, Then):
        first, second = objective.parts
        return _rows(first, joined, (Then, Sum, Scaled)) + _rows(second, "then", (Then, Sum, Scaled))
    if isinstance(objective, Sum):
        first, *others = objective.parts
        return _rows(first, joined, (Scaled,)) + [row for part in others for row in _rows(part, "+", (Scaled,))]
    if isinstance(objective, Scaled):
        (row,) = _rows(objective.parts[0], joined, ())
        return [row.model_copy(update={"weight": objective.weight})]
    if isinstance(objective, ForAgent | EveryAgent):
        (row,) = _rows(objective.parts[0], joined, ())
        if row.agent is not None or row.is_for_all:
            raise _BracketsError
        owner = {"agent": objective.agent_id} if isinstance(objective, ForAgent) else {"is_for_all": True}
        return [row.model_copy(update=owner)]
    if objective.name not in OBJECTIVES:
        raise _BracketsError
    arguments = _arguments(objective)
    return [
        ObjectiveRow(joined=joined, weight=1.0, agent=None, is_for_all=False, name=objective.name, arguments=arguments)
    ]


def _arguments(objective: BaseObjective) -> dict[str, ArgumentValue]:
    given = {}
    for parameter in fields(objective):  # type: ignore[arg-type]  # the registry has dataclasses only
        value = getattr(objective, parameter.name)
        if parameter.default is MISSING or value != parameter.default:
            given[parameter.name] = _plain(value)
    return given


def _plain(value: object) -> ArgumentValue:
    if isinstance(value, tuple):
        return [float(number) for number in value]
    return value if isinstance(value, bool | float | int | str | None) else None
