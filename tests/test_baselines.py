"""Rule-based planners on a straight road: they go, follow, stop, and prefer what scores best."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from driving_scenes import (
    DT_S,
    LONG,
    STEPS,
    first_command_mps2,
    observation_of,
    one_car,
    planned,
    road_scene,
    sample_scenes,
    straight_road,
)
from waycode.baselines import PDM_ADAPTED, ConstantVelocity, IdmDriver, LogReplay, PdmClosed, PdmConfig
from waycode.baselines.idm import idm_proposals
from waycode.baselines.pdm_closed import ProposalScores, score_proposals
from waycode.baselines.simple import ReplayError
from waycode.driving import Driver, Observation, Road, Trajectory, Vehicle, constant_velocity_forecast
from waycode.driving.path import path_rows, smooth_path
from waycode.scene import Polylines, Scene, SignalState
from waycode.simulation.rollout import SimulationConfig, simulate
from waycode.simulation.traffic import ReplayTraffic

CAR = Vehicle.of_size(length_m=4.5, width_m=1.9)
RULES: dict[str, Driver[Any]] = {"idm": IdmDriver(), "pdm": PdmClosed()}
each_rule = pytest.mark.parametrize("name", list(RULES))


def end_of(scene: Scene, driver: Driver[Any]) -> tuple[float, float, float]:
    """Where the front bumper is at the end of the run, how far aside the car is, and its speed."""
    result = simulate(scene, driver, traffic=ReplayTraffic())
    assert result.history.failure is None
    ego = result.history.ego
    return (
        float(ego.centre_m[-1, 0]) + CAR.length_m / 2,
        float(ego.centre_m[-1, 1]),
        float(ego.velocity_mps[-1, 0]),
    )


def test_constant_velocity_by_hand() -> None:
    plan = planned(ConstantVelocity(horizon_s=2.0), observation_of(road_scene(speed_mps=7.0)))
    np.testing.assert_allclose(plan.position_m[-1], [14.0, 0.0], atol=1e-3)
    assert len(plan) == 21


def test_a_replay_is_of_its_own_scene() -> None:
    scene = road_scene()
    with pytest.raises(ReplayError, match="cannot be replayed in scene 'other'"):
        LogReplay(scene).reset(observation_of(replace(scene, id="other")))


def test_a_replay_drives_on_where_the_log_ends() -> None:
    scene = replace(road_scene(speed_mps=10.0), current_step=STEPS - 6)
    plan = planned(LogReplay(scene), observation_of(scene))
    np.testing.assert_allclose(np.diff(plan.position_m[:, 0]), 1.0, atol=1e-3)


def observed_at(scene: Scene, x_m: float, *, y_m: float = 0.0) -> Observation:
    """The scene now, with the ego's centre somewhere else than in the log."""
    return replace(observation_of(scene), ego=one_car(x_m - CAR.rear_axle_to_centre_m, y_m))


@pytest.mark.parametrize("late_m", [1.5, -1.5], ids=["late", "early"])
def test_a_replay_begins_beside_the_car_and_is_where_the_log_is_after_two_seconds(late_m: float) -> None:
    scene = road_scene(speed_mps=10.0)
    plan = planned(LogReplay(scene), observed_at(scene, -late_m, y_m=0.4))
    np.testing.assert_allclose(plan.position_m[0], [-late_m, 0.0], atol=1e-3)
    np.testing.assert_allclose(plan.position_m[20:41, 0], np.arange(20, 41) * 1.0, atol=1e-3)
    assert (np.diff(plan.position_m[:, 0]) > 0.9).all()


def test_a_replay_never_backs_up_to_a_log_that_stands() -> None:
    scene = road_scene(speed_mps=0.0)
    plan = planned(LogReplay(scene), observed_at(scene, 0.0))
    np.testing.assert_allclose(plan.position_m, 0.0, atol=1e-6)
    assert (plan.speed_mps == 0).all()


@each_rule
def test_a_free_road_is_driven_at_the_limit(name: str) -> None:
    _, y_m, speed_mps = end_of(road_scene(speed_mps=10.0), RULES[name])
    assert 10.8 < speed_mps < 12.3
    assert abs(y_m) < 0.3


@each_rule
def test_the_car_stops_behind_one_that_stands(name: str) -> None:
    bumper, _, speed_mps = end_of(road_scene(speed_mps=8.0, others=((40.0, 0.0, 0.0),), steps=LONG), RULES[name])
    assert 34.0 < bumper < 37.5  # the other's rear is at 37.75 m
    assert speed_mps < 0.3


@each_rule
def test_the_car_follows_a_slower_one(name: str) -> None:
    bumper, _, speed_mps = end_of(road_scene(speed_mps=8.0, others=((25.0, 0.0, 5.0),)), RULES[name])
    leader_rear = 25.0 + 6.0 * 5.0 - 2.25
    assert 2.0 < leader_rear - bumper < 15.0
    np.testing.assert_allclose(speed_mps, 5.0, atol=1.0)


