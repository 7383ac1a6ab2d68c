"""How sure the decoder is: codes that fit the scene badly decode to a high variance (paper, section 4)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates


@dataclass(frozen=True, kw_only=True)
class TerminalVariance(BaseObjective):
    """Be plausible: the magnitude of the predicted standard deviation at the last step, in metres."""

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return candidates.final_std_m
