"""Hitting nothing: neither the road's edges nor other road users."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.boxes import along, boxes_overlap, disc_offsets_m, segments_touch_box
from waycode.objectives.candidates import Candidates
from waycode.objectives.segments import Segments, project, squared_distances
from waycode.objectives.setting import Boxes, Others

DISC_COUNT = 3  # for the other road users, whose sizes differ


class _Contact(BaseObjective):
    """Steps in contact, and how deep the contact is: the first tells, the second has the gradient."""

    differentiable: ClassVar[bool] = True

    @abstractmethod
    def contact(self, candidates: Candidates) -> Bool[Tensor, "K T"]: ...

    @abstractmethod
    def depth_m(self, candidates: Candidates) -> Float[Tensor, "K T"]: ...

    def __call__(self, candidates: Candidates) -> Float[Tensor, " K"]:
        return self.contact(candidates).sum(dim=1) + self.depth_m(candidates).sum(dim=1)

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        contact, depth = self.contact(candidates).sum(dim=1), self.depth_m(candidates)
        return {
            self.name: contact + depth.sum(dim=1),
            f"{self.name}.contact_steps": contact.to(depth),
            f"{self.name}.depth_m": depth.amax(dim=1),
        }


@dataclass(frozen=True, kw_only=True)
class RoadEdge(_Contact):
    """Stay off the road's edges: steps at which the box touches one, plus how deep (or closer than `margin_m`)."""

    margin_m: float = 0.0

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

    def depth_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        """How far the edge comes into the deepest of the discs inside the box."""
        edges, setting = self._edges(candidates), candidates.setting
        if len(edges) == 0:
            return torch.zeros_like(candidates.step_length_m)
        offsets, radius = disc_offsets_m(setting.length_m, setting.width_m)
        discs = along(
            candidates.position_m, candidates.heading_rad, torch.tensor(offsets).to(candidates.position_m)
        )  # [K, T, n, 2]
        nearest = squared_distances(discs.reshape(-1, 2), edges)[0].argmin(dim=1).reshape(discs.shape[:-1])
        distance = project(discs, edges, nearest)[1].abs()
        return (radius + self.margin_m - distance).clamp(min=0).amax(dim=-1)

    def _edges(self, candidates: Candidates) -> Segments:
        reach = (candidates.setting.length_m + candidates.setting.width_m) / 2 + self.margin_m
        return candidates.setting.road_edges.near(candidates.position_m, reach_m=reach)


@dataclass(frozen=True, kw_only=True)
class Collision(_Contact):
    """Hit nobody: steps at which the boxes overlap, plus how deep (or closer than `margin_m`)."""

    margin_m: float = 0.0
    others: Others = "constant-velocity"

    def contact(self, candidates: Candidates) -> Bool[Tensor, "K T"]:
        others, setting = self._near(candidates), candidates.setting
        position, heading = candidates.position_m.detach(), candidates.heading_rad.detach()
        shape = (len(candidates), len(others), candidates.num_steps)
        own = torch.tensor([setting.length_m / 2, setting.width_m / 2]).to(position)
        size = torch.stack([others.length_m, others.width_m], dim=-1) / 2
        overlap = boxes_overlap(
            others.position_m - position[:, None],
            heading[:, None].expand(shape),
            others.heading_rad.expand(shape),
            half_size_m=own.expand(*shape, 2),
            other_half_size_m=size[:, None].expand(*shape, 2),
        )
        return (overlap & others.valid).any(dim=1)

    def depth_m(self, candidates: Candidates) -> Float[Tensor, "K T"]:
        """How far the deepest pair of discs inside the boxes overlaps."""
        others, setting = self._near(candidates), candidates.setting
        if len(others) == 0:
            return torch.zeros_like(candidates.step_length_m)
        offsets, radius = disc_offsets_m(setting.length_m, setting.width_m)
        own = along(candidates.position_m, candidates.heading_rad, torch.tensor(offsets).to(candidates.position_m))
        theirs, their_radius = _discs(others)  # [A, T, m, 2], [A]
        between = torch.linalg.vector_norm(own[:, None, :, :, None] - theirs[:, :, None], dim=-1)  # [K, A, T, n, m]
        depth = radius + their_radius[:, None] + self.margin_m - between.amin(dim=(-2, -1))
        return torch.where(others.valid, depth, 0.0).clamp(min=0).amax(dim=1)

    def _near(self, candidates: Candidates) -> Boxes:
        """Those that come near a candidate at any time: the rest need not be looked at."""
        setting = candidates.setting
        others = setting.others(self.others, num_steps=candidates.num_steps)
        offset = others.position_m - candidates.position_m.detach()[:, None]
        reach = (setting.length_m + setting.width_m + others.length_m + others.width_m) / 2 + self.margin_m
        close = (offset**2).sum(dim=-1) < reach[:, None] ** 2  # [K, A, T]
        return others.where((close & others.valid).any(dim=2).any(dim=0))


def _discs(boxes: Boxes) -> tuple[Float[Tensor, "A T n 2"], Float[Tensor, " A"]]:
    """Discs inside boxes of any sizes, along their long axes."""
    radius = torch.minimum(boxes.length_m, boxes.width_m) / 2
    lengthwise, sideways = (boxes.length_m / 2 - radius), (boxes.width_m / 2 - radius)  # one of them is 0
    place = torch.linspace(-1, 1, DISC_COUNT).to(radius)
    forward = torch.stack([boxes.heading_rad.cos(), boxes.heading_rad.sin()], dim=-1)
    left = torch.stack([-forward[..., 1], forward[..., 0]], dim=-1)
    axis = lengthwise[:, None, None] * forward + sideways[:, None, None] * left  # [A, T, 2]
    return boxes.position_m[:, :, None] + place[:, None] * axis[:, :, None], radius
