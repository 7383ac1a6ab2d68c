"""Turns: the paper's left-turn objective (appendix, "Left turn maneuver optimization") and its mirror image."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.scene.manoeuvre import LEFT_TURN_RAD


@dataclass(frozen=True, kw_only=True)
class _Turn(BaseObjective):
    min_angle_rad: float = LEFT_TURN_RAD  # theta_min: turning farther is not rewarded
    max_curvature_1pm: float = 0.35  # kappa_max
    curvature_weight: float = 10.0  # lambda_kappa: outweighs any turn, so that it rejects

    differentiable: ClassVar[bool] = True
    side: ClassVar[int]

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        turned = (self.side * candidates.heading_change_rad).clamp(min=0).sum(dim=1)  # CCW of the paper
        # The magnitude of the curvature counts: a sharp swerve to the other side is as infeasible.
        too_sharp = (candidates.curvature_1pm.detach().abs() > self.max_curvature_1pm).any(dim=1)
        return -turned.clamp(max=self.min_angle_rad) + self.curvature_weight * too_sharp


@dataclass(frozen=True, kw_only=True)
class LeftTurn(_Turn):
    """Turn left by `min_angle_rad` or more: minus the leftward change of heading, and no sharp curvature."""

    side: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class RightTurn(_Turn):
    """Turn right by `min_angle_rad` or more: minus the rightward change of heading, and no sharp curvature."""

    side: ClassVar[int] = -1
