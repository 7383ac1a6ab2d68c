"""The variance gate: which plans a model is certain enough of (paper, section 4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jaxtyping import Float
from torch import Tensor, linalg


class Spread(StrEnum):
    """What the gate compares of the standard deviations along and across the agent's current heading."""

    BOTH = "both"  # their magnitude, as in the paper
    # The smaller of them (ours). A plan that is only unsure of how far it gets, such as a turn that may begin sooner or
    # later, is unsure in one direction. A plan that fits no way through the scene is unsure in both.
    LEAST = "least"

    def of(self, std_m: Float[Tensor, "*n 2"]) -> Float[Tensor, "*n"]:
        """The compared quantity in metres."""
        spread_m: Tensor = linalg.vector_norm(std_m, dim=-1) if self is Spread.BOTH else std_m.amin(dim=-1)
        return spread_m


@dataclass(frozen=True, kw_only=True)
class VarianceGate:
    """Thresholds of the spread at the last step; see `Spread`."""

    sigma_max_m: Mapping[int, float] = field(default_factory=dict)  # by number of tokens; empty: not calibrated
    spread: Spread = Spread.BOTH
