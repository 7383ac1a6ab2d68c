"""Which road users guided planning is judged by, on a crossing made for it."""

from dataclasses import replace

import numpy as np
import pytest

from test_manoeuvre import CURRENT, STEPS, TIME_S, arc, lanes_of, scene_of, straight
from waycode.driving.turns import DrivingLimits, earliest_turn_s, turns_ahead
from waycode.evaluation.selection import (
    Group,
    goal_cases,
    lane_change_cases,
    left_turn_cases,
    route_cases,
    slow_down_cases,
    turned_left_cases,
)
from waycode.scene import Lanes, Route, Scene, StopSigns, as_pairs

RADIUS_M = 10.0


def quarter(*, side: int, start_rad: float = 0.0, end_rad: float = np.pi / 2) -> np.ndarray:
    """A piece of a turn that begins at the origin and goes along x."""
    angle = np.linspace(start_rad, end_rad, 31)
    return RADIUS_M * np.stack([np.sin(angle), side * (1 - np.cos(angle))], axis=-1)


def line(start: tuple[float, float], end: tuple[float, float]) -> np.ndarray:
    return np.linspace(start, end, 41)


APPROACH, STRAIGHT, TURN, EXIT = 0, 1, 2, 3


def crossing(*, side: int = 1, legal: bool = True) -> Lanes:
    """A way along x to a junction from 0 to 20, straight on behind it, and a turn to one side."""
    lines = [line((-80, 0), (0, 0)), line((0, 0), (20, 0)), quarter(side=side), line((20, 0), (150, 0))]
    onward = [(APPROACH, STRAIGHT), (STRAIGHT, EXIT)] + ([(APPROACH, TURN)] if legal else [])
    lanes = lanes_of(lines, successors=as_pairs(onward))
    return replace(lanes, in_junction=np.array([False, True, True, False]))


def beside() -> Lanes:
    """The same crossing, where only the lane to the left of the approach turns."""
    lines = [*crossing().centrelines.as_list(), line((-80, 3.5), (0, 3.5))]
    onward = as_pairs([(APPROACH, STRAIGHT), (STRAIGHT, EXIT), (4, TURN)])
    lanes = lanes_of(lines, successors=onward, left_neighbours=as_pairs([(0, 4)]), right_neighbours=as_pairs([(4, 0)]))
    return replace(lanes, in_junction=np.array([False, True, True, False, False]))


def limited(lanes: Lanes, limit_mps: float) -> Lanes:
    count = len(lanes)
    return replace(
        lanes, speed_limit_mps=np.full(count, limit_mps, np.float32), speed_limit_known=np.ones(count, np.bool_)
    )


def driving(start_m: float, speed_mps: float, lanes: Lanes) -> Scene:
    """A car on the approach that keeps straight on at a constant speed; at the current step it is at `start_m`."""
    return scene_of(np.stack([start_m + speed_mps * TIME_S, np.zeros(STEPS)], axis=-1), lanes)


def test_a_left_turn_is_found_with_its_distance() -> None:
    (turn,) = turns_ahead(crossing(), APPROACH, along_m=55.0, reach_m=100.0)
    assert turn.lanes == (APPROACH, TURN)
    assert turn.turning == 1
    assert turn.distance_m == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("lanes", "reach_m"),
    [
        pytest.param(crossing(side=-1), 100.0, id="a right turn"),
        pytest.param(crossing(legal=False), 100.0, id="not connected"),
        pytest.param(crossing(), 20.0, id="out of reach"),
    ],
)
def test_no_left_turn(lanes: Lanes, reach_m: float) -> None:
    assert turns_ahead(lanes, APPROACH, along_m=55.0, reach_m=reach_m) == []


def test_a_turn_in_two_pieces_behind_a_junction_without_turns() -> None:
    halves = [quarter(side=1, end_rad=np.pi / 4), quarter(side=1, start_rad=np.pi / 4)]
    lines = [line((-60, 0), (-20, 0)), line((-20, 0), (-10, 0)), line((-10, 0), (0, 0)), *halves]
    lanes = lanes_of(lines, successors=as_pairs([(0, 1), (1, 2), (2, 3), (3, 4)]))
    lanes = replace(lanes, in_junction=np.array([False, True, False, True, True]))
    (turn,) = turns_ahead(lanes, 0, along_m=0.0, reach_m=100.0)
    assert turn.lanes == (0, 1, 2, 3, 4)
    assert turn.turning == 2
    assert turn.distance_m == pytest.approx(60.0)


