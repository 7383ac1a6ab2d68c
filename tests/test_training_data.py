"""What a training step is made of: sampling of scenes and agents, what is sent through the bottleneck, the losses."""

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from waycode.demo import bundled_dataset
from waycode.features import mirror
from waycode.model.bottleneck import quantise
from waycode.scene import Scene, TrackType
from waycode.scene.manoeuvre import Manoeuvre
from waycode.training.config import TrainingConfig, tiny
from waycode.training.data import (
    _SCENES_PER_WINDOW,
    AgentIndex,
    Examples,
    StepSampler,
    balancing_weights,
    index_agents,
    shuffle_nearby,
)
from waycode.training.examples import PreparedExamples, leaves_map, prepare_examples
from waycode.training.module import AutoencoderModule


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedExamples:
    """The bundled scenes, prepared with the features of `tiny`."""
    return prepare_examples(bundled_dataset(), tiny().model.features, cache=tmp_path_factory.mktemp("cache"))


def short(steps: int, **changes: object) -> TrainingConfig:
    return replace(tiny(), steps=steps, **{"scenes_per_batch": 3, **changes})  # type: ignore[arg-type]


def test_steps_are_a_pure_function_of_seed_and_step() -> None:
    config = short(40, seed=5)
    scenes = list(range(10))
    whole = list(StepSampler(scenes, config))
    assert list(StepSampler(scenes, config)) == whole
    assert list(StepSampler(scenes, config, first_step=17)) == whole[17:]
    assert len(StepSampler(scenes, config, first_step=17)) == 40  # of the whole run
    assert list(StepSampler(scenes, replace(config, seed=6))) != whole


def with_ends(scene: Scene, x_m: float, *, kind: TrackType) -> Scene:
    """The scene with all its tracks of one kind, last seen at this place; the map's lanes lie around the origin."""
    tracks = scene.tracks
    x, types = tracks.x_m.copy(), np.full_like(tracks.types, kind)
    last = tracks.num_steps - 1 - tracks.valid[:, ::-1].argmax(axis=1)
    x[np.arange(len(tracks)), last] = x_m
    return replace(scene, tracks=replace(tracks, x_m=x, types=types))


@pytest.mark.parametrize(
    ("x_m", "kind", "leaves"),
    [
        pytest.param(5_000.0, TrackType.VEHICLE, True, id="a car beyond the map"),
        pytest.param(5_000.0, TrackType.PEDESTRIAN, False, id="a pedestrian needs no lane"),
        pytest.param(None, TrackType.VEHICLE, False, id="on a lane"),
    ],
)
def test_who_leaves_the_map_is_not_modelled(x_m: float | None, kind: TrackType, leaves: bool) -> None:
    scene = bundled_dataset()[0]
    ego = scene.tracks.ego_index or 0
    changed = scene if x_m is None else with_ends(scene, x_m, kind=kind)
    assert leaves_map(changed, [ego]).tolist() == [leaves]
    bare = replace(changed, map=type(scene.map)())
    assert not leaves_map(bare, [ego]).any()  # a map without lanes cannot be left


@pytest.mark.parametrize("num_scenes", [9, 10, 2])
def test_a_pass_shows_no_scene_twice(num_scenes: int) -> None:
    size = min(3, num_scenes)
    per_pass = num_scenes // size
    steps = iter(StepSampler(range(100, 100 + num_scenes), short(4 * per_pass)))
    orders = []
    for _ in range(4):
        keys = [key for step in islice(steps, per_pass) for key in step]
        seen = [scene for scene, _ in keys]
        assert len(set(seen)) == len(seen) == per_pass * size  # all, but for what does not fill a batch
        orders.append(tuple(seen))
    assert len(set(orders)) > 1 or num_scenes == 2
    assert not list(steps)


def test_keys_have_seeds_of_their_own() -> None:
    seeds = [seed for step in StepSampler(range(6), short(50)) for _, seed in step]
    assert len(set(seeds)) == len(seeds)


def test_rare_manoeuvres_are_drawn_more_often() -> None:
    kinds = [(1, Manoeuvre.STRAIGHT)] * 100 + [(1, Manoeuvre.LEFT_TURN)] * 4 + [(1, Manoeuvre.STANDING)] * 100
    weights = balancing_weights(kinds)
    assert weights[100] / weights[0] == pytest.approx(5.0)  # sqrt(100 / 4)
    assert weights[-1] / weights[0] == pytest.approx(0.3)
    index = AgentIndex(starts=np.array([0, len(kinds)]), weights=weights)
    rng = np.random.default_rng(0)
    drawn = Counter(kinds[agent][1] for _ in range(2000) for agent in index.draw(0, 2, rng)[0])
    assert drawn[Manoeuvre.LEFT_TURN] / 4 > 3 * drawn[Manoeuvre.STRAIGHT] / 100
    assert drawn[Manoeuvre.STRAIGHT] > 2 * drawn[Manoeuvre.STANDING]


