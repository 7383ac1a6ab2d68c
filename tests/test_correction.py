"""The correction by the map: control points and the lanes and road edges next to them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tiny_model import (
    batch_of,
    crowd,
    map_polylines,
    moved,
    random_latents,
    reconstruct,
    sample_scenes,
    scene_tokens,
    seen_by,
    tiny_config,
    tiny_model,
)
from waycode import Scene
from waycode.model import Model
from waycode.model.map_correction import MapCorrection, nearest_polylines, rotate_into_frame
from waycode.model.scene_encoder import MapPolylines
from waycode.scene.geometry_torch import offset_to_polylines


def straight_lines(*lanes_m: float, edges_m: tuple[float, ...] = ()) -> MapPolylines:
    """Lanes along x at these distances to the left, and road edges, each 10 m long."""
    along = torch.linspace(0, 10, 6)
    lines = [torch.stack([along, torch.full((6,), offset)], dim=-1) for offset in (*lanes_m, *edges_m)]
    is_edge = torch.tensor([[False] * len(lanes_m) + [True] * len(edges_m)])
    return map_polylines(torch.stack(lines)[None], is_lane=~is_edge, is_edge=is_edge)


def new_correction(model: Model) -> MapCorrection:
    assert model.decoder.correction is not None
    return model.decoder.correction


def offsets(
    correction: MapCorrection,
    points: Tensor,
    polylines: MapPolylines,
    *,
    velocity_mps: float = 0.0,
    tokens: Tensor | None = None,
) -> Tensor:
    """Offsets of control points [1, K, 4, 2], with hidden states of zeros and, by default, scene tokens of zeros."""
    if tokens is None:
        tokens = torch.zeros(1, polylines.is_lane.shape[1], 16)
    relation, velocity = torch.zeros(1, 1, tokens.shape[1], 12), torch.tensor([[velocity_mps, 0.0]])
    scene = scene_tokens(tokens, polylines, velocity_mps=velocity, relation=relation)
    state = torch.zeros(1, points.shape[1], 16)
    moved_by: Tensor = correction(points, state, scene, correction.embed_meaning(scene.tokens))[0]
    return moved_by


def test_nearest_point_of_a_polyline_by_hand() -> None:
    corner = torch.tensor([[[[[0.0, 0.0], [4.0, 0.0], [4.0, 4.0]]]]])
    place = torch.tensor([[[[1.0, 2.0]], [[5.0, 3.0]], [[-3.0, -4.0]]]])  # beside it, around the corner, before it
    offset, direction = offset_to_polylines(place, corner.expand(1, 3, 1, 3, 2))
    np.testing.assert_allclose(offset[0, :, 0], [[0, -2], [-1, 0], [3, 4]], atol=1e-6)
    np.testing.assert_allclose(direction[0, :, 0], [[1, 0], [0, 1], [1, 0]], atol=1e-6)


def test_vectors_in_a_frame_by_hand() -> None:
    ahead, left = rotate_into_frame(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))  # ahead is up
    assert (ahead.item(), left.item()) == (2.0, -1.0)


def test_the_nearest_lanes_and_the_nearest_edges_are_chosen() -> None:
    polylines = straight_lines(8.0, 0.0, 4.0, edges_m=(-2.0, 10.0, 30.0))
    chosen, present = nearest_polylines(torch.tensor([[[5.0, 1.0]]]), polylines)
    assert chosen[present].tolist() == [1, 2, 0, 3, 4]  # three lanes, then the two nearest of three edges


def test_tokens_that_are_neither_lanes_nor_edges_are_not_chosen() -> None:
    polylines = straight_lines(0.0, 4.0)
    empty = replace(polylines, is_lane=polylines.is_edge)
    assert not nearest_polylines(torch.zeros(1, 1, 2), empty)[1].any()


def test_an_untrained_correction_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Model(tiny_config()).eval()
    batch = batch_of(sample_scenes()[0])
    without = Model(tiny_config(correction_width=0)).eval()
    without.load_state_dict({name: value for name, value in model.state_dict().items() if "correction" not in name})
    torch.testing.assert_close(reconstruct(model, batch), reconstruct(without, batch), atol=1e-4, rtol=1e-4)


def test_control_points_move_to_the_lane_beside_them() -> None:
    """With all weights zero but the share of the offset to a lane, every control point moves to the nearest lane."""
    torch.manual_seed(0)
    correction = new_correction(Model(tiny_config()).eval())
    with torch.no_grad():
        correction.move.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    points = torch.zeros(1, 1, 4, 2)
    points[..., 1] = 1.0  # a metre to the left of a lane
    beside = (correction.position_basis @ points)[..., 1]
    for lanes, share in (((0.0,), (0.999, 1.001)), ((0.0, 3.5), (0.2, 0.5)), ((40.0,), (-0.001, 0.001))):
        change = offsets(correction, points, straight_lines(*lanes), velocity_mps=3.0)[..., 1]
        least, most = share  # less if there is another lane to the left, and nothing if the only one is far away
        assert (-change >= least * beside).all(), lanes
        assert (-change <= most * beside).all(), lanes


def test_learned_offsets_do_not_move_standing_agents() -> None:
    correction = new_correction(Model(tiny_config()))
    with torch.no_grad():
        correction.move.bias.copy_(torch.tensor([1.0, 1.0, 0.0]))
    change = offsets(correction, torch.zeros(1, 1, 4, 2), straight_lines(0.0))
    torch.testing.assert_close(change, torch.zeros_like(change))


def test_the_embedding_of_a_polyline_is_that_of_its_token() -> None:
    """Polylines are ordered by their distance, tokens are not: `token` joins them."""
    correction, tokens = new_correction(tiny_model()), random_latents(1, 3, 16)
    points, polylines = random_latents(1, 2, 4, 2), straight_lines(0.0, 3.0, 6.0)
    found = offsets(correction, points, polylines, velocity_mps=3.0, tokens=tokens)
    order = torch.tensor([2, 0, 1])
    shuffled = replace(polylines, token=order.argsort()[None])
    torch.testing.assert_close(offsets(correction, points, shuffled, velocity_mps=3.0, tokens=tokens[:, order]), found)
    other = offsets(correction, points, shuffled, velocity_mps=3.0, tokens=tokens)
    assert (other - found).abs().max() > 1e-3


@pytest.mark.parametrize("reachability", [True, False])
def test_reachability_is_an_input_unless_it_is_switched_off(reachability: bool) -> None:
    correction = new_correction(tiny_model(reachability=reachability))
    points, polylines = random_latents(1, 2, 4, 2), straight_lines(0.0, 3.0)
    one, other = (
        offsets(correction, points, replace(polylines, reachability=value), velocity_mps=3.0)
        for value in (torch.zeros(1, 2), torch.tensor([[1.0, 0.5]]))
    )
    assert bool((one - other).abs().max() > 1e-4) == reachability


def corrected(model: Model, scene: Scene) -> Tensor:
    _, embedding = seen_by(model, batch_of(scene))
    return model.decode(random_latents(len(embedding.velocity_mps), 2, 3, 3), embedding)[0]


def test_motion_of_the_scene_changes_nothing() -> None:
    model, scene = tiny_model(), crowd()
    turned = moved(scene, angle_rad=1.1, shift_m=(300.0, -120.0))
    torch.testing.assert_close(corrected(model, scene), corrected(model, turned), atol=2e-2, rtol=1e-3)


def test_without_lanes_and_edges_offsets_and_gradients_are_finite() -> None:
    correction = new_correction(tiny_model())
    nothing = torch.zeros(1, 1, dtype=torch.bool)
    polylines = map_polylines(torch.zeros(1, 1, 6, 2), is_lane=nothing, is_edge=nothing)
    points = random_latents(1, 2, 4, 2).requires_grad_()
    change = offsets(correction, points, polylines, velocity_mps=3.0)
    assert change.isfinite().all()
    (gradient,) = torch.autograd.grad(change.square().sum(), points)
    assert gradient.isfinite().all()


def test_no_rows() -> None:
    correction = new_correction(tiny_model())
    nothing = torch.zeros(0, 3, dtype=torch.bool)
    polylines = map_polylines(torch.zeros(0, 3, 6, 2), is_lane=nothing, is_edge=nothing)
    scene = scene_tokens(
        torch.zeros(0, 3, 16), polylines, velocity_mps=torch.zeros(0, 2), relation=torch.zeros(0, 1, 3, 12)
    )
    found = correction(torch.zeros(0, 5, 4, 2), torch.zeros(0, 5, 16), scene, torch.zeros(0, 3, 64))
    assert [part.shape for part in found] == [(0, 5, 4, 2), (0, 5, 4, 2)]


def test_a_correction_without_a_spline_is_refused() -> None:
    with pytest.raises(ValueError, match="spline_points is None, expected a number"):
        MapCorrection(tiny_config(spline_points=None), fixed_points=2)
