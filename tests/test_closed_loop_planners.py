"""The planners by the model, and the judge that tells them what a drive is worth."""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from waycode.baselines.pdm_score import Drives
from waycode.baselines.proposals import Way
from waycode.planner.refining import Refinement, refine_latents
from waycode.simulation.drivers.contacts import EVERY, LOOKS, Margin, _near, find_contacts
from waycode.simulation.drivers.drives import slowed
from waycode.simulation.drivers.judge import DriveJudge, comfort_share
from waycode.simulation.drivers.models import planner_of

from driving_scenes import NOW, car_tracks, first_command_mps2, observation_of, road_scene, sample_scenes
from waycode.driving import Observation, PerfectTracker, Trajectory
from waycode.driving.forecast import forecast
from waycode.driving.road_surface import DrivableArea
from waycode.features import SegmentedMap, segment_map
from waycode.planner import planner as planner_module
from waycode.scene import MapFeatures, Route, Scene, SignalState
from waycode.scene.geometry import forward
from waycode.scene.kinematics import motion, within_comfort
from waycode.simulation.drivers import ImitationDriver, JudgeConfig, LatentConfig, LatentDriver, latent
from waycode.simulation.drivers.latent import LatentMemory
from waycode.simulation.rollout import SimulationConfig, simulate
from waycode.simulation.traffic import ReplayTraffic

STEPS = 40


def drives_along(observation: Observation, *speeds_mps: float, y_m: float = 0.0) -> Drives:
    """Drives straight along x from where the car is, each at a constant speed."""
    time_s = np.arange(STEPS + 1) * 0.1
    x = float(observation.ego.rear_axle_m[0, 0]) + np.array(speeds_mps)[:, None] * time_s
    return Drives(
        rear_axle_m=np.stack([x, np.full_like(x, y_m)], axis=-1),
        heading_rad=np.zeros_like(x),
        speed_mps=np.broadcast_to(np.array(speeds_mps)[:, None], x.shape),
        vehicle=observation.vehicle,
    )


def judge_of(scene: Scene, config: JudgeConfig | None = None) -> DriveJudge:
    observation = observation_of(scene)
    features = observation.scene.map
    return DriveJudge(
        observation=observation,
        way=Way.of(observation, fallback_mps=15.0),
        drivable=DrivableArea.of(features),
        config=config or JudgeConfig(),
    )


NO_MARGIN = Margin(ahead_m=0.0, beside_m=0.0)


@pytest.mark.parametrize(
    ("other", "speed_mps", "step"),
    [
        # centres 20 m apart, boxes 4.5 m long: 15.5 m are closed at 10 m/s in 1.55 s, seen at the next even step
        pytest.param((20.0, 0.0, 0.0), 10.0, 16.0, id="standing ahead"),
        pytest.param((20.0, 0.0, 5.0), 10.0, 32.0, id="slower ahead: 3.1 s, seen at the next even step"),
        pytest.param((20.0, 0.0, 10.0), 10.0, np.inf, id="as fast ahead"),
        pytest.param((20.0, 3.5, 0.0), 10.0, np.inf, id="in the other lane"),
        pytest.param((-20.0, 0.0, 15.0), 2.0, np.inf, id="from behind is not our fault"),
        pytest.param((3.0, 0.0, 0.0), 10.0, np.inf, id="touched already"),
    ],
)
def test_contacts_by_hand(other: tuple[float, float, float], speed_mps: float, step: float) -> None:
    observation = observation_of(road_scene(others=(other,)))
    drives = drives_along(observation, speed_mps)
    others = forecast(observation, num_steps=STEPS + 9)
    none = np.zeros(drives.speed_mps.shape, np.bool_)
    assert find_contacts(
        drives, others, off_lane=none, in_junction=none, margin=NO_MARGIN, dt_s=0.1
    ).first_step.tolist() == [step]


