"""Points on lanes become the motion of cars and people."""

import numpy as np

from waycode.sources.sumo.smoothing import walking_motion, wheeled_motion

DT_S = 0.1
CAR = {"length_m": 4.6, "wheelbase_m": 2.8, "front_overhang_m": 0.9, "dt_s": DT_S}


def test_straight_driving_keeps_the_bumper_where_it_was() -> None:
    bumper = np.stack([np.arange(60) * 1.0, np.zeros(60)], axis=-1)
    motion = wheeled_motion(bumper, 0.0, **CAR)
    np.testing.assert_allclose(motion.position_m, bumper - np.array([2.3, 0.0]), atol=1e-6)
    np.testing.assert_allclose(motion.heading_rad, 0, atol=1e-9)
    np.testing.assert_allclose(motion.velocity_mps, [[10.0, 0.0]] * 60, atol=1e-6)


def test_in_a_long_bend_the_rear_axle_runs_on_the_smaller_circle() -> None:
    radius, speed = 20.0, 5.0
    angle = np.arange(300) * DT_S * speed / radius
    bumper = radius * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1)
    motion = wheeled_motion(bumper, 0.0, **CAR)
    rear_axle = motion.position_m - (2.8 + 0.9 - 2.3) * np.stack(
        [np.cos(motion.heading_rad), np.sin(motion.heading_rad)], axis=-1
    )
    centre = np.array([0.0, radius])
    settled = slice(100, -20)
    distance = np.linalg.norm(rear_axle - centre, axis=1)[settled]
    np.testing.assert_allclose(distance, np.sqrt(radius**2 - 2.8**2), rtol=2e-3)
    turn_rate = np.diff(np.unwrap(motion.heading_rad))[settled] / DT_S
    np.testing.assert_allclose(turn_rate, speed / radius, rtol=1e-2)


def test_a_corner_in_the_lane_becomes_a_smooth_turn_and_standing_turns_nobody() -> None:
    along = np.concatenate([np.linspace(0, 20, 50), np.full(30, 20.0)])
    bumper = np.stack([np.minimum(along, 10), np.maximum(along - 10, 0) * 0.5], axis=-1)
    heading = wheeled_motion(bumper, 0.0, **CAR).heading_rad
    assert np.abs(np.diff(heading)).max() / DT_S < 1.0
    np.testing.assert_allclose(np.diff(heading[-15:]), 0, atol=1e-12)


def test_people_face_the_way_they_walk_and_keep_it_when_they_wait() -> None:
    walked = np.concatenate([np.arange(40) * 0.13, np.full(40, 39 * 0.13)])
    motion = walking_motion(np.stack([np.zeros(80), walked], axis=-1), 0.0, dt_s=DT_S)
    np.testing.assert_allclose(motion.heading_rad, np.pi / 2, atol=1e-6)
    np.testing.assert_allclose(motion.velocity_mps[-20:], 0, atol=1e-9)


def test_lives_shorter_than_the_window_are_left_as_they_are() -> None:
    bumper = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    assert wheeled_motion(bumper, 0.0, **CAR).position_m.shape == (3, 2)
    assert walking_motion(bumper[:1], 0.0, dt_s=DT_S).velocity_mps.tolist() == [[0.0, 0.0]]
