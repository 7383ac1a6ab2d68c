"""Writes the table of columns in `docs/dataset.md`: python -m waycode.dataset.column_docs docs/dataset.md"""

import sys
from pathlib import Path

import pyarrow as pa

from waycode.dataset.storage import COLUMNS, SCHEMA, Column
from waycode.scene.errors import WaycodeError

BEGIN, END = "<!-- columns: begin (written by waycode.dataset.column_docs) -->", "<!-- columns: end -->"


def column_table() -> str:
    """All columns as a Markdown table."""
    rows = [f"| `{column.name}` | {_type_name(column)} | {_shape(column)} | {column.doc} |" for column in COLUMNS]
    return "\n".join(["| column | type | shape | what it is |", "|---|---|---|---|", *rows])


def with_column_table(document: str) -> str:
    """The document with the table between its two marks renewed."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise WaycodeError(f"the document has no place for the columns: expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{column_table()}\n{END}{after}"


def _type_name(column: Column) -> str:
    is_list = pa.types.is_list(column.type)
    kind = str(column.type.value_type if is_list else column.type)
    name = ("list of " if is_list else "") + {"float": "float32", "double": "float64"}.get(kind, kind)
    return name + (" or null" if SCHEMA.field(column.name).nullable else "")


def _shape(column: Column) -> str:
    """The shape to give the list with `reshape`; arrays of points and pairs lie the other way round on disk."""
    axes = column.axes.split()
    return f"[{', '.join(axes[::-1] if column.is_points else axes)}]" if axes else ""


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(with_column_table(path.read_text()))
