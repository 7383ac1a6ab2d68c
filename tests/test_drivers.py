"""The drivers by the model: latent token search, the paper's planner, imitation; what the policy does around them."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from driving_scenes import (
    DT_S,
    NOW,
    car_tracks,
    drives_along,
    first_command_mps2,
    observation_of,
    one_car,
    planned,
    road_scene,
    sample_scenes,
    setting_of,
)
from waycode import Planner
from waycode.driving import Driver, LqrTracker, Observation, PerfectTracker, Trajectory
from waycode.features import SegmentedMap, segment_map
from waycode.model import VarianceGate
from waycode.objectives import DRIVING_OBJECTIVE, ObjectiveError, TerminalVariance, parse_objective
from waycode.planner import View, refinement
from waycode.planner import planner as planner_module
from waycode.scene import MapFeatures, Route, Scene
from waycode.search import RefineResult, refine
from waycode.simulation.drivers import PAPER, ImitationDriver, LatentConfig, LatentDriver, PolicyConfig, latent
from waycode.simulation.drivers.latent import LatentState, loaded_planner, plan_trajectory
from waycode.simulation.drivers.policy import Evaluator, Judged, choose_trajectory, is_safe, slowed_trajectory
from waycode.simulation.registry import DriverSpec
from waycode.simulation.rollout import SimulationConfig, simulate

QUICK = LatentConfig(beam_width=1)


def with_policy(config: LatentConfig = QUICK, **changes: Any) -> LatentConfig:
    return replace(config, policy=PolicyConfig(**changes))


def plans_in_a_row(driver: Driver[Any], *observations: Observation) -> tuple[list[Trajectory], Any]:
    """The plans at consecutive steps, and the state after them."""
    state, plans = driver.reset(observations[0]), []
    for observation in observations:
        plan, state = driver.plan(state, observation)
        plans.append(plan)
    return plans, state


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: list[str]) -> None:
    """Notes each call of a function."""
    function = getattr(owner, name)

    def noted(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, noted)


# Latent token search with the default policy


def test_the_latent_driver_drives_along_the_route() -> None:
    scene = sample_scenes(1)[0]
    result = simulate(scene, LatentDriver(config=QUICK), config=SimulationConfig(horizon_s=1.0))
    assert result.history.failure is None
    driven = result.history.ego.centre_m
    assert np.linalg.norm(driven[-1] - result.history.expert.centre_m[-1]) < 3.0


@pytest.mark.parametrize("config", [QUICK, replace(PAPER, refine_steps=1)], ids=["policy", "paper"])
@pytest.mark.parametrize("what", ["no lanes", "no route", "off the map", "empty route", "comes and goes"])
def test_awkward_scenes_are_survived(what: str, config: LatentConfig) -> None:
    scene = road_scene(others=((30.0, 0.0, 5.0),))
    if what == "no lanes":
        scene = replace(scene, map=MapFeatures(), route=None)
    elif what == "no route":
        scene = replace(scene, route=None)
    elif what == "off the map":
        scene = replace(scene, tracks=replace(scene.tracks, y_m=scene.tracks.y_m + np.float32(400)))
    elif what == "empty route":
        scene = replace(scene, route=Route(lanes=np.zeros(0, np.int32), sections=np.zeros(0, np.int32)))
    else:
        valid = scene.tracks.valid.copy()
        valid[1, NOW + 1 : NOW + 3] = False
        scene = replace(scene, tracks=car_tracks(scene.tracks.x_m, scene.tracks.y_m, valid=valid))
    result = simulate(scene, LatentDriver(config=config), config=SimulationConfig(horizon_s=0.4))
    if config.policy is None and what == "no lanes":  # the paper's objective has nothing to follow
        assert result.history.failure is not None
        assert "ObjectiveError" in result.history.failure
    else:
        assert result.history.failure is None
    assert np.isfinite(result.history.ego.rear_axle_m).all()


def test_a_wall_ahead_makes_the_car_slow_down() -> None:
    observation = observation_of(road_scene(others=((16.0, 0.0, 0.0),)))
    assert planned(LatentDriver(config=QUICK), observation).speed_mps[30] < 2.0


@pytest.mark.parametrize(
    ("gap_m", "least_mps2", "most_mps2"),
    [
        pytest.param(60.0, -3.0, 2.4, id="far away: within comfort"),
        pytest.param(17.0, -4.05, -3.0, id="near: a comfortable stop will do"),
        pytest.param(6.0, -6.1, -5.7, id="too near: as hard as it can"),
    ],
)
def test_the_car_brakes_as_hard_as_it_must(gap_m: float, least_mps2: float, most_mps2: float) -> None:
    observation = observation_of(road_scene(others=((4.5 + gap_m, 0.0, 0.0),)))  # at 10 m/s
    command = first_command_mps2(planned(LatentDriver(config=QUICK), observation), observation)
    assert least_mps2 <= command <= most_mps2


def test_a_car_with_a_perfect_tracker_is_never_told_to_roll_back() -> None:
    observation = observation_of(road_scene(others=((10.5, 0.0, 0.0),)))
    stop = planned(LatentDriver(config=QUICK, tracker=PerfectTracker()), observation)
    assert stop.speed_mps.min() == 0.0
    assert planned(LatentDriver(config=QUICK), observation).speed_mps.min() < 0.0  # nuPlan's tracker is


def test_a_last_plan_that_has_become_unsafe_is_searched_anew() -> None:
    driver, scene = LatentDriver(config=with_policy(replan_steps=9)), road_scene()
    first = observation_of(scene)
    _, state = driver.plan(driver.reset(first), first)
    blocked = observation_of(replace(road_scene(others=((12.0, 0.0, 0.0),)), map=scene.map))
    _, after = driver.plan(state, blocked)
    assert after.steps_since_search == 0


def test_a_driver_without_time_still_plans() -> None:
    config = replace(QUICK, deadline_s=0.0)
    plan = planned(LatentDriver(config=config), observation_of(road_scene()))
    assert np.isfinite(plan.position_m).all()


@pytest.mark.parametrize(("deadline_s", "steps"), [(11.5, 2), (None, 4)])
def test_a_deadline_ends_refinement_between_its_steps(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float | None, steps: int
) -> None:
    """Every look at this clock takes a second."""
    made, clock = [], count(0.0).__next__

    def counted(*args: Any, **options: Any) -> RefineResult:
        result = refine(*args, **options)
        made.append(result.steps)
        return result

    encode = Planner.encode
    monkeypatch.setattr(refinement, "refine", counted)
    monkeypatch.setattr(latent, "time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(Planner, "encode", lambda *args, **options: replace(encode(*args, **options), clock=clock))
    driver = LatentDriver(config=replace(PAPER, beam_width=1, refine_steps=4, deadline_s=deadline_s))
    refined = planned(driver, observation_of(road_scene()))
    assert made == [steps]
    assert np.isfinite(refined.position_m).all()


def test_a_scenario_cuts_its_map_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map that is kept from step to step changes nothing: a driver that cuts it anew drives the same way."""
    cuts = []

    def counted(features: MapFeatures, **options: Any) -> SegmentedMap:
        cuts.append(features)
        return segment_map(features, **options)

    class Forgetful:
        driver = LatentDriver(config=QUICK)

        def reset(self, observation: Observation) -> LatentState:
            return self.driver.reset(observation)

        def plan(self, state: LatentState, observation: Observation) -> tuple[Trajectory, LatentState]:
            if observation.scene.current_step > NOW:
                state = replace(state, segmented_map=loaded_planner("sumo-small").segment_map(observation.scene.map))
            return self.driver.plan(state, observation)

    scene, config = sample_scenes(1)[0], SimulationConfig(horizon_s=0.5)
    monkeypatch.setattr(planner_module, "segment_map", counted)
    once = simulate(scene, LatentDriver(config=QUICK), config=config)
    assert len(cuts) == 1
    anew = simulate(scene, Forgetful(), config=config)
    assert len(cuts) == 6
    np.testing.assert_allclose(once.history.ego.rear_axle_m, anew.history.ego.rear_axle_m, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PolicyConfig(replan_steps=0), "replan_steps is 0, expected at least 1"),
        (lambda: LatentConfig(refine_steps=-1), "refine_steps is -1, expected at least 0"),
        (lambda: LatentConfig(objective="route-folowing"), "did you mean route-following"),
    ],
    ids=["replan_steps", "refine_steps", "objective"],
)
def test_wrong_settings_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


