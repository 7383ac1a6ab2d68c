"""The lock file has every package that the project asks for, and a hash for each."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"([a-z0-9.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def test_every_dependency_is_locked_with_a_hash() -> None:
    lines = [line for line in (ROOT / "requirements-dev.lock").read_text().splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), "expected NAME==VERSION --hash=sha256:... in every line"
    locked = {match[1] for match in found if match}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    names = {re.split(r"[^A-Za-z0-9_.-]", one)[0].lower().replace("_", "-") for one in asked} - {"waycode"}
    assert names <= locked, "run `make lock`"
