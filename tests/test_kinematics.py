"""Motion of bodies with known accelerations, and the bounds of comfort."""

from dataclasses import replace

import numpy as np
import pytest

from scenes import small_tracks
from waycode.scene import Tracks, TrackType
from waycode.scene.kinematics import COMFORT_BOUNDS, comfortable, motion, moving, observed_span, within_comfort

DT_S = 0.1
TIME_S = np.arange(91) * DT_S


def tracks_of(position_m: np.ndarray, heading_rad: np.ndarray, velocity_mps: np.ndarray) -> Tracks:
    """Cars that are seen at every step."""
    count, steps = heading_rad.shape
    return Tracks(
        ids=tuple(str(index) for index in range(count)),
        types=np.full(count, TrackType.VEHICLE, np.int8),
        length_m=np.full(count, 4.5, np.float32),
        width_m=np.full(count, 1.9, np.float32),
        x_m=position_m[..., 0].astype(np.float32),
        y_m=position_m[..., 1].astype(np.float32),
        heading_rad=heading_rad.astype(np.float32),
        vx_mps=velocity_mps[..., 0].astype(np.float32),
        vy_mps=velocity_mps[..., 1].astype(np.float32),
        valid=np.ones((count, steps), np.bool_),
        to_predict=np.zeros(0, np.int32),
        ego_index=0,
    )


def test_constant_acceleration_is_found() -> None:
    velocity = np.stack([5 + 1.5 * TIME_S, 0 * TIME_S], axis=-1)[None]
    moves = motion(velocity, np.zeros((1, 91)), dt_s=DT_S)
    np.testing.assert_allclose(moves.longitudinal_acceleration_mps2, 1.5, atol=1e-9)
    np.testing.assert_allclose(moves.lateral_acceleration_mps2, 0, atol=1e-9)
    np.testing.assert_allclose(moves.longitudinal_jerk_mps3, 0, atol=1e-9)


def test_a_circle_has_centripetal_acceleration_and_yaw_rate_through_the_wrap_of_the_angle() -> None:
    speed, yaw_rate = 8.0, 0.5
    heading = (yaw_rate * TIME_S + 2 + np.pi) % (2 * np.pi) - np.pi
    velocity = speed * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    moves = motion(velocity[None], heading[None], dt_s=DT_S)
    inner = slice(10, -10)
    np.testing.assert_allclose(moves.lateral_acceleration_mps2[:, inner], speed * yaw_rate, rtol=1e-2)
    # A window of 8 steps has its middle between two steps, hence half a step of turn between the two directions.
    np.testing.assert_allclose(moves.longitudinal_acceleration_mps2[:, inner], 0, atol=0.15)
    np.testing.assert_allclose(moves.yaw_rate_radps[:, inner], yaw_rate, rtol=1e-6)


@pytest.mark.parametrize(("name", "bound"), [(name, side) for name in COMFORT_BOUNDS for side in (0, 1)])
def test_every_bound_counts_on_both_sides(name: str, bound: int) -> None:
    calm = motion(np.ones((1, 91, 2)), np.zeros((1, 91)), dt_s=DT_S)
    assert within_comfort(calm).tolist() == [True]
    beyond = np.zeros((1, 91))
    beyond[0, 40] = COMFORT_BOUNDS[name][bound] * 1.01
    assert within_comfort(replace(calm, **{name: beyond})).tolist() == [False]
    beyond[0, 40] = COMFORT_BOUNDS[name][bound] * 0.99
    assert within_comfort(replace(calm, **{name: beyond})).tolist() == [True]


def test_only_moving_tracks_without_gaps_are_judged() -> None:
    speed = np.array([10.0, 10.0, 0.0, 10.0])
    velocity = np.stack([np.repeat(speed[:, None], 91, axis=1), np.zeros((4, 91))], axis=-1)
    velocity[1, 45:, 0] = 2.0  # the second brakes from 10 to 2 m/s within a step
    position = np.cumsum(velocity, axis=1) * DT_S
    tracks = tracks_of(position, np.zeros((4, 91)), velocity)
    gap = tracks.valid.copy()
    gap[3, 30] = False
    comfort, judged = comfortable(replace(tracks, valid=gap), dt_s=DT_S)
    assert judged.tolist() == [True, True, False, False]
    assert comfort.tolist() == [True, False, False, False]


def test_tracks_seen_over_different_spans_are_judged_over_their_own() -> None:
    velocity = np.full((2, 91, 2), 3.0)
    position = np.cumsum(velocity, axis=1) * DT_S
    tracks = tracks_of(position, np.full((2, 91), np.pi / 4), velocity)
    valid = tracks.valid.copy()
    valid[1, :20] = valid[1, 60:] = False
    comfort, judged = comfortable(replace(tracks, valid=valid), dt_s=DT_S)
    assert judged.tolist() == comfort.tolist() == [True, True]


def test_observed_span_and_moving() -> None:
    first, last = observed_span(np.array([[False, True, True, False], [False] * 4, [True] * 4]))
    assert first.tolist() == [1, 0, 0]
    assert last.tolist() == [3, 0, 4]
    assert moving(small_tracks(5)).tolist() == [True, False, False, False]
