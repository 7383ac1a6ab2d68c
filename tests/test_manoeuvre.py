"""Every manoeuvre on a map made for it."""

from dataclasses import replace

import numpy as np
import pytest

from scenes import bare_scene
from test_kinematics import tracks_of
from waycode.scene import GraphOrigin, Lanes, MapFeatures, Polylines, Scene, TrackType, as_pairs
from waycode.scene.manoeuvre import Manoeuvre, classify

DT_S, STEPS, CURRENT = 0.1, 91, 10
TIME_S = (np.arange(STEPS) - CURRENT) * DT_S


def scene_of(position_m: np.ndarray, lanes: Lanes | None = None) -> Scene:
    """A scene with one car that goes through these points [T, 2]."""
    velocity = np.gradient(position_m, DT_S, axis=0)
    speed = np.linalg.norm(velocity, axis=1)
    known = np.maximum.accumulate(np.where(speed > 0.05, np.arange(len(speed)), 0))
    heading = np.arctan2(velocity[:, 1], velocity[:, 0])[known]
    tracks = tracks_of(position_m[None], heading[None], velocity[None])
    return replace(bare_scene(), tracks=tracks, current_step=CURRENT, map=MapFeatures(lanes=lanes or Lanes()))


def lanes_of(lines: list[np.ndarray], **relations: object) -> Lanes:
    count = len(lines)
    return Lanes(
        ids=tuple(str(index) for index in range(count)),
        types=np.full(count, 2, np.int8),
        centrelines=Polylines.of(lines),
        speed_limit_mps=np.zeros(count, np.float32),
        speed_limit_known=np.zeros(count, np.bool_),
        width_m=np.zeros(count, np.float32),
        width_known=np.zeros(count, np.bool_),
        in_junction=np.zeros(count, np.bool_),
        graph_origin=GraphOrigin.RECORDED,
        **relations,  # type: ignore[arg-type]
    )


def arc(turn_rad: float, speed_mps: float = 6.0) -> np.ndarray:
    heading = np.clip(TIME_S / 8, 0, 1) * turn_rad
    return np.cumsum(speed_mps * DT_S * np.stack([np.cos(heading), np.sin(heading)], axis=-1), axis=0)


def straight(speed_mps: np.ndarray) -> np.ndarray:
    return np.stack([np.cumsum(speed_mps) * DT_S, np.zeros(STEPS)], axis=-1)


@pytest.mark.parametrize(
    ("position_m", "expected"),
    [
        pytest.param(straight(np.full(STEPS, 10.0)), Manoeuvre.STRAIGHT, id="straight"),
        pytest.param(straight(np.full(STEPS, 0.05)), Manoeuvre.STANDING, id="standing"),
        pytest.param(arc(np.radians(80)), Manoeuvre.LEFT_TURN, id="left"),
        pytest.param(arc(np.radians(-80)), Manoeuvre.RIGHT_TURN, id="right"),
        pytest.param(arc(np.radians(40)), Manoeuvre.STRAIGHT, id="a slight bend is no turn"),
        pytest.param(arc(np.radians(50)), Manoeuvre.LEFT_TURN, id="above 45 degrees"),
        pytest.param(straight(np.clip(8 - 1.5 * TIME_S, 0, 8)), Manoeuvre.STOP, id="stop"),
        pytest.param(straight(np.clip(1.5 * (TIME_S - 2), 0, 8)), Manoeuvre.START, id="start"),
        pytest.param(straight(np.clip(10 - TIME_S, 4, 10)), Manoeuvre.SLOW_DOWN, id="slow-down"),
    ],
)
def test_without_a_map(position_m: np.ndarray, expected: Manoeuvre) -> None:
    assert classify(scene_of(position_m)) == [expected]


