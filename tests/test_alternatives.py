"""Other ways that a recorded car could have gone, on roads that are laid out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from roads import cars, lanes_of, line, road
from waycode.scene import LaneType, MapFeatures, Scene, TrackType, as_pairs
from waycode.training.alternatives import BRAKING_MPS2, LATERAL_MPS2, alternative_future

STEPS, DT_S = 80, 0.1
FAR_M = (0.0, 500.0)  # where a car is in nobody's way


def ways(scene: Scene, *, tries: int = 40) -> list[np.ndarray]:
    """What was found for the ego, in its frame; all roads here run along x from where it is."""
    found = [alternative_future(scene, 0, np.random.default_rng(seed), steps=STEPS) for seed in range(tries)]
    return [way for way in found if way is not None]


def forked(*, speed_mps: float = 8.0, end_m: float = 100.0) -> Scene:
    """A lane that goes straight on or, after 20 m, turns left on an arc of 12 m."""
    angle = np.linspace(0, np.pi / 2, 16)
    arc = np.stack([20 + 12 * np.sin(angle), 12 * (1 - np.cos(angle))], axis=-1)
    lines = [line((-50, 0), (20, 0)), line((20, 0), (end_m, 0)), arc, line((32, 12), (32, 112))]
    lanes = lanes_of(lines, successors=[(0, 1), (0, 2), (2, 3)])
    tracks = cars([(0.0, 0.0), FAR_M], speeds_mps=[speed_mps, 0.0])
    return replace(road(), map=MapFeatures(lanes=lanes), tracks=tracks, route=None)


def test_who_went_straight_on_could_have_turned() -> None:
    found = ways(forked())
    assert found
    for way in found:  # straight on at this speed is what was recorded, and no other way
        np.testing.assert_allclose(way[-1, 0], 32, atol=0.3)
        assert way[-1, 1] > 12


def test_turns_are_driven_as_a_car_can() -> None:
    for way in ways(forked(speed_mps=9.0)):
        joined = np.concatenate([np.zeros((1, 2)), way])
        velocity = np.diff(joined, axis=0) / DT_S
        speed = np.linalg.norm(velocity, axis=1)
        assert speed[0] == pytest.approx(9.0, abs=0.5)
        assert (np.diff(speed) / DT_S).min() > -BRAKING_MPS2 - 0.5
        acceleration = np.diff(velocity, axis=0) / DT_S
        lateral = (velocity[1:, 0] * acceleration[:, 1] - velocity[1:, 1] * acceleration[:, 0]) / speed[1:]
        assert np.abs(lateral).max() < LATERAL_MPS2 + 0.5


def test_who_is_too_fast_cannot_turn() -> None:
    assert ways(forked(speed_mps=18.0, end_m=200.0)) == []


def test_lanes_are_changed_to_either_side_but_not_off_the_road() -> None:
    scene = replace(road(start_y_m=3.5), tracks=cars([(0.0, 3.5), FAR_M], speeds_mps=[10.0, 0.0]))
    ends = np.array([way[-1, 1] for way in ways(scene)])  # the ego is on the middle one of three lanes
    assert len(ends) > 10
    np.testing.assert_allclose(np.abs(ends), 3.5, atol=0.05)
    assert {*np.sign(ends)} == {-1.0, 1.0}
    at_the_right = replace(road(), tracks=cars([(0.0, 0.0), FAR_M], speeds_mps=[10.0, 0.0]))
    assert all(way[-1, 1] > 3 for way in ways(at_the_right))


def test_nobody_is_hit() -> None:
    blocked = [(0.0, 0.0), *((x, 3.5) for x in np.arange(-30.0, 60.0, 6.0))]  # a column beside the ego
    scene = replace(road(), tracks=cars(blocked, speeds_mps=[10.0] * len(blocked)))
    assert ways(scene) == []


def test_where_a_lane_ends_beside_another_one_can_stay_and_stop() -> None:
    """An on-ramp: the recorded car changed lanes; who stays brakes before the end."""
    lines = [line((-50, 0), (60, 0)), line((-50, 3.5), (60, 3.5)), line((60, 3.5), (200, 3.5))]
    lanes = replace(
        lanes_of(lines, successors=[(1, 2)]),
        left_neighbours=as_pairs([(0, 1)]),
        right_neighbours=as_pairs([(1, 0)]),
    )
    tracks = cars([(0.0, 0.0), FAR_M], speeds_mps=[9.0, 0.0])
    y = tracks.y_m.copy()
    y[0] = np.interp(np.arange(STEPS + 1), [0, 10, 40], [0, 0, 3.5])
    scene = replace(road(), map=MapFeatures(lanes=lanes), tracks=replace(tracks, y_m=y), route=None)
    stays = [way for way in ways(scene) if abs(way[-1, 1]) < 1]
    assert stays
    assert all(40 < way[-1, 0] < 60 for way in stays)


def test_where_the_map_is_cut_off_nobody_knows() -> None:
    stopped = cars([(0.0, 0.0), FAR_M], speeds_mps=[8.0, 0.0])
    x = np.minimum(stopped.x_m, 60.0)  # the recorded car stopped, so that driving on would be another way
    scene = forked(end_m=70.0)
    assert all(way[-1, 1] > 5 for way in ways(replace(scene, tracks=replace(stopped, x_m=x))))


def test_a_car_beside_the_middle_goes_back_to_it_without_a_jump() -> None:
    scene = replace(road(start_y_m=4.3), tracks=cars([(0.0, 4.3), FAR_M], speeds_mps=[10.0, 0.0]))
    for way in ways(scene):
        assert np.linalg.norm(way[0] - [1.0, 0.0]) < 0.05
        assert min(abs(way[-1, 1] + 0.8 - side) for side in (-3.5, 0.0, 3.5)) < 0.05


@pytest.mark.parametrize("kind", [TrackType.PEDESTRIAN, TrackType.CYCLIST])
def test_only_cars_are_bound_to_lanes(kind: TrackType) -> None:
    scene = forked()
    types = scene.tracks.types.copy()
    types[0] = kind
    assert ways(replace(scene, tracks=replace(scene.tracks, types=types)), tries=5) == []


def test_who_is_not_seen_to_the_end_has_no_other_way() -> None:
    scene = forked()
    valid = scene.tracks.valid.copy()
    valid[0, -1] = False
    assert ways(replace(scene, tracks=replace(scene.tracks, valid=valid)), tries=5) == []


def test_the_lane_under_a_car_runs_its_way_and_is_for_cars() -> None:
    lines = [line((0, 0), (100, 0)), line((100, 1), (0, 1)), line((0, -1), (100, -1))]
    lanes = lanes_of(lines, successors=[(0, 1)])
    lanes = replace(lanes, types=np.array([LaneType.STREET, LaneType.STREET, LaneType.BIKE], np.int8))

    def lane_under(position_m: np.ndarray, heading_rad: float) -> int | None:
        return lanes.graph.nearest_lane(position_m, heading_rad, usable=lanes.types != LaneType.BIKE)

    assert lane_under(np.array([50.0, 0.9]), 0.0) == 0
    assert lane_under(np.array([50.0, 0.1]), np.pi) == 1
    assert lane_under(np.array([50.0, -0.9]), 0.0) == 0
    assert lane_under(np.array([50.0, 9.0]), 0.0) is None
    assert lane_under(np.array([100.5, 0.5]), np.pi / 2) is None  # from one lane's end to the next one's start
