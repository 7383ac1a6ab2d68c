"""Errors by WOMD's convention, bootstrap intervals, paired intervals: hand-computed cases."""

import math

import numpy as np
import pytest
import torch

from waycode.evaluation.metrics import bootstrap_means, displacement_errors_m, final_errors_m, mean_over_types
from waycode.evaluation.report import Estimate


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


def test_official_sampling_takes_every_fifth_step() -> None:
    """Errors of 1 m at the sixteen steps 5, 10, ..., 80, and of 1000 m at all others, which WOMD does not look at."""
    predicted = torch.full((1, 80, 2), 1000.0)
    predicted[:, 4::5] = torch.tensor([1.0, 0.0])
    everything, nothing = torch.ones(1, 80, dtype=torch.bool), torch.zeros(1, 80, 2)
    assert displacement_errors_m(predicted, nothing, everything, every_s=0.5).tolist() == [1.0]
    assert displacement_errors_m(predicted, nothing, everything) > 1000


def test_official_sampling_by_horizon() -> None:
    predicted = torch.zeros(1, 80, 2)
    predicted[:, 30:, 1] = 1.0  # right for 3 s: 6 of the 10 samples up to 5 s, and of the 16 up to 8 s
    valid = torch.ones(1, 80, dtype=torch.bool)
    valid[:, 74] = False  # at 7.5 s
    ade = displacement_errors_m(predicted, torch.zeros(1, 80, 2), valid, every_s=0.5)
    assert ade.tolist() == [pytest.approx((0 + 4 / 10 + 9 / 15) / 3)]


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


def test_means_are_those_of_drawing_episodes_one_by_one() -> None:
    rng = np.random.default_rng(3)
    values, types = rng.normal(1.0, 0.3, (60, 2)), rng.integers(1, 3, 60)
    episodes = np.repeat([f"world {number:02d}" for number in range(20)], 3)
    values[5, 1] = np.nan  # skipped in both columns
    names, known = np.unique(episodes), np.isfinite(values).all(axis=1)
    drawn = np.random.default_rng(0).integers(20, size=(200, 20))
    rows = [np.concatenate([np.flatnonzero((episodes == names[one]) & known) for one in draw]) for draw in drawn]
    expected = [[mean_over_types(values[chosen, column], types[chosen]) for column in (0, 1)] for chosen in rows]
    np.testing.assert_allclose(bootstrap_means(values, types, episodes, resamples=200), expected)


def test_interval_covers_the_mean_and_narrows_with_more_episodes() -> None:
    rng = np.random.default_rng(0)
    few, many = (Estimate.of(rng.normal(1.0, 0.5, count), np.arange(count)) for count in (30, 3000))
    assert many.low < 1.0 < many.high
    assert many.high - many.low < 0.2 * (few.high - few.low)
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(3000), rel=0.2)


def test_windows_of_one_episode_are_not_independent() -> None:
    values = np.repeat(np.random.default_rng(1).normal(0, 1, 20), 10)  # ten scenes of each of 20 worlds are alike
    together, apart = (Estimate.of(values, episodes) for episodes in (np.repeat(np.arange(20), 10), np.arange(200)))
    assert together.mean == apart.mean
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_interval_of_nothing() -> None:
    none = Estimate.of(np.array([np.nan]), np.array(["a"]))
    assert (none.mean, none.low, none.high) == pytest.approx((math.nan,) * 3, nan_ok=True)


def test_difference_by_hand() -> None:
    """Two of three episodes are resampled alike by both columns: the difference is 1 in each, whatever is drawn."""
    first, second = np.array([11.0, 3.0, math.nan]), np.array([10.0, 2.0, 5.0])
    found = Estimate.of_difference(first, second, np.array(["a", "b", "c"]))
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    alone = Estimate.of(first, np.array(["a", "b", "c"]))
    assert (alone.low, alone.mean, alone.high) == (3.0, 7.0, 11.0)  # two episodes: both the same in half of the draws


def test_ratio_by_hand() -> None:
    second = np.array([10.0, 2.0, 4.0, 7.0])
    first = np.array([5.0, 1.0, 2.0, math.nan])
    found = Estimate.of_ratio(first, second, np.array(["a", "b", "c", "d"]))
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    uneven = Estimate.of_ratio(np.array([1.0, 3.0]), np.array([2.0, 2.0]), np.array(["a", "b"]))
    assert (uneven.mean, uneven.low, uneven.high) == (1.0, 0.5, 1.5)  # of the means, (1 + 3) / (2 + 2)


def test_ratio_of_means_over_types() -> None:
    types, episodes = np.array([1, 1, 2]), np.array(["a", "a", "a"])
    found = Estimate.of_ratio(np.array([1.0, 3.0, 8.0]), np.array([2.0, 2.0, 2.0]), episodes, types)
    assert found.mean == pytest.approx((2.0 + 8.0) / 2 / 2.0)


def test_ratio_to_nothing_is_not_known() -> None:
    found = Estimate.of_ratio(np.array([1.0]), np.array([0.0]), np.array(["a"]))
    assert (found.mean, found.low, found.high) == pytest.approx((math.nan,) * 3, nan_ok=True)
