"""Every Python block and every command line of README and docs runs, and the plans that they show do what is asked."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nuplan_files
import waycode as wc
from documentation import (
    BLOCKS_NOT_RUN,
    CASES,
    COMMANDS_NOT_RUN,
    PAGES,
    Block,
    blocks,
    reason_not_to_run,
    small_arguments,
    substituted,
)
from waycode import Plan, PlanStatus, View
from waycode.cli import main
from waycode.simulation.rollout import SimulationConfig

READER_DATA = re.compile(r"(?<![\w/-])(?:data/[\w-]+|my-scenes|scene\.parquet|RAW|womd-raw/\w+|nuplan/data)(?![\w-])")


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few scenes as a dataset (small/val), and in the raw formats of others."""
    folder = tmp_path_factory.mktemp("raw")
    assert main(["data", "split", "sample", "--share", "0.3", "--out", str(folder / "small")]) == 0
    for kind in ("womd", "gpudrive"):
        assert (
            main(
                ["data", "export", "sample", "--to", kind, "--index", *map(str, range(12)), "--out", str(folder / kind)]
            )
            == 0
        )
    nuplan_files.write_map(folder / "nuplan" / "maps")
    (folder / "nuplan" / "data").mkdir()
    for name in "abcdefgh":
        nuplan_files.write_log(folder / "nuplan" / "data" / f"{name}.db")
    return folder


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Every plan that a block or a command asks for."""
    plans: list[Plan] = []
    search = View.plan

    def plan_and_remember(*values: Any, **options: Any) -> Plan:
        plan = search(*values, **options)
        caller = sys._getframe(1).f_code
        if caller.co_name == "<module>" or "cli" in caller.co_filename:  # not the plans of a driver at every step
            plans.append(plan)
        return plan

    monkeypatch.setattr(View, "plan", plan_and_remember)
    return plans


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def provide(page_blocks: list[Block], raw: Path) -> None:
    """Puts small data where the reader's own would be: what a page reads and does not itself make."""
    text = substituted("\n".join(block.text for block in page_blocks))
    made = set(re.findall(r"--out (\S+)", text))
    for name in sorted(set(READER_DATA.findall(text)) - made):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "scene.parquet":
            wc.save_scene(wc.load_scene("sample", 9), path)
        elif name in ("RAW", "womd-raw/training", "womd-raw/validation"):
            kind = "gpudrive" if f"{name} --from gpudrive" in text else "womd"
            shutil.copytree(raw / kind, path)
        elif name == "nuplan/data":
            shutil.copytree(raw / "nuplan", "nuplan", dirs_exist_ok=True)
        elif not any(one.startswith(f"{name}/") or one == name for one in made):
            shutil.copytree(raw / "small" / "val", path)


def presets(page: str) -> dict[str, Any]:
    """Names that a page speaks of without making them."""
    if page != "docs/objectives.md":
        return {"SimulationConfig": SimulationConfig}  # of a substitute
    view = wc.Planner.from_pretrained("sumo-small").encode(wc.load_scene("sample-crossings", 2))
    first = view.model.codebook(2).values[:, None]
    return {"candidates": view.decode_many(first)}


def run_command(command: str, *, page: str) -> None:
    arguments = small_arguments(command)
    if "SCENE_ID:AGENT" in arguments:
        scene = wc.load_scene("sample", 0)
        arguments[arguments.index("SCENE_ID:AGENT")] = f"{scene.id}:{scene.tracks.ids[scene.tracks.to_predict[0]]}"
    if arguments[0] == "eval" and arguments[1] in CASES:
        wc.save_scene(wc.load_scene(*CASES[arguments[1]]), "case.parquet")
        arguments[2] = "case.parquet"
    assert main(arguments) == 0, f"{page}: {command}"


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, folder: Path, raw: Path, shown: list[Plan]) -> None:
    page_blocks = [block for block in blocks(page) if block.reason is None]
    provide(page_blocks, raw)
    names = presets(page)
    for block in page_blocks:
        before = len(shown)
        if block.language == "python":
            exec(compile(substituted(block.text), page, "exec"), names)  # noqa: S102 (our own pages)
            failed = shown[before:]
        else:
            failed = []
            for command in block.commands:
                if reason_not_to_run(command) is None:
                    before = len(shown)
                    run_command(command, page=page)
                    failed += shown[before:] if " sample" in command else []  # on data of the reader's, who knows
        failed = [plan for plan in failed if plan.satisfied is False and plan.status != PlanStatus.DEADLINE]
        assert not failed, f"{page}: {failed}\n{block.text}"


def test_what_is_not_run_is_on_a_page() -> None:
    everything = [block for page in PAGES for block in blocks(page)]
    commands = [command for block in everything if block.language == "sh" for command in block.commands]
    for start in COMMANDS_NOT_RUN:
        assert any(command.startswith(start) for command in commands), f"{start!r} is on no page any more"
    for page, start in BLOCKS_NOT_RUN:
        assert any(block.page == page and block.text.startswith(start) for block in everything), (page, start)


def test_the_objective_of_the_readme_is_short() -> None:
    own = next(block.text for block in blocks("README.md") if "def stay_near_and_slow" in block.text)
    assert len(own.split("\n\n\n")[0].splitlines()) <= 5