@each_rule
@pytest.mark.parametrize("light", [SignalState.STOP, SignalState.GO])
def test_the_car_stops_at_red_and_not_at_green(name: str, light: SignalState) -> None:
    scene = road_scene(speed_mps=9.0, light=light, steps=LONG if light == SignalState.STOP else STEPS)
    bumper, _, speed_mps = end_of(scene, RULES[name])
    if light == SignalState.STOP:
        assert 46.0 < bumper < 50.0
        assert speed_mps < 0.3
    else:
        assert bumper > 54.0


@each_rule
def test_what_stands_beside_the_lane_is_no_reason_to_stop(name: str) -> None:
    bumper, _, _ = end_of(road_scene(speed_mps=10.0, others=((50.0, 3.5, 0.0),)), RULES[name])
    assert bumper > 58.0


def judged(
    speeds_mps: tuple[float, ...], scene: Scene, *, aside_m: tuple[tuple[float, float], ...] | None = None
) -> ProposalScores:
    """Scores of cars that drive for 4 s at these speeds, from one offset to the lane's middle to another."""
    observation, steps = observation_of(scene), 40
    ends = np.array(aside_m if aside_m is not None else [(0.0, 0.0)] * len(speeds_mps))
    x = observation.ego.rear_axle_m[0, 0] + np.array(speeds_mps)[:, None] * np.arange(steps + 1) * DT_S
    y = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * np.linspace(0, 1, steps + 1)
    drives = Trajectory(
        position_m=np.stack([x, y], axis=-1),
        heading_rad=np.zeros_like(x),
        speed_mps=np.broadcast_to(np.array(speeds_mps)[:, None], x.shape).copy(),
        point="rear-axle",
    )
    others = constant_velocity_forecast(scene, 0, num_steps=steps + 9, near=observation.ego)
    return score_proposals(drives, others, road=road_ahead(observation), vehicle=CAR, dt_s=DT_S, config=PDM_ADAPTED)


def road_ahead(observation: Observation) -> Road:
    return Road.ahead_of(observation.scene, observation.ego, vehicle=observation.vehicle, fallback_mps=15.0)


def test_the_score_of_free_driving_is_progress_by_hand() -> None:
    scores = judged((10.0, 5.0), road_scene())
    np.testing.assert_allclose(scores.total, [1.0, (5 * 0.5 + 5 + 2) / 12], atol=1e-3)
    assert np.isinf(scores.collision_step).all()


def test_driving_into_one_that_stands_scores_nothing() -> None:
    # Front bumper at 2.25 m, the other's rear at 17.75 m: 15.5 m at 10 m/s.
    scores = judged((10.0, 2.0), road_scene(others=((20.0, 0.0, 0.0),)))
    assert scores.total[0] == 0
    assert scores.collision_step.tolist() == [16.0, np.inf]
    assert scores.total[1] == pytest.approx(1.0, abs=1e-3)


def test_coming_too_near_costs_the_time_to_collision() -> None:
    # 4 s at 3.5 m/s leave 1.5 m: less than a second.
    scores = judged((3.5, 2.0), road_scene(others=((20.0, 0.0, 0.0),)))
    np.testing.assert_allclose(scores.total[0], (5 + 2) / 12, atol=1e-3)


def test_being_hit_from_behind_is_not_ones_own_fault() -> None:
    scores = judged((2.0,), road_scene(others=((-15.0, 0.0, 10.0),)))
    assert np.isinf(scores.collision_step).all()
    assert scores.total[0] == pytest.approx(1.0, abs=1e-3)


def test_leaving_the_road_scores_nothing() -> None:
    # The road ends at y = -2; the car's right side is at y - 0.95, and 0.3 m are forgiven.
    scores = judged((5.0, 5.0, 5.0), road_scene(), aside_m=((0.0, 0.0), (0.0, -1.3), (0.0, -1.4)))
    np.testing.assert_allclose(scores.total, [1.0, 1.0, 0.0], atol=1e-3)


def test_without_areas_a_road_edge_is_where_the_road_ends() -> None:
    edge = Polylines.of([np.array([[-80.0, -2.0], [300.0, -2.0]])])
    kerb = replace(
        straight_road(), drivable_areas=Polylines.of([]), road_edges=edge, road_edge_types=np.ones(1, np.int8)
    )
    scores = judged((5.0, 5.0, 5.0), replace(road_scene(), map=kerb), aside_m=((0.0, 0.0), (0.0, -1.3), (0.0, -1.4)))
    np.testing.assert_allclose(scores.total, [1.0, 1.0, 0.0], atol=1e-3)


