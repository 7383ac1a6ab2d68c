"""Lane changes: the paper's lexicographic objective (section 4), and how lane changes of candidates are counted.

Axes: K candidates, n samples in time, L lanes near them, S segments of these lanes.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from waycode.objectives.base import BaseObjective
from waycode.objectives.candidates import Candidates
from waycode.objectives.setting import ObjectiveError, Setting
from waycode.objectives.verdict import Verdict
from waycode.scene import LaneType, TrackType
from waycode.scene.geometry_torch import PolylineSegments, squared_distances
from waycode.scene.lane_graph import ON_LANE

_STRIDE = 5  # every 5th step is evaluated: a lane change takes tens of steps
_MISALIGNED_M = 100.0  # added to the distance of lanes that run in another direction
_BEYOND_END_WEIGHT = 0.1  # of the squared distance beyond the end of a lane
_REACH_M = 10.0  # lanes within this distance of the trajectories are considered
_MIN_SEPARATION_M = 2.0  # lanes that fork or merge and are, or just were, closer than this are not two lanes
_HALF_LANE_M = 1.75  # distance from the centreline to the line of a lane of 3.5 m


@dataclass(frozen=True)
class LaneChange(BaseObjective):
    """Change `count` lanes (positive: to the left, negative: to the right, 0: none), then keep to the lane's centre.

    First level: missing plus surplus lane changes, changes to the other side included. Second level (ours, not the
    paper's): for missing changes, the distance in metres to the line that should be crossed, for lanes of 3.5 m; for
    surplus changes, how early they happen, as a share of the time. It guides a search whose first tokens contain no
    lane change yet; `guided=False` makes it zero. Third level: mean distance from the centre of the nearest lane. Not
    differentiable.
    """

    count: int = 1
    _: KW_ONLY
    either_side: bool = False  # True as in the paper: `count` changes in total, to any side
    guided: bool = True  # False as in the paper: the second level is zero

    @property
    def level_names(self) -> tuple[str, ...]:
        return (f"{self.name}.wrong_changes", f"{self.name}.amiss", f"{self.name}.offset_m")

    def __call__(self, candidates: Candidates) -> Float[Tensor, "K 3"]:
        changes = candidates.shared(count_lane_changes)
        wanted, other, leaning_m = changes.to_left, changes.to_right, changes.leaning_left_m
        if self.either_side:
            wanted, other = wanted + other, torch.zeros_like(other)
            leaning_m = torch.maximum(leaning_m, changes.leaning_right_m)
        elif self.count < 0:
            wanted, other, leaning_m = other, wanted, changes.leaning_right_m
        missing = abs(self.count) - wanted
        wrong = missing.abs() + other
        amiss = torch.where(missing > 0, _HALF_LANE_M - leaning_m, changes.since_first)
        guide = torch.where(wrong > 0, amiss, 0.0) * float(self.guided)
        return torch.stack([wrong.to(amiss), guide, changes.mean_offset_m], dim=1)

    def met(self, candidates: Candidates) -> list[Verdict]:
        """Satisfied by `count` changes to the side, and none to the other."""
        changes = candidates.shared(count_lane_changes)
        counts = zip(changes.to_left.tolist(), changes.to_right.tolist(), strict=True)
        reason = candidates.setting.shared(_missing_lanes, 0 if self.either_side else self.count, candidates.horizon_s)
        return [self._verdict(to_left, to_right, reason) for to_left, to_right in counts]

    def _verdict(self, to_left: int, to_right: int, reason: str | None) -> Verdict:
        side, other_side, wanted, other = " to the left", "right", to_left, to_right
        if self.either_side:
            side, wanted, other = "", to_left + to_right, 0
        elif self.count < 0:
            side, other_side, wanted, other = " to the right", "left", to_right, to_left
        asked = abs(self.count)
        told = [f"{other} lane change{_plural(other)} to the {other_side}, asked for none"] if other else []
        if wanted < asked:
            why = "" if reason is None else f": {reason}"
            told.insert(0, f"{asked - wanted} of {asked} lane change{_plural(asked)}{side} missing{why}")
        elif wanted > asked or not told:
            made = f"{wanted} lane change{_plural(wanted)}{side}" if wanted else "no lane change"
            told.insert(0, made + (f", asked for {asked or 'none'}" if wanted > asked else ", as asked"))
        return Verdict(satisfied=wanted == asked and other == 0, sentence=", ".join(told))

    def explain(self, candidates: Candidates) -> dict[str, Float[Tensor, " K"]]:
        changes = candidates.shared(count_lane_changes)
        return super().explain(candidates) | {
            f"{self.name}.to_left": changes.to_left.to(changes.mean_offset_m),
            f"{self.name}.to_right": changes.to_right.to(changes.mean_offset_m),
        }


def _plural(count: int) -> str:
    return "" if count == 1 else "s"


def _missing_lanes(setting: Setting, count: int, horizon_s: float) -> str | None:
    """Why `count` lane changes (negative: to the right) are impossible; None if they are not, or if it is not known."""
    lanes, lane, wanted = setting.scene.map.lanes, setting.own_lane, abs(count)
    if lane is None or count == 0:
        return None
    beside, reach_m = lanes.graph.left if count > 0 else lanes.graph.right, setting.start_speed_mps * horizon_s
    # Lanes may begin farther ahead: those beside the lanes that the agent can drive on to count too.
    most, ahead = 0, lanes.graph.extend_straight([lane], length_m=reach_m)
    for place in ahead:
        side, number = [place], 0
        while number < wanted and (side := [other for one in side for other in beside[one]]):
            number += 1
        most = max(most, number)
    if most >= wanted:
        return None
    name = "left" if count > 0 else "right"
    return f"no lane to the {name} of this one" if most == 0 else f"only {most} lane{_plural(most)} to the {name}"


@dataclass(frozen=True, kw_only=True)
class LaneOffsets:
    """Position of n samples of K trajectories relative to the L lanes near them."""

    away_m2: Float[Tensor, "K n L"]  # weighted squared distance, for choosing the nearest lane
    beside_m: Float[Tensor, "K n L"]  # lateral offset from the lane, extended straight beyond its ends; left positive
    aligned: Bool[Tensor, "K n L"]  # the lane runs in the direction of travel
    lane: Int[Tensor, " L"]  # index of the lane in the scene


@dataclass(frozen=True, kw_only=True)
class LaneChanges:
    """Lane changes of K trajectories."""

    to_left: Int[Tensor, " K"]
    to_right: Int[Tensor, " K"]
    leaning_left_m: Float[Tensor, " K"]  # largest offset to the left of the own lane, outside junctions
    leaning_right_m: Float[Tensor, " K"]
    since_first: Float[Tensor, " K"]  # share of the samples after the first change; 0 without one
    mean_offset_m: Float[Tensor, " K"]  # from the centre of the own lane, at most _REACH_M
    lane: Int[Tensor, "K n"]  # the own lane at each sample


def count_lane_changes(candidates: Candidates) -> LaneChanges:
    """Counts changes of the nearest lane that are lane changes.

    Driving on to a successor lane is none, nor is a switch between lanes that lie on top of each other. Changes within
    junctions, where lanes fork and cross, do not count.
    """
    offsets = lane_offsets(candidates)
    away, beside = offsets.away_m2, offsets.beside_m
    belongs = candidates.setting.lane_continues[offsets.lane][:, offsets.lane]  # [L, L]
    inside = torch.tensor(candidates.setting.scene.map.lanes.in_junction, device=away.device)[offsets.lane]  # [L]
    nearest = away.argmin(dim=-1)  # [K, n]
    on, sides = [nearest[:, 0]], []
    for sample in range(1, nearest.shape[1]):
        # The nearest of the lanes that continue the lane followed so far.
        followed = torch.where(belongs[on[-1]], away[:, sample], torch.inf).argmin(dim=-1)
        new = nearest[:, sample]
        from_followed, from_new = _at(beside[:, sample], followed), _at(beside[:, sample], new)
        left_behind = ~belongs[on[-1], new] & (from_new.abs() < from_followed.abs())
        left_behind &= _at(offsets.aligned[:, sample], new)
        apart = from_followed - from_new  # offset of the new lane from the followed one, left positive
        before = _at(beside[:, sample - 1], on[-1]) - _at(beside[:, sample - 1], new)
        two = (torch.minimum(apart * apart.sign(), before * apart.sign()) >= _MIN_SEPARATION_M) & left_behind
        sides.append(torch.where(two & ~inside[on[-1]] & ~inside[new], apart.sign(), 0.0))
        on.append(torch.where(left_behind | belongs[on[-1], new], new, followed))
    lane, side = torch.stack(on, dim=1), torch.stack(sides, dim=1)
    leaning = torch.where(inside[lane], 0.0, beside.gather(-1, lane[..., None])[..., 0])  # [K, n], left positive
    return LaneChanges(
        to_left=(side > 0).sum(dim=1),
        to_right=(side < 0).sum(dim=1),
        leaning_left_m=leaning.amax(dim=1),
        leaning_right_m=-leaning.amin(dim=1),
        since_first=(side != 0).to(leaning).cummax(dim=1).values.mean(dim=1),
        mean_offset_m=_offset_m(offsets, lane).mean(dim=1),
        lane=offsets.lane[lane],
    )


def _offset_m(offsets: LaneOffsets, lane: Int[Tensor, "K n"]) -> Float[Tensor, "K n"]:
    """Distance from the lane's centre, at most _REACH_M; _REACH_M if the lane runs in another direction."""
    beside = offsets.beside_m.gather(-1, lane[..., None])[..., 0].abs().clamp(max=_REACH_M)
    return torch.where(offsets.aligned.gather(-1, lane[..., None])[..., 0], beside, _REACH_M)


def _at(values: Shaped[Tensor, "K L"], index: Int[Tensor, " K"]) -> Shaped[Tensor, " K"]:
    return values.gather(1, index[:, None])[:, 0]


def lane_offsets(candidates: Candidates) -> LaneOffsets:
    """Distances of every 5th position (`_STRIDE`), the current one first, to all lanes near the trajectories."""
    setting = candidates.setting
    points = candidates.path_m.detach()[:, ::_STRIDE]
    heading = torch.nn.functional.pad(candidates.heading_rad.detach(), (1, 0), value=setting.start_heading_rad)
    segments = _lanes_of(setting).near(points, reach_m=_REACH_M)
    lane, which = torch.unique(segments.line, return_inverse=True)
    squared, beside = _to_segments(points.reshape(-1, 2), heading[:, ::_STRIDE].reshape(-1), segments)
    index = which.expand(len(squared), -1)
    least = squared.new_full((len(squared), len(lane)), torch.inf).scatter_reduce(1, index, squared, "amin")
    # The offset from the nearest segment of each lane. At a corner two are equally near: either will do.
    is_nearest = squared <= least[:, which]
    beside = least.new_full(least.shape, -torch.inf).scatter_reduce(
        1, index, torch.where(is_nearest, beside, -torch.inf), "amax"
    )
    # Where the map ends, a neighbouring lane may be nearest only because it ends later: distance beyond an end counts
    # little.
    aligned = least < _MISALIGNED_M**2
    away = torch.where(aligned, beside**2 + _BEYOND_END_WEIGHT * (least - beside**2), least)
    shape = (*points.shape[:2], len(lane))
    return LaneOffsets(
        away_m2=away.reshape(shape), beside_m=beside.reshape(shape), aligned=aligned.reshape(shape), lane=lane
    )


def _to_segments(
    points_m: Float[Tensor, "q 2"], heading_rad: Float[Tensor, " q"], segments: PolylineSegments
) -> tuple[Float[Tensor, "q S"], Float[Tensor, "q S"]]:
    """Squared distance (increased where the heading disagrees), and offset to the left of each segment's line."""
    squared = squared_distances(points_m, segments)
    forward = segments.step_m / torch.linalg.vector_norm(segments.step_m, dim=-1, keepdim=True)
    origin = segments.start_m[:, 1] * forward[:, 0] - segments.start_m[:, 0] * forward[:, 1]
    beside = points_m @ torch.stack([-forward[:, 1], forward[:, 0]]) - origin
    agreement = torch.stack([heading_rad.cos(), heading_rad.sin()], dim=-1) @ forward.T
    return squared + _MISALIGNED_M**2 * (agreement < np.cos(ON_LANE.angle_rad)), beside


def _lanes_of(setting: Setting) -> PolylineSegments:
    """The lanes that the agent may use: bicycle lanes are for cyclists only."""
    lanes, segments = setting.scene.map.lanes, setting.lanes
    if len(lanes) == 0:
        raise ObjectiveError(f"scene {setting.scene.id!r} has no lanes, expected a map with lane centrelines")
    if setting.scene.tracks.types[setting.agent] != TrackType.CYCLIST:
        for_all = torch.tensor(lanes.types != LaneType.BIKE, device=segments.line.device)
        segments = segments.where(for_all[segments.line])
    # Checked for the agent, not the candidates: some candidates off the map must not stop a search.
    if len(segments) == 0 or squared_distances(setting.start_m[None], segments).min() > _REACH_M**2:
        raise ObjectiveError(
            f"no lane of scene {setting.scene.id!r} comes within {_REACH_M:g} m of track {setting.agent_id!r}, "
            "expected one to be on"
        )
    return segments
