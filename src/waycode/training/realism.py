"""The realism loss: rules that the trajectory of any code must keep (ours, not in the paper).

Search decodes every code in every scene, but reconstruction trains only the codes that fit the recording. The code of
a left turn is untrained where no lane turns left. Random codes have no recording to compare with, but their
trajectories must be drivable: on reachable lanes, clear of road edges, within the limits of tyres and steering.

R rows (an agent in a scene), K candidates, T steps, Q points of these, M map polylines.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from waycode.features import Batch
from waycode.model.map_correction import squared_distances_to_polylines
from waycode.model.scene_encoder import MapPolylines
from waycode.scene import TrackType
from waycode.scene.geometry_torch import offset_to_polylines

_STRIDE = 8  # every eighth step suffices to locate a trajectory
LANE_HALF_WIDTH_M = 1.9  # during a lane change, the distance to the nearer centreline stays below this
_MAP_KNOWN_M = 8.0  # without any lane within this distance, the map has ended or the place is not for driving
EDGE_MARGIN_M = 0.25
_EDGE_WEIGHT, _LANE_WEIGHT, MOTION_WEIGHT = 3.0, 1.0, 0.3  # per metre, per metre, per m/s^2
# Well within the limits of `waycode.evaluation.realism`, and beyond what nearly all recorded cars do.
LIMIT_LONGITUDINAL_MPS2, LIMIT_LATERAL_MPS2, _LIMIT_CURVATURE_1PM = 4.5, 4.0, 0.22
_MIN_CURVATURE_SPEED_MPS = 2.0  # curvature is not measured below this speed


@dataclass(frozen=True, kw_only=True)
class Cars:
    """Which rows are cars, and their sizes."""

    is_car: Bool[Tensor, " R"]
    length_m: Float[Tensor, " R"]
    width_m: Float[Tensor, " R"]


def cars_of(batch: Batch) -> Cars:
    """Types and sizes of the modelled agents of all scenes."""
    scene_of_row, slot = batch.agents.mask.nonzero(as_tuple=True)
    track = batch.agents.track[scene_of_row, slot]
    length, width = batch.scene.track_size_m[scene_of_row, track].unbind(dim=-1)
    is_car = batch.scene.track_kind[scene_of_row, track] == TrackType.VEHICLE
    return Cars(is_car=is_car, length_m=length, width_m=width)


def random_codes(
    rows: int, count: int, length: int, *, token_dim: int, generator: torch.Generator
) -> Float[Tensor, "R K n D"]:
    """Random codes as search decodes them: two levels per dimension in even rows, three in odd rows.

    Args:
        rows: number of rows R.
        count: codes per row, K.
        length: tokens per code, n.
        token_dim: latent dimensions D.
        generator: source of randomness.
    """
    shape = (rows, count, length, token_dim)
    two = 2.0 * torch.randint(0, 2, shape, generator=generator, device="cpu") - 1
    three = torch.randint(0, 3, shape, generator=generator, device="cpu") - 1.0
    return torch.where((torch.arange(rows, device="cpu") % 2 == 0)[:, None, None, None], two, three)


def realism_loss(
    mean_m: Float[Tensor, "R K T 2"],
    recorded_m: Float[Tensor, "R T 2"],
    valid: Bool[Tensor, "R T"],
    polylines: MapPolylines,
    cars: Cars,
    *,
    dt_s: float,
) -> Float[Tensor, ""]:
    """Mean over rows of the rule violations of decoded trajectories.

    Args:
        mean_m: decoded trajectories, in the agents' frames.
        recorded_m: recorded trajectories; a rule that the recorded car violates does not apply to its row.
        valid: true where `recorded_m` was observed.
        polylines: the map around each agent.
        cars: only cars have rules.
        dt_s: time step.
    """
    with torch.no_grad():
        observed = valid[:, None, _STRIDE - 1 :: _STRIDE]
        outside_m = off_lane_m(recorded_m[:, None], polylines)  # [R, 1, T / stride]
        depth_m = into_edge_m(recorded_m[:, None], polylines, cars)
        keeps_lanes = cars.is_car & ~((outside_m > 0) & observed).any(dim=-1)[:, 0]
        keeps_clear = cars.is_car & ~((depth_m > EDGE_MARGIN_M) & observed).any(dim=-1)[:, 0]
    lanes = off_lane_m(mean_m, polylines).mean(dim=(1, 2)) * keeps_lanes
    edges = into_edge_m(mean_m, polylines, cars).mean(dim=(1, 2)) * keeps_clear
    motion = excess_acceleration_mps2(mean_m, dt_s=dt_s).mean(dim=(1, 2)) * cars.is_car
    return (_LANE_WEIGHT * lanes + _EDGE_WEIGHT * edges + MOTION_WEIGHT * motion).mean()


def off_lane_m(mean_m: Float[Tensor, "R K T 2"], polylines: MapPolylines) -> Float[Tensor, "R K _"]:
    """Distance of trajectories outside the lanes reachable from the agent's lane; 0 where the map is unknown."""
    points = mean_m[:, :, _STRIDE - 1 :: _STRIDE]
    shape, flat = points.shape[:3], points.flatten(1, 2)  # [R, Q, 2]
    squared = squared_distances_to_polylines(flat, polylines)
    reachable_lanes = polylines.is_lane & (polylines.reachability > 0)
    lateral, distance = distance_to_nearest(flat, polylines, squared, reachable_lanes)
    _, to_any_lane = distance_to_nearest(flat.detach(), polylines, squared, polylines.is_lane)
    outside = (lateral - LANE_HALF_WIDTH_M).clamp(min=0)
    return torch.where(distance.isfinite() & (to_any_lane < _MAP_KNOWN_M), outside, 0).view(shape)


