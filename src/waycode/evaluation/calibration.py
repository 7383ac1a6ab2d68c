"""Calibration of predicted probabilities: how often things happen that were given a probability of 10, 20, ... %."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

NUM_BINS = 10


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Predictions with a probability from `low` to `high`."""

    low: float
    high: float
    count: int  # number of predictions
    predicted: float  # their mean probability
    observed: float  # share of them that happened


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """A reliability diagram and the expected calibration error (Naeini et al. 2015)."""

    bins: tuple[ReliabilityBin, ...]  # without empty ones
    expected_calibration_error: float  # mean of |predicted - observed|, weighted by the counts of the bins


def reliability(probability: Float[np.ndarray, " n"], happened: Bool[np.ndarray, " n"]) -> Reliability:
    """Sorts predictions into bins of equal width.

    Args:
        probability: predicted, in [0, 1].
        happened: whether each prediction came true.
    """
    place = np.minimum((probability * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    bins = tuple(
        ReliabilityBin(
            low=number / NUM_BINS,
            high=(number + 1) / NUM_BINS,
            count=int(inside.sum()),
            predicted=float(probability[inside].mean()),
            observed=float(happened[inside].mean()),
        )
        for number in range(NUM_BINS)
        if (inside := place == number).any()
    )
    gaps = [one.count * abs(one.predicted - one.observed) for one in bins]
    return Reliability(bins=bins, expected_calibration_error=sum(gaps) / max(1, len(probability)))
