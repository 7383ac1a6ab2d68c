"""`docs/dataset.md` says what is on disk: its table is that of the code, and its example for pandas runs."""

import os
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenes import small_scene
from waycode.dataset.dataset import ShardContents, write_dataset
from waycode.dataset.storage import COLUMNS

DOCUMENT = Path(__file__).parents[1] / "docs" / "dataset.md"
COLUMN_SCRIPT = runpy.run_path(str(DOCUMENT.with_name("dataset_columns.py")))
column_table, with_column_table = COLUMN_SCRIPT["column_table"], COLUMN_SCRIPT["with_column_table"]


def test_the_table_of_columns_is_up_to_date() -> None:
    text = DOCUMENT.read_text()
    assert with_column_table(text) == text, "run: python docs/dataset_columns.py"


def test_every_column_is_in_the_table() -> None:
    rows = column_table().splitlines()
    assert len(rows) == 2 + len(COLUMNS)
    assert "| `tracks_x_m` | list of float32 | [A, T] | centre of the box in the scene frame |" in rows
    assert "| `tracks_ego_index` | int32 or null |  | index of the ego's track, or null |" in rows
    assert any(row.startswith("| `map_lanes_successors` | list of int32 | [2, E] |") for row in rows)


def test_a_document_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no table of columns"):
        with_column_table("# Something else")


def test_the_pandas_example_reads_a_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = small_scene()
    write_dataset(tmp_path / "my-scenes", [0], make=lambda _: ShardContents([scene]), source="s", settings={})
    (example,) = re.findall(r"pandas:\n\n```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(example, found)  # noqa: S102 (our own document)
    np.testing.assert_array_equal(found["x_m"], scene.tracks.x_m)
    np.testing.assert_array_equal(found["valid"], scene.tracks.valid)
    for one, other in zip(found["lanes"], scene.map.lanes.centrelines.as_list(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found["world_m"][1].tolist() == [1_234_577.0, -7_654_317.0]
    assert os.listdir() == ["my-scenes"]
