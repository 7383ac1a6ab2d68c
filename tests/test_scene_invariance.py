"""What must not change the outputs: motion of the scene, padding, the order of agents, other agents and scenes.

Most tests are in double precision: what is equal then differs in the tenth digit only. Where the outputs of a row with
and without other rows are compared, all tokens fit into the scene encoder: a smaller selection depends on all agents.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scenes import bare_scene, small_scene
from tiny_model import (
    FEATURES,
    assert_same_outputs,
    batch_of,
    crowd,
    features_moved,
    in_double,
    moved,
    observed,
    one_row,
    outputs,
    padded,
    random_latents,
    reconstruct,
    sample_scenes,
    seen_by,
    tiny_model,
)
from waycode import Scene
from waycode.features import Batch, collate, extract
from waycode.model import Model, SceneTokens
from waycode.scene import MapFeatures, Signals, StopSigns

WIDE = replace(FEATURES, max_distance_m=10_000.0)  # no map segment and no road user is left out
MOTIONS = [(0.0, (40.0, -30.0)), (1.3, (0.0, 0.0)), (-2.9, (-600.0, 150.0)), (9.0, (1e4, 2e4))]


def whole_scene_model(**changes: Any) -> Model:
    """A model in double precision that selects no tokens."""
    return tiny_model(**{"max_scene_tokens": 600, **changes}).double()


def of_agents(*agents: tuple[Scene, list[int]]) -> Batch:
    """A batch of these tracks of these scenes, with all of their surroundings."""
    return in_double(collate([extract(scene, tracks, config=WIDE) for scene, tracks in agents]))


def rows_of(values: dict[str, Tensor], rows: Any) -> dict[str, Tensor]:
    return {name: value[rows] for name, value in values.items()}


# Motion


@pytest.mark.parametrize(("angle_rad", "shift_m"), MOTIONS)
@pytest.mark.parametrize("neighbours", [6, None])
def test_motion_of_all_poses_changes_nothing(
    neighbours: int | None, angle_rad: float, shift_m: tuple[float, float]
) -> None:
    model, batch = tiny_model(neighbours=neighbours).double(), in_double(batch_of(crowd(), crowd(1)))
    turned = features_moved(batch, angle_rad=angle_rad, shift_m=shift_m)
    assert_same_outputs(outputs(model, turned), outputs(model, batch), tolerance=1e-7)
    with torch.no_grad():
        one, other = (model.scene_encoder(each.scene, each.agents) for each in (batch, turned))
    torch.testing.assert_close(other.tokens, one.tokens, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(other.relation, one.relation, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(other.map.points_m, one.map.points_m, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("scene", [*sample_scenes(), small_scene(), bare_scene()], ids=lambda scene: scene.id)
def test_motion_of_scenes_with_equally_near_tokens(scene: Scene) -> None:
    model, batch = whole_scene_model(), in_double(batch_of(scene))
    turned = features_moved(batch, angle_rad=0.4, shift_m=(12.0, 5.0))
    assert_same_outputs(outputs(model, turned), outputs(model, batch), tolerance=1e-7)


@pytest.mark.parametrize("neighbours", [6, None])
def test_motion_before_features_are_extracted(neighbours: int | None) -> None:
    """In single precision, as scenes are stored."""
    model = tiny_model(neighbours=neighbours)
    latents, decoded = reconstruct(model, batch_of(crowd()))
    for angle_rad, shift_m in ((0.0, (40.0, -30.0)), (1.3, (0.0, 0.0)), (-2.9, (-60.0, 15.0))):
        turned = batch_of(moved(crowd(), angle_rad=angle_rad, shift_m=shift_m))
        other_latents, other_decoded = reconstruct(model, turned)
        torch.testing.assert_close(other_latents, latents, atol=1e-3, rtol=0)
        torch.testing.assert_close(other_decoded, decoded, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("with_lanes", [True, False])
def test_motion_with_a_stop_sign_that_controls_no_lane(with_lanes: bool) -> None:
    signs = StopSigns(position_m=np.array([[5, 3], [-20, 14]], np.float32))
    scene = replace(crowd(), signals=Signals())
    whole = replace(scene.map, stop_signs=signs) if with_lanes else MapFeatures(stop_signs=signs)
    scene, model = replace(scene, map=whole), tiny_model()
    _, decoded = reconstruct(model, batch_of(scene, agents=1))
    _, turned = reconstruct(model, batch_of(moved(scene, angle_rad=2.0, shift_m=(9.0, 4.0)), agents=1))
    torch.testing.assert_close(turned, decoded, atol=1e-2, rtol=1e-3)


# Padding


@pytest.mark.parametrize(
    "more", [{"segments": 5}, {"tracks": 3}, {"agents": 2}, {"segments": 400, "tracks": 9}], ids=str
)
@pytest.mark.parametrize("neighbours", [6, None])
@pytest.mark.parametrize("max_scene_tokens", [40, 110, 600])
def test_padding_changes_nothing(max_scene_tokens: int, neighbours: int | None, more: dict[str, int]) -> None:
    """With 110 tokens, all that are present fit, but not the padding: the selection must not change their order."""
    model = whole_scene_model(neighbours=neighbours, max_scene_tokens=max_scene_tokens)
    batch = in_double(batch_of(crowd(), small_scene()))
    assert int(batch.scene.segment_mask.sum(dim=1).max() + batch.scene.track_mask.sum(dim=1).max()) < 110
    assert_same_outputs(outputs(model, padded(batch, **more)), outputs(model, batch))


@pytest.mark.parametrize("max_scene_tokens", [30, 250, 600])
def test_padding_of_scenes_with_equally_near_tokens_changes_nothing(max_scene_tokens: int) -> None:
    model = whole_scene_model(max_scene_tokens=max_scene_tokens)
    for scene in sample_scenes():
        batch = in_double(batch_of(scene))
        assert_same_outputs(outputs(model, padded(batch, segments=600, agents=1)), outputs(model, batch))


@pytest.mark.parametrize("neighbours", [6, None])
def test_other_scenes_of_a_batch_change_nothing(neighbours: int | None) -> None:
    model = whole_scene_model(neighbours=neighbours)
    scenes = [bare_scene(), small_scene(), crowd(), sample_scenes()[0]]
    together = outputs(model, in_double(batch_of(*scenes)))
    alone = [outputs(model, in_double(batch_of(scene))) for scene in scenes]
    joined = {name: torch.cat([one[name] for one in alone]) for name in together}
    assert_same_outputs(together, joined)


# Agents


@pytest.mark.parametrize("scene", [crowd(), sample_scenes()[0]], ids=lambda scene: scene.id)
def test_permuted_agents_have_permuted_rows(scene: Scene) -> None:
    model, batch = tiny_model().double(), in_double(batch_of(scene, agents=4))
    order = torch.tensor([2, 0, 3, 1])
    agents = replace(batch.agents, track=batch.agents.track[:, order], reachability=batch.agents.reachability[:, order])
    permuted = replace(
        batch, agents=agents, future_m=batch.future_m[:, order], future_valid=batch.future_valid[:, order]
    )
    assert_same_outputs(outputs(model, permuted), rows_of(outputs(model, batch), order))


def test_the_order_of_the_segments_changes_nothing() -> None:
    """With neighbours, it would: of tokens that are equally near, the first are chosen."""
    model, batch = whole_scene_model(neighbours=None), in_double(batch_of(crowd(), agents=2))
    order = torch.randperm(batch.scene.segment_mask.shape[1], generator=torch.Generator().manual_seed(0))
    names = [name for name in vars(batch.scene) if name.startswith("segment")]
    scene = replace(batch.scene, **{name: getattr(batch.scene, name)[:, order] for name in names})
    agents = replace(batch.agents, reachability=batch.agents.reachability[:, :, order])
    assert_same_outputs(outputs(model, replace(batch, scene=scene, agents=agents)), outputs(model, batch))


@pytest.mark.parametrize("scene", [crowd(), sample_scenes()[0], small_scene()], ids=lambda scene: scene.id)
def test_an_agent_alone_is_as_among_others(scene: Scene) -> None:
    model, tracks = whole_scene_model(), observed(scene, 4)
    together = outputs(model, of_agents((scene, tracks)))
    for row, track in enumerate(tracks):
        assert_same_outputs(outputs(model, of_agents((scene, [track]))), rows_of(together, [row]))


def test_a_track_that_is_modelled_twice_has_equal_rows() -> None:
    scene = crowd()
    first, second = observed(scene, 2)
    found = outputs(whole_scene_model(), of_agents((scene, [first, second, first])))
    assert_same_outputs(rows_of(found, [0]), rows_of(found, [2]))
    assert (found["mean"][0] - found["mean"][1]).abs().max() > 0.1


def uneven_batch() -> tuple[list[tuple[Scene, list[int]]], Batch]:
    """Scenes with 2, 0, 1, 4 and 0 modelled agents."""
    counts = [(crowd(), 2), (crowd(1), 0), (small_scene(), 1), (sample_scenes()[0], 4), (crowd(), 0)]
    agents = [(scene, observed(scene, count)) for scene, count in counts]
    return agents, of_agents(*agents)


def test_scenes_with_different_numbers_of_agents() -> None:
    model = whole_scene_model()
    agents, batch = uneven_batch()
    together = outputs(model, batch)
    alone = [outputs(model, of_agents(one)) for one in agents if one[1]]
    assert_same_outputs(together, {name: torch.cat([one[name] for one in alone]) for name in together})


def test_rows_are_the_agents_in_the_order_of_the_scenes() -> None:
    agents, batch = uneven_batch()
    with torch.no_grad():
        scene, _ = seen_by(whole_scene_model(), batch)
    assert scene.relation.shape[:2] == (5, 4)
    assert scene.row.tolist() == [0, 1, 8, 12, 13, 14, 15]
    velocity = [batch.scene.track_history[index, track, -1, 4:6] for index, track in modelled(batch)]
    torch.testing.assert_close(scene.velocity_mps, torch.stack(velocity))
    assert len(velocity) == sum(len(tracks) for _, tracks in agents)


def modelled(batch: Batch) -> list[tuple[int, int]]:
    """Scene and track of each row."""
    where = batch.agents.mask.nonzero().tolist()
    return [(scene, int(batch.agents.track[scene, slot])) for scene, slot in where]


@pytest.mark.parametrize("rest", [(), (3,), (2, 5)])
def test_by_agent_and_by_row_are_inverses(rest: tuple[int, ...]) -> None:
    with torch.no_grad():
        uneven, _ = seen_by(whole_scene_model(), uneven_batch()[1])
        even, _ = seen_by(tiny_model(), batch_of(crowd(), crowd(1), agents=3))
    for scene, rows in ((uneven, 7), (even, 6)):
        values = random_latents(rows, *rest).requires_grad_()
        table = scene.by_agent(values)
        assert table.shape == (*scene.relation.shape[:2], *rest)
        assert torch.equal(scene.by_row(table), values)
        present = torch.zeros(table.shape[:2], dtype=torch.bool).flatten()
        present[scene.row] = True
        assert not table.flatten(0, 1)[~present].any()
        (gradient,) = torch.autograd.grad(scene.by_row(table).sum(), values)
        assert torch.equal(gradient, torch.ones_like(values))


def test_masked_agents_have_no_rows() -> None:
    """Whichever of the agents of a batch are masked, the others keep their outputs."""
    model, batch = whole_scene_model(), in_double(batch_of(crowd(), crowd(1), agents=3))
    every = outputs(model, batch)
    for row in range(6):
        assert_same_outputs(outputs(model, one_row(batch, row)), rows_of(every, [row]))
    mask = torch.tensor([[False, True, True], [True, False, True]])
    some = outputs(model, replace(batch, agents=replace(batch.agents, mask=mask)))
    assert_same_outputs(some, rows_of(every, mask.flatten()))


# One row of an embedding


@pytest.mark.parametrize("changes", [{}, {"spline_points": None}, {"causal": False}], ids=str)
@torch.no_grad()
def test_one_row_of_an_embedding_decodes_as_in_the_batch(changes: dict[str, Any]) -> None:
    model = whole_scene_model(**changes)
    _, batch = uneven_batch()
    _, memory = seen_by(model, batch)
    latents = random_latents(7, 4, 2, 3).double()
    together = model.decode(latents, memory)
    prior = model.decoder.next_token_logits(latents[:, 0], memory) if model.config.prior else None
    for row in range(7):
        one = memory.only(row)
        assert_single(one.tokens)
        alone = model.decode(latents[row : row + 1], one)
        torch.testing.assert_close(alone[0][0], together[0][row], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(alone[1][0], together[1][row], atol=1e-9, rtol=1e-9)
        if prior is not None:
            logits = model.decoder.next_token_logits(latents[row : row + 1, 0], one)
            torch.testing.assert_close(logits[0], prior[row], atol=1e-9, rtol=1e-9)


def assert_single(scene: SceneTokens) -> None:
    """One scene with one agent, whose polylines name tokens of that scene."""
    assert scene.relation.shape[:2] == (1, 1)
    assert scene.row.tolist() == [0]
    assert len(scene.tokens) == len(scene.mask) == len(scene.agent) == len(scene.velocity_mps) == 1
    assert (scene.tokens[0] - scene.agent[0]).abs().amax(dim=-1).min() == 0
    assert ((scene.map.token >= 0) & (scene.map.token < scene.tokens.shape[1])).all()


@torch.no_grad()
def test_one_row_of_one_row_is_the_same() -> None:
    _, memory = seen_by(tiny_model(), batch_of(crowd(), agents=3))
    once = memory.only(2)
    twice = once.only(0)
    assert all(torch.equal(value, getattr(twice.tokens.map, name)) for name, value in vars(once.tokens.map).items())
    assert torch.equal(once.tokens.relation, twice.tokens.relation)
    assert torch.equal(once.tokens.agent, twice.tokens.agent)


@torch.no_grad()
def test_one_row_encodes_as_in_the_batch() -> None:
    """The trajectory encoder reads the tokens and relations of one row too."""
    model = whole_scene_model()
    _, batch = uneven_batch()
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    _, scene = seen_by(model, batch)
    every = model.encode(future, valid, scene)
    for row in range(7):
        one = model.encode(future[row : row + 1], valid[row : row + 1], scene.only(row))
        torch.testing.assert_close(one[0], every[row], atol=1e-9, rtol=1e-9)
