"""Random damage to bytes, JSON values, columns of tables and text: functions of the input and a random generator."""

import copy
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Random = np.random.Generator

# What breaks readers: the edges of number types, other types, and text that means something elsewhere.
ODD_NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 0.5, -0.0, 1e-30, 1e7, 1e30, -1e308, math.nan, math.inf, -math.inf, 2**31, -(2**31), 2**63, 10**400,
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    *ODD_NUMBERS, None, True, False, "", "text", "7", "NaN", "$\\frac{1$", "../up", "\0", "é" * 40, [], {}, [[]],
    [None], [1, 2, 3], {"x": 1}, {"": None},
)  # fmt: skip

_ODD_CELLS = tuple(value for value in ODD_VALUES if not isinstance(value, dict))  # Parquet has no empty dicts


def choose(random: Random, options: Sequence[Any]) -> Any:
    return options[int(random.integers(len(options)))]


def damaged_bytes(content: bytes, random: Random) -> bytes:
    """Flips bits, cuts, repeats, removes and overwrites pieces, one to four times."""
    result = bytearray(content)
    for _ in range(int(random.integers(1, 5))):
        size = len(result)
        if size == 0:
            return bytes(random.bytes(8))
        place, length = int(random.integers(size)), min(size, 2 ** int(random.integers(0, 12)))
        kind = int(random.integers(6))
        if kind == 0:
            result[place] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del result[place:]
        elif kind == 2:
            del result[place : place + length]
        elif kind == 3:
            result[place:place] = result[place : place + length]
        elif kind == 4:
            result[place : place + length] = random.bytes(length)
        else:
            piece = choose(random, [b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", b"1e999", b"NaN", b"[" * 2000, b'"'])
            result[place : place + len(piece)] = piece
    return bytes(result)


def damaged_json(content: Any, random: Random) -> Any:
    """A copy of a JSON value with one to three places changed, removed, repeated or exchanged."""
    result = copy.deepcopy(content)
    for _ in range(int(random.integers(1, 4))):
        result = _damage_one_place(result, random)
    return result


def _damage_one_place(content: Any, random: Random) -> Any:
    parent: Any = None
    key: Any = None
    part = content
    while isinstance(part, (dict, list)) and part and random.random() < 0.85:  # a random walk to a place in the tree
        parent, key = part, choose(random, list(part) if isinstance(part, dict) else range(len(part)))
        part = part[key]
    value = copy.deepcopy(choose(random, ODD_VALUES))
    if parent is None:
        return value if random.random() < 0.1 else content
    kind = int(random.integers(5))
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(part))
    elif kind == 2:
        other = choose(random, list(parent) if isinstance(parent, dict) else range(len(parent)))
        parent[key], parent[other] = parent[other], parent[key]
    elif kind == 3 and isinstance(part, (int, float)) and not isinstance(part, bool):
        parent[key] = choose(random, ODD_NUMBERS)
    else:
        parent[key] = value
    return content


def json_text(content: Any, random: Random) -> bytes:
    """The value as JSON; sometimes with damaged bytes, sometimes nested deeply."""
    try:
        text = json.dumps(content).encode()
    except (ValueError, TypeError):  # a number too large to write
        text = b"null"
    choice = random.random()
    if choice < 0.1:
        return damaged_bytes(text, random)
    return b"[" * 50_000 if choice < 0.102 else text


def damaged_table(table: pa.Table, random: Random) -> pa.Table:
    """A table with a column of other values, another type, nulls, fewer rows, or without the column."""
    place = int(random.integers(table.num_columns))
    name, column = table.schema.names[place], table.column(place).combine_chunks()
    kind = int(random.integers(6))
    if kind == 0:
        return table.remove_column(place)
    if kind == 1:
        return table.slice(0, int(random.integers(table.num_rows + 1)))
    if kind == 2:
        return table.take(pa.array(random.integers(0, table.num_rows, table.num_rows)))
    values = column.to_pylist()
    if kind == 3:
        values = [choose(random, _ODD_CELLS)] * len(values)
    else:
        for _ in range(int(random.integers(1, 4))):
            row = int(random.integers(len(values))) if values else 0
            if values:
                values[row] = _damaged_cell(values[row], random)
    try:
        return table.set_column(place, name, pa.array(values, column.type if kind == 5 else None))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return table.set_column(place, name, pa.nulls(table.num_rows))


def _damaged_cell(value: Any, random: Random) -> Any:
    if isinstance(value, list) and value and random.random() < 0.8:
        value = list(value)
        kind = int(random.integers(3))
        if kind == 0:
            value.pop()
        elif kind == 1:
            value.append(value[0])
        else:
            value[int(random.integers(len(value)))] = choose(random, ODD_NUMBERS[:-2])
        return value
    return choose(random, _ODD_CELLS)


def damaged_words(text: str, vocabulary: Sequence[str], random: Random) -> str:
    """Text with up to seven words inserted, removed, exchanged or repeated."""
    words = text.split(" ")
    for _ in range(int(random.integers(0, 8))):
        place = int(random.integers(len(words) + 1))
        kind = int(random.integers(4))
        if kind == 0 and words:
            del words[min(place, len(words) - 1)]
        elif kind == 1 and words:
            words[place:place] = words[: int(random.integers(len(words))) + 1]
        else:
            words.insert(place, choose(random, vocabulary))
    joined = choose(random, [" ", "", "\n"]).join(words)
    return joined[: int(random.integers(len(joined) + 1))] if random.random() < 0.2 else joined
