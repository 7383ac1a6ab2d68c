"""What the README shows runs."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def test_planning_and_an_objective_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks[:2]:  # the others read files of the user's
        exec(block, names)  # noqa: S102
    assert names["plan"].costs.keys() == {"cost"}
    assert names["plan"].speed_mps.shape == (80,)
    own = next(block for block in blocks if "def stay_near_and_slow" in block)
    assert len(own.split("\n\n\n")[0].splitlines()) <= 5
