"""The scene encoder: local attention against a dense reference, and what must not change what an agent sees."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scenes import bare_scene, small_scene
from tiny_model import (
    FEATURES,
    batch_of,
    crowd,
    moved,
    observed,
    one_row,
    random_latents,
    reconstruct,
    sample_scenes,
    seen_by,
    tiny_model,
    without_map,
)
from waycode import Scene
from waycode.features import Batch, collate, extract
from waycode.model.layers import Attention
from waycode.model.scene_encoder import (
    LOOK_AHEAD_S,
    _SceneLayer,
    nearest_neighbours,
    nearest_tokens,
    relative_pose_features,
    to_agent_frame,
)
from waycode.scene import MapFeatures, Signals, StopSigns


def random_poses(rows: int, tokens: int, *, seed: int = 0) -> Tensor:
    return random_latents(rows, tokens, 3, seed=seed) * torch.tensor([50.0, 50.0, 3.0])


def dense_attention(attend: Attention, x: Tensor, allowed: Tensor) -> Tensor:
    """Every head's softmax over all tokens, written out; `allowed` [R, M, M] says who sees whom."""
    width = x.shape[-1] // attend.heads
    key, value = attend.key_value(x).chunk(2, dim=-1)
    mixed = []
    for head in range(attend.heads):
        own = slice(head * width, (head + 1) * width)
        scores = attend.query(x)[..., own] @ key[..., own].transpose(1, 2) / width**0.5
        mixed.append(scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ value[..., own])
    return attend.out(torch.cat(mixed, dim=-1))


def allowed_by_hand(poses: Tensor, seen: Tensor, count: int) -> Tensor:
    """Who is among the nearest of whom, by sorting."""
    rows, tokens, _ = poses.shape
    allowed = torch.eye(tokens, dtype=torch.bool).repeat(rows, 1, 1)
    for row in range(rows):
        there = [token for token in range(tokens) if seen[row, token]]
        for token in range(tokens):
            distance = {other: (poses[row, token, :2] - poses[row, other, :2]).norm().item() for other in there}
            allowed[row, token, sorted(distance, key=distance.__getitem__)[:count]] = True
    return allowed


@pytest.mark.parametrize("count", [1, 4, 12, 50])
def test_local_attention_is_dense_attention_masked_to_the_nearest(count: int) -> None:
    model, poses = tiny_model(neighbours=count), random_poses(3, 12)
    layer, x = model.scene_encoder.layers[0], random_latents(3, 12, 16, seed=1)
    assert isinstance(layer, _SceneLayer)
    seen = torch.ones(3, 12, dtype=torch.bool)
    seen[1, 7:] = seen[2, 1:] = False
    found = layer(x, nearest_neighbours(poses, seen, count)[:, None])
    after = x + dense_attention(layer.attend, layer.norm(x), allowed_by_hand(poses, seen, count))
    expected = after + layer.feed_forward(after)
    torch.testing.assert_close(found, expected)
    assert found.isfinite().all()  # also of tokens that are not there


def test_neighbours_by_hand() -> None:
    poses = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [3.5, 0, 0], [0.1, 0, 0]]])
    seen = torch.tensor([[True, True, True, True, False]])
    near = nearest_neighbours(poses, seen, 2)[0]
    assert [row.nonzero().flatten().tolist() for row in near] == [[0, 1], [0, 1], [2, 3], [2, 3], [0, 1, 4]]


@pytest.mark.parametrize("padding", [0, 1, 30])
def test_equally_near_tokens_are_all_neighbours(padding: int) -> None:
    poses = torch.tensor([[[0.0, 0, 0], [0, 2, 0], [2, 0, 0], [0, -2, 0], [-2, 0, 0]] + [[0.0, 0, 0]] * padding])
    seen = torch.arange(5 + padding)[None] < 5
    near = nearest_neighbours(poses, seen, 2)[0]
    assert near[0].nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert near[1].nonzero().flatten().tolist() == [0, 1]


@pytest.mark.parametrize("shift_m", [0.0, 1000.0, 16_000.0])
def test_neighbours_are_the_same_far_from_the_origin(shift_m: float) -> None:
    poses = (random_poses(1, 60) * 8).round() / 8  # exact in float32 wherever they are
    seen = torch.ones(1, 60, dtype=torch.bool)
    near = nearest_neighbours(poses, seen, 60)
    far = nearest_neighbours(poses + torch.tensor([shift_m, -shift_m, 0]), seen, 60)
    assert torch.equal(near, far)


STANDING = torch.zeros(1, 2)


