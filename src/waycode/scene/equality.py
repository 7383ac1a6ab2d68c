"""Equality of values that hold arrays: all fields equal, arrays element by element (NaN equals NaN)."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


class EqualByValue:
    """A dataclass (with `eq=False`) that is equal to another of its class with the same values. It has no hash."""

    __hash__ = None  # type: ignore[assignment]  # arrays have none

    def __eq__(self, other: object) -> bool:
        return same_values(self, other) if type(self) is type(other) else NotImplemented


def same_values(one: Any, other: Any, *, ignored: frozenset[str] = frozenset()) -> bool:
    """Whether two values are equal, with arrays anywhere in them.

    Args:
        one, other: dataclasses, arrays, mappings, sequences, or anything that Python compares.
        ignored: names of fields of the outermost dataclass that do not count.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if is_dataclass(one):
        names = [field.name for field in fields(one) if field.name not in ignored]
        return all(same_values(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same_values(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_values, one, other))
    return bool(one == other)
