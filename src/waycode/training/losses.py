"""Training losses, and the error that adapts the noise. R agents, K decoded prefixes, T steps; agent frames, metres."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from waycode.features import Batch

_PATH_STRIDE = 4  # every fourth step suffices for a path and is 16 times faster
_MIN_SIDE_M = 0.2  # a shorter side of a path has no reliable direction
_COLLISION_STRIDE = 4  # every fourth step suffices to notice that two bodies overlap
_MIN_MOTION_M = 0.2  # a shorter motion between two such steps has no reliable direction
_ACCELERATION_STRIDE = 5  # half a second: recorded positions are noisy


def beta_nll(
    mean_m: Float[Tensor, "R K T 2"],
    std_m: Float[Tensor, "R K T 2"],
    future_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    *,
    beta: float,
) -> Float[Tensor, "R K"]:
    """Gaussian negative log-likelihood, weighted by the variance to the power `beta` (without gradient).

    beta = 0 is the plain likelihood; beta = 1 has the gradients of a squared error.
    """
    variance = std_m**2
    error = (mean_m - future_m[:, None]) ** 2
    nll = 0.5 * (error / variance + variance.log())
    weighted = (variance.detach() ** beta * nll).sum(dim=-1)  # [R, K, T]
    return _mean_over_time(weighted, valid)


def path_deviation_m(
    mean_m: Float[Tensor, "R K T 2"], future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"]
) -> Float[Tensor, "R K"]:
    """Lateral distance to the recorded path, whatever the timing, averaged over time.

    A late plan is acceptable, a plan that leaves its lane is not. Points beyond the ends of the recorded path, or
    where the recorded agent stands, do not count.
    """
    points = mean_m[:, :, _PATH_STRIDE - 1 :: _PATH_STRIDE]  # [R, K, P, 2]
    path = functional.pad(future_m, (0, 0, 1, 0))[:, ::_PATH_STRIDE]  # [R, sides + 1, 2], from the current position
    observed = functional.pad(valid, (1, 0), value=True)[:, ::_PATH_STRIDE]
    start, end = path[:, :-1], path[:, 1:]
    along = end - start
    length = along.norm(dim=-1)
    usable = observed[:, :-1] & observed[:, 1:] & (length > _MIN_SIDE_M)
    along = along / length.clamp(min=_MIN_SIDE_M)[..., None]
    with torch.no_grad():
        offset = points[:, :, :, None] - ((start + end) / 2)[:, None, None]  # [R, K, P, sides, 2]
        squared = offset.square().sum(dim=-1).masked_fill(~usable[:, None, None], torch.inf)
        distance, nearest = squared.min(dim=-1)  # [R, K, P]
    rows = torch.arange(len(start), device=start.device)[:, None, None]
    relative, direction = points - start[rows, nearest], along[rows, nearest]
    ahead = (relative * direction).sum(dim=-1)
    lateral = (direction[..., 0] * relative[..., 1] - direction[..., 1] * relative[..., 0]).abs()
    counts = (ahead > -1) & (ahead < length[rows, nearest] + 1) & distance.isfinite()
    return torch.where(counts, lateral, 0).mean(dim=-1)


def acceleration_error_mps2(
    mean_m: Float[Tensor, "R K T 2"], future_m: Float[Tensor, "R T 2"], valid: Bool[Tensor, "R T"], *, dt_s: float
) -> Float[Tensor, "R K"]:
    """Difference of the accelerations of mean and recording, each over one second (at 10 Hz)."""
    gap = _ACCELERATION_STRIDE

    def acceleration(position: Tensor) -> Tensor:
        before, now, after = position[..., : -2 * gap, :], position[..., gap:-gap, :], position[..., 2 * gap :, :]
        return (after - 2 * now + before) / (gap * dt_s) ** 2

    error = (acceleration(mean_m) - acceleration(future_m)[:, None]).norm(dim=-1)
    return _mean_over_time(error, valid[:, : -2 * gap] & valid[:, gap:-gap] & valid[:, 2 * gap :])


def collision_penalty_m(
    mean_m: Float[Tensor, "R K T 2"],
    others_m: Float[Tensor, "R A T 2"],
    others_valid: Bool[Tensor, "R A T"],
    *,
    margin_m: Float[Tensor, "R A"],
) -> Float[Tensor, "R K"]:
    """Depth of the mean in the discs around other agents, averaged over time; arguments as from `futures_of_others`."""
    distance = (mean_m[:, :, None] - others_m[:, None]).square().sum(dim=-1).add(1e-6).sqrt()  # [R, K, A, T]
    depth = (margin_m[:, None, :, None] - distance).clamp(min=0) * others_valid[:, None]
    return depth.amax(dim=2).mean(dim=-1)


def futures_of_others(batch: Batch) -> tuple[Float[Tensor, "R A T 2"], Bool[Tensor, "R A T"], Float[Tensor, "R A"]]:
    """Recorded futures of the other modelled agents of the scene, in each agent's frame.

    Returns:
        Positions; their validity; the distance below which two agents collide. Agents count as discs of their width:
        discs of boxes that do not overlap never touch, so that recorded trajectories cost nothing.
    """
    scene_of_row, slot = batch.agents.mask.nonzero(as_tuple=True)  # [R]
    rows = torch.arange(len(batch.agents.track), device=batch.agents.track.device)[:, None]
    pose = batch.scene.track_pose[rows, batch.agents.track]  # [B, A, 3]
    radius_m = batch.scene.track_size_m[rows, batch.agents.track].amin(dim=-1) / 2  # [B, A]
    in_scene = _rotate(batch.future_m, pose[..., 2:]) + pose[:, :, None, :2]  # [B, A, T, 2]
    own_pose = pose[scene_of_row, slot]  # [R, 3]
    position_m = _rotate(in_scene[scene_of_row] - own_pose[:, None, None, :2], -own_pose[:, None, 2:])
    is_self = torch.arange(pose.shape[1], device=pose.device)[None] == slot[:, None]  # [R, A]
    present = batch.agents.mask[scene_of_row] & ~is_self
    valid = batch.future_valid[scene_of_row] & present[..., None]
    return position_m, valid, radius_m[scene_of_row] + radius_m[scene_of_row, slot][:, None]


def joint_collision_m(mean_m: Float[Tensor, "R K T 2"], batch: Batch) -> Float[Tensor, "R K"]:
    """Depth of each agent's body in those of the agents that are decoded from the same code, averaged over time.

    A body is three discs in a row inside its box, so that boxes that do not overlap cost nothing. Steps count at which
    both agents were observed, and pairs of agents whose recorded boxes do not touch: some recordings overlap.
    """
    agents, rows = batch.agents, torch.arange(len(batch.agents.track), device=mean_m.device)[:, None]
    pose = batch.scene.track_pose[rows, agents.track]  # [B, A, 3]
    size_m = batch.scene.track_size_m[rows, agents.track]  # [B, A, 2]: length, width
    radius_m = size_m.amin(dim=-1) / 2
    reach_m = (size_m[..., 0] / 2 - radius_m).clamp(min=0)
    seen = batch.future_valid[:, :, _COLLISION_STRIDE - 1 :: _COLLISION_STRIDE]  # [B, A, P]
    both = seen[:, :, None] & seen[:, None]  # [B, A, A, P]
    touching_m = (radius_m[:, :, None] + radius_m[:, None])[:, :, :, None, None]  # [B, A, A, 1, 1]

    def depth_m(futures_m: Float[Tensor, "B A K T 2"]) -> Float[Tensor, "B A A K P"]:
        discs_m = _rotate(_body_discs_m(futures_m, reach_m).flatten(2, 4), pose[..., 2:]) + pose[:, :, None, :2]
        discs_m = discs_m.view(*futures_m.shape[:3], -1, 3, 2)  # [B, A, K, P, 3, 2], in the frame of the scene
        away = discs_m[:, :, None, :, :, :, None] - discs_m[:, None, :, :, :, None, :]  # [B, A, A, K, P, 3, 3, 2]
        nearest_m = away.square().sum(dim=-1).amin(dim=(-2, -1)).add(1e-6).sqrt()
        return (touching_m - nearest_m).clamp(min=0) * both[:, :, :, None]

    decoded_m = mean_m.new_zeros(*agents.mask.shape, *mean_m.shape[1:])
    decoded_m[agents.mask] = mean_m
    with torch.no_grad():
        apart = ~(depth_m(batch.future_m[:, :, None]) > 0).any(dim=-1)  # [B, A, A, 1]
    apart = apart & ~torch.eye(pose.shape[1], dtype=torch.bool, device=pose.device)[:, :, None]
    apart = apart & (agents.mask[:, :, None] & agents.mask[:, None])[..., None]
    return (depth_m(decoded_m) * apart[..., None]).amax(dim=2).mean(dim=-1)[agents.mask]


def _body_discs_m(futures_m: Float[Tensor, "B A K T 2"], reach_m: Float[Tensor, "B A"]) -> Float[Tensor, "B A K P 3 2"]:
    """Centres of three discs along the bodies at P steps; a body that stands keeps its last direction of motion."""
    points_m = functional.pad(futures_m, (0, 0, 1, 0))[..., ::_COLLISION_STRIDE, :]  # [B, A, K, 1 + P, 2]
    with torch.no_grad():
        motion = points_m.diff(dim=-2)
        length_m = motion.norm(dim=-1)
        steps = torch.arange(1, motion.shape[-2] + 1, device=motion.device)
        last = torch.where(length_m > _MIN_MOTION_M, steps, 0).cummax(dim=-1).values  # 0: it has not moved yet
        ahead = functional.pad(motion / length_m.clamp(min=_MIN_MOTION_M)[..., None], (0, 0, 1, 0))
        ahead[..., 0, 0] = 1  # agent frame: the current heading
        ahead = ahead.gather(-2, last[..., None].expand(*last.shape, 2))
    along_m = torch.stack([-reach_m, torch.zeros_like(reach_m), reach_m], dim=-1)[:, :, None, None, :, None]
    return points_m[..., 1:, None, :] + along_m * ahead[..., None, :]


def _rotate(points: Float[Tensor, "*rows T 2"], angle: Float[Tensor, "*rows_or_one 1"]) -> Float[Tensor, "*rows T 2"]:
    cos, sin = angle.cos(), angle.sin()
    x, y = points[..., 0], points[..., 1]
    return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=-1)


def _mean_over_time(values: Float[Tensor, "R K T"], valid: Bool[Tensor, "R T"]) -> Float[Tensor, "R K"]:
    weight = valid[:, None].to(values)
    return (values * weight).sum(dim=-1) / weight.sum(dim=-1).clamp(min=1)


def weighted_mean(values: Float[Tensor, "R K"], weights: Float[Tensor, "R K"]) -> Float[Tensor, ""]:
    """Mean over agents of the weighted sum over prefixes; the weights of a row sum to one."""
    return (values * weights).sum(dim=1).mean()


def next_sigma(sigma: float, ade_m: float, *, target_ade_m: float, gamma: float, delta: float) -> float:
    """The noise of the next step: up while the ADE is at most the target, else down (appendix A.4)."""
    wanted = sigma + delta if ade_m <= target_ade_m else sigma - delta
    return max(0.0, gamma * sigma + (1 - gamma) * wanted)
