"""Points and times that a user gives: in the scene frame or as seen by the agent."""

from math import cos, sin
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.candidates import Candidates
from waycode.objectives.errors import ObjectiveError

Frame = Literal["scene", "agent"]  # agent: x ahead and y to the left of the agent at the current step


def point_in_scene(x_m: float, y_m: float, *, frame: Frame, candidates: Candidates) -> Float[Tensor, "2"]:
    """The point in the scene frame."""
    if frame == "scene":
        return torch.tensor([x_m, y_m]).to(candidates.position_m)
    turn = candidates.start_heading_rad
    offset = [cos(turn) * x_m - sin(turn) * y_m, sin(turn) * x_m + cos(turn) * y_m]
    return candidates.start_m + torch.tensor(offset).to(candidates.position_m)


def step_at(time_s: float | None, candidates: Candidates, *, of: str) -> int:
    """Index of the step that ends at a time; without a time, of the last step."""
    if time_s is None:
        return candidates.num_steps - 1
    step = round(time_s / candidates.dt_s) - 1
    if not 0 <= step < candidates.num_steps:
        raise ObjectiveError(
            f"{of} asks for the time {time_s:g} s, expected {candidates.dt_s:g} to {_horizon_s(candidates):g} s"
        )
    return step


def steps_between(from_s: float, until_s: float | None, *, candidates: Candidates, of: str) -> Bool[Tensor, " T"]:
    """Which steps end after `from_s` and not after `until_s` (by default, the end): they lie between the two times."""
    until = _horizon_s(candidates) if until_s is None else until_s
    half = candidates.dt_s / 2  # times that are whole numbers of steps stay whole in spite of rounding
    chosen = (candidates.time_s > from_s + half) & (candidates.time_s < until + half)
    if not bool(chosen.any()):
        raise ObjectiveError(
            f"{of} has no step between {from_s:g} and {until:g} s, expected times up to {_horizon_s(candidates):g} s"
        )
    return chosen


def _horizon_s(candidates: Candidates) -> float:
    return candidates.num_steps * candidates.dt_s