def into_edge_m(mean_m: Float[Tensor, "R K T 2"], polylines: MapPolylines, cars: Cars) -> Float[Tensor, "R K _"]:
    """Depth of the body, approximated by three discs in a row, in road edges and their margin."""
    before = functional.pad(mean_m, (0, 0, 1, 0))[:, :, :-1]
    motion = (mean_m - before)[:, :, _STRIDE - 1 :: _STRIDE]
    ahead = motion / (motion.square().sum(dim=-1, keepdim=True) + 1e-4).sqrt()  # below 1 cm per step: one disc
    reach = (cars.length_m - cars.width_m).clamp(min=0) / 2
    along = torch.stack([-reach, torch.zeros_like(reach), reach], dim=-1)[:, None, None, :, None]  # [R, 1, 1, 3, 1]
    discs = mean_m[:, :, _STRIDE - 1 :: _STRIDE, None] + along * ahead[..., None, :]  # [R, K, T / stride, 3, 2]
    points = discs.flatten(1, 3)  # [R, Q, 2]
    squared = squared_distances_to_polylines(points, polylines)
    _, distance = distance_to_nearest(points, polylines, squared, polylines.is_edge)
    depth = (cars.width_m[:, None] / 2 + EDGE_MARGIN_M - distance).clamp(min=0)
    return depth.view(discs.shape[:4]).amax(dim=-1)


def excess_acceleration_mps2(mean_m: Float[Tensor, "R K T 2"], *, dt_s: float) -> Float[Tensor, "R K _"]:
    """Longitudinal and lateral acceleration beyond a car's limits; curvature limits the lateral one at low speed."""
    joined = functional.pad(mean_m, (0, 0, 1, 0))  # from the current position on
    velocity = (joined[:, :, 2:] - joined[:, :, :-2]) / (2 * dt_s)
    acceleration = (joined[:, :, 2:] - 2 * joined[:, :, 1:-1] + joined[:, :, :-2]) / dt_s**2
    speed = (velocity.square().sum(dim=-1) + 1e-4).sqrt()
    moving = speed.clamp(min=_MIN_CURVATURE_SPEED_MPS)
    longitudinal = (velocity * acceleration).sum(dim=-1) / moving
    lateral = (velocity[..., 0] * acceleration[..., 1] - velocity[..., 1] * acceleration[..., 0]) / moving
    allowed = (_LIMIT_CURVATURE_1PM * moving.square()).clamp(max=LIMIT_LATERAL_MPS2)
    return (longitudinal.abs() - LIMIT_LONGITUDINAL_MPS2).clamp(min=0) + (lateral.abs() - allowed).clamp(min=0)


def distance_to_nearest(
    points: Float[Tensor, "R Q 2"],
    polylines: MapPolylines,
    squared_m2: Float[Tensor, "R Q M"],
    among: Bool[Tensor, "R M"],
) -> tuple[Float[Tensor, "R Q"], Float[Tensor, "R Q"]]:
    """Lateral distance to the nearest of the polylines `among`, and the distance (infinite if there is none).

    The lateral distance ignores how far a point is past the end of the polyline. `squared_m2` is the result of
    `squared_distances_to_polylines` for the points.
    """
    value, chosen = squared_m2.masked_fill(~among[:, None], torch.inf).min(dim=-1, keepdim=True)  # [R, Q, 1]
    rows = torch.arange(len(points), device=points.device)[:, None, None]
    offset, direction = offset_to_polylines(points[:, :, None], polylines.points_m[rows, chosen])  # [R, Q, 1, 2]
    lateral = (direction[..., 0] * offset[..., 1] - direction[..., 1] * offset[..., 0]).abs()[..., 0]
    distance = (offset.square().sum(dim=-1)[..., 0] + 1e-6).sqrt()
    return lateral, distance.masked_fill(value[..., 0].isinf(), torch.inf)