def test_a_margin_makes_contacts_sooner() -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    drives, others = drives_along(observation, 10.0), forecast(observation, num_steps=STEPS + 9)
    none = np.zeros(drives.speed_mps.shape, np.bool_)
    wide = find_contacts(
        drives, others, off_lane=none, in_junction=none, margin=Margin(ahead_m=3.0, beside_m=0.0), dt_s=0.1
    )
    assert wide.first_step.tolist() == [14.0]  # 12.5 m at 10 m/s


def test_who_is_within_the_margin_already_must_not_be_touched() -> None:
    observation = observation_of(road_scene(others=((5.0, 0.0, 0.0),)))  # half a metre between the boxes
    drives, others = drives_along(observation, 2.0, 0.5, 0.0), forecast(observation, num_steps=STEPS + 9)
    none = np.zeros(drives.speed_mps.shape, np.bool_)
    found = find_contacts(
        drives, others, off_lane=none, in_junction=none, margin=Margin(ahead_m=1.0, beside_m=0.2), dt_s=0.1
    )
    assert found.first_step.tolist() == [4.0, 12.0, np.inf]  # 0.25 s and 1 s, seen at the next even step beyond


def test_who_brakes_goes_on_braking_for_a_second() -> None:
    scene = road_scene(others=((30.0, 0.0, 10.0), (60.0, 0.0, 10.0)))
    vx = scene.tracks.vx_mps.copy()
    vx[1, NOW - 5] = 12.0  # 2 m/s less in half a second
    vx[2, NOW - 5] = 8.0  # pulling away is not foreseen
    observation = observation_of(replace(scene, tracks=replace(scene.tracks, vx_mps=vx)))
    steady, braking = (forecast(observation, num_steps=40, brakes=brakes).position_m for brakes in (False, True))
    gone = braking[:, :, 0] - braking[:, :1, 0]
    np.testing.assert_allclose(gone[0, [5, 10, 40]], [5 - 4 / 8, 10 - 4 / 2, 8 + 3 * 6], atol=1e-4)  # for a second
    np.testing.assert_allclose(braking[1], steady[1])


@pytest.mark.parametrize("seed", range(5))
def test_all_that_are_near_are_found(seed: int) -> None:
    """Against a comparison of every drive with every other at every step and look."""
    rng = np.random.default_rng(seed)
    places = tuple((float(x), float(y), float(v)) for x, y, v in rng.uniform((-40, -25, -5), (90, 25, 15), (30, 3)))
    observation = observation_of(road_scene(others=places))
    others, drives = forecast(observation, num_steps=STEPS + LOOKS[-1]), drives_along(observation, 0.0, 4.0, 9.0, 20.0)
    steps, margin = np.arange(0, STEPS + 1, EVERY), Margin(ahead_m=1.0, beside_m=0.2)
    arm = drives.vehicle.rear_axle_to_centre_m + drives.speed_mps[:, steps, None] * 0.1 * np.array(LOOKS)
    x = drives.rear_axle_m[..., 0][:, steps, None] + arm
    there = others.position_m[:, steps[:, None] + np.array(LOOKS)]
    apart = np.hypot(x[:, None] - there[None, ..., 0], 0.0 - there[None, ..., 1])
    reach = np.hypot(4.5, 1.9) / 2 + others.radius_m + np.hypot(1.0, 0.2)
    car, other, place, look = np.nonzero(apart < reach[:, None, None])
    found = _near(drives, others, steps, margin=margin, dt_s=0.1)
    assert 0 < len(car) < apart.size / 4
    for one, expected in zip(found, (car, other, steps[place], look), strict=True):
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize(("gap_s", "keeps"), [(0.7, False), (1.3, True)])
def test_distance_is_kept_if_nobody_is_within_a_second(gap_s: float, keeps: bool) -> None:
    speed = 10.0
    observation = observation_of(road_scene(others=((4.5 + gap_s * speed + 4 * speed, 0.0, 0.0),)))
    drives, others = drives_along(observation, speed), forecast(observation, num_steps=STEPS + 9)
    none = np.zeros(drives.speed_mps.shape, np.bool_)
    found = find_contacts(drives, others, off_lane=none, in_junction=none, margin=NO_MARGIN, dt_s=0.1)
    assert found.first_step.tolist() == [np.inf]  # after 4 s the gap is still there
    assert found.keeps_distance.tolist() == [keeps]


