"""Traffic that reacts: vehicles keep their distance from the ego and from each other, and stop at red."""

from dataclasses import replace

import numpy as np

from driving_scenes import LONG, NOW, STEPS, one_car, road_scene, sample_scenes
from waycode.baselines import IdmDriver
from waycode.driving import Vehicle, VehicleState
from waycode.scene import Scene, SignalState, TrackType
from waycode.scene.conflicts import overlapping_pairs
from waycode.simulation.idm_traffic import IdmTraffic
from waycode.simulation.rollout import SimulationConfig, simulate
from waycode.simulation.traffic import ReplayTraffic, Snapshot

CAR = Vehicle.of_size(length_m=4.5, width_m=1.9)
FAR_AWAY = one_car(0.0, 1000.0, speed_mps=0.0)


def driven(scene: Scene, ego: VehicleState, *, steps: int = STEPS - NOW - 1) -> list[Snapshot]:
    traffic = IdmTraffic()
    state, snapshots = traffic.reset(scene), []
    for _ in range(steps):
        state, snapshot = traffic.step(state, ego, vehicle=CAR)
        snapshots.append(snapshot)
    return snapshots


def test_a_free_vehicle_speeds_up_to_the_limit() -> None:
    after = driven(road_scene(others=((0.0, 3.5, 8.0),)), FAR_AWAY)[-1]
    assert 10.0 < after.velocity_mps[0, 0] <= 12.0
    np.testing.assert_allclose(after.position_m[0, 1], 3.5, atol=0.05)


def test_a_vehicle_stops_behind_an_ego_that_stands() -> None:
    ego = one_car(45.0 - CAR.rear_axle_to_centre_m, 0.0, speed_mps=0.0)
    scene = road_scene(others=((0.0, 0.0, 8.0),), steps=LONG)
    after = driven(scene, ego, steps=LONG - NOW - 1)[-1]
    bumper = after.position_m[0, 0] + 2.25
    assert 40.0 < bumper < 42.75  # the ego's rear is at 42.75 m
    assert after.velocity_mps[0, 0] < 0.3
    replayed = ReplayTraffic()
    state = replayed.reset(road_scene(others=((0.0, 0.0, 8.0),)))
    for _ in range(STEPS - NOW - 1):
        state, blind = replayed.step(state, ego, vehicle=CAR)
    assert blind.position_m[0, 0] > 45


def speed_lost_mps(*, ego_y_m: float, ego_speed_mps: float) -> float:
    """How much slower a vehicle gets within a step for an ego that drives along +y towards its path at x = 30."""
    ego = one_car(30.0, ego_y_m - CAR.rear_axle_to_centre_m, heading_rad=np.pi / 2, speed_mps=ego_speed_mps)
    (after,) = driven(road_scene(others=((0.0, 0.0, 11.9),)), ego, steps=1)
    return float(11.9 - after.velocity_mps[0, 0])


def test_a_vehicle_brakes_for_an_ego_that_crosses_before_it() -> None:
    assert speed_lost_mps(ego_y_m=-10.0, ego_speed_mps=8.0) > 0.15  # it is there after 0.8 s, the vehicle after 2 s


def test_a_vehicle_does_not_brake_for_an_ego_that_comes_too_late_or_stands() -> None:
    assert speed_lost_mps(ego_y_m=-10.0, ego_speed_mps=2.0) < 0.1
    assert speed_lost_mps(ego_y_m=-10.0, ego_speed_mps=0.0) < 0.1


def test_a_vehicle_does_not_brake_for_who_comes_the_other_way() -> None:
    ego = one_car(40.0, 3.0, heading_rad=np.pi, speed_mps=10.0)
    (after,) = driven(road_scene(others=((0.0, 0.0, 11.9),)), ego, steps=1)
    assert after.velocity_mps[0, 0] > 11.8


def test_a_vehicle_stops_at_a_red_light_and_not_at_a_green_one() -> None:
    others = ((15.0, 0.0, 8.0),)
    scene = road_scene(others=others, light=SignalState.STOP, steps=LONG)
    red = driven(scene, FAR_AWAY, steps=LONG - NOW - 1)[-1]
    green = driven(road_scene(others=others, light=SignalState.GO), FAR_AWAY)[-1]
    assert 47.0 < red.position_m[0, 0] + 2.25 < 50.0
    assert green.position_m[0, 0] > 60


def test_vehicles_that_never_move_stay_and_pedestrians_are_replayed() -> None:
    scene = road_scene(others=((20.0, 0.0, 0.0), (30.0, 0.0, 1.0)))
    types = scene.tracks.types.copy()
    types[2] = TrackType.PEDESTRIAN
    scene = replace(scene, tracks=replace(scene.tracks, types=types))
    after = driven(scene, FAR_AWAY)[-1]
    assert after.position_m[0].tolist() == [20.0, 0.0]
    np.testing.assert_array_equal(after.position_m[1, 0], scene.tracks.x_m[2, -1])


def test_a_vehicle_that_appears_later_drives_from_where_it_appears() -> None:
    scene = road_scene(others=((0.0, 3.5, 8.0),))
    valid = scene.tracks.valid.copy()
    valid[1, : NOW + 20] = False
    snapshots = driven(replace(scene, tracks=replace(scene.tracks, valid=valid)), FAR_AWAY)
    assert [bool(snapshot.valid[0]) for snapshot in snapshots[17:21]] == [False, False, True, True]
    assert snapshots[19].position_m[0, 0] == scene.tracks.x_m[1, NOW + 20]
    assert snapshots[-1].position_m[0, 0] > snapshots[19].position_m[0, 0] + 30


def test_a_vehicle_drives_on_where_its_recording_ends() -> None:
    scene = road_scene(others=((0.0, 3.5, 8.0),))
    valid = scene.tracks.valid.copy()
    valid[1, NOW + 10 :] = False
    after = driven(replace(scene, tracks=replace(scene.tracks, valid=valid)), FAR_AWAY)[-1]
    assert after.valid[0]
    assert after.position_m[0, 0] > 45
    np.testing.assert_allclose(after.position_m[0, 1], 3.5, atol=0.05)


def test_a_step_leaves_the_state_before_it_alone() -> None:
    traffic, scene = IdmTraffic(), road_scene(others=((0.0, 3.5, 8.0),))
    start = traffic.reset(scene)
    one, _ = traffic.step(start, FAR_AWAY, vehicle=CAR)
    again, _ = traffic.step(start, FAR_AWAY, vehicle=CAR)
    np.testing.assert_array_equal(one.along_m, again.along_m)
    assert start.step == NOW


def test_vehicles_do_not_drive_into_their_leaders_in_bundled_scenes() -> None:
    for scene in sample_scenes(3):
        result = simulate(scene, IdmDriver(), traffic=IdmTraffic(), config=SimulationConfig(horizon_s=4.0))
        tracks = result.scene.tracks
        vehicles = tracks.types == TrackType.VEHICLE
        pairs = overlapping_pairs(tracks, which=vehicles)
        apart = np.abs(np.cos(tracks.heading_rad[pairs[:, 0], -1] - tracks.heading_rad[pairs[:, 1], -1]))
        assert (apart < 0.9).all(), (scene.id, pairs[:5])  # those that cross in a junction are another matter
