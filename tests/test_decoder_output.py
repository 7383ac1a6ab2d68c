"""Decoded trajectories: splines that start with the current velocity, or one position per step; standard deviations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from tiny_model import FEATURES, batch_of, crowd, model_and_embedding, random_latents, seen_by, tiny_model
from waycode.model import SceneEmbedding, spline
from waycode.model.decoder import FIXED_POINTS


def standing(scene: SceneEmbedding) -> SceneEmbedding:
    """The same scene, with agents that do not move."""
    velocity = torch.zeros_like(scene.velocity_mps)
    return replace(scene, tokens=replace(scene.tokens, velocity_mps=velocity))


# The spline


@pytest.mark.parametrize("num_points", [4, 6, 16])
def test_spline_weights_sum_to_one_and_are_smooth(num_points: int) -> None:
    steps = 400
    basis = spline.basis(num_points, steps=steps).double()
    torch.testing.assert_close(basis.sum(dim=1), torch.ones(steps).double(), atol=1e-6, rtol=0)
    assert basis.min() >= 0
    assert basis[-1].tolist() == [0.0] * (num_points - 1) + [1.0]  # ends in the last control point
    assert (basis > 1e-6).sum(dim=1).max() <= spline.DEGREE + 1  # control points have a local effect
    curvature = np.diff(basis.numpy(), n=2, axis=0) * steps**2
    jumps = np.abs(np.diff(curvature, axis=0)).max() / np.abs(curvature).max()
    assert jumps < 0.15  # the curvature of a cubic spline is continuous


@pytest.mark.parametrize("num_points", [4, 6, 16])
def test_evenly_placed_control_points_give_constant_velocity(num_points: int) -> None:
    times = spline.control_times(num_points)
    assert times[0] == 0
    assert times[-1] == 1
    torch.testing.assert_close(spline.basis(num_points, steps=20) @ times, torch.arange(1, 21) / 20)


@pytest.mark.parametrize("num_points", [6, 9, 16])
def test_a_smooth_end_halves_the_jerk(num_points: int) -> None:
    knots = np.concatenate([np.zeros(3), np.linspace(0, 1, num_points - 2), np.ones(3)])
    points = np.random.default_rng(0).normal(size=num_points)
    smooth = (spline.smooth_end(num_points).double() @ torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(smooth[:-1], points[:-1])
    jerk = [float(BSpline(knots, one, 3).derivative(3)(0.999)) for one in (points, smooth)]
    assert jerk[1] == pytest.approx(jerk[0] / 2, rel=1e-4)


# Means


@pytest.mark.parametrize("spline_points", [16, None])
def test_an_output_of_zero_is_constant_velocity(spline_points: int | None) -> None:
    model, embedding = model_and_embedding(spline_points=spline_points, correction_width=0)
    for parameter in model.decoder.head[2].parameters():
        torch.nn.init.zeros_(parameter)
    mean, std = model.decode(random_latents(3, 2, 3, 3), embedding)
    time_s = torch.arange(1, 21) * 0.1
    onward = embedding.velocity_mps[:, None, None] * time_s[:, None]
    torch.testing.assert_close(mean, onward.expand(3, 2, 20, 2))
    torch.testing.assert_close(std, torch.ones(3, 2, 20, 2))


@torch.no_grad()
def test_trajectories_are_splines_that_start_at_zero() -> None:
    """Control points by hand, the first two at the agent; the network's unit is 5 m/s up to each of the others."""
    model, embedding = model_and_embedding(correction_width=0)
    assert model.config.spline_points is not None
    free = model.config.spline_points - FIXED_POINTS
    output = random_latents(3, 5, 2 * free + 2 * model.config.spread_points)
    model.decoder.head = torch.nn.Sequential()  # the identity
    mean, _ = model.decoder._trajectories(output, standing(embedding))
    inner = np.linspace(0, 1, free)  # knots of a clamped cubic
    knots = np.concatenate([[0, 0, 0], inner, [1, 1, 1]])
    times_s = [knots[point : point + 3].mean() * 2.0 for point in range(3, free + 3)]
    for row, candidate in ((0, 0), (2, 4)):
        points = output[row, candidate, : 2 * free].view(free, 2).numpy() * np.array(times_s)[:, None] * 5.0
        # Half way to where the jerk at the end is zero, which the three points before determine.
        points[-1] = (points[-1] + [1 / 6, -11 / 12, 7 / 4] @ points[-4:-1]) / 2
        curve = BSpline(knots, np.concatenate([np.zeros((2, 2)), points]), 3)
        np.testing.assert_allclose(mean[row, candidate], curve(np.arange(1, 21) / 20), atol=1e-4)
        assert curve(0).tolist() == [0, 0]
        np.testing.assert_allclose(curve.derivative()(0), 0, atol=1e-9)  # the velocity does not jump


@torch.no_grad()
def test_without_a_spline_every_step_has_its_own_output() -> None:
    """By hand: the unit of the mean is 5 m/s up to the step; the logarithm of the standard deviation has none."""
    model, embedding = model_and_embedding(spline_points=None)
    steps = FEATURES.future_steps
    assert model.decoder.correction is None
    assert model.decoder.head[2].out_features == 4 * steps
    output = random_latents(3, 5, 4 * steps)
    model.decoder.head = torch.nn.Sequential()
    mean, std = model.decoder._trajectories(output, embedding)
    time_s = torch.arange(1, steps + 1)[:, None] * FEATURES.dt_s
    onward = embedding.velocity_mps[:, None, None] * time_s
    offset, log_std = (part.view(3, 5, steps, 2) for part in output.chunk(2, dim=-1))
    torch.testing.assert_close(mean, onward + offset * 5.0 * time_s, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(std, log_std.exp())


# Standard deviations


@pytest.mark.parametrize("spline_points", [6, None])
@torch.no_grad()
def test_standard_deviations_are_positive_and_bounded(spline_points: int | None) -> None:
    model, embedding = model_and_embedding(spline_points=spline_points)
    for scale in (-1e3, 1e3):
        std = model.decoder._trajectories(torch.full((3, 1, model.config.width), scale), embedding)[1]
        assert std.isfinite().all()
        assert std.min() > 0.01
        assert std.max() < 60


@torch.no_grad()
def test_a_code_decodes_to_another_trajectory_in_another_scene() -> None:
    model, latents = tiny_model(), random_latents(3, 1, 3, 3)
    decoded = []
    for seed in (0, 1):
        _, embedding = seen_by(model, batch_of(crowd(seed)))
        decoded.append(model.decode(latents, standing(embedding))[0])
        assert decoded[-1].isfinite().all()
    assert (decoded[0] - decoded[1]).abs().max() > 1e-2


@torch.no_grad()
def test_agents_of_one_scene_decode_a_code_differently() -> None:
    """By their own token and by their relations to the others: both change the trajectory."""
    model, embedding = model_and_embedding()
    embedding = standing(embedding)
    latents = random_latents(1, 1, 3, 3).expand(3, -1, -1, -1)
    mean, _ = model.decode(latents, embedding)
    assert (mean[0] - mean[1]).abs().max() > 1e-2
    for name in ("agent", "relation"):
        value = getattr(embedding.tokens, name)
        changed = value.flip(0) if name == "agent" else value.flip(1)
        other = replace(embedding, tokens=replace(embedding.tokens, **{name: changed}))
        assert (model.decode(latents, other)[0] - mean).abs().max() > 1e-2, name
