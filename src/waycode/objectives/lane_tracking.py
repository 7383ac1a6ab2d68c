"""Which lane a trajectory is on, and when it changes from one to another.

Axes: K candidates, n samples in time, L lanes near them, S segments of these lanes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from waycode.objectives.candidates import Candidates
from waycode.objectives.errors import ObjectiveError
from waycode.objectives.segments import Segments, squared_distances
from waycode.objectives.setting import Setting
from waycode.scene import LaneType, TrackType
from waycode.scene.lane_graph import ON_LANE

EVERY = 5  # steps of which one is looked at: a lane change takes tens of them
MISALIGNED_M = 100.0  # how much farther away a lane counts that does not
BEYOND_END_WEIGHT = 0.1  # of the squared distance that lies beyond a lane's end
REACH_M = 10.0  # how far from the trajectories lanes are looked for
LEAST_SEPARATION_M = 2.0  # lanes that fork or merge and are, or just were, closer than this are not two


@dataclass(frozen=True, kw_only=True)
class LaneOffsets:
    """How n samples of K trajectories lie to the L lanes near them."""

    away_m2: Float[Tensor, "K n L"]  # squared distance, for comparing lanes: weighted as below
    beside_m: Float[Tensor, "K n L"]  # offset from the lane, straight on beyond its ends; left positive
    aligned: Bool[Tensor, "K n L"]  # whether the lane runs the same way
    lane: Int[Tensor, " L"]  # index of the lane in the scene


@dataclass(frozen=True, kw_only=True)
class LaneChanges:
    """What K trajectories do to the lanes."""

    to_left: Int[Tensor, " K"]
    to_right: Int[Tensor, " K"]
    leaning_left_m: Float[Tensor, " K"]  # how far on the left of its lane it ever is, outside junctions
    leaning_right_m: Float[Tensor, " K"]
    since_first: Float[Tensor, " K"]  # the share of the samples that comes after the first change; 0 without one
    mean_offset_m: Float[Tensor, " K"]  # from the centre of the lane that it is on, REACH_M at most
    lane: Int[Tensor, "K n"]  # the lane that it is on at each sample


def lane_changes(candidates: Candidates) -> LaneChanges:
    """Counts those changes of the nearest lane that are lane changes.

    Going on to a lane that continues the last one is none, nor is a change between lanes that lie on top of each other.
    Within a junction lanes fork and cross: what happens there does not count.
    """
    offsets = lane_offsets(candidates)
    away, beside = offsets.away_m2, offsets.beside_m
    belongs = candidates.setting.lane_continues[offsets.lane][:, offsets.lane]  # [L, L]
    inside = torch.tensor(candidates.setting.scene.map.lanes.in_junction).to(away.device)[offsets.lane]  # [L]
    nearest = away.argmin(dim=-1)  # [K, n]
    on, sides = [nearest[:, 0]], []
    for sample in range(1, nearest.shape[1]):
        # Where the lane that was followed until now goes on: the nearest of those that continue it.
        followed = torch.where(belongs[on[-1]], away[:, sample], torch.inf).argmin(dim=-1)
        new = nearest[:, sample]
        from_followed, from_new = _at(beside[:, sample], followed), _at(beside[:, sample], new)
        left_behind = ~belongs[on[-1], new] & (from_new.abs() < from_followed.abs())
        left_behind &= _at(offsets.aligned[:, sample], new)
        apart = from_followed - from_new  # of the new lane from the other, left positive
        before = _at(beside[:, sample - 1], on[-1]) - _at(beside[:, sample - 1], new)
        two = (torch.minimum(apart * apart.sign(), before * apart.sign()) >= LEAST_SEPARATION_M) & left_behind
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
    """Distance from the lane's centre; REACH_M at most, and where the lane does not run the same way."""
    beside = offsets.beside_m.gather(-1, lane[..., None])[..., 0].abs().clamp(max=REACH_M)
    return torch.where(offsets.aligned.gather(-1, lane[..., None])[..., 0], beside, REACH_M)


def _at(values: Shaped[Tensor, "K L"], index: Int[Tensor, " K"]) -> Shaped[Tensor, " K"]:
    return values.gather(1, index[:, None])[:, 0]


def lane_offsets(candidates: Candidates) -> LaneOffsets:
    """Distances of every EVERYth position, the current one first, to all lanes near the trajectories."""
    setting = candidates.setting
    points = candidates.path_m.detach()[:, ::EVERY]
    heading = torch.nn.functional.pad(candidates.heading_rad.detach(), (1, 0), value=setting.start_heading_rad)
    segments = _lanes_of(setting).near(points, reach_m=REACH_M)
    lane, which = torch.unique(segments.line, return_inverse=True)
    squared, beside = _to_segments(points.reshape(-1, 2), heading[:, ::EVERY].reshape(-1), segments)
    index = which.expand(len(squared), -1)
    least = squared.new_full((len(squared), len(lane)), torch.inf).scatter_reduce(1, index, squared, "amin")
    # Of the nearest segment of each lane; at a corner two are equally near, and then either will do.
    is_nearest = squared <= least[:, which]
    beside = least.new_full(least.shape, -torch.inf).scatter_reduce(
        1, index, torch.where(is_nearest, beside, -torch.inf), "amax"
    )
    # Where the map ends, the lane beside may be nearest because it ends later: what lies beyond an end counts little.
    aligned = least < MISALIGNED_M**2
    away = torch.where(aligned, beside**2 + BEYOND_END_WEIGHT * (least - beside**2), least)
    shape = (*points.shape[:2], len(lane))
    return LaneOffsets(
        away_m2=away.reshape(shape), beside_m=beside.reshape(shape), aligned=aligned.reshape(shape), lane=lane
    )


def _to_segments(
    points_m: Float[Tensor, "q 2"], heading_rad: Float[Tensor, " q"], segments: Segments
) -> tuple[Float[Tensor, "q S"], Float[Tensor, "q S"]]:
    """Squared distance (more where the heading is another), and offset to the left of each segment's line."""
    squared, _ = squared_distances(points_m, segments)
    forward = segments.step_m / torch.linalg.vector_norm(segments.step_m, dim=-1, keepdim=True)
    origin = segments.start_m[:, 1] * forward[:, 0] - segments.start_m[:, 0] * forward[:, 1]
    beside = points_m @ torch.stack([-forward[:, 1], forward[:, 0]]) - origin
    agreement = torch.stack([heading_rad.cos(), heading_rad.sin()], dim=-1) @ forward.T
    return squared + MISALIGNED_M**2 * (agreement < np.cos(ON_LANE.angle_rad)), beside


def _lanes_of(setting: Setting) -> Segments:
    """The lanes that the agent may use: bicycle lanes are for those who ride."""
    lanes, segments = setting.scene.map.lanes, setting.lanes
    if len(lanes) == 0:
        raise ObjectiveError(f"scene {setting.scene.id!r} has no lanes, expected a map with lane centrelines")
    if setting.scene.tracks.types[setting.agent] != TrackType.CYCLIST:
        for_all = torch.tensor(lanes.types != LaneType.BIKE, device=segments.line.device)
        segments = segments.where(for_all[segments.line])
    # Asked of the agent and not of the candidates: a search does not break off because of some of them.
    if len(segments) == 0 or squared_distances(setting.start_m[None], segments)[0].min() > REACH_M**2:
        raise ObjectiveError(
            f"no lane of scene {setting.scene.id!r} comes within {REACH_M:g} m of track {setting.agent_id!r}, "
            "expected one to be on"
        )
    return segments
