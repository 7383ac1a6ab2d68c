"""The numpy kernel: polylines and boxes in the plane. Axes: p points of a polyline, q query points."""

import numpy as np
from jaxtyping import Bool, Float, Int

from waycode.scene.frames import rotate


def forward(heading_rad: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape 2"]:
    """Unit vectors in the direction of headings."""
    unit = np.empty((*heading_rad.shape, 2), heading_rad.dtype)  # several times faster than np.stack
    np.cos(heading_rad, out=unit[..., 0])
    np.sin(heading_rad, out=unit[..., 1])
    return unit


def arclengths(points_m: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, " p"]:
    """Arclength from the start of the polyline to each of its points."""
    steps = np.linalg.norm(np.diff(points_m, axis=0), axis=1)
    return np.concatenate([np.zeros(1, steps.dtype), np.cumsum(steps)])


def resample(points_m: Float[np.ndarray, "p 2"], *, spacing_m: float) -> Float[np.ndarray, "q 2"]:
    """The polyline with evenly spaced points, at most `spacing_m` apart; keeps both ends."""
    along = arclengths(points_m)
    count = max(2, int(np.ceil(along[-1] / spacing_m - 1e-6)) + 1)
    at = np.linspace(0, along[-1], count)
    return interpolate(points_m, at)


def interpolate(points_m: Float[np.ndarray, "p 2"], at_m: Float[np.ndarray, " q"]) -> Float[np.ndarray, "q 2"]:
    """Points of the polyline at the arclengths `at_m`, clamped to its ends."""
    along = arclengths(points_m)
    return np.stack([np.interp(at_m, along, points_m[:, axis]) for axis in (0, 1)], axis=-1)


def directions(points_m: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, " p"]:
    """Heading of the polyline at each point: that of the segment after it, at the end that of the last segment."""
    steps = np.diff(points_m, axis=0)
    moving = np.linalg.norm(steps, axis=1) > 1e-6
    if not moving.any():
        return np.zeros(len(points_m))
    angles = np.arctan2(steps[:, 1], steps[:, 0])
    # A segment of zero length takes the heading of the next segment that has one, else of the last.
    following = np.where(moving, np.arange(len(steps)), len(steps))
    following = np.minimum.accumulate(following[::-1])[::-1]
    following = np.where(following == len(steps), np.flatnonzero(moving)[-1], following)
    angles = angles[following]
    return np.append(angles, angles[-1])


def project_on_segments(
    points_m: Float[np.ndarray, "..."], start_m: Float[np.ndarray, "..."], step_m: Float[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Projects points onto segments; all arguments broadcast to `[..., 2]`.

    Args:
        points_m: the points.
        start_m: where each segment starts.
        step_m: from the start of each segment to its end; may be zero.

    Returns:
        The fraction of the segment at its nearest point, in [0, 1], and the vector from there to the point.
    """
    relative = points_m - start_m
    squared = np.maximum((step_m**2).sum(axis=-1), 1e-12)
    fraction = np.clip((relative * step_m).sum(axis=-1) / squared, 0, 1)
    return fraction, relative - fraction[..., None] * step_m


def project(
    points_m: Float[np.ndarray, "q 2"], polyline_m: Float[np.ndarray, "p 2"]
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"], Int[np.ndarray, " q"]]:
    """Projects points onto a polyline.

    Returns:
        Arclength of the nearest point on the polyline, signed distance from it (left positive), and index of its
        segment.
    """
    start, step = polyline_m[:-1], np.diff(polyline_m, axis=0)
    fraction, offset = project_on_segments(points_m[:, None], start[None], step[None])  # [q, p - 1], [q, p - 1, 2]
    distance = np.linalg.norm(offset, axis=-1)
    # A segment of zero length has no sides. Its neighbours do, and are equally near.
    squared = (step**2).sum(axis=1)
    moving = squared > 1e-12
    segment = np.where(moving | ~moving.any(), distance, np.inf).argmin(axis=1)
    rows = np.arange(len(points_m))
    relative = points_m - start[segment]
    cross = step[segment, 0] * relative[:, 1] - step[segment, 1] * relative[:, 0]
    side = np.where(cross < 0, -1.0, 1.0)  # never 0: a point straight beyond the end is not on the polyline
    along = arclengths(polyline_m)[:-1][segment] + fraction[rows, segment] * np.sqrt(
        np.maximum(squared, 1e-12)[segment]
    )
    return along, side * distance[rows, segment], segment


def box_corners(
    centre_m: Float[np.ndarray, "*shape 2"],
    heading_rad: Float[np.ndarray, "*shape"],
    *,
    length_m: Float[np.ndarray, "*shape"],
    width_m: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape 4 2"]:
    """Corners of boxes with these centres, headings and sizes: front left, front right, rear right, rear left."""
    signs = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) / 2
    size = np.stack([length_m, width_m], axis=-1)[..., None, :]  # [..., 1, 2]
    return centre_m[..., None, :] + rotate(signs * size, np.asarray(heading_rad)[..., None])


def boxes_overlap(
    one: Float[np.ndarray, "*shape 4 2"], other: Float[np.ndarray, "*shape 4 2"]
) -> Bool[np.ndarray, "*shape"]:
    """Whether two boxes overlap, by the separating axis theorem; boxes that only touch do not.

    Args:
        one, other: corners as from `box_corners`, of the same shape.
    """
    one, other = (np.ascontiguousarray(np.moveaxis(box, (-2, -1), (0, 1))) for box in (one, other))  # [4, 2, ...]
    separated = np.zeros(one.shape[2:], np.bool_)
    for box in (one, other):
        for first, second in ((0, 1), (1, 2)):  # two sides give the two axes of a box
            x, y = box[second] - box[first]
            a, b = one[:, 0] * x + one[:, 1] * y, other[:, 0] * x + other[:, 1] * y  # [4, ...]
            separated |= (a.max(axis=0) <= b.min(axis=0)) | (b.max(axis=0) <= a.min(axis=0))
    return np.asarray(~separated)
