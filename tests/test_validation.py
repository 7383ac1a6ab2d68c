"""`validate()` names every fault, each in its own words, and leaves good scenes alone."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scenes import bare_scene, small_scene, traffic_scene
from waycode.scene import InvalidScene, Polylines, Scene, WaycodeError, as_pairs, faults_of

Change = Callable[[Scene], Scene]


def unchecked(part: Any, **values: Any) -> Any:
    """A copy with values that the types forbid: beartype guards the tests, but nothing guards a user's process."""
    twin = object.__new__(type(part))
    twin.__dict__.update({**part.__dict__, **values})
    return twin


def scene_with(**changes: Any) -> Change:
    return lambda scene: unchecked(scene, **changes)


def tracks_with(**changes: Any) -> Change:
    return lambda scene: unchecked(scene, tracks=unchecked(scene.tracks, **changes))


def track_value(name: str, place: Any, value: float) -> Change:
    def change(scene: Scene) -> Scene:
        array = getattr(scene.tracks, name).copy()
        array[place] = value
        return tracks_with(**{name: array})(scene)

    return change


def map_with(**changes: Any) -> Change:
    return lambda scene: unchecked(scene, map=unchecked(scene.map, **changes))


def lanes_with(**changes: Any) -> Change:
    return lambda scene: map_with(lanes=unchecked(scene.map.lanes, **changes))(scene)


def signs_with(**changes: Any) -> Change:
    return lambda scene: map_with(stop_signs=unchecked(scene.map.stop_signs, **changes))(scene)


def signals_with(**changes: Any) -> Change:
    return lambda scene: unchecked(scene, signals=unchecked(scene.signals, **changes))


def route_with(lanes: list[int], sections: list[int]) -> Change:
    return scene_with(
        route=unchecked(small_scene().route, lanes=np.array(lanes, np.int32), sections=np.array(sections, np.int32))
    )


FAR = np.array([[0, 0], [20_000, 0], [0, 1]], np.float32)
NOT_FINITE = np.array([[0, 0], [np.nan, 0], [0, 1]], np.float32)
SHORT = np.zeros((1, 2), np.float32)
POINTS = np.zeros((3, 2), np.float32)

