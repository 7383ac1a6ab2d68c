"""Errors by WOMD's convention, and bootstrap intervals: hand-computed cases."""

import math

import numpy as np
import pytest
import torch

from waycode.evaluation.metrics import bootstrap_interval, displacement_errors_m, final_errors_m, mean_over_types


def straight(errors_m: list[float], steps: int = 80) -> torch.Tensor:
    """Predictions that are off by a constant in x, one row each; the truth is zero."""
    return torch.tensor(errors_m)[:, None, None].expand(-1, steps, 1) * torch.tensor([1.0, 0.0])


def test_ade_is_the_mean_over_three_horizons() -> None:
    predicted = torch.zeros(1, 80, 2)
    predicted[:, 30:, 1] = 1.0  # right for 3 s, then 1 m off
    ade = displacement_errors_m(predicted, torch.zeros(1, 80, 2), torch.ones(1, 80, dtype=torch.bool))
    assert ade.tolist() == [pytest.approx((0 + 20 / 50 + 50 / 80) / 3)]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(slice(0, 80), 2.0, id="all"),
        pytest.param(slice(40, 80), 2.0, id="nothing up to 3 s: the other horizons count"),
        pytest.param(slice(0, 10), 2.0, id="only the first second"),
        pytest.param(slice(0, 0), math.nan, id="nothing"),
    ],
)
def test_ade_counts_what_was_observed(seen: slice, expected: float) -> None:
    valid = torch.zeros(1, 80, dtype=torch.bool)
    valid[:, seen] = True
    predicted = torch.where(valid[..., None], straight([2.0]), torch.tensor(1e6))
    ade = displacement_errors_m(predicted, torch.zeros(1, 80, 2), valid)
    assert float(ade) == pytest.approx(expected, nan_ok=True)


def test_horizons_follow_the_time_step() -> None:
    predicted = torch.zeros(1, 16, 2)
    predicted[:, 6:, 0] = 1.0  # steps of half a second: right for 3 s
    ade = displacement_errors_m(predicted, torch.zeros(1, 16, 2), torch.ones(1, 16, dtype=torch.bool), dt_s=0.5)
    assert ade.tolist() == [pytest.approx((0 + 4 / 10 + 10 / 16) / 3)]


def test_final_error_needs_the_last_step() -> None:
    valid = torch.ones(2, 5, dtype=torch.bool)
    valid[1, -1] = False
    errors = final_errors_m(straight([3.0, 3.0], 5), torch.zeros(2, 5, 2), valid)
    assert float(errors[0]) == 3.0
    assert bool(errors[1].isnan())


@pytest.mark.parametrize(
    ("values", "types", "expected"),
    [
        pytest.param([1.0, 3.0, 8.0], [1, 1, 2], 5.0, id="types count the same"),
        pytest.param([1.0, math.nan, 8.0], [1, 1, 2], 4.5, id="unknown values are left out"),
        pytest.param([1.0, 3.0, math.nan], [1, 1, 2], 2.0, id="a type without values is left out"),
        pytest.param([math.nan], [1], math.nan, id="nothing"),
    ],
)
def test_mean_over_types(values: list[float], types: list[int], expected: float) -> None:
    assert mean_over_types(np.array(values), np.array(types)) == pytest.approx(expected, nan_ok=True)


def test_interval_is_that_of_drawing_scenes_one_by_one() -> None:
    rng = np.random.default_rng(3)
    values, types = rng.normal(1.0, 0.3, 60), rng.integers(1, 3, 60)
    scenes = np.repeat(np.arange(20), 3)
    values[5] = np.nan
    drawn = np.random.default_rng(0).integers(20, size=(200, 20))
    rows = [np.concatenate([np.flatnonzero(scenes == scene) for scene in draw]) for draw in drawn]
    means = [mean_over_types(values[chosen], types[chosen]) for chosen in rows]
    expected = np.quantile(means, [0.025, 0.975])
    assert bootstrap_interval(values, types, scenes, resamples=200) == pytest.approx(tuple(expected))


def test_interval_covers_the_mean_and_narrows_with_more_scenes() -> None:
    rng = np.random.default_rng(0)

    def interval(count: int) -> tuple[float, float]:
        return bootstrap_interval(rng.normal(1.0, 0.5, count), np.ones(count, np.int64), np.arange(count))

    few, many = interval(30), interval(3000)
    assert many[0] < 1.0 < many[1]
    assert many[1] - many[0] < 0.2 * (few[1] - few[0])
    assert many[1] - many[0] == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(3000), rel=0.2)


def test_agents_of_one_scene_are_no_independent_witnesses() -> None:
    scene_values = np.random.default_rng(1).normal(0, 1, 20)
    values, types = np.repeat(scene_values, 10), np.ones(200, np.int64)
    together = bootstrap_interval(values, types, np.repeat(np.arange(20), 10))
    apart = bootstrap_interval(values, types, np.arange(200))
    assert together[1] - together[0] > 2 * (apart[1] - apart[0])


def test_interval_of_nothing() -> None:
    none = bootstrap_interval(np.array([np.nan]), np.array([1]), np.array([0]))
    assert none == pytest.approx((math.nan, math.nan), nan_ok=True)
