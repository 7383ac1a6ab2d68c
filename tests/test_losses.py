"""What training minimises: values by hand, gradients, adaptive noise, nested dropout, closed-loop options."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from waycode.demo import bundled_dataset
from waycode.features import Batch, collate, extract
from waycode.model.autoencoder import average_displacement_m
from waycode.model.bottleneck import prefix_probabilities
from waycode.training.config import NestedDropout, NoiseConfig, TrainingConfig, tiny
from waycode.training.examples import modelled_agents
from waycode.training.losses import (
    acceleration_error_mps2,
    beta_nll,
    collision_penalty_m,
    futures_of_others,
    joint_collision_m,
    next_sigma,
    path_deviation_m,
    weighted_mean,
)
from waycode.training.module import AutoencoderModule, hide_history, learning_rate_share


def trajectory(points: list[list[float]]) -> Tensor:
    """One agent, one candidate; points as [x, y]."""
    return torch.tensor(points)[None, None]


def batch_of_sample(agents_per_scene: int = 3, scenes: int = 2) -> Batch:
    dataset, features = bundled_dataset(), tiny().model.features
    chosen = [dataset[index] for index in range(scenes)]
    return collate([extract(scene, modelled_agents(scene)[:agents_per_scene], config=features) for scene in chosen])


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        # per coordinate: variance ** beta * (error ** 2 / variance + log variance) / 2; errors 1, 2; variances 4, 1
        pytest.param(0.0, 0.5 * (1 / 4 + math.log(4)) + 0.5 * 4, id="plain likelihood"),
        pytest.param(0.5, 2 * 0.5 * (1 / 4 + math.log(4)) + 0.5 * 4, id="half"),
        pytest.param(1.0, 4 * 0.5 * (1 / 4 + math.log(4)) + 0.5 * 4, id="squared error"),
    ],
)
def test_beta_nll_by_hand(beta: float, expected: float) -> None:
    mean, std = trajectory([[1.0, 2.0]]), trajectory([[2.0, 1.0]])
    loss = beta_nll(mean, std, torch.zeros(1, 1, 2), torch.ones(1, 1, dtype=torch.bool), beta=beta)
    assert loss.tolist() == [[pytest.approx(expected)]]


def test_the_weight_of_the_likelihood_has_no_gradient() -> None:
    std = torch.tensor([[[[2.0, 3.0]]]], requires_grad=True)
    mean = torch.tensor([[[[1.0, -2.0]]]], requires_grad=True)
    loss = beta_nll(mean, std, torch.zeros(1, 1, 2), torch.ones(1, 1, dtype=torch.bool), beta=0.5)
    by_mean, by_std = torch.autograd.grad(loss.sum(), [mean, std])
    # v^0.5 held fixed: d/dmean = v^0.5 * error / v; d/dstd = v^0.5 * (1 / std - error^2 / std^3)
    assert by_mean.flatten().tolist() == pytest.approx([2 * 1 / 4, 3 * -2 / 9])
    assert by_std.flatten().tolist() == pytest.approx([2 * (1 / 2 - 1 / 8), 3 * (1 / 3 - 4 / 27)])


def test_steps_that_were_not_observed_do_not_count() -> None:
    mean = trajectory([[3.0, 4.0], [100.0, 0.0], [0.0, 1.0]])
    valid = torch.tensor([[True, False, True]])
    assert average_displacement_m(mean, torch.zeros(1, 3, 2), valid).tolist() == [[pytest.approx(3.0)]]
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert average_displacement_m(mean, torch.zeros(1, 3, 2), nothing).tolist() == [[0.0]]
    assert beta_nll(mean, torch.ones_like(mean), torch.zeros(1, 3, 2), nothing, beta=0.5).tolist() == [[0.0]]


def test_recorded_futures_do_not_collide_with_each_other_but_one_in_the_place_of_another_does() -> None:
    batch = batch_of_sample(agents_per_scene=4, scenes=6)
    rows = batch.agents.mask
    recorded_m = batch.future_m[rows][:, None]
    assert float(joint_collision_m(recorded_m, batch).max()) == 0.0

    scene = batch.scene
    pose = scene.track_pose[0, batch.agents.track[0, :2]]  # two agents of the first scene
    offset_m, turn = pose[1, :2] - pose[0, :2], -pose[0, 2]
    other_m = torch.stack(  # where the second agent is now, in the frame of the first
        [offset_m[0] * turn.cos() - offset_m[1] * turn.sin(), offset_m[0] * turn.sin() + offset_m[1] * turn.cos()]
    )
    moved_m = recorded_m.clone()
    moved_m[0, 0], moved_m[1, 0] = other_m, 0.0  # the first jumps into the second, which stays
    depth_m = joint_collision_m(moved_m, batch)
    seen = batch.future_valid[0, 0, 3::4] & batch.future_valid[0, 1, 3::4]
    apart = float(scene.track_size_m[0, batch.agents.track[0, :2]].amin(dim=-1).sum()) / 2
    assert float(depth_m[0, 0]) == pytest.approx(apart * float(seen.float().mean()), rel=0.02)
    assert float(depth_m[1, 0]) == pytest.approx(float(depth_m[0, 0]))
    shared = rows[0].nonzero().numel()
    assert float(depth_m[shared:].max()) == 0.0  # other scenes


def test_collisions_cost_the_depth_into_the_nearest_disc() -> None:
    mean = trajectory([[0.0, 0.0], [5.0, 0.0]])
    others = torch.tensor([[[[1.0, 0.0], [5.0, 1.5]], [[0.0, 0.5], [5.0, 0.0]]]])  # two others
    there = torch.tensor([[[True, True], [True, False]]])
    penalty = collision_penalty_m(mean, others, there, margin_m=torch.tensor([[2.0, 1.0]]))
    # first step: depths 1 and 0.5; second: 0.5, and the other is not there
    assert penalty.tolist() == [[pytest.approx((1.0 + 0.5) / 2, abs=1e-5)]]


def test_weighted_mean() -> None:
    values, weights = torch.tensor([[1.0, 3.0], [5.0, 7.0]]), torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    assert float(weighted_mean(values, weights)) == pytest.approx((2 + 7) / 2)


def test_adaptive_noise_follows_the_papers_formula_step_by_step() -> None:
    gamma, delta, target = 0.9, 0.05, 1.0
    sigma, expected = 0.0, 0.0
    for ade in [0.5, 1.0, 1.1, 0.2, 3.0, 3.0, 3.0, 3.0, 0.9]:
        wanted = expected + delta if ade <= target else expected - delta  # sigma hat
        expected = max(0.0, gamma * expected + (1 - gamma) * wanted)
        sigma = next_sigma(sigma, ade, target_ade_m=target, gamma=gamma, delta=delta)
        assert sigma == pytest.approx(expected, abs=1e-15)
    assert next_sigma(0.0, 2.0, target_ade_m=1.0, gamma=gamma, delta=delta) == 0.0


def test_noise_moves_by_the_rate_that_the_recipe_states() -> None:
    paper = NoiseConfig(gamma=0.9995, delta=0.01)
    up = next_sigma(0.3, 0.0, target_ade_m=1.0, gamma=paper.gamma, delta=paper.delta)
    assert up - 0.3 == pytest.approx(5e-6)


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        pytest.param(NoiseConfig(target_ade_m=1e9, gamma=0.5, delta=2.0), 1.0, id="up by half of delta"),
        pytest.param(NoiseConfig(target_ade_m=1e9, gamma=0.5, delta=2.0, max_sigma=0.4), 0.4, id="bounded"),
        pytest.param(NoiseConfig(target_ade_m=1e-6, gamma=0.5, delta=2.0), 0.0, id="never below zero"),
        pytest.param(NoiseConfig(target_ade_m=1e9, fixed_sigma=0.25), 0.25, id="fixed"),
    ],
)
def test_a_step_adapts_the_noise(noise: NoiseConfig, expected: float) -> None:
    module = AutoencoderModule(replace(tiny(), noise=noise))
    module.training_step(batch_of_sample(), 0)
    assert module.sigma == pytest.approx(expected)


def test_nested_dropout_weights() -> None:
    generator = torch.Generator().manual_seed(0)

    def weights(kind: NestedDropout, rows: int) -> Tensor:
        return AutoencoderModule(replace(tiny(), nested_dropout=kind)).prefix_weights(rows, generator)

    # 3 tokens: half of the time all; else 1 dropped twice as often as 2 dropped
    assert prefix_probabilities(3).tolist() == pytest.approx([0.5 * 1 / 3, 0.5 * 2 / 3, 0.5])
    assert weights(NestedDropout.EXPECTED, 2).tolist() == [pytest.approx([1 / 6, 1 / 3, 1 / 2])] * 2
    assert weights(NestedDropout.OFF, 2).tolist() == [[0, 0, 1]] * 2
    sampled = weights(NestedDropout.SAMPLED, 20_000)
    assert set(sampled.sum(dim=1).tolist()) == {1.0}
    assert sampled.mean(dim=0).tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=0.015)


def test_learning_rate_warms_up_and_goes_down_to_zero() -> None:
    config = replace(tiny(), steps=100, warm_up=0.1)
    shares = [learning_rate_share(step, config) for step in range(101)]
    assert shares[0] == 0.01
    assert shares[5] == pytest.approx(0.5)
    assert shares[10] == pytest.approx(1.0)
    assert shares[55] == pytest.approx(0.5)
    assert shares[100] == pytest.approx(0.0)
    assert learning_rate_share(77, replace(config, warm_up=0.0)) == 1.0


def test_a_hidden_past_leaves_the_present_and_everybody_else() -> None:
    batch = batch_of_sample()
    rows = int(batch.agents.mask.sum())
    hidden = torch.arange(rows) == 1  # the second agent of the first scene
    scene = hide_history(batch.scene, batch.agents, hidden=hidden)
    track = int(batch.agents.track[0, 1])
    assert batch.scene.track_history[0, track, :-1].any()
    assert not scene.track_history[0, track, :-1].any()
    assert torch.equal(scene.track_history[0, track, -1], batch.scene.track_history[0, track, -1])
    others = torch.ones(batch.scene.track_history.shape[:2], dtype=torch.bool)
    others[0, track] = False
    assert torch.equal(scene.track_history[others], batch.scene.track_history[others])
    assert torch.equal(scene.track_size_m, batch.scene.track_size_m)


def test_history_dropout_hides_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def spy(scene: object, agents: object, *, hidden: Tensor) -> object:
        seen.append(hidden)
        return scene

    monkeypatch.setattr("waycode.training.module.hide_history", spy)
    module = AutoencoderModule(replace(tiny(), history_dropout=0.25))
    batch = batch_of_sample(agents_per_scene=4, scenes=4)
    for draw in range(200):
        module._with_hidden_history(batch, torch.Generator().manual_seed(draw))
    assert float(torch.cat(seen).float().mean()) == pytest.approx(0.25, abs=0.03)


def test_others_are_where_they_were_in_the_scene() -> None:
    dataset, features = bundled_dataset(), tiny().model.features
    scene = dataset[0]
    agents = modelled_agents(scene)[:3]
    batch = collate([extract(scene, agents, config=features)])
    position, there, margin = futures_of_others(batch)
    assert not there[0, 0].any()  # nobody collides with itself
    now, tracks = scene.current_step, scene.tracks
    step = int(torch.nonzero(there[0, 1])[0])
    own, other = agents[0], agents[1]
    apart = torch.from_numpy(tracks.position_m[other, now + 1 + step] - tracks.position_m[own, now])
    assert float(position[0, 1, step].norm()) == pytest.approx(float(apart.norm()), abs=1e-3)
    heading = float(tracks.heading_rad[own, now])
    ahead = math.cos(heading) * float(apart[0]) + math.sin(heading) * float(apart[1])
    assert float(position[0, 1, step, 0]) == pytest.approx(ahead, abs=1e-3)
    radius = [min(float(tracks.length_m[agent]), float(tracks.width_m[agent])) / 2 for agent in (own, other)]
    assert float(margin[0, 1]) == pytest.approx(sum(radius))


def test_recorded_trajectories_collide_with_nobody() -> None:
    batch = batch_of_sample(agents_per_scene=8, scenes=4)
    future = batch.future_m[batch.agents.mask]
    others, there, margin = futures_of_others(batch)
    there = there & batch.future_valid[batch.agents.mask][:, None]
    assert there.any()
    assert float(collision_penalty_m(future[:, None], others, there, margin_m=margin).max()) == 0.0


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(replace(tiny(), collision_weight=10.0, history_dropout=1.0), id="closed loop"),
        pytest.param(replace(tiny(), nested_dropout=NestedDropout.SAMPLED), id="sampled dropout"),
    ],
)
def test_options_have_finite_gradients(config: TrainingConfig) -> None:
    torch.manual_seed(0)
    plain, module = AutoencoderModule(tiny()), AutoencoderModule(config)
    module.model.load_state_dict(plain.model.state_dict())
    batch = batch_of_sample(agents_per_scene=8)
    losses = [one.training_step(batch, 0)["loss"] for one in (plain, module)]
    assert float(losses[0].detach()) != float(losses[1].detach())
    gradients = torch.autograd.grad(losses[1], list(module.parameters()), allow_unused=True)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)


def straight(speed_mps: float, *, offset_m: float = 0.0) -> Tensor:
    """80 steps along x, to the left of it by an offset."""
    x = torch.arange(1, 81) * 0.1 * speed_mps
    return torch.stack([x, torch.full_like(x, offset_m)], dim=-1)


def candidates(*paths: Tensor) -> Tensor:
    return torch.stack(paths)[None]


def test_late_on_the_path_is_no_deviation_but_beside_it_is() -> None:
    future, valid = straight(10.0)[None], torch.ones(1, 80, dtype=torch.bool)
    beside = path_deviation_m(candidates(straight(6.0), straight(10.0, offset_m=1.5)), future, valid)
    torch.testing.assert_close(beside, torch.tensor([[0.0, 1.5]]), atol=1e-4, rtol=0)


def test_beyond_the_end_of_the_path_nothing_is_known() -> None:
    future, valid = straight(5.0)[None], torch.ones(1, 80, dtype=torch.bool)
    beside = path_deviation_m(candidates(straight(10.0, offset_m=1.0)), future, valid)
    # The recorded path ends at 40 m; of the points at 4, 8, ..., 80 m, ten pass it.
    assert float(beside) == pytest.approx(10 / 20, abs=1e-4)


@pytest.mark.parametrize("case", ["standing", "unobserved"])
def test_without_a_path_there_is_no_deviation(case: str) -> None:
    future = straight(0.0 if case == "standing" else 10.0)[None]
    valid = torch.full((1, 80), case == "standing")
    mean = candidates(straight(8.0, offset_m=2.0)).requires_grad_()
    deviation = path_deviation_m(mean, future, valid)
    assert float(deviation.detach()) == 0
    assert torch.autograd.grad(deviation.sum(), mean)[0].isfinite().all()


def test_acceleration_error_by_hand() -> None:
    time_s = torch.arange(1, 81) * 0.1
    braking = torch.stack([10 * time_s - time_s**2, torch.zeros(80)], dim=-1)  # 2 m/s2 backwards
    valid = torch.ones(1, 80, dtype=torch.bool)
    error = acceleration_error_mps2(candidates(braking, straight(3.0)), straight(10.0)[None], valid, dt_s=0.1)
    torch.testing.assert_close(error, torch.tensor([[2.0, 0.0]]), atol=2e-3, rtol=0)
    none = acceleration_error_mps2(candidates(braking), straight(10.0)[None], ~valid, dt_s=0.1)
    assert float(none) == 0