def test_comfort_is_measured_as_everywhere() -> None:
    rng = np.random.default_rng(0)
    heading = np.cumsum(rng.normal(0, 0.01, (40, STEPS + 1)), axis=1)
    speed = 8 + np.cumsum(rng.normal(0, 0.05, (40, 1)) * rng.uniform(0, 5, (40, 1)) + np.zeros((40, STEPS + 1)), axis=1)
    observation = observation_of(road_scene())
    drives = Drives(
        rear_axle_m=np.zeros((40, STEPS + 1, 2)), heading_rad=heading, speed_mps=speed, vehicle=observation.vehicle
    )
    kept = within_comfort(motion(speed[..., None] * forward(heading), heading, dt_s=0.1))
    assert 0 < kept.sum() < 40
    np.testing.assert_array_equal(comfort_share(drives, dt_s=0.1) == 1, kept)


def test_the_judge_prefers_progress_within_the_limit() -> None:
    judge = judge_of(road_scene(speed_mps=10.0))  # the limit is 12 m/s
    danger, cost = judge.levels(drives_along(judge.observation, 2.0, 6.0, 11.0, 20.0)).T
    assert (danger == 0).all()
    assert cost.argmin() == 2
    assert cost[0] > cost[1] > cost[2]


def test_without_the_route_progress_does_not_count() -> None:
    judge = judge_of(road_scene(), JudgeConfig(route=False))
    cost = judge.levels(drives_along(judge.observation, 2.0, 6.0, 11.0))[:, 1]
    np.testing.assert_allclose(cost, cost[0])


def test_deviation_from_the_route_costs() -> None:
    judge = judge_of(road_scene())
    on, beside = (judge.levels(drives_along(judge.observation, 8.0, y_m=y))[0, 1] for y in (0.0, 1.5))
    assert beside > on


@pytest.mark.parametrize(("edge", "danger"), [(True, True), (False, False)])
def test_leaving_the_road_is_dangerous_if_asked(edge: bool, danger: bool) -> None:
    judge = judge_of(road_scene(), JudgeConfig(edge=edge))
    drives = drives_along(judge.observation, 8.0)
    away = drives.rear_axle_m.copy()
    away[..., 1] -= np.linspace(0, 4, STEPS + 1)  # the road ends at y = -2
    assert (judge.levels(replace(drives, rear_axle_m=away))[0, 0] > 0) == danger


@pytest.mark.parametrize(("collision", "danger"), [(True, True), (False, False)])
def test_collisions_are_dangerous_if_asked(collision: bool, danger: bool) -> None:
    judge = judge_of(road_scene(others=((20.0, 0.0, 0.0),)), JudgeConfig(collision=collision))
    assert (judge.levels(drives_along(judge.observation, 10.0))[0, 0] > 0) == danger


def test_sooner_collisions_are_worse() -> None:
    judge = judge_of(road_scene(others=((20.0, 0.0, 0.0),)))
    fast, slow, stays = judge.levels(drives_along(judge.observation, 12.0, 6.0, 0.0))[:, 0]
    assert fast > slow > stays == 0
    fast, slow = judge.levels(drives_along(judge.observation, 10.2, 10.0))[:, 0]
    assert fast > slow  # at the same of the steps that are looked at


def test_a_new_plan_is_refined_at_the_step_after_in_place_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*args, **options)

        return call

    monkeypatch.setattr(latent, "refine_latents", counted("refined", refine_latents))
    monkeypatch.setattr(LatentDriver, "_searched", counted("searched", LatentDriver._searched))
    planner, observation = LatentDriver(config=replace(QUICK, loyalty=1.0)), observation_of(road_scene())
    plans = [planner.plan(observation)]
    for _ in range(3):
        plans.append(planner.plan(replace(observation, memory=plans[-1].memory)))
    assert calls == ["searched", "refined", "searched", "searched"]  # too loyal to change its mind afterwards
    found, refined, kept, _ = plans
    assert 0 < np.abs(refined.position_m - found.position_m[1:]).max() < 2.0  # another, but the same manoeuvre
    np.testing.assert_array_equal(kept.position_m, refined.position_m[1:])