FAULTS: list[tuple[str, Change, str]] = [
    ("empty id", scene_with(id=""), "id is empty"),
    ("empty source", scene_with(source=""), "source is empty"),
    ("text", scene_with(tags=("\udc80",)), "tags has text that UTF-8 cannot hold (surrogates not allowed)"),
    ("dt of zero", scene_with(dt_s=0.0), "dt_s is 0.0, expected 0.0001 to 60 seconds"),
    ("dt nan", scene_with(dt_s=float("nan")), "dt_s is nan, expected 0.0001 to 60 seconds"),
    ("current step", scene_with(current_step=5), "current_step is 5, expected 0 to 4"),
    ("negative step", scene_with(current_step=-1), "current_step is -1, expected 0 to 4"),
    ("origin", scene_with(origin_m=(0.0, float("inf"))), "origin_m is (0.0, inf), expected a pair of metres of at"),
    ("far origin", scene_with(origin_m=(1e30, 0.0)), "origin_m is (1e+30, 0.0), expected a pair of metres"),
    ("rebuild", scene_with(rebuild="{"), "rebuild is not JSON (Expecting property name enclosed in double quotes"),
    ("track types' shape", tracks_with(types=np.ones(3, np.int8)), "tracks.types has shape (3,), expected (4,)"),
    ("x's shape", tracks_with(x_m=np.zeros((4, 2), np.float32)), "tracks.x_m has shape (4, 2), expected (4, 5)"),
    ("track ids", tracks_with(ids=("a", "b", "b", "c")), "tracks.ids has duplicates"),
    ("track type", track_value("types", 0, 9), "tracks.types has [9], expected members of TrackType (1 to 4)"),
    ("nan", track_value("x_m", (0, 2), np.nan), "tracks.x_m has 1 values that are not finite"),
    ("masked", track_value("vy_mps", (3, 4), -1), "tracks.vy_mps has values where valid is false, expected zeros"),
    ("far track", track_value("y_m", (0, 0), 17_000), "tracks reach beyond 16384 m of origin_m"),
    ("degrees", track_value("heading_rad", (0, 0), 90), "tracks.heading_rad leaves [-pi, pi]: are these degrees?"),
    ("speed", track_value("vx_mps", (0, 0), 300), "tracks move at 300 m/s, expected at most 100"),
    ("long", track_value("length_m", 1, 1e30), "tracks.length_m has values up to 1e+30, expected at most 200"),
    ("length", track_value("length_m", 1, 0), "tracks.length_m has values that are not positive"),
    ("width", track_value("width_m", 1, np.inf), "tracks.width_m has values that are not positive"),
    ("ego", tracks_with(ego_index=4), "tracks.ego_index is 4, expected None or 0 to 3"),
    ("predict", track_value("to_predict", 0, 7), "tracks.to_predict points to [7], but there are 4 tracks"),
    ("predict twice", track_value("to_predict", 0, 2), "tracks.to_predict has duplicates"),
    ("lane shape", lanes_with(types=np.zeros(2, np.int8)), "lanes.types has shape (2,), expected (3,)"),
    ("lane count", lanes_with(centrelines=Polylines.of([])), "lanes.centrelines has 0 polylines, expected 3"),
    ("lane ids", lanes_with(ids=("a", "a", "b")), "lanes.ids has duplicates"),
    ("lane type", lanes_with(types=np.array([2, 2, 7], np.int8)), "lanes.types has [7], expected members of LaneType"),
    ("successor", lanes_with(successors=as_pairs([(0, 3)])), "lanes.successors points to [3], but there are 3 lanes"),
    (
        "pair twice",
        lanes_with(left_neighbours=np.array([[0, 1], [0, 1]], np.int32)),
        "lanes.left_neighbours has duplicates",
    ),
    (
        "no graph",
        lambda scene: lanes_with(graph_origin=scene.map.lanes.graph_origin.ABSENT)(scene),
        "lanes.right_neighbours is given, but graph_origin says that there is none",
    ),
    (
        "limit",
        lanes_with(speed_limit_mps=np.array([0, 1, 0], np.float32)),
        "lanes.speed_limit has known values that are not positive",
    ),
    (
        "unknown width",
        lanes_with(width_m=np.array([3.5, 1, 0], np.float32)),
        "lanes.width has values where it is not known, expected zeros",
    ),
    (
        "starts",
        map_with(road_lines=Polylines(POINTS, np.array([0, 2], np.int32))),
        "road_lines.starts does not run from 0 to the number of points (3) without going back",
    ),
    (
        "starts go back",
        map_with(road_lines=Polylines(POINTS, np.array([0, 3, 1, 3], np.int32))),
        "road_lines.starts does not run from 0 to the number of points (3) without going back",
    ),
    ("short line", map_with(road_edges=Polylines.of([SHORT, POINTS])), "road_edges has 1 polylines with fewer than 2"),
    ("short area", map_with(crosswalks=Polylines.of([POINTS[:2]])), "crosswalks has 1 polylines with fewer than 3"),
    ("nan point", map_with(driveways=Polylines.of([NOT_FINITE])), "driveways has points that are not finite"),
    ("far point", map_with(speed_bumps=Polylines.of([FAR])), "speed_bumps reaches beyond 16384 m of origin_m"),
    ("line types", map_with(road_line_types=np.zeros(2, np.int8)), "map.road_line_types has shape (2,), expected (1,)"),
    (
        "edge type",
        map_with(road_edge_types=np.array([1, 3], np.int8)),
        "map.road_edge_types has [3], expected members of EdgeType (0 to 2)",
    ),
    ("nan sign", signs_with(position_m=NOT_FINITE[1:2]), "stop_signs.position_m has points that are not finite"),
    (
        "no such sign",
        signs_with(controls=as_pairs([(1, 0)])),
        "stop_signs.controls (sign) points to [1], but there are 1 stop signs",
    ),
    (
        "no such lane",
        signs_with(controls=as_pairs([(0, -1)])),
        "stop_signs.controls (lane) points to [-1], but there are 3 lanes",
    ),
    (
        "signal shape",
        signals_with(states=np.zeros((1, 4), np.int8)),
        "signals.states has shape (1, 4), expected (1, 5)",
    ),
    (
        "stop points' shape",
        signals_with(stop_point_m=np.zeros((2, 2), np.float32)),
        "signals.stop_point_m has shape (2, 2), expected (1, 2)",
    ),
    ("far stop point", signals_with(stop_point_m=FAR[1:2]), "signals.stop_point_m reaches beyond 16384 m of origin_m"),
    ("signal lane", signals_with(lanes=np.array([5], np.int32)), "signals.lanes points to [5], but there are 3 lanes"),
    (
        "signal twice",
        signals_with(
            lanes=np.array([1, 1], np.int32),
            stop_point_m=np.zeros((2, 2), np.float32),
            states=np.zeros((2, 5), np.int8),
            valid=np.zeros((2, 5), np.bool_),
        ),
        "signals.lanes has duplicates",
    ),
    (
        "signal state",
        signals_with(states=np.full((1, 5), 9, np.int8)),
        "signals.states has [9], expected members of SignalState (0 to 8)",
    ),
    (
        "masked signal",
        signals_with(valid=np.zeros((1, 5), np.bool_)),
        "signals.states has values where valid is false, expected zeros",
    ),
    ("route shapes", route_with([0, 1], [0]), "route.sections has shape (1,), expected (2,)"),
    ("route lane", route_with([0, 3], [0, 1]), "route.lanes points to [3], but there are 3 lanes"),
    ("route start", route_with([0, 1], [1, 1]), "route.sections does not count 0, 1, 2, ... in driving order"),
    ("route gap", route_with([0, 1], [0, 2]), "route.sections does not count 0, 1, 2, ... in driving order"),
    ("route back", route_with([0, 1, 2], [0, 1, 0]), "route.sections does not count 0, 1, 2, ... in driving order"),
]


