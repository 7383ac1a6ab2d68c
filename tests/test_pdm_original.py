"""What makes our PDM-Closed the original: its lines, leaders, forecast, simulation, lanes and brake."""

from dataclasses import replace

import numpy as np
import pytest
import shapely

from driving_scenes import DT_S, observation_of, road_scene
from waycode.baselines import PdmClosed, PdmConfig
from waycode.baselines.pdm_proposals import Obstacles, corridor_proposals, forecast_along_heading
from waycode.baselines.pdm_route import Centreline, PdmRoute
from waycode.driving import LqrTracker, Observation, Trajectory, Vehicle
from waycode.driving.collisions import box_overlaps
from waycode.driving.idm import IdmConfig, idm_acceleration
from waycode.scene import Route, SignalState, TrackType
from waycode.sources.nuplan.map_export import MapLayers, add_map

CAR = Vehicle.of_size(length_m=4.5, width_m=1.9)


def straight_drives(*speeds_mps: float, y_m: float = 0.0, x_m: float = 0.0) -> Trajectory:
    """Cars that drive along +x for 4 s, by their rear axles."""
    x = x_m + np.array(speeds_mps)[:, None] * DT_S * np.arange(41)
    speed = np.broadcast_to(np.array(speeds_mps)[:, None], x.shape).copy()
    position = np.stack([x, np.full_like(x, y_m)], axis=-1)
    return Trajectory(position_m=position, heading_rad=np.zeros_like(x), speed_mps=speed, point="rear-axle")


def test_a_line_beside_a_centreline_has_its_own_length_and_ends() -> None:
    corner = Centreline(np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 10.0]]), np.array([0.0, np.pi / 2, np.pi / 2]))
    inner = corner.beside(1.0)
    np.testing.assert_allclose(inner.points_m, [[0.0, 1.0], [9.0, 0.0], [9.0, 10.0]], atol=1e-12)
    assert inner.length_m == pytest.approx(np.hypot(9, 1) + 10)
    position, heading = corner.pose_at(np.array([-5.0, 5.0, 50.0]))
    np.testing.assert_allclose(position, [[0, 0], [5, 0], [10, 10]])
    np.testing.assert_allclose(heading, [0, np.pi / 4, np.pi / 2])  # interpolated between vertices
    np.testing.assert_allclose(corner.project(np.array([[4.0, 3.0], [12.0, 30.0]])), [4, 20])


def test_a_corridor_begins_at_the_next_vertex() -> None:
    line = Centreline(np.array([[0.0, 0.0], [20.0, 0.0], [40.0, 0.0]]), np.zeros(3))
    assert line.corridor(5.0, 100.0, half_width_m=1.0).bounds == pytest.approx((19.0, -1.0, 41.0, 1.0))
    assert line.corridor(5.0, 15.0, half_width_m=1.0).bounds == pytest.approx((4.0, -1.0, 16.0, 1.0))


def test_the_forecast_moves_along_headings_at_every_second_sample() -> None:
    scene = road_scene(others=((20.0, 0.0, 5.0), (49.0, 3.5, 5.0), (51.0, 3.5, 5.0)))
    tracks = scene.tracks
    sideways = tracks.vy_mps.copy()
    sideways[1] = 12.0  # 13 m/s in all
    backwards = tracks.vx_mps.copy()
    backwards[2] = -5.0
    observation = observation_of(replace(scene, tracks=replace(tracks, vy_mps=sideways, vx_mps=backwards)))
    found = forecast_along_heading(observation, num_steps=5, reach_m=50.0, every_steps=2, ignored=frozenset())
    assert found.track.tolist() == [1, 2]
    np.testing.assert_allclose(found.position_m[0, :, 0] - 20, 13 * np.array([0, 0, 0.2, 0.2, 0.4, 0.4]), atol=1e-5)
    np.testing.assert_allclose(found.position_m[1, -1], [49 - 5 * 0.4, 3.5], atol=1e-5)
    rest = forecast_along_heading(observation, num_steps=5, reach_m=50.0, every_steps=2, ignored=frozenset({"car1"}))
    assert rest.track.tolist() == [2]


