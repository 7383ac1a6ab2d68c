"""Objectives: by hand, all at once = one by one, anywhere in the plane, and their gradients."""

from dataclasses import replace
from math import pi, radians

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely import LineString, Polygon

from roads import STEPS, arc, candidates_in, moved, road, shifted, straight, wiggly
from waycode.objectives import (
    BaseObjective,
    Candidates,
    Collision,
    Comfort,
    GoalPoint,
    KeepDistance,
    LaneChange,
    LeftTurn,
    ObjectiveError,
    Reconstruction,
    RightTurn,
    RoadEdge,
    RouteFollowing,
    Setting,
    SlowDown,
    SpeedProfile,
    StopAt,
    TerminalVariance,
)
from waycode.objectives.comfort import comfort_quantities
from waycode.scene import MapFeatures
from waycode.scene.frames import rotate
from waycode.scene.geometry import box_corners
from waycode.scene.geometry import boxes_overlap as boxes_overlap_in_numpy
from waycode.scene.geometry_torch import PolylineSegments, boxes_overlap, segments_touch_box
from waycode.scene.kinematics import motion, within_comfort

SEEDS = st.integers(0, 2**31 - 1)
EVERY_OBJECTIVE: list[BaseObjective] = [
    LeftTurn(min_angle_rad=2.0),
    RightTurn(min_angle_rad=2.0),
    LaneChange(1),
    SlowDown(3.0),
    SpeedProfile((0.0, 4.0, 8.0), (10.0, 4.0, 6.0)),
    StopAt(20.0, 3.0, frame="agent"),
    StopAt(distance_m=25.0, by_s=6.0),
    GoalPoint(30.0, 5.0, frame="agent"),
    GoalPoint(10.0, 1.0, at_s=2.0, frame="agent"),
    RouteFollowing(),
    KeepDistance(),
    RoadEdge(margin_m=0.5),
    Collision(margin_m=1.0),
    Comfort(),
    Reconstruction(),
    TerminalVariance(),
]
each_objective = pytest.mark.parametrize("objective", EVERY_OBJECTIVE, ids=str)


def cost(objective: BaseObjective, candidates: Candidates) -> float:
    return float(objective(candidates)[0])


@pytest.mark.parametrize(
    ("degrees", "left", "right"),
    [(30, -radians(30), 0.0), (45, -pi / 4, 0.0), (90, -pi / 4, 0.0), (-30, 0.0, -radians(30)), (0, 0.0, 0.0)],
)
def test_turns(degrees: float, left: float, right: float) -> None:
    candidates = candidates_in(road(), arc(turn_rad=radians(degrees)))
    assert cost(LeftTurn(), candidates) == pytest.approx(left, abs=1e-6)
    assert cost(RightTurn(), candidates) == pytest.approx(right, abs=1e-6)


def test_only_turns_to_the_one_side_count() -> None:
    there, back = arc(turn_rad=0.4), arc(turn_rad=-0.4, from_rad=0.4)
    path = np.concatenate([there[::2] / 2, there[-1] / 2 + back[::2] / 2])
    assert cost(LeftTurn(), candidates_in(road(), path)) == pytest.approx(-0.4, abs=0.01)
    assert cost(RightTurn(), candidates_in(road(), path)) == pytest.approx(-0.4, abs=0.01)


@pytest.mark.parametrize(("max_curvature", "penalty"), [(0.10, 10.0), (0.15, 0.0)])
def test_sharp_turns_are_rejected(max_curvature: float, penalty: float) -> None:
    # 1 rad over 79 changes between steps of 0.1 m: a curvature of 1 / 7.9 = 0.127 / m
    candidates = candidates_in(road(), arc(turn_rad=1.0, speed_mps=1.01))
    assert candidates.curvature_1pm.numpy() == pytest.approx(1 / 79 / 0.101, rel=1e-6)
    assert cost(LeftTurn(max_curvature_1pm=max_curvature), candidates) == pytest.approx(penalty - pi / 4)


def test_who_hardly_moves_turns_nowhere() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, (STEPS, 2))
    candidates = candidates_in(road(), noise)
    assert cost(LeftTurn(), candidates) == 0
    assert candidates.heading_rad.abs().max() == 0  # that of the current step