@pytest.mark.parametrize(("name", "change", "sentence"), FAULTS, ids=[row[0] for row in FAULTS])
def test_each_fault_is_named(name: str, change: Change, sentence: str) -> None:
    faults = faults_of(change(small_scene()))
    assert [fault for fault in faults if fault.startswith(sentence)], faults
    brings_others = {"no graph": 2, "starts go back": 1}  # three relations are given; three lines need three types
    assert len(faults) == 1 + brings_others.get(name, 0), faults


def test_no_tracks() -> None:
    scene = bare_scene()
    arrays = {
        name: getattr(scene.tracks, name)[:0]
        for name in ("types", "length_m", "width_m", "x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
    }
    faults = faults_of(tracks_with(ids=(), **arrays)(scene))
    assert faults == ["tracks is empty, expected at least one road user"]


def test_all_faults_are_named_at_once() -> None:
    changes = [
        scene_with(id="x", dt_s=-1.0),
        track_value("x_m", (0, 1), np.inf),
        track_value("types", 2, 0),
        lanes_with(successors=as_pairs([(0, 9)])),
        signals_with(lanes=np.array([8], np.int32)),
        route_with([7], [0]),
    ]
    scene = small_scene()
    for change in changes:
        scene = change(scene)
    with pytest.raises(InvalidScene) as caught:
        scene.validate()
    text = str(caught.value)
    for part in ("dt_s", "tracks.x_m", "tracks.types", "lanes.successors", "signals.lanes", "route.lanes"):
        assert part in text
    assert f"scene 'x' has {len(caught.value.faults)} fault(s): " in text
    assert isinstance(caught.value, WaycodeError)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("x_m", np.zeros((4, 5)), "tracks.x_m holds float64, expected float32"),
        ("valid", np.ones((4, 5), np.uint8), "tracks.valid holds uint8, expected bool"),
        ("types", [1, 2, 3, 4], "tracks.types is a list, expected an array of int8"),
        ("length_m", np.ones((4, 1), np.float32), "tracks.length_m has shape (4, 1), expected [A]"),
        ("valid", np.ones(4, np.bool_), "tracks.valid has shape (4,), expected [A, T]"),
    ],
)
def test_arrays_of_another_form_are_named(name: str, value: Any, sentence: str) -> None:
    scene = small_scene()
    broken = unchecked(scene, tracks=unchecked(scene.tracks, **{name: value}), id="")
    assert faults_of(broken) == ["id is empty", sentence]


def test_points_need_two_coordinates() -> None:
    scene = small_scene()
    signs = unchecked(scene.map.stop_signs, position_m=np.zeros((1, 3), np.float32))
    broken = unchecked(scene, map=unchecked(scene.map, stop_signs=signs))
    assert faults_of(broken) == ["stop_signs.position_m has shape (1, 3), expected [S, 2]"]


@pytest.mark.parametrize("scene", [small_scene(), bare_scene(), traffic_scene(0)], ids=lambda scene: scene.id)
def test_good_scenes_pass(scene: Scene) -> None:
    scene.validate()
    assert faults_of(scene) == []


def test_the_error_survives_pickling() -> None:
    error = InvalidScene("a", ["one", "two"])
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert copy.faults == ["one", "two"]
    assert str(copy) == str(error) == "scene 'a' has 2 fault(s): one; two"
