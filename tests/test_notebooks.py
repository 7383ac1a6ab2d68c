"""The notebooks of docs/notebooks run from top to bottom, and what they show can be shown."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def show(value: Any) -> None:
    """What a notebook does with the last expression of a cell."""
    assert repr(value)
    if hasattr(value, "_repr_png_"):
        assert value._repr_png_().startswith(b"\x89PNG")


def run_cell(source: str, names: dict[str, Any], *, place: str) -> None:
    """Runs one cell; a last expression without a semicolon is shown."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
        tree.body.pop()
        exec(compile(tree, place, "exec"), names)  # noqa: S102 (our own notebook)
        show(eval(compile(ast.Expression(last.value), place, "eval"), names))  # noqa: S307
    else:
        exec(compile(tree, place, "exec"), names)  # noqa: S102


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_plan", "own_objective", "tokens"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_from_any_folder(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {"__name__": "__main__"}
    with mpl.rc_context({"backend": "agg"}):
        for number, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] == "code":
                assert cell["outputs"] == [], "clear the outputs before you commit a notebook"
                run_cell("".join(cell["source"]), names, place=f"{path.name}, cell {number}")
        plt.close("all")
