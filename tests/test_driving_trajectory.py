"""`Trajectory`: its reference points, stacking, cutting, and the boxes around it."""

from dataclasses import replace

import numpy as np
import pytest

from driving_scenes import DT_S, one_car
from waycode.driving import Trajectory, Vehicle
from waycode.driving.trajectory import ReferencePoint, braking_trajectory, straight_trajectory
from waycode.scene.geometry import forward

CAR = Vehicle.of_size(length_m=4.5, width_m=1.9)


def turning(*, point: ReferencePoint = "centre", samples: int = 9, radius_m: float = 20.0) -> Trajectory:
    angle = np.linspace(0.3, 1.5, samples)
    position = radius_m * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1)
    return Trajectory(position_m=position, heading_rad=angle, speed_mps=np.linspace(8, 4, samples), point=point)


@pytest.mark.parametrize("point", ["centre", "rear-axle"])
def test_a_trajectory_at_its_own_reference_point_is_itself(point: ReferencePoint) -> None:
    trajectory = turning(point=point)
    assert (trajectory.at_centre(CAR) is trajectory) == (point == "centre")
    assert (trajectory.at_rear_axle(CAR) is trajectory) == (point == "rear-axle")


def test_the_centre_is_ahead_of_the_rear_axle() -> None:
    axle = turning(point="rear-axle")
    centre = axle.at_centre(CAR)
    assert centre.point == "centre"
    np.testing.assert_allclose(
        centre.position_m - axle.position_m, CAR.rear_axle_to_centre_m * forward(axle.heading_rad), atol=1e-12
    )
    np.testing.assert_array_equal(centre.heading_rad, axle.heading_rad)
    np.testing.assert_array_equal(centre.speed_mps, axle.speed_mps)


@pytest.mark.parametrize("point", ["centre", "rear-axle"])
def test_there_and_back_is_the_same_motion(point: ReferencePoint) -> None:
    trajectory = turning(point=point)
    back = (
        trajectory.at_rear_axle(CAR).at_centre(CAR)
        if point == "centre"
        else trajectory.at_centre(CAR).at_rear_axle(CAR)
    )
    np.testing.assert_allclose(back.position_m, trajectory.position_m, atol=1e-12)
    assert back.point == point


def test_stacking_and_selecting_are_inverse() -> None:
    first, second = turning(), turning(radius_m=30.0)
    both = Trajectory.stack([first, second])
    assert both.position_m.shape == (2, 9, 2)
    assert len(both) == len(first) == 9
    for index, one in enumerate((first, second)):
        np.testing.assert_array_equal(both.select(index).position_m, one.position_m)
        np.testing.assert_array_equal(both.select(index).heading_rad, one.heading_rad)
        np.testing.assert_array_equal(both.select(index).speed_mps, one.speed_mps)
    assert Trajectory.stack([turning(point="rear-axle")]).point == "rear-axle"


def test_trajectories_of_different_reference_points_cannot_be_stacked() -> None:
    with pytest.raises(ValueError, match=r"the reference points \['centre', 'rear-axle'\], expected one for all"):
        Trajectory.stack([turning(), turning(point="rear-axle")])


