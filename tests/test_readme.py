"""The code in the README and in the documentation of planning and simulation runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from waycode import Plan, View

ROOT = Path(__file__).parent.parent


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def test_planning_and_an_objective_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    blocks = python_blocks("README.md")
    names: dict[str, Any] = {}
    shown: list[Plan] = []
    search = View.plan

    def plan_and_remember(*values: Any, **options: Any) -> Plan:
        shown.append(search(*values, **options))
        return shown[-1]

    monkeypatch.setattr(View, "plan", plan_and_remember)
    for block in blocks[:2]:  # the others read files of the user's
        exec(block, names)  # noqa: S102
    assert [one.satisfied for one in shown] == [True, True, True, None]  # an objective of one's own has no notion of it
    assert names["plan"].costs.keys() == {"cost"}
    assert names["plan"].speed_mps.shape == (80,)
    own = next(block for block in blocks if "def stay_near_and_slow" in block)
    assert len(own.split("\n\n\n")[0].splitlines()) <= 5


@pytest.mark.parametrize("page", ["docs/planning.md", "docs/simulation.md"])
def test_the_pages_on_planning_and_simulation(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for block in python_blocks(page):
        exec(block, names)  # noqa: S102
    if page == "docs/planning.md":
        assert len(names["plans"]) == 8
    else:
        assert names["rollout"].traceback is None
        assert 0 <= names["scored"].score <= 1
