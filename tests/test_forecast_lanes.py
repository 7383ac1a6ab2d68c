"""Forecasts along lanes, freezing, and the end of the route."""

from dataclasses import replace

import numpy as np
import pytest

from driving_scenes import DT_S, NOW, car_tracks, driven_candidates, drives_along, observation_of, road_scene
from waycode.baselines import PdmClosed
from waycode.baselines.pdm_closed import PDM_ADAPTED, PdmConfig
from waycode.driving import Road, constant_velocity_forecast, lane_forecast
from waycode.objectives import RouteEnd, RouteProgress
from waycode.scene import GraphOrigin, Lanes, MapFeatures, Polylines, Scene, SignalState
from waycode.simulation.metrics.freezing import find_freezes
from waycode.simulation.rollout import simulate

RADIUS_M = 30.0


def bend_scene(speed_mps: float = 10.0) -> Scene:
    """The ego stands at (0, 0); another car is on a lane that turns left with a radius of 30 m from (0, 20) on."""
    angle = np.linspace(0, np.pi / 2, 30)
    bend = np.stack([RADIUS_M * np.sin(angle), 20 + RADIUS_M * (1 - np.cos(angle))], axis=-1)
    lines = [np.array([[-60.0, 20.0], [-30.0, 20.0], [0.0, 20.0]]), bend]
    lanes = Lanes(
        ids=("before", "bend"),
        types=np.full(2, 2, np.int8),
        centrelines=Polylines.of(lines),
        speed_limit_mps=np.full(2, 12.0, np.float32),
        speed_limit_known=np.ones(2, np.bool_),
        width_m=np.full(2, 3.5, np.float32),
        width_known=np.ones(2, np.bool_),
        in_junction=np.zeros(2, np.bool_),
        successors=np.array([[0, 1]], np.int32),
        left_neighbours=np.zeros((0, 2), np.int32),
        right_neighbours=np.zeros((0, 2), np.int32),
        graph_origin=GraphOrigin.RECORDED,
    )
    scene = road_scene(others=((-10.0, 20.5, speed_mps),))
    return replace(scene, map=MapFeatures(lanes=lanes), route=None)


def test_others_follow_their_lane_at_their_speed_and_offset() -> None:
    scene = bend_scene()
    others = lane_forecast(scene, 0, num_steps=40)
    position = others.position_m[0]
    np.testing.assert_allclose(position[0], [-10, 20.5], atol=1e-5)
    radius = np.linalg.norm(position - [0, 20 + RADIUS_M], axis=-1)[position[:, 0] > 1]
    np.testing.assert_allclose(radius, RADIUS_M - 0.5, atol=0.15)  # 0.5 m to the left of the centreline
    assert others.heading_rad[0, -1] == pytest.approx((40 * DT_S * 10 - 10) / RADIUS_M, abs=0.06)
    np.testing.assert_allclose(np.linalg.norm(others.velocity_mps[0], axis=-1), 10, atol=1e-4)
    straight = constant_velocity_forecast(scene, 0, num_steps=40)
    assert np.linalg.norm(straight.position_m[0, -1] - position[-1]) > 10


@pytest.mark.parametrize("case", ["stands", "off the lanes", "against the lane", "a pedestrian", "no lanes"])
def test_who_follows_no_lane_keeps_its_velocity(case: str) -> None:
    scene = bend_scene(0.1 if case == "stands" else 10.0)
    tracks = scene.tracks
    if case == "off the lanes":
        tracks = replace(tracks, y_m=tracks.y_m - 10)
    if case == "against the lane":
        tracks = replace(tracks, heading_rad=tracks.heading_rad + np.float32(np.pi), vx_mps=-tracks.vx_mps)
    if case == "a pedestrian":
        tracks = replace(tracks, types=np.array([1, 2], np.int8))
    changed = replace(scene, tracks=tracks, map=MapFeatures() if case == "no lanes" else scene.map)
    others, straight = (make(changed, 0, num_steps=20) for make in (lane_forecast, constant_velocity_forecast))
    np.testing.assert_array_equal(others.position_m, straight.position_m)


def test_who_brakes_goes_on_braking_along_the_lane() -> None:
    scene = bend_scene()
    vx = scene.tracks.vx_mps.copy()
    vx[1, :NOW] = 12.0  # 2 m/s within half a second
    braking = replace(scene, tracks=replace(scene.tracks, vx_mps=vx))
    others = lane_forecast(braking, 0, num_steps=30, braking=True)
    speed = np.linalg.norm(others.velocity_mps[0], axis=-1)
    assert speed[20] == pytest.approx(6.0, abs=0.3)  # 4 m/s2 for a second, then constant
    assert speed[30] == pytest.approx(6.0, abs=0.3)


