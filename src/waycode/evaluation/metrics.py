"""Displacement errors by WOMD's convention, and bootstrap resamples of their means.

Axes: R agents of all scenes, T steps.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

BOOTSTRAP_SEED = 0  # fixed: an interval must not depend on a choice
OFFICIAL_SAMPLING_S = 0.5  # WOMD's official metrics compare positions at 2 Hz
_HORIZONS_S = (3.0, 5.0, 8.0)


def displacement_errors_m(
    predicted_m: Float[Tensor, "R T 2"],
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    dt_s: float = 0.1,
    every_s: float | None = None,
    horizons_s: Sequence[float] = _HORIZONS_S,
) -> Float[Tensor, " R"]:
    """ADE of each agent in metres: the mean over horizons of the mean error up to the horizon.

    Args:
        predicted_m: predicted positions.
        future_m: recorded positions in the same frame.
        valid: which of them were observed; the ADE is NaN if none was.
        dt_s: time between steps.
        every_s: compare only the positions at multiples of this time; None: at every step.
        horizons_s: a horizon beyond the end of the trajectories is shortened to it.
    """
    stride = 1 if every_s is None else round(every_s / dt_s)
    error = (predicted_m - future_m).norm(dim=-1)[:, stride - 1 :: stride]  # the first step is dt_s after now
    valid = valid[:, stride - 1 :: stride]
    means = []
    for horizon in horizons_s:
        steps = min(round(horizon / (stride * dt_s)), error.shape[1])
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


def bootstrap_means(
    values: Float[np.ndarray, "R C"],
    types: Int[np.ndarray, " R"],
    episodes: Shaped[np.ndarray, " R"],
    *,
    resamples: int = 500,
    seed: int = BOOTSTRAP_SEED,
) -> Float[np.ndarray, "resamples C"]:
    """`mean_over_types` of each of C columns in bootstrap resamples; a type absent from a resample is skipped in it.

    All columns share the resamples, so that differences and ratios of columns are paired.

    Args:
        values: a row per agent; rows with a value that is not finite are skipped. One row or more must remain.
        types: object type of each agent.
        episodes: name or number of each agent's episode. Whole episodes are resampled: agents of one scene, and scenes
            of one simulated world, are not independent.
        resamples: number of bootstrap resamples.
        seed: of the resampling.
    """
    known = np.isfinite(values).all(axis=1)
    kinds, kind = np.unique(types[known], return_inverse=True)
    names, episode = np.unique(episodes[known], return_inverse=True)
    shape = (len(names), len(kinds))
    totals, counts = np.zeros((*shape, values.shape[1])), np.zeros(shape)  # per episode and type
    np.add.at(totals, (episode, kind), values[known])
    np.add.at(counts, (episode, kind), 1)
    drawn = np.random.default_rng(seed).integers(len(names), size=(resamples, len(names)))
    times = np.stack([np.bincount(row, minlength=len(names)) for row in drawn])  # [resamples, episodes]
    total, count = np.tensordot(times, totals, axes=1), (times @ counts)[:, :, None]
    return np.where(count > 0, total / np.maximum(count, 1), 0).sum(axis=1) / (count > 0).sum(axis=1)
