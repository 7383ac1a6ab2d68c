"""Geometry: cases computed by hand, and properties that hold for any polyline and any box."""

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from waycode.scene.frames import rotate
from waycode.scene.geometry import arclengths, box_corners, boxes_overlap, directions, interpolate, project, resample

CORNER = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]])
SEEDS = st.integers(0, 2**32 - 1)


def random_polyline(random: np.random.Generator) -> np.ndarray:
    """Any polyline that turns by less than a right angle at each point, like a road."""
    angles = random.uniform(-3, 3) + np.cumsum(random.uniform(-1.4, 1.4, random.integers(1, 9)))
    lengths = random.uniform(0.5, 20, len(angles))
    steps = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)]) + random.uniform(-50, 50, 2)


def random_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    return box_corners(
        random.uniform(-6, 6, (count, 2)),
        random.uniform(-4, 4, count),
        length_m=random.uniform(0.3, 9, count),
        width_m=random.uniform(0.3, 3, count),
    )


def test_arclengths_of_a_corner() -> None:
    assert arclengths(CORNER).tolist() == [0, 3, 7]
    assert arclengths(CORNER[:1]).tolist() == [0]


def test_points_along_a_corner() -> None:
    points = interpolate(CORNER, np.array([-1.0, 0.0, 1.5, 3.0, 5.0, 7.0, 99.0]))
    assert points.tolist() == [[0, 0], [0, 0], [1.5, 0], [3, 0], [3, 2], [3, 4], [3, 4]]


@pytest.mark.parametrize(("spacing_m", "count"), [(7.0, 2), (3.5, 3), (1.0, 8), (0.99, 9), (100.0, 2)])
def test_resampled_points_are_close_enough(spacing_m: float, count: int) -> None:
    points = resample(CORNER, spacing_m=spacing_m)
    assert len(points) == count
    assert points[0].tolist() == [0, 0]
    assert points[-1].tolist() == [3, 4]


def test_a_polyline_without_length_can_be_resampled() -> None:
    assert resample(np.ones((3, 2)), spacing_m=1.0).tolist() == [[1, 1], [1, 1]]


@given(SEEDS)
def test_resampled_points_lie_on_the_polyline(seed: int) -> None:
    polyline = random_polyline(np.random.default_rng(seed))
    points = resample(polyline, spacing_m=1.0)
    line = shapely.LineString(polyline)
    assert shapely.distance(shapely.points(points), line).max() < 1e-9
    assert np.linalg.norm(np.diff(points, axis=0), axis=1).max() <= 1.0 + 1e-5


def test_directions_of_a_corner() -> None:
    np.testing.assert_allclose(directions(CORNER), [0, np.pi / 2, np.pi / 2])


def test_repeated_points_take_the_direction_that_follows() -> None:
    points = np.array([[0.0, 0], [0, 0], [1, 0], [1, 0], [1, 1], [1, 1]])
    np.testing.assert_allclose(directions(points), [0, 0, np.pi / 2, np.pi / 2, np.pi / 2, np.pi / 2])
    assert directions(np.ones((3, 2))).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("point", "along", "offset", "segment"),
    [
        pytest.param((1, 1), 1, 1, 0, id="left"),
        pytest.param((1, -2), 1, -2, 0, id="right"),
        pytest.param((2, 3), 6, 1, 1, id="left of the second segment"),
        pytest.param((2, 0), 2, 0, 0, id="on it"),
        pytest.param((-3, 4), 0, 5, 0, id="before the start"),
        pytest.param((3, 9), 7, 5, 1, id="straight beyond the end"),
        pytest.param((6, -4), 3, -5, 0, id="outside the corner"),
    ],
)
def test_projection_by_hand(point: tuple[float, float], along: float, offset: float, segment: int) -> None:
    got = project(np.array([point], np.float64), CORNER)
    assert [float(value[0]) for value in got] == pytest.approx([along, offset, segment])


def test_repeated_points_do_not_lose_the_side() -> None:
    polyline = np.array([[0.0, 0], [0, 0], [5, 0], [5, 0]])
    along, offset, segment = project(np.array([[-1.0, -1], [6, -1], [6, 1]]), polyline)
    np.testing.assert_allclose(offset, [-np.sqrt(2), -np.sqrt(2), np.sqrt(2)])
    assert along.tolist() == [0, 5, 5]
    assert segment.tolist() == [1, 1, 1]
    assert project(np.array([[1.0, 0]]), np.zeros((2, 2)))[1].tolist() == [1]


