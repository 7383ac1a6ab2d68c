"""docs/results.md is what the reports say, and the reports are of test seeds."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
REPORTS = sorted((DOCS / "results").glob("*/*.json"))


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", DOCS / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_generated(results: ModuleType) -> None:
    assert results.PAGE.read_text() == results.page(), "run: python docs/results.py"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_reports_are_of_test_seeds(path: Path) -> None:
    report = json.loads(path.read_text())
    assert report["seed_role"] == "test"
    assert report["published"]
    assert report["num_episodes"] > 20


def test_there_are_reports() -> None:
    assert len(REPORTS) >= 5


def test_the_readme_has_the_figures_of_the_reports() -> None:
    def of(task: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((DOCS / "results" / "sumo-small" / f"{task}.json").read_text())
        return content

    readme = " ".join((DOCS.parent / "README.md").read_text().split())
    turns, ade_m = of("left-turn")["rows"], of("reconstruction")["table"]["greedy N_l = 2"][2]["ade_m"]
    found, wrong = (
        turns[part]["greedy 3"]["success"]["mean"]
        for part in ("left turn available, all crossings", "no left turn available, all crossings")
    )
    assert f"greedy search finds {100 * found:.0f} % on test scenes" in readme
    assert f"it turns in {100 * wrong:.0f} %" in readme
    assert f"where it has {ade_m:.2f} m on unseen generated scenes" in readme
