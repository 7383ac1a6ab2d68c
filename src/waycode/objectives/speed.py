"""Speed: slowing down (the paper's "Speed reduction"), a speed profile, stopping at a place."""

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.goals import REACHED_M, PointFrame, point_in_scene, steps_between
from waycode.objectives.setting import ObjectiveError
from waycode.objectives.verdict import Verdict

_STANDING_TIME_S = 1.0  # a stop lasts this long at the end of the horizon, unless a time is given
_SPEED_WEIGHT_S = 1.0  # 1 m/s of speed costs as much as 1 m of distance
_SHOWN_MPS = 0.05  # half of the last digit that sentences show: 5.04 m/s are not above 5.0
_PROFILE_MPS = 0.5  # a speed profile is kept with a smaller mean error
_STANDING_MPS = 0.5  # at most


@dataclass(frozen=True)
class SlowDown(BaseObjective):
    """Drive no faster than `max_speed_mps` from a time on: the largest excess speed."""

    max_speed_mps: float = 5.0
    _: KW_ONLY
    from_s: float = 5.0  # after the current step: the last 3 s of 8; the paper uses the last 3 s of 9
    until_s: float | None = None  # None: the end of the horizon

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return (self._fastest_mps(candidates) - self.max_speed_mps).clamp(min=0)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied if the speed is never above the limit."""
        when = f"from {self.from_s:g} s on" if self.until_s is None else f"from {self.from_s:g} to {self.until_s:g} s"
        return [
            Verdict(
                satisfied=fastest <= self.max_speed_mps + _SHOWN_MPS,
                sentence=f"up to {fastest:.1f} m/s {when}, asked for {self.max_speed_mps:g} m/s at most",
            )
            for fastest in self._fastest_mps(candidates).tolist()
        ]

    def _fastest_mps(self, candidates: Candidates) -> Float[Tensor, " K"]:
        steps = steps_between(self.from_s, self.until_s, candidates=candidates, of=self.name)
        return candidates.speed_mps[:, steps].amax(dim=1)


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

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied with a mean error of at most 0.5 m/s."""
        return [
            Verdict(satisfied=off <= _PROFILE_MPS, sentence=f"{off:.1f} m/s off the speed profile on average")
            for off in self(candidates).tolist()
        ]


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
        steps = self._steps(candidates)
        off = self._off_m(candidates)[:, steps] + _SPEED_WEIGHT_S * candidates.speed_mps[:, steps]
        return off.mean(dim=1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied if the agent stands (0.5 m/s at most) within 2 m of the place from `by_s` on."""
        steps, verdicts = self._steps(candidates), []
        from_s = float(candidates.time_s[steps][0]) - candidates.dt_s
        farthest, fastest = self._off_m(candidates)[:, steps].amax(dim=1), candidates.speed_mps[:, steps].amax(dim=1)
        for off_m, speed in zip(farthest.tolist(), fastest.tolist(), strict=True):
            stands = speed <= _STANDING_MPS
            moves = "stands" if stands else f"drives at up to {speed:.1f} m/s"
            sentence = f"{moves} {off_m:.1f} m from the place to stop, from {from_s:g} s on"
            verdicts.append(Verdict(satisfied=stands and off_m <= REACHED_M, sentence=sentence))
        return verdicts

    def _steps(self, candidates: Candidates) -> Bool[Tensor, " T"]:
        """The steps at which the agent should stand."""
        by_s = candidates.horizon_s - _STANDING_TIME_S if self.by_s is None else self.by_s
        return steps_between(by_s, None, candidates=candidates, of=self.name)

    def _off_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        if self.distance_m is not None:
            return (candidates.travelled_m - self.distance_m).abs()
        point = point_in_scene(self.x_m or 0.0, self.y_m or 0.0, frame=self.frame, candidates=candidates)
        return torch.linalg.vector_norm(candidates.position_m - point, dim=-1)
