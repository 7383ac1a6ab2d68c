"""Polylines and boxes in the plane on torch tensors, with gradients: the twin of `geometry`.

Axes: S segments, q points, K trajectories, T steps, A others, n points or discs per body.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TIE_BREAK_M2 = 1e-3  # added per index, so that the first of equally near polylines or sides is chosen
_MIN_SIDE_M2 = 1e-6  # squared length of a side of a polyline: repeated points have none
_MIN_LENGTH_M = 1e-4  # shorter segments have no direction; their neighbours are just as near


@dataclass(frozen=True, kw_only=True)
class PolylineSegments:
    """The S segments of some polylines."""

    start_m: Float[Tensor, "S 2"]  # where each segment starts
    step_m: Float[Tensor, "S 2"]  # from start to end
    along_m: Float[Tensor, " S"]  # arclength of the polyline at the start of the segment
    line: Int[Tensor, " S"]  # index of the polyline

    @staticmethod
    def of(
        polylines: Sequence[np.ndarray], *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> "PolylineSegments":
        """The segments of polylines [p_i, 2]; segments without length are left out."""
        lines = [np.asarray(polyline, np.float64).reshape(-1, 2) for polyline in polylines]
        start = np.concatenate([np.zeros((0, 2)), *(line[:-1] for line in lines)])
        step = np.concatenate([np.zeros((0, 2)), *(np.diff(line, axis=0) for line in lines)])
        length = np.linalg.norm(step, axis=1)
        count = [max(len(line) - 1, 0) for line in lines]
        first = np.repeat(np.concatenate([[0], np.cumsum(count)[:-1]]) if count else [0], count or [0]).astype(int)
        before = np.concatenate([[0.0], np.cumsum(length)])
        kept = length > _MIN_LENGTH_M

        def tensor(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values[kept], dtype=dtype, device=device)

        return PolylineSegments(
            start_m=tensor(start),
            step_m=tensor(step),
            along_m=tensor(before[:-1] - before[first]),
            line=torch.as_tensor(np.repeat(np.arange(len(lines)), count)[kept], dtype=torch.long, device=device),
        )

    def __len__(self) -> int:
        return len(self.start_m)

    def where(self, kept: Bool[Tensor, " S"]) -> "PolylineSegments":
        """The segments for which `kept` is true."""
        return PolylineSegments(**{name: values[kept] for name, values in vars(self).items()})

    def near(self, points_m: Float[Tensor, "*shape 2"], *, reach_m: float) -> "PolylineSegments":
        """The segments within `reach_m` of the bounding box of all points."""
        points = points_m.detach().reshape(-1, 2)
        low, high = points.amin(dim=0) - reach_m, points.amax(dim=0) + reach_m
        end = self.start_m + self.step_m
        least, greatest = torch.minimum(self.start_m, end), torch.maximum(self.start_m, end)
        return self.where(((greatest >= low) & (least <= high)).all(dim=-1))


def squared_distances(points_m: Float[Tensor, "q 2"], segments: PolylineSegments) -> Float[Tensor, "q S"]:
    """Squared distance of every point to every segment, without gradients; for choosing the nearest segment."""
    points = points_m.detach()
    x, y = (points[:, axis, None] - segments.start_m[:, axis] for axis in (0, 1))  # [q, S] each
    step_x, step_y = segments.step_m.unbind(dim=-1)
    fraction = ((x * step_x + y * step_y) / (step_x**2 + step_y**2)).clamp(0, 1)
    return (x - fraction * step_x) ** 2 + (y - fraction * step_y) ** 2


def project(
    points_m: Float[Tensor, "*shape 2"], segments: PolylineSegments
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Arclength of the nearest point on the polylines, and signed offset from it (left positive)."""
    nearest = squared_distances(points_m.reshape(-1, 2), segments).argmin(dim=1).reshape(points_m.shape[:-1])
    start, step = segments.start_m[nearest], segments.step_m[nearest]
    length = torch.linalg.vector_norm(step, dim=-1)
    relative = points_m - start
    fraction = ((relative * step).sum(dim=-1) / length**2).clamp(0, 1)
    cross = step[..., 0] * relative[..., 1] - step[..., 1] * relative[..., 0]
    distance = torch.linalg.vector_norm(relative - fraction[..., None] * step, dim=-1)
    side = torch.where(cross < 0, -1.0, 1.0).to(distance)
    return segments.along_m[nearest] + fraction * length, side * distance


def project_to_each(
    points_m: Float[Tensor, "A n 2"], polylines_m: Float[Tensor, "K P 2"]
) -> tuple[Float[Tensor, "K A n"], Float[Tensor, "K A n"]]:
    """Arclength of the nearest point on each of K polylines, and the distance from it."""
    start, step = polylines_m[:, None, None, :-1], polylines_m.diff(dim=1)[:, None, None]  # [K, 1, 1, P - 1, 2]
    length = torch.linalg.vector_norm(step, dim=-1)  # [K, 1, 1, P - 1]
    relative = points_m[None, :, :, None] - start  # [K, A, n, P - 1, 2]
    fraction = ((relative * step).sum(dim=-1) / (length**2).clamp(min=1e-6)).clamp(0, 1)
    distance = torch.linalg.vector_norm(relative - fraction[..., None] * step, dim=-1)
    along = (length.cumsum(dim=-1) - length) + fraction * length
    nearest = distance.detach().argmin(dim=-1, keepdim=True)
    return along.gather(-1, nearest)[..., 0], distance.gather(-1, nearest)[..., 0]