def test_states_are_a_trajectory_of_the_rear_axle() -> None:
    states = [one_car(float(x), 1.0, heading_rad=0.1 * x, speed_mps=5.0 + x).repeated(3) for x in range(4)]
    trajectory = Trajectory.of_states(states)
    assert trajectory.point == "rear-axle"
    assert trajectory.position_m.shape == (3, 4, 2)
    np.testing.assert_array_equal(trajectory.position_m[1], [[0, 1], [1, 1], [2, 1], [3, 1]])
    np.testing.assert_allclose(trajectory.heading_rad[2], [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_array_equal(trajectory.speed_mps[0], [5, 6, 7, 8])
    centre = trajectory.at_centre(CAR).position_m[:, 2]
    np.testing.assert_allclose(centre, states[2].centre_m(CAR), atol=1e-12)


@pytest.mark.parametrize("stacked", [False, True], ids=["one", "K"])
def test_samples_are_taken_along_time(stacked: bool) -> None:
    one = turning()
    whole = Trajectory.stack([one, one]) if stacked else one
    rest, some = whole.samples(slice(1, None)), whole.samples(np.array([0, 4, 4]))
    assert (len(rest), len(some)) == (8, 3)
    np.testing.assert_array_equal(rest.position_m, whole.position_m[..., 1:, :])
    np.testing.assert_array_equal(some.heading_rad, whole.heading_rad[..., [0, 4, 4]])
    np.testing.assert_array_equal(some.speed_mps, whole.speed_mps[..., [0, 4, 4]])


@pytest.mark.parametrize(("count", "last"), [(4, 3), (9, 8), (12, 8)], ids=["shorter", "as long", "longer"])
def test_a_trajectory_of_a_given_length_stays_at_its_end(count: int, last: int) -> None:
    cut = turning().of_length(count)
    assert len(cut) == count
    np.testing.assert_array_equal(cut.position_m[: last + 1], turning().position_m[: last + 1])
    np.testing.assert_array_equal(cut.position_m[last:], np.repeat(turning().position_m[[last]], count - last, axis=0))


@pytest.mark.parametrize(("speed_mps", "step_m"), [(5.0, 0.5), (0.0, 0.0), (-1.0, 0.0)])
def test_a_trajectory_goes_straight_on_at_its_last_speed_but_not_backwards(speed_mps: float, step_m: float) -> None:
    east = Trajectory(position_m=np.array([[0.0, 0.0], [1.0, 0.0]]), heading_rad=np.zeros(2), speed_mps=np.full(2, 1.0))
    further = replace(east, speed_mps=np.array([1.0, speed_mps])).going_on(4, dt_s=0.1)
    np.testing.assert_allclose(further.position_m[:, 0], [0, 1, 1 + step_m, 1 + 2 * step_m])
    np.testing.assert_allclose(further.speed_mps[2:], max(0.0, speed_mps))
    assert len(east.going_on(1, dt_s=0.1)) == 2


def test_corners_by_hand_and_of_either_reference_point() -> None:
    east = Trajectory(position_m=np.array([[10.0, 2.0]]), heading_rad=np.zeros(1), speed_mps=np.zeros(1))
    expected = [[12.25, 2.95], [12.25, 1.05], [7.75, 1.05], [7.75, 2.95]]  # front left, front right, rear right, ...
    np.testing.assert_allclose(east.corners_m(CAR), [expected])
    np.testing.assert_allclose(east.at_rear_axle(CAR).corners_m(CAR), [expected], atol=1e-12)
    many = Trajectory.stack([turning(), turning()])
    assert many.corners_m(CAR).shape == (2, 9, 4, 2)
    np.testing.assert_allclose(many.corners_m(CAR)[1], turning().at_rear_axle(CAR).corners_m(CAR), atol=1e-12)


def test_straight_trajectories_follow_their_speeds() -> None:
    state = one_car(1.0, 2.0, heading_rad=np.pi / 2)
    plan = straight_trajectory(state, np.array([4.0, 2.0, -1.0]), vehicle=CAR, dt_s=DT_S)
    ahead = plan.position_m[:, 1] - state.centre_m(CAR)[0, 1]
    np.testing.assert_allclose(ahead, [0.0, 0.4, 0.6], atol=1e-12)
    np.testing.assert_allclose(plan.position_m[:, 0], 1.0)
    assert plan.point == "centre"


def test_braking_begins_where_the_vehicle_is() -> None:
    state = one_car(3.0, heading_rad=0.4, speed_mps=6.0)
    plan = braking_trajectory(state, vehicle=CAR, dt_s=DT_S, horizon_s=2.0, braking_mps2=4.0)
    np.testing.assert_allclose(plan.position_m[0], state.centre_m(CAR)[0])
    np.testing.assert_allclose(plan.at_rear_axle(CAR).position_m[0], state.rear_axle_m[0], atol=1e-12)
    assert len(plan) == 21
    assert plan.speed_mps[15:].tolist() == [0.0] * 6
