"""Contact with road edges and other road users, and the distance to the vehicle ahead."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.driving.forecast import Forecast
from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.setting import Others
from waycode.objectives.verdict import Verdict
from waycode.scene.geometry_torch import (
    PolylineSegments,
    boxes_overlap,
    disc_offsets_m,
    points_ahead,
    project,
    project_to_each,
    segments_touch_box,
)

_NUM_DISCS = 3  # per other road user, whatever its size
_FOLLOWING_STRIDE = 4  # every 4th step is evaluated
_FOLLOWING_LOOKAHEAD_M = 80.0  # the path is extended straight by this much
_TOO_CLOSE_M = 0.1  # a smaller part of a gap is not missed: sentences show decimetres


class _Contact(BaseObjective):
    """Number of steps in contact plus depth of the contact: the first decides, the second has a gradient."""

    differentiable: ClassVar[bool] = True

    @abstractmethod
    def contact(self, candidates: Candidates) -> Bool[Tensor, "K T"]:
        """Whether there is contact at each step."""

    @abstractmethod
    def depth_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        """Depth of the contact at each step; 0 without one."""

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return self.explain(candidates)[self.name]

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        contact, depth = self.contact(candidates).sum(dim=1), self.depth_m(candidates)
        return {
            self.name: contact + depth.sum(dim=1),
            f"{self.name}.contact_steps": contact.to(depth),
            f"{self.name}.depth_m": depth.amax(dim=1),
        }


@dataclass(frozen=True, kw_only=True)
class RoadEdge(_Contact):
    """Stay off the road edges: steps at which the box touches one, plus the depth (including `margin_m`)."""

    margin_m: float = 0.0  # distance to keep

    def contact(self, candidates: Candidates) -> Bool[Tensor, "K T"]:
        edges = self._edges(candidates)
        setting, position = candidates.setting, candidates.position_m.detach().reshape(-1, 2)
        touched = segments_touch_box(
            position,
            candidates.heading_rad.detach().reshape(-1),
            edges,
            length_m=setting.length_m,
            width_m=setting.width_m,
        )
        return touched.reshape(len(candidates), -1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied without contact."""
        return [
            Verdict(satisfied=False, sentence=f"touches a road edge for {steps * candidates.dt_s:.1f} s")
            if steps
            else Verdict(satisfied=True, sentence="touches no road edge")
            for steps in self.contact(candidates).sum(dim=1).tolist()
        ]

    def depth_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        """Penetration of the edges into the discs inside the box."""
        edges = self._edges(candidates)
        if len(edges) == 0:
            return 0 * candidates.step_length_m  # zero with a gradient: refinement may ask for one
        discs, radius = own_discs(candidates)
        distance = project(discs, edges)[1].abs()
        return (radius + self.margin_m - distance).clamp(min=0).amax(dim=-1)

    def _edges(self, candidates: Candidates) -> PolylineSegments:
        reach = (candidates.setting.length_m + candidates.setting.width_m) / 2 + self.margin_m
        return candidates.setting.road_edges.near(candidates.position_m, reach_m=reach)


