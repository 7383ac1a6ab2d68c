"""Attention with relative poses, against a dense reference that forms the keys and values of all pairs."""

import pytest
import torch
from torch import Tensor

from tiny_model import random_latents, tiny_model
from waycode.model.layers import RelativeAttention
from waycode.model.scene_encoder import _SceneLayer, nearest_neighbours, pose_features, to_frame

WIDTH, HEADS, RELATION = 12, 3, 5


@pytest.fixture
def attend() -> RelativeAttention:
    """In double precision, with biases."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return RelativeAttention(WIDTH, HEADS, RELATION).double()


def random(*shape: int, seed: int = 0) -> Tensor:
    return random_latents(*shape, seed=seed).double() * 2


def dense_reference(attend: RelativeAttention, x: Tensor, tokens: Tensor, relation: Tensor, mask: Tensor) -> Tensor:
    """Keys and values W x_j + U r_ij of all pairs, then the softmax of every head over the tokens of the mask.

    Args:
        attend: the layer, for its weights.
        x: queries [q, d].
        tokens: [S, d].
        relation: r_ij [q, S, p].
        mask: which token each query attends to [q, S].
    """
    size = x.shape[-1] // attend.heads
    key, value = attend.key_value(tokens).chunk(2, dim=-1)  # [S, d]
    mixed = []
    for head in range(attend.heads):
        own = slice(head * size, (head + 1) * size)
        keys = key[:, own] + relation @ attend.relation_key[head].T  # [q, S, e]
        values = value[:, own] + relation @ attend.relation_value[head]
        score = (attend.query(x)[:, None, own] * keys).sum(dim=-1) / size**0.5
        share = score.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        mixed.append((share[..., None] * values).sum(dim=1))
    return attend.out(torch.cat(mixed, dim=-1))


@pytest.mark.parametrize(("agents", "queries"), [(1, 1), (1, 4), (3, 1), (3, 4)])
def test_attention_of_agents_is_dense_attention(attend: RelativeAttention, agents: int, queries: int) -> None:
    scenes, count = 2, 7
    x, tokens = random(scenes, agents, queries, WIDTH), random(scenes, count, WIDTH, seed=1)
    relation = random(scenes, agents, count, RELATION, seed=2)
    mask = torch.ones(scenes, count, dtype=torch.bool)
    mask[1, 3:] = False
    found = attend(x, *attend.keys_and_values(tokens), relation, mask)
    for scene in range(scenes):
        for agent in range(agents):
            to_tokens, seen = relation[scene, agent].expand(queries, -1, -1), mask[scene].expand(queries, -1)
            expected = dense_reference(attend, x[scene, agent], tokens[scene], to_tokens, seen)
            torch.testing.assert_close(found[scene, agent], expected)


def test_attention_to_neighbours_is_dense_attention_masked_to_them(attend: RelativeAttention) -> None:
    scenes, count, neighbours = 2, 8, 3
    x, relation = random(scenes, count, WIDTH), random(scenes, count, count, RELATION, seed=1)
    generator = torch.Generator().manual_seed(2)
    index = torch.rand(scenes, count, count, generator=generator).argsort(dim=-1)[..., :neighbours]
    mask = torch.rand(scenes, count, neighbours, generator=generator) < 0.7
    mask[..., 0] = True
    to_neighbour = relation.gather(2, index[..., None].expand(-1, -1, -1, RELATION))
    found = attend.to_neighbours(x, index, to_neighbour, mask)
    allowed = torch.zeros(scenes, count, count, dtype=torch.bool).scatter(2, index, mask)
    for scene in range(scenes):
        expected = dense_reference(attend, x[scene], x[scene], relation[scene], allowed[scene])
        torch.testing.assert_close(found[scene], expected)


@pytest.mark.parametrize("count", [1, 4, 12, 50])
def test_a_layer_of_the_scene_encoder_is_dense_attention_masked_to_the_nearest(count: int) -> None:
    model = tiny_model(neighbours=count).double()
    layer = model.scene_encoder.layers[0]
    assert isinstance(layer, _SceneLayer)
    pose, x = random(3, 12, 3) * torch.tensor([25.0, 25.0, 1.5]), random(3, 12, 16, seed=1)
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[1, 7:] = mask[2, 1:] = False
    between = model.scene_encoder.embed_neighbour(pose_features(to_frame(pose[:, None], pose[:, :, None])))
    index, present = nearest_neighbours(pose, mask, count)
    near = between.gather(2, index[..., None].expand(-1, -1, -1, between.shape[-1]))
    found = layer(x, index, near, present)
    for scene in range(3):
        allowed = nearest_by_sorting(pose[scene], mask[scene], count)
        normed = layer.norm(x[scene])
        attended = x[scene] + dense_reference(layer.attend, normed, normed, between[scene], allowed)
        torch.testing.assert_close(found[scene], attended + layer.feed_forward(attended))


def nearest_by_sorting(pose: Tensor, mask: Tensor, count: int) -> Tensor:
    """True [S, S] for the `count` nearest present tokens of each token."""
    allowed = torch.zeros(len(pose), len(pose), dtype=torch.bool)
    present = mask.nonzero()[:, 0].tolist()
    for token in range(len(pose)):
        away_m = {other: (pose[token, :2] - pose[other, :2]).norm().item() for other in present}
        allowed[token, sorted(away_m, key=away_m.__getitem__)[:count]] = True
    return allowed


def test_the_relation_is_part_of_keys_and_of_values(attend: RelativeAttention) -> None:
    x, tokens = random(1, 1, 2, WIDTH), random(1, 4, WIDTH, seed=1)
    relation, mask = random(1, 1, 4, RELATION, seed=2), torch.ones(1, 4, dtype=torch.bool)
    before = attend(x, *attend.keys_and_values(tokens), relation, mask)
    for name in ("relation_key", "relation_value"):
        with torch.no_grad():
            parameter = attend.get_parameter(name)
            kept = parameter.clone()
            parameter.zero_()
        assert (attend(x, *attend.keys_and_values(tokens), relation, mask) - before).abs().max() > 1e-3, name
        with torch.no_grad():
            parameter.copy_(kept)


def test_gradients_against_finite_differences(attend: RelativeAttention) -> None:
    for parameter in attend.parameters():
        parameter.requires_grad_(False)
    x, tokens, relation = random(2, 2, 2, WIDTH), random(2, 4, WIDTH, seed=1), random(2, 2, 4, RELATION, seed=2)
    mask = torch.tensor([[True] * 4, [True, False, True, False]])
    inputs = tuple(one.requires_grad_() for one in (x, tokens, relation))

    def of_agents(x: Tensor, tokens: Tensor, relation: Tensor) -> Tensor:
        return attend(x, *attend.keys_and_values(tokens), relation, mask)

    assert torch.autograd.gradcheck(of_agents, inputs)

    index = torch.tensor([[[0, 1], [1, 2], [2, 3], [3, 0]]] * 2)
    present = torch.ones(2, 4, 2, dtype=torch.bool)
    present[1, :, 1] = False
    inputs = (tokens, random(2, 4, 2, RELATION, seed=3).requires_grad_())
    assert torch.autograd.gradcheck(lambda x, near: attend.to_neighbours(x, index, near, present), inputs)


def test_masked_tokens_have_no_influence_and_no_gradient(attend: RelativeAttention) -> None:
    x, tokens = random(1, 2, 3, WIDTH), random(1, 6, WIDTH, seed=1).requires_grad_()
    relation = random(1, 2, 6, RELATION, seed=2).requires_grad_()
    mask = torch.tensor([[True, False, True, True, False, False]])
    found = attend(x, *attend.keys_and_values(tokens), relation, mask)
    few = mask[0].nonzero()[:, 0]
    only = torch.ones(1, len(few), dtype=torch.bool)
    torch.testing.assert_close(found, attend(x, *attend.keys_and_values(tokens[:, few]), relation[:, :, few], only))
    by_token, by_relation = torch.autograd.grad(found.square().sum(), (tokens, relation))
    assert not by_token[:, ~mask[0]].any()
    assert not by_relation[:, :, ~mask[0]].any()
    assert by_token[:, mask[0]].all()


def test_without_any_token_outputs_and_gradients_are_finite(attend: RelativeAttention) -> None:
    x, tokens = random(1, 1, 2, WIDTH).requires_grad_(), random(1, 3, WIDTH, seed=1).requires_grad_()
    relation, nothing = random(1, 1, 3, RELATION, seed=2), torch.zeros(1, 3, dtype=torch.bool)
    index = torch.tensor([[[0, 1], [1, 2], [2, 0]]])
    to_agent = attend(x, *attend.keys_and_values(tokens), relation, nothing)
    to_each = attend.to_neighbours(tokens, index, random(1, 3, 2, RELATION), torch.zeros(1, 3, 2, dtype=torch.bool))
    for found in (to_agent, to_each):
        assert found.isfinite().all()
        for gradient in torch.autograd.grad(found.square().sum(), (x, tokens), allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


@pytest.mark.parametrize("shape", [(2, 0, 4, WIDTH), (2, 3, 0, WIDTH), (0, 3, 4, WIDTH)])
def test_no_queries(attend: RelativeAttention, shape: tuple[int, int, int, int]) -> None:
    tokens, mask = random(shape[0], 5, WIDTH), torch.ones(shape[0], 5, dtype=torch.bool)
    found = attend(random(*shape), *attend.keys_and_values(tokens), random(*shape[:2], 5, RELATION), mask)
    assert found.shape == shape
