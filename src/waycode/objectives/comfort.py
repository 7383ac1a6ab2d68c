"""Comfort: excess over nuPlan's six comfort bounds, measured as the metric measures them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.setting import ObjectiveError
from waycode.objectives.verdict import Verdict
from waycode.scene.kinematics import (
    ACCELERATION_WINDOW,
    COMFORT_BOUNDS,
    JERK_WINDOW,
    MIN_STEPS,
    YAW_ACCELERATION_WINDOW,
    YAW_RATE_WINDOW,
    derivative_matrix,
)

_ROUNDING = 0.005  # sentences show whole percent


@dataclass(frozen=True, kw_only=True)
class Comfort(BaseObjective):
    """Drive smoothly: excess of accelerations, jerks and yaw rates over their bounds, relative to them, over time."""

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return torch.stack(list(self._excess(candidates).values())).sum(dim=0)

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        excess = self._excess(candidates)
        return super().explain(candidates) | {f"{self.name}.{name}": value for name, value in excess.items()}

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied within all bounds at all steps."""
        shares = {
            name: torch.maximum(values.amax(dim=1) / greatest, values.amin(dim=1) / least).tolist()
            for name, values in comfort_quantities(candidates).items()
            for least, greatest in [COMFORT_BOUNDS[name]]
        }
        return [
            comfort_verdict({name: share[index] for name, share in shares.items()}) for index in range(len(candidates))
        ]

    def _excess(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        """Mean over time of the excess over each bound, as a fraction of the bound."""
        excess = {}
        for name, values in comfort_quantities(candidates).items():
            least, greatest = COMFORT_BOUNDS[name]
            beyond = (values / greatest - 1).clamp(min=0) + (values / least - 1).clamp(min=0)
            excess[name] = beyond.mean(dim=1)
        return excess


def comfort_verdict(shares: Mapping[str, float]) -> Verdict:
    """Satisfied if no quantity of `COMFORT_BOUNDS` exceeds its bound; the worst one is told.

    Args:
        shares: the extreme of each quantity as a share of its bound, by name.
    """
    worst = max(shares, key=lambda name: shares[name])
    if shares[worst] <= 1 + _ROUNDING:
        return Verdict(satisfied=True, sentence="within the comfort bounds")
    quantity, _, _ = worst.rpartition("_")
    return Verdict(
        satisfied=False, sentence=f"{quantity.replace('_', ' ')} up to {100 * shares[worst]:.0f} % of its comfort bound"
    )


def comfort_quantities(candidates: Candidates) -> dict[str, Float[Tensor, "K T"]]:
    """The quantities of `COMFORT_BOUNDS`, as `scene.kinematics.motion` measures them, with gradients.

    Plain finite differences would amplify noise: one millimetre is a jerk of 1 m/s3 at 10 Hz.
    """
    if candidates.num_steps < MIN_STEPS:
        raise ObjectiveError(
            f"comfort cannot be measured over {candidates.num_steps} steps, expected at least {MIN_STEPS}"
        )
    heading = _unwrapped(candidates.heading_rad)
    acceleration = _derivative(candidates.velocity_mps, ACCELERATION_WINDOW, candidates)
    cos, sin = heading.cos(), heading.sin()
    longitudinal = acceleration[..., 0] * cos + acceleration[..., 1] * sin
    magnitude = torch.linalg.vector_norm(acceleration, dim=-1)
    return {
        "longitudinal_acceleration_mps2": longitudinal,
        "lateral_acceleration_mps2": acceleration[..., 1] * cos - acceleration[..., 0] * sin,
        "jerk_mps3": _derivative(magnitude, JERK_WINDOW, candidates),
        "longitudinal_jerk_mps3": _derivative(longitudinal, JERK_WINDOW, candidates),
        "yaw_rate_radps": _derivative(heading, YAW_RATE_WINDOW, candidates),
        "yaw_acceleration_radps2": _derivative(heading, YAW_ACCELERATION_WINDOW, candidates, order=2),
    }


def _unwrapped(heading_rad: Float[Tensor, "K T"]) -> Float[Tensor, "K T"]:
    """Headings without jumps of a full turn."""
    turns = (heading_rad.detach().diff(dim=1) / (2 * torch.pi)).round().cumsum(dim=1)
    return heading_rad - 2 * torch.pi * torch.nn.functional.pad(turns, (1, 0))


def _derivative(values: Tensor, window: int, candidates: Candidates, *, order: int = 1) -> Tensor:
    """Derivative over the time axis (axis 1)."""
    matrix = derivative_matrix(candidates.num_steps, window=window, dt_s=candidates.dt_s, order=order)
    return torch.einsum("ts,ks...->kt...", values.new_tensor(matrix), values)