def test_nearest_tokens_by_hand() -> None:
    poses = torch.tensor([[[0.0, 0, 0], [3, 0, 0], [1, 0, 0], [2, 0, 0], [0.5, 0, 0]]])
    present, own = torch.tensor([[True, True, True, True, False]]), torch.tensor([1])
    index, there = nearest_tokens(poses, present, own, velocity_mps=STANDING, count=3)
    assert index.tolist() == [[1, 3, 2]]
    assert there.all()
    index, there = nearest_tokens(poses, present, own, velocity_mps=STANDING, count=9)
    assert index[0, :4].tolist() == [1, 3, 2, 0]
    assert there.tolist() == [[True, True, True, True, False]]


def test_a_fast_agent_looks_along_its_way() -> None:
    """It stands at (10, 20) and drives up: what is near its way comes before what is beside or behind it."""
    reach_m = 10 * LOOK_AHEAD_S
    up = torch.pi / 2
    places = [[10.0, 20, up], [10, 14, 0], [14, 20, 0], [11, 20 + reach_m / 2, 0], [10, 20 + reach_m + 5, 0]]
    index, _ = nearest_tokens(
        torch.tensor([places]),
        torch.ones(1, 5, dtype=torch.bool),
        torch.tensor([0]),
        velocity_mps=torch.tensor([[10.0, 0.0]]),
        count=5,
    )
    assert index.tolist() == [[0, 3, 2, 4, 1]]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_agent_always_sees_itself(count: int) -> None:
    poses = torch.zeros(6, 6, 3)  # all in one place: nothing is nearer than anything else
    everywhere = torch.ones(6, 6, dtype=torch.bool)
    index, there = nearest_tokens(poses, everywhere, torch.arange(6), velocity_mps=STANDING.expand(6, 2), count=count)
    assert index[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert there.all()


def test_places_by_hand() -> None:
    own = torch.tensor([[10.0, 20.0, torch.pi / 2]])
    pose = torch.tensor([[[10.0, 50.0, torch.pi / 2], [-20.0, 20.0, 0.0], [10.0, 20.0, torch.pi / 2]]])
    itself, reachability = torch.tensor([[False, False, True]]), torch.tensor([[0.5, 0.0, 0.0]])
    seen = relative_pose_features(to_agent_frame(pose, own), itself, reachability)
    far = torch.tensor(31.0).log().item()
    # ahead, left, cos, sin, distance, itself, reach
    expected = [[1, 0, 1, 0, far, 0, 0.5], [0, 1, 0, -1, far, 0, 0], [0, 0, 1, 0, 0, 1, 0]]
    torch.testing.assert_close(seen, torch.tensor([expected]).float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("neighbours", [6, None])
def test_motion_of_the_whole_scene_changes_nothing(neighbours: int | None) -> None:
    model = tiny_model(neighbours=neighbours)
    latents, decoded = reconstruct(model, batch_of(crowd()))
    for angle_rad, shift_m in ((0.0, (40.0, -30.0)), (1.3, (0.0, 0.0)), (-2.9, (-60.0, 15.0))):
        turned = batch_of(moved(crowd(), angle_rad=angle_rad, shift_m=shift_m))
        other_latents, other_decoded = reconstruct(model, turned)
        torch.testing.assert_close(other_latents, latents, atol=1e-3, rtol=0)
        torch.testing.assert_close(other_decoded, decoded, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("features", ["sign and lanes", "sign alone"])
def test_motion_with_a_stop_sign_that_controls_no_lane(features: str) -> None:
    signs = StopSigns(position_m=np_points([[5, 3], [-20, 14]]))
    scene = replace(crowd(), signals=Signals())
    whole = replace(scene.map, stop_signs=signs) if features == "sign and lanes" else MapFeatures(stop_signs=signs)
    scene, model = replace(scene, map=whole), tiny_model()
    _, decoded = reconstruct(model, batch_of(scene, agents=1))
    _, turned = reconstruct(model, batch_of(moved(scene, angle_rad=2.0, shift_m=(9.0, 4.0)), agents=1))
    torch.testing.assert_close(turned, decoded, atol=1e-2, rtol=1e-3)


def np_points(points: list[list[float]]) -> Any:
    return torch.tensor(points).float().numpy()


@pytest.mark.parametrize("neighbours", [6, None])
def test_padding_changes_nothing(neighbours: int | None) -> None:
    model = tiny_model(neighbours=neighbours, max_scene_tokens=400)
    scenes = [bare_scene(), small_scene(), crowd(), sample_scenes()[0]]
    _, together = reconstruct(model, batch_of(*scenes))
    alone = torch.cat([reconstruct(model, batch_of(scene))[1] for scene in scenes])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_several_agents_at_once_are_as_one_by_one() -> None:
    model, batch = tiny_model(), batch_of(crowd(), sample_scenes()[3], agents=4)
    together = model.scene_encoder(batch.scene, batch.agents)
    for row in range(len(together.tokens)):
        single = one_row(batch, row)
        alone = model.scene_encoder(single.scene, single.agents)
        torch.testing.assert_close(alone.velocity_mps[0], together.velocity_mps[row])
        assert alone.mask[0].sum() == together.mask[row].sum()
        torch.testing.assert_close(alone.tokens[0], together.tokens[row], atol=1e-4, rtol=1e-4)


def test_agents_permute() -> None:
    model, batch = tiny_model(), batch_of(crowd(), agents=4)
    order = torch.tensor([2, 0, 3, 1])
    _, before = reconstruct(model, batch)
    reachability = batch.agents.reachability[:, order]
    agents = replace(batch.agents, track=batch.agents.track[:, order], reachability=reachability)
    permuted = Batch(
        scene=batch.scene, agents=agents, future_m=batch.future_m[:, order], future_valid=batch.future_valid[:, order]
    )
    torch.testing.assert_close(reconstruct(model, permuted)[1], before[order], atol=1e-4, rtol=1e-4)


def test_the_order_of_the_scene_does_not_matter() -> None:
    model, batch = tiny_model(), batch_of(crowd(), agents=2)
    order = torch.randperm(batch.scene.segment_mask.shape[1], generator=torch.Generator().manual_seed(0))
    names = (
        "segment_points_m",
        "segment_kind",
        "segment_signal",
        "segment_speed_limit",
        "segment_pose",
        "segment_mask",
    )
    scene = replace(batch.scene, **{name: getattr(batch.scene, name)[:, order] for name in names})
    agents = replace(batch.agents, reachability=batch.agents.reachability[:, :, order])
    _, before = reconstruct(model, batch)
    after = reconstruct(model, replace(batch, scene=scene, agents=agents))[1]
    torch.testing.assert_close(after, before, atol=1e-3, rtol=1e-3)


def test_every_feature_is_seen() -> None:
    model, batch = tiny_model(), batch_of(crowd(), agents=2)
    before = model.scene_encoder(batch.scene, batch.agents).tokens
    for name in ("segment_points_m", "segment_speed_limit", "segment_pose", "track_history", "track_size_m"):
        changed = replace(batch.scene, **{name: getattr(batch.scene, name) * 1.1})
        assert (model.scene_encoder(changed, batch.agents).tokens - before).abs().max() > 1e-4, name
    elsewhere = replace(batch.agents, reachability=1 - batch.agents.reachability)
    assert (model.scene_encoder(batch.scene, elsewhere).tokens - before).abs().max() > 1e-4
    for name in ("segment_kind", "segment_signal", "track_kind"):
        changed = replace(batch.scene, **{name: (getattr(batch.scene, name) + 1) % 4})
        assert (model.scene_encoder(changed, batch.agents).tokens - before).abs().max() > 1e-4, name


@pytest.mark.parametrize("neighbours", [6, None])
@pytest.mark.parametrize("scene", [bare_scene(), small_scene()], ids=lambda scene: scene.id)
def test_gradients_are_finite_where_little_or_nothing_is_there(scene: Scene, neighbours: int | None) -> None:
    model, batch = tiny_model(neighbours=neighbours), batch_of(scene, crowd())
    latents, decoded = reconstruct(model, replace(batch, scene=without_map(batch.scene)))
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(latents.square().sum() + decoded.square().mean(), parameters)
    assert decoded.isfinite().all()
    for name, gradient in zip(names, gradients, strict=True):
        assert gradient.isfinite().all(), name
        assert gradient.any() or "segment" in name or "correction" in name, (
            name
        )  # all is in use but the map, which is masked


def test_what_is_masked_has_no_gradient() -> None:
    model, batch = tiny_model(), batch_of(small_scene(), crowd())
    points = batch.scene.segment_points_m.clone().requires_grad_()
    scene = model.scene_encoder(replace(batch.scene, segment_points_m=points), batch.agents)
    (gradient,) = torch.autograd.grad((scene.tokens * scene.mask[..., None]).square().sum(), points)
    assert gradient[batch.scene.segment_mask].any()
    assert not gradient[~batch.scene.segment_mask].any()


def test_a_batch_without_agents_has_no_rows() -> None:
    example = extract(crowd(), [], config=FEATURES)
    latents, decoded = reconstruct(tiny_model(), collate([example]))
    assert latents.shape == (0, 3, 3)
    assert decoded.shape == (0, 3, FEATURES.future_steps, 4)


def test_a_scene_without_agents_beside_one_with() -> None:
    model, scene = tiny_model(), crowd()
    full = extract(scene, observed(scene, 2), config=FEATURES)
    _, alone = reconstruct(model, collate([full]))
    _, beside = reconstruct(model, collate([extract(scene, [], config=FEATURES), full]))
    torch.testing.assert_close(beside, alone, atol=1e-4, rtol=1e-4)


def test_memory_is_one_per_layer() -> None:
    model = tiny_model()
    scene, memory = seen_by(model, batch_of(crowd()))
    assert len(memory.keys_values) == model.config.decoder_layers
    assert memory.keys_values[0][0].shape == (3, 2, scene.tokens.shape[1], 8)
