"""Frames: positions keep their millimetres, and what is snapped stays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from waycode.scene.frames import (
    HEADING_STEP_RAD,
    POSITION_STEP_M,
    VELOCITY_STEP_MPS,
    rotate,
    scene_origin,
    snap,
    to_scene_frame,
    wrap_angle,
)

METRES = arrays(np.float64, st.integers(0, 8), elements=st.floats(-16_384, 16_384))
STEPS = st.sampled_from([POSITION_STEP_M, HEADING_STEP_RAD, VELOCITY_STEP_MPS])


@given(METRES, STEPS)
def test_snapping_twice_is_snapping_once(values: np.ndarray, step: float) -> None:
    once = snap(values, step)
    np.testing.assert_array_equal(snap(once, step), once)


@given(METRES, st.sampled_from([POSITION_STEP_M, VELOCITY_STEP_MPS]))
def test_snapping_is_exact_in_float32(values: np.ndarray, step: float) -> None:
    steps = snap(values, step).astype(np.float64) / step
    np.testing.assert_array_equal(steps, np.round(values / step))


@given(METRES, STEPS)
def test_snapping_never_gives_minus_zero(values: np.ndarray, step: float) -> None:
    snapped = snap(values * 1e-5, step)
    assert not np.signbit(snapped[snapped == 0]).any()


def test_minus_zero_itself_becomes_zero() -> None:
    assert not np.signbit(snap(np.array([-0.0, -1e-9]), POSITION_STEP_M)).any()


@given(
    arrays(np.float64, (5, 2), elements=st.floats(-200, 200)),
    st.floats(-9_999_999, 9_999_999),
    st.floats(-9_999_999, 9_999_999),
)
def test_millimetres_survive_large_coordinates(local_m: np.ndarray, east_m: float, north_m: float) -> None:
    world_m = local_m + np.array([east_m, north_m])
    origin_m = scene_origin(world_m, np.ones(5, np.bool_))
    back_m = to_scene_frame(world_m, origin_m).astype(np.float64) + np.array(origin_m)
    np.testing.assert_allclose(back_m, world_m, rtol=0, atol=POSITION_STEP_M / 2 + 1e-8)


def test_the_origin_is_whole_metres_in_the_middle_of_what_was_seen() -> None:
    position_m = np.array([[[10.2, -4.0], [20.2, 6.4], [9e9, 9e9]]])
    assert scene_origin(position_m, np.array([[True, True, False]])) == (15.0, 1.0)
    assert scene_origin(position_m, np.zeros((1, 3), np.bool_)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("angle", "wrapped"), [(0, 0), (3, 3), (4, 4 - 2 * np.pi), (-4, 2 * np.pi - 4), (7 * np.pi / 2, -np.pi / 2)]
)
def test_wrapped_angles(angle: float, wrapped: float) -> None:
    assert wrap_angle(np.array(angle, np.float64)) == pytest.approx(wrapped)


@given(arrays(np.float64, 6, elements=st.floats(-1e3, 1e3)))
def test_wrapped_angles_are_the_same_directions(angle_rad: np.ndarray) -> None:
    wrapped = wrap_angle(angle_rad)
    assert np.all(np.abs(wrapped) <= np.pi)
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * angle_rad), atol=1e-9)


def test_rotation_is_counter_clockwise() -> None:
    turned = rotate(np.array([[1.0, 0.0], [0.0, 2.0]]), np.pi / 2)
    np.testing.assert_allclose(turned, [[0, 1], [-2, 0]], atol=1e-12)
    each = rotate(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0.0, np.pi]))
    np.testing.assert_allclose(each, [[1, 0], [-1, 0]], atol=1e-12)


@given(arrays(np.float64, (4, 2), elements=st.floats(-1e3, 1e3)), st.floats(-7, 7))
def test_rotation_is_undone_and_keeps_lengths(vector: np.ndarray, angle_rad: float) -> None:
    turned = rotate(vector, angle_rad)
    np.testing.assert_allclose(rotate(turned, -angle_rad), vector, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(vector, axis=1), atol=1e-9)
