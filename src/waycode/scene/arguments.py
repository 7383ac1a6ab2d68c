"""Checks of the types of arguments, for errors of our own instead of those deep inside. Messages name the argument."""

from numbers import Integral, Real
from os import PathLike
from typing import Any

from waycode.scene.types import WaycodeError

_KINDS: dict[str, tuple[type, ...]] = {
    "a whole number": (Integral,),
    "a number": (Real,),
    "a name or a path": (str, PathLike),
}


def check_kind(expected: str, error: type[WaycodeError], **arguments: Any) -> None:
    """Raises `error` for the first argument that is not of a kind. None passes as a number that was not given.

    Args:
        expected: a key of `_KINDS`.
        error: the error to raise.
        arguments: by name.
    """
    for name, value in arguments.items():
        is_not_given = value is None and expected != "a name or a path"
        is_right = isinstance(value, _KINDS[expected]) and not isinstance(value, bool)
        if not (is_right or is_not_given):
            raise error(f"{name} is {value!r:.60}, expected {expected}")


def check_type(expected: type, error: type[WaycodeError], **arguments: Any) -> None:
    """Raises `error` for the first argument that is not of a type of ours, such as `Scene`.

    Args:
        expected: the type.
        error: the error to raise.
        arguments: by name.
    """
    for name, value in arguments.items():
        if not isinstance(value, expected):
            raise error(f"{name} is {value!r:.60}, expected a {expected.__name__}")
