"""The scene encoder: relative poses, neighbours, the selection of tokens, map polylines, gradients."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scenes import bare_scene, small_scene
from tiny_model import (
    FEATURES,
    batch_of,
    crowd,
    features_moved,
    in_double,
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
from waycode.features.types import SegmentKind
from waycode.model.scene_encoder import (
    LOOK_AHEAD_S,
    SceneTokens,
    distance_to_path_ahead,
    nearest_neighbours,
    pose_features,
    to_frame,
    tokens_near_agents,
)

UP = torch.pi / 2


def random_poses(scenes: int, tokens: int, *, seed: int = 0) -> Tensor:
    return random_latents(scenes, tokens, 3, seed=seed) * torch.tensor([50.0, 50.0, 3.0])


# Relative poses


def test_poses_in_a_frame_by_hand() -> None:
    frame = torch.tensor([10.0, 20.0, UP])
    pose = torch.tensor([[10.0, 50.0, UP], [-20.0, 20.0, 0.0], [10.0, 20.0, UP]])
    expected = [[30.0, 0.0, 0.0], [0.0, 30.0, -UP], [0.0, 0.0, 0.0]]
    torch.testing.assert_close(to_frame(pose, frame), torch.tensor(expected), atol=1e-5, rtol=0)


def test_pose_features_by_hand() -> None:
    relative = torch.tensor([[30.0, 0.0, 0.0], [0.0, 30.0, -UP], [0.0, 0.0, 0.0], [3.0, -4.0, torch.pi]])
    near, log = torch.tensor(30.0).asinh().item(), torch.tensor(31.0).log().item()
    three, four, six = (torch.tensor(value) for value in (3.0, 4.0, 6.0))
    expected = [  # ahead and left in units of 30 m, asinh of both, cos, sin, logarithm of 1 + distance
        [1, 0, near, 0, 1, 0, log],
        [0, 1, 0, near, 0, -1, log],
        [0, 0, 0, 0, 1, 0, 0],
        [0.1, -4 / 30, three.asinh().item(), -four.asinh().item(), -1, 0, six.log().item()],
    ]
    torch.testing.assert_close(pose_features(relative), torch.tensor(expected).float(), atol=1e-5, rtol=0)


def test_whole_turns_do_not_change_pose_features() -> None:
    relative = to_frame(random_poses(2, 9).double(), random_poses(2, 1, seed=1).double())
    turned = relative + torch.tensor([0.0, 0.0, 4 * torch.pi], dtype=torch.float64)
    torch.testing.assert_close(pose_features(turned), pose_features(relative))


# Neighbours


def chosen(index: Tensor, present: Tensor) -> list[list[int]]:
    """The present neighbours of each token of the first scene, in ascending order."""
    return [sorted(row[seen].tolist()) for row, seen in zip(index[0], present[0], strict=True)]


def test_neighbours_by_hand() -> None:
    pose = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [3.5, 0, 0], [0.1, 0, 0]]])
    mask = torch.tensor([[True, True, True, True, False]])
    assert chosen(*nearest_neighbours(pose, mask, 2)) == [[0, 1], [0, 1], [2, 3], [2, 3], [0, 1]]
    index, present = nearest_neighbours(pose, mask, 9)  # more than there are
    assert index.shape == present.shape == (1, 5, 5)
    assert chosen(index, present) == [[0, 1, 2, 3]] * 5


def test_without_tokens_there_are_no_neighbours() -> None:
    index, present = nearest_neighbours(random_poses(1, 4), torch.zeros(1, 4, dtype=torch.bool), 2)
    assert not present.any()
    assert ((index >= 0) & (index < 4)).all()


@pytest.mark.parametrize("padding", [0, 1, 30])
def test_of_equally_near_tokens_the_first_are_neighbours(padding: int) -> None:
    corners = [[0.0, 0, 0], [0, 2, 0], [2, 0, 0], [0, -2, 0], [-2, 0, 0]]
    before, after = [[0.0, 0, 0]] * (padding // 2), [[0.0, 0, 0]] * (padding - padding // 2)
    pose, first = torch.tensor([before + corners + after]), len(before)
    mask = torch.zeros(1, pose.shape[1], dtype=torch.bool)
    mask[0, first : first + 5] = True
    found = chosen(*nearest_neighbours(pose, mask, 3))
    assert found[first] == [first, first + 1, first + 2]
    assert found[first + 1] == [first, first + 1, first + 2]


@pytest.mark.parametrize("shift_m", [0.0, 1000.0, 16_000.0])
def test_neighbours_are_the_same_far_from_the_origin(shift_m: float) -> None:
    pose = (random_poses(1, 60) * 8).round() / 8  # exact in float32 at all these places
    mask = torch.ones(1, 60, dtype=torch.bool)
    near = nearest_neighbours(pose, mask, 12)
    far = nearest_neighbours(pose + torch.tensor([shift_m, -shift_m, 0]), mask, 12)
    assert chosen(*near) == chosen(*far)


# The selection of tokens


def test_distance_to_the_path_ahead_by_hand() -> None:
    """One agent at (10, 20) drives up; one at the origin stands."""
    reach_m = 10 * LOOK_AHEAD_S
    agents = torch.tensor([[[10.0, 20, UP], [0, 0, 1]]])
    places = [[10.0, 20, UP], [10, 14, 0], [14, 20, 0], [11, 20 + reach_m / 2, 0], [10, 20 + reach_m + 5, 0]]
    velocity = torch.tensor([[[10.0, 0.0], [0.0, 0.0]]])
    found = distance_to_path_ahead(torch.tensor([places]), agents, velocity)
    torch.testing.assert_close(found[0, 0], torch.tensor([0.0, 6, 4, 1, 5]), atol=1e-4, rtol=0)
    torch.testing.assert_close(found[0, 1], torch.tensor(places)[:, :2].norm(dim=-1), atol=1e-4, rtol=1e-5)


def test_the_path_ahead_follows_the_velocity_and_not_the_heading() -> None:
    """A car that slides to its left."""
    velocity = torch.tensor([[[0.0, 5.0]]])
    found = distance_to_path_ahead(torch.tensor([[[3.0, 20.0, 0.0], [20.0, 0, 0]]]), torch.zeros(1, 1, 3), velocity)
    assert found[0, 0].tolist() == [3.0, 20.0]


def test_the_nearest_tokens_of_any_agent_are_selected_in_their_order() -> None:
    far = torch.inf
    distance = torch.tensor([[[9.0, 1.0, -1.0, 7.0, 8.0, far], [2.0, 9.0, 9.0, 6.0, -1.0, far], [0, 0, 0, -1, 0, 0]]])
    mask = torch.tensor([[True, True, False]])  # the third agent is padding
    assert tokens_near_agents(distance, mask, 4).tolist() == [[0, 1, 2, 4]]
    assert tokens_near_agents(distance, mask, 3).tolist() == [[1, 2, 4]]
    assert tokens_near_agents(distance, mask, 5).tolist() == [[0, 1, 2, 3, 4]]


def test_own_tokens_are_selected_though_others_are_in_the_same_place() -> None:
    distance = torch.zeros(1, 3, 9)
    distance[0, 0, 8] = distance[0, 1, 5] = distance[0, 2, 7] = -1
    assert tokens_near_agents(distance, torch.ones(1, 3, dtype=torch.bool), 4).tolist() == [[0, 5, 7, 8]]


def test_more_agents_than_tokens_are_refused() -> None:
    """Each agent needs its own token."""
    with pytest.raises(ValueError, match=r"got 3 modelled agents in a scene, expected at most 2 \(max_scene_tokens\)"):
        reconstruct(tiny_model(max_scene_tokens=2), batch_of(crowd(), agents=3))


@pytest.mark.parametrize("count", [3, 10, 25])
@torch.no_grad()
def test_the_encoder_keeps_own_tokens_and_those_nearest_to_any_path(count: int) -> None:
    """A token of the selection is found in the whole scene by its relation to the agents."""
    batch = batch_of(crowd(), agents=3)
    whole = tiny_model(scene_layers=0, max_scene_tokens=500).scene_encoder(batch.scene, batch.agents)
    part = tiny_model(scene_layers=0, max_scene_tokens=count).scene_encoder(batch.scene, batch.agents)
    few, every = (scene.relation[0].transpose(0, 1).flatten(1) for scene in (part, whole))
    kept = (few[:, None] - every).norm(dim=-1).argmin(dim=1)
    assert part.mask.all()
    assert kept.tolist() == sorted(set(kept.tolist()))
    torch.testing.assert_close(part.relation[0], whole.relation[0][:, kept])
    torch.testing.assert_close(part.tokens[0], whole.tokens[0, kept])

    scene, track = batch.scene, batch.agents.track
    pose = torch.cat([scene.segment_pose, scene.track_pose], dim=1)
    away = distance_to_path_ahead(pose, scene.track_pose[:, track[0]], scene.track_history[:, track[0], -1, 4:6])
    nearest = away[0].amin(dim=0).masked_fill(~whole.mask[0], torch.inf)
    own = scene.segment_mask.shape[1] + track[0]
    nearest[own] = -1
    assert set(kept.tolist()) == set(nearest.argsort()[:count].tolist())
    assert set(own.tolist()) <= set(kept.tolist())
    torch.testing.assert_close(part.agent, whole.tokens[0, own])
    torch.testing.assert_close(part.agent, whole.agent)


# Relations and map polylines


@torch.no_grad()
def test_relations_depend_on_the_pose_on_reachability_and_on_which_token_is_the_agent() -> None:
    """The relation of a token is `embed_relation` of these alone, whatever else is in the scene."""
    model = tiny_model(max_scene_tokens=500)
    batch = batch_of(sample_scenes()[0], agents=2)
    scene, agents = batch.scene, batch.agents
    assert agents.reachability.any(dim=2).all()
    found = model.scene_encoder(scene, agents)
    pose = torch.cat([scene.segment_pose, scene.track_pose], dim=1)[0]
    for agent in range(2):
        track = int(agents.track[0, agent])
        features = pose_features(to_frame(pose, scene.track_pose[0, track]))
        own = torch.zeros(len(pose), 2)
        own[scene.segment_mask.shape[1] + track, 0] = 1
        own[: scene.segment_mask.shape[1], 1] = agents.reachability[0, agent]
        expected = model.scene_encoder.embed_relation(torch.cat([features, own], dim=-1))
        torch.testing.assert_close(found.relation[0, agent], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("max_scene_tokens", [40, 500])
@torch.no_grad()
def test_map_polylines_are_the_segments_in_the_frame_of_the_agent(max_scene_tokens: int) -> None:
    model = tiny_model(max_scene_tokens=max_scene_tokens, nearby_polylines=20)
    batch = features_moved(batch_of(crowd(), sample_scenes()[0], agents=2), angle_rad=0.7, shift_m=(30.0, -9.0))
    found = model.scene_encoder(batch.scene, batch.agents)
    assert found.map.points_m.shape == (4, 20, FEATURES.points_per_segment, 2)
    assert found.map.is_lane.any(dim=1).all()
    for row in range(4):
        scene, track = row // 2, int(batch.agents.track[row // 2, row % 2])
        reach = batch.agents.reachability[scene, row % 2]
        lanes = placed(batch, scene, batch.scene.track_pose[scene, track])
        for one in found.map.is_lane[row].nonzero()[:, 0].tolist():
            away = (lanes - found.map.points_m[row, one]).norm(dim=-1).amax(dim=-1)
            assert away.min() < 1e-3
            segment = int(away.argmin())
            assert batch.scene.segment_kind[scene, segment] < SegmentKind.ROAD_LINE
            assert found.map.reachability[row, one] == reach[segment]


def placed(batch: Batch, scene: int, frame: Tensor) -> Tensor:
    """The points of all segments [S, P, 2] in a frame; far away where there is no segment."""
    pose, points = batch.scene.segment_pose[scene], batch.scene.segment_points_m[scene]
    at = torch.cat([points, torch.zeros_like(points[..., :1])], dim=-1)  # as poses in the frame of the segment
    back = to_frame(torch.zeros_like(pose), pose)  # the scene frame, as seen from the segment
    local = to_frame(to_frame(at, back[:, None]), frame)[..., :2]
    return local.masked_fill(~batch.scene.segment_mask[scene, :, None, None], 1e6)


@torch.no_grad()
def test_map_polylines_point_to_their_tokens() -> None:
    """Of the tokens of all scenes in sequence, `token` names that of the polyline."""
    model = tiny_model(scene_layers=0, nearby_polylines=15)
    batch = batch_of(crowd(), crowd(1), agents=3)
    found = model.scene_encoder(batch.scene, batch.agents)
    by_segment = model.scene_encoder.norm(model.scene_encoder._embed_segments(batch.scene))
    for row in range(6):
        scene = row // 3
        lanes = placed(batch, scene, batch.scene.track_pose[scene, int(batch.agents.track[scene, row % 3])])
        for one in (found.map.is_lane | found.map.is_edge)[row].nonzero()[:, 0].tolist():
            segment = int((lanes - found.map.points_m[row, one]).norm(dim=-1).amax(dim=-1).argmin())
            token = found.tokens.flatten(0, 1)[found.map.token[row, one]]
            torch.testing.assert_close(token, by_segment[scene, segment], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 12, 500])
@torch.no_grad()
def test_map_polylines_are_the_nearest_to_each_agent(count: int) -> None:
    batch = batch_of(crowd(), agents=2)
    few, every = (tiny_model(nearby_polylines=one).scene_encoder(batch.scene, batch.agents).map for one in (count, 500))
    assert few.token.shape == (2, min(count, 40))
    assert torch.equal(few.token, every.token[:, :count])
    assert torch.equal(every.token.sort().values, torch.arange(40).expand(2, 40))
    assert not (every.is_lane & every.is_edge).any()


@torch.no_grad()
def test_every_feature_changes_the_tokens_or_the_relations() -> None:
    model, batch = tiny_model(), batch_of(crowd(), agents=2)

    def difference(other: SceneTokens) -> float:
        before = model.scene_encoder(batch.scene, batch.agents)
        return max((getattr(other, name) - getattr(before, name)).abs().max().item() for name in ("tokens", "relation"))

    assert difference(model.scene_encoder(batch.scene, batch.agents)) == 0
    for name in ("segment_points_m", "segment_speed_limit", "segment_pose", "track_history", "track_size_m"):
        changed = replace(batch.scene, **{name: getattr(batch.scene, name) * 1.1})
        assert difference(model.scene_encoder(changed, batch.agents)) > 1e-4, name
    for name in ("segment_kind", "segment_signal", "track_kind"):
        changed = replace(batch.scene, **{name: (getattr(batch.scene, name) + 1) % 4})
        assert difference(model.scene_encoder(changed, batch.agents)) > 1e-4, name
    elsewhere = replace(batch.agents, reachability=1 - batch.agents.reachability)
    assert difference(model.scene_encoder(batch.scene, elsewhere)) > 1e-4


@torch.no_grad()
def test_tokens_do_not_depend_on_the_modelled_agents() -> None:
    model, batch = tiny_model(max_scene_tokens=500), batch_of(crowd(), agents=3)
    every = model.scene_encoder(batch.scene, batch.agents)
    for row in range(3):
        one = model.scene_encoder(batch.scene, one_row(batch, row).agents)
        torch.testing.assert_close(one.tokens, every.tokens)
        torch.testing.assert_close(one.agent[0], every.agent[row])


# Gradients, and scenes with little in them


@pytest.mark.parametrize("neighbours", [6, None])
@pytest.mark.parametrize("scene", [bare_scene(), small_scene()], ids=lambda scene: scene.id)
def test_gradients_are_finite_without_a_map(scene: Scene, neighbours: int | None) -> None:
    model, batch = tiny_model(neighbours=neighbours), batch_of(scene, crowd())
    batch = replace(batch, scene=without_map(batch.scene))
    latents, decoded = reconstruct(model, batch)
    prior = model.decoder.next_token_logits(latents, seen_by(model, batch)[1])
    names, parameters = zip(*model.named_parameters(), strict=True)
    loss = latents.square().sum() + decoded.square().mean() + prior.square().mean()
    gradients = torch.autograd.grad(loss, parameters)
    assert decoded.isfinite().all()
    for name, gradient in zip(names, gradients, strict=True):
        assert gradient.isfinite().all(), name
        assert gradient.any() or "segment" in name or "correction" in name, name  # only the map is masked


def test_masked_segments_have_no_gradient() -> None:
    model, batch = tiny_model(), batch_of(small_scene(), crowd())
    points = batch.scene.segment_points_m.clone().requires_grad_()
    scene = model.scene_encoder(replace(batch.scene, segment_points_m=points), batch.agents)
    (gradient,) = torch.autograd.grad((scene.tokens * scene.mask[..., None]).square().sum(), points)
    assert gradient[batch.scene.segment_mask].any()
    assert not gradient[~batch.scene.segment_mask].any()


def test_gradients_with_respect_to_features_against_finite_differences() -> None:
    """From the history of the road users and the shape of the map to the tokens of the scene."""
    scene = small_scene()
    batch = in_double(collate([extract(scene, observed(scene, 2), config=FEATURES)]))
    model = tiny_model(scene_layers=1, neighbours=3, max_scene_tokens=500).double().requires_grad_(False)
    weights = random_latents(batch.scene.segment_mask.shape[1] + batch.scene.track_mask.shape[1], 16).double()

    def summary(history: Tensor, points: Tensor) -> Tensor:
        features = replace(batch.scene, track_history=torch.cat([history, batch.scene.track_history[:, 2:]], dim=1))
        features = replace(features, segment_points_m=torch.cat([points, features.segment_points_m[:, 3:]], dim=1))
        return (model.scene_encoder(features, batch.agents).tokens * weights).sum(dim=(1, 2))

    history = batch.scene.track_history[:, :2].clone()
    points = batch.scene.segment_points_m[:, :3].clone()
    assert torch.autograd.gradcheck(summary, (history.requires_grad_(), points.requires_grad_()))


def test_a_batch_without_agents_has_no_rows() -> None:
    model, batch = tiny_model(), collate([extract(crowd(), [], config=FEATURES)] * 2)
    latents, decoded = reconstruct(model, batch)
    assert latents.shape == (0, 3, 3)
    assert decoded.shape == (0, 3, FEATURES.future_steps, 4)
    scene, memory = seen_by(model, batch)
    assert scene.row.shape == (0,)
    assert scene.agent.shape == (0, 16)
    assert model.decoder.next_token_logits(latents, memory).shape == (0, 4, 8)
    assert model.decode(latents[:, None, :2].expand(-1, 5, -1, -1), memory)[0].shape == (0, 5, 20, 2)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(latents.sum() + decoded.sum(), parameters, allow_unused=True)
    assert not any(gradient.any() for gradient in gradients if gradient is not None)


def test_keys_and_values_are_computed_once_per_scene_and_layer() -> None:
    model = tiny_model()
    scene, memory = seen_by(model, batch_of(crowd(), crowd(1), agents=3))
    assert len(memory.keys_values) == model.config.decoder_layers
    assert memory.keys_values[0][0].shape == (2, 2, scene.tokens.shape[1], 8)
