"""The scene frame: positions and tracks from the world frame into it, rotations and angles.

Axes: A tracks, T steps.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float32

from waycode.scene.types import Tracks

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


def tracks_from_world(
    ids: Sequence[str],
    types: Sequence[int],
    *,
    length_m: Float[np.ndarray, " A"],
    width_m: Float[np.ndarray, " A"],
    position_m: Float[np.ndarray, "A T 2"],
    heading_rad: Float[np.ndarray, "A T"],
    velocity_mps: Float[np.ndarray, "A T 2"] | None,
    valid: Bool[np.ndarray, "A T"],
    origin_m: tuple[float, float],
    dt_s: float = 0.1,
    to_predict: Sequence[int] = (),
    ego_index: int | None = None,
) -> Tracks:
    """Tracks in the scene frame from observations in the world frame: the last step of every source.

    Values are rounded so that they compress well, and are zero where `valid` is false.

    Args:
        ids: of A tracks.
        types: `TrackType` of each.
        length_m: of the bounding boxes.
        width_m: of the bounding boxes.
        position_m: centres of the bounding boxes in the world frame; unobserved samples may be anything, NaN included.
        heading_rad: of the bounding boxes, counter-clockwise from +x.
        velocity_mps: in the world frame; finite differences of the positions if None.
        valid: which samples were observed.
        origin_m: world position of the scene frame's (0, 0).
        dt_s: seconds between steps.
        to_predict: indices of the tracks whose future is of interest.
        ego_index: index of the ego's track, if there is one.
    """
    if velocity_mps is None:
        velocity_mps = _velocity(np.where(valid[..., None], position_m, np.nan), dt_s)

    def masked(values: np.ndarray, step: float) -> np.ndarray:
        return snap(np.where(valid, values, 0.0), step)

    seen = valid[..., None]
    position = to_scene_frame(np.where(seen, position_m, np.asarray(origin_m)), origin_m)
    return Tracks(
        ids=tuple(ids),
        types=np.array(types, np.int8).reshape(-1),
        length_m=np.asarray(length_m, np.float32),
        width_m=np.asarray(width_m, np.float32),
        x_m=np.ascontiguousarray(position[..., 0]),
        y_m=np.ascontiguousarray(position[..., 1]),
        heading_rad=masked(wrap_angle(np.where(valid, heading_rad, 0.0)), HEADING_STEP_RAD),
        vx_mps=masked(velocity_mps[..., 0], VELOCITY_STEP_MPS),
        vy_mps=masked(velocity_mps[..., 1], VELOCITY_STEP_MPS),
        valid=valid,
        to_predict=np.array(to_predict, np.int32).reshape(-1),
        ego_index=ego_index,
    )


def _velocity(position_m: Float[np.ndarray, "A T 2"], dt_s: float) -> Float[np.ndarray, "A T 2"]:
    """Central differences of positions (NaN where not observed), one-sided at gaps, zero for an isolated sample."""
    ahead = np.diff(position_m, axis=1, append=np.nan) / dt_s
    behind = np.diff(position_m, axis=1, prepend=np.nan) / dt_s
    known = np.isfinite(ahead).astype(float) + np.isfinite(behind)
    return (np.nan_to_num(ahead) + np.nan_to_num(behind)) / np.maximum(known, 1)
