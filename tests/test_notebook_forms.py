"""Python as it is written in notebooks: short representations, pictures, equality, errors of our own."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import waycode as wc
from tiny_model import sample_scenes
from waycode.objectives import ObjectiveError, SlowDown, SpeedProfile
from waycode.planner import Plan, PlannerError, View

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def view() -> View:
    return wc.Planner.from_pretrained("sumo-small").encode(wc.load_scene("sample", 3))


def test_bundled_scenes_are_loaded_by_name_from_any_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert wc.load_scene("sample", 3) == sample_scenes()[1]  # every third
    assert len(wc.Dataset("sample")[::3]) == len(sample_scenes())
    assert len(wc.Dataset("sample-crossings")) > 0


def test_representations_are_short(view: View) -> None:
    plan = view.plan("terminal-variance")
    planner = wc.Planner(view.model)
    for value in (view.scene, wc.Dataset("sample"), planner, view, plan):
        assert len(repr(value).splitlines()) <= 5
        assert len(repr(value)) < 600
    assert view.scene.id in repr(view.scene)
    assert view.setting.agent_id in repr(view)
    assert plan.summary in repr(plan)
    assert "not calibrated" in repr(planner)


def test_scenes_and_plans_draw_themselves(view: View) -> None:
    plan = view.plan("terminal-variance")
    assert view.scene._repr_png_().startswith(PNG)
    assert (plan._repr_png_() or b"").startswith(PNG)
    for figure in (view.scene.plot(), plan.plot(), view.plot(plan)):
        assert figure._repr_png_().startswith(PNG)  # notebooks show it although nobody has imported pyplot
    assert len(view.plot(plan).axes) == 4  # three tokens and the plan
    assert len(view.plot(view.decode([1])).axes) == len(plan.plot().axes) == 1
    stored = Plan.from_json(plan.to_json())
    assert stored._repr_png_() is None
    with pytest.raises(PlannerError, match=r"does not know its scene: expected plot\(scene\)"):
        stored.plot()
    assert len(stored.plot(view.scene).axes) == 1


def test_equal_values_are_equal(view: View) -> None:
    scene, other = sample_scenes()[3], sample_scenes()[4]
    assert scene == replace(scene)
    assert scene != other
    assert scene != replace(scene, tracks=replace(scene.tracks, x_m=scene.tracks.x_m + np.float32(1)))
    assert scene != "scene"
    plan = view.plan("terminal-variance")
    assert plan == view.plan("terminal-variance") == Plan.from_json(plan.to_json())
    assert plan != view.plan("goal-point(5, 0, frame=agent)")
    with pytest.raises(TypeError, match="unhashable"):
        hash(scene)


def test_a_cost_per_step_is_refused_with_a_hint(view: View) -> None:
    with pytest.raises(PlannerError, match=r"shape \[8, 80\], one per step, .* forget `.mean\(1\)`"):
        view.plan(lambda candidates: candidates.speed_mps)
    assert len(view.plan(lambda candidates: candidates.speed_mps[:, :5]).levels) == 5


WRONG = """
from waycode.objectives import Comfort, GoalPoint, LaneChange, ObjectiveError, SlowDown, SpeedProfile

for make in (
    lambda: GoalPoint("far", 3.0), lambda: GoalPoint(None, 3.0), lambda: LaneChange(1.5),
    lambda: LaneChange(1, guided="no"), lambda: SlowDown(True), lambda: SpeedProfile(3.0, (1.0,)),
    lambda: Comfort() + 3,
):
    try:
        make()
    except ObjectiveError as error:
        print(error)
assert str(GoalPoint(3, -2)) == "goal-point(x_m=3, y_m=-2)"
"""


def test_values_of_wrong_types_are_refused_when_they_are_given() -> None:
    # in a process of its own: in this one the tests' own type checks come first
    told = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "x_m of goal-point is 'far', expected a number",
        "x_m of goal-point is None, expected a number",
        "count of lane-change is 1.5, expected a whole number",
        "guided of lane-change is 'no', expected true or false",
        "max_speed_mps of slow-down is True, expected a number",
        "times_s of speed-profile is 3.0, expected a tuple of numbers",
        "got 3, expected an objective or a function from candidates to costs",
    ]


WRONG_CALLS = """
import waycode as wc

scene = wc.load_scene("sample", 3)
planner = wc.Planner.from_pretrained("sumo-small")
view = planner.encode(scene)
for call in (
    lambda: view.plan(3), lambda: view.plan("comfort", beam_width="4"), lambda: view.plan("comfort", beam_width=2.5),
    lambda: view.plan("comfort", depth="1"), lambda: view.plan("comfort", refine_steps=True),
    lambda: view.plan("comfort", deadline_s="soon"), lambda: view.sample("two"), lambda: view.plot("plan"),
    lambda: planner.encode("scene"), lambda: planner.encode(scene, 3.5), lambda: wc.load_scene(3),
    lambda: wc.load_scene("sample", "3"), lambda: wc.Dataset(None), lambda: wc.Planner.from_pretrained(3),
    lambda: wc.simulate("scene", planner), lambda: wc.simulate(scene, "idm"), lambda: wc.score("rollout"),
    lambda: wc.objectives.Comfort() * "2",
):
    try:
        call()
    except wc.WaycodeError as error:
        print(error)
"""


def test_calls_with_wrong_types_get_our_errors() -> None:
    told = subprocess.run([sys.executable, "-c", WRONG_CALLS], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "got 3, expected an objective, its text, or a function of candidates",
        "beam_width is '4', expected a whole number",
        "beam_width is 2.5, expected a whole number",
        "depth is '1', expected a whole number",
        "refine_steps is True, expected a whole number",
        "deadline_s is 'soon', expected a number",
        "count is 'two', expected a whole number",
        "plan is 'plan', expected a Plan",
        "scene is 'scene', expected a Scene",
        "agent is 3.5, expected a whole number",
        "path is 3, expected a name or a path",
        "index is '3', expected a whole number",
        "folder is None, expected a name or a path",
        "name_or_folder is 3, expected a name or a path",
        "scene is 'scene', expected a Scene",
        "the driver is 'idm', expected a Planner, or an object with `reset` and `plan`",
        "rollout is 'rollout', expected a Rollout",
        "weight is '2', expected a number",
    ]


def test_sizes_are_not_negative() -> None:
    with pytest.raises(ObjectiveError, match=r"max_speed_mps of slow-down is -1\.0, expected at least 0"):
        SlowDown(-1.0)
    with pytest.raises(ObjectiveError, match="expected at least 0"):
        SpeedProfile((0.0, 1.0), (1.0, -2.0))
