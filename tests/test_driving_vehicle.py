"""The bicycle by hand, and how trackers follow lines and circles."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from driving_scenes import DT_S, NOW, one_car, road_scene
from waycode.driving import (
    Command,
    LqrTracker,
    PerfectTracker,
    Tracker,
    Trajectory,
    Vehicle,
    VehicleState,
    advance,
)
from waycode.driving.tracker import lateral_error_m, steer_against_errors
from waycode.driving.trajectory import HARD_BRAKING_MPS2, braking_trajectory, trajectory_fault
from waycode.driving.vehicle import recorded_state, steering_angle

CAR = Vehicle()


def command(acceleration_mps2: float = 0.0, steering_rate_radps: float = 0.0) -> Command:
    return Command(acceleration_mps2=np.array([acceleration_mps2]), steering_rate_radps=np.array([steering_rate_radps]))


def test_a_commanded_acceleration_arrives_by_a_third_in_the_first_step() -> None:
    after = advance(one_car(speed_mps=10.0), command(3.0), vehicle=CAR, dt_s=DT_S)
    # 0.1 / (0.1 + 0.2) of 3 m/s2; the position still moves with the speed of before.
    np.testing.assert_allclose(after.acceleration_mps2, [1.0])
    np.testing.assert_allclose(after.speed_mps, [10.1])
    np.testing.assert_allclose(after.rear_axle_m, [[1.0, 0.0]])


def test_steering_is_late_and_turns_the_car_one_step_later() -> None:
    after = advance(one_car(speed_mps=10.0), command(0.0, 0.3), vehicle=CAR, dt_s=DT_S)
    np.testing.assert_allclose(after.steering_rad, [0.3 * 0.1 * 0.1 / 0.15])
    np.testing.assert_allclose(after.heading_rad, [0.0])
    again = advance(after, command(), vehicle=CAR, dt_s=DT_S)
    np.testing.assert_allclose(again.heading_rad, [0.1 * 10 * np.tan(0.02) / CAR.wheelbase_m])


def test_steering_has_a_stop() -> None:
    after = advance(one_car(steering_rad=1.0), command(0.0, 100.0), vehicle=CAR, dt_s=DT_S)
    np.testing.assert_allclose(after.steering_rad, [np.pi / 3])


def test_constant_steering_drives_a_circle() -> None:
    radius_m = 20.0
    state = one_car(speed_mps=5.0, steering_rad=float(np.arctan(CAR.wheelbase_m / radius_m)))
    turned = 0.0
    for _ in range(50):
        after = advance(state, command(), vehicle=CAR, dt_s=DT_S)
        turned += float(after.heading_rad[0] - state.heading_rad[0])
        state = after
    np.testing.assert_allclose(turned, 25.0 / radius_m)  # 5 s at 5 m/s
    np.testing.assert_allclose(state.yaw_rate_radps, [5.0 / radius_m])


def test_the_centre_of_a_turning_car_moves_sideways() -> None:
    state = one_car(speed_mps=5.0, steering_rad=0.2)
    velocity = state.centre_velocity_mps(CAR)[0]
    np.testing.assert_allclose(velocity, [5.0, 5.0 * np.tan(0.2) / CAR.wheelbase_m * CAR.rear_axle_to_centre_m])


def line(speed_mps: float, *, steps: int = 60, y_m: float = 0.0) -> Trajectory:
    time_s = np.arange(steps + 1) * DT_S
    position = np.stack([speed_mps * time_s, np.full(steps + 1, y_m)], axis=-1)
    return Trajectory(
        position_m=position[None],
        heading_rad=np.zeros((1, steps + 1)),
        speed_mps=np.full((1, steps + 1), speed_mps),
        point="rear-axle",
    )


def circle(speed_mps: float, radius_m: float, *, steps: int = 100) -> Trajectory:
    angle = speed_mps * np.arange(steps + 1) * DT_S / radius_m
    position = radius_m * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1)
    return Trajectory(
        position_m=position[None],
        heading_rad=angle[None],
        speed_mps=np.full((1, steps + 1), speed_mps),
        point="rear-axle",
    )


def followed(tracker: Tracker, state: VehicleState, reference: Trajectory, *, num_steps: int) -> list[VehicleState]:
    return list(tracker.follow(state, reference, num_steps=num_steps, vehicle=CAR, dt_s=DT_S))


def test_lqr_drives_back_to_a_line_and_stays_there() -> None:
    states = followed(LqrTracker(), one_car(y_m=0.5, speed_mps=10.0), line(10.0, steps=110), num_steps=100)
    aside = np.abs([float(state.rear_axle_m[0, 1]) for state in states])
    assert aside[25:].max() < 0.12  # nuPlan's tracker swings around the line once or twice
    assert aside[-20:].max() < 0.02
    np.testing.assert_allclose(states[-1].speed_mps, [10.0], atol=0.01)


def test_lqr_drives_a_circle() -> None:
    radius_m = 25.0
    start = one_car(speed_mps=6.0, steering_rad=float(np.arctan(CAR.wheelbase_m / radius_m)))
    for state in followed(LqrTracker(), start, circle(6.0, radius_m), num_steps=80):
        away = np.linalg.norm(state.rear_axle_m[0] - [0.0, radius_m])
        assert abs(away - radius_m) < 0.2


def driven_with_steering(gain: float, *, speed_mps: float = 7.0, radius_m: float = 20.0) -> float:
    """The farthest from a circle within 3 s that begin with straight wheels, when every step steers against errors."""
    tracker, plan, car = LqrTracker(), circle(speed_mps, radius_m), one_car(speed_mps=speed_mps)
    farthest_m = 0.0
    for passed in range(30):
        rest = plan.samples(slice(passed, None))
        drive = Trajectory.of_states([car, *followed(tracker, car, rest, num_steps=40)])
        reference = steer_against_errors(rest, drive, gain=gain, fading_s=0.4, dt_s=DT_S) if gain else rest
        (car,) = followed(tracker, car, reference, num_steps=1)
        farthest_m = max(farthest_m, abs(float(np.linalg.norm(car.rear_axle_m[0] - [0.0, radius_m])) - radius_m))
    return farthest_m


def test_steering_against_its_errors_halves_them() -> None:
    as_planned, against = driven_with_steering(0.0), driven_with_steering(4.0)
    assert as_planned > 0.9
    assert against < 0.6 * as_planned


def test_a_plan_that_is_followed_is_the_reference_itself() -> None:
    plan = circle(6.0, 25.0)
    reference = steer_against_errors(plan, plan.samples(slice(0, 41)), gain=3.0, fading_s=0.4, dt_s=DT_S)
    assert len(reference) == 41
    np.testing.assert_array_equal(reference.position_m, plan.position_m[:, :41])
    np.testing.assert_array_equal(reference.heading_rad, plan.heading_rad[:, :41])


def test_an_error_is_measured_to_the_left_and_subtracted_less_often_later() -> None:
    plan, drive = line(5.0), line(5.0, y_m=0.4)
    np.testing.assert_allclose(lateral_error_m(plan, drive), 0.4)
    aside_m = steer_against_errors(plan, drive, gain=3.0, fading_s=0.5, dt_s=DT_S).position_m[0, :, 1]
    np.testing.assert_allclose(aside_m[[0, 5]], [-1.2, -0.4 * (1 + 2 / np.e)])
    np.testing.assert_allclose(aside_m[-1], -0.4, atol=1e-4)


def test_errors_of_the_centre_are_refused() -> None:
    plan = line(5.0)
    with pytest.raises(ValueError, match="expected the rear axle"):
        steer_against_errors(replace(plan, point="centre"), plan, gain=1.0, fading_s=0.4, dt_s=DT_S)


def test_lqr_reaches_the_speed_of_the_reference() -> None:
    states = followed(LqrTracker(), one_car(speed_mps=5.0), line(8.0), num_steps=50)
    np.testing.assert_allclose(states[-1].speed_mps, [8.0], atol=0.1)


def test_lqr_first_acceleration_by_hand() -> None:
    (state,) = followed(LqrTracker(), one_car(speed_mps=5.0), line(8.0), num_steps=1)
    # One second ahead: (1 * 10) / (1 * 10 + 1) of the 3 m/s that are missing, a third of which arrives at once.
    np.testing.assert_allclose(state.acceleration_mps2, [3.0 * 10 / 11 / 3], rtol=1e-3)


def test_lqr_fits_speed_and_curvature_of_a_circle() -> None:
    reference, tracker = circle(6.0, 25.0), LqrTracker()
    speed = tracker.fitted_speed(reference, dt_s=DT_S)
    curvature = tracker.fitted_curvature(reference, speed, dt_s=DT_S)
    np.testing.assert_allclose(speed, 6.0, rtol=1e-3)
    np.testing.assert_allclose(curvature, 1 / 25.0, rtol=1e-2)


def test_lqr_stands_still_where_the_reference_stands() -> None:
    states = followed(LqrTracker(), one_car(speed_mps=0.0), line(0.0), num_steps=30)
    np.testing.assert_allclose(states[-1].rear_axle_m, [[0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(states[-1].heading_rad, [0.0], atol=1e-6)


def test_many_cars_at_once_move_as_each_alone() -> None:
    lines = [line(8.0, y_m=1.0), line(3.0), line(0.0)]
    together = Trajectory.stack([each.select(0) for each in lines])
    start = one_car(speed_mps=4.0)
    joint = followed(LqrTracker(), start.repeated(3), together, num_steps=20)[-1]
    for index, each in enumerate(lines):
        alone = followed(LqrTracker(), start, each, num_steps=20)[-1]
        np.testing.assert_allclose(joint.rear_axle_m[index], alone.rear_axle_m[0], atol=1e-9)
        np.testing.assert_allclose(joint.heading_rad[index], alone.heading_rad[0], atol=1e-9)


def test_the_perfect_tracker_is_where_the_plan_says() -> None:
    reference = circle(6.0, 25.0)
    states = followed(PerfectTracker(), one_car(speed_mps=6.0), reference, num_steps=30)
    np.testing.assert_array_equal(states[-1].rear_axle_m, reference.position_m[:, 30])
    np.testing.assert_allclose(states[-1].yaw_rate_radps, [6.0 / 25.0])
    np.testing.assert_allclose(states[-1].steering_rad, [np.arctan(CAR.wheelbase_m / 25.0)])


@pytest.mark.parametrize("tracker", [PerfectTracker(), LqrTracker()], ids=["perfect", "lqr"])
def test_a_plan_of_two_samples_can_be_followed_beyond_its_end(tracker: Tracker) -> None:
    states = followed(tracker, one_car(speed_mps=5.0), line(5.0, steps=1), num_steps=5)
    assert np.isfinite(states[-1].rear_axle_m).all()


def test_braking_stops_after_v_squared_over_2a() -> None:
    plan = braking_trajectory(one_car(speed_mps=8.1), vehicle=CAR, dt_s=DT_S)
    travelled = plan.position_m[-1, 0] - plan.position_m[0, 0]
    np.testing.assert_allclose(travelled, 8.1**2 / (2 * 4.05))
    assert plan.speed_mps[-1] == 0


@pytest.mark.parametrize("speed_mps", [0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("again", [False, True], ids=["one plan", "planned again at every step"])
def test_an_emergency_stop_is_one_in_spite_of_the_tracker(speed_mps: float, again: bool) -> None:
    """The tracker makes a crawl of a plan that just stops: it takes longer and goes further."""
    tracker = LqrTracker()

    def driven(plan: Callable[[VehicleState], Trajectory]) -> tuple[np.ndarray, float]:
        states = [one_car(speed_mps=speed_mps)]
        if again:
            for _ in range(40):
                reference = Trajectory.stack([plan(states[-1])])
                states += followed(tracker, states[-1], reference, num_steps=1)
        else:
            states = followed(tracker, states[0], Trajectory.stack([plan(states[0])]), num_steps=40)
        return np.concatenate([state.speed_mps for state in states]), float(states[-1].rear_axle_m[0, 0])

    speed, distance = driven(lambda car: tracker.emergency_stop(car, vehicle=CAR, dt_s=DT_S))
    crawl, further = driven(lambda car: braking_trajectory(car, vehicle=CAR, dt_s=DT_S))
    assert distance < 0.95 * further
    assert speed.min() > -0.01  # it does not roll back
    assert abs(speed[-1]) < 0.01 < crawl[-1]
    assert np.diff(speed).min() >= -HARD_BRAKING_MPS2 * DT_S * 1.01  # and is no harder than it was asked to be


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"heading_rad": np.array([0.0, np.nan, 0.0])}, "heading_rad has 1 values that are not finite"),
        ({"position_m": np.zeros((1, 2))}, "has 1 samples, expected at least 2"),
    ],
    ids=["good", "nan", "short"],
)
def test_faults_of_plans(change: dict[str, np.ndarray], words: str | None) -> None:
    parts = {"position_m": np.zeros((3, 2)), "heading_rad": np.zeros(3), "speed_mps": np.zeros(3)}
    if "position_m" in change:
        parts = {name: values[:1] for name, values in parts.items()}
    fault = trajectory_fault(Trajectory(**(parts | change)))
    assert (fault is None) if words is None else (fault is not None and words in fault)


def test_something_else_is_no_plan() -> None:
    assert trajectory_fault([1, 2]) == "the driver returned a list, expected a Trajectory"


def test_a_recorded_state_by_hand() -> None:
    scene = road_scene(speed_mps=8.0)
    heading, vx, vy = scene.tracks.heading_rad.copy(), scene.tracks.vx_mps.copy(), scene.tracks.vy_mps.copy()
    heading[0, NOW - 1 : NOW + 1] = (0.0, 0.02)
    vx[0, NOW - 1 : NOW + 1] = (7.8, 8.0 * np.cos(0.02))
    vy[0, NOW] = 8.0 * np.sin(0.02)
    turning = replace(scene, tracks=replace(scene.tracks, heading_rad=heading, vx_mps=vx, vy_mps=vy))
    state = recorded_state(turning, 0, vehicle=CAR)
    np.testing.assert_allclose(state.centre_m(CAR), [[0.0, 0.0]], atol=1e-5)
    np.testing.assert_allclose(state.speed_mps, [8.0], atol=1e-5)
    np.testing.assert_allclose(state.acceleration_mps2, [2.0], atol=1e-4)
    np.testing.assert_allclose(state.yaw_rate_radps, [0.2], atol=1e-5)
    np.testing.assert_allclose(state.steering_rad, np.arctan(CAR.wheelbase_m * 0.2 / 8.0), atol=1e-5)


def test_the_first_observed_step_has_no_acceleration() -> None:
    scene = road_scene(speed_mps=8.0)
    valid = scene.tracks.valid.copy()
    valid[0, :NOW] = False
    state = recorded_state(replace(scene, tracks=replace(scene.tracks, valid=valid)), 0, vehicle=CAR)
    assert (state.acceleration_mps2[0], state.yaw_rate_radps[0], state.steering_rad[0]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("yaw_rate", "speed_mps", "expected"),
    [(0.5, 5.0, np.arctan(CAR.wheelbase_m * 0.1)), (0.5, 0.4, 0.0), (9.0, 1.0, np.pi / 3), (0.5, -5.0, -0.2996)],
    ids=["driving", "standing", "at the stop", "backwards"],
)
def test_steering_angles_by_hand(yaw_rate: float, speed_mps: float, expected: float) -> None:
    found = steering_angle(np.array([yaw_rate]), np.array([speed_mps]), vehicle=CAR)
    np.testing.assert_allclose(found, [expected], atol=1e-4)


def test_cars_of_other_sizes_have_their_axles_in_proportion() -> None:
    half = Vehicle.of_size(length_m=5.176 / 2, width_m=1.5)
    assert (half.wheelbase_m, half.rear_axle_to_centre_m) == (3.089 / 2, 1.461 / 2)
    with pytest.raises(ValueError, match="above 0"):
        Vehicle(length_m=0.0)
