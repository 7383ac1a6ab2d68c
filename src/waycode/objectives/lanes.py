"""Changing lanes: the paper's lexicographic lane-change objective (section 4)."""

from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.lane_tracking import lane_changes

HALF_LANE_M = 1.75


@dataclass(frozen=True)
class LaneChange(BaseObjective):
    """Change `count` lanes (positive: to the left, negative: to the right, 0: none), then keep to the lane's centre.

    First level: lane changes that are missing plus those that are too many, changes to the other side among them.
    Second level: of those that miss a change, how far they stay from the line that they should cross, in metres for
    lanes of 3.5 m; of those that change too often, how soon they do, as a share of the time. It leads a search, whose
    first tokens may find no change yet, to where there is one. Third level: mean distance from the centre of the
    nearest lane. Not differentiable.
    """

    count: int = 1
    _: KW_ONLY
    either_side: bool = False  # as in the paper, the side does not matter: `count` of them in all

    @property
    def level_names(self) -> tuple[str, ...]:
        return (f"{self.name}.wrong_changes", f"{self.name}.amiss", f"{self.name}.offset_m")

    def __call__(self, candidates: Candidates) -> Float[Tensor, "K 3"]:
        changes = lane_changes(candidates)
        wanted, other, leaning_m = changes.to_left, changes.to_right, changes.leaning_left_m
        if self.either_side:
            wanted, other = wanted + other, torch.zeros_like(other)
            leaning_m = torch.maximum(leaning_m, changes.leaning_right_m)
        elif self.count < 0:
            wanted, other, leaning_m = other, wanted, changes.leaning_right_m
        missing = abs(self.count) - wanted
        wrong = missing.abs() + other
        amiss = torch.where(missing > 0, HALF_LANE_M - leaning_m, changes.since_first)
        return torch.stack([wrong.to(amiss), torch.where(wrong > 0, amiss, 0.0), changes.mean_offset_m], dim=1)

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        changes = lane_changes(candidates)
        return super().explain(candidates) | {
            f"{self.name}.to_left": changes.to_left.to(changes.mean_offset_m),
            f"{self.name}.to_right": changes.to_right.to(changes.mean_offset_m),
        }