@dataclass(frozen=True, kw_only=True)
class Collision(_Contact):
    """Hit nobody: steps at which boxes overlap, plus the depth (including `margin_m`)."""

    margin_m: float = 0.0  # distance to keep
    others: Others = "constant-velocity"  # assumed motion of the other road users

    def contact(self, candidates: Candidates) -> Bool[Tensor, "K T"]:
        return self._overlaps(candidates, self._near(candidates)).any(dim=1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied without contact; those that are hit are told, the longest contact first."""
        others, ids = self._near(candidates), candidates.setting.scene.tracks.ids
        overlaps, verdicts = self._overlaps(candidates, others), []
        for touched in overlaps:  # [A, T]
            hit = [
                (int(steps), ids[int(track)])
                for steps, track in zip(touched.sum(dim=1), others.track, strict=True)
                if steps
            ]
            if not hit:
                verdicts.append(Verdict(satisfied=True, sentence="collides with nobody"))
                continue
            contact_s = float(touched.any(dim=0).sum()) * candidates.dt_s
            names = " and ".join(name for _, name in sorted(hit, key=lambda one: -one[0]))
            verdicts.append(Verdict(satisfied=False, sentence=f"collides for {contact_s:.1f} s with {names}"))
        return verdicts

    def _overlaps(self, candidates: Candidates, others: Forecast[Tensor]) -> Bool[Tensor, "K A T"]:
        """Whether the boxes overlap."""
        setting = candidates.setting
        position, heading = candidates.position_m.detach(), candidates.heading_rad.detach()
        shape = (len(candidates), len(others), candidates.num_steps)
        own = position.new_tensor([setting.length_m / 2, setting.width_m / 2])
        size = torch.stack([others.length_m, others.width_m], dim=-1) / 2
        overlap = boxes_overlap(
            others.position_m - position[:, None],
            heading[:, None].expand(shape),
            others.heading_rad.expand(shape),
            half_size_m=own.expand(*shape, 2),
            other_half_size_m=size[:, None].expand(*shape, 2),
        )
        return overlap & others.valid

    def depth_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        """Largest overlap between a disc inside the own box and one inside another."""
        others = self._near(candidates)
        if len(others) == 0:
            return 0 * candidates.step_length_m  # zero with a gradient: refinement may ask for one
        own, radius = own_discs(candidates)
        theirs, their_radius = _discs(others)  # [A, T, m, 2], [A]
        between = torch.linalg.vector_norm(own[:, None, :, :, None] - theirs[:, :, None], dim=-1)  # [K, A, T, n, m]
        depth = radius + their_radius[:, None] + self.margin_m - between.amin(dim=(-2, -1))
        return torch.where(others.valid, depth, 0.0).clamp(min=0).amax(dim=1)

    def _near(self, candidates: Candidates) -> Forecast[Tensor]:
        """The road users that come near any candidate."""
        setting = candidates.setting
        others = setting.others(self.others, num_steps=candidates.num_steps)
        offset = others.position_m - candidates.position_m.detach()[:, None]
        reach = (setting.length_m + setting.width_m + others.length_m + others.width_m) / 2 + self.margin_m
        close = (offset**2).sum(dim=-1) < reach[:, None] ** 2  # [K, A, T]
        return others.where((close & others.valid).any(dim=2).any(dim=0))


@dataclass(frozen=True)
class KeepDistance(BaseObjective):
    """Keep a time gap to the vehicle ahead on the own path: the missing distance in metres, averaged over time."""

    time_gap_s: float = 1.5  # gap divided by speed
    _: KW_ONLY
    standstill_m: float = 2.0  # gap to keep to a standing vehicle
    others: Others = "constant-velocity"  # assumed motion of the other road users

    differentiable: ClassVar[bool] = True

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return self._missing_m(candidates).mean(dim=1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied if the gap is kept at all steps."""
        return [
            Verdict(satisfied=False, sentence=f"up to {missing:.1f} m too close to the vehicle ahead")
            if missing > _TOO_CLOSE_M
            else Verdict(satisfied=True, sentence="keeps its distance to the vehicle ahead")
            for missing in self._missing_m(candidates).amax(dim=1).tolist()
        ]

    def _missing_m(self, candidates: Candidates) -> Float[Tensor, "K n"]:
        """How much of the gap is missing at every 4th step (`_FOLLOWING_STRIDE`)."""
        steps = torch.arange(
            candidates.num_steps - 1, -1, -_FOLLOWING_STRIDE, device=candidates.position_m.device
        ).flip(0)
        boxes = candidates.setting.others(self.others, num_steps=candidates.num_steps)
        if len(boxes) == 0:
            return 0 * candidates.step_length_m  # zero with a gradient
        path = _extended_path(candidates, steps)  # [K, n + 2, 2]
        along, beside = project_to_each(boxes.position_m[:, steps], path)  # [K, A, n] each
        own = torch.linalg.vector_norm(path.diff(dim=1), dim=-1).cumsum(dim=1)[:, None, :-1]  # [K, 1, n]
        half_width = (candidates.setting.width_m + boxes.width_m) / 2
        half_length = (candidates.setting.length_m + boxes.length_m) / 2
        ahead = (beside < half_width[:, None]) & (along > own) & boxes.valid[:, steps]
        gap = along - own - half_length[:, None]
        wanted = self.standstill_m + self.time_gap_s * candidates.speed_mps[:, None, steps]
        return torch.where(ahead, (wanted - gap).clamp(min=0), 0.0).amax(dim=1)


def own_discs(candidates: Candidates) -> tuple[Float[Tensor, "K T n 2"], float]:
    """Centres of discs inside the agent's box, and their radius."""
    offsets, radius = disc_offsets_m(candidates.setting.length_m, candidates.setting.width_m)
    offsets_m = candidates.position_m.new_tensor(offsets)
    return points_ahead(candidates.position_m, candidates.heading_rad, offsets_m), radius


def _discs(boxes: Forecast[Tensor]) -> tuple[Float[Tensor, "A T n 2"], Float[Tensor, " A"]]:
    """Discs inside boxes of any size, along their long axes, and their radii."""
    radius = torch.minimum(boxes.length_m, boxes.width_m) / 2
    lengthwise, sideways = (boxes.length_m / 2 - radius), (boxes.width_m / 2 - radius)  # one of the two is 0
    place = torch.linspace(-1, 1, _NUM_DISCS, dtype=radius.dtype, device=radius.device)
    forward = torch.stack([boxes.heading_rad.cos(), boxes.heading_rad.sin()], dim=-1)
    left = torch.stack([-forward[..., 1], forward[..., 0]], dim=-1)
    axis = lengthwise[:, None, None] * forward + sideways[:, None, None] * left  # [A, T, 2]
    return boxes.position_m[:, :, None] + place[:, None] * axis[:, :, None], radius


def _extended_path(candidates: Candidates, steps: Tensor) -> Float[Tensor, "K n_plus_2 2"]:
    """The current position, the positions at `steps`, and a point far ahead of the last."""
    heading = candidates.heading_rad[:, -1]
    ahead = _FOLLOWING_LOOKAHEAD_M * torch.stack([heading.cos(), heading.sin()], dim=-1)
    last = candidates.position_m[:, -1:]
    return torch.cat([candidates.path_m[:, :1], candidates.position_m[:, steps], last + ahead[:, None]], dim=1)
