"""Objectives for positions: a goal point, a given trajectory; and helpers for points and times in parameters."""

from dataclasses import KW_ONLY, dataclass
from math import cos, sin
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.setting import ObjectiveError
from waycode.objectives.verdict import Verdict

REACHED_M = 2.0  # a point within this distance is reached: the miss threshold of motion forecasting
PointFrame = Literal["scene", "agent"]  # agent: x ahead, y to the left of the agent at the current step


@dataclass(frozen=True)
class GoalPoint(BaseObjective):
    """Be at a point at a time (by default, at the end): the distance to it."""

    x_m: float
    y_m: float
    _: KW_ONLY
    at_s: float | None = None  # after the current step; None: the end of the horizon
    frame: PointFrame = "scene"  # of the point

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        step = step_at(self.at_s, candidates, of=self.name)
        goal = point_in_scene(self.x_m, self.y_m, frame=self.frame, candidates=candidates)
        return torch.linalg.vector_norm(candidates.position_m[:, step] - goal, dim=-1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied within 2 m of the point."""
        when = "at the end" if self.at_s is None else f"at {self.at_s:g} s"
        verdicts = []
        for off_m in self(candidates).tolist():
            sentence = f"{off_m:.{0 if off_m >= 100 else 1}f} m from the goal {when}"
            verdicts.append(Verdict(satisfied=off_m <= REACHED_M, sentence=sentence))
        return verdicts


@dataclass(frozen=True, kw_only=True, eq=False)
class Reconstruction(BaseObjective):
    """Follow a given trajectory (by default, the recorded future): the mean distance over its observed steps."""

    positions_m: Float[np.ndarray, "F 2"] | None = None  # steps after the current one, in the scene frame
    valid: Bool[np.ndarray, " F"] | None = None  # which positions count; by default all

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return self._errors_m(candidates).mean(dim=1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied within 2 m of the trajectory at its last observed step."""
        errors_m = self._errors_m(candidates)
        return [
            Verdict(
                satisfied=last <= REACHED_M,
                sentence=f"{mean:.1f} m from the given path on average, {last:.1f} m at its end",
            )
            for mean, last in zip(errors_m.mean(dim=1).tolist(), errors_m[:, -1].tolist(), strict=True)
        ]

    def _errors_m(self, candidates: Candidates) -> Float[Tensor, "K observed"]:
        target, valid = self._target(candidates)
        steps = min(candidates.num_steps, len(target))
        valid = valid[:steps]
        if not bool(valid.any()):
            raise ObjectiveError(
                f"nothing to reconstruct within {candidates.num_steps} steps for track "
                f"{candidates.setting.agent_id!r} of scene {candidates.setting.scene.id!r}: expected an observed future"
            )
        error = torch.linalg.vector_norm(candidates.position_m[:, :steps] - target[:steps], dim=-1)
        return error[:, valid]

    def _target(self, candidates: Candidates) -> tuple[Float[Tensor, "F 2"], Bool[Tensor, " F"]]:
        if self.positions_m is None:
            recorded, observed = candidates.setting.recorded_future
            return recorded.to(candidates.position_m), observed
        valid = np.ones(len(self.positions_m), np.bool_) if self.valid is None else self.valid
        position_m = candidates.position_m
        return position_m.new_tensor(self.positions_m), torch.tensor(valid, device=position_m.device)

    def __str__(self) -> str:
        return self.name


def point_in_scene(x_m: float, y_m: float, *, frame: PointFrame, candidates: Candidates) -> Float[Tensor, "2"]:
    """A point in the scene frame."""
    if frame == "scene":
        return candidates.position_m.new_tensor([x_m, y_m])
    turn = candidates.start_heading_rad
    offset = [cos(turn) * x_m - sin(turn) * y_m, sin(turn) * x_m + cos(turn) * y_m]
    return candidates.start_m + candidates.position_m.new_tensor(offset)


def step_at(time_s: float | None, candidates: Candidates, *, of: str) -> int:
    """Index of the step that ends at a time; the last step for None. `of` names the objective in errors."""
    if time_s is None:
        return candidates.num_steps - 1
    step = round(time_s / candidates.dt_s) - 1
    if not 0 <= step < candidates.num_steps:
        raise ObjectiveError(
            f"{of} asks for the time {time_s:g} s, "
            f"expected {candidates.dt_s:g} to {candidates.num_steps * candidates.dt_s:g} s"
        )
    return step


def steps_between(from_s: float, until_s: float | None, *, candidates: Candidates, of: str) -> Bool[Tensor, " T"]:
    """The steps that lie between two times; None is the end of the horizon. `of` names the objective in errors."""
    horizon_s = candidates.num_steps * candidates.dt_s
    until = horizon_s if until_s is None else until_s
    half = candidates.dt_s / 2  # tolerance: times given as whole numbers of steps must stay whole despite rounding
    chosen = (candidates.time_s > from_s + half) & (candidates.time_s < until + half)
    if not bool(chosen.any()):
        raise ObjectiveError(
            f"{of} has no step between {from_s:g} and {until:g} s, expected times up to {horizon_s:g} s"
        )
    return chosen
