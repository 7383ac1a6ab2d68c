"""Licence and provenance: every file that ships and is not Python code is in the table of SECURITY.md."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "waycode"


def listed() -> dict[str, tuple[str, str]]:
    """Origin and licence by file or folder, of the table in SECURITY.md."""
    section = (ROOT / "SECURITY.md").read_text().split("## Bundled files")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| ([^|]+) \|$", section, flags=re.MULTILINE)
    return {path: (origin, licence) for paths, origin, licence in rows for path in re.findall(r"`([^`]+)`", paths)}


def shipped() -> list[str]:
    """All files of the package that are not Python code, and of the documentation."""
    data = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    documents = [path for path in (ROOT / "docs").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(str(path.relative_to(ROOT)) for path in [*data, *documents])


def test_every_file_has_a_licence_and_an_origin() -> None:
    table = listed()
    missing = [name for name in shipped() if not any(name.startswith(place) for place in table)]
    assert missing == [], "expected each of them in the table of SECURITY.md"
    assert {licence for _, licence in table.values()} == {"Apache-2.0"}  # else the licence's text must ship too
    unused = [place for place in table if not any(name.startswith(place) for name in shipped())]
    assert unused == []


@pytest.mark.parametrize("info", sorted(PACKAGE.glob("samples/*/dataset.json")), ids=lambda path: path.parent.name)
def test_samples_say_how_they_were_generated(info: Path) -> None:
    content = json.loads(info.read_text())
    assert content["source"] == "sumo"
    assert isinstance(content["settings"]["seed"], int)


@pytest.mark.parametrize("model", sorted(PACKAGE.glob("models/*/")), ids=lambda path: path.name)
def test_models_say_what_they_were_trained_on(model: Path) -> None:
    card = (model / "MODEL_CARD.md").read_text()
    assert re.search(r"settings of the training data: `.*\"seed\": \d+", card)
    assert "Apache-2.0" in card.split("## Licence")[1]
