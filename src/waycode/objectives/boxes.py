"""Boxes in torch: whether they overlap, whether segments touch them, and discs inside them for gradients.

Axes: K candidates, T steps, A other road users, S segments, n discs.
"""

from math import ceil

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.segments import Segments


def disc_offsets_m(length_m: float, width_m: float) -> tuple[list[float], float]:
    """Where discs along the long axis of a box have their centres, and their radius: all of them lie inside the box.

    So discs that touch mean boxes that touch; only the corners are left out.
    """
    long, radius = max(length_m, width_m), min(length_m, width_m) / 2
    count = max(1, ceil(long / (2 * radius)))
    reach = long / 2 - radius
    return [reach * (2 * index / (count - 1) - 1) if count > 1 else 0.0 for index in range(count)], radius


def along(
    position_m: Float[Tensor, "*shape 2"], heading_rad: Float[Tensor, "*shape"], offset_m: Float[Tensor, " n"]
) -> Float[Tensor, "*shape n 2"]:
    """Points at distances in front of (or behind) the centres of boxes."""
    forward = torch.stack([heading_rad.cos(), heading_rad.sin()], dim=-1)
    return position_m[..., None, :] + offset_m[:, None] * forward[..., None, :]


def boxes_overlap(
    offset_m: Float[Tensor, "*shape 2"],
    heading_rad: Float[Tensor, "*shape"],
    other_heading_rad: Float[Tensor, "*shape"],
    *,
    half_size_m: Float[Tensor, "*shape 2"],
    other_half_size_m: Float[Tensor, "*shape 2"],
) -> Bool[Tensor, "*shape"]:
    """Whether two boxes share area (separating axis theorem); the offset is that of the other's centre."""
    turn = other_heading_rad - heading_rad
    cos, sin = turn.cos().abs(), turn.sin().abs()
    across = torch.stack([torch.stack([cos, sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)  # [..., 2, 2]
    separated = torch.zeros_like(heading_rad, dtype=torch.bool)
    for heading, own, other in (
        (heading_rad, half_size_m, other_half_size_m),
        (other_heading_rad, other_half_size_m, half_size_m),
    ):
        reach = own + (across * other[..., None, :]).sum(dim=-1)
        separated |= (in_frame(offset_m, heading).abs() >= reach).any(dim=-1)
    return ~separated


def in_frame(vector: Float[Tensor, "*shape 2"], heading_rad: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape 2"]:
    """Components along and to the left of a heading."""
    cos, sin = heading_rad.cos(), heading_rad.sin()
    return torch.stack([cos * vector[..., 0] + sin * vector[..., 1], cos * vector[..., 1] - sin * vector[..., 0]], -1)


def segments_touch_box(
    position_m: Float[Tensor, "q 2"],
    heading_rad: Float[Tensor, " q"],
    segments: Segments,
    *,
    length_m: float,
    width_m: float,
) -> Bool[Tensor, " q"]:
    """Whether any segment runs through each box: it is clipped by the box's two pairs of sides, in the box's frame."""
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
