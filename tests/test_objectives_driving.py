"""nuPlan's driving criteria as objectives: each by hand, in text, together, and in a search."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from driving_scenes import (
    DT_S,
    PLANNED_STEPS,
    driven_candidates,
    drives_along,
    observation_of,
    road_scene,
    sample_scenes,
    setting_of,
    straight_road,
)
from waycode import Planner
from waycode.baselines import LogReplay
from waycode.driving import Observation, Trajectory, VehicleState
from waycode.driving.collisions import find_conflicts
from waycode.objectives import (
    DRIVING_OBJECTIVE,
    OBJECTIVES,
    AtFaultCollision,
    BaseObjective,
    Candidates,
    ComfortLimits,
    ObjectiveError,
    OffRoad,
    RedLight,
    RoadReserve,
    RoomToBrake,
    RouteEnd,
    RouteProgress,
    SpeedLimit,
    TimeToCollision,
    driving,
    parse_objective,
)
from waycode.objectives.driving import TOTAL_WEIGHT
from waycode.planner import PlanStatus, View
from waycode.scene import MapFeatures, Scene, SignalState
from waycode.scene.geometry import forward
from waycode.scene.kinematics import COMFORT_BOUNDS, motion, within_comfort
from waycode.simulation.metrics.comfort import compute_dynamics
from waycode.simulation.rollout import SimulationConfig, simulate

TERMS: dict[str, BaseObjective] = {
    "at-fault-collision": AtFaultCollision(),
    "off-road": OffRoad(),
    "road-reserve": RoadReserve(),
    "room-to-brake": RoomToBrake(),
    "red-light": RedLight(),
    "route-end": RouteEnd(),
    "route-progress": RouteProgress(),
    "time-to-collision": TimeToCollision(),
    "speed-limit": SpeedLimit(),
    "comfort-limits": ComfortLimits(),
}
each_term = pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
# At 10 m/s with a limit of 12 m/s: 14 steps of 0.15 m/s each up to the limit, then 26 steps at it.
REACHABLE_M = 0.1 * (sum(10 + 0.15 * step for step in range(14)) + 26 * 12.0)


def costs(objective: BaseObjective, observation: Observation, drives: Trajectory) -> list[float]:
    return objective(driven_candidates(observation, drives)).tolist()


def levels(observation: Observation, drives: Trajectory, text: str = DRIVING_OBJECTIVE) -> np.ndarray:
    """Costs [K, M] of drives by an objective as text."""
    return parse_objective(text).levels(driven_candidates(observation, drives)).numpy()


# Each term by hand


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # 15.5 m between the boxes, 14.5 m with the margin: seen at 1.5 s, at 10 m/s
        pytest.param(AtFaultCollision(), 1 + (1 - 1.5 / 4) + 0.010, id="margin of 1 m"),
        pytest.param(AtFaultCollision(margin_ahead_m=0.0), 1 + (1 - 1.6 / 4) + 0.010, id="no margin"),
        pytest.param(AtFaultCollision(margin_ahead_m=3.0), 1 + (1 - 1.3 / 4) + 0.010, id="margin of 3 m"),
        pytest.param(AtFaultCollision(horizon_s=2.0), 1 + (1 - 1.5 / 2) + 0.010, id="horizon of 2 s"),
    ],
)
def test_a_collision_at_fault_costs_more_the_sooner_it_is(objective: AtFaultCollision, expected: float) -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    found = costs(objective, observation, drives_along(observation, 10.0, 1.0))
    assert found == [pytest.approx(expected), 0.0]


@pytest.mark.parametrize(
    ("speed_mps", "safe"), [pytest.param(0.0, True, id="from standstill"), pytest.param(5.0, False, id="at 5 m/s")]
)
def test_a_standing_agent_may_pass_closely(speed_mps: float, safe: bool) -> None:
    # All drives end half a metre behind the car ahead: within the margin of 1 m, not within that of 0.3 m.
    observation = observation_of(road_scene(speed_mps=speed_mps, others=((20.0, 0.0, 0.0),)))
    drives = drives_along(observation, 15.0 / (DT_S * PLANNED_STEPS))
    assert (costs(AtFaultCollision(), observation, drives) == [0.0]) == safe
    assert costs(AtFaultCollision(standing_margin_m=1.0), observation, drives) != [0.0]


def test_the_cost_of_a_collision_is_known_beforehand() -> None:
    np.testing.assert_allclose(AtFaultCollision().cost_at(np.array([0.0, 2.0, 4.0, 9.0])), [2.0, 1.5, 1.0, 1.0])


def test_sooner_collisions_are_worse() -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    fast, slow, stays = levels(observation, drives_along(observation, 12.0, 6.0, 0.0))[:, 0]
    assert fast > slow > stays == 0
    fast, slow = levels(observation, drives_along(observation, 10.2, 10.0))[:, 0]
    assert fast > slow  # in contact at the same sample


def leaving_the_road(observation: Observation, *, from_y_m: float = 0.0, by_m: float = 4.0) -> Trajectory:
    drives = drives_along(observation, 8.0)
    away = drives.position_m.copy()
    away[..., 1] += from_y_m - np.linspace(0, by_m, PLANNED_STEPS + 1)
    return replace(drives, position_m=away)


def test_off_road_is_the_share_of_time_off_it() -> None:
    # The road ends at y = -2 and 0.28 m are forgiven: off from y = -1.33 on, at 27 of the samples 0, 1, ..., 40.
    observation = observation_of(road_scene())
    assert costs(OffRoad(), observation, leaving_the_road(observation)) == [pytest.approx(27 / 41)]
    assert costs(OffRoad(), observation, leaving_the_road(observation, by_m=1.3)) == [0.0]


@pytest.mark.parametrize("sample", [21, 22])
def test_a_corner_off_the_road_at_a_single_sample_counts(sample: int) -> None:
    observation = observation_of(road_scene())
    drives = drives_along(observation, 8.0)
    away = drives.position_m.copy()
    away[:, sample, 1] -= 1.34  # 0.29 m off
    assert costs(OffRoad(), observation, replace(drives, position_m=away)) == [pytest.approx(1 / 41)]


@pytest.mark.parametrize(
    ("by_m", "expected"),
    [
        pytest.param(1.0, 0.0, id="on the road"),
        pytest.param(1.2, 0.15 / 0.3, id="0.15 m off"),
        pytest.param(4.0, 1.0, id="2.95 m off"),
    ],
)
def test_the_reserve_to_the_edge_is_used_up_by_the_farthest_corner(by_m: float, expected: float) -> None:
    observation = observation_of(road_scene())
    assert costs(RoadReserve(), observation, leaving_the_road(observation, by_m=by_m)) == [pytest.approx(expected)]


def test_of_two_drives_on_the_road_the_one_with_more_reserve_is_better() -> None:
    observation = observation_of(road_scene())
    near, far = (levels(observation, leaving_the_road(observation, by_m=by))[0] for by in (1.3, 1.0))
    assert near[0] == far[0] == 0
    assert near[1] > far[1] + 2


@pytest.mark.parametrize(
    ("start_m", "by_m", "dangerous"),
    [
        pytest.param(0.27, 0.0, False, id="0.27 m off, and stays so"),
        pytest.param(0.29, 0.0, False, id="0.29 m off, and stays so"),
        pytest.param(0.29, -0.5, False, id="0.29 m off, and comes back"),
        pytest.param(0.29, 0.3, True, id="0.29 m off, and gets farther"),
        pytest.param(0.31, 0.3, False, id="lost already"),
    ],
)
def test_who_has_nearly_left_the_road_may_not_get_farther(start_m: float, by_m: float, dangerous: bool) -> None:
    # The corner is 0.95 m to the right of the centre, and the road ends at y = -2.
    observation = observation_of(road_scene())
    drives = leaving_the_road(observation, from_y_m=-1.05 - start_m, by_m=by_m)
    assert (costs(OffRoad(), observation, drives)[0] > 0) == dangerous


@pytest.mark.parametrize("what", ["starts off the road", "no map of the road"])
def test_off_road_does_not_count_where_it_cannot(what: str) -> None:
    scene = road_scene()
    if what == "no map of the road":
        scene = replace(scene, map=MapFeatures(), route=None)
    observation = observation_of(scene)
    start_y_m = -3.0 if what == "starts off the road" else 0.0
    assert costs(OffRoad(), observation, leaving_the_road(observation, from_y_m=start_y_m)) == [0.0]


@pytest.mark.parametrize(
    ("light", "speed_mps", "expected"),
    [
        pytest.param(SignalState.STOP, 12.5, 1.0, id="red, 50 m in 4 s"),
        pytest.param(SignalState.STOP, 10.0, 1.0, id="red, 8.25 m before the line: 6.1 m/s2"),
        pytest.param(SignalState.STOP, 9.0, 81 / 24.5 / 2.5 - 1, id="red, 12.25 m before the line: 3.3 m/s2"),
        pytest.param(SignalState.STOP, 6.0, 0.0, id="red, 24.25 m before the line: 0.7 m/s2"),
        pytest.param(SignalState.STOP, 20.0, 0.0, id="red, too fast to stop: 57 m at 3.5 m/s2"),
        pytest.param(SignalState.GO, 12.5, 0.0, id="green"),
    ],
)
def test_red_lights_are_walls(light: SignalState, speed_mps: float, expected: float) -> None:
    observation = observation_of(road_scene(speed_mps=speed_mps, light=light))
    drives = drives_along(observation, speed_mps)
    assert costs(RedLight(), observation, drives) == [pytest.approx(expected, abs=1e-3)]
    assert levels(observation, drives)[0, 0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("speed_mps", "satisfied", "sentence"),
    [
        pytest.param(12.5, False, "crosses the stop line of a red light within 4 s", id="crosses"),
        pytest.param(10.0, False, "leaves no room to brake for a red light after 4 s", id="6.1 m/s2"),
        pytest.param(9.0, True, "leaves little room to brake for a red light after 4 s", id="3.3 m/s2"),
        pytest.param(6.0, True, "crosses no red light within 4 s", id="0.7 m/s2"),
    ],
)
def test_a_red_light_says_what_is_wrong(speed_mps: float, satisfied: bool, sentence: str) -> None:
    observation = observation_of(road_scene(speed_mps=speed_mps, light=SignalState.STOP))
    (verdict,) = RedLight().met(driven_candidates(observation, drives_along(observation, speed_mps)))
    assert verdict.satisfied is satisfied
    assert verdict.sentence == sentence


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        # After 4 s at 10 m/s, 50 m are needed to stop at 1 m/s2. The other stands, or may stop at 3.5 m/s2.
        pytest.param((70.5, 0.0, 0.0), 100 / 50 / 2.5 - 1, id="stands 25 m ahead"),
        pytest.param((85.5, 0.0, 0.0), 0.0, id="stands 40 m ahead"),
        pytest.param((13.0, 0.0, 10.0), 100 / (2 * (7.5 + 100 / 7)) / 2.5 - 1, id="8.5 m ahead, as fast"),
        pytest.param((15.5, 0.0, 10.0), 0.0, id="11 m ahead, as fast"),
        pytest.param((55.5, 3.5, 0.0), 0.0, id="stands in the other lane"),
        pytest.param((-10.0, 0.0, 10.0), 0.0, id="behind"),
        pytest.param((95.5, 0.0, -10.0), 0.0, id="oncoming"),
    ],
)
def test_there_is_room_to_brake_behind_the_road_user_ahead(other: tuple[float, float, float], expected: float) -> None:
    observation = observation_of(road_scene(others=(other,)))
    found = costs(RoomToBrake(), observation, drives_along(observation, 10.0))
    assert found == [pytest.approx(max(0.0, expected), abs=1e-6)]


def test_a_fast_agent_sees_the_end_of_its_route_in_time() -> None:
    scene = road_scene(speed_mps=25.0)  # the map ends 300 m ahead
    observation = observation_of(scene)
    assert costs(RouteEnd(), observation, drives_along(observation, 25.0)) == [0.0]
    near = observation_of(replace(scene, map=straight_road(200.0)))
    assert 0 < costs(RouteEnd(), near, drives_along(near, 25.0))[0] < 1


@pytest.mark.parametrize(
    ("speed_mps", "y_m", "objective", "progress_m"),
    [
        pytest.param(10.0, 0.0, RouteProgress(), 40.0, id="along the path"),
        pytest.param(10.0, 0.4, RouteProgress(), 40.0, id="within the free width"),
        pytest.param(10.0, 1.5, RouteProgress(), 30.0, id="1 m beyond the free width"),
        pytest.param(10.0, 1.5, RouteProgress(free_width_m=1.0, deviation_weight=2.0), 39.0, id="parameters"),
        pytest.param(0.0, 0.0, RouteProgress(), 0.0, id="standing"),
        pytest.param(20.0, 0.0, RouteProgress(), REACHABLE_M, id="more than is possible counts as all"),
    ],
)
def test_progress_is_a_share_of_what_a_free_road_allows(
    speed_mps: float, y_m: float, objective: RouteProgress, progress_m: float
) -> None:
    observation = observation_of(road_scene(speed_mps=10.0))
    found = costs(objective, observation, drives_along(observation, speed_mps, y_m=y_m))
    assert found == [pytest.approx(1 - progress_m / REACHABLE_M, abs=2e-3)]


@pytest.mark.parametrize(("gap_s", "expected"), [(0.7, 1.0), (1.3, 0.0)])
def test_time_to_collision_is_kept_or_not(gap_s: float, expected: float) -> None:
    observation = observation_of(road_scene(others=((4.5 + 10 * gap_s + 40, 0.0, 0.0),)))
    assert costs(TimeToCollision(), observation, drives_along(observation, 10.0)) == [expected]


@pytest.mark.parametrize(
    ("speed_mps", "known", "expected"),
    [(12.0, True, 0.0), (13.0, True, 1 / 2.23), (20.0, True, 1.0), (20.0, False, 0.0)],
    ids=["at the limit", "1 m/s over it", "far over it", "no limit is known"],
)
def test_overspeed_costs_up_to_one(speed_mps: float, known: bool, expected: float) -> None:
    scene = road_scene()
    lanes = replace(scene.map.lanes, speed_limit_known=np.full(4, known))
    observation = observation_of(replace(scene, map=replace(scene.map, lanes=lanes)))
    assert costs(SpeedLimit(), observation, drives_along(observation, speed_mps)) == [pytest.approx(expected)]


@pytest.mark.parametrize(
    ("braking_mps2", "expected"), [(3.0, 0.0), (4.0, 0.0), (6.0, 6 / 4.05 / 2), (9.0, 1.0)], ids=str
)
def test_comfort_rises_from_a_half_to_one_at_twice_a_bound(braking_mps2: float, expected: float) -> None:
    observation = observation_of(without_past(road_scene(speed_mps=40.0)))
    drives = drives_along(observation, 40.0)
    drives = replace(drives, speed_mps=drives.speed_mps - braking_mps2 * DT_S * np.arange(PLANNED_STEPS + 1))
    assert costs(ComfortLimits(), observation, drives) == [pytest.approx(expected, abs=1e-6)]


def test_comfort_is_measured_as_everywhere() -> None:
    rng = np.random.default_rng(0)
    shape = (40, PLANNED_STEPS + 1)
    heading = np.cumsum(rng.normal(0, 0.01, shape), axis=1)
    speed = 8 + np.cumsum(rng.normal(0, 0.05, (40, 1)) * rng.uniform(0, 5, (40, 1)) + np.zeros(shape), axis=1)
    drives = Trajectory(position_m=np.zeros((*shape, 2)), heading_rad=heading, speed_mps=speed, point="rear-axle")
    kept = within_comfort(motion(speed[..., None] * forward(heading), heading, dt_s=0.1))
    assert 0 < kept.sum() < 40
    found = costs(ComfortLimits(), observation_of(without_past(road_scene())), drives)
    np.testing.assert_array_equal(np.array(found) == 0, kept)


def test_comfort_counts_the_past_where_it_makes_the_next_steps_uncomfortable() -> None:
    scene = road_scene(speed_mps=10.0)
    observation = observation_of(scene)
    constant = drives_along(observation, 6.0)
    (with_past,) = costs(ComfortLimits(), observation, constant)
    (alone,) = costs(ComfortLimits(), observation_of(without_past(scene)), constant)
    assert alone == 0
    assert with_past > 0.5  # from 10 to 6 m/s in an instant


def test_a_share_of_the_comfort_bounds_is_a_reserve() -> None:
    observation = observation_of(without_past(road_scene(speed_mps=40.0)))
    drives = drives_along(observation, 40.0)
    drives = replace(drives, speed_mps=drives.speed_mps - 3.9 * DT_S * np.arange(PLANNED_STEPS + 1))
    assert costs(ComfortLimits(bound_share=0.8), observation, drives) == [pytest.approx(3.9 / 4.05 / 2, abs=1e-6)]
    assert costs(ComfortLimits(bound_share=0.97), observation, drives) == [0.0]


def without_past(scene: Scene) -> Scene:
    """A scene whose tracks are observed from the current step on."""
    valid = scene.tracks.valid.copy()
    valid[:, : scene.current_step] = False
    fields = ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps")
    unseen = {name: getattr(scene.tracks, name).copy() for name in fields}
    for values in unseen.values():
        values[:, : scene.current_step] = 0  # what was not observed is zero
    return replace(scene, tracks=replace(scene.tracks, valid=valid, **unseen))


@pytest.mark.parametrize("before", [0, 5, 30], ids=lambda count: f"{count} steps after the start")
def test_comfort_of_a_drive_so_far_is_that_of_nuplans_score(before: int) -> None:
    scene = sample_scenes(1)[0]
    rollout = simulate(scene, LogReplay(scene), config=SimulationConfig(horizon_s=0.1 * (before + 40)))
    ego, observation = rollout.history.ego, observation_of(scene)
    states = [
        VehicleState(
            rear_axle_m=ego.rear_axle_m[[step]],
            heading_rad=ego.heading_rad[[step]],
            speed_mps=ego.velocity_mps[[step], 0],
            acceleration_mps2=ego.acceleration_mps2[[step], 0],
            steering_rad=np.zeros(1),
            yaw_rate_radps=ego.yaw_rate_radps[[step]],
        )
        for step in range(before + 41)
    ]
    drive = Trajectory.of_states(states[before:])
    past = tuple(states[:before][-driving.PAST_STATES :])
    setting = replace(setting_of(observation), known_vehicle=ego.vehicle, known_state=states[before], known_past=past)
    shares = ComfortLimits()._shares(Candidates.of_trajectory(drive, setting))
    dynamics = compute_dynamics(ego)
    assert dynamics is not None
    still = slice(before - 11 if before == 30 else 0, None)
    for name in ("longitudinal_acceleration_mps2", "longitudinal_jerk_mps3", "yaw_rate_radps"):
        least, greatest = COMFORT_BOUNDS[name]
        expected = max(getattr(dynamics, name)[still].max() / greatest, getattr(dynamics, name)[still].min() / least)
        assert shares[name] == pytest.approx(expected, abs=0.02), name


# The terms together


def test_progress_within_the_limit_is_preferred() -> None:
    observation = observation_of(road_scene(speed_mps=10.0))  # the limit is 12 m/s
    danger, cost = levels(observation, drives_along(observation, 2.0, 6.0, 11.0, 20.0)).T
    assert (danger == 0).all()
    assert cost.argmin() == 2
    assert cost[0] > cost[1] > cost[2]


def test_the_second_level_is_one_minus_nuplans_weighted_mean() -> None:
    observation = observation_of(without_past(road_scene(speed_mps=10.0)))
    cost = levels(observation, drives_along(observation, 6.0, 13.0))[:, 1]
    progress, overspeed = np.array([24.0 / REACHABLE_M, 1.0]), np.array([0.0, 1 / 2.23])
    worth = (5 * progress + 5 + 4 * (1 - overspeed) + 2) / 16  # no conflicts, all comfortable
    np.testing.assert_allclose(cost, TOTAL_WEIGHT * (1 - worth), atol=5e-3)


def test_without_its_term_progress_does_not_count() -> None:
    observation = observation_of(without_past(road_scene()))
    text = DRIVING_OBJECTIVE.replace("5 * route-progress + ", "")
    cost = levels(observation, drives_along(observation, 2.0, 6.0, 11.0), text)[:, 1]
    np.testing.assert_allclose(cost, cost[0])


def test_deviation_from_the_route_costs() -> None:
    observation = observation_of(road_scene())
    on, beside = (levels(observation, drives_along(observation, 8.0, y_m=y))[0, 1] for y in (0.0, 1.5))
    assert beside > on


@pytest.mark.parametrize(("asked", "danger"), [(True, True), (False, False)])
def test_leaving_the_road_is_dangerous_if_asked(asked: bool, danger: bool) -> None:
    observation = observation_of(road_scene())
    text = DRIVING_OBJECTIVE if asked else DRIVING_OBJECTIVE.replace(" + off-road", "")
    assert (levels(observation, leaving_the_road(observation), text)[0, 0] > 0) == danger


@pytest.mark.parametrize(("asked", "danger"), [(True, True), (False, False)])
def test_collisions_are_dangerous_if_asked(asked: bool, danger: bool) -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    text = DRIVING_OBJECTIVE if asked else DRIVING_OBJECTIVE.replace("at-fault-collision + ", "")
    assert (levels(observation, drives_along(observation, 10.0), text)[0, 0] > 0) == danger


# Text


@each_term
def test_terms_can_be_written_and_read(term: BaseObjective) -> None:
    assert OBJECTIVES[term.name] is type(term)
    assert str(term) == term.name
    assert parse_objective(term.name) == term
    assert term.level_names == (term.name,)
    assert not term.differentiable
    other = replace(term, horizon_s=2.5)  # type: ignore[type-var]  # a dataclass
    assert str(other) == f"{term.name}(horizon_s=2.5)"
    assert parse_objective(str(other)) == other


def test_the_driving_objective_is_text_that_is_read_back() -> None:
    objective = parse_objective(DRIVING_OBJECTIVE)
    assert str(objective) == DRIVING_OBJECTIVE
    assert len(objective.level_names) == 2
    names = re.sub(r"\(.*?\)", "", DRIVING_OBJECTIVE)  # without parameters
    assert set(re.findall(r"[a-z-]+[a-z]", names)) - {"then"} == set(TERMS)
    nuplans = DRIVING_OBJECTIVE.removesuffix(" + 4 * road-reserve + 5 * room-to-brake")
    assert sum(map(float, re.findall(r"(\d+) \*", nuplans))) == TOTAL_WEIGHT


def test_every_part_of_the_cost_is_explained() -> None:
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    candidates = driven_candidates(observation, drives_along(observation, 10.0, 2.0))
    explained = parse_objective(DRIVING_OBJECTIVE).explain(candidates)
    assert set(explained) == set(TERMS)
    for name, term in TERMS.items():
        torch.testing.assert_close(explained[name], term(candidates))


@each_term
def test_terms_of_all_candidates_are_those_of_each(term: BaseObjective) -> None:
    observation = observation_of(road_scene(others=((25.0, 0.5, 2.0),), light=SignalState.STOP))
    drives = drives_along(observation, 2.0, 9.0, 13.0, 16.0)
    speed = drives.speed_mps.copy()
    speed[:, 0] = 10.0  # all candidates start in the same state
    drives = replace(drives, speed_mps=speed)
    for index, cost in enumerate(costs(term, observation, drives)):
        alone = Trajectory.stack([drives.select(index)])
        assert costs(term, observation, alone) == [pytest.approx(cost)]


@each_term
def test_a_horizon_beyond_the_candidates_is_refused(term: BaseObjective) -> None:
    observation = observation_of(road_scene())
    short = drives_along(observation, 8.0).samples(slice(0, 31))
    with pytest.raises(ObjectiveError, match=r"the driving horizon is 4 s, expected 1\.5 to 3 s"):
        term(driven_candidates(observation, short))


# Candidates made of trajectories


def test_candidates_of_a_trajectory_are_the_trajectory() -> None:
    observation = observation_of(road_scene())
    drives = drives_along(observation, 5.0, 10.0)
    candidates = driven_candidates(observation, drives)
    assert (len(candidates), candidates.num_steps, candidates.num_tokens) == (2, PLANNED_STEPS, 0)
    assert candidates.trajectory is drives  # exact: speeds are not differences of positions
    centre = drives.at_centre(observation.vehicle).position_m[:, 1:]
    np.testing.assert_array_equal(candidates.position_m.numpy(), centre)
    np.testing.assert_allclose(candidates.speed_mps.numpy(), drives.speed_mps[:, 1:], atol=1e-5)
    assert (candidates.std_m == 0).all()
    assert candidates.dt_s == DT_S


def test_decoded_candidates_as_a_trajectory_begin_with_the_exact_state() -> None:
    observation = observation_of(road_scene(speed_mps=10.0))
    drives = drives_along(observation, 5.0, 10.0)
    position = torch.tensor(drives.at_centre(observation.vehicle).position_m[:, 1:])
    decoded = Candidates(
        position_m=position,
        std_m=torch.ones_like(position),
        num_tokens=3,
        dt_s=DT_S,
        setting=setting_of(observation),
    )
    trajectory = decoded.trajectory
    assert trajectory.point == "centre"
    assert trajectory.position_m.shape == (2, PLANNED_STEPS + 1, 2)
    np.testing.assert_array_equal(trajectory.position_m[:, 0], observation.ego.centre_m(observation.vehicle)[[0, 0]])
    np.testing.assert_array_equal(trajectory.speed_mps[:, 0], [10.0, 10.0])
    np.testing.assert_allclose(trajectory.speed_mps[:, 2:], drives.speed_mps[:, 2:], atol=1e-9)


def test_what_terms_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: object, **options: object) -> object:
        calls.append(options)
        return find_conflicts(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(driving, "find_conflicts", counted)
    observation = observation_of(road_scene(others=((20.0, 0.0, 0.0),)))
    candidates = driven_candidates(observation, drives_along(observation, 10.0, 2.0))
    parse_objective(DRIVING_OBJECTIVE).levels(candidates)
    assert len(calls) == 1
    AtFaultCollision(margin_ahead_m=2.0)(candidates)  # another margin is another computation
    assert len(calls) == 2
    parse_objective(DRIVING_OBJECTIVE).levels(candidates.select(slice(0, 1)))  # other candidates share nothing
    assert len(calls) == 3


def test_shared_results_belong_to_function_and_arguments() -> None:
    observation, asked = observation_of(road_scene()), []

    def scaled(candidates: Candidates, factor: float) -> Tensor:
        asked.append(factor)
        return factor * candidates.travelled_m[:, -1]

    candidates = driven_candidates(observation, drives_along(observation, 5.0))
    first, again, other = (candidates.shared(scaled, factor) for factor in (1.0, 1.0, 2.0))
    assert first is again
    assert float(other) == 2 * float(first)
    assert asked == [1.0, 2.0]


# In a search


@pytest.fixture(scope="module")
def view() -> View:
    return Planner.from_pretrained("sumo-small").encode(sample_scenes(1)[0])


@each_term
def test_a_plan_can_be_searched_for_by_each_term(term: BaseObjective, view: View) -> None:
    plan = view.plan(term)
    assert plan.status == PlanStatus.FOUND
    assert list(plan.costs) == [term.name]
    assert plan.levels == pytest.approx((plan.costs[term.name],), abs=1e-6)


def test_a_plan_can_be_searched_for_by_text(view: View) -> None:
    plan = view.plan(DRIVING_OBJECTIVE, beam_width=2)
    assert plan.status == PlanStatus.FOUND
    assert set(plan.costs) == set(TERMS)
    weights = {"route-progress": 5, "time-to-collision": 5, "speed-limit": 4, "comfort-limits": 2}
    assert plan.levels[0] == pytest.approx(
        sum(plan.costs[name] for name in ("at-fault-collision", "off-road", "red-light", "route-end")), abs=1e-6
    )
    assert plan.levels[1] == pytest.approx(sum(weight * plan.costs[name] for name, weight in weights.items()), abs=1e-5)
    assert plan.tokens == view.plan(parse_objective(DRIVING_OBJECTIVE), beam_width=2).tokens
    assert plan.levels <= view.plan(DRIVING_OBJECTIVE).levels
