"""Polylines in the plane as segments in torch: nearest points, with gradients to the points that are asked about."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEAST_LENGTH_M = 1e-4  # a shorter segment has no direction: its neighbours, just as near, have


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The S segments of some polylines."""

    start_m: Float[Tensor, "S 2"]
    step_m: Float[Tensor, "S 2"]  # from the start to the end
    heading_rad: Float[Tensor, " S"]
    along_m: Float[Tensor, " S"]  # length of the polyline before the segment
    line: Int[Tensor, " S"]  # index of the polyline

    @staticmethod
    def of(
        polylines: Sequence[np.ndarray],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "Segments":
        """From arrays [p_i, 2]; what has no length is left out."""
        lines = [np.asarray(polyline, np.float64).reshape(-1, 2) for polyline in polylines]
        start = np.concatenate([np.zeros((0, 2)), *(line[:-1] for line in lines)])
        step = np.concatenate([np.zeros((0, 2)), *(np.diff(line, axis=0) for line in lines)])
        length = np.linalg.norm(step, axis=1)
        count = [max(len(line) - 1, 0) for line in lines]
        line_of = np.repeat(np.arange(len(lines)), count)
        first = np.repeat(np.concatenate([[0], np.cumsum(count)[:-1]]) if count else [0], count or [0]).astype(int)
        before = np.concatenate([[0.0], np.cumsum(length)])
        along = before[:-1] - before[first]
        kept = length > LEAST_LENGTH_M
        start, step, along, line_of = start[kept], step[kept], along[kept], line_of[kept]

        def tensor(values: np.ndarray) -> Tensor:
            return torch.as_tensor(values, dtype=dtype, device=device)

        return Segments(
            start_m=tensor(start),
            step_m=tensor(step),
            heading_rad=tensor(np.arctan2(step[:, 1], step[:, 0])),
            along_m=tensor(along),
            line=torch.as_tensor(line_of, dtype=torch.long, device=device),
        )

    def __len__(self) -> int:
        return len(self.start_m)

    def where(self, kept: Bool[Tensor, " S"]) -> "Segments":
        """Those of the segments for which `kept` is true."""
        return Segments(
            start_m=self.start_m[kept],
            step_m=self.step_m[kept],
            heading_rad=self.heading_rad[kept],
            along_m=self.along_m[kept],
            line=self.line[kept],
        )

    def near(self, points_m: Float[Tensor, "*shape 2"], *, reach_m: float) -> "Segments":
        """Those that come within reach of the box around all points: the rest need not be looked at."""
        points = points_m.detach().reshape(-1, 2)
        low, high = points.amin(dim=0) - reach_m, points.amax(dim=0) + reach_m
        end = self.start_m + self.step_m
        least, greatest = torch.minimum(self.start_m, end), torch.maximum(self.start_m, end)
        return self.where(((greatest >= low) & (least <= high)).all(dim=-1))


def squared_distances(
    points_m: Float[Tensor, "q 2"], segments: Segments
) -> tuple[Float[Tensor, "q S"], Float[Tensor, "q S"]]:
    """Squared distance of every point to every segment, and how far along it (0 to 1) the nearest point lies.

    Without gradients: to choose a segment, not to measure a cost.
    """
    points = points_m.detach()
    x, y = (points[:, axis, None] - segments.start_m[:, axis] for axis in (0, 1))  # [q, S] each
    step_x, step_y = segments.step_m.unbind(dim=-1)
    fraction = ((x * step_x + y * step_y) / (step_x**2 + step_y**2)).clamp(0, 1)
    return (x - fraction * step_x) ** 2 + (y - fraction * step_y) ** 2, fraction


def project(
    points_m: Float[Tensor, "*shape 2"], segments: Segments, nearest: Int[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Arclength along its polyline and signed offset (left positive) of each point from the segment chosen for it."""
    start, step = segments.start_m[nearest], segments.step_m[nearest]
    length = torch.linalg.vector_norm(step, dim=-1)
    relative = points_m - start
    fraction = ((relative * step).sum(dim=-1) / length**2).clamp(0, 1)
    cross = step[..., 0] * relative[..., 1] - step[..., 1] * relative[..., 0]
    distance = torch.linalg.vector_norm(relative - fraction[..., None] * step, dim=-1)
    side = torch.where(cross < 0, -1.0, 1.0).to(distance)
    return segments.along_m[nearest] + fraction * length, side * distance
