"""Overlapping boxes and red lights, on hand-made cases."""

from dataclasses import replace

import numpy as np
import pytest

from scenes import bare_scene
from test_kinematics import tracks_of
from test_manoeuvre import lanes_of
from waycode.scene import MapFeatures, Scene, Signals, SignalState, TrackType
from waycode.scene.conflicts import RedLightCrossing, overlapping_pairs, red_light_crossings

STEPS = 40


def two_cars(gap_m: float, heading_rad: float = 0.0) -> np.ndarray:
    tracks = tracks_of(
        np.stack([np.zeros((STEPS, 2)), np.full((STEPS, 2), [gap_m, 0.0])]),
        np.stack([np.zeros(STEPS), np.full(STEPS, heading_rad)]),
        np.zeros((2, STEPS, 2)),
    )
    return overlapping_pairs(tracks, which=tracks.types == TrackType.VEHICLE)


@pytest.mark.parametrize(
    ("gap_m", "heading_rad", "overlap"),
    [(4.6, 0.0, False), (4.4, 0.0, True), (3.3, np.pi / 2, False), (3.1, np.pi / 2, True)],
)
def test_boxes_of_4_5_by_1_9_m(gap_m: float, heading_rad: float, overlap: bool) -> None:
    pairs = two_cars(gap_m, heading_rad)
    assert len(pairs) == (STEPS if overlap else 0)
    if overlap:
        assert pairs[0].tolist() == [0, 1, 0]


def test_unobserved_samples_do_not_overlap() -> None:
    tracks = tracks_of(np.zeros((2, STEPS, 2)), np.zeros((2, STEPS)), np.zeros((2, STEPS, 2)))
    valid = tracks.valid.copy()
    valid[1, :-1] = False
    pairs = overlapping_pairs(replace(tracks, valid=valid), which=np.ones(2, np.bool_))
    assert pairs.tolist() == [[0, 1, STEPS - 1]]


def crossing_scene(states: tuple[SignalState, SignalState], *, turns_left: bool) -> Scene:
    """One approach with a way straight on and a way to the left, each with a light, and a car that takes one."""
    angle = np.linspace(0, np.pi / 2, 12)
    straight_on = np.stack([np.linspace(0, 20, 12), np.zeros(12)], axis=-1)
    to_left = np.stack([12 * np.sin(angle), 12 - 12 * np.cos(angle)], axis=-1)
    along = np.linspace(-12, 20, STEPS)
    heading = np.clip(along / 12, 0, np.pi / 2) if turns_left else np.zeros(STEPS)
    x = np.where(along < 0, along, 12 * np.sin(heading)) if turns_left else along
    y = 12 - 12 * np.cos(heading)
    position = np.stack([x, y], axis=-1)[None]
    tracks = tracks_of(position, heading[None], np.gradient(position, 0.1, axis=1))
    return replace(
        bare_scene(),
        tracks=tracks,
        map=MapFeatures(lanes=lanes_of([straight_on, to_left])),
        signals=Signals(
            lanes=np.array([0, 1], np.int32),
            stop_point_m=np.zeros((2, 2), np.float32),
            states=np.repeat(np.array(states, np.int8)[:, None], STEPS, axis=1),
            valid=np.ones((2, STEPS), np.bool_),
        ),
    )


@pytest.mark.parametrize("turns_left", [False, True])
def test_red_counts_only_for_the_way_that_is_taken(turns_left: bool) -> None:
    red, green = SignalState.STOP, SignalState.GO
    taken = int(turns_left)
    own_is_red = (red, green) if taken == 0 else (green, red)
    (crossing,) = red_light_crossings(crossing_scene(own_is_red, turns_left=turns_left))
    assert (crossing.track, crossing.lane) == (0, taken)
    assert red_light_crossings(crossing_scene(own_is_red[::-1], turns_left=turns_left)) == []


def test_a_light_that_turns_red_behind_the_front_bumper_is_no_crossing_on_red() -> None:
    scene = crossing_scene((SignalState.STOP, SignalState.STOP), turns_left=False)
    (crossing,) = red_light_crossings(scene)
    assert isinstance(crossing, RedLightCrossing)
    states = scene.signals.states.copy()
    states[:, : crossing.step] = SignalState.CAUTION
    assert red_light_crossings(replace(scene, signals=replace(scene.signals, states=states))) == []
