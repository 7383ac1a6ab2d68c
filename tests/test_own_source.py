"""The example in docs/own_source.md does what the page says."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from waycode.dataset.dataset import Dataset
from waycode.scene import Scene

PAGE = Path(__file__).parents[1] / "docs" / "own_source.md"
NUM_STEPS = 31


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module of the page and with recordings in the form that it shows."""
    (tmp_path / "my_source.py").write_text(code_blocks("python")[0])
    (tmp_path / "recordings").mkdir()
    header = code_blocks("text")[0].splitlines()[0]
    for number in range(3):
        lines = [header]
        lines += [f"7,{step},{431230.5 + number},{4581200.25 + 0.8 * step},1.57" for step in range(NUM_STEPS)]
        lines += [f"9,{step},431234.0,{4581250.0 - 0.6 * step},4.71" for step in range(5, NUM_STEPS)]
        (tmp_path / "recordings" / f"scene-{number}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_source", raising=False)
    return tmp_path


def test_the_page_has_a_source_and_its_use() -> None:
    source, use = code_blocks("python")
    assert "class CsvSource" in source
    assert "check_source" in use
    assert "convert(" in use


def test_the_example_passes_its_checks_and_becomes_a_dataset(folder: Path) -> None:
    names: dict[str, object] = {}
    exec(code_blocks("python")[1], names)  # noqa: S102 (our own page)
    first = names["first"]
    assert isinstance(first, Scene)
    assert (first.id, first.source, first.num_steps) == ("scene-0", "my-csv", NUM_STEPS)
    scenes = Dataset(folder / "dataset")
    assert [scene.id for scene in scenes] == ["scene-0", "scene-1", "scene-2"]
    assert scenes.info.settings["folder"] == "recordings"
    tracks = scenes[2].tracks
    world_m = tracks.position_m[0].astype(np.float64) + np.array(scenes[2].origin_m)
    np.testing.assert_allclose(world_m[:, 0], 431232.5, atol=1e-3)
    np.testing.assert_allclose(world_m[:, 1], 4581200.25 + 0.8 * np.arange(NUM_STEPS), atol=1e-3)
    assert tracks.valid.sum(axis=1).tolist() == [NUM_STEPS, NUM_STEPS - 5]
    np.testing.assert_allclose(tracks.heading_rad[1, 5:], 4.71 - 2 * np.pi, atol=1e-4)
    np.testing.assert_allclose(tracks.vy_mps[1, 5:], -6, atol=1e-3)


def test_the_rows_on_the_page_can_be_read(folder: Path) -> None:
    module = importlib.import_module("my_source")
    (folder / "recordings" / "page.csv").write_text(code_blocks("text")[0])
    scene = module.CsvSource("recordings").read("recordings/page.csv")
    assert scene.tracks.ids == ("0", "1")
    assert scene.tracks.valid.tolist() == [[True, True], [True, False]]
