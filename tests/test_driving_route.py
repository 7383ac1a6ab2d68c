"""Paths along routes, projections on them, speeds, red lights and the expert's route."""

from dataclasses import replace

import numpy as np
import pytest

from driving_scenes import NOW, one_car, road_scene, sample_scenes, straight_road
from waycode.driving import IdmConfig, Road, Vehicle, expert_route, idm_acceleration, route_path
from waycode.driving.path import is_red, path_rows, smooth_path, stop_points_on
from waycode.scene import MapFeatures, Route, Scene, SignalState

CAR = Vehicle.of_size(length_m=4.5, width_m=1.9)


def rows(points_m: np.ndarray, limit_mps: np.ndarray | float = 10.0) -> np.ndarray:
    return path_rows(points_m, limit_mps=limit_mps, limit_known=True)


def test_projection_and_pose_are_inverse_on_a_curve() -> None:
    angle = np.linspace(0, np.pi / 2, 40)
    path = smooth_path(rows(30 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1)))
    along, offset = np.array([5.0, 17.3, 40.1]), np.array([0.0, 1.0, -2.0])
    position, heading = path.pose_at(along, offset)
    found, aside = path.project(position)
    np.testing.assert_allclose(found, along, atol=0.05)
    np.testing.assert_allclose(aside, offset, atol=0.02)
    np.testing.assert_allclose(heading, along / 30, atol=0.01)


def test_a_path_goes_straight_on_beyond_its_end() -> None:
    path = smooth_path(rows(np.array([[0.0, 0.0], [10.0, 0.0]])), beyond_m=5.0)
    assert path.length_m == pytest.approx(15.0, abs=0.5)
    position, _ = path.pose_at(np.array([40.0]), np.zeros(1))
    np.testing.assert_allclose(position, [[40.0, 0.0]], atol=0.05)
    np.testing.assert_allclose(path.project(np.array([[30.0, 2.0]]))[0], [30.0], atol=0.05)


def test_speeds_slow_down_in_time_for_a_lower_limit() -> None:
    x = np.arange(0.0, 101.0)
    path = smooth_path(rows(np.stack([x, 0 * x], axis=-1), np.where(x < 60, 10.0, 5.0)))
    speed = path.speed_profile(fallback_mps=15.0)
    at = path.index_at(np.array([20.0, 50.0, 70.0]))
    # v^2 = 5^2 + 2 * 1.5 * (60 - 50)
    np.testing.assert_allclose(speed[at], [10.0, np.sqrt(55.0), 5.0], rtol=0.02)