@pytest.mark.parametrize(
    ("to_left", "expected"),
    [(1, Manoeuvre.LANE_CHANGE_LEFT), (-1, Manoeuvre.LANE_CHANGE_RIGHT), (0, Manoeuvre.STRAIGHT)],
)
def test_lane_changes_over_a_border_between_lanes(to_left: int, expected: Manoeuvre) -> None:
    # Two parallel roads of two lanes each, cut in the middle: the change falls together with the cut.
    along = np.linspace(0, 60, 30)
    lines = [np.stack([along + start, np.full(30, side)], axis=-1) for start in (-20, 40) for side in (0.0, 3.5, -3.5)]
    lanes = lanes_of(
        lines,
        successors=as_pairs([(0, 3), (1, 4), (2, 5)]),
        left_neighbours=as_pairs([(0, 1), (2, 0), (3, 4), (5, 3)]),
        right_neighbours=as_pairs([(1, 0), (0, 2), (4, 3), (3, 5)]),
    )
    position = straight(np.full(STEPS, 10.0))
    position[:, 1] = to_left * 3.5 / (1 + np.exp(-2 * (TIME_S - 3.4)))
    assert classify(scene_of(position, lanes)) == [expected]


@pytest.mark.parametrize(
    ("to_left", "expected"), [(1, Manoeuvre.LANE_CHANGE_LEFT), (0, Manoeuvre.STRAIGHT)], ids=["over", "through"]
)
def test_lane_changes_over_a_short_junction(to_left: int, expected: Manoeuvre) -> None:
    """A road of one lane becomes one of two, with a junction of 3 m between: only the right one continues it."""
    pieces = [(-20.0, 30.0, 0.0), (30.0, 33.0, 0.0), (33.0, 120.0, 0.0), (33.0, 120.0, 3.5)]
    lines = [np.stack([np.linspace(start, end, 20), np.full(20, side)], axis=-1) for start, end, side in pieces]
    lanes = lanes_of(
        lines,
        successors=as_pairs([(0, 1), (1, 2)]),
        left_neighbours=as_pairs([(2, 3)]),
        right_neighbours=as_pairs([(3, 2)]),
    )
    lanes = replace(lanes, in_junction=np.array([False, True, False, False]))
    position = straight(np.full(STEPS, 10.0))
    position[:, 1] = to_left * 3.5 / (1 + np.exp(-4 * (TIME_S - 2.15)))
    assert classify(scene_of(position, lanes)) == [expected]


def test_roundabout_is_a_short_ring_of_lanes() -> None:
    angle = np.linspace(0, 2 * np.pi, 41)
    circle = 15 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    ring = [circle[start : start + 11] for start in (0, 10, 20, 30)]
    around = as_pairs([(0, 1), (1, 2), (2, 3), (3, 0)])
    driven = 15 * np.stack([np.cos(TIME_S * 0.4), np.sin(TIME_S * 0.4)], axis=-1)
    assert classify(scene_of(driven, lanes_of(ring, successors=around))) == [Manoeuvre.ROUNDABOUT]
    open_ring = as_pairs([(0, 1), (1, 2), (2, 3)])
    assert classify(scene_of(driven, lanes_of(ring, successors=open_ring))) == [Manoeuvre.LEFT_TURN]


def test_unobserved_and_pedestrians() -> None:
    scene = scene_of(straight(np.full(STEPS, 10.0)))
    unseen = np.zeros_like(scene.tracks.valid)
    assert classify(replace(scene, tracks=replace(scene.tracks, valid=unseen))) == [Manoeuvre.UNOBSERVED]
    person = replace(scene.tracks, types=np.array([TrackType.PEDESTRIAN], np.int8))
    assert classify(replace(scene, tracks=person)) == [Manoeuvre.STRAIGHT]


def test_a_loop_with_straight_sides_is_no_roundabout() -> None:
    corners = 20 * np.array([[1, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    sides = [np.linspace(corners[side], corners[side + 1], 21) for side in range(4)]
    block = lanes_of(sides, successors=as_pairs([(0, 1), (1, 2), (2, 3), (3, 0)]))
    driven = np.stack([np.full(STEPS, 20.0), np.linspace(-18, 18, STEPS)], axis=-1)
    assert classify(scene_of(driven, block)) == [Manoeuvre.STRAIGHT]
