"""Options for models that drive in a loop: a hidden past, and where the others will be. R modelled agents."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.features import Agents, Batch, SceneFeatures


def hide_history(scene: SceneFeatures, agents: Agents, *, hidden: Bool[Tensor, " R"]) -> SceneFeatures:
    """Zeroes the past of the agents that are hidden; the current sample (pose, velocity) and the size stay.

    The decoder drives on from the current velocity, which every tracker knows; what must not be copied is the past
    (a planner that copies it keeps doing what it just did). A track is embedded once per scene, so other modelled
    agents of the scene do not see this past either.
    """
    scene_of_row, slot = agents.mask.nonzero(as_tuple=True)
    track_of_row = agents.track[scene_of_row, slot]
    history = scene.track_history.clone()
    history[scene_of_row[hidden], track_of_row[hidden], :-1] = 0
    return replace(scene, track_history=history)


def others_futures(batch: Batch) -> tuple[Float[Tensor, "R A T 2"], Bool[Tensor, "R A T"], Float[Tensor, "R A"]]:
    """What the other modelled agents of its scene then did, in each agent's frame; when; and how near is a collision.

    Road users are discs as wide as they are: those of boxes that do not overlap never touch, so that the recorded
    trajectories themselves cost nothing.
    """
    scene_of_row, slot = batch.agents.mask.nonzero(as_tuple=True)  # [R]
    rows = torch.arange(len(batch.agents.track))[:, None]
    pose = batch.scene.track_pose[rows, batch.agents.track]  # [B, A, 3]
    radius_m = batch.scene.track_size_m[rows, batch.agents.track].amin(dim=-1) / 2  # [B, A]
    in_scene = _rotated(batch.futures.position_m, pose[..., 2:]) + pose[:, :, None, :2]  # [B, A, T, 2]
    own = pose[scene_of_row, slot]  # [R, 3]
    in_frame = _rotated(in_scene[scene_of_row] - own[:, None, None, :2], -own[:, None, 2:])
    itself = torch.arange(pose.shape[1])[None] == slot[:, None]  # [R, A]
    there = batch.agents.mask[scene_of_row] & ~itself
    valid = batch.futures.valid[scene_of_row] & there[..., None]
    return in_frame, valid, radius_m[scene_of_row] + radius_m[scene_of_row, slot][:, None]


def _rotated(points: Float[Tensor, "*rows T 2"], angle: Float[Tensor, "*rows_or_one 1"]) -> Float[Tensor, "*rows T 2"]:
    cos, sin = angle.cos(), angle.sin()
    x, y = points[..., 0], points[..., 1]
    return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=-1)
