"""The demo: who plays which part, how a plan is judged, and the page; told once on the bundled scenes."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenes import small_scene
from waycode.cli import main
from waycode.dataset.dataset import Dataset, ShardContents, write_dataset
from waycode.demo import DemoReport, bundled_dataset, page_of, run_demo
from waycode.demo.casting import (
    Actor,
    actors,
    can_turn_left,
    could_change_left,
    could_turn_left,
    kept_speed,
    turned_left,
)
from waycode.demo.stories import STORIES, SWAP
from waycode.demo.verdicts import (
    does_change_left,
    does_turn_left,
    follows_route,
    keeps_lane,
    net_turn_deg,
    reached_goal,
    slows_down,
    with_plan,
)
from waycode.planner import Plan, PlanStatus
from waycode.scene import Scene
from waycode.scene.manoeuvre import Manoeuvre

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def cast() -> list[Actor]:
    return actors(bundled_dataset())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> DemoReport:
    return run_demo(bundled_dataset(), tmp_path_factory.mktemp("demo"))


def recorded(actor: Actor, *, position_m: np.ndarray | None = None) -> Plan:
    """A plan of an actor's recorded way, or of other positions in the scene frame."""
    position_m = actor.recorded_m if position_m is None else position_m
    start = actor.scene.tracks.position_m[actor.agent, [actor.scene.current_step]]
    step = np.diff(np.concatenate([start, position_m]), axis=0)
    world = position_m + np.asarray(actor.scene.origin_m)
    return Plan(
        scene_id=actor.scene.id,
        agent_id=actor.agent_id,
        time_s=0.1 * np.arange(1, len(step) + 1),
        x_m=world[:, 0].copy(),
        y_m=world[:, 1].copy(),
        heading_rad=np.arctan2(step[:, 1], step[:, 0]),
        speed_mps=np.linalg.norm(step, axis=1) / 0.1,
        std_m=np.ones((len(step), 2)),
        tokens=(0,),
        latents=np.zeros((1, 3)),
        costs={},
        levels=(),
        status=PlanStatus.FOUND,
        message="",
        depth=1,
        num_decodes=0,
        timings_s={},
    )


def make_shard(task: list[Scene]) -> ShardContents:
    return ShardContents(scenes=task)


def of(cast: list[Actor], part: Callable[[Actor], bool]) -> list[Actor]:
    return [actor for actor in cast if part(actor)]


@pytest.mark.parametrize("story", [*STORIES, SWAP], ids=lambda story: story.name)
def test_every_story_fits_somebody(cast: list[Actor], story: object) -> None:
    assert any(story.cast(actor) for actor in cast)  # type: ignore[attr-defined]


def test_who_could_turn_left_did_not(cast: list[Actor]) -> None:
    assert {actor.manoeuvre for actor in of(cast, turned_left)} == {Manoeuvre.LEFT_TURN}
    assert Manoeuvre.LEFT_TURN not in {actor.manoeuvre for actor in of(cast, could_turn_left)}
    assert len(of(cast, can_turn_left)) == len(of(cast, could_turn_left)) + len(of(cast, turned_left))
    # On these roads nobody may turn left, or there is nowhere to turn.
    forbidden = ("t_junction_no_left", "on_ramp", "curved_road", "roundabout")
    assert not {actor.scene.tags[0] for actor in of(cast, can_turn_left)} & set(forbidden)


def test_a_recorded_left_turn_is_judged_as_one(cast: list[Actor]) -> None:
    complete = [actor for actor in of(cast, turned_left) if net_turn_deg(actor, recorded(actor)) > 60]
    assert complete
    assert any(does_turn_left(actor, recorded(actor)).did for actor in complete)


def test_going_straight_is_no_left_turn(cast: list[Actor]) -> None:
    verdicts = [does_turn_left(actor, recorded(actor)) for actor in of(cast, could_turn_left)]
    assert verdicts
    assert not any(verdict.did for verdict in verdicts)


def test_recorded_lane_changes_are_judged_as_such(cast: list[Actor]) -> None:
    for manoeuvre, does, keeps in (
        (Manoeuvre.LANE_CHANGE_LEFT, True, False),
        (Manoeuvre.LANE_CHANGE_RIGHT, False, False),
        (Manoeuvre.STRAIGHT, False, True),
    ):
        actor = next(actor for actor in cast if actor.manoeuvre == manoeuvre and actor.lane is not None)
        assert does_change_left(actor, recorded(actor)).did == does
        assert keeps_lane(actor, recorded(actor)).did == keeps


def test_who_kept_its_speed_did_not_slow_down(cast: list[Actor]) -> None:
    actor = of(cast, kept_speed)[0]
    assert not slows_down(actor, recorded(actor)).did
    crawling = np.repeat(actor.recorded_m[:1], 80, axis=0) + np.linspace(0, 8, 80)[:, None] * [1.0, 0.0]
    verdict = slows_down(actor, recorded(actor, position_m=crawling))
    assert verdict.did
    assert "at most 1.0 m/s" in verdict.measured