# The paper's planner


@pytest.mark.parametrize("step", [0, 5])
def test_the_papers_planner_is_one_call_of_view_plan(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = sample_scenes(1)[0]
    observation = observation_of(replace(scene, current_step=scene.current_step + step))
    driver = DriverSpec(name="paper").build(scene)
    assert driver == LatentDriver(config=PAPER)
    state = driver.reset(observation)
    view = loaded_planner("sumo-small").encode(observation.scene, setting=setting_of(observation))
    direct = view.plan(
        "route-following + 10 * road-edge",
        depth=3,
        beam_width=2,
        refine_steps=5,
        refine_objective=TerminalVariance(),
    )
    asked: list[dict[str, Any]] = []
    plan_once = View.plan

    def noted(self: View, objective: Any, **options: Any) -> Any:
        asked.append({"objective": objective, **options})
        return plan_once(self, objective, **options)

    monkeypatch.setattr(View, "plan", noted)
    monkeypatch.setattr(Evaluator, "judge", lambda *args: pytest.fail("the paper has no policy"))
    for owner, name in ((LatentDriver, "_plan_by_policy"), (View, "candidates"), (View, "decode")):
        monkeypatch.setattr(owner, name, lambda *args, **options: pytest.fail("not part of the paper's planner"))
    trajectory, after = driver.plan(state, observation)
    assert asked == [
        {
            "objective": parse_objective("route-following + 10 * road-edge"),
            "depth": 3,
            "beam_width": 2,
            "levels": 2,
            "refine_steps": 5,
            "refine_objective": TerminalVariance(),
            "deadline_s": None,
        }
    ]
    assert after is state  # nothing is kept from step to step
    np.testing.assert_array_equal(trajectory.position_m, plan_trajectory(direct, observation).position_m)
    np.testing.assert_array_equal(trajectory.speed_mps, plan_trajectory(direct, observation).speed_mps)


def test_the_papers_planner_plans_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    count_calls(monkeypatch, View, "plan", calls)
    result = simulate(sample_scenes(1)[0], LatentDriver(config=PAPER), config=SimulationConfig(horizon_s=0.5))
    assert result.history.failure is None
    assert calls == ["plan"] * 5


def test_the_papers_planner_ends_with_its_deadline() -> None:
    plan = planned(LatentDriver(config=replace(PAPER, deadline_s=0.0)), observation_of(road_scene()))
    assert np.isfinite(plan.position_m).all()


# Imitation, and planners as drivers


def test_imitation_begins_where_the_car_is() -> None:
    observation = observation_of(road_scene())
    plan = planned(ImitationDriver(), observation)
    np.testing.assert_allclose(plan.position_m[0], observation.ego.centre_m(observation.vehicle)[0])
    assert len(plan) == 81


def test_a_planner_can_be_handed_to_a_driver() -> None:
    planner, observation = Planner.from_pretrained("sumo-small"), observation_of(road_scene())
    by_name, by_planner = (
        planned(LatentDriver(planner=one, config=QUICK), observation) for one in ("sumo-small", planner)
    )
    np.testing.assert_array_equal(by_name.position_m, by_planner.position_m)
    assert loaded_planner(planner) is planner
    assert loaded_planner("sumo-small") is loaded_planner("sumo-small")  # once per process


def test_a_plan_as_a_trajectory_begins_with_the_exact_state() -> None:
    observation = observation_of(replace(road_scene(), origin_m=(1000.0, -500.0)))
    plan = loaded_planner("sumo-small").encode(observation.scene).decode([1, 2, 3])
    trajectory = plan_trajectory(plan, observation)
    np.testing.assert_array_equal(trajectory.position_m[0], observation.ego.centre_m(observation.vehicle)[0])
    np.testing.assert_allclose(trajectory.position_m[1:], plan.position_in(observation.scene), atol=1e-3)
    assert trajectory.speed_mps[0] == observation.ego.speed_mps[0]
    assert len(trajectory) == len(plan.time_s) + 1


# The policy, switch by switch


def evaluator(scene: Scene, *, objective: str = DRIVING_OBJECTIVE, **changes: Any) -> Evaluator:
    return Evaluator(
        objective=parse_objective(objective),
        setting=setting_of(observation_of(scene)),
        tracker=PerfectTracker(),
        policy=PolicyConfig(**changes),
    )


def straight(scene: Scene, speed_mps: float) -> Trajectory:
    """A plan of 4 s at a constant speed."""
    observation = observation_of(scene)
    return drives_along(observation, speed_mps).select(0).at_centre(observation.vehicle)


def judged(trajectory: Trajectory, evaluate: Evaluator) -> Judged:
    return evaluate.judge(Trajectory.stack([trajectory]))


def test_between_searches_the_last_plan_is_driven_on() -> None:
    driver = LatentDriver(config=with_policy(replan_steps=3))
    (first, second), state = plans_in_a_row(driver, *[observation_of(road_scene())] * 2)
    assert state.steps_since_search == 1
    np.testing.assert_array_equal(second.position_m, first.position_m[1:])


@pytest.mark.parametrize(("replan_steps", "searches"), [(1, 6), (2, 3), (3, 2)])
def test_every_nth_step_is_a_search(replan_steps: int, searches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    count_calls(monkeypatch, View, "beam", calls)
    driver = LatentDriver(config=with_policy(replan_steps=replan_steps))
    plans_in_a_row(driver, *[observation_of(road_scene())] * 6)
    assert len(calls) == searches


def test_a_last_plan_that_is_not_kept_changes_nothing() -> None:
    driver = LatentDriver(config=with_policy(keep_last_plan=False, replan_steps=3))
    plans, _ = plans_in_a_row(driver, *[observation_of(road_scene())] * 3)
    for plan in plans[1:]:
        np.testing.assert_array_equal(plan.position_m, plans[0].position_m)


@pytest.mark.parametrize(("keep_bonus", "kept"), [(0.0, False), (0.05, False), (0.3, True)])
def test_a_new_plan_must_be_better_by_the_bonus(keep_bonus: float, kept: bool) -> None:
    scene = road_scene()
    last, new = straight(scene, 8.0), straight(scene, 9.0)  # better by 4 m of the 46.6 m that can be reached: 0.086
    evaluate = evaluator(scene, objective="route-progress", keep_bonus=keep_bonus, slowing_mps2=())
    chosen = choose_trajectory([judged(new, evaluate)], last, evaluate).trajectory
    np.testing.assert_array_equal(chosen.position_m, (last if kept else new).position_m)


@pytest.mark.parametrize(("slowing_mps2", "slowed"), [((1.5, 3.0), True), ((), False)], ids=["slowed variants", "none"])
def test_plans_are_slowed_down_before_the_car_stops(slowing_mps2: tuple[float, ...], slowed: bool) -> None:
    scene = road_scene(others=((28.0, 0.0, 0.0),))
    plan, evaluate = straight(scene, 10.0), evaluator(scene, slowing_mps2=slowing_mps2)
    chosen = choose_trajectory([judged(plan, evaluate)], None, evaluate).trajectory
    assert not is_safe(judged(plan, evaluate).levels)[0]
    stop = evaluate.stop(evaluate.policy.stopping_mps2)
    expected = slowed_trajectory(plan, braking_mps2=3.0, dt_s=DT_S) if slowed else stop
    np.testing.assert_allclose(chosen.position_m, expected.position_m)
    assert is_safe(judged(chosen, evaluate).levels)[0]


@pytest.mark.parametrize("stop", [True, False])
def test_where_nothing_is_safe_the_car_stops_if_it_may(stop: bool) -> None:
    scene = road_scene(others=((12.0, 0.0, 0.0),))
    plan, evaluate = straight(scene, 10.0), evaluator(scene, slowing_mps2=(), stop=stop)
    chosen = choose_trajectory([judged(plan, evaluate)], None, evaluate).trajectory
    # The wall is 7.5 m ahead: a comfortable stop takes 12.8 m, so the emergency brake is used.
    expected = evaluate.stop(6.0) if stop else plan
    np.testing.assert_array_equal(chosen.position_m, expected.position_m)


@pytest.mark.parametrize(
    ("changes", "braking_mps2"),
    [
        pytest.param({}, 3.9, id="a comfortable stop is enough"),
        pytest.param({"stopping_mps2": 3.5}, 3.5, id="as comfortable as asked for"),
        pytest.param({"stopping_mps2": 1.0, "emergency_mps2": 7.0}, 7.0, id="too soft: collides within 2 s"),
        pytest.param({"stopping_mps2": 1.0, "emergency_s": 0.5}, 1.0, id="the collision is not soon"),
    ],
)
def test_the_car_stops_as_hard_as_the_policy_says(changes: dict[str, Any], braking_mps2: float) -> None:
    scene = road_scene(others=((22.5, 0.0, 0.0),))  # 18 m between the boxes, 17 m with the margin
    evaluate = evaluator(scene, slowing_mps2=(), **changes)
    chosen = choose_trajectory([judged(straight(scene, 10.0), evaluate)], None, evaluate).trajectory
    np.testing.assert_array_equal(chosen.position_m, evaluate.stop(braking_mps2).position_m)


def with_turned_wheels(scene: Scene, *, steers: bool, **changes: Any) -> Evaluator:
    """The wheels are turned to the left: nuPlan's tracker drives more than 0.2 m beside a straight plan at 10 m/s."""
    evaluate = evaluator(scene, **changes)
    turned = one_car(-evaluate.setting.vehicle.rear_axle_to_centre_m, speed_mps=10.0, steering_rad=0.05)
    setting = replace(evaluate.setting, known_state=turned)
    return replace(evaluate, setting=setting, tracker=LqrTracker(), steers=steers)


@pytest.mark.parametrize("kept", [False, True], ids=["a new plan", "the last plan"])
@pytest.mark.parametrize("steers", [True, False], ids=["steered", "as planned"])
def test_a_plan_that_the_tracker_leaves_is_steered_back_to(kept: bool, steers: bool) -> None:
    scene = road_scene()
    plan, evaluate = straight(scene, 10.0), with_turned_wheels(scene, steers=steers)
    found = judged(plan, evaluate)
    chosen = choose_trajectory([] if kept else [found], plan if kept else None, evaluate)
    np.testing.assert_array_equal(chosen.plan.position_m, plan.position_m)  # what the next step may keep
    as_planned = judged(plan, replace(evaluate, steers=False))
    assert chosen.error_m == as_planned.error_m[0] > evaluate.policy.steering_tolerance_m
    assert found.steered.tolist() == [steers]
    assert (chosen.trajectory.position_m[1, 1] < -0.01) == steers  # to the right at once
    aside_m, before_m = (np.abs(each.drive.position_m[..., 1]).max() for each in (found, as_planned))
    assert (aside_m < 0.8 * before_m) == steers


def test_only_plans_that_the_tracker_leaves_are_steered_to() -> None:
    scene = road_scene()
    evaluate = with_turned_wheels(scene, steers=True, steering_tolerance_m=5.0)
    found = judged(straight(scene, 10.0), evaluate)
    assert not found.steered.any()
    np.testing.assert_array_equal(found.choice(0).trajectory.position_m, straight(scene, 10.0).position_m)
    both = Trajectory.stack([straight(scene, 10.0), straight(scene, 0.0)])  # the second stands: no error to the side
    assert with_turned_wheels(scene, steers=True).judge(both).steered.tolist() == [True, False]


@pytest.mark.parametrize("steers", [True, False])
def test_steering_against_errors_is_a_switch_of_the_policy(steers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    judge = Evaluator.judge

    def noted(self: Evaluator, trajectory: Trajectory) -> Judged:
        asked.append(self.steers)
        return judge(self, trajectory)

    monkeypatch.setattr(Evaluator, "judge", noted)
    driver = LatentDriver(config=with_policy(steers_against_errors=steers))
    _, state = plans_in_a_row(driver, *[observation_of(road_scene())] * 2)
    assert asked[0] is steers  # how the first plan will be followed is not known
    assert asked[-1] is False  # it is followed well
    assert state.error_m < 0.2


def test_a_stop_in_a_bend_keeps_to_the_road() -> None:
    """The ego heads 0.09 rad away from its lane, towards the edge: straight on, it leaves the road before it stands."""
    scene = road_scene()
    turned = one_car(0.0, -0.3, heading_rad=-0.09)
    evaluate = evaluator(scene)
    setting = replace(evaluate.setting, known_state=turned)
    evaluate = replace(evaluate, setting=setting, tracker=LqrTracker())
    straight_on, along_route = evaluate.stop(3.9), evaluate.stop_along_route(3.9)
    np.testing.assert_array_equal(straight_on.speed_mps, along_route.speed_mps)
    np.testing.assert_allclose(along_route.heading_rad, 0.0, atol=1e-9)
    levels = evaluate.judge(Trajectory.stack([straight_on, along_route])).levels
    assert levels[0, 0] > levels[1, 0] == 0


def test_a_model_that_is_uncertain_of_everything_stops() -> None:
    evaluate = evaluator(road_scene())
    chosen = choose_trajectory([], None, evaluate).trajectory
    np.testing.assert_array_equal(chosen.position_m, evaluate.stop(3.9).position_m)
    certain = loaded_planner("sumo-small")
    never = Planner(certain.model, gate=VarianceGate(sigma_max_m=dict.fromkeys(certain.gate.sigma_max_m, 0.0)))
    observation = observation_of(road_scene())
    plan = planned(LatentDriver(planner=never, config=QUICK, tracker=PerfectTracker()), observation)
    np.testing.assert_allclose(plan.speed_mps, np.maximum(0.0, 10.0 - 3.9 * DT_S * np.arange(41)), atol=1e-9)


@pytest.mark.parametrize(("horizon_s", "safe"), [(2.0, True), (4.0, False)])
def test_trajectories_are_compared_over_the_policys_horizon(horizon_s: float, safe: bool) -> None:
    scene = road_scene(others=((34.0, 0.0, 0.0),))  # reached after 2.95 s, with the margin after 2.85 s
    objective = f"at-fault-collision(horizon_s={horizon_s:g}) then route-progress(horizon_s={horizon_s:g})"
    evaluate = evaluator(scene, objective=objective, horizon_s=horizon_s)
    assert evaluate.num_steps == round(10 * horizon_s)
    assert is_safe(judged(straight(scene, 10.0), evaluate).levels).tolist() == [safe]


def test_an_objective_that_looks_beyond_the_policys_horizon_is_refused() -> None:
    scene = road_scene()
    with pytest.raises(ObjectiveError, match=r"the driving horizon is 4 s, expected 1\.5 to 2 s"):
        judged(straight(scene, 10.0), evaluator(scene, horizon_s=2.0))


def test_an_objective_of_one_level_has_no_danger() -> None:
    evaluate = evaluator(road_scene(others=((12.0, 0.0, 0.0),)), objective="at-fault-collision")
    levels = judged(straight(road_scene(), 10.0), evaluate).levels
    assert levels[0, 0] > 0
    assert is_safe(levels).tolist() == [True]


def test_a_slowed_plan_keeps_its_path_and_stops() -> None:
    angle = np.linspace(0, 1.2, 41)
    plan = Trajectory(
        position_m=30 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1),
        heading_rad=angle,
        speed_mps=np.full(41, 9.0),
    )
    slow = slowed_trajectory(plan, braking_mps2=3.0, dt_s=0.1)
    radius = np.linalg.norm(slow.position_m - [0, 30], axis=1)
    np.testing.assert_allclose(radius, 30, atol=0.01)
    driven = np.linalg.norm(np.diff(slow.position_m, axis=0), axis=1).sum()
    assert driven == pytest.approx(9.0**2 / (2 * 3.0), abs=0.05)
    assert slow.speed_mps[-1] == 0