def test_a_car_that_is_off_the_road_already_is_not_judged_by_it() -> None:
    scores = judged((5.0, 5.0), road_scene(), aside_m=((-1.4, -1.4), (-1.4, 0.0)))
    np.testing.assert_allclose(scores.total, 1.0, atol=1e-3)


def test_pdm_has_fifteen_proposals_and_takes_the_fastest_on_a_free_road() -> None:
    observation, config = observation_of(road_scene(speed_mps=10.0)), PDM_ADAPTED
    others = constant_velocity_forecast(observation.scene, observation.agent, num_steps=49, near=observation.ego)
    proposals = idm_proposals(
        observation,
        road_ahead(observation),
        others,
        offset_m=np.repeat(np.array(config.offsets_m), 5),
        speed_share=np.tile(np.array(config.speed_shares), 3),
        num_steps=40,
        config=config.idm,
    )
    assert proposals.heading_rad.shape == (15, 41)
    plan = planned(PdmClosed(config=config), observation)
    np.testing.assert_allclose(plan.speed_mps, proposals.speed_mps[4])
    np.testing.assert_allclose(plan.position_m[:, 1], 0, atol=1e-6)


@pytest.mark.parametrize(
    ("others", "speed_mps"),
    [
        pytest.param((), 15.0, id="nobody"),
        pytest.param(((30.0, 3.5, 12.0),), 15.0, id="slower"),
        pytest.param(((30.0, 3.5, 22.0),), 22.0, id="faster-beside"),
        pytest.param(((90.0, 3.5, 22.0),), 15.0, id="faster-far-away"),
    ],
)
def test_where_no_limit_is_known_one_drives_as_fast_as_others(
    others: tuple[tuple[float, float, float], ...], speed_mps: float
) -> None:
    scene = road_scene(others=others)
    lanes = replace(scene.map.lanes, speed_limit_known=np.zeros(4, np.bool_))
    road = road_ahead(observation_of(replace(scene, map=replace(scene.map, lanes=lanes))))
    assert road.speed_mps.max() == pytest.approx(speed_mps)
    assert road_ahead(observation_of(scene)).speed_mps[100] == pytest.approx(12.0)  # the limit


def test_pdm_brakes_in_an_emergency() -> None:
    # At 4 m/s with 1 m left nothing helps but braking, and the car does so from its first step.
    observation = observation_of(road_scene(speed_mps=4.0, others=((5.5, 0.0, 0.0),)))
    for config, braking_mps2 in ((PdmConfig(), -3.69), (PDM_ADAPTED, -4.05)):
        plan = planned(PdmClosed(config=config), observation)
        assert first_command_mps2(plan, observation) == pytest.approx(braking_mps2, rel=0.04)


def test_pdm_keeps_the_road_of_the_first_step() -> None:
    driver, observation = PdmClosed(), observation_of(road_scene())
    start = driver.reset(observation)
    first, state = driver.plan(start, observation)
    again, after = driver.plan(state, observation)
    assert after.road is state.road is start.road
    np.testing.assert_array_equal(again.position_m, first.position_m)


def test_no_proposals_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one offset"):
        PdmConfig(offsets_m=())


@each_rule
def test_bundled_scenes_are_driven(name: str) -> None:
    for scene in sample_scenes(3):
        result = simulate(scene, RULES[name], traffic=ReplayTraffic(), config=SimulationConfig(horizon_s=0.5))
        assert result.history.failure is None


def test_pdm_is_the_original_by_default_and_each_deviation_has_an_option() -> None:
    observation = observation_of(road_scene(speed_mps=10.0))
    original = planned(PdmClosed(), observation)
    assert original.speed_mps[1] == pytest.approx(9.7)  # 3 m/s2: no leader is known yet at the first step
    eager = planned(PdmClosed(config=PdmConfig(leader_every_steps=1)), observation)
    assert eager.speed_mps[1] > 10.0
    # An offset proposal in a bend to the left of 50 m radius, 1 m to the left, gets along faster than the centreline.
    angle = np.linspace(0, np.pi / 2, 60)
    bend = smooth_path(path_rows(50 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1)))
    road = replace(road_ahead(observation), path=bend, speed_mps=np.full(len(bend.points_m), 12.0), end_m=np.inf)
    others = constant_velocity_forecast(observation.scene, observation.agent, num_steps=40, near=observation.ego)
    along = []
    for by_own_length in (False, True):
        drives = idm_proposals(
            observation, road, others, offset_m=np.array([1.0]), speed_share=np.ones(1), num_steps=40,
            config=PdmConfig().idm, offset_by_own_length=by_own_length,
        )  # fmt: skip
        along.append(float(bend.project(drives.position_m[0, -1])[0]) - float(bend.project(drives.position_m[0, 0])[0]))
    assert along[1] / along[0] == pytest.approx(50 / 49, abs=0.01)
