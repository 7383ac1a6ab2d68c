"""Many scenarios: the same in one process and in two, failures are named, scores add up, pictures move."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from driving_scenes import NOW, road_scene, sample_scenes
from waycode import Dataset
from waycode.dataset.dataset import DatasetError
from waycode.dataset.seeds import episodes_in
from waycode.evaluation import closed_loop
from waycode.evaluation.closed_loop import (
    ClosedLoopReport,
    ClosedLoopRow,
    closed_loop_row,
    drive_all,
    score_differences,
    worst,
    write_scores,
)
from waycode.evaluation.closed_loop_store import ResultStore, settings_digest
from waycode.evaluation.closed_loop_studies import (
    ABLATIONS,
    COMPARED_PLANNERS,
    build_study,
    comparison,
)
from waycode.evaluation.pictures import save_closed_loop
from waycode.evaluation.report import EvaluationError, Provenance
from waycode.scene import MapFeatures, Scene, TrackType
from waycode.simulation import scenarios
from waycode.simulation.campaign import (
    Campaign,
    ScenarioResult,
    drive_campaign,
    drive_scenario,
    failed_result,
    find_costliest_step,
)
from waycode.simulation.drivers import LatentConfig
from waycode.simulation.errors import SimulationError
from waycode.simulation.metrics import METRICS
from waycode.simulation.registry import DriverSpec, build_traffic
from waycode.simulation.scenarios import choose_scenarios, reason_unfit

SAMPLES = Path(str(files("waycode"))) / "samples" / "sumo"


def campaign_of(*indices: int, planner: str = "constant-velocity", horizon_s: float = 2.0) -> Campaign:
    spec = DriverSpec(name=planner)
    return Campaign(folder=SAMPLES, indices=indices, planner=spec, horizon_s=horizon_s)


def result(score: float, *, index: int = 0, failure: str | None = None) -> ScenarioResult:
    return ScenarioResult(
        index=index,
        scene_id=f"scene{index}",
        episode=f"world{index // 2}",
        tags=("made-up",),
        score=score,
        metrics={metric.name: score for metric in METRICS},
        reasons=("1.0 s: something",),
        failure=failure,
        frozen_s=0.0,
        planning_s=np.array([0.01, 0.02, 0.03]),
    )


def test_two_processes_find_what_one_finds() -> None:
    alone, together = (
        sorted(drive_campaign(campaign_of(0, 1, 2), workers=workers), key=lambda one: one.index) for workers in (1, 2)
    )
    assert [one.index for one in alone] == [0, 1, 2]
    assert [(one.scene_id, one.score, one.metrics) for one in alone] == [
        (one.scene_id, one.score, one.metrics) for one in together
    ]


def test_a_scene_that_cannot_be_driven_is_named_and_the_others_are_driven() -> None:
    good, bad = drive_campaign(campaign_of(0)), drive_campaign(replace(campaign_of(0), horizon_s=0.0))
    assert next(good).failure is None
    (failed,) = bad
    assert failed.score == 0
    assert failed.failure == "ValueError: the horizon is 0.0 s, expected more than 0"
    assert set(failed.metrics.values()) == {0.0}


def test_a_run_is_shown_where_it_lost_most() -> None:
    hit = replace(campaign_of(0), horizon_s=3.0)
    scene = road_scene(others=((15.0, 0.0, 0.0),))
    driven, step, what = find_costliest_step(scene, drive_scenario(scene, hit))
    assert what.startswith("stopped track collision with a vehicle")
    assert 10 <= step - NOW <= 12  # 10.5 m between the bumpers, at 10 m/s
    assert driven.current_step == NOW


def test_a_row_adds_up_by_hand() -> None:
    results = [result(1.0), result(0.5, index=1), result(0.0, index=2, failure="why")]
    row = closed_loop_row(results, planner="p", traffic="replay")
    assert row.cls.mean == pytest.approx(50.0)
    assert (row.cls.low, row.cls.high) == (0, 75)  # the first two are of one episode
    assert (row.num_scenarios, row.num_episodes) == (3, 2)
    assert row.metrics["progress"].mean == pytest.approx(50.0)
    assert row.failed == {"scene2": "why"}
    assert row.planning_ms_median == pytest.approx(20.0)


def test_planners_are_compared_scenario_by_scenario() -> None:
    hard, easy = [result(0.2), result(1.0, index=1)], [result(0.1), result(0.9, index=1)]
    driven = [
        (closed_loop_row(hard, planner="latent", traffic="replay"), hard),
        (closed_loop_row(easy, planner="pdm-closed", traffic="replay"), easy),
        (closed_loop_row(hard, planner="latent", traffic="idm"), hard),
    ]
    (found,) = score_differences(driven, reference="pdm-closed")  # there is no reference in the other traffic
    assert (found.planner, found.reference, found.traffic) == ("latent", "pdm-closed", "replay")
    # Each is better by ten points: that one scenario is harder than the other does not make it uncertain.
    np.testing.assert_allclose([found.points.mean, found.points.low, found.points.high], 10.0)


def test_pairs_of_one_episode_are_resampled_together() -> None:
    own, other = [result(0.5, index=index) for index in range(4)], [result(0.5), *map(ahead, (1, 2, 3))]
    driven = [
        (closed_loop_row(results, planner=planner, traffic="replay"), results)
        for planner, results in (("latent", own), ("pdm-closed", other))
    ]
    (found,) = score_differences(driven, reference="pdm-closed")
    # The differences are 0 and -10 points in one episode, twice -10 in the other.
    np.testing.assert_allclose([found.points.mean, found.points.low, found.points.high], [-7.5, -10, -5])


def ahead(index: int) -> ScenarioResult:
    return result(0.6, index=index)


def test_no_scenarios_have_no_row() -> None:
    with pytest.raises(EvaluationError, match="has driven no scenarios"):
        closed_loop_row([], planner="p", traffic="replay")


def test_the_worst_come_first() -> None:
    found = worst([result(0.5), result(0.1, index=1), result(0.1, index=2), result(0.9, index=3)], 2)
    assert [one.index for one in found] == [1, 2]


def test_a_scene_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (failed,) = drive_campaign(replace(campaign_of(7), folder=tmp_path))
    assert failed.scene_id == "scene 7"
    assert failed.failure is not None
    assert failed.failure.startswith("DatasetError")


def test_scores_are_written_per_scenario(tmp_path: Path) -> None:
    results = [result(0.5), result(0.0, index=1, failure="why")]
    row = closed_loop_row(results, planner="p", traffic="idm")
    write_scores([(row, results)], tmp_path / "a" / "scores.parquet")
    rows = pq.read_table(tmp_path / "a" / "scores.parquet").to_pylist()
    assert [row["failure"] for row in rows] == [None, "why"]
    assert (rows[0]["planner"], rows[0]["traffic"], rows[0]["progress"]) == ("p", "idm", 0.5)
    assert rows[0]["reasons"] == ["1.0 s: something"]


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, campaign, asked = tmp_path / "a" / "scores.parquet", campaign_of(0, 1, 2), []

    def drive_and_stop(rest: Campaign, *, workers: int) -> Iterator[ScenarioResult]:
        asked.append(rest.indices)
        for count, one in enumerate(drive_campaign(rest, workers=workers)):
            if len(asked) == 1 and count == 2:
                raise KeyboardInterrupt
            yield one

    monkeypatch.setattr(closed_loop, "drive_campaign", drive_and_stop)
    with pytest.raises(KeyboardInterrupt):
        drive_all({"a/b NR": campaign}, scores=path)
    assert len(list((tmp_path / "a" / "scores.unfinished").glob("*/scene-*.parquet"))) == 2
    counted: list[int] = []
    ((_, results),) = drive_all({"a/b NR": campaign}, scores=path, on_scenarios=counted.append)
    assert asked == [(0, 1, 2), (2,)]
    assert counted == [2, 1]
    ((_, at_once),) = drive_all({"a/b NR": campaign})
    for one, other in zip(results, at_once, strict=True):
        assert replace(one, planning_s=other.planning_s) == replace(other, planning_s=other.planning_s)
    assert pq.read_table(path)["index"].to_pylist() == [0, 1, 2]
    assert [file.name for file in path.parent.iterdir()] == ["scores.parquet"]


def test_two_runs_do_not_write_to_the_same_place(tmp_path: Path) -> None:
    with (
        ResultStore(tmp_path / "scores.unfinished").until_complete(),
        pytest.raises(DatasetError, match="by another run"),
    ):
        drive_all({"a NR": campaign_of(0)}, scores=tmp_path / "scores.parquet")


def test_parts_of_other_settings_are_refused(tmp_path: Path) -> None:
    store, campaign = ResultStore(tmp_path), campaign_of(0)
    store.save("a", result(0.5), digest=settings_digest(replace(campaign, horizon_s=3.0)))
    with pytest.raises(EvaluationError, match="was driven with other settings, another model or another dataset"):
        store.load("a", campaign, digest=settings_digest(campaign))
    assert store.load("b", campaign, digest=settings_digest(campaign)) == []


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    store, campaign = ResultStore(tmp_path), campaign_of(0)
    store.save("a", result(0.5), digest="s")
    (path,) = tmp_path.rglob("*.parquet")
    path.write_bytes(b"half a file")
    with pytest.raises(EvaluationError, match=r"scene-000000.parquet cannot be read"):
        store.load("a", campaign, digest="s")


def test_settings_are_of_planner_and_traffic_and_not_of_scenes() -> None:
    one = campaign_of(0, planner="latent")
    assert settings_digest(one) == settings_digest(replace(one, indices=(1, 2)))
    assert settings_digest(one) != settings_digest(replace(one, traffic="idm"))
    shallow = LatentConfig(depth=1)
    assert settings_digest(one) != settings_digest(replace(one, planner=replace(one.planner, latent=shallow)))
    rules = campaign_of(0, planner="idm")  # has no model, and no settings of one
    assert settings_digest(rules) == settings_digest(replace(rules, planner=replace(rules.planner, latent=shallow)))


def report_of(rows: list[ClosedLoopRow]) -> ClosedLoopReport:
    return ClosedLoopReport(
        provenance=Provenance.of(Dataset(SAMPLES), model="m"), name="closed-loop", num_scenes=2, num_episodes=1,
        left_out={}, rows=rows, differences=[],
    )  # fmt: skip


def test_the_report_is_drawn(tmp_path: Path) -> None:
    rows = [
        closed_loop_row([result(score), result(1.0, index=1)], planner=planner, traffic=traffic)
        for traffic in ("replay", "idm")
        for planner, score in (("latent", 0.5), ("pdm-closed", 0.9))
    ]
    report = report_of(rows)
    save_closed_loop(report, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > picture.height > 300


def test_a_report_is_written_as_json(tmp_path: Path) -> None:
    (driven,) = drive_all({"constant-velocity NR": campaign_of(0)})
    content = json.loads(report_of([driven[0]]).write(tmp_path).read_text())
    assert content["rows"][0]["planner"] == "constant-velocity"
    assert (content["rows"][0]["num_scenarios"], content["rows"][0]["num_episodes"]) == (1, 1)
    assert (content["data_seed"], content["seed_role"], content["published"]) == (7, "development", False)


def test_every_planner_meets_both_kinds_of_traffic() -> None:
    campaigns = comparison(SAMPLES, (0,), model="sumo-small")
    assert {(one.planner.name, one.traffic) for one in campaigns.values()} == {
        (planner, traffic) for planner in COMPARED_PLANNERS for traffic in ("replay", "idm")
    }


def test_ablations_differ_in_their_settings() -> None:
    campaigns = build_study("closed-loop-ablation", SAMPLES, indices=(0,), model="sumo-small").campaigns
    assert list(campaigns) == list(ABLATIONS)
    assert len({one.planner.latent for one in campaigns.values()}) == len(ABLATIONS)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SimulationError, match="there is no planner 'magic'; available: latent"):
        DriverSpec(name="magic")


def test_replay_is_built_for_its_scene() -> None:
    scene = sample_scenes(1)[0]
    assert DriverSpec(name="replay").build(scene).log.id == scene.id  # type: ignore[attr-defined]
    assert build_traffic("idm") == build_traffic("idm")


def test_scenes_are_spread_evenly() -> None:
    dataset = Dataset(SAMPLES)
    assert len(dataset) == 24
    assert choose_scenarios(dataset, 4).indices == (0, 6, 12, 18)
    assert choose_scenarios(dataset).indices == tuple(range(24))
    worlds = episodes_in(dataset)
    one_each = choose_scenarios(dataset, one_per_world=True).indices
    assert sorted(worlds[index] for index in one_each) == sorted(set(worlds))
    assert len(choose_scenarios(dataset, 3, one_per_world=True, only_fit=True).indices) == 3


@pytest.mark.parametrize("count", [20, 40, 80])
def test_worlds_that_come_in_turns_are_chosen_in_equal_numbers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """160 worlds of ten families in turn, with two scenes each, as SUMO's generator writes them."""
    monkeypatch.setattr(scenarios, "episodes_in", lambda dataset: [f"world {index // 2}" for index in range(320)])
    chosen = choose_scenarios(Dataset(SAMPLES), count, one_per_world=True).indices
    worlds = np.array(chosen) // 2
    assert len(set(worlds.tolist())) == count
    of_family = np.bincount(worlds % 10, minlength=10)
    assert of_family.max() - of_family.min() <= 2
    assert np.diff(worlds).max() <= 2 * 160 // count


def changed(scene: Scene, **values: Any) -> Scene:
    return replace(scene, tracks=replace(scene.tracks, **values))


@pytest.mark.parametrize(
    ("scene", "reason"),
    [
        pytest.param(road_scene(speed_mps=12.0), None, id="at the limit of 12 m/s"),
        pytest.param(road_scene(speed_mps=13.0), "the recorded ego speeds", id="8 % over it"),
        pytest.param(replace(road_scene(speed_mps=13.0), map=MapFeatures(), route=None), None, id="no limit is known"),
        pytest.param(changed(road_scene(), length_m=np.array([12.0], np.float32)), "the ego is no car", id="a bus"),
        pytest.param(
            changed(road_scene(), types=np.array([TrackType.PEDESTRIAN], np.int8)), "the ego is no car", id="a walker"
        ),
    ],
)
def test_scenes_fit_for_judging(scene: Scene, reason: str | None) -> None:
    assert reason_unfit(scene) == reason


def test_what_could_not_be_driven_has_every_metric() -> None:
    failed = failed_result(road_scene(), 3, "why")
    assert set(failed.metrics) == {metric.name for metric in METRICS}
    assert failed.index == 3
