"""Lane changes: on a made-up road, at forks and merges, and against the manoeuvres of the bundled scenes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from roads import STEPS, candidates_in, cars, lanes_of, line, moved, road, shifted, straight
from waycode.demo import bundled_dataset
from waycode.objectives import LaneChange, ObjectiveError
from waycode.objectives.lanes import count_lane_changes
from waycode.scene import LaneType, MapFeatures, Scene, TrackType
from waycode.scene.frames import rotate
from waycode.scene.manoeuvre import Manoeuvre, classify


def changes(scene: Scene, path: np.ndarray) -> tuple[int, int]:
    """Lane changes to the left and to the right."""
    found = count_lane_changes(candidates_in(scene, path))
    return int(found.to_left[0]), int(found.to_right[0])


PATHS = {
    "none": (0.0, straight(), (0, 0)),
    "one to the left": (0.0, shifted(3.5), (1, 0)),
    "one to the right": (3.5, shifted(0, from_y_m=3.5), (0, 1)),
    "two to the left": (0.0, shifted(7.0), (2, 0)),
    "across the joint": (0.0, shifted(3.5, begin_m=35, end_m=65), (1, 0)),
    "not quite": (0.0, shifted(1.6), (0, 0)),
    "within half the time": (0.0, shifted(3.5, begin_m=5, end_m=25)[:40], (1, 0)),
    "standing": (0.0, np.zeros((STEPS, 2)), (0, 0)),
}


@pytest.mark.parametrize("graph", [True, False], ids=["lane graph", "no lane graph"])
@pytest.mark.parametrize(("start_y_m", "path", "expected"), PATHS.values(), ids=PATHS)
def test_changes_on_a_road(start_y_m: float, path: np.ndarray, expected: tuple[int, int], graph: bool) -> None:
    assert changes(road(start_y_m=start_y_m, graph=graph), path) == expected


def test_there_and_back_are_two_changes() -> None:
    path = straight()
    path[:, 1] = 3.5 * np.sin(np.pi * path[:, 0] / 80) ** 2
    assert changes(road(), path) == (1, 1)


def test_sides_are_those_of_the_driver() -> None:
    """Turned by half a turn, left is towards -y."""
    path = rotate(shifted(3.5), np.pi)
    assert changes(moved(road(), angle_rad=np.pi, by_m=(0.0, 0.0)), path) == (1, 0)


@pytest.mark.parametrize(
    ("count", "either_side", "wrong"),
    [(1, False, [1, 0, 2]), (-1, False, [1, 2, 0]), (0, False, [0, 1, 1]), (2, False, [2, 1, 3]), (1, True, [1, 0, 0])],
)
def test_the_first_level_counts_what_is_wrong(count: int, either_side: bool, wrong: list[int]) -> None:
    paths = np.stack([straight(y_m=3.5), shifted(7.0, from_y_m=3.5), shifted(0.0, from_y_m=3.5)])
    costs = LaneChange(count, either_side=either_side)(candidates_in(road(start_y_m=3.5), paths))
    assert costs[:, 0].tolist() == wrong


def test_of_those_that_miss_a_change_the_one_nearest_to_the_line_is_best() -> None:
    paths = np.stack([straight(), shifted(1.2), shifted(-1.2), shifted(3.5)])
    left, right, either = (
        LaneChange(count, either_side=either)(candidates_in(road(), paths))[:, 1].numpy()
        for count, either in ((1, False), (-1, False), (1, True))
    )
    np.testing.assert_allclose(left, [1.75, 0.55, 1.75, 0.0], atol=0.02)
    np.testing.assert_allclose(right[:3], [1.75, 1.75, 0.55], atol=0.02)
    np.testing.assert_allclose(either, [1.75, 0.55, 0.55, 0.0], atol=0.02)


def test_of_those_that_change_too_often_the_latest_is_best() -> None:
    late = straight()
    late[:, 1] = np.interp(late[:, 0], [50, 80], [0, 3.5])
    stays, sooner, later = LaneChange(0)(candidates_in(road(), np.stack([straight(), shifted(3.5), late])))[:, 1]
    assert sooner > later > stays == 0


def test_the_second_level_can_be_switched_off() -> None:
    paths = np.stack([straight(), straight(y_m=1.0), shifted(3.5)])
    guided, plain = (LaneChange(1, guided=guided)(candidates_in(road(), paths)) for guided in (True, False))
    assert (guided[:, 1] != 0).any()
    assert (plain[:, 1] == 0).all()
    assert torch.equal(plain[:, [0, 2]], guided[:, [0, 2]])


def test_the_last_level_is_the_distance_from_the_lane() -> None:
    costs = LaneChange(0)(candidates_in(road(start_y_m=0.4), np.stack([straight(y_m=0.4), straight(y_m=1.0)])))
    assert costs[0, 2].item() == pytest.approx(0.4, abs=1e-5)
    assert costs[1, 2].item() == pytest.approx((0.4 + 16 * 1.0) / 17, abs=1e-5)  # the current position among them


def test_against_all_lanes_counts_as_far_off() -> None:
    """Who drives against the traffic is on no lane: as far off as lanes are looked for."""
    path = straight()
    path[:, 0] *= -1
    scene = road()
    backward = replace(scene, tracks=replace(scene.tracks, heading_rad=scene.tracks.heading_rad + np.float32(np.pi)))
    costs = LaneChange(0)(candidates_in(backward, path))
    assert costs[0].tolist() == pytest.approx([0.0, 0.0, 10.0])


def forked(*, graph: bool) -> Scene:
    """One lane up to x = 20; from there one goes on straight, and one bends to the left with a radius of 20 m."""
    angle = np.linspace(0, np.pi / 2, 20)
    bend = np.stack([20 + 20 * np.sin(angle), 20 - 20 * np.cos(angle)], axis=-1)
    lines = [line((-20, 0), (20, 0)), line((20, 0), (120, 0)), bend, line((40, 20), (40, 120))]
    lanes = lanes_of(lines, successors=[(0, 1), (0, 2), (2, 3)] if graph else [])
    tracks = cars([(0.0, 0.0)], speeds_mps=[10.0])
    return replace(road(), tracks=tracks, map=MapFeatures(lanes=lanes), route=None)


def bent() -> np.ndarray:
    """Along the bend of `forked` at 10 m/s."""
    along = np.arange(1, STEPS + 1.0)
    angle = np.clip((along - 20) / 20, 0, np.pi / 2)
    x = np.minimum(along, 20) + 20 * np.sin(angle)
    y = 20 - 20 * np.cos(angle) + np.maximum(along - 20 - 10 * np.pi, 0)
    return np.stack([x, y], axis=-1)


@pytest.mark.parametrize("graph", [True, False], ids=["lane graph", "no lane graph"])
@pytest.mark.parametrize("aside_m", [-0.8, 0.0, 0.8])
@pytest.mark.parametrize("path", [straight(), bent()], ids=["straight on", "around the bend"])
def test_a_fork_is_no_lane_change(path: np.ndarray, aside_m: float, graph: bool) -> None:
    assert changes(forked(graph=graph), path + np.array([0.0, aside_m])) == (0, 0)


@pytest.mark.parametrize("graph", [True, False], ids=["lane graph", "no lane graph"])
def test_a_merge_is_no_lane_change(graph: bool) -> None:
    """A ramp from the right comes together with the lane at x = 40."""
    ramp = np.array([[0.0, -8.0], [20.0, -4.0], [30.0, -1.5], [40.0, 0.0]])
    lines = [ramp, line((-40, 0), (40, 0)), line((40, 0), (140, 0))]
    lanes = lanes_of(lines, successors=[(0, 2), (1, 2)] if graph else [])
    scene = replace(road(start_y_m=-8.0), map=MapFeatures(lanes=lanes), route=None)
    path = straight()
    path[:, 1] = np.interp(path[:, 0], [*ramp[:, 0], 100], [*ramp[:, 1], 0])
    assert changes(scene, path) == (0, 0)


@pytest.mark.parametrize(("kind", "expected"), [(TrackType.VEHICLE, (0, 0)), (TrackType.CYCLIST, (1, 0))])
def test_bicycle_lanes_are_for_cyclists(kind: TrackType, expected: tuple[int, int]) -> None:
    scene = road()
    types = scene.map.lanes.types.copy()
    types[[1, 2, 4, 5]] = LaneType.BIKE
    ridden = replace(
        scene,
        map=replace(scene.map, lanes=replace(scene.map.lanes, types=types)),
        tracks=replace(scene.tracks, types=np.full_like(scene.tracks.types, kind)),
    )
    assert changes(ridden, shifted(3.5)) == expected


def test_beyond_the_end_of_the_map_nobody_changes_lanes() -> None:
    """The lane ends at x = 40, the one beside it at 60: from there on, that one is nearest."""
    lanes = lanes_of([line((-40, 0), (40, 0)), line((-40, 3.5), (60, 3.5))], successors=[])
    scene = replace(road(), map=MapFeatures(lanes=lanes), route=None)
    assert changes(scene, straight()) == (0, 0)
    assert LaneChange(0)(candidates_in(scene, straight()))[0].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-5)


def test_far_from_all_lanes() -> None:
    with pytest.raises(ObjectiveError, match="no lane of scene 'road' comes within 10 m of track 'ego', expected one"):
        LaneChange(0)(candidates_in(road(start_y_m=-20.0), straight(y_m=-20.0)))


@pytest.mark.parametrize("family", ["arterial", "all_way_stop", "roundabout"])
def test_recorded_manoeuvres_of_the_bundled_scenes(family: str) -> None:
    """`scene.manoeuvre` finds lane changes by other means: a search tree, and neighbours in the lane graph."""
    expected = dict.fromkeys(Manoeuvre, (0, 0)) | {
        Manoeuvre.LANE_CHANGE_LEFT: (1, 0),
        Manoeuvre.LANE_CHANGE_RIGHT: (0, 1),
    }
    scene = next(one for one in bundled_dataset() if one.id.startswith(family))
    manoeuvres, future = classify(scene), slice(scene.current_step + 1, scene.current_step + 81)
    seen = 0
    for track in map(int, np.flatnonzero(scene.tracks.valid[:, scene.current_step : future.stop].all(axis=1))):
        path = scene.tracks.position_m[track, future].astype(np.float64)
        if is_near_a_lane(scene, track) and scene.tracks.types[track] == TrackType.VEHICLE:
            found = count_lane_changes(candidates_in(scene, path, agent=track))
            assert (int(found.to_left[0]), int(found.to_right[0])) == expected[manoeuvres[track]], track
            seen += 1
    assert seen >= 5


def is_near_a_lane(scene: Scene, track: int) -> bool:
    distance = scene.map.lanes.centrelines.points_m - scene.tracks.position_m[track, scene.current_step]
    return bool(np.hypot(*distance.T).min() < 8)