def test_a_new_plan_that_has_become_unsafe_is_searched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, scene = LatentDriver(config=QUICK), road_scene()
    first = planner.plan(observation_of(scene))
    monkeypatch.setattr(latent, "refine_latents", lambda *args, **options: pytest.fail("refined a plan that is unsafe"))
    blocked = observation_of(replace(road_scene(others=((12.0, 0.0, 0.0),)), map=scene.map))
    second = planner.plan(replace(blocked, memory=first.memory))
    assert isinstance(second.memory, LatentMemory)
    assert second.memory.age_steps == 0


@pytest.mark.parametrize(
    ("light", "speed_mps", "danger"),
    [
        pytest.param(SignalState.STOP, 12.5, True, id="red, 50 m in 4 s"),
        pytest.param(SignalState.STOP, 10.0, False, id="red, but the line is not reached"),
        pytest.param(SignalState.GO, 12.5, False, id="green"),
    ],
)
def test_red_lights_are_walls(light: SignalState, speed_mps: float, danger: bool) -> None:
    judge = judge_of(road_scene(speed_mps=speed_mps, light=light))
    assert (judge.levels(drives_along(judge.observation, speed_mps))[0, 0] > 0) == danger


def test_a_slowed_plan_keeps_its_way_and_stops() -> None:
    angle = np.linspace(0, 1.2, 41)
    plan = Trajectory(
        position_m=30 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1),
        heading_rad=angle,
        speed_mps=np.full(41, 9.0),
    )
    slow = slowed(plan, braking_mps2=3.0, dt_s=0.1)
    radius = np.linalg.norm(slow.position_m - [0, 30], axis=1)
    np.testing.assert_allclose(radius, 30, atol=0.01)
    driven = np.linalg.norm(np.diff(slow.position_m, axis=0), axis=1).sum()
    assert driven == pytest.approx(9.0**2 / (2 * 3.0), abs=0.05)
    assert slow.speed_mps[-1] == 0


QUICK = LatentConfig(beam_width=1, refine_steps=1)


def test_the_latent_planner_drives_along_the_route() -> None:
    scene = sample_scenes(1)[0]
    config = SimulationConfig(horizon_s=1.0)
    result = simulate(scene, LatentDriver(config=QUICK), traffic=ReplayTraffic(), config=config)
    assert result.history.failure is None
    driven = result.history.ego.centre_m
    assert np.linalg.norm(driven[-1] - result.history.expert.centre_m[-1]) < 3.0


@pytest.mark.parametrize("what", ["no lanes", "no route", "off the map", "empty route", "comes and goes"])
def test_awkward_scenes_are_survived(what: str) -> None:
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
    planner = LatentDriver(config=QUICK)
    result = simulate(scene, planner, traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=0.4))
    assert result.history.failure is None
    assert np.isfinite(result.history.ego.rear_axle_m).all()


def test_between_searches_the_last_plan_is_driven_on() -> None:
    planner = LatentDriver(config=replace(QUICK, replan_steps=3, refine_steps=0))
    observation = observation_of(road_scene())
    first = planner.plan(observation)
    second = planner.plan(replace(observation, memory=first.memory))
    assert isinstance(second.memory, LatentMemory)
    assert second.memory.age_steps == 1
    np.testing.assert_array_equal(second.position_m, first.position_m[1:])


def test_a_wall_ahead_makes_the_car_slow_down() -> None:
    observation = observation_of(road_scene(others=((16.0, 0.0, 0.0),)))
    plan = LatentDriver(config=QUICK).plan(observation)
    assert plan.speed_mps[30] < 2.0


