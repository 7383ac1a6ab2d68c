"""The scene frame: world positions into it, rounding, rotations and angles."""

import numpy as np
from jaxtyping import Bool, Float, Float32

POSITION_STEP_M = 2.0**-10  # about 1 mm; exact in float32 out to 16 km, and its zero bits compress well
HEADING_STEP_RAD = 2.0**-13  # about 0.1 mrad
VELOCITY_STEP_MPS = 2.0**-10


def scene_origin(position_m: Float[np.ndarray, "*shape 2"], valid: Bool[np.ndarray, "*shape"]) -> tuple[float, float]:
    """The origin of a scene frame: the centre of the observed positions, in whole metres."""
    observed = position_m[valid]
    if len(observed) == 0:
        return (0.0, 0.0)
    centre = np.round((observed.min(axis=0) + observed.max(axis=0)) / 2)
    return (float(centre[0]), float(centre[1]))


def to_scene_frame(
    position_m: Float[np.ndarray, "*shape 2"], origin_m: tuple[float, float]
) -> Float32[np.ndarray, "*shape 2"]:
    """World positions relative to the origin, rounded to `POSITION_STEP_M`."""
    return snap(np.asarray(position_m, np.float64) - np.asarray(origin_m), POSITION_STEP_M)


def snap(values: Float[np.ndarray, "*shape"], step: float) -> Float32[np.ndarray, "*shape"]:
    """Values rounded to multiples of `step`, a power of two, so that they are exact in float32; never -0."""
    return np.asarray(np.round(np.asarray(values, np.float64) / step) * step + 0.0, np.float32)


def wrap_angle(angle_rad: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The same angle in [-pi, pi]."""
    return np.asarray((angle_rad + np.pi) % (2 * np.pi) - np.pi)


def rotate(
    vector: Float[np.ndarray, "*shape 2"], angle_rad: float | Float[np.ndarray, "..."]
) -> Float[np.ndarray, "*shape 2"]:
    """Vectors rotated counter-clockwise."""
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    return np.stack([cos * vector[..., 0] - sin * vector[..., 1], sin * vector[..., 0] + cos * vector[..., 1]], axis=-1)
