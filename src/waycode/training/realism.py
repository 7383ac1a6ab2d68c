"""What is wrong with decoded ways, whatever they mean: a loss for codes that nobody sent.

Search tries every code in every scene, but reconstruction teaches the decoder only those that fit the recording: what
"turn left" shall mean where no lane turns left is left to chance. Codes drawn at random have no recording to be
compared with, but they too must give a way that a car could drive: on lanes that lead on from its own, clear of the
road's edges, within the limits of tyres and steering. Nothing of this is in the paper.

R rows (an agent in a scene), K ways each, T steps, Q places on these ways, M pieces of the map.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from waycode.features import Batch
from waycode.model.correction import to_nearest_point, to_pieces_m2
from waycode.model.scene_encoder import MapPieces
from waycode.scene import TrackType

STRIDE = 8  # every so many steps are enough to see where a way lies
LANE_HALF_WIDTH_M = 1.9  # who changes lanes is never farther from both
MAP_KNOWN_M = 8.0  # without any lane so near, the map has ended or the place is none to drive
EDGE_MARGIN_M = 0.25
EDGE_WEIGHT, LANE_WEIGHT, MOTION_WEIGHT = 3.0, 1.0, 0.3  # per metre, metre, m/s^2
# Well within what `waycode.evaluation.realism` allows, and beyond what nearly all recorded cars do.
LONGITUDINAL_MPS2, LATERAL_MPS2, CURVATURE_1PM, CURVATURE_SPEED_MPS = 4.5, 4.0, 0.22, 2.0


@dataclass(frozen=True, kw_only=True)
class Cars:
    """Which rows are cars, and how large these are."""

    is_car: Bool[Tensor, " R"]
    length_m: Float[Tensor, " R"]
    width_m: Float[Tensor, " R"]


def cars_of(batch: Batch) -> Cars:
    scene_of_row, slot = batch.agents.mask.nonzero(as_tuple=True)
    track = batch.agents.track[scene_of_row, slot]
    length, width = batch.scene.track_size_m[scene_of_row, track].unbind(dim=-1)
    is_car = batch.scene.track_kind[scene_of_row, track] == TrackType.VEHICLE
    return Cars(is_car=is_car, length_m=length, width_m=width)


def random_codes(rows: int, count: int, length: int, *, token_dim: int, generator: torch.Generator) -> Tensor:
    """Codes [R, K, n, D] as search tries them: of two levels for one half of the rows, of three for the other."""
    shape = (rows, count, length, token_dim)
    two = 2.0 * torch.randint(0, 2, shape, generator=generator) - 1
    three = torch.randint(0, 3, shape, generator=generator) - 1.0
    return torch.where((torch.arange(rows) % 2 == 0)[:, None, None, None], two, three)


def realism_loss(
    mean_m: Float[Tensor, "R K T 2"],
    recorded_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    pieces: MapPieces,
    cars: Cars,
    *,
    dt_s: float,
) -> Float[Tensor, ""]:
    """Mean over cars of what their ways do wrong; a rule that a recorded car itself breaks does not hold for it."""
    with torch.no_grad():
        seen = valid[:, None, STRIDE - 1 :: STRIDE]
        beside, reaching = off_lane_m(recorded_m[:, None], pieces), into_edge_m(recorded_m[:, None], pieces, cars)
        keeps_lanes = cars.is_car & ~((beside > 0) & seen).any(dim=-1)[:, 0]
        keeps_clear = cars.is_car & ~((reaching > EDGE_MARGIN_M) & seen).any(dim=-1)[:, 0]
    lanes = off_lane_m(mean_m, pieces).mean(dim=(1, 2)) * keeps_lanes
    edges = into_edge_m(mean_m, pieces, cars).mean(dim=(1, 2)) * keeps_clear
    motion = beyond_limits_mps2(mean_m, dt_s=dt_s).mean(dim=(1, 2)) * cars.is_car
    return (LANE_WEIGHT * lanes + EDGE_WEIGHT * edges + MOTION_WEIGHT * motion).mean()


def off_lane_m(mean_m: Float[Tensor, "R K T 2"], pieces: MapPieces) -> Float[Tensor, "R K _"]:
    """How far ways are outside the lanes that lead on from the car's own, where the map is known."""
    places = mean_m[:, :, STRIDE - 1 :: STRIDE]
    shape, flat = places.shape[:3], places.flatten(1, 2)
    away = to_pieces_m2(flat, pieces)
    beside, distance = beside_nearest(flat, pieces, away, pieces.is_lane & (pieces.reach > 0))
    _, to_any = beside_nearest(flat.detach(), pieces, away, pieces.is_lane)
    outside = (beside - LANE_HALF_WIDTH_M).clamp(min=0)
    return torch.where(distance.isfinite() & (to_any < MAP_KNOWN_M), outside, 0).view(shape)