def test_speeds_in_a_bend_keep_the_lateral_acceleration_at_3() -> None:
    angle = np.linspace(0, np.pi, 60)
    path = smooth_path(rows(12 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1), 20.0))
    middle = path.speed_profile(fallback_mps=15.0)[len(path.points_m) // 2]
    np.testing.assert_allclose(middle, np.sqrt(3.0 * 12), rtol=0.03)


def test_a_path_needs_two_points() -> None:
    with pytest.raises(ValueError, match="two distinct points, got 1"):
        smooth_path(rows(np.zeros((3, 2))))


def along_route(scene: Scene, *, y_m: float = 0.0) -> np.ndarray:
    path = route_path(scene, position_m=np.array([0.0, y_m]), heading_rad=0.0, speed_mps=10.0)
    return path.points_m


def test_a_route_straight_on_follows_its_centreline() -> None:
    points = along_route(road_scene(), y_m=0.4)
    assert points[0, 0] < 0
    assert points[-1, 0] > 300
    np.testing.assert_allclose(points[:, 1], 0, atol=1e-6)


def test_a_route_that_goes_on_in_the_left_lane_asks_for_a_lane_change() -> None:
    route = Route(lanes=np.array([0, 2, 3], np.int32), sections=np.array([0, 0, 1], np.int32))
    points = along_route(replace(road_scene(), route=route))
    y = np.interp([-10.0, 0.0, 20.0, 45.0, 90.0], points[:, 0], points[:, 1])
    np.testing.assert_allclose(y, [0.0, 0.0, 1.75, 3.5, 3.5], atol=0.1)


def test_a_lane_change_that_has_begun_goes_on_from_where_the_car_is() -> None:
    route = Route(lanes=np.array([0, 2, 3], np.int32), sections=np.array([0, 0, 1], np.int32))
    points = along_route(replace(road_scene(), route=route), y_m=1.0)
    y = np.interp([0.0, 20.0, 45.0], points[:, 0], points[:, 1])
    np.testing.assert_allclose(y, [1.0, 2.25, 3.5], atol=0.1)


@pytest.mark.parametrize("y_m", [0.0, 0.4], ids=["in the middle", "left of it"])
def test_a_lane_that_begins_further_on_is_not_entered_before_it_begins(y_m: float) -> None:
    pocket = Route(lanes=np.array([0, 1, 3], np.int32), sections=np.array([0, 1, 2], np.int32))
    points = along_route(replace(road_scene(), route=pocket), y_m=y_m)
    y = np.interp([0.0, 25.0, 48.0, 70.0, 95.0], points[:, 0], points[:, 1])
    np.testing.assert_allclose(y, [0.0, 0.0, 0.0, 1.75, 3.5], atol=0.2)


@pytest.mark.parametrize("y_m", [0.0, 3.0], ids=["right", "left"])
def test_without_a_route_the_lane_under_the_car_is_followed(y_m: float) -> None:
    points = along_route(replace(road_scene(), route=None), y_m=y_m)
    np.testing.assert_allclose(points[:, 1], round(y_m / 3.5) * 3.5, atol=1e-6)


def test_without_lanes_the_path_is_straight_on() -> None:
    scene = replace(road_scene(), route=None, map=MapFeatures())
    path = route_path(scene, position_m=np.zeros(2), heading_rad=np.pi / 2, speed_mps=10.0)
    np.testing.assert_allclose(path.points_m[:, 0], 0, atol=1e-6)
    assert path.points_m[-1, 1] > 100
    assert not path.limit_known.any()


def test_an_ego_far_off_the_map_still_gets_a_path() -> None:
    path = route_path(road_scene(), position_m=np.array([0.0, 500.0]), heading_rad=0.0, speed_mps=3.0)
    assert path.length_m > 100


def test_the_expert_route_is_where_the_ego_drove() -> None:
    scene = replace(road_scene(speed_mps=14.0), route=None)
    route = expert_route(scene)
    assert route is not None
    assert (route.lanes.tolist(), route.sections.tolist()) == ([0, 1], [0, 1])


def test_the_expert_route_of_a_lane_change_has_both_lanes_in_one_section() -> None:
    scene = replace(road_scene(speed_mps=7.0), route=None)
    y = scene.tracks.y_m.copy()
    y[0, NOW:] = np.linspace(0, 3.5, y.shape[1] - NOW)
    route = expert_route(replace(scene, tracks=replace(scene.tracks, y_m=y)))
    assert route is not None
    assert (route.lanes.tolist(), route.sections.tolist()) == ([0, 2, 3], [0, 0, 1])  # and the lane after them


def test_there_is_no_expert_route_without_lanes() -> None:
    assert expert_route(replace(road_scene(), map=MapFeatures())) is None


def test_the_expert_route_of_bundled_scenes_is_within_the_route_that_was_asked_for() -> None:
    for scene in sample_scenes(6):
        assert scene.route is not None
        found = expert_route(replace(scene, route=None))
        assert found is not None
        asked = set(scene.route.lanes.tolist())
        assert len(asked & set(found.lanes.tolist())) >= 0.5 * len(found.lanes), scene.id


def test_a_light_is_for_the_way_that_goes_through_it() -> None:
    scene = road_scene(light=SignalState.STOP)
    path = route_path(scene, position_m=np.zeros(2), heading_rad=0.0, speed_mps=10.0)
    along, on_path = stop_points_on(path, scene.signals, scene.map.lanes)
    assert on_path.tolist() == [True]
    np.testing.assert_allclose(along - path.project(np.zeros((1, 2)))[0], [50.0], atol=0.05)
    left = route_path(replace(scene, route=None), position_m=np.array([0.0, 3.5]), heading_rad=0.0, speed_mps=10.0)
    assert stop_points_on(left, scene.signals, scene.map.lanes)[1].tolist() == [False]


@pytest.mark.parametrize(
    ("light", "y_m", "expected"),
    [
        pytest.param(SignalState.STOP, 0.0, [50.0], id="red"),
        pytest.param(SignalState.GO, 0.0, [], id="green"),
        pytest.param(SignalState.STOP, 3.5, [], id="red, for the other lane"),
        pytest.param(None, 0.0, [], id="no light"),
    ],
)
def test_the_road_knows_where_to_stop_for_red(light: SignalState | None, y_m: float, expected: list[float]) -> None:
    scene = replace(road_scene(light=light), route=None)
    ego = one_car(-CAR.rear_axle_to_centre_m, y_m)
    road = Road.ahead_of(scene, ego, vehicle=CAR, fallback_mps=15.0)
    here = road.path.project(ego.centre_m(CAR))[0]
    np.testing.assert_allclose(road.red_stop_m(scene) - here, expected, atol=0.05)


@pytest.mark.parametrize(
    ("state", "red"),
    [(SignalState.STOP, True), (SignalState.ARROW_STOP, True), (SignalState.CAUTION, False), (SignalState.GO, False)],
)
def test_what_is_red(state: SignalState, red: bool) -> None:
    assert is_red(road_scene(light=state).signals, NOW).tolist() == [red]


def idm(speed_mps: float, gap_m: float, leader_mps: float = 0.0) -> float:
    one = np.ones(1)
    return float(
        idm_acceleration(
            speed_mps * one, 10.0 * one, gap_m=gap_m * one, leader_mps=leader_mps * one, config=IdmConfig(exponent=4.0)
        )[0]
    )


def test_idm_by_hand() -> None:
    np.testing.assert_allclose(idm(5.0, np.inf), 1 - 0.5**4)
    # Behind a leader of the same speed: 1 + 5 * 1.5 = 8.5 m are wished for.
    np.testing.assert_allclose(idm(5.0, 17.0, 5.0), 1 - 0.5**4 - 0.25)
    assert idm(5.0, 2.0) == -2.0
    assert idm(0.0, np.inf) == 1.0
    assert idm(0.0, 1.0) == 0.0


def test_a_map_of_the_tests_is_valid() -> None:
    road_scene(light=SignalState.STOP).validate()
    assert len(straight_road().lanes) == 4
