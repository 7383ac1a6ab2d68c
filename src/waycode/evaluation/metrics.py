"""Displacement errors by WOMD's convention, and bootstrap intervals of their means.

Axes: R agents of all scenes, T steps.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_HORIZONS_S = (3.0, 5.0, 8.0)


def displacement_errors_m(
    predicted_m: Float[Tensor, "R T 2"],
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    dt_s: float = 0.1,
    horizons_s: Sequence[float] = _HORIZONS_S,
) -> Float[Tensor, " R"]:
    """ADE of each agent in metres: the mean over horizons of the mean error up to the horizon.

    Args:
        predicted_m: predicted positions.
        future_m: recorded positions in the same frame.
        valid: which of them were observed; the ADE is NaN if none was.
        dt_s: time between steps.
        horizons_s: a horizon beyond the end of the trajectories is shortened to it.
    """
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
    """FDE of each agent in metres: the error at the last step; NaN if it was not observed."""
    error = (predicted_m[:, -1] - future_m[:, -1]).norm(dim=-1)
    return torch.where(valid[:, -1], error, torch.nan)


def mean_over_types(values: Float[np.ndarray, " R"], types: Int[np.ndarray, " R"]) -> float:
    """The mean of the means per object type, as WOMD averages; NaN values are skipped."""
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
    """Bootstrap confidence interval (low, high) of `mean_over_types`; a type absent from a resample is skipped in it.

    Args:
        values: one per agent; NaN values are skipped.
        types: object type of each agent.
        scenes: scene of each agent. Whole scenes are resampled, since agents of one scene are not independent.
        resamples: number of bootstrap resamples.
        level: confidence level.
        seed: of the resampling.
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