def test_objects_stand_and_only_the_nearest_road_users_count() -> None:
    scene = road_scene(others=tuple((10.0 + 0.1 * i, 0.0, 5.0) for i in range(12)))
    types = np.array([TrackType.VEHICLE, *[TrackType.CYCLIST] * 11, TrackType.OTHER], np.int8)
    observation = observation_of(replace(scene, tracks=replace(scene.tracks, types=types)))
    found = forecast_along_heading(observation, num_steps=5, reach_m=50.0, every_steps=1, ignored=frozenset())
    assert found.track.tolist() == [*range(1, 11), 12]
    assert np.ptp(found.position_m[-1], axis=0).max() == 0


def test_time_to_collision_looks_into_the_forecast() -> None:
    observation = observation_of(road_scene(speed_mps=0.0, others=((20.0, 0.0, 0.0),)))
    others = forecast_along_heading(observation, num_steps=49, reach_m=50.0, every_steps=2, ignored=frozenset())
    here = others.position_m.copy()
    here[0, 9:] = [0.0, 0.0]  # the forecast, not the velocity, brings it here
    jumping, ego = replace(others, position_m=here), straight_drives(0.0, x_m=-1.0)
    *_, step, look = box_overlaps(ego, jumping, vehicle=CAR, looks=(0, 9), dt_s=DT_S, follows_forecast=True)
    assert step[look == 1].min() == 0
    assert step[look == 0].min() == 9


def leaders(observation: Observation, red: list[object]) -> Trajectory:
    others = forecast_along_heading(observation, num_steps=49, reach_m=50.0, every_steps=2, ignored=frozenset())
    return corridor_proposals(
        observation, PdmRoute.ahead_of(observation), Obstacles.of(others, red, num_steps=40), offsets_m=(0.0,),
        speed_shares=(1.0,), num_steps=40, config=PdmConfig().idm, leader_every_steps=2,
    )  # fmt: skip


def test_a_proposal_stays_behind_what_is_in_its_corridor() -> None:
    scene = road_scene(others=((30.0, 0.0, 0.0),))
    free, behind = leaders(observation_of(road_scene()), []), leaders(observation_of(scene), [])
    beside = leaders(observation_of(road_scene(others=((30.0, 3.5, 0.0),))), [])
    red = leaders(observation_of(road_scene()), [shapely.box(27.75, -1, 40, 1)])
    np.testing.assert_allclose(free.speed_mps[0, 1], 9.7)  # no leader is known at the first step
    assert behind.speed_mps[0, -1] < 5 < free.speed_mps[0, -1]
    np.testing.assert_array_equal(beside.speed_mps, free.speed_mps)
    np.testing.assert_allclose(red.speed_mps, behind.speed_mps, atol=1e-6)  # its rear is where the other's is


def test_a_much_faster_leader_repels_only_in_the_original() -> None:
    def acceleration(config: IdmConfig) -> float:
        values = (np.array([value]) for value in (5.0, 50.0, 2.0, 40.0))
        speed, target, gap, leader = values
        return float(idm_acceleration(speed, target, gap_m=gap, leader_mps=leader, config=config)[0])

    assert acceleration(replace(PdmConfig().idm, bounds_desired_gap=True)) > 0
    assert acceleration(PdmConfig().idm) == pytest.approx(-3.0)


def test_the_original_simulates_with_a_penalty_on_acceleration() -> None:
    time_s = DT_S * np.arange(41)
    x = 10 * time_s - 1.0 * time_s**2
    position, heading = np.stack([x, 0 * x], axis=-1)[None], np.zeros((1, 41))
    speed = (10 - 2 * time_s)[None]
    braking = Trajectory(position_m=position, heading_rad=heading, speed_mps=speed, point="rear-axle")
    exact = LqrTracker().fitted_speed(braking, dt_s=DT_S)[0]
    np.testing.assert_allclose(np.diff(exact), -0.2, atol=1e-8)
    flatter = LqrTracker(penalises_acceleration=True).fitted_speed(braking, dt_s=DT_S)[0]
    assert flatter[0] < exact[0] - 0.05