def standing(seconds: float, **other: object) -> Scene:
    """A run that ends now: the ego stands at x = 0 for some seconds and then drives on at 10 m/s."""
    steps = NOW + round(10 / DT_S) + 1
    time_s = (np.arange(steps) - NOW) * DT_S
    x = np.where(time_s < seconds, 0.0, 10 * (time_s - seconds))
    scene = road_scene(steps=steps, **other)  # type: ignore[arg-type]
    positions = np.concatenate([x[None], scene.tracks.x_m[1:].astype(np.float64)])
    tracks = car_tracks(positions, scene.tracks.y_m.astype(np.float64))
    return replace(scene, tracks=tracks, current_step=steps - 1)


def test_a_freeze_lasts_three_seconds_or_more() -> None:
    (freeze,) = find_freezes(standing(5.0), first_step=NOW)
    assert freeze.start_s == 0
    assert freeze.duration_s == pytest.approx(5.0, abs=0.11)
    assert find_freezes(standing(2.5), first_step=NOW) == ()


@pytest.mark.parametrize(
    ("others", "frozen"),
    [
        (((10.0, 0.0, 0.0),), False),  # stands ahead in the lane
        (((30.0, 0.0, 0.0),), True),  # too far ahead
        (((10.0, 3.5, 0.0),), True),  # in the next lane
        (((-10.0, 0.0, 0.0),), True),  # behind
    ],
)
def test_somebody_ahead_in_the_way_explains_standing(
    others: tuple[tuple[float, float, float], ...], frozen: bool
) -> None:
    assert bool(find_freezes(standing(9.0, others=others), first_step=NOW)) == frozen


def test_a_red_light_and_the_end_of_the_route_explain_standing() -> None:
    scene = standing(9.0, light=SignalState.STOP)
    near = replace(scene, tracks=replace(scene.tracks, x_m=scene.tracks.x_m + np.float32(43)))  # the line is at 50 m
    assert find_freezes(near, first_step=NOW) == ()
    assert find_freezes(scene, first_step=NOW)  # far from the line
    at_end = replace(scene, tracks=replace(scene.tracks, x_m=scene.tracks.x_m + np.float32(296)))  # the road has 300 m
    assert find_freezes(at_end, first_step=NOW) == ()


def test_crossing_traffic_explains_standing_before_a_junction_alone() -> None:
    scene = standing(9.0, others=((60.0, 0.0, 0.0),))
    y = scene.tracks.y_m.copy()
    y[1] = np.linspace(-30, 30, y.shape[1])  # crosses the way at x = 60 m, within a junction from 50 m on
    for ego_m, explained in ((40.0, True), (0.0, False)):
        x = scene.tracks.x_m.copy()
        x[0] += np.float32(ego_m)
        run = replace(scene, tracks=replace(scene.tracks, x_m=x, y_m=y))
        whole = find_freezes(run, first_step=NOW)
        assert (sum(freeze.duration_s for freeze in whole) < 8.5) == explained


def test_progress_beyond_the_end_of_the_route_counts_nothing_and_passing_it_costs() -> None:
    scene = road_scene(speed_mps=10.0)
    tracks = replace(scene.tracks, x_m=scene.tracks.x_m + np.float32(270))  # 30 m before the end of the map
    observation = observation_of(replace(scene, tracks=tracks))
    candidates = driven_candidates(observation, drives_along(observation, 2.0, 5.0, 10.0, 12.0))
    assert RouteEnd()(candidates).tolist() == [0, 0, 1, 1]
    progress = RouteProgress()(candidates).tolist()
    assert progress[1] < progress[0]
    assert progress[2] == progress[3]


@pytest.mark.parametrize(
    ("config", "furthest_m"),
    # The original lets its front bumper roll past the end of the route: it does not know that its tracker brakes late.
    [(PdmConfig(), 301.0), (PDM_ADAPTED, 300.0)],
)
def test_rule_based_drivers_stop_at_the_end_of_the_map(config: PdmConfig, furthest_m: float) -> None:
    scene = road_scene(speed_mps=10.0, steps=NOW + 151)
    tracks = replace(scene.tracks, x_m=np.minimum(scene.tracks.x_m + np.float32(230), np.float32(299)))
    rollout = simulate(replace(scene, tracks=tracks), PdmClosed(config=config))
    ego = rollout.history.ego
    assert ego.speed_mps[-1] < 0.3
    assert ego.corners_m[:, :, 0].max() < furthest_m


def test_the_end_is_that_of_the_route_or_of_the_map() -> None:
    scene = road_scene()
    observation = observation_of(scene)

    def end_m(changed: Scene) -> float:
        road = Road.ahead_of(changed, observation.ego, vehicle=observation.vehicle, fallback_mps=10.0)
        at_m = np.array([road.end_m])
        return float(road.path.pose_at(at_m, np.zeros(1))[0][0, 0]) if np.isfinite(road.end_m) else np.inf

    assert scene.route is not None
    shorter = replace(scene.route, lanes=scene.route.lanes[:1], sections=scene.route.sections[:1])
    assert end_m(scene) == pytest.approx(300, abs=0.5)
    assert end_m(replace(scene, route=shorter)) == pytest.approx(50, abs=0.5)
    assert end_m(replace(scene, route=None)) == pytest.approx(300, abs=0.5)
    assert end_m(replace(scene, map=MapFeatures(), route=None)) == pytest.approx(np.inf)
