"""Settings from the command line: `model.width=128` changes one field of the nested configuration."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from waycode.training.errors import TrainingError

Config = TypeVar("Config")


def override(config: Config, settings: Sequence[str]) -> Config:
    """The configuration with fields such as `noise.target_ade_m=0.8` set; names and types are checked."""
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise TrainingError(f"the setting {setting!r} has no '=', expected one such as model.width=128")
        path = name.strip().split(".")
        _place(changes, path, _parsed(text.strip(), _type_of(config, path), name=name.strip()))
    try:
        return _changed(config, changes)  # all at once: fields may only be right together
    except ValueError as error:
        raise TrainingError(f"the settings do not go together: {error}") from error


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations as nested dictionaries, one phrase per field."""
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += [f"{name}.{phrase}" for phrase in differences(old, new)]
        elif old != new:
            found.append(f"{name} is {old}, asked for {new}")
    return found


def _type_of(config: Any, path: Sequence[str]) -> Any:
    """The type of a field, found by its dotted path."""
    kind: Any = type(config)
    for depth, name in enumerate(path):
        if not is_dataclass(kind):
            raise TrainingError(f"{'.'.join(path[:depth])} has no fields, but {'.'.join(path)} was set")
        hints = get_type_hints(kind)
        available = [field.name for field in fields(kind)]
        if name not in available:
            where = f" in {'.'.join(path[:depth])}" if depth else ""
            raise TrainingError(f"there is no setting {name!r}{where}; available: {', '.join(available)}")
        kind = hints[name]
    if is_dataclass(kind):
        inner = ", ".join(f"{'.'.join(path)}.{field.name}" for field in fields(kind))
        raise TrainingError(f"{'.'.join(path)} is a group of settings, expected one of {inner}")
    return kind


def _parsed(text: str, kind: Any, *, name: str) -> Any:
    """The text as a value of the type, or an error that says what was expected."""
    choices = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if NoneType in choices and text.lower() == "none":
        return None
    wanted = next(choice for choice in choices if choice is not NoneType)
    try:
        if issubclass(wanted, bool):
            return {"true": True, "false": False}[text.lower()]
        value = wanted(text)
    except (ValueError, KeyError):
        raise TrainingError(f"{name} is {text!r}, expected {_in_words(wanted, choices)}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise TrainingError(f"{name} is {text!r}, expected {_in_words(wanted, choices)}")
    return value


def _in_words(kind: type, choices: Sequence[Any]) -> str:
    if issubclass(kind, Enum):
        words = "one of " + ", ".join(str(member.value) for member in kind)
    else:
        words = {bool: "true or false", int: "a whole number", float: "a finite number"}.get(kind, kind.__name__)
    return f"{words}, or none" if NoneType in choices else words


def _place(changes: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        changes = changes.setdefault(name, {})
    changes[path[-1]] = value


def _changed(config: Any, changes: Mapping[str, Any]) -> Any:
    inner = {
        name: _changed(getattr(config, name), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return replace(config, **inner)
