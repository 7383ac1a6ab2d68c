"""The demo: its counts are those of the tables, and its page is complete."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from scenes import small_scene
from waycode.cli import main
from waycode.dataset.dataset import Dataset, DatasetError, ShardContents, write_dataset
from waycode.demo import NUM_PICTURES, DemoReport, bundled_dataset, page_of, run_demo
from waycode.demo.sections import SECTIONS, Section
from waycode.evaluation.guidance import SUCCESS, TASKS, answer_cases, greedy
from waycode.evaluation.selection import Group, left_turn_cases
from waycode.planner import Planner
from waycode.scene import Scene

Output = pytest.CaptureFixture[str]
SAMPLES = [bundled_dataset(), bundled_dataset("sumo-crossings")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> DemoReport:
    return run_demo(SAMPLES, tmp_path_factory.mktemp("demo"))


def make_shard(task: list[Scene]) -> ShardContents:
    return ShardContents(scenes=task)


def test_the_demo_has_cases_for_every_section(report: DemoReport) -> None:
    assert [section.name for section in report.sections] == [section.name for section in SECTIONS]
    assert report.missing == ()
    for section in report.sections:
        assert len(section.tokens) == 3
        assert section.status in {"found", "uncertain"}
        assert section.success == (section.num_success > 0)  # the picture shows a success if there is one
        assert section.num_success <= section.num_cases


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_cases_are_those_of_the_tables(report: DemoReport, section: Section) -> None:
    found = next(one for one in report.sections if one.name == section.name)
    groups = [case.group for data in SAMPLES for scene in data for case in TASKS[section.task].select(scene)]
    assert {name: count for name, (_, count) in found.counts.items()} == {
        name: groups.count(Group(name)) for name in found.counts
    }
    assert found.num_cases == sum(found.counts[group][1] for group in section.groups)


def test_successes_are_those_of_the_table(report: DemoReport) -> None:
    """The left-turn table's row of greedy search with three tokens, for the cases in which a turn is available."""
    task = replace(
        TASKS["left-turn"],
        select=lambda scene: [case for case in left_turn_cases(scene) if case.group is Group.AVAILABLE],
    )
    scenes = [scene for data in SAMPLES for scene in data]
    answered = answer_cases(Planner.from_pretrained("sumo-small"), enumerate(scenes), task=task)
    section = next(one for one in report.sections if one.name == "left_turn")
    assert section.counted_as == "waycode eval left-turn"
    assert section.num_cases == len(answered) == 7
    assert section.num_success == sum(one.answer(greedy(3)).measures[SUCCESS] for one in answered)


def test_the_page_is_complete_by_itself(report: DemoReport) -> None:
    page, folder = Path(report.page).read_text(), Path(report.page).parent
    pictures = re.findall(r'src="([^"]+)"', page)
    assert len(pictures) == NUM_PICTURES
    for picture in pictures:
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert "http" not in page  # nothing comes from the network
    for section in report.sections:
        assert section.found in page
        assert section.criterion in page
        assert f'id="{section.name}"' in page


def test_the_page_shows_all_families(report: DemoReport) -> None:
    from waycode.sources.sumo import Family

    assert set(report.families) == {str(family) for family in Family}


def test_the_page_says_what_failed(report: DemoReport) -> None:
    failed = replace(report.sections[0], success=False, num_success=0, status="uncertain")
    page = page_of(replace(report, sections=(failed,), missing=("Fly",)))
    assert ">failure<" in page
    assert "0 of" in page
    assert "uncertain" in page
    assert "These scenes have no case for “Fly”" in page


def test_the_page_escapes_names(report: DemoReport) -> None:
    evil = "<script>"
    hostile = replace(report.sections[0], title=evil, scene_id=evil, agent_id=evil, objective=evil, found=evil)
    assert "<script>" not in page_of(replace(report, sections=(hostile,), model="<script>", families=("<script>",)))


def test_a_command_of_the_page_finds_the_same_plan(report: DemoReport, capsys: Output) -> None:
    section = next(section for section in report.sections if section.name == "left_turn")
    arguments = ["--index", str(section.scene_index), "--agent", section.agent_id, "--objective", section.objective]
    assert main(["plan", section.data, *arguments, "--json"]) == 0
    assert tuple(json.loads(capsys.readouterr().out)["tokens"]) == section.tokens


def test_the_demo_replaces_nothing_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "gallery.png").write_text("mine")
    with pytest.raises(DatasetError, match="has files that the demo did not make"):
        run_demo([], tmp_path)
    assert (tmp_path / "gallery.png").read_text() == "mine"


def test_scenes_without_cases_still_give_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_dataset(folder, [[small_scene()]], make=make_shard, source="made-up", settings={})
    report = run_demo([Dataset(folder)], tmp_path / "demo")
    assert report.sections == ()
    assert len(report.missing) == len(SECTIONS)
    assert report.families == ("test",)
    assert (tmp_path / "demo" / "gallery.png").is_file()
    run_demo([Dataset(folder)], tmp_path / "demo")  # its own folder it writes again
