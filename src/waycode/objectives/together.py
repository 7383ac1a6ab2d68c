"""Objectives on joint futures: what several agents do with respect to each other.

K candidates, A agents, T steps, n and m discs of two agents.
"""

from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.base import BaseObjective, Scope
from waycode.objectives.candidates import Candidates, JointCandidates
from waycode.objectives.safety import own_discs
from waycode.objectives.verdict import Verdict
from waycode.scene.geometry_torch import boxes_overlap, project_to_each

_STRIDE = 4  # the gap between two agents is evaluated at every 4th step
_GAP_TOLERANCE_M = 0.1
_LOOKAHEAD_M = 80.0  # the path behind is extended straight by this much


@dataclass(frozen=True, kw_only=True)
class NoCollision(BaseObjective):
    """No two of the agents hit each other: steps at which their boxes overlap, plus the depth (with `margin_m`)."""

    margin_m: float = 0.0  # distance to keep

    differentiable: ClassVar[bool] = True
    scope: ClassVar[Scope] = "agents"

    def __call__(self, candidates: JointCandidates) -> Float[Tensor, " K"]:
        cost = 0 * candidates.final_std_m  # zero with a gradient: refinement may ask for one
        for one, other in combinations(candidates.agents, 2):
            cost = cost + overlap(one, other).sum(dim=1) + self._depth_m(one, other).sum(dim=1)
        return cost

    def met(self, candidates: JointCandidates) -> list[Verdict]:
        pairs = list(combinations(candidates.agents, 2))
        steps = [overlap(one, other).sum(dim=1).tolist() for one, other in pairs]
        verdicts = []
        for counts in zip(*steps, strict=True):
            hits = [
                f"{one.setting.agent_id} and {other.setting.agent_id} overlap for {count * one.dt_s:.1f} s"
                for (one, other), count in zip(pairs, counts, strict=True)
                if count
            ]
            verdicts.append(Verdict(satisfied=not hits, sentence="; ".join(hits) or "no two agents overlap"))
        return verdicts or [Verdict()] * len(candidates)

    def _depth_m(self, one: Candidates, other: Candidates) -> Float[Tensor, "K T"]:
        """Largest overlap between a disc inside one box and one inside the other."""
        discs, radius = own_discs(one)
        others, other_radius = own_discs(other)
        between = torch.linalg.vector_norm(discs[..., :, None, :] - others[..., None, :, :], dim=-1)  # [K, T, n, m]
        return (radius + other_radius + self.margin_m - between.amin(dim=(-2, -1))).clamp(min=0)


@dataclass(frozen=True)
class FollowingGap(BaseObjective):
    """An agent keeps a time gap to another that drives ahead of it: the missing metres, averaged over time."""

    behind: str  # id of the agent
    ahead: str  # id of the other
    time_gap_s: float = 1.5  # gap divided by the speed of the agent behind
    _: KW_ONLY
    standstill_m: float = 2.0  # gap to keep to a standing vehicle

    differentiable: ClassVar[bool] = True
    scope: ClassVar[Scope] = "agents"

    def __call__(self, candidates: JointCandidates) -> Float[Tensor, " K"]:
        behind, ahead = candidates.of(self.behind), candidates.of(self.ahead)
        steps = slice(_STRIDE - 1, None, _STRIDE)
        heading = behind.heading_rad[:, -1]
        far = behind.position_m[:, -1] + _LOOKAHEAD_M * torch.stack([heading.cos(), heading.sin()], dim=-1)
        path = torch.cat([behind.path_m, far[:, None]], dim=1)  # [K, T + 2, 2]
        gaps = []
        for candidate in range(len(candidates)):  # each has its own path and its own agent ahead
            along, _ = project_to_each(ahead.position_m[candidate, steps][None], path[candidate][None])
            gaps.append(along[0, 0] - behind.travelled_m[candidate, steps])
        gap = torch.stack(gaps) - (behind.setting.length_m + ahead.setting.length_m) / 2
        wanted = self.standstill_m + self.time_gap_s * behind.speed_mps[:, steps]
        return (wanted - gap).clamp(min=0).mean(dim=1)

    def met(self, candidates: JointCandidates) -> list[Verdict]:
        return [
            Verdict(
                satisfied=missing <= _GAP_TOLERANCE_M,
                sentence=f"{self.behind} keeps its gap to {self.ahead}"
                if missing <= _GAP_TOLERANCE_M
                else f"the gap of {self.behind} to {self.ahead} is too short by {missing:.1f} m on average",
            )
            for missing in self(candidates).tolist()
        ]


@dataclass(frozen=True)
class GoesFirst(BaseObjective):
    """An agent passes where two paths meet before the other: the seconds that it is too late; 0 if they never meet."""

    first: str  # id of the agent
    second: str  # id of the other
    margin_s: float = 1.0  # by which it should be earlier
    _: KW_ONLY
    near_m: float = 4.0  # paths that stay farther apart do not meet

    scope: ClassVar[Scope] = "agents"

    def __call__(self, candidates: JointCandidates) -> Float[Tensor, " K"]:
        late_s, nearest_m = self._lateness(candidates)
        return torch.where(nearest_m < self.near_m, (late_s + self.margin_s).clamp(min=0), 0.0)

    def met(self, candidates: JointCandidates) -> list[Verdict]:
        verdicts = []
        for late_s, nearest_m in zip(*(part.tolist() for part in self._lateness(candidates)), strict=True):
            if nearest_m >= self.near_m:
                told = f"the paths of {self.first} and {self.second} stay {nearest_m:.0f} m apart"
                verdicts.append(Verdict(sentence=told))
            else:
                told = f"{self.first} is {abs(late_s):.1f} s {'later' if late_s > 0 else 'earlier'} than {self.second}"
                verdicts.append(Verdict(satisfied=late_s <= -self.margin_s + 1e-6, sentence=told))
        return verdicts

    def _lateness(self, candidates: JointCandidates) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        """Seconds by which the first agent is later where the two come nearest to each other, and that distance."""
        first, second = candidates.of(self.first), candidates.of(self.second)
        away = torch.cdist(first.position_m.detach(), second.position_m.detach())  # [K, T, T]: first, second
        nearest_m, place = away.flatten(1).min(dim=1)
        return (place // away.shape[2] - place % away.shape[2]) * first.dt_s, nearest_m


def overlap(one: Candidates, other: Candidates) -> Bool[Tensor, "K T"]:
    """At which steps the boxes of two agents of a joint future overlap."""
    shape = one.position_m.shape[:2]
    half = [one.position_m.new_tensor([each.setting.length_m / 2, each.setting.width_m / 2]) for each in (one, other)]
    return boxes_overlap(
        (other.position_m - one.position_m).detach(),
        one.heading_rad.detach(),
        other.heading_rad.detach(),
        half_size_m=half[0].expand(*shape, 2),
        other_half_size_m=half[1].expand(*shape, 2),
    )
