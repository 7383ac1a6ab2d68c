"""What the model itself says of a candidate: how uncertain it is, and how likely."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective, Scope
from waycode.objectives.candidates import AnyCandidates
from waycode.objectives.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class TerminalVariance(BaseObjective):
    """Be plausible: the magnitude of the predicted standard deviation at the last step, in metres.

    Codes that do not fit the scene decode to a high variance (paper, section 4).
    """

    differentiable: ClassVar[bool] = True
    scope: ClassVar[Scope] = "parts"

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, " K"]:
        return candidates.final_std_m

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        """Less is always better: there is no value that satisfies."""
        told = candidates.final_std_m.tolist()
        return [Verdict(sentence=f"final standard deviation {std_m:.2f} m") for std_m in told]


@dataclass(frozen=True, kw_only=True)
class Likelihood(BaseObjective):
    """Do what road users usually do here: minus the log probability of the tokens by the model's prior, in nats.

    A candidate of n tokens is rated by these n. Tokens are discrete: the cost has no gradient. It needs a model with a
    prior and a codebook of 2 levels.
    """

    scope: ClassVar[Scope] = "parts"

    def __call__(self, candidates: AnyCandidates) -> Float[Tensor, " K"]:
        return -candidates.log_probability

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        """Less is always better: there is no value that satisfies."""
        return [Verdict(sentence=f"log probability {nats:.2f}") for nats in candidates.log_probability.tolist()]
