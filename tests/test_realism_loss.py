"""The realism loss of random codes: lanes, edges and limits, by hand on straight roads."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tiny_model import batch_of, futures_of, map_polylines, observed, sample_scenes, seen_by, tiny_model
from waycode.model.scene_encoder import MapPolylines
from waycode.scene import TrackType
from waycode.training.realism import (
    EDGE_MARGIN_M,
    LANE_HALF_WIDTH_M,
    LIMIT_LATERAL_MPS2,
    LIMIT_LONGITUDINAL_MPS2,
    Cars,
    cars_of,
    excess_acceleration_mps2,
    into_edge_m,
    off_lane_m,
    random_codes,
    realism_loss,
)

STEPS, DT_S = 80, 0.1
TIME_S = torch.arange(1, STEPS + 1) * DT_S


def straight(y_m: float, *, first_m: float = -20.0, last_m: float = 100.0) -> Tensor:
    """A polyline [P, 2] along x."""
    return torch.stack([torch.linspace(first_m, last_m, 60), torch.full((60,), y_m)], dim=-1)


def road(*, last_m: float = 100.0) -> MapPolylines:
    """Two reachable lanes, 3.5 m apart; an oncoming lane to their left; an edge on the right."""
    lines = [straight(y, last_m=last_m) for y in (0.0, 3.5, 7.0, -1.75)]
    return map_polylines(
        torch.stack(lines)[None],
        is_lane=torch.tensor([[True, True, True, False]]),
        is_edge=torch.tensor([[False, False, False, True]]),
        reachability=torch.tensor([[1.0, 0.5, 0.0, 0.0]]),
    )


def trajectory(speed_mps: float, y_m: float | Tensor) -> Tensor:
    """[1, 1, T, 2], along x"""
    return torch.stack([speed_mps * TIME_S, torch.as_tensor(y_m).expand(STEPS)], dim=-1)[None, None]


CAR = Cars(is_car=torch.tensor([True]), length_m=torch.tensor([4.5]), width_m=torch.tensor([1.8]))


def test_reachable_lanes_may_be_driven_and_changed() -> None:
    for y in (0.0, 1.75, 3.5, 3.5 + LANE_HALF_WIDTH_M - 0.01):
        assert off_lane_m(trajectory(10.0, y), road()).max() == 0
    beyond = off_lane_m(trajectory(10.0, 7.0), road())  # on the oncoming lane
    torch.testing.assert_close(beyond, torch.full_like(beyond, 3.5 - LANE_HALF_WIDTH_M))


def test_past_the_end_of_the_map_there_is_no_penalty() -> None:
    short = road(last_m=40.0)
    assert off_lane_m(trajectory(10.0, 0.0), short).max() == 0  # straight on past the last point
    outside = off_lane_m(trajectory(10.0, 7.0), short)[0, 0]
    assert outside[0] > 0
    assert outside[-1] == 0


def test_without_a_map_there_is_no_penalty() -> None:
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    empty = replace(road(), is_lane=nothing, is_edge=nothing)
    assert off_lane_m(trajectory(10.0, 7.0), empty).max() == 0
    assert into_edge_m(trajectory(10.0, -1.75), empty, CAR).max() == 0


def test_the_body_keeps_clear_of_the_edge() -> None:
    assert into_edge_m(trajectory(10.0, 0.0), road(), CAR).max() == 0  # 1.75 m away; the body reaches 0.9 m
    depth = into_edge_m(trajectory(10.0, -1.0), road(), CAR)
    torch.testing.assert_close(depth, torch.full_like(depth, 0.9 + EDGE_MARGIN_M - 0.75), atol=1e-3, rtol=0)


def test_a_body_across_the_lane_reaches_farther() -> None:
    """Driving towards the edge, its front disc is 1.35 m ahead of the centre."""
    towards = torch.stack([torch.zeros(STEPS), -0.05 * TIME_S * 10 / 8], dim=-1)[None, None]
    depth = into_edge_m(towards, road(), CAR)[0, 0, -1]
    assert depth == pytest.approx(0.9 + EDGE_MARGIN_M - (1.75 - 0.5 - 1.35 * 0.53), abs=0.1)


@pytest.mark.parametrize("braking", [1.0, LIMIT_LONGITUDINAL_MPS2 - 0.1, LIMIT_LONGITUDINAL_MPS2 + 2.0])
def test_braking_beyond_the_limit(braking: float) -> None:
    moving_s = TIME_S.clamp(max=10.0 / braking)
    x = 10 * moving_s - braking * moving_s**2 / 2
    beyond = excess_acceleration_mps2(torch.stack([x, torch.zeros(STEPS)], dim=-1)[None, None], dt_s=DT_S)
    first = beyond[0, 0, 1:5]
    torch.testing.assert_close(
        first, torch.full_like(first, max(0.0, braking - LIMIT_LONGITUDINAL_MPS2)), atol=2e-2, rtol=0
    )


@pytest.mark.parametrize(
    ("speed", "radius", "expected"), [(10.0, 30.0, 0.0), (10.0, 20.0, 5 - LIMIT_LATERAL_MPS2), (3.0, 3.0, 3 - 0.22 * 9)]
)
def test_turning_beyond_the_limit(speed: float, radius: float, expected: float) -> None:
    """v^2 / r sideways; the steering angle limits slow cars."""
    angle = speed * TIME_S / radius
    circle = radius * torch.stack([angle.sin(), 1 - angle.cos()], dim=-1)[None, None]
    beyond = excess_acceleration_mps2(circle, dt_s=DT_S)[0, 0]
    torch.testing.assert_close(beyond, torch.full_like(beyond, expected), atol=3e-2, rtol=0)


def test_a_rule_that_the_recorded_car_violates_does_not_apply() -> None:
    share = (TIME_S / 5).clamp(max=1)
    on_lane, off_lane = trajectory(10.0, 0.0), trajectory(10.0, 7 * share**2 * (3 - 2 * share)).requires_grad_()
    seen = torch.ones(1, STEPS, dtype=torch.bool)

    def loss(recorded: Tensor, cars: Cars = CAR) -> Tensor:
        return realism_loss(off_lane, recorded[:, 0], seen, road(), cars, dt_s=DT_S)

    (slope,) = torch.autograd.grad(loss(on_lane), off_lane)
    assert (slope[0, 0, 39::8, 1] > 0).all()  # less y is better
    assert loss(off_lane.detach()) == 0
    pedestrian = Cars(is_car=torch.tensor([False]), length_m=CAR.length_m, width_m=CAR.width_m)
    assert loss(on_lane, pedestrian) == 0


def test_random_codes_have_the_levels_of_a_search() -> None:
    codes = random_codes(6, 50, 3, token_dim=2, generator=torch.Generator().manual_seed(0))
    assert codes.shape == (6, 50, 3, 2)
    assert set(codes[::2].flatten().tolist()) == {-1.0, 1.0}
    assert set(codes[1::2].flatten().tolist()) == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("reachability", [True, False])
@torch.no_grad()
def test_reachable_lanes_are_known_whether_the_model_sees_them_or_not(reachability: bool) -> None:
    """Recorded cars of the bundled scenes stay on reachable lanes; moved 6 m to the side, most do not."""
    model = tiny_model(reachability=reachability, max_scene_tokens=600, nearby_polylines=600)
    batch = batch_of(*sample_scenes(), config=model.config.features)
    scene, _ = seen_by(model, batch)
    future, valid = futures_of(batch)
    rows = cars_of(batch).is_car & valid.all(dim=1)
    recorded = off_lane_m(future[:, None], scene.map)[rows]
    beside = off_lane_m(future[:, None] + torch.tensor([0.0, -6.0]), scene.map)[rows]
    assert (recorded.amax(dim=(1, 2)) == 0).float().mean() > 0.8
    assert (beside.amax(dim=(1, 2)) > 0).float().mean() > 0.5


def test_cars_are_in_the_order_of_the_rows() -> None:
    """Of scenes with different numbers of agents."""
    scenes = sample_scenes()[:3]
    batch = batch_of(*scenes, agents=4)
    batch = replace(batch, agents=replace(batch.agents, mask=torch.arange(4) < torch.tensor([[3], [0], [1]])))
    found = cars_of(batch)
    expected = [(0, 0), (0, 1), (0, 2), (2, 0)]
    for row, (scene, slot) in enumerate(expected):
        track = observed(scenes[scene], 4)[slot]
        assert found.length_m[row] == scenes[scene].tracks.length_m[track]
        assert found.width_m[row] == scenes[scene].tracks.width_m[track]
        assert found.is_car[row] == (scenes[scene].tracks.types[track] == TrackType.VEHICLE)
    assert len(found.length_m) == len(expected)