def offset_to_polylines(
    points: Float[Tensor, "R Q 1 2"], polylines_m: Float[Tensor, "R Q J P 2"]
) -> tuple[Float[Tensor, "R Q J 2"], Float[Tensor, "R Q J 2"]]:
    """Offset from each point to the nearest point of each of its polylines, and the polyline's direction there."""
    start, step = polylines_m[..., :-1, :], polylines_m.diff(dim=-2)  # [R, Q, J, P - 1, 2]
    which = _nearest_side(points[..., None, :] - start, step)[..., None, None]
    start, step = (one.gather(-2, which.expand(*which.shape[:-1], 2))[..., 0, :] for one in (start, step))
    length = step.square().sum(dim=-1, keepdim=True).clamp(min=_MIN_SIDE_M2)
    share = (((points - start) * step).sum(dim=-1, keepdim=True) / length).clamp(0, 1)
    return start + share * step - points, step / length.sqrt()


@torch.no_grad()
def _nearest_side(away: Float[Tensor, "*n sides 2"], step: Float[Tensor, "*n sides 2"]) -> Int[Tensor, "*n"]:
    """Index of the nearest side of a polyline; `away` is from the start of each side to the point, `step` to its end.

    In-place operations: this is the most expensive part of the correction.
    """
    (x, y), (step_x, step_y) = away.unbind(dim=-1), step.unbind(dim=-1)
    length = torch.addcmul(step_x * step_x, step_y, step_y).clamp_(min=_MIN_SIDE_M2)
    share = torch.addcmul(x * step_x, y, step_y).div_(length).clamp_(0, 1)
    across_x, across_y = x - share * step_x, y - share * step_y
    distance = across_x.square_().addcmul_(across_y, across_y)
    first = torch.arange(distance.shape[-1], device=distance.device)
    return distance.add_(first, alpha=TIE_BREAK_M2).argmin(dim=-1)


def disc_offsets_m(length_m: float, width_m: float) -> tuple[list[float], float]:
    """Centres of discs along the long axis of a box, and their radius. All discs lie inside the box.

    Discs that overlap therefore mean boxes that overlap; only the corners are not covered.
    """
    long, radius = max(length_m, width_m), min(length_m, width_m) / 2
    count = max(1, ceil(long / (2 * radius)))
    reach = long / 2 - radius
    return [reach * (2 * index / (count - 1) - 1) if count > 1 else 0.0 for index in range(count)], radius


def points_ahead(
    position_m: Float[Tensor, "*shape 2"], heading_rad: Float[Tensor, "*shape"], ahead_m: Float[Tensor, " n"]
) -> Float[Tensor, "*shape n 2"]:
    """Points at n distances ahead of (negative: behind) positions, along their headings."""
    forward = torch.stack([heading_rad.cos(), heading_rad.sin()], dim=-1)
    return position_m[..., None, :] + ahead_m[:, None] * forward[..., None, :]


def boxes_overlap(
    offset_m: Float[Tensor, "*shape 2"],
    heading_rad: Float[Tensor, "*shape"],
    other_heading_rad: Float[Tensor, "*shape"],
    *,
    half_size_m: Float[Tensor, "*shape 2"],
    other_half_size_m: Float[Tensor, "*shape 2"],
) -> Bool[Tensor, "*shape"]:
    """Whether pairs of boxes share area (separating axis theorem).

    Args:
        offset_m: from the centre of the first box to the centre of the other.
        heading_rad: of the first box.
        other_heading_rad: of the other box.
        half_size_m: half length and half width of the first box.
        other_half_size_m: of the other box.
    """
    turn = other_heading_rad - heading_rad
    cos, sin = turn.cos().abs(), turn.sin().abs()
    across = torch.stack([torch.stack([cos, sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)  # [..., 2, 2]
    separated = torch.zeros_like(heading_rad, dtype=torch.bool)
    for heading, own, other in (
        (heading_rad, half_size_m, other_half_size_m),
        (other_heading_rad, other_half_size_m, half_size_m),
    ):
        reach = own + (across * other[..., None, :]).sum(dim=-1)
        x, y = offset_m.unbind(dim=-1)
        axes_cos, axes_sin = heading.cos(), heading.sin()
        along = torch.stack([axes_cos * x + axes_sin * y, axes_cos * y - axes_sin * x], dim=-1)
        separated |= (along.abs() >= reach).any(dim=-1)
    return ~separated


def segments_touch_box(
    position_m: Float[Tensor, "q 2"],
    heading_rad: Float[Tensor, " q"],
    segments: PolylineSegments,
    *,
    length_m: float,
    width_m: float,
) -> Bool[Tensor, " q"]:
    """Whether any segment passes through each of q boxes of one size: clips the segments in the frame of the box."""
    cos, sin = heading_rad.cos()[:, None], heading_rad.sin()[:, None]
    x, y = (segments.start_m[:, axis] - position_m[:, axis, None] for axis in (0, 1))  # [q, S] each
    step_x, step_y = segments.step_m.unbind(dim=-1)
    enter, leave = torch.zeros_like(x), torch.ones_like(x)
    for start, step, half in (
        (cos * x + sin * y, cos * step_x + sin * step_y, length_m / 2),
        (cos * y - sin * x, cos * step_y - sin * step_x, width_m / 2),
    ):
        step = torch.where(step.abs() < 1e-9, 1e-9, step)  # parallel to the sides: enters and leaves far away
        one, other = (-half - start) / step, (half - start) / step
        enter, leave = torch.maximum(enter, torch.minimum(one, other)), torch.minimum(leave, torch.maximum(one, other))
    return (enter < leave).any(dim=1)