def test_a_way_with_a_loop_ends() -> None:
    ring = [line((0, 0), (10, 0)), line((10, 0), (0, 0))]
    lanes = lanes_of(ring, successors=as_pairs([(0, 1), (1, 0)]))
    assert turns_ahead(lanes, 0, along_m=0.0, reach_m=1e6) == []


def test_time_to_the_turn_by_hand() -> None:
    lanes = crossing()
    (turn,) = turns_ahead(lanes, APPROACH, along_m=60.0, reach_m=100.0)
    steady = DrivingLimits(acceleration_mps2=0.0)
    # 20 m straight and an eighth of a circle of 10 m radius, at 5 m/s all the way: the corner allows 5.48 m/s.
    expected = (20 + RADIUS_M * np.pi / 4) / 5
    assert earliest_turn_s(lanes, turn, speed_mps=5.0, limits=steady) == pytest.approx(expected, abs=0.2)
    faster = earliest_turn_s(lanes, turn, speed_mps=5.0)
    assert faster is not None
    assert faster < expected - 0.2


@pytest.mark.parametrize(("speed_mps", "possible"), [(12.0, True), (12.3, False)])
def test_who_is_too_fast_cannot_turn(speed_mps: float, possible: bool) -> None:
    lanes = crossing()
    (turn,) = turns_ahead(lanes, APPROACH, along_m=60.0, reach_m=100.0)
    # Braking at 3 m/s^2 over 20 m ends at the corner's sqrt(30) m/s for whoever drives at sqrt(30 + 120) = 12.25 m/s.
    assert (earliest_turn_s(lanes, turn, speed_mps=speed_mps) is not None) == possible


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(driving(-20, 8.0, crossing()), [Group.AVAILABLE], id="available"),
        pytest.param(driving(-20, 8.0, crossing(legal=False)), [Group.FROM_NO_LANE], id="no legal connection"),
        pytest.param(driving(-20, 8.0, beside()), [Group.FROM_ANOTHER_LANE], id="from the lane beside"),
        pytest.param(driving(-20, 8.0, crossing(side=-1)), [Group.FROM_NO_LANE], id="only a right turn"),
        pytest.param(driving(-5, 12.0, crossing()), [], id="too near for its speed"),
        pytest.param(driving(-66, 11.0, limited(crossing(), 11.0)), [], id="too far to turn in time"),
        pytest.param(driving(5, 8.0, crossing()), [], id="already in the junction"),
        pytest.param(driving(-20, 3.0, crossing()), [], id="not through the junction at the end"),
        pytest.param(driving(30, 8.0, crossing()), [], id="behind the junction"),
    ],
)
def test_left_turn_cases(scene: Scene, expected: list[Group]) -> None:
    assert [case.group for case in left_turn_cases(scene)] == expected


@pytest.mark.parametrize("legal", [True, False])
@pytest.mark.parametrize(("num_signs", "expected"), [(2, False), (3, True)])
def test_an_all_way_stop_has_several_signs(num_signs: int, expected: bool, legal: bool) -> None:
    scene = driving(-20, 8.0, crossing(legal=legal))
    near = np.array([[2.0, -5.0], [10.0, 8.0], [18.0, 5.0]], np.float32)[:num_signs]
    far = np.array([[70.0, 5.0]], np.float32)  # by the next crossing
    signs = StopSigns(position_m=np.concatenate([near, far]))
    (case,) = left_turn_cases(replace(scene, map=replace(scene.map, stop_signs=signs)))
    assert case.all_way_stop == expected
    assert case.group == (Group.AVAILABLE if legal else Group.FROM_NO_LANE)


def test_a_junction_without_any_turn_is_no_crossing() -> None:
    lanes = crossing()
    plain = replace(lanes, in_junction=np.array([False, True, False, False]))
    assert left_turn_cases(driving(-20, 8.0, plain)) == []


