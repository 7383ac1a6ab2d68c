"""What a way does and whether a car could have driven it, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from test_guidance_selection import changing, two_lanes
from test_kinematics import tracks_of
from test_manoeuvre import CURRENT, STEPS, TIME_S, arc, scene_of, straight
from waycode.evaluation.guidance import SUCCESS, TASKS
from waycode.evaluation.motion import MeasuredMotion, lane_use
from waycode.evaluation.realism import RoadShape, is_infeasible, realism_of
from waycode.evaluation.selection import Case, Group
from waycode.scene import MapFeatures, Polylines, Route, Scene

FUTURE = slice(CURRENT + 1, None)


def circle(radius_m: float, speed_mps: float) -> np.ndarray:
    """Straight up to the current step, then round to the left."""
    angle = np.maximum(TIME_S, 0) * speed_mps / radius_m
    turned = radius_m * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1)
    turned[:, 0] += np.minimum(TIME_S, 0) * speed_mps
    return turned


def motion(position_m: np.ndarray) -> MeasuredMotion:
    return MeasuredMotion.of(scene_of(position_m), 0)


def test_plan_and_recording_are_measured_alike() -> None:
    position = arc(np.radians(80))
    scene = scene_of(position)
    recorded, plan = MeasuredMotion.of(scene, 0), MeasuredMotion.of(scene, 0, position[FUTURE])
    np.testing.assert_allclose(recorded.position_m, plan.position_m, atol=1e-5)
    assert recorded.position_m.shape == (81, 2)
    np.testing.assert_allclose(recorded.past_m, position[:CURRENT], atol=1e-5)


def test_the_past_begins_after_the_last_gap() -> None:
    scene = scene_of(straight(np.full(STEPS, 5.0)))
    valid = scene.tracks.valid.copy()
    valid[0, 3] = False
    assert len(MeasuredMotion.of(replace(scene, tracks=replace(scene.tracks, valid=valid)), 0).past_m) == CURRENT - 4


@pytest.mark.parametrize(
    ("position_m", "expected_deg"),
    [
        pytest.param(arc(np.radians(80)), 80.0, id="left"),
        pytest.param(arc(np.radians(-80)), 0.0, id="right"),
        pytest.param(arc(np.radians(200)), 200.0, id="beyond half a turn"),
        pytest.param(straight(np.full(STEPS, 8.0)), 0.0, id="straight"),
        pytest.param(straight(np.zeros(STEPS)), 0.0, id="standing"),
    ],
)
def test_leftward_turn(position_m: np.ndarray, expected_deg: float) -> None:
    assert np.degrees(motion(position_m).leftward_turn_rad()) == pytest.approx(expected_deg, abs=1.5)


def test_noise_of_single_steps_is_no_turn() -> None:
    position = straight(np.full(STEPS, 6.0))
    position[:, 1] += np.random.default_rng(0).normal(0, 0.03, STEPS)
    steps = np.diff(position[CURRENT:], axis=0)
    raw = np.maximum(np.diff(np.arctan2(steps[:, 1], steps[:, 0])), 0).sum()
    assert np.degrees(raw) > 90  # what a sum over the raw steps would say
    assert np.degrees(motion(position).leftward_turn_rad()) < 10


def test_headings_are_held_while_standing() -> None:
    position = np.concatenate([arc(np.radians(60))[:51], np.repeat(arc(np.radians(60))[50:51], 40, axis=0)])
    heading = motion(position).heading_rad
    assert heading[-1] == pytest.approx(heading[45], abs=0.05)
    assert motion(straight(np.zeros(STEPS))).heading_rad.tolist() == [0.0] * 81


def test_speeds() -> None:
    way = motion(straight(np.clip(9 - TIME_S, 4, 9)))  # 4 m/s from 5 s on
    assert way.late_speed_mps == pytest.approx(4.0, abs=1e-3)
    assert way.mean_speed_mps == pytest.approx((5 * (9 + 4) / 2 + 3 * 4) / 8, abs=0.05)


def test_lane_use() -> None:
    scene, index = changing(1), two_lanes().graph
    use = lane_use(index, MeasuredMotion.of(scene, 0))
    assert (use.changes_left, use.changes_right) == (1, 0)
    assert 0 < use.centre_distance_m < 0.5  # off the centre only while it changes
    there_and_back = lane_use(index, MeasuredMotion.of(changing(1, -1), 0))
    assert (there_and_back.changes_left, there_and_back.changes_right) == (1, 1)
    beside = straight(np.full(STEPS, 10.0)) + np.array([0.0, -1.0])
    assert lane_use(index, motion(beside)).centre_distance_m == pytest.approx(1.0, abs=1e-3)
    nowhere = lane_use(index, motion(beside + np.array([0.0, 50.0])))
    assert np.isnan(nowhere.centre_distance_m)
    assert nowhere.changes_left == 0


@pytest.mark.parametrize(
    ("position_m", "infeasible"),
    [
        pytest.param(circle(8.0, 6.0), False, id="a turn that cars take"),
        pytest.param(circle(2.5, 3.0), True, id="curvature 0.4 / m"),
        pytest.param(circle(15.0, 12.0), True, id="9.6 m/s^2 sideways"),
        pytest.param(straight(np.clip(12 - 4 * np.maximum(TIME_S, 0), 0, 12)), False, id="hard braking"),
        pytest.param(straight(np.clip(14 - 9 * np.maximum(TIME_S, 0), 0, 14)), True, id="9 m/s^2 of braking"),
        pytest.param(straight(np.where(TIME_S > 0, 13.0, 8.0)), True, id="a jump of speed at the current step"),
        pytest.param(straight(np.zeros(STEPS)), False, id="standing"),
    ],
)
def test_infeasible(position_m: np.ndarray, infeasible: bool) -> None:
    assert is_infeasible(motion(position_m)) == infeasible


def road() -> MapFeatures:
    """A road along x that is 8 m wide, with edges at both sides and an island of nothing north of it."""
    return MapFeatures(
        road_edges=Polylines.of([np.array([[-50.0, 4.0], [200, 4]]), np.array([[-50.0, -4.0], [200, -4]])]),
        road_edge_types=np.array([1, 1], np.int8),
        drivable_areas=Polylines.of(
            [
                np.array([[-50.0, -4.0], [200, -4], [200, 4], [-50, 4]]),
                np.array([[-50.0, 20.0], [200, 20], [200, 30], [-50, 30]]),
            ]
        ),
    )


def on_the_road(*others: np.ndarray, y_m: float = 0.0) -> Scene:
    """The first car stands at x = 0, the others are where they are told, at every step."""
    position = np.stack([np.tile([0.0, y_m], (STEPS, 1)), *others])
    still = np.zeros_like(position)
    return replace(scene_of(position[0]), tracks=tracks_of(position, still[..., 0], still), map=road())


def beside(y_m: float, speed_mps: float = 5.0) -> np.ndarray:
    return np.stack([speed_mps * TIME_S[FUTURE], np.full(STEPS - CURRENT - 1, y_m)], axis=-1)


@pytest.mark.parametrize(
    ("y_m", "speed_mps", "edge_contact", "off_road"),
    [
        pytest.param(0.0, 5.0, False, False, id="in the middle"),
        pytest.param(2.9, 5.0, False, False, id="0.15 m from the edge"),
        pytest.param(3.3, 5.0, True, False, id="over the edge with a side"),
        pytest.param(6.0, 5.0, False, True, id="beyond the edge"),
        pytest.param(0.0, 40.0, False, False, id="beyond the end of the map"),
    ],
)
def test_edges_and_area(y_m: float, speed_mps: float, edge_contact: bool, off_road: bool) -> None:
    scene = on_the_road(y_m=y_m)
    found = realism_of(MeasuredMotion.of(scene, 0, beside(y_m, speed_mps)), scene, agent=0, road=RoadShape(scene))
    assert (found.edge_contact, found.off_road, found.collision) == (edge_contact, off_road, False)


def test_a_map_without_edges_and_areas_says_nothing() -> None:
    scene = replace(on_the_road(), map=MapFeatures())
    found = realism_of(MeasuredMotion.of(scene, 0, beside(50.0)), scene, agent=0, road=RoadShape(scene))
    assert not found.edge_contact
    assert not found.off_road


@pytest.mark.parametrize(
    ("other_y_m", "collision"), [pytest.param(1.8, True, id="overlap"), pytest.param(2.0, False, id="0.1 m between")]
)
def test_collisions_are_of_exact_boxes(other_y_m: float, collision: bool) -> None:
    scene = on_the_road(np.tile([20.0, other_y_m], (STEPS, 1)))  # boxes are 1.9 m wide

    def collides(scene: Scene) -> bool:
        return realism_of(MeasuredMotion.of(scene, 0, beside(0.0)), scene, agent=0, road=RoadShape(scene)).collision

    assert collides(scene) == collision
    gone = scene.tracks.valid.copy()
    gone[1, FUTURE] = False
    assert not collides(replace(scene, tracks=replace(scene.tracks, valid=gone)))


def test_only_the_same_moment_collides() -> None:
    later = np.stack([20.0 + 5.0 * TIME_S, np.zeros(STEPS)], axis=-1)  # drives ahead at the same speed
    scene = on_the_road(later)
    assert not realism_of(MeasuredMotion.of(scene, 0, beside(0.0)), scene, agent=0, road=RoadShape(scene)).collision


def measures_of(task: str, scene: Scene, future_m: np.ndarray) -> dict[str, float]:
    (group,) = TASKS[task].objectives
    case = Case(scene_id=scene.id, agent=0, group=group)
    return TASKS[task].measure(MeasuredMotion.of(scene, 0, future_m), scene, case)


@pytest.mark.parametrize(("off_m", "success"), [(1.9, 1.0), (2.1, 0.0)])
def test_a_goal_is_reached_within_two_metres(off_m: float, success: float) -> None:
    position = straight(np.full(STEPS, 8.0))
    found = measures_of("goal", scene_of(position), position[FUTURE] + np.array([0.0, off_m]))
    assert found[SUCCESS] == success
    assert found["final_error_m"] == pytest.approx(off_m, abs=1e-4)
    assert found["mean_error_m"] == pytest.approx(off_m, abs=1e-4)


def test_the_goal_is_the_recorded_end() -> None:
    position = straight(np.full(STEPS, 8.0))
    scene = scene_of(position)
    goal = TASKS["goal"].objective_of(scene, Case(scene_id=scene.id, agent=0, group=Group.GOAL))
    assert str(goal) == f"goal-point(x_m={position[-1, 0]:.1f}, y_m=0)"


def test_a_route_is_followed_on_its_lanes_and_as_far_as_recorded() -> None:
    position = straight(np.full(STEPS, 10.0))
    scene = replace(
        scene_of(position, two_lanes()), route=Route(lanes=np.array([0], np.int32), sections=np.array([0], np.int32))
    )
    recorded = measures_of("route", scene, position[FUTURE])
    assert recorded[SUCCESS] == 1
    assert recorded["route_distance_m"] == pytest.approx(0, abs=1e-4)
    assert recorded["progress_ratio"] == pytest.approx(1)
    assert measures_of("route", scene, position[FUTURE] + np.array([0.0, 3.5]))[SUCCESS] == 0  # on the other lane
    half = position[CURRENT] + (position[FUTURE] - position[CURRENT]) / 2
    assert measures_of("route", scene, half)["progress_ratio"] == pytest.approx(0.5)
    assert measures_of("route", scene, half)[SUCCESS] == 0