def test_lanes_are_the_road_and_the_route() -> None:
    observation = observation_of(road_scene())
    route = PdmRoute.ahead_of(observation)
    np.testing.assert_allclose(route.centreline.points_m[[0, -1]], [[-50, 0], [300, 0]])
    assert route.limit_mps(observation.ego, CAR) == 12.0
    there = [
        route.places(straight_drives(5.0, y_m=y), CAR, reach_m=50.0, measures=False) for y in (0.0, 1.5, 3.5, -0.9)
    ]
    assert [bool(places.in_one_lane.all()) for places in there] == [True, False, True, False]
    assert [float(places.off_road_m.max()) for places in there] == [0, 0, 0, np.inf]
    np.testing.assert_allclose([places.wrong_way_m[0] for places in there], [0, 0, 20, 0])
    np.testing.assert_allclose([places.progress_m[0] for places in there], 20.0)
    far = route.places(straight_drives(5.0, x_m=60.0), CAR, reach_m=5.0, measures=False)
    assert not far.off_road_m.any()  # the roadblock reaches to the ego
    assert far.in_junction.all()


def test_the_route_is_the_shortest_way_without_lane_changes() -> None:
    scene = road_scene()
    elsewhere = replace(scene, route=Route(lanes=np.array([2, 3], np.int32), sections=np.array([0, 1], np.int32)))
    points = PdmRoute.ahead_of(observation_of(elsewhere)).centreline.points_m
    np.testing.assert_allclose(points[:, 1], 3.5)  # the ego is beside the route: the nearest lane of it


def test_the_emergency_brake_is_a_reference_at_one_speed() -> None:
    observation = observation_of(road_scene(speed_mps=4.0, others=((5.5, 0.0, 0.0),)))
    driver = PdmClosed()
    plan, _ = driver.plan(driver.reset(observation), observation)
    np.testing.assert_allclose(plan.speed_mps, 1.1 * (4.0 - 4.05), atol=1e-5)


def test_what_was_touched_or_run_once_is_ignored_from_then_on() -> None:
    driver = PdmClosed()
    touching = observation_of(road_scene(speed_mps=5.0, others=((3.0, 0.0, 5.0),), light=SignalState.STOP))
    _, state = driver.plan(driver.reset(touching), touching)
    assert state.touched == {"car1"}
    over = replace(touching, ego=replace(touching.ego, rear_axle_m=np.array([[60.0, 0.0]])))
    _, state = driver.plan(state, over)
    assert state.touched == {"car1", "red light right on"}


def test_an_export_keeps_the_routes_lanes_whole_where_lanes_overlap() -> None:
    scene = road_scene()
    lanes = scene.map.lanes
    crossing = np.array([[-20.0, -30.0], [-20.0, 0.0], [-20.0, 30.0]], np.float32)
    lines = lanes.centrelines.as_list()
    moved = replace(lanes, centrelines=type(lanes.centrelines).of([crossing, lines[1], lines[0], lines[3]]),
                    in_junction=np.zeros(4, np.bool_), left_neighbours=np.zeros((0, 2), np.int32),
                    right_neighbours=np.zeros((0, 2), np.int32), successors=np.zeros((0, 2), np.int32))  # fmt: skip
    layers = MapLayers()
    on_third = Route(lanes=np.array([2], np.int32), sections=np.array([0], np.int32))
    add_map(layers, replace(scene, map=replace(scene.map, lanes=moved), route=on_third), np.zeros(2))
    areas = sorted(shape.area for _, shape, _ in layers.rows["lanes_polygons"])
    assert areas[1] == pytest.approx(100 * 3.5)  # whole; the lane across it keeps the longer of its two pieces
    assert areas[0] == pytest.approx(28.25 * 3.5, rel=1e-4)
