"""The distance to whoever is ahead."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.setting import Others

EVERY = 4  # steps of which one is looked at
LOOKAHEAD_M = 80.0  # beyond its end, the path goes straight on


@dataclass(frozen=True)
class KeepDistance(BaseObjective):
    """Keep a time gap to whoever is ahead on one's own path: the metres that it lacks, on average over time."""

    time_gap_s: float = 1.5
    _: KW_ONLY
    standstill_m: float = 2.0
    others: Others = "constant-velocity"

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        steps = torch.arange(candidates.num_steps - 1, -1, -EVERY).flip(0)
        boxes = candidates.setting.others(self.others, num_steps=candidates.num_steps)
        if len(boxes) == 0:
            return torch.zeros_like(candidates.final_std_m)
        path = _extended(candidates, steps)  # [K, n + 2, 2]
        along, beside = _project(boxes.position_m[:, steps], path)  # [K, A, n] each
        own = torch.linalg.vector_norm(path.diff(dim=1), dim=-1).cumsum(dim=1)[:, None, :-1]  # [K, 1, n]
        half_width = (candidates.setting.width_m + boxes.width_m) / 2
        half_length = (candidates.setting.length_m + boxes.length_m) / 2
        ahead = (beside < half_width[:, None]) & (along > own) & boxes.valid[:, steps]
        gap = along - own - half_length[:, None]
        wanted = self.standstill_m + self.time_gap_s * candidates.speed_mps[:, None, steps]
        return torch.where(ahead, (wanted - gap).clamp(min=0), 0.0).amax(dim=1).mean(dim=1)


def _extended(candidates: Candidates, steps: Tensor) -> Float[Tensor, "K n_plus_2 2"]:
    """The current position, those at the steps, and a point far ahead of the last."""
    heading = candidates.heading_rad[:, -1]
    ahead = LOOKAHEAD_M * torch.stack([heading.cos(), heading.sin()], dim=-1)
    last = candidates.position_m[:, -1:]
    return torch.cat([candidates.path_m[:, :1], candidates.position_m[:, steps], last + ahead[:, None]], dim=1)


def _project(
    points_m: Float[Tensor, "A n 2"], path_m: Float[Tensor, "K P 2"]
) -> tuple[Float[Tensor, "K A n"], Float[Tensor, "K A n"]]:
    """Arclength along each path of the place that is nearest to each point, and the distance from it."""
    start, step = path_m[:, None, None, :-1], path_m.diff(dim=1)[:, None, None]  # [K, 1, 1, P - 1, 2]
    length = torch.linalg.vector_norm(step, dim=-1)  # [K, 1, 1, P - 1]
    relative = points_m[None, :, :, None] - start  # [K, A, n, P - 1, 2]
    fraction = ((relative * step).sum(dim=-1) / (length**2).clamp(min=1e-6)).clamp(0, 1)
    distance = torch.linalg.vector_norm(relative - fraction[..., None] * step, dim=-1)
    along = (length.cumsum(dim=-1) - length) + fraction * length
    nearest = distance.detach().argmin(dim=-1, keepdim=True)
    return along.gather(-1, nearest)[..., 0], distance.gather(-1, nearest)[..., 0]