def test_a_stop_within_a_turn_loses_no_heading() -> None:
    path = arc(turn_rad=0.6)
    halt = np.concatenate([path[:40], np.repeat(path[39:40], 10, axis=0), path[40:70]])
    expected = 0.6 * 69 / 79
    assert cost(LeftTurn(min_angle_rad=9.0), candidates_in(road(), halt)) == pytest.approx(-expected, abs=1e-6)
    assert candidates_in(road(), halt).curvature_1pm.max().item() == pytest.approx(0.6 / 79, abs=1e-6)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (SlowDown(), 5.0),
        (SlowDown(12.0), 0.0),
        (SpeedProfile((0.0,), (7.0,)), 3.0),
        (SpeedProfile((0.0, 8.0), (10.0, 2.0)), 8 * 81 / 2 / 80),  # 0.1, 0.2, ... 8.0 m/s too fast
        (GoalPoint(80.0, 3.0), 3.0),
        (GoalPoint(20.0, 0.0, at_s=2.0), 0.0),
        (GoalPoint(20.0, 0.0, at_s=2.4), 4.0),
        (StopAt(75.5, 0.0), 2.5 + 10.0),  # x = 71 to 80 in the last second: 2.5 m off on average
        (StopAt(distance_m=75.5), 2.5 + 10.0),
        (RouteFollowing(), -80.0),
        (KeepDistance(), 57.5 / 20),  # 17 m wanted behind x = 25.5: lacks 3.5, 7.5, 11.5, 15.5, 19.5 at x = 12, 16, ...
        (KeepDistance(0.5, standstill_m=1.0), (0.5 + 4.5 + 8.5) / 20),  # 6 m wanted: at x = 20, 24, 28
        (RoadEdge(), 0.0),
        (RoadEdge(margin_m=1.5), STEPS * 0.5),  # the edge is 2 m from the centre, the disc 1 m wide
        (Comfort(), 0.0),
        (Reconstruction(), 0.0),
        (TerminalVariance(), 2**0.5),
    ],
    ids=str,
)
def test_driving_on_straight(objective: BaseObjective, expected: float) -> None:
    assert cost(objective, candidates_in(road(), straight())) == pytest.approx(expected, abs=1e-4)


def test_slowing_down_in_between() -> None:
    path = straight()
    path[40:, 0] = path[39, 0] + 0.4 * np.arange(1, 41)  # 4 m/s from 4 s on
    candidates = candidates_in(road(), path)
    assert cost(SlowDown(3.0, from_s=4.0), candidates) == pytest.approx(1.0)
    assert cost(SlowDown(3.0, from_s=3.9), candidates) == pytest.approx(7.0)
    assert cost(SlowDown(3.0, from_s=1.0, until_s=2.0), candidates) == pytest.approx(7.0)


@pytest.mark.parametrize("frame_y_m", [0.0, 3.5])
def test_a_point_as_the_agent_sees_it(frame_y_m: float) -> None:
    scene = moved(road(start_y_m=frame_y_m), angle_rad=pi / 2, by_m=(100.0, 0.0))
    setting = Setting(scene=scene, agent=0, dtype=torch.float64)
    # 10 m ahead is up the y axis, 2 m to the left is towards -x
    goal = [100.0 - frame_y_m - 2.0, 10.0]
    candidates = candidates_in(scene, np.tile(goal, (STEPS, 1)))
    assert setting.start_heading_rad == pytest.approx(pi / 2)
    assert cost(GoalPoint(10.0, 2.0, frame="agent"), candidates) == pytest.approx(0.0, abs=1e-4)
    assert cost(GoalPoint(goal[0], goal[1]), candidates) == pytest.approx(0.0, abs=1e-4)


def test_reconstruction_of_a_given_trajectory() -> None:
    target, valid = straight(y_m=2.0), np.arange(STEPS) < 10
    assert cost(Reconstruction(positions_m=target), candidates_in(road(), straight())) == pytest.approx(2.0)
    target[10:] += 50
    masked = Reconstruction(positions_m=target, valid=valid)
    assert cost(masked, candidates_in(road(), straight())) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("y_m", "steps", "depth"), [(-0.9, 0, 0.0), (-1.2, STEPS, 0.2), (0.0, 0, 0.0), (8.5, STEPS, 0.5)]
)
def test_contact_with_the_road_edge(y_m: float, steps: int, depth: float) -> None:
    explained = RoadEdge().explain(candidates_in(road(start_y_m=y_m), straight(y_m=y_m)))
    assert explained["road-edge.contact_steps"].item() == steps
    assert explained["road-edge.depth_m"].item() == pytest.approx(depth, abs=1e-5)
    assert explained["road-edge"].item() == pytest.approx(steps * (1 + depth), abs=1e-3)


@pytest.mark.parametrize(
    ("other_m", "steps"), [((30.0, 0.0), 9), ((30.0, 1.9), 9), ((30.0, 2.1), 0), ((200.0, 0.0), 0)], ids=str
)
def test_driving_into_a_car_that_stands(other_m: tuple[float, float], steps: int) -> None:
    candidates = candidates_in(road(other_m=other_m), straight())  # boxes of 4.5 m: x from 26 to 34
    explained = Collision().explain(candidates)
    assert explained["collision.contact_steps"].item() == steps
    assert (explained["collision.depth_m"].item() > 0) == (steps > 0)


