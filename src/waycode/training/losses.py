"""What training minimises, and the error that steers the noise. R agents, K decoded prefixes, T steps."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from waycode.model import Trajectories

PATH_STRIDE = 4  # every so many steps are enough for a path, and 16 times faster
MIN_SEGMENT_M = 0.2  # a shorter piece of a path has no direction to be trusted
ACCELERATION_STRIDE = 5  # half a second: recorded positions are noisy


def beta_nll(
    decoded: Trajectories, future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"], *, beta: float
) -> Float[Tensor, "R K"]:
    """Negative log-likelihood of the truth, each term weighted by its variance to the power beta (no gradient there).

    beta = 0 is the plain likelihood, beta = 1 has the gradients of a squared error.
    """
    variance = decoded.std_m**2
    error = (decoded.mean_m - future_m[:, None]) ** 2
    nll = 0.5 * (error / variance + variance.log())
    weighted = (variance.detach() ** beta * nll).sum(dim=-1)  # [R, K, T]
    return _mean_over_time(weighted, valid)


def average_displacement_m(
    decoded: Trajectories, future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"]
) -> Float[Tensor, "R K"]:
    """ADE over the whole horizon."""
    return _mean_over_time((decoded.mean_m - future_m[:, None]).norm(dim=-1), valid)


def path_deviation_m(
    decoded: Trajectories, future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"]
) -> Float[Tensor, "R K"]:
    """How far the mean lies beside the recorded path, whenever it passes there, averaged over time.

    A plan that is late is still a plan; one that leaves its lane is not. Points that the recorded path does not pass
    (beyond its end, or while it stands) do not count.
    """
    points = decoded.mean_m[:, :, PATH_STRIDE - 1 :: PATH_STRIDE]  # [R, K, P, 2]
    path = functional.pad(future_m, (0, 0, 1, 0))[:, ::PATH_STRIDE]  # [R, S + 1, 2], from the current position on
    seen = functional.pad(valid, (1, 0), value=True)[:, ::PATH_STRIDE]
    start, end = path[:, :-1], path[:, 1:]
    along = end - start
    length = along.norm(dim=-1)
    usable = seen[:, :-1] & seen[:, 1:] & (length > MIN_SEGMENT_M)
    along = along / length.clamp(min=MIN_SEGMENT_M)[..., None]
    with torch.no_grad():
        offset = points[:, :, :, None] - ((start + end) / 2)[:, None, None]  # [R, K, P, S, 2]
        squared = offset.square().sum(dim=-1).masked_fill(~usable[:, None, None], torch.inf)
        distance, nearest = squared.min(dim=-1)  # [R, K, P]
    rows = torch.arange(len(start))[:, None, None]
    relative, direction = points - start[rows, nearest], along[rows, nearest]
    ahead = (relative * direction).sum(dim=-1)
    beside = (direction[..., 0] * relative[..., 1] - direction[..., 1] * relative[..., 0]).abs()
    passes = (ahead > -1) & (ahead < length[rows, nearest] + 1) & distance.isfinite()
    return torch.where(passes, beside, 0).mean(dim=-1)


def acceleration_error_mps2(
    decoded: Trajectories, future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"], *, dt_s: float
) -> Float[Tensor, "R K"]:
    """Difference of the accelerations of mean and recording, each over `2 * ACCELERATION_STRIDE` steps."""
    gap = ACCELERATION_STRIDE

    def acceleration(position: Tensor) -> Tensor:
        before, now, after = position[..., : -2 * gap, :], position[..., gap:-gap, :], position[..., 2 * gap :, :]
        return (after - 2 * now + before) / (gap * dt_s) ** 2

    error = (acceleration(decoded.mean_m) - acceleration(future_m)[:, None]).norm(dim=-1)
    return _mean_over_time(error, valid[:, : -2 * gap] & valid[:, gap:-gap] & valid[:, 2 * gap :])


def collision_penalty(
    decoded: Trajectories,
    others_m: Float[Tensor, "R O T 2"],
    others_valid: Bool[Tensor, "R O T"],
    *,
    margin_m: Float[Tensor, "R O"],
) -> Float[Tensor, "R K"]:
    """How far the mean trajectory gets into the discs around others, averaged over time."""
    distance = (decoded.mean_m[:, :, None] - others_m[:, None]).square().sum(dim=-1).add(1e-6).sqrt()  # [R, K, O, T]
    depth = (margin_m[:, None, :, None] - distance).clamp(min=0) * others_valid[:, None]
    return depth.amax(dim=2).mean(dim=-1)


def _mean_over_time(values: Float[Tensor, "R K T"], valid: Bool[Tensor, "R T"]) -> Float[Tensor, "R K"]:
    weight = valid[:, None].to(values)
    return (values * weight).sum(dim=-1) / weight.sum(dim=-1).clamp(min=1)


def weighted_mean(values: Float[Tensor, "R K"], weights: Float[Tensor, "R K"]) -> Float[Tensor, ""]:
    """Mean over agents of the weighted sum over prefixes (weights of a row sum to one)."""
    return (values * weights).sum(dim=1).mean()


def next_sigma(sigma: float, ade_m: float, *, target_ade_m: float, gamma: float, delta: float) -> float:
    """The adaptive noise of the next step: up while the reconstruction is good enough, else down (appendix A.4)."""
    wanted = sigma + delta if ade_m <= target_ade_m else sigma - delta
    return max(0.0, gamma * sigma + (1 - gamma) * wanted)
