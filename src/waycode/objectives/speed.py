"""Speed: slowing down (the paper's "Speed reduction"), a speed profile, stopping at a place."""

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.goals import PointFrame, point_in_scene, steps_between
from waycode.objectives.setting import ObjectiveError

_STANDING_TIME_S = 1.0  # a stop lasts this long at the end of the horizon, unless a time is given
_SPEED_WEIGHT_S = 1.0  # 1 m/s of speed costs as much as 1 m of distance


@dataclass(frozen=True)
class SlowDown(BaseObjective):
    """Drive no faster than `max_speed_mps` from a time on: the largest excess speed."""

    max_speed_mps: float = 5.0
    _: KW_ONLY
    from_s: float = 5.0  # after the current step: the last 3 s of 8; the paper uses the last 3 s of 9
    until_s: float | None = None  # None: the end of the horizon

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        steps = steps_between(self.from_s, self.until_s, candidates=candidates, of=self.name)
        return (candidates.speed_mps[:, steps] - self.max_speed_mps).clamp(min=0).amax(dim=1)


@dataclass(frozen=True)
class SpeedProfile(BaseObjective):
    """Drive at given speeds at given times, interpolated linearly: the mean absolute speed error."""

    times_s: tuple[float, ...]  # after the current step, increasing; the first and last speeds hold beyond them
    speeds_mps: tuple[float, ...]  # one for each time

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.times_s or len(self.times_s) != len(self.speeds_mps):
            raise ObjectiveError(
                f"speed-profile has {len(self.times_s)} times and {len(self.speeds_mps)} speeds, "
                "expected equally many of both, and at least one"
            )
        if any(after <= before for before, after in pairwise(self.times_s)):
            raise ObjectiveError(f"the times of speed-profile are {list(self.times_s)}, expected increasing ones")

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        target = torch.zeros_like(candidates.time_s) + self.speeds_mps[0]
        knots = list(zip(self.times_s, self.speeds_mps, strict=True))
        for (before_s, slow), (after_s, fast) in pairwise(knots):
            share = ((candidates.time_s - before_s) / (after_s - before_s)).clamp(0, 1)
            target = target + share * (fast - slow)
        return (candidates.speed_mps - target).abs().mean(dim=1)


@dataclass(frozen=True)
class StopAt(BaseObjective):
    """Stand at a point, or after a distance, by a time (default: 1 s before the end): distance plus speed."""

    x_m: float | None = None  # the point, with y_m
    y_m: float | None = None
    _: KW_ONLY
    distance_m: float | None = None  # path length to the stop, instead of a point
    by_s: float | None = None  # after the current step
    frame: PointFrame = "scene"  # of the point

    differentiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given = tuple(value is not None for value in (self.x_m, self.y_m, self.distance_m))
        if given not in ((True, True, False), (False, False, True)):
            raise ObjectiveError(
                f"stop-at got x_m={self.x_m}, y_m={self.y_m}, distance_m={self.distance_m}: "
                "expected a point (x_m and y_m) or a distance_m"
            )

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        by_s = candidates.num_steps * candidates.dt_s - _STANDING_TIME_S if self.by_s is None else self.by_s
        steps = steps_between(by_s, None, candidates=candidates, of=self.name)
        off = self._off_m(candidates)[:, steps] + _SPEED_WEIGHT_S * candidates.speed_mps[:, steps]
        return off.mean(dim=1)

    def _off_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        if self.distance_m is not None:
            return (candidates.travelled_m - self.distance_m).abs()
        point = point_in_scene(self.x_m or 0.0, self.y_m or 0.0, frame=self.frame, candidates=candidates)
        return torch.linalg.vector_norm(candidates.position_m - point, dim=-1)
