"""Writes the table of columns in docs/dataset.md from `waycode.dataset.storage.COLUMNS`.

python docs/dataset_columns.py

A test compares the page with the source.
"""

from pathlib import Path

import pyarrow as pa

from waycode.dataset.storage import COLUMNS, SCHEMA, Column

PAGE = Path(__file__).parent / "dataset.md"
BEGIN, END = "<!-- columns: begin (written by docs/dataset_columns.py) -->", "<!-- columns: end -->"


def column_table() -> str:
    """All columns as a Markdown table."""
    rows = [f"| `{column.name}` | {_type_name(column)} | {_shape(column)} | {column.doc} |" for column in COLUMNS]
    return "\n".join(["| column | type | shape | what it is |", "|---|---|---|---|", *rows])


def with_column_table(document: str) -> str:
    """The document with a new table between its two marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the document has no table of columns: expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{column_table()}\n{END}{after}"


def _type_name(column: Column) -> str:
    is_list = pa.types.is_list(column.type)
    kind = str(column.type.value_type if is_list else column.type)
    name = ("list of " if is_list else "") + {"float": "float32", "double": "float64"}.get(kind, kind)
    return name + (" or null" if SCHEMA.field(column.name).nullable else "")


def _shape(column: Column) -> str:
    """The shape of the list for `reshape`; points and pairs are transposed on disk."""
    axes = column.axes.split()
    return f"[{', '.join(axes[::-1] if column.is_points else axes)}]" if axes else ""


if __name__ == "__main__":
    PAGE.write_text(with_column_table(PAGE.read_text()))
