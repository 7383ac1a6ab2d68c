"""Guided planning judged: the answers to a case, the report, its pictures and the command."""

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch

from waycode.cli import main
from waycode.dataset.seeds import episode_of
from waycode.demo import bundled_dataset
from waycode.evaluation.guidance import (
    BEAM,
    DECODED,
    RECORDED,
    SUCCESS,
    TASKS,
    UNCERTAIN,
    Answer,
    AnsweredCase,
    answer_cases,
    answer_dataset,
    greedy,
    methods,
)
from waycode.evaluation.guidance_report import GuidanceReport, check_targets, guidance_report
from waycode.evaluation.pictures import chosen_examples, save_examples, save_guidance
from waycode.evaluation.realism import REALISM_MEASURES
from waycode.evaluation.report import EvaluationError, Provenance
from waycode.evaluation.selection import Case, Group, slow_down_cases
from waycode.model import Model, VarianceGate
from waycode.planner import Planner
from waycode.training.config import tiny

Output = pytest.CaptureFixture[str]
SAMPLE = bundled_dataset()
PROVENANCE = Provenance.of(SAMPLE, model="m")


@pytest.fixture(scope="module")
def answered() -> list[AnsweredCase]:
    """The slow-down cases of a few bundled scenes, answered by an untrained model."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    planner = Planner(Model(tiny().model).eval(), gate=VarianceGate(sigma_max_m=dict.fromkeys((1, 2, 3), 100.0)))
    scenes = [(number, scene) for number, scene in enumerate(SAMPLE) if slow_down_cases(scene)][:2]
    return answer_cases(planner, scenes, task=TASKS["slow-down"])


def test_every_case_is_answered_in_every_way(answered: list[AnsweredCase]) -> None:
    assert answered
    for one in answered:
        assert [answer.method for answer in one.answers] == methods(3)
        scene = SAMPLE[one.scene_number]
        assert scene.id == one.case.scene_id
        assert one.episode == episode_of(scene)
        recorded = one.answer(RECORDED)
        np.testing.assert_array_equal(recorded.future_m, scene.tracks.position_m[one.case.agent, 11:91])
        assert recorded.measures[SUCCESS] == recorded.measures[UNCERTAIN] == 0
        for answer in one.answers:
            assert answer.future_m.shape == (80, 2)
            assert {SUCCESS, "late_speed_mps", *REALISM_MEASURES, UNCERTAIN} <= answer.measures.keys()


def made_up(
    scene_number: int,
    group: Group,
    successes: tuple[int, ...],
    *,
    edge_contact: float = 0.0,
    centre_m: float = 0.5,
    all_way_stop: bool = False,
) -> AnsweredCase:
    """A case whose answers succeed or not, method by method. The scenes 0 and 1, 2 and 3, ... are of one episode."""
    answers = [
        Answer(
            method=method,
            future_m=np.zeros((80, 2), np.float32),
            measures={
                SUCCESS: float(success),
                "centre_distance_m": 0.6 if method == RECORDED else centre_m,
                **dict.fromkeys(REALISM_MEASURES, 0.0),
                "edge_contact": edge_contact,
                UNCERTAIN: 0.0,
            },
        )
        for method, success in zip(methods(3), successes, strict=True)
    ]
    return AnsweredCase(
        case=Case(scene_id=str(scene_number), agent=0, group=group, all_way_stop=all_way_stop),
        scene_number=scene_number,
        episode=f"world {scene_number // 2}",
        answers=tuple(answers),
    )


def report_on(cases: list[AnsweredCase], task: str) -> GuidanceReport:
    return guidance_report(
        cases, task=TASKS[task], provenance=PROVENANCE, num_scenes=24, num_episodes=10, num_tokens=3
    )  # fmt: skip


def depths(*by_depth: int) -> tuple[int, ...]:
    """Successes of greedy search with 1, 2 and 3 tokens; the other methods fail."""
    return (0, 0, 0, *by_depth, 0, 0)


def test_report_adds_up_by_hand() -> None:
    stop = {"all_way_stop": True}
    cases = [
        made_up(0, Group.AVAILABLE, depths(0, 1, 1), **stop),
        made_up(1, Group.AVAILABLE, depths(1, 1, 1), edge_contact=1.0, **stop),
        made_up(2, Group.AVAILABLE, depths(0, 0, 1)),
        made_up(2, Group.FROM_NO_LANE, depths(0, 0, 0), **stop),
        made_up(4, Group.FROM_NO_LANE, depths(0, 0, 0)),
        made_up(4, Group.FROM_ANOTHER_LANE, depths(1, 1, 1)),
    ]
    report = report_on(cases, "left-turn")
    absent, absent_at_stops = "no left turn available, all crossings", "no left turn available, all-way stops"
    no_lane, other_lane = ": left turn from no lane", ": left turn from another lane only"
    assert report.num_cases == {  # all crossings first, then all-way stops
        "left turn available, all crossings": 3,
        absent: 3,
        absent + no_lane: 2,
        absent + other_lane: 1,
        "left turn available, all-way stops": 2,
        absent_at_stops: 1,
        absent_at_stops + no_lane: 1,
        absent_at_stops + other_lane: 0,
    }
    assert list(report.num_cases) == [part.name for part in TASKS["left-turn"].parts]
    assert list(report.scenes_with_cases.values()) == [3, 2, 2, 1, 2, 1, 1, 0]
    assert list(report.episodes_with_cases.values()) == [2, 2, 2, 1, 1, 1, 1, 0]
    assert (report.num_scenes, report.num_episodes) == (24, 10)
    assert absent_at_stops + other_lane not in report.rows
    assert report.splits == [name for name in report.num_cases if ": " in name]
    rows = report.rows["left turn available, all crossings"]
    assert list(rows) == methods(3)
    assert [rows[greedy(depth)][SUCCESS].mean for depth in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1])
    assert rows[RECORDED][SUCCESS].mean == 0
    edge = rows[greedy(3)]["edge_contact"]
    assert (edge.low, edge.mean, edge.high) == pytest.approx((0, 1 / 3, 1 / 2))  # the first two are of one episode
    # A turn from another lane only is not available: one of three was taken.
    assert report.rows[absent][greedy(3)][SUCCESS].mean == pytest.approx(1 / 3)
    assert report.rows[absent + other_lane][greedy(3)][SUCCESS].mean == 1
    assert {target.claim: target.holds for target in report.targets} == {
        "left turn available, all crossings: success >= 90.0%": True,
        "left turn available, all crossings: edge_contact <= 1.0%": False,
        "left turn available, all crossings: infeasible <= 1.3%": True,
        "no left turn available, all crossings: success <= 5.0%": False,
        "left turn available, all-way stops: success >= 90.0%": True,
        "left turn available, all-way stops: edge_contact <= 1.0%": False,
        "left turn available, all-way stops: infeasible <= 1.3%": True,
        "no left turn available, all-way stops: success <= 5.0%": True,
        "left turn available, all crossings: success grows with depth": True,
        "left turn available, all-way stops: success grows with depth": True,
    }
    found = next(target.found for target in report.targets if "crossings: edge_contact" in target.claim)
    assert found == "33.3% (95 %: 0.0% to 50.0%)"


def test_the_report_says_where_its_figures_come_from() -> None:
    content = report_on([made_up(0, Group.STEADY, depths(0, 0, 1))], "slow-down").as_json()
    assert (content["model"], content["seed_role"], content["published"]) == ("m", "development", False)
    assert (content["num_scenes"], content["num_episodes"]) == (24, 10)


@pytest.mark.parametrize(
    ("by_depth", "holds"),
    [
        pytest.param((0, 1, 1), True, id="grows"),
        pytest.param((1, 1, 1), True, id="always"),
        pytest.param((1, 0, 1), False, id="falls in between"),
        pytest.param((0, 0, 0), False, id="never"),
    ],
)
def test_success_must_grow_with_depth(by_depth: tuple[int, int, int], holds: bool) -> None:
    cases = [made_up(0, Group.STEADY, depths(*by_depth))]
    report = report_on(cases, "slow-down")
    assert [target.holds for target in report.targets if "grows" in target.claim] == [holds]


@pytest.mark.parametrize(("centre_m", "holds"), [(0.5, True), (0.7, False)])
def test_centring_is_compared_with_the_ground_truth(centre_m: float, holds: bool) -> None:
    cases = [made_up(0, group, (0, 0, 0, 1, 1, 1, 1, 0), centre_m=centre_m) for group in (Group.ZERO, Group.ONE)]
    report = report_on(cases, "lane-change")
    assert [target.holds for target in report.targets if "centre" in target.claim] == [holds, holds]
    assert check_targets({}, num_tokens=3) == []


def test_scenes_without_cases_are_refused() -> None:
    with pytest.raises(EvaluationError, match=r"none of the 24 scenes of .* has a case for left-turn"):
        report_on([], "left-turn")


def test_examples_are_successes_and_failures_of_different_scenes() -> None:
    cases = [
        made_up(scene, Group.AVAILABLE, depths(0, 0, success))
        for scene, success in ((0, 1), (0, 1), (1, 1), (2, 1), (3, 0))
    ]
    chosen = chosen_examples(cases, greedy(3))
    assert [(one.scene_number, one.answer(greedy(3)).measures[SUCCESS]) for one in chosen] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 0),
    ]


def test_pictures(answered: list[AnsweredCase], tmp_path: Path) -> None:
    report = report_on(answered, "slow-down")
    save_guidance(report, tmp_path / "chart.png")
    save_examples(report, answered, tmp_path / "examples.png", scene_of=SAMPLE.__getitem__)
    for name in ("chart.png", "examples.png"):
        picture = matplotlib.image.imread(tmp_path / name)
        assert picture.shape[0] > 300
        assert picture.std() > 0.02  # not an empty sheet


def test_the_chart_of_left_turns_leaves_out_the_splits(tmp_path: Path) -> None:
    groups = (Group.AVAILABLE, Group.FROM_NO_LANE, Group.FROM_ANOTHER_LANE)
    cases = [made_up(scene, group, depths(0, 1, 1), all_way_stop=True) for scene, group in enumerate(groups)]
    report = report_on(cases, "left-turn")
    assert len(report.rows) == 8
    save_guidance(report, tmp_path / "chart.png")
    picture = matplotlib.image.imread(tmp_path / "chart.png")
    assert picture.shape[1] == pytest.approx(150 * (4.6 + 4 * 4.2), abs=2)


def test_the_command_prints_and_writes(tmp_path: Path, capsys: Output) -> None:
    scenes = "4"
    command = ["eval", "lane-change", "--model", "sumo-small", str(SAMPLE.folder), "--threads", "1"]
    assert main([*command, "--scenes", scenes, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in (Group.ZERO, Group.ONE, RECORDED, DECODED.split()[0], "centre", "lane-change-examples.png"):
        assert words in text
    written = json.loads((tmp_path / "lane-change.json").read_text())
    assert (written["num_scenes"], written["num_episodes"], written["seed_role"]) == (4, 4, "development")
    assert written["rows"][Group.ONE][RECORDED][SUCCESS]["mean"] == 1
    assert written["rows"][Group.ZERO][RECORDED][SUCCESS]["mean"] == 0
    assert (tmp_path / "lane-change.png").stat().st_size > 10_000


def test_the_number_of_processes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waycode.evaluation.guidance._SCENES_PER_PART", 1)
    one, two = (
        answer_dataset(TASKS["lane-change"], model="sumo-small", folder=SAMPLE.folder, scenes=4, workers=workers)
        for workers in (1, 2)
    )
    assert len({case.scene_number for case in one}) > 1
    assert [case.case for case in one] == [case.case for case in two]
    for first, second in zip(one, two, strict=True):
        for a, b in zip(first.answers, second.answers, strict=True):
            np.testing.assert_allclose(a.future_m, b.future_m, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param("{sample} --workers 0", "--workers is 0, expected at least 1", id="no workers"),
        pytest.param("{tmp}", "is not a dataset", id="no dataset"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: str, complaint: str, tmp_path: Path, capsys: Output) -> None:
    words = arguments.format(sample=SAMPLE.folder, tmp=tmp_path).split()
    assert main(["eval", "slow-down", "--model", "sumo-small", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_the_goal_table_has_refined_rows() -> None:
    """Refinement by the objective's own gradient: never farther from the goal than the beam's plan."""
    task = TASKS["goal"]
    scenes = [(number, scene) for number, scene in enumerate(SAMPLE) if task.select(scene)][:1]
    answered = answer_cases(Planner.from_pretrained("sumo-small"), scenes, task=task)
    assert answered
    for one in answered:
        assert [answer.method for answer in one.answers] == methods(3, (5, 40))
        found, five, forty = (one.answer(name).measures["final_error_m"] for name in (BEAM, "refined 5", "refined 40"))
        assert forty <= five + 1e-4 <= found + 2e-4
