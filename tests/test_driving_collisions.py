"""nuPlan's collision rules on hand-made cases, and the bumper against shapely."""

import numpy as np
import pytest
import shapely

from waycode.driving import Vehicle
from waycode.driving.collisions import (
    BEHIND_RAD,
    CollisionType,
    bearing,
    classify_collisions,
    front_overlaps,
    is_at_fault,
    is_relevant_for_ttc,
)
from waycode.scene.geometry import box_corners, forward

CAR = Vehicle(length_m=4.0, width_m=2.0, rear_axle_to_centre_m=1.2)


def one(value: float) -> np.ndarray:
    return np.array([value], np.float64)


def of_one(value: bool) -> np.ndarray:
    return np.array([value])


@pytest.mark.parametrize("heading_deg", [0.0, 170.0, -100.0, 720.0])
@pytest.mark.parametrize("angle_deg", [0.0, 29.0, -31.0, 90.0, -149.0, 151.0, 180.0])
def test_the_bearing_is_the_angle_from_the_heading_whatever_its_side(heading_deg: float, angle_deg: float) -> None:
    heading, rear_axle_m = np.radians([heading_deg]), np.array([[30.0, -7.0]])
    other_m = rear_axle_m + 5.0 * forward(heading + np.radians(angle_deg))
    assert np.degrees(bearing(rear_axle_m, heading, other_m)) == pytest.approx(abs(angle_deg))


@pytest.mark.parametrize(
    ("ego_mps", "other_mps", "bearing_deg", "front", "expected"),
    [
        pytest.param(0.05, 0.0, 0, True, CollisionType.STOPPED_EGO, id="a-stopped-ego-comes-first"),
        pytest.param(0.06, 0.05, 170, True, CollisionType.STOPPED_TRACK, id="then-a-stopped-track-even-behind"),
        pytest.param(5.0, 5.0, 151, True, CollisionType.REAR, id="then-behind"),
        pytest.param(5.0, 5.0, 149, True, CollisionType.FRONT, id="then-the-bumper"),
        pytest.param(5.0, 5.0, 10, False, CollisionType.LATERAL, id="else-lateral"),
        pytest.param(-1.0, 5.0, 10, True, CollisionType.FRONT, id="an-ego-in-reverse-moves"),
    ],
)
def test_the_first_rule_that_holds_decides(
    ego_mps: float, other_mps: float, bearing_deg: float, front: bool, expected: CollisionType
) -> None:
    (found,) = classify_collisions(
        one(ego_mps), one(other_mps), bearing_rad=np.radians(one(bearing_deg)), front=of_one(front)
    )
    assert CollisionType(found) is expected


@pytest.mark.parametrize(
    ("kind", "in_one_lane", "between_lanes"),
    [
        (CollisionType.STOPPED_EGO, False, False),
        (CollisionType.STOPPED_TRACK, True, True),
        (CollisionType.FRONT, True, True),
        (CollisionType.REAR, False, False),
        (CollisionType.LATERAL, False, True),
    ],
)
def test_fault_depends_on_the_lane_for_lateral_collisions_only(
    kind: CollisionType, in_one_lane: bool, between_lanes: bool
) -> None:
    types = np.full(2, kind, np.int8)
    assert is_at_fault(types, in_one_lane=np.array([True, False])).tolist() == [in_one_lane, between_lanes]


@pytest.mark.parametrize(
    ("bearing_deg", "keeping_lane", "elsewhere"),
    [(0, True, True), (29, True, True), (31, False, True), (149, False, True), (151, False, False)],
)
def test_beside_the_ego_road_users_count_between_lanes_and_in_junctions(
    bearing_deg: float, keeping_lane: bool, elsewhere: bool
) -> None:
    in_one_lane, in_junction = np.array([True, False, True, False]), np.array([False, False, True, True])
    found = is_relevant_for_ttc(np.full(4, np.radians(bearing_deg)), in_one_lane=in_one_lane, in_junction=in_junction)
    assert found.tolist() == [keeping_lane, elsewhere, elsewhere, elsewhere]


@pytest.mark.parametrize(
    ("x_m", "y_m", "hit"),
    [
        pytest.param(5.15, 0.0, True, id="ahead"),  # the front edge is at 3.2, the other reaches 2 m back
        pytest.param(5.23, 0.0, False, id="further-than-half-the-depth"),
        pytest.param(1.0, 1.9, False, id="beside-ends-behind-the-bumper"),
        pytest.param(1.19, 1.9, True, id="beside-reaches-into-the-bumper"),
        pytest.param(5.0, 2.1, False, id="ahead-but-to-the-side"),
    ],
)
def test_the_bumper_is_a_shallow_box_at_the_front(x_m: float, y_m: float, hit: bool) -> None:
    corners = box_corners(np.array([[x_m, y_m]]), one(0), length_m=one(4), width_m=one(2))
    assert front_overlaps(np.zeros((1, 2)), one(0), corners, vehicle=CAR).tolist() == [hit]


def test_a_depth_of_a_millimetre_agrees_with_the_front_edge_as_a_line() -> None:
    """shapely's answer for the line itself, but where the line is within half a millimetre of the box's outline."""
    rng = np.random.default_rng(0)
    count = 4000
    rear_axle_m, heading = rng.uniform(-300, 300, (count, 2)), rng.uniform(-np.pi, np.pi, count)
    size = rng.uniform([0.4, 0.4], [8, 2.5], (count, 2))
    centre = rear_axle_m + CAR.front_m * forward(heading) + rng.normal(0, 2.0, (count, 2))
    corners = box_corners(centre, rng.uniform(-np.pi, np.pi, count), length_m=size[:, 0], width_m=size[:, 1])
    found = front_overlaps(rear_axle_m, heading, corners, vehicle=CAR, depth_m=0.001)
    middle = rear_axle_m + CAR.rear_axle_to_centre_m * forward(heading)
    own = box_corners(middle, heading, length_m=np.full(count, 4.0), width_m=np.full(count, 2.0))
    lines, boxes = shapely.linestrings(own[:, :2]), shapely.polygons(corners)
    wrong = found != shapely.intersects(lines, boxes)
    assert 0.2 < found.mean() < 0.8
    assert (shapely.distance(lines[wrong], boxes[wrong]) < 0.001).all()
    assert wrong.sum() <= 2


def test_pairs_of_any_shape_are_classified_as_one_by_one() -> None:
    rng = np.random.default_rng(1)
    shape = (3, 5)
    ego, other = rng.choice([0.0, 4.0], shape), rng.choice([0.0, 4.0], shape)
    angle, front, lane = rng.uniform(0, np.pi, shape), rng.random(shape) < 0.5, rng.random(shape) < 0.5
    types = classify_collisions(ego, other, bearing_rad=angle, front=front)
    # The rule as one expression, as a scorer of many simulated drives would write it.
    moving, standing, behind = ego > 0, other == 0, angle > BEHIND_RAD
    np.testing.assert_array_equal(
        is_at_fault(types, in_one_lane=lane), moving & (standing | (~behind & (front | ~lane)))
    )