def into_edge_m(mean_m: Float[Tensor, "R K T 2"], pieces: MapPieces, cars: Cars) -> Float[Tensor, "R K _"]:
    """How far the body, as three discs one behind the other, reaches into road edges and their margin."""
    before = functional.pad(mean_m, (0, 0, 1, 0))[:, :, :-1]
    motion = (mean_m - before)[:, :, STRIDE - 1 :: STRIDE]
    ahead = motion / (motion.square().sum(dim=-1, keepdim=True) + 1e-4).sqrt()  # 1 cm: who stands is one disc
    reach = (cars.length_m - cars.width_m).clamp(min=0) / 2
    along = torch.stack([-reach, torch.zeros_like(reach), reach], dim=-1)[:, None, None, :, None]  # [R, 1, 1, 3, 1]
    discs = mean_m[:, :, STRIDE - 1 :: STRIDE, None] + along * ahead[..., None, :]
    places = discs.flatten(1, 3)
    _, distance = beside_nearest(places, pieces, to_pieces_m2(places, pieces), pieces.is_edge)
    depth = (cars.width_m[:, None] / 2 + EDGE_MARGIN_M - distance).clamp(min=0)
    return depth.view(discs.shape[:4]).amax(dim=-1)


def beyond_limits_mps2(mean_m: Float[Tensor, "R K T 2"], *, dt_s: float) -> Float[Tensor, "R K _"]:
    """How much ways accelerate, brake or swerve more than cars do, or turn tighter."""
    joined = functional.pad(mean_m, (0, 0, 1, 0))  # from the current position on
    velocity = (joined[:, :, 2:] - joined[:, :, :-2]) / (2 * dt_s)
    acceleration = (joined[:, :, 2:] - 2 * joined[:, :, 1:-1] + joined[:, :, :-2]) / dt_s**2
    speed = (velocity.square().sum(dim=-1) + 1e-4).sqrt()
    moving = speed.clamp(min=CURVATURE_SPEED_MPS)
    longitudinal = (velocity * acceleration).sum(dim=-1) / moving
    lateral = (velocity[..., 0] * acceleration[..., 1] - velocity[..., 1] * acceleration[..., 0]) / moving
    allowed = (CURVATURE_1PM * moving.square()).clamp(max=LATERAL_MPS2)
    return (longitudinal.abs() - LONGITUDINAL_MPS2).clamp(min=0) + (lateral.abs() - allowed).clamp(min=0)


def beside_nearest(
    places: Float[Tensor, "R Q 2"], pieces: MapPieces, away_m2: Float[Tensor, "R Q M"], among: Bool[Tensor, "R M"]
) -> tuple[Float[Tensor, "R Q"], Float[Tensor, "R Q"]]:
    """How far places lie beside the nearest of some pieces, and how far from it in all (infinite if there is none).

    `away_m2` is what `to_pieces_m2` says of them. Who is past the end of the last piece is not beside it.
    """
    value, chosen = away_m2.masked_fill(~among[:, None], torch.inf).min(dim=-1, keepdim=True)  # [R, Q, 1]
    rows = torch.arange(len(places), device=places.device)[:, None, None]
    offset, direction = to_nearest_point(places[:, :, None], pieces.points_m[rows, chosen])  # [R, Q, 1, 2]
    beside = (direction[..., 0] * offset[..., 1] - direction[..., 1] * offset[..., 0]).abs()[..., 0]
    distance = (offset.square().sum(dim=-1)[..., 0] + 1e-6).sqrt()
    return beside, distance.masked_fill(value[..., 0].isinf(), torch.inf)
