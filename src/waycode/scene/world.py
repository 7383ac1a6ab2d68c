"""Builds the tracks of a scene from observations in world coordinates: what every source does last."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from waycode.scene.frames import HEADING_STEP_RAD, VELOCITY_STEP_MPS, snap, to_scene_frame, wrap_angle
from waycode.scene.types import Tracks


def tracks_from_world(
    ids: Sequence[str],
    types: Sequence[int],  # TrackType
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
    """Tracks in the scene frame: rounded so that they compress well, and zero wherever `valid` is false.

    What stands in unobserved samples does not matter, NaN and sentinels included. Without velocities, those of the
    positions are taken.
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
    """Central differences between observed samples (NaN where not observed), one-sided at gaps, zero for a lone one."""
    ahead = np.diff(position_m, axis=1, append=np.nan) / dt_s
    behind = np.diff(position_m, axis=1, prepend=np.nan) / dt_s
    known = np.isfinite(ahead).astype(float) + np.isfinite(behind)
    return (np.nan_to_num(ahead) + np.nan_to_num(behind)) / np.maximum(known, 1)