def test_others_move_on_or_as_recorded() -> None:
    scene = road()
    fast = replace(scene.tracks, vx_mps=np.full_like(scene.tracks.vx_mps, 10.0))  # but its recorded place stays
    candidates = candidates_in(replace(scene, tracks=fast), straight())
    assert cost(Collision(), candidates) == 0
    assert cost(Collision(others="recorded"), candidates) > 9
    assert cost(KeepDistance(), candidates) == 0  # 30 m ahead: 25.5 m gap, 17 m wanted


def test_nobody_else_is_there() -> None:
    scene = road()
    gone = scene.tracks.valid.copy()
    gone[1] = False
    candidates = candidates_in(replace(scene, tracks=replace(scene.tracks, valid=gone)), straight())
    assert [cost(one, candidates) for one in (Collision(), Collision(others="recorded"), KeepDistance())] == [0, 0, 0]


def test_leaving_the_route() -> None:
    aside = candidates_in(road(start_y_m=3.0), straight(y_m=3.0))
    explained = RouteFollowing().explain(aside)
    assert explained["route-following.progress_m"].item() == pytest.approx(80.0, abs=1e-4)
    assert explained["route-following.deviation_m"].item() == pytest.approx(2.0, abs=1e-4)
    # Without a route, the lane under the agent is as good.
    free = candidates_in(replace(road(start_y_m=3.0), route=None), straight(y_m=3.0))
    assert cost(RouteFollowing(), free) == pytest.approx(-80.0, abs=1e-4)


def test_braking_too_hard() -> None:
    time_s = 0.1 * np.arange(1, STEPS + 1)
    x = 50 * time_s - 2.5 * time_s**2  # -5 m/s2 where -4.05 is the bound
    explained = Comfort().explain(candidates_in(road(speed_mps=50.0), np.stack([x, 0 * x], axis=-1)))
    assert explained["comfort"].item() == pytest.approx(5 / 4.05 - 1, abs=1e-6)
    assert explained["comfort.longitudinal_acceleration_mps2"].item() == pytest.approx(5 / 4.05 - 1, abs=1e-6)


@given(SEEDS)
@settings(max_examples=20)
def test_comfort_is_that_of_the_metric(seed: int) -> None:
    candidates = candidates_in(road(), wiggly(seed))
    measured = motion(candidates.velocity_mps.numpy(), candidates.heading_rad.numpy(), dt_s=0.1)
    for name, values in comfort_quantities(candidates).items():
        np.testing.assert_allclose(values.numpy(), getattr(measured, name), atol=1e-9)
    assert np.array_equal(Comfort()(candidates).numpy() == 0, within_comfort(measured))


@given(SEEDS)
@settings(max_examples=50)
def test_boxes_overlap_as_in_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    centre, heading = random.uniform(-3, 3, (2, 40, 2)), random.uniform(-4, 4, (2, 40))
    size = random.uniform(0.5, 5, (2, 40, 2))
    corners = [
        box_corners(centre[one], heading[one], length_m=size[one, :, 0], width_m=size[one, :, 1]) for one in (0, 1)
    ]
    found = boxes_overlap(
        torch.tensor(centre[1] - centre[0]),
        torch.tensor(heading[0]),
        torch.tensor(heading[1]),
        half_size_m=torch.tensor(size[0] / 2),
        other_half_size_m=torch.tensor(size[1] / 2),
    )
    assert np.array_equal(found.numpy(), boxes_overlap_in_numpy(corners[0], corners[1]))


@given(SEEDS)
@settings(max_examples=50)
def test_segments_touch_boxes_as_in_shapely(seed: int) -> None:
    random = np.random.default_rng(seed)
    lines = list(random.uniform(-6, 6, (3, 4, 2)))
    centre, heading = random.uniform(-5, 5, (20, 2)), random.uniform(-4, 4, 20)
    size = np.ones(20)
    corners = box_corners(centre, heading, length_m=4.5 * size, width_m=2.0 * size)
    touched = segments_touch_box(
        torch.tensor(centre),
        torch.tensor(heading),
        PolylineSegments.of(lines, dtype=torch.float64),
        length_m=4.5,
        width_m=2.0,
    )
    expected = [any(Polygon(box).intersects(LineString(one)) for one in lines) for box in corners]
    assert touched.tolist() == expected


