"""A vehicle that stands starts along its heading: it cannot move sideways. Axes: K candidates, T steps."""

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives import Setting
from waycode.scene import TrackType

_STANDING_MPS = 0.5  # below, the velocity does not say where a vehicle is heading
# Curvature of the path of the box's centre with the wheels turned fully: 1 / 4 m. Recorded starts stay below it.
_MAX_CURVATURE_1PM = 0.25
_WHEELED = (TrackType.VEHICLE, TrackType.CYCLIST)


def stands(setting: Setting) -> bool:
    """Whether the agent is a vehicle or a cyclist that stands at the current step."""
    return setting.start_speed_mps < _STANDING_MPS and setting.scene.tracks.types[setting.agent] in _WHEELED


def starts_along_heading(position_m: Float[Tensor, "K T 2"]) -> Float[Tensor, "K T 2"]:
    """Trajectories in the agent's frame, changed as little as needed to start along the heading.

    After a path of length s, a step may differ from the heading by s times the greatest curvature. A step that differs
    more is replaced by the nearest allowed one: its projection on the limiting direction. Steps backwards become zero.
    Without this, a model that was trained on generated scenes moves cars that stand in real ones sideways.

    Args:
        position_m: positions after the current step, at the origin, where the agent heads along x.
    """
    step = torch.diff(position_m, dim=1, prepend=torch.zeros_like(position_m[:, :1]))
    with torch.no_grad():
        length_m = torch.linalg.vector_norm(step, dim=-1)
        travelled_m = torch.where(step[..., 0] > 0, length_m, 0.0).cumsum(dim=1)  # steps backwards lead nowhere
        limit_rad = (_MAX_CURVATURE_1PM * travelled_m).clamp(max=torch.pi)
        angle_rad = torch.atan2(step[..., 1], step[..., 0])
        side = torch.where(angle_rad < 0, -1.0, 1.0).to(step)
        limiting = torch.stack([limit_rad.cos(), side * limit_rad.sin()], dim=-1)
        is_allowed = (angle_rad.abs() <= limit_rad)[..., None]
    projected = (step * limiting).sum(dim=-1, keepdim=True).clamp(min=0) * limiting
    return torch.where(is_allowed, step, projected).cumsum(dim=1)
