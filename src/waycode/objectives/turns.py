"""Turns: the paper's left-turn objective (appendix, "Left turn maneuver optimization") and its mirror image."""

from dataclasses import dataclass
from math import degrees
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.driving.turns import turns_ahead
from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.setting import Setting
from waycode.objectives.verdict import Verdict
from waycode.scene.geometry import project
from waycode.scene.manoeuvre import LEFT_TURN_RAD

_TOLERANCE_RAD = 1e-3  # rounding of single precision: a turn by exactly the angle is one
_HARDEST_ACCELERATION_MPS2 = 3.0  # bounds how far ahead a turn can be made within the horizon


@dataclass(frozen=True, kw_only=True)
class _Turn(BaseObjective):
    min_angle_rad: float = LEFT_TURN_RAD  # theta_min: turning farther is not rewarded
    max_curvature_1pm: float = 0.35  # kappa_max
    curvature_weight: float = 10.0  # lambda_kappa: outweighs any turn, so that it rejects

    differentiable: ClassVar[bool] = True
    side: ClassVar[int]

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        turned = self._turned_rad(candidates)
        return -turned.clamp(max=self.min_angle_rad) + self.curvature_weight * self._too_sharp(candidates)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied by a turn of `min_angle_rad` without sharp curvature."""
        wanted = f"{degrees(self.min_angle_rad):.0f} degrees"
        reason = candidates.setting.shared(_turn_ahead, self.side, candidates.horizon_s)
        verdicts = []
        for turned, too_sharp in zip(
            self._turned_rad(candidates).tolist(), self._too_sharp(candidates).tolist(), strict=True
        ):
            is_turn = turned >= self.min_angle_rad - _TOLERANCE_RAD
            # rounded down: 44.9 degrees are not shown as 45 of 45
            sentence = f"turned {degrees(turned + _TOLERANCE_RAD) // 1:.0f} of {wanted}"
            sentence += "" if is_turn or reason is None else f": {reason}"
            sentence += f"; a bend is sharper than {self.max_curvature_1pm:g} / m" if too_sharp else ""
            verdicts.append(Verdict(satisfied=is_turn and not too_sharp, sentence=sentence))
        return verdicts

    def _turned_rad(self, candidates: Candidates) -> Float[Tensor, " K"]:
        """CCW of the paper."""
        return (self.side * candidates.heading_change_rad).clamp(min=0).sum(dim=1)

    def _too_sharp(self, candidates: Candidates) -> Bool[Tensor, " K"]:
        """The magnitude of the curvature counts: a sharp swerve to the other side is as infeasible."""
        return (candidates.curvature_1pm.detach().abs() > self.max_curvature_1pm).any(dim=1)


@dataclass(frozen=True, kw_only=True)
class LeftTurn(_Turn):
    """Turn left by `min_angle_rad` or more: minus the leftward change of heading, and no sharp curvature."""

    side: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class RightTurn(_Turn):
    """Turn right by `min_angle_rad` or more: minus the rightward change of heading, and no sharp curvature."""

    side: ClassVar[int] = -1


def _turn_ahead(setting: Setting, side: int, horizon_s: float) -> str | None:
    """Where the agent's lane leads to a turn, as a reason for a turn that was not made; None if the map cannot tell."""
    lanes, lane, name = setting.scene.map.lanes, setting.own_lane, "left" if side > 0 else "right"
    if lane is None or not lanes.in_junction.any():
        return None
    start_m = setting.start_m.double().cpu().numpy()[None]
    along_m = float(project(start_m, lanes.centrelines[lane].astype(np.float64))[0][0])
    reach_m = setting.start_speed_mps * horizon_s + _HARDEST_ACCELERATION_MPS2 * horizon_s**2 / 2
    ahead = turns_ahead(lanes, lane, along_m=along_m, reach_m=reach_m, side=side)
    if not ahead:
        return f"no {name} turn leads from this lane"
    return f"the next {name} turn from this lane begins {min(turn.distance_m for turn in ahead):.0f} m ahead"