@each_objective
@given(SEEDS)
@settings(max_examples=5)
def test_all_at_once_is_one_by_one(objective: BaseObjective, seed: int) -> None:
    candidates = candidates_in(road(), wiggly(seed))
    together = objective(candidates)
    for index in range(len(candidates)):
        alone = objective(candidates.select(slice(index, index + 1)))
        torch.testing.assert_close(together[index : index + 1], alone, atol=1e-9, rtol=0)


@each_objective
@given(SEEDS, st.floats(-3, 3), st.floats(-200, 200))
@settings(max_examples=5)
def test_where_in_the_world_does_not_matter(
    objective: BaseObjective, seed: int, angle_rad: float, shift_m: float
) -> None:
    by_m = (shift_m, -2 * shift_m)
    paths, scene = wiggly(seed), road()
    here = objective(candidates_in(scene, paths))
    there = moved(scene, angle_rad=angle_rad, by_m=by_m)
    again = objective(candidates_in(there, rotate(paths, angle_rad) + np.asarray(by_m)))
    torch.testing.assert_close(again, here, atol=0.02, rtol=1e-3)  # the scene is kept in float32


@pytest.mark.parametrize("objective", [one for one in EVERY_OBJECTIVE if one.differentiable], ids=str)
def test_gradients(objective: BaseObjective) -> None:
    scene = road(other_m=(25.0, 1.0))
    position = torch.tensor(wiggly(3, count=2), requires_grad=True)
    std = torch.rand(2, STEPS, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    setting = Setting(scene=scene, agent=0, dtype=torch.float64)

    def costs(position: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
        return objective(Candidates(position_m=position, std_m=std, num_tokens=3, dt_s=0.1, setting=setting))

    assert torch.autograd.gradcheck(costs, (position, std), fast_mode=True)
    assert costs(position, std).sum().requires_grad


@pytest.mark.parametrize("objective", [one for one in EVERY_OBJECTIVE if one.differentiable], ids=str)
def test_gradients_of_who_stands_are_finite(objective: BaseObjective) -> None:
    position = torch.zeros(2, STEPS, 2, dtype=torch.float64, requires_grad=True)
    costs = objective(candidates_in(road(speed_mps=0.0), position))
    if costs.requires_grad:
        (gradient,) = torch.autograd.grad(costs.sum(), position, allow_unused=True)
        assert gradient is None or gradient.isfinite().all()
    assert costs.isfinite().all()


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (LaneChange(1), "scene 'road' has no lanes, expected a map with lane centrelines"),
        (RouteFollowing(), "scene 'road' has no lanes to follow, expected a map with lane centrelines"),
        (SlowDown(from_s=8.0), "slow-down has no step between 8 and 8 s, expected times up to 8 s"),
        (GoalPoint(0.0, 0.0, at_s=9.0), "goal-point asks for the time 9 s, expected 0.1 to 8 s"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_scene(objective: BaseObjective, words: str) -> None:
    bare = replace(road(), map=MapFeatures(), route=None)
    with pytest.raises(ObjectiveError, match=words):
        objective(candidates_in(bare, straight()))


def test_a_future_that_was_not_observed() -> None:
    valid = road().tracks.valid.copy()
    valid[0, 1:] = False
    scene = replace(road(), tracks=replace(road().tracks, valid=valid))
    with pytest.raises(ObjectiveError, match="nothing to reconstruct within 80 steps for track 'ego' of scene 'road'"):
        Reconstruction()(candidates_in(scene, straight()))


def test_too_short_to_tell_its_comfort() -> None:
    with pytest.raises(ObjectiveError, match="comfort cannot be measured over 10 steps, expected at least 15"):
        Comfort()(candidates_in(road(), straight(steps=10)))


def test_without_road_edges_there_is_no_contact() -> None:
    scene = replace(road(), map=replace(road().map, road_edges=MapFeatures().road_edges))
    assert cost(RoadEdge(), candidates_in(scene, straight())) == 0


@pytest.mark.parametrize("agent", [-1, 2])
def test_an_agent_that_is_not_there(agent: int) -> None:
    with pytest.raises(ObjectiveError, match=f"scene 'road' has no track {agent}: expected 0 to 1"):
        Setting(scene=road(), agent=agent)


def test_an_agent_that_is_not_seen() -> None:
    valid = road().tracks.valid.copy()
    valid[1, 0] = False
    scene = replace(road(), tracks=replace(road().tracks, valid=valid))
    with pytest.raises(ObjectiveError, match=r"not observed at the current step \(0\): available are \[0\]"):
        Setting(scene=scene, agent=1)


def test_a_lane_change_lies_within_comfort() -> None:
    assert cost(Comfort(), candidates_in(road(), shifted(3.5))) == 0