@given(SEEDS)
def test_projection_against_brute_force(seed: int) -> None:
    random = np.random.default_rng(seed)
    polyline = random_polyline(random)
    points = polyline[0] + random.uniform(-40, 40, (6, 2))
    along, offset, segment = project(points, polyline)
    line = shapely.LineString(polyline)
    np.testing.assert_allclose(np.abs(offset), shapely.distance(shapely.points(points), line), atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(points - interpolate(polyline, along), axis=1), np.abs(offset), atol=1e-9)
    ends = arclengths(polyline)
    assert np.all((ends[segment] - 1e-9 <= along) & (along <= ends[segment + 1] + 1e-9))


@given(SEEDS)
def test_projection_gives_back_arclength_and_offset(seed: int) -> None:
    random = np.random.default_rng(seed)
    angle = random.uniform(-3, 3)
    polyline = np.outer(np.sort(random.uniform(0, 50, 5)), [np.cos(angle), np.sin(angle)])
    along = random.uniform(0, arclengths(polyline)[-1], 4)
    offset = random.uniform(-5, 5, 4)
    points = interpolate(polyline, along) + offset[:, None] * np.array([-np.sin(angle), np.cos(angle)])
    got_along, got_offset, _ = project(points, polyline)
    np.testing.assert_allclose(got_along, along, atol=1e-9)
    np.testing.assert_allclose(got_offset, offset, atol=1e-9)


@given(SEEDS)
def test_moving_everything_changes_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    polyline, angle, shift = random_polyline(random), random.uniform(-4, 4), random.uniform(-100, 100, 2)
    points = polyline[0] + random.uniform(-40, 40, (5, 2))
    moved, moved_points = rotate(polyline, angle) + shift, rotate(points, angle) + shift
    np.testing.assert_allclose(arclengths(moved), arclengths(polyline), atol=1e-9)
    for one, other in zip(project(points, polyline)[:2], project(moved_points, moved)[:2], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    turned = np.exp(1j * (directions(polyline) + angle))
    np.testing.assert_allclose(np.exp(1j * directions(moved)), turned, atol=1e-9)
    boxes = random_boxes(random, 8)
    overlap = boxes_overlap(boxes[:4], boxes[4:])
    if min(abs(gap) for gap in gaps(boxes[:4], boxes[4:])) > 1e-6:
        moved_boxes = rotate(boxes, angle) + shift
        np.testing.assert_array_equal(boxes_overlap(moved_boxes[:4], moved_boxes[4:]), overlap)


def gaps(one: np.ndarray, other: np.ndarray) -> list[float]:
    """Distance between boxes; minus the square root of the area that they share where they overlap."""
    pairs = [(shapely.Polygon(a), shapely.Polygon(b)) for a, b in zip(one, other, strict=True)]
    return [float(a.distance(b) - np.sqrt(a.intersection(b).area)) for a, b in pairs]


def test_corners_by_hand() -> None:
    corners = box_corners(
        np.array([10.0, 5.0]), np.array(np.pi / 2), length_m=np.array(4.0), width_m=np.array(2.0)
    )  # front left, front right, rear right, rear left of a box that looks up
    np.testing.assert_allclose(corners, [[9, 7], [11, 7], [11, 3], [9, 3]])


@given(SEEDS)
def test_overlap_against_shapely(seed: int) -> None:
    random = np.random.default_rng(seed)
    one, other = random_boxes(random, 20), random_boxes(random, 20)
    clear = np.array(gaps(one, other))
    sure = np.abs(clear) > 1e-6
    np.testing.assert_array_equal(boxes_overlap(one, other)[sure], clear[sure] < 0)


def test_boxes_that_touch_do_not_overlap() -> None:
    one = box_corners(np.zeros(2), np.array(0.0), length_m=np.array(4.0), width_m=np.array(2.0))
    assert not boxes_overlap(one, one + np.array([4.0, 0.0]))
    assert not boxes_overlap(one, one + np.array([0.0, 2.0]))
    assert boxes_overlap(one, one + np.array([3.99, 1.99]))
    assert boxes_overlap(one, one)


def test_a_box_within_another_overlaps() -> None:
    sizes = np.array([10.0, 1.0])
    boxes = box_corners(np.zeros((2, 2)), np.array([0.0, 0.7]), length_m=sizes, width_m=sizes)
    assert boxes_overlap(boxes[0], boxes[1])
