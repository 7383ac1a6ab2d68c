"""Left and right exchanged: the same scene as it would be seen in a mirror along the x axis."""

from dataclasses import replace

import numpy as np

from waycode.features.extract import Example

_HISTORY_SIGNS = np.array([1, -1, 1, -1, 1, -1, 1], np.float32)  # x, y, cos, sin, vx, vy, observed
_POINT_SIGNS = np.array([1, -1], np.float32)
_POSE_SIGNS = np.array([1, -1, -1], np.float32)  # x, y, heading


def mirror(example: Example) -> Example:
    """Turns left turns into right turns; what has no side (kinds, sizes, lights, limits, masks) stays."""
    segments = example.segments
    return replace(
        example,
        segments=replace(segments, points_m=segments.points_m * _POINT_SIGNS, pose=segments.pose * _POSE_SIGNS),
        history=example.history * _HISTORY_SIGNS,
        track_pose=example.track_pose * _POSE_SIGNS,
        future_m=example.future_m * _POINT_SIGNS,
    )