@pytest.mark.parametrize(
    ("gap_m", "least_mps2", "most_mps2"),
    [
        pytest.param(60.0, -3.0, 1.0, id="far away: as planned"),
        pytest.param(17.0, -4.05, -3.0, id="near: a comfortable stop will do"),
        pytest.param(6.0, -6.1, -5.7, id="too near: as hard as it can"),
    ],
)
def test_the_car_brakes_as_hard_as_it_must(gap_m: float, least_mps2: float, most_mps2: float) -> None:
    observation = observation_of(road_scene(others=((4.5 + gap_m, 0.0, 0.0),)))  # at 10 m/s
    command = first_command_mps2(LatentDriver(config=QUICK).plan(observation), observation)
    assert least_mps2 <= command <= most_mps2


def test_a_car_that_does_exactly_what_it_is_told_is_never_told_to_roll_back() -> None:
    observation = observation_of(road_scene(others=((10.5, 0.0, 0.0),)))
    stop = LatentDriver(config=QUICK, tracker=PerfectTracker()).plan(observation)
    assert stop.speed_mps.min() == 0.0
    assert LatentDriver(config=QUICK).plan(observation).speed_mps.min() < 0.0  # nuPlan's tracker is


def test_a_planner_without_time_still_plans() -> None:
    config = replace(QUICK, deadline_s=0.0, refine_steps=5)
    plan = LatentDriver(config=config).plan(observation_of(road_scene()))
    assert np.isfinite(plan.position_m).all()


@pytest.mark.parametrize(("deadline_s", "steps"), [(5.5, 3), (None, 4)])
def test_a_deadline_ends_refinement_between_its_steps(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float | None, steps: int
) -> None:
    """Every look at this clock takes a second: two before refinement, then one at its start and one at each step."""
    made = []

    def counted(*args: Any, **options: Any) -> Refinement:
        refinement = refine_latents(*args, **options)
        made.append(refinement.steps)
        return refinement

    monkeypatch.setattr(latent, "refine_latents", counted)
    config = replace(QUICK, refine_steps=4, deadline_s=deadline_s)
    planner, observation = LatentDriver(config=config, clock=count(0.0).__next__), observation_of(road_scene())
    plan = planner.plan(replace(observation, memory=planner.plan(observation).memory))
    assert made == [steps]
    assert np.isfinite(plan.position_m).all()


def test_a_scenario_cuts_its_map_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered from step to step changes nothing: a planner that forgets drives the same way."""
    cuts = []

    def counted(features: MapFeatures, **options: Any) -> SegmentedMap:
        cuts.append(features)
        return segment_map(features, **options)

    class Forgetful:
        def plan(self, observation: Observation) -> Trajectory:
            memory = observation.memory
            if isinstance(memory, LatentMemory):
                memory = replace(memory, cut=planner_of("sumo-small").cut_map(observation.scene.map))
            return LatentDriver(config=QUICK).plan(replace(observation, memory=memory))

    scene, config = sample_scenes(1)[0], SimulationConfig(horizon_s=0.5)
    monkeypatch.setattr(planner_module, "segment_map", counted)
    once = simulate(scene, LatentDriver(config=QUICK), traffic=ReplayTraffic(), config=config)
    assert len(cuts) == 1
    anew = simulate(scene, Forgetful(), traffic=ReplayTraffic(), config=config)
    assert len(cuts) == 6
    np.testing.assert_allclose(once.history.ego.rear_axle_m, anew.history.ego.rear_axle_m, atol=1e-9)


def test_imitation_begins_where_the_car_is() -> None:
    observation = observation_of(road_scene())
    plan = ImitationDriver().plan(observation)
    np.testing.assert_allclose(plan.position_m[0], observation.ego.centre_m(observation.vehicle)[0])
    assert len(plan) == 81


@pytest.mark.parametrize("wrong", [{"replan_steps": 0}, {"refine_steps": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected 1 and 0 at least"):
        LatentConfig(**wrong)
