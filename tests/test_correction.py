"""The decoded way is put right by the map next to it."""

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from tiny_model import (
    batch_of,
    crowd,
    moved,
    random_latents,
    reconstruct,
    sample_scenes,
    seen_by,
    tiny_config,
    tiny_model,
)
from waycode.model import Model
from waycode.model.map_correction import MapCorrection, nearest_polylines, rotate_into_frame
from waycode.model.scene_encoder import MapPolylines, SceneTokens
from waycode.scene.geometry_torch import offset_to_polylines


def straight_pieces(*offsets_m: float, edges_m: tuple[float, ...] = ()) -> MapPolylines:
    """Lanes along x at these distances to the left, and road edges, each of 10 m."""
    along = torch.linspace(0, 10, 6)
    lines = [torch.stack([along, torch.full((6,), offset)], dim=-1) for offset in (*offsets_m, *edges_m)]
    is_edge = torch.tensor([[False] * len(offsets_m) + [True] * len(edges_m)])
    return MapPolylines(
        points_m=torch.stack(lines)[None], is_lane=~is_edge, is_edge=is_edge, reachability=is_edge.float()
    )


def offsets(correction: MapCorrection, points: Tensor, lanes: MapPolylines, *, velocity_mps: float = 0.0) -> Tensor:
    """By how much control points [1, K, 4, 2] are moved, with scene tokens and hidden states of zeros."""
    count = lanes.is_lane.shape[1]
    scene = SceneTokens(
        tokens=torch.zeros(1, count, 16), mask=torch.ones(1, count, dtype=torch.bool), map=lanes,
        velocity_mps=torch.tensor([[velocity_mps, 0.0]]),
    )  # fmt: skip
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
    ahead, left = rotate_into_frame(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))  # looking up
    assert (ahead.item(), left.item()) == (2.0, -1.0)


def test_lanes_and_edges_are_chosen_apart_and_by_distance() -> None:
    pieces = straight_pieces(8.0, 0.0, 4.0, edges_m=(-2.0, 10.0, 30.0))
    chosen, there = nearest_polylines(torch.tensor([[[5.0, 1.0]]]), pieces)
    assert chosen[there].tolist() == [1, 2, 0, 3, 4]  # three lanes, then the two nearest of three edges


def test_what_is_no_map_is_never_seen() -> None:
    pieces = straight_pieces(0.0, 4.0)
    empty = MapPolylines(
        points_m=pieces.points_m, is_lane=pieces.is_edge, is_edge=pieces.is_edge, reachability=pieces.reachability
    )
    assert not nearest_polylines(torch.zeros(1, 1, 2), empty)[1].any()


def test_a_new_correction_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Model(tiny_config()).eval()
    batch = batch_of(sample_scenes()[0])
    without = Model(tiny_config(correction_width=0)).eval()
    without.load_state_dict({name: value for name, value in model.state_dict().items() if "correction" not in name})
    torch.testing.assert_close(reconstruct(model, batch), reconstruct(without, batch), atol=1e-4, rtol=1e-4)


def test_a_way_is_pulled_to_the_lane_beside_it() -> None:
    """With nothing learnt but the share of the way to go, every control point goes to the nearest lane."""
    torch.manual_seed(0)
    model = Model(tiny_config()).eval()
    correction = model.decoder.correction
    assert correction is not None
    with torch.no_grad():
        correction.move.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    points = torch.zeros(1, 1, 4, 2)
    points[..., 1] = 1.0  # a metre to the left of a lane
    beside = (correction.position_basis @ points)[..., 1]
    for lanes, share in (((0.0,), (0.999, 1.001)), ((0.0, 3.5), (0.2, 0.5)), ((40.0,), (-0.001, 0.001))):
        change = offsets(correction, points, straight_pieces(*lanes), velocity_mps=3.0)[..., 1]
        least, most = share  # less, if there is another lane to the left, and nothing, if the only one is far away
        assert (-change >= least * beside).all(), lanes
        assert (-change <= most * beside).all(), lanes


def test_who_stands_is_not_moved_by_learnt_offsets() -> None:
    correction = Model(tiny_config()).decoder.correction
    assert correction is not None
    with torch.no_grad():
        correction.move.bias.copy_(torch.tensor([1.0, 1.0, 0.0]))
    change = offsets(correction, torch.zeros(1, 1, 4, 2), straight_pieces(0.0))
    torch.testing.assert_close(change, torch.zeros_like(change))


def corrected(model: Model, batch_scene: object) -> Tensor:
    _, memory = seen_by(model, batch_of(batch_scene))  # type: ignore[arg-type]
    rows = len(memory.velocity_mps)
    return model.decode(random_latents(rows, 2, 3, 3), memory)[0]


def test_it_turns_with_the_scene() -> None:
    model, scene = tiny_model(), crowd()
    there = moved(scene, angle_rad=1.1, shift_m=(300.0, -120.0))
    torch.testing.assert_close(corrected(model, scene), corrected(model, there), atol=2e-2, rtol=1e-3)


def test_a_map_without_lanes_is_no_trouble() -> None:
    model = tiny_model()
    correction = model.decoder.correction
    assert correction is not None
    nothing = MapPolylines(
        points_m=torch.zeros(1, 1, 6, 2),
        is_lane=torch.zeros(1, 1, dtype=torch.bool),
        is_edge=torch.zeros(1, 1, dtype=torch.bool),
        reachability=torch.zeros(1, 1),
    )
    change = offsets(correction, torch.randn(1, 2, 4, 2), nothing, velocity_mps=3.0)
    assert change.isfinite().all()


def test_widths_that_no_head_divides_are_refused() -> None:
    with pytest.raises((ValueError, TypeCheckError), match="multiple of 4"):
        tiny_config(correction_width=10)
