"""Where to be: at a point, or all along a given trajectory."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.errors import ObjectiveError
from waycode.objectives.points import Frame, point_in_scene, step_at


@dataclass(frozen=True)
class GoalPoint(BaseObjective):
    """Be at a point at a time (by default, at the end): the distance from it."""

    x_m: float
    y_m: float
    _: KW_ONLY
    at_s: float | None = None
    frame: Frame = "scene"

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        step = step_at(self.at_s, candidates, of=self.name)
        goal = point_in_scene(self.x_m, self.y_m, frame=self.frame, candidates=candidates)
        return torch.linalg.vector_norm(candidates.position_m[:, step] - goal, dim=-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reconstruction(BaseObjective):
    """Follow a given trajectory (by default, the recorded future): the mean distance over its observed steps."""

    positions_m: Float[np.ndarray, "F 2"] | None = None  # steps after the current one, in the scene frame
    valid: Bool[np.ndarray, " F"] | None = None

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        target, valid = self._target(candidates)
        steps = min(candidates.num_steps, len(target))
        valid = valid[:steps]
        if not bool(valid.any()):
            raise ObjectiveError(
                f"nothing to reconstruct within {candidates.num_steps} steps for track "
                f"{candidates.setting.agent_id!r} of scene {candidates.setting.scene.id!r}: expected an observed future"
            )
        error = torch.linalg.vector_norm(candidates.position_m[:, :steps] - target[:steps], dim=-1)
        return error[:, valid].mean(dim=1)

    def _target(self, candidates: Candidates) -> tuple[Float[Tensor, "F 2"], Bool[Tensor, " F"]]:
        if self.positions_m is None:
            recorded, observed = candidates.setting.recorded_future
            return recorded.to(candidates.position_m), observed
        valid = np.ones(len(self.positions_m), np.bool_) if self.valid is None else self.valid
        return torch.tensor(self.positions_m).to(candidates.position_m), torch.tensor(valid)

    def __str__(self) -> str:
        return self.name