def test_agents_are_drawn_once_and_all_if_there_are_few() -> None:
    index = AgentIndex(starts=np.array([0, 2, 5]), weights=np.ones(5))
    rng = np.random.default_rng(0)
    assert index.draw(0, 4, rng)[0].tolist() == [0, 1]
    assert all(len(set(index.draw(1, 2, rng)[0])) == 2 for _ in range(20))


def test_the_mean_by_importance_is_that_of_all_agents() -> None:
    weights = np.array([4.0, 1.0, 1.0, 2.0])
    index, rng, values = AgentIndex(starts=np.array([0, 4]), weights=weights), np.random.default_rng(0), np.arange(4)
    drawn = [index.draw(0, 1, rng) for _ in range(20_000)]
    mean = np.mean([values[agent[0]] * importance[0] for agent, importance in drawn])
    assert mean == pytest.approx(values.mean(), rel=0.03)
    assert np.mean([importance[0] for _, importance in drawn]) == pytest.approx(1, rel=0.03)


def test_the_index_has_all_agents_that_can_be_modelled(prepared: PreparedExamples) -> None:
    index = index_agents(prepared)
    assert len(index.starts) - 1 == len(prepared) == len(bundled_dataset())
    for number in range(len(prepared)):
        example = prepared[number].example
        assert len(example.agents) == index.starts[number + 1] - index.starts[number]
        assert (example.future_valid.sum(axis=1) >= 30).all()
    assert (index_agents(prepared, balance=False).weights == 1).all()


def test_an_alternative_replaces_a_recorded_future_and_counts_nothing_for_the_prior(
    prepared: PreparedExamples,
) -> None:
    scene = next(number for number in range(len(prepared)) if len(prepared[number].alternative_agent))
    index, config = index_agents(prepared), short(1, agents_per_scene=50, mirror=False)
    recorded = Examples(prepared, index, config)[scene, 0]
    other = Examples(prepared, index, replace(config, alternative_share=1.0))[scene, 0]
    changed = np.abs(other.future_m - recorded.future_m).max(axis=(1, 2)) > 1
    assert set(np.flatnonzero(changed)) == set(prepared[scene].alternative_agent.tolist())
    assert (other.importance[changed] == 0).all()
    assert (recorded.importance > 0).all()


def test_half_of_the_examples_are_mirrored(prepared: PreparedExamples) -> None:
    config = short(1, agents_per_scene=1)
    index = index_agents(prepared)
    plain = Examples(prepared, index, replace(config, mirror=False))
    some = Examples(prepared, index, config)
    mirrored = 0
    for seed in range(60):
        one, other = plain[0, seed], some[0, seed]
        assert np.array_equal(one.agents, other.agents)
        is_mirrored = not np.array_equal(one.track_pose, other.track_pose)
        expected = mirror(one) if is_mirrored else one
        assert np.array_equal(expected.future_m, other.future_m)
        mirrored += is_mirrored
    assert 18 <= mirrored <= 42


@pytest.mark.parametrize("count", [1, 7, _SCENES_PER_WINDOW, 10_000])
def test_shuffling_keeps_every_scene_and_reads_few_files_at_a_time(count: int) -> None:
    scenes = np.arange(count) * 2
    shuffled = shuffle_nearby(scenes, np.random.default_rng(0))
    assert np.array_equal(np.sort(shuffled), scenes)
    assert count < 7 or not np.array_equal(shuffled, scenes)
    for begin in range(0, count, _SCENES_PER_WINDOW):
        assert len(set(shuffled[begin : begin + _SCENES_PER_WINDOW] // 100)) <= _SCENES_PER_WINDOW // 50 + 1


# The bottleneck


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_examples_is_rounded(share: float) -> None:
    config = replace(tiny(), noise=replace(tiny().noise, rounded_share=share, fixed_sigma=0.3))
    latents = torch.linspace(-0.9, 0.9, 400 * 9).view(400, 3, 3).requires_grad_()
    channel = AutoencoderModule(config).channel(torch.zeros(0, 3, 3), 400, torch.Generator().manual_seed(1))
    received = channel(latents, 0, None)
    rounded = torch.isclose(received, quantise(latents, 2)).flatten(1).all(dim=1)
    assert abs(float(rounded.float().mean()) - share) < 0.08
    assert torch.autograd.grad(received.sum(), latents)[0].eq(1).all()  # rounding lets the gradient pass
    assert torch.equal(channel(latents[:, 1:2], 1, None), received[:, 1:2])  # token by token, as all at once
