"""Errors of trajectories by WOMD's convention, and how sure we can be of their means."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HORIZONS_S = (3.0, 5.0, 8.0)


def displacement_errors_m(
    predicted_m: Float[Tensor, "R T 2"],
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    dt_s: float = 0.1,
    horizons_s: Sequence[float] = HORIZONS_S,
) -> Float[Tensor, " R"]:
    """ADE of each agent: the mean over horizons of the mean error up to the horizon; NaN where nothing was observed."""
    error = (predicted_m - future_m).norm(dim=-1)
    means = []
    for horizon in horizons_s:
        steps = min(round(horizon / dt_s), error.shape[1])
        weight = valid[:, :steps].to(error)
        seen = weight.sum(dim=1)
        means.append(torch.where(seen > 0, (error[:, :steps] * weight).sum(dim=1) / seen.clamp(min=1), torch.nan))
    return torch.stack(means).nanmean(dim=0)


def final_errors_m(
    predicted_m: Float[Tensor, "R T 2"], future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"]
) -> Float[Tensor, " R"]:
    """Error at the last step; NaN for agents that are not observed there."""
    error = (predicted_m[:, -1] - future_m[:, -1]).norm(dim=-1)
    return torch.where(valid[:, -1], error, torch.nan)


def mean_over_types(values: Float[np.ndarray, " R"], types: Int[np.ndarray, " R"]) -> float:
    """The mean of the means of each object type, as WOMD averages; what is NaN is left out."""
    known = np.isfinite(values)
    kinds = np.unique(types[known])
    if len(kinds) == 0:
        return float("nan")
    return float(np.mean([values[known & (types == kind)].mean() for kind in kinds]))


def bootstrap_interval(
    values: Float[np.ndarray, " R"],
    types: Int[np.ndarray, " R"],
    scenes: Int[np.ndarray, " R"],
    *,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Confidence interval of `mean_over_types`: whole scenes are drawn again, as agents of one scene go together.

    A type that no drawn scene has is left out of that draw's mean.
    """
    known = np.isfinite(values)
    if not known.any():
        return float("nan"), float("nan")
    kinds, kind = np.unique(types[known], return_inverse=True)
    names, scene = np.unique(scenes[known], return_inverse=True)
    shape = (len(names), len(kinds))
    totals, counts = np.zeros(shape), np.zeros(shape)  # per scene and type
    np.add.at(totals, (scene, kind), values[known])
    np.add.at(counts, (scene, kind), 1)
    drawn = np.random.default_rng(seed).integers(len(names), size=(resamples, len(names)))
    times = np.stack([np.bincount(row, minlength=len(names)) for row in drawn])  # [resamples, scenes]
    total, count = times @ totals, times @ counts
    means = np.where(count > 0, total / np.maximum(count, 1), 0).sum(axis=1) / (count > 0).sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