def test_who_turns_is_no_case() -> None:
    turned = arc(np.radians(80)) - np.array([30.0, 0.0])
    assert left_turn_cases(scene_of(turned, crossing())) == []


def two_lanes() -> Lanes:
    along = np.linspace(-40, 160, 100)
    lines = [np.stack([along, np.full(100, side)], axis=-1) for side in (0.0, 3.5)]
    return lanes_of(lines, left_neighbours=as_pairs([(0, 1)]), right_neighbours=as_pairs([(1, 0)]))


def changing(*to_left: float, first_s: float = 2.0) -> Scene:
    """A car at 10 m/s that moves aside by these many lanes, one after the other, 2.5 seconds apart."""
    position = straight(np.full(STEPS, 10.0))
    times = first_s + 2.5 * np.arange(len(to_left))
    position[:, 1] = sum(
        step * 3.5 / (1 + np.exp(-4 * (TIME_S - time))) for step, time in zip(to_left, times, strict=True)
    )
    return scene_of(position, two_lanes())


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(changing(1), [Group.ZERO, Group.ONE], id="one to the left"),
        pytest.param(changing(0), [], id="none"),
        pytest.param(changing(1, -1), [], id="there and back"),
        pytest.param(changing(1, first_s=0.5), [], id="already under way"),
    ],
)
def test_lane_change_cases(scene: Scene, expected: list[Group]) -> None:
    assert [case.group for case in lane_change_cases(scene)] == expected


@pytest.mark.parametrize(
    ("speed_mps", "expected"),
    [
        pytest.param(np.full(STEPS, 9.0), 1, id="steady"),
        pytest.param(np.full(STEPS, 7.5), 0, id="slower"),
        pytest.param(np.full(STEPS, 10.5), 0, id="faster"),
        pytest.param(np.clip(9 - 0.5 * TIME_S, 4, 9), 0, id="slows down"),
    ],
)
def test_slow_down_cases(speed_mps: np.ndarray, expected: int) -> None:
    assert len(slow_down_cases(scene_of(straight(speed_mps), two_lanes()))) == expected


def test_who_is_not_seen_to_the_end_or_leaves_the_map_is_no_case() -> None:
    scene = scene_of(straight(np.full(STEPS, 9.0)), two_lanes())
    gap = scene.tracks.valid.copy()
    gap[0, CURRENT + 40] = False
    assert slow_down_cases(replace(scene, tracks=replace(scene.tracks, valid=gap))) == []
    short = lanes_of([line((-20, 0), (40, 0))])
    assert slow_down_cases(replace(scene, map=replace(scene.map, lanes=short))) == []
    assert slow_down_cases(replace(scene, map=replace(scene.map, lanes=Lanes()))) == []


def turning(angle_rad: float) -> Scene:
    """A car that turns within a junction, on lanes along its own path."""
    path = arc(angle_rad)
    lanes = lanes_of([path[: CURRENT + 5], path[CURRENT + 4 :]], successors=as_pairs([(0, 1)]))
    return scene_of(path, replace(lanes, in_junction=np.array([False, True])))


@pytest.mark.parametrize(("angle_deg", "expected"), [(80, 1), (40, 0), (-80, 0)])
def test_recorded_left_turns(angle_deg: float, expected: int) -> None:
    assert len(turned_left_cases(turning(np.radians(angle_deg)))) == expected


@pytest.mark.parametrize(("speed_mps", "expected"), [(9.0, 1), (0.5, 0)])
def test_goals_and_routes_are_for_cars_that_move(speed_mps: float, expected: int) -> None:
    scene = scene_of(straight(np.full(STEPS, speed_mps)), two_lanes())
    scene = replace(scene, tracks=replace(scene.tracks, to_predict=np.array([0], np.int32), ego_index=0))
    assert [case.group for case in goal_cases(scene)] == [Group.GOAL] * expected
    assert goal_cases(replace(scene, tracks=replace(scene.tracks, to_predict=np.zeros(0, np.int32)))) == []
    assert route_cases(scene) == []
    routed = replace(scene, route=Route(lanes=np.array([0], np.int32), sections=np.array([0], np.int32)))
    assert [case.group for case in route_cases(routed)] == [Group.ROUTE] * expected
