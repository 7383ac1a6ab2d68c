"""What training minimises, and the error that steers the noise. R agents, K decoded prefixes, T steps."""

from jaxtyping import Bool, Float
from torch import Tensor

from waycode.model import Trajectories


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