@pytest.mark.parametrize(("off_m", "did"), [(1.9, True), (2.1, False)])
def test_a_goal_is_reached_within_two_metres(cast: list[Actor], off_m: float, did: bool) -> None:
    actor = cast[0]
    moved = actor.recorded_m + np.array([off_m, 0.0])
    verdict = reached_goal(actor, recorded(actor, position_m=moved))
    assert (verdict.did, verdict.measured) == (did, f"ends {off_m:.1f} m from the goal")


def test_the_recorded_ego_follows_its_route_and_who_leaves_it_does_not(cast: list[Actor]) -> None:
    actor = next(actor for actor in cast if STORIES[-1].cast(actor))
    assert follows_route(actor, recorded(actor)).did
    aside = actor.recorded_m + np.linspace(0, 30, 80)[:, None] * [1.0, 1.0]
    assert not follows_route(actor, recorded(actor, position_m=aside)).did
    halfway = actor.recorded_m[np.arange(80) // 3]
    assert not follows_route(actor, recorded(actor, position_m=halfway)).did


def test_crawling_has_no_direction(cast: list[Actor]) -> None:
    actor = of(cast, could_turn_left)[0]
    angles = np.linspace(0, 6 * np.pi, 80)
    here = actor.scene.tracks.position_m[actor.agent, actor.scene.current_step]
    circling = here + 0.3 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    assert net_turn_deg(actor, recorded(actor, position_m=circling)) == 0.0


def test_a_plan_takes_the_place_of_the_recording(cast: list[Actor]) -> None:
    actor = of(cast, could_change_left)[0]
    plan = recorded(actor, position_m=actor.recorded_m + 5.0)
    scene = with_plan(actor.scene, actor.agent, plan)
    now = actor.scene.current_step
    np.testing.assert_allclose(
        scene.tracks.position_m[actor.agent, now + 1 : now + 81], actor.recorded_m + 5, atol=1e-3
    )
    np.testing.assert_array_equal(scene.tracks.x_m[:, : now + 1], actor.scene.tracks.x_m[:, : now + 1])
    others = np.arange(len(scene.tracks)) != actor.agent
    np.testing.assert_array_equal(scene.tracks.x_m[others], actor.scene.tracks.x_m[others])


def test_the_demo_tells_every_story(report: DemoReport) -> None:
    assert [story.name for story in report.stories] == [story.name for story in (*STORIES, SWAP)]
    assert report.missing == ()
    for story in report.stories:
        assert len(story.tokens) == 3
        assert story.status in {"found", "uncertain"}
        assert story.did == (story.did_it > 0)  # the best is shown: it fails only where all do
        assert story.did_it <= story.num_actors


def test_the_page_is_complete_by_itself(report: DemoReport) -> None:
    page, folder = Path(report.page).read_text(), Path(report.page).parent
    pictures = re.findall(r'src="([^"]+)"', page)
    assert len(pictures) == len(STORIES) + 2
    for picture in pictures:
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert "http" not in page  # nothing comes from the network
    for story in report.stories:
        assert story.found in page
        assert story.criterion in page
        assert f'id="{story.name}"' in page


def test_the_page_shows_all_families(report: DemoReport) -> None:
    from waycode.sources.sumo import Family

    assert set(report.families) == {str(family) for family in Family}


def test_the_page_says_what_failed(report: DemoReport) -> None:
    failed = replace(report.stories[0], did=False, did_it=0, status="uncertain")
    page = page_of(replace(report, stories=(failed,), missing=("Fly",)))
    assert "did not do it" in page
    assert "0 of" in page
    assert "uncertain" in page
    assert "No car of these scenes fits “Fly”" in page


def test_the_page_escapes_names(report: DemoReport) -> None:
    evil = "<script>"
    hostile = replace(report.stories[0], title=evil, scene_id=evil, agent_id=evil, objective=evil, found=evil)
    assert "<script>" not in page_of(replace(report, stories=(hostile,), model="<script>", families=("<script>",)))


def test_a_command_of_the_page_finds_the_same_plan(report: DemoReport, capsys: Output) -> None:
    story = next(story for story in report.stories if story.name == "left_turn")
    arguments = ["--index", str(story.scene_index), "--agent", story.agent_id, "--objective", story.objective]
    assert main(["plan", "sample", *arguments, "--json"]) == 0
    assert tuple(json.loads(capsys.readouterr().out)["tokens"]) == story.tokens


def test_scenes_that_fit_no_story_still_give_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write_dataset(folder, [[small_scene()]], make=make_shard, source="made-up", settings={})
    report = run_demo(Dataset(folder), tmp_path / "demo")
    assert report.stories == ()
    assert len(report.missing) == len(STORIES) + 1
    assert report.families == ("test",)
    assert (tmp_path / "demo" / "gallery.png").is_file()
