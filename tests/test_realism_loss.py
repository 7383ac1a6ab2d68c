"""The loss for codes that nobody sent: lanes, edges and limits, by hand on straight roads."""

import pytest
import torch
from torch import Tensor

from waycode.model.scene_encoder import MapPolylines
from waycode.training.realism import (
    EDGE_MARGIN_M,
    LANE_HALF_WIDTH_M,
    LIMIT_LATERAL_MPS2,
    LIMIT_LONGITUDINAL_MPS2,
    Cars,
    excess_acceleration_mps2,
    into_edge_m,
    off_lane_m,
    random_codes,
    realism_loss,
)

STEPS, DT_S = 80, 0.1
TIME_S = torch.arange(1, STEPS + 1) * DT_S


def straight(y_m: float, *, first_m: float = -20.0, last_m: float = 100.0) -> Tensor:
    """A piece of the map [P, 2] along x."""
    return torch.stack([torch.linspace(first_m, last_m, 60), torch.full((60,), y_m)], dim=-1)


def road(*, last_m: float = 100.0) -> MapPolylines:
    """Two lanes, 3.5 m apart, that lead on; one the other way on their left, that does not; an edge on the right."""
    pieces = [straight(y, last_m=last_m) for y in (0.0, 3.5, 7.0, -1.75)]
    return MapPolylines(
        points_m=torch.stack(pieces)[None],
        is_lane=torch.tensor([[True, True, True, False]]),
        is_edge=torch.tensor([[False, False, False, True]]),
        reachability=torch.tensor([[1.0, 0.5, 0.0, 0.0]]),
    )


def way(speed_mps: float, y_m: float | Tensor) -> Tensor:
    """[1, 1, T, 2]"""
    return torch.stack([speed_mps * TIME_S, torch.as_tensor(y_m).expand(STEPS)], dim=-1)[None, None]


CAR = Cars(is_car=torch.tensor([True]), length_m=torch.tensor([4.5]), width_m=torch.tensor([1.8]))


def test_lanes_that_lead_on_may_be_driven_and_changed() -> None:
    for y in (0.0, 1.75, 3.5, 3.5 + LANE_HALF_WIDTH_M - 0.01):
        assert off_lane_m(way(10.0, y), road()).max() == 0
    beyond = off_lane_m(way(10.0, 7.0), road())  # on the lane of those who come the other way
    torch.testing.assert_close(beyond, torch.full_like(beyond, 3.5 - LANE_HALF_WIDTH_M))


def test_past_the_end_of_the_map_nothing_is_known() -> None:
    short = road(last_m=40.0)
    assert off_lane_m(way(10.0, 0.0), short).max() == 0  # straight on past the last point
    outside = off_lane_m(way(10.0, 7.0), short)[0, 0]
    assert outside[0] > 0
    assert outside[-1] == 0


def test_no_lane_at_all_is_no_fault() -> None:
    pieces = road()
    nowhere = MapPolylines(
        points_m=pieces.points_m,
        is_lane=pieces.is_lane & False,
        is_edge=pieces.is_edge & False,
        reachability=pieces.reachability,
    )
    assert off_lane_m(way(10.0, 7.0), nowhere).max() == 0
    assert into_edge_m(way(10.0, -1.75), nowhere, CAR).max() == 0


def test_the_body_keeps_clear_of_the_edge() -> None:
    assert into_edge_m(way(10.0, 0.0), road(), CAR).max() == 0  # 1.75 m away; the body reaches 0.9 m
    depth = into_edge_m(way(10.0, -1.0), road(), CAR)
    torch.testing.assert_close(depth, torch.full_like(depth, 0.9 + EDGE_MARGIN_M - 0.75), atol=1e-3, rtol=0)


def test_a_body_that_stands_across_reaches_farther() -> None:
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
    """v^2 / r sideways; slow cars are bound by how far their wheels turn."""
    angle = speed * TIME_S / radius
    circle = radius * torch.stack([angle.sin(), 1 - angle.cos()], dim=-1)[None, None]
    beyond = excess_acceleration_mps2(circle, dt_s=DT_S)[0, 0]
    torch.testing.assert_close(beyond, torch.full_like(beyond, expected), atol=3e-2, rtol=0)


def test_the_loss_pulls_ways_back_and_spares_who_broke_the_rule() -> None:
    share = (TIME_S / 5).clamp(max=1)
    fine, wrong = way(10.0, 0.0), way(10.0, 7 * share**2 * (3 - 2 * share)).requires_grad_()
    seen = torch.ones(1, STEPS, dtype=torch.bool)

    def loss(recorded: Tensor, cars: Cars = CAR) -> Tensor:
        return realism_loss(wrong, recorded[:, 0], seen, road(), cars, dt_s=DT_S)

    (slope,) = torch.autograd.grad(loss(fine), wrong)
    assert (slope[0, 0, 39::8, 1] > 0).all()  # less y is better
    assert loss(wrong.detach()) == 0  # whoever was recorded there may drive there
    walker = Cars(is_car=torch.tensor([False]), length_m=CAR.length_m, width_m=CAR.width_m)
    assert loss(fine, walker) == 0


def test_random_codes_have_the_levels_of_a_search() -> None:
    codes = random_codes(6, 50, 3, token_dim=2, generator=torch.Generator().manual_seed(0))
    assert codes.shape == (6, 50, 3, 2)
    assert set(codes[::2].flatten().tolist()) == {-1.0, 1.0}
    assert set(codes[1::2].flatten().tolist()) == {-1.0, 0.0, 1.0}
