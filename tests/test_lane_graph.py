"""The lane graph from geometry: small roads drawn by hand, and Waymo's own graph as the truth."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roads import lanes_of
from waycode.scene import Lanes, LaneType, Polylines, as_pairs, no_pairs
from waycode.scene.frames import rotate
from waycode.scene.lane_inference import LaneGraphRules, LaneRelations, infer_lane_graph, precision_recall
from waycode.sources import womd

Line = list[tuple[float, float]]


def graph_of(*lines: Line, types: list[LaneType] | None = None) -> LaneRelations:
    kinds = np.array(types or [LaneType.STREET] * len(lines), np.int8)
    return infer_lane_graph(Polylines.of([np.array(line, np.float64) for line in lines]), kinds)


def pairs(array: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, array.tolist()))


def east(y: float, start: float = 0.0, end: float = 40.0) -> Line:
    return [(start, y), (end, y)]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param([(40.0, 0.0), (80.0, 0.0)], {(0, 1)}, id="straight on"),
        pytest.param([(40.1, 0.1), (80.0, 9.0)], {(0, 1)}, id="a gap of centimetres and a slight bend"),
        pytest.param([(41.5, 0.0), (80.0, 0.0)], set(), id="too far ahead"),
        pytest.param([(40.0, 0.0), (40.0, 40.0)], set(), id="square to it"),
        pytest.param([(40.0, 0.0), (0.0, 0.2)], set(), id="back the same way"),
        pytest.param([(80.0, 0.0), (40.0, 0.0)], set(), id="the ends meet"),
    ],
)
def test_a_successor_starts_where_the_lane_ends(second: Line, expected: set[tuple[int, int]]) -> None:
    assert pairs(graph_of(east(0), second).successors) == expected


def test_forks_and_merges_have_several_successors() -> None:
    graph = graph_of(east(0), [(40, 0), (60, 5)], [(40, 0), (60, -5)], [(0, 9), (40, 0)])
    assert pairs(graph.successors) == {(0, 1), (0, 2), (3, 1), (3, 2)}


def test_the_direction_at_an_end_survives_repeated_points() -> None:
    graph = graph_of([(0, 0), (40, 0), (40, 0)], [(40, 0), (40, 0), (80, 0)])
    assert pairs(graph.successors) == {(0, 1)}


def test_only_the_nearest_lane_of_each_side_is_a_neighbour() -> None:
    graph = graph_of(east(0), east(3.5), east(7.0))
    assert pairs(graph.left_neighbours) == {(0, 1), (1, 2)}
    assert pairs(graph.right_neighbours) == {(1, 0), (2, 1)}
    narrow = graph_of(east(0), east(2.5), east(5.0))
    assert pairs(narrow.left_neighbours) == {(0, 1), (1, 2)}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([(40.0, 3.5), (0.0, 3.5)], id="the other direction"),
        pytest.param(east(1.5), id="too near"),
        pytest.param(east(7.0), id="too far"),
        pytest.param(east(3.5, 39.0, 80.0), id="hardly any overlap"),
        pytest.param([(0.0, 3.5), (40.0, 20.0)], id="another angle"),
        pytest.param([(0.0, 0.0), (30.0, 1.0), (40.0, 3.0)], id="parting from a common start"),
        pytest.param([(0.0, 3.0), (10.0, 1.0), (40.0, 0.0)], id="merging to a common end"),
        pytest.param([(0.0, -4.0), (20.0, -3.0), (28.0, 3.0), (40.0, 3.5)], id="crossing from right to left"),
    ],
)
def test_lanes_that_are_not_neighbours(other: Line) -> None:
    graph = graph_of(east(0), other)
    assert pairs(graph.left_neighbours) == pairs(graph.right_neighbours) == set()


def test_one_lane_may_have_a_chain_of_neighbours() -> None:
    graph = graph_of(east(0), east(3.5, 0, 20), east(3.5, 20, 40))
    assert pairs(graph.left_neighbours) == {(0, 1), (0, 2)}


def test_short_lanes_need_to_overlap_for_half_their_length_only() -> None:
    graph = graph_of(east(0, 0, 1.5), east(3.0, 0, 40))
    assert pairs(graph.left_neighbours) == {(0, 1)}


def test_bicycle_lanes_keep_to_themselves() -> None:
    bike, street = LaneType.BIKE, LaneType.STREET
    assert pairs(graph_of(east(0), east(3.0), types=[bike, street]).left_neighbours) == set()
    assert pairs(graph_of(east(0), east(3.0), types=[bike, bike]).left_neighbours) == {(0, 1)}


def test_no_lanes_and_lanes_without_length_give_no_graph() -> None:
    for graph in (graph_of(), graph_of([(0, 0), (0, 0)]), graph_of([(0, 0), (0, 0)], east(3.5, -20, 20))):
        assert pairs(graph.successors) == pairs(graph.left_neighbours) == pairs(graph.right_neighbours) == set()


@pytest.mark.parametrize(
    ("inferred", "truth", "expected"),
    [
        pytest.param([(0, 1), (1, 2)], [(0, 1), (2, 3), (4, 5), (5, 6)], (0.5, 0.25), id="half right, a quarter found"),
        pytest.param([(0, 1)], [(1, 0)], (0.0, 0.0), id="pairs have a direction"),
        pytest.param([], [(0, 1)], (1.0, 0.0), id="nothing inferred"),
        pytest.param([(0, 1)], [], (0.0, 1.0), id="nothing to find"),
    ],
)
def test_precision_and_recall(
    inferred: list[tuple[int, int]], truth: list[tuple[int, int]], expected: tuple[float, float]
) -> None:
    arrays = [np.array(some, np.int32).reshape(-1, 2) for some in (inferred, truth)]
    assert precision_recall(arrays[0], arrays[1]) == expected


def test_an_empty_relation_is_perfect() -> None:
    assert precision_recall(no_pairs(), no_pairs()) == (1.0, 1.0)


@pytest.fixture(scope="module")
def waymo_lanes(shared_data: Path) -> Lanes:
    (scene,) = womd.read(shared_data / "womd-tfrecord")
    return scene.map.lanes


def lie_apart(lanes: Lanes, relation: np.ndarray) -> np.ndarray:
    """The pairs of a relation whose centrelines never touch."""
    clear = [
        np.linalg.norm(lanes.centrelines[a][:, None] - lanes.centrelines[b][None], axis=-1).min() > 1.5
        for a, b in relation.tolist()
    ]
    return relation[np.array(clear, np.bool_)]


@pytest.mark.real_data
def test_the_inferred_graph_agrees_with_the_one_that_waymo_recorded(waymo_lanes: Lanes) -> None:
    graph = infer_lane_graph(waymo_lanes.centrelines, waymo_lanes.types)
    assert precision_recall(graph.successors, waymo_lanes.successors) == (1.0, 1.0)
    for inferred, recorded in (
        (graph.left_neighbours, waymo_lanes.left_neighbours),
        (graph.right_neighbours, waymo_lanes.right_neighbours),
    ):
        precision, recall = precision_recall(inferred, recorded)
        assert precision >= 0.94
        assert recall >= 0.59  # Waymo also lists lanes that lie on top of each other
        assert precision_recall(inferred, lie_apart(waymo_lanes, recorded))[1] >= 0.96


@pytest.mark.real_data
def test_the_successors_survive_coordinates_rounded_to_centimetres(waymo_lanes: Lanes) -> None:
    rounded = Polylines(np.round(waymo_lanes.centrelines.points_m, 2), waymo_lanes.centrelines.starts)
    graph = infer_lane_graph(rounded, waymo_lanes.types)
    assert precision_recall(graph.successors, waymo_lanes.successors) == (1.0, 1.0)


@pytest.mark.real_data
def test_the_graph_moves_and_permutes_with_the_lanes(waymo_lanes: Lanes) -> None:
    graph = infer_lane_graph(waymo_lanes.centrelines, waymo_lanes.types)
    order = np.random.default_rng(0).permutation(len(waymo_lanes))
    shift_m = np.array([300.0, -50.0])
    turned = rotate(waymo_lanes.centrelines.points_m.astype(np.float64), 2.0) + shift_m
    lines = Polylines(turned.astype(np.float32), waymo_lanes.centrelines.starts).as_list()
    moved = [lines[lane] for lane in order]
    other = infer_lane_graph(Polylines.of(moved), waymo_lanes.types[order])
    for name in ("successors", "left_neighbours", "right_neighbours"):
        back = {(int(order[a]), int(order[b])) for a, b in getattr(other, name)}
        # Rounding may tip a few pairs that are close to a threshold.
        assert len(back ^ pairs(getattr(graph, name))) <= 2


def test_rules_can_be_changed() -> None:
    lines = Polylines.of([np.array(east(y)) for y in (0.0, 7.0)])
    rules = LaneGraphRules(most_offset_m=8.0)
    graph = infer_lane_graph(lines, np.full(2, LaneType.STREET, np.int8), rules=rules)
    assert pairs(graph.left_neighbours) == {(0, 1)}


def two_roads() -> Lanes:
    """Lanes 0 and 1 side by side (1 on the left); 0 leads through junction lanes 2, 3 to 4; 5 crosses the junction."""
    lines = [
        np.array([[0, 0], [50, 0]]),
        np.array([[0, 3.5], [50, 3.5]]),
        np.array([[50, 0], [55, 0]]),
        np.array([[55, 0], [60, 0]]),
        np.array([[60, 0], [110, 0]]),
        np.array([[55, -20], [55, 20]]),
    ]
    lanes = lanes_of(lines, successors=[(0, 2), (2, 3), (3, 4)])
    return replace(
        lanes,
        left_neighbours=as_pairs([(0, 1)]),  # not mutual, as in some recordings
        in_junction=np.array([False, False, True, True, False, False]),
    )


def test_walks() -> None:
    graph = two_roads().graph
    assert graph.length_m.tolist() == [50, 50, 5, 5, 50, 40]
    assert graph.reachable([0], graph.successors) == {0, 2, 3, 4}
    assert graph.reachable([0], graph.successors, graph.beside) == {0, 1, 2, 3, 4}
    assert graph.reachable([0], graph.successors, within={2, 4}) == {0, 2}
    assert graph.parallel(1) == graph.parallel(0) == {0, 1}
    assert graph.beyond_junction([2], graph.successors) == {4}
    assert graph.beyond_junction([3], graph.predecessors) == {0}
    assert graph.beyond_junction([3], graph.predecessors, within={2, 3}) == set()
    assert graph.extend_straight([0], length_m=8.0) == [0, 2, 3]
    assert graph.lanes_between(0, 2) == (2,)
    assert graph.lanes_between(0, 3) == (2, 3)
    assert graph.lanes_between(0, 4) is None
    assert (graph.change(0, 4), graph.change(0, 1), graph.change(1, 0)) == (0, 1, 0)
    assert graph.continuing(5.0)[0].tolist() == [True, False, True, True, False, False]


def test_lookup() -> None:
    graph = two_roads().graph
    position = np.array([[20.0, 1.0], [20.0, 3.0], [55.0, 0.2], [55.0, 0.2], [20.0, -9.0]])
    heading = np.array([0.1, 0.0, 0.0, np.pi / 2, 0.0])
    assert graph.lane_at(position, heading).tolist() == [0, 1, 2, 5, -1]
    assert [set(near) for near in graph.lanes_near(position, heading)] == [{0, 1}, {0, 1}, {2, 3}, {5}, set()]
    nearest = [graph.nearest_lane(place, angle) for place, angle in zip(position, heading, strict=True)]
    assert nearest == [0, 1, 2, 5, None]
    assert graph.nearest_lane(position[0], 0.0, usable=np.arange(6) == 1) is None  # 2.5 m away
    distance, lane_rad = graph.distances(np.array([54.0, 1.0]))
    np.testing.assert_allclose(distance, [np.hypot(4, 1), np.hypot(4, 2.5), 1, np.sqrt(2), np.hypot(6, 1), 1])
    np.testing.assert_allclose(lane_rad, [0, 0, 0, 0, 0, np.pi / 2])
    assert Lanes().graph.lane_at(position, heading).tolist() == [-1] * 5
    assert Lanes().graph.nearest_lane(position[0], 0.0) is None
    assert Lanes().graph.lanes_near(position, heading) == [{}] * 5
    assert [len(part) for part in Lanes().graph.distances(position[0])] == [0, 0]
