"""Refinement: on decoders that are formulas, then on the real one."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from table_decoder import SEEDS
from tiny_model import batch_of, crowd, random_latents, seen_by, tiny_model
from waycode.model import MeanAndStd, PrefixDecoder
from waycode.search import RefineResult, beam_search, refine
from waycode.search.refine import _cost_and_gradient


def bent(latents: Tensor) -> Tensor:
    """Decodes latents [B, n, D] to a smooth, uneven function of them [B, n]."""
    return (torch.sin(2 * latents) + 0.3 * latents**2).cumsum(dim=1).sum(dim=2)


def distance_to(target: float) -> Callable[[Tensor], Tensor]:
    return lambda decoded: ((decoded - target) ** 2).mean(dim=1)


def start(seed: int, *, rows: int = 3) -> Tensor:
    return torch.rand(rows, 2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def test_gradients_against_finite_differences() -> None:
    latents, objective, small = start(0), distance_to(0.7), 1e-6
    cost, gradient = _cost_and_gradient(bent, objective, latents)
    torch.testing.assert_close(cost, objective(bent(latents)))
    for place in range(latents[0].numel()):
        nudge = torch.zeros(6, dtype=torch.float64)
        nudge[place] = small
        nudge = nudge.view(2, 3)
        difference = (objective(bent(latents + nudge)) - objective(bent(latents - nudge))) / (2 * small)
        torch.testing.assert_close(gradient.flatten(1)[:, place], difference, atol=1e-7, rtol=1e-6)


@given(SEEDS, st.floats(-6, 6), st.integers(0, 12), st.floats(1e-3, 3.0))
@settings(max_examples=40, deadline=None)
def test_never_worse_and_never_outside(seed: int, target: float, steps: int, learning_rate: float) -> None:
    latents, objective = start(seed), distance_to(target)
    found = refine(bent, objective, latents, steps=steps, learning_rate=learning_rate)
    assert found.latents.abs().max() <= 1
    assert (found.cost_after <= found.cost_before).all()
    torch.testing.assert_close(found.cost_before, objective(bent(latents)))
    torch.testing.assert_close(found.cost_after, objective(bent(found.latents)))
    assert found.steps == steps
    assert not found.latents.requires_grad


def test_the_steps_are_those_of_adam() -> None:
    """By hand, for one number and a cost whose slope is known: x ** 2 + 3 x, falling all the way."""
    x, mean, square = 0.9, 0.0, 0.0
    for step in range(1, 8):
        slope = 2 * x + 3
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        x -= 0.05 * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)) ** 0.5 + 1e-8)
    latents = torch.full((1, 1, 1), 0.9, dtype=torch.float64)
    found = refine(
        lambda code: code, lambda code: (code**2 + 3 * code).sum(dim=(1, 2)), latents, steps=7, learning_rate=0.05
    )
    assert found.latents.item() == pytest.approx(x, abs=1e-12)
    assert found.cost_after.item() == pytest.approx(x**2 + 3 * x, abs=1e-12)


def test_forty_steps_arrive() -> None:
    """The best point is inside: Adam with the paper's rate finds it."""
    wanted = start(3)
    found = refine(
        lambda latents: latents, lambda latents: ((latents - wanted) ** 2).sum(dim=(1, 2)), wanted * 0, steps=40
    )
    assert (found.cost_after < 0.02 * found.cost_before).all()


def test_a_best_point_outside_is_met_at_the_border() -> None:
    found = refine(lambda latents: latents, lambda latents: (latents - 3).abs().sum(dim=(1, 2)), start(0), steps=40)
    assert (found.latents == 1).all()


def test_the_best_on_the_way_is_kept() -> None:
    """A rate so high that every step overshoots: what was better before is given back."""
    latents = torch.full((1, 1, 1), 0.01, dtype=torch.float64)
    found = refine(lambda code: code, lambda code: (code**2).sum(dim=(1, 2)), latents, steps=1, learning_rate=1.0)
    assert found.latents.item() == 0.01
    assert found.cost_after == found.cost_before


def test_rows_do_not_know_of_each_other() -> None:
    together = refine(bent, distance_to(1.0), start(5, rows=4), steps=9)
    for row in range(4):
        alone = refine(bent, distance_to(1.0), start(5, rows=4)[row : row + 1], steps=9)
        torch.testing.assert_close(alone.latents[0], together.latents[row])


def broken_from(threshold: float, *, kind: str) -> Callable[[Tensor], Tensor]:
    """Falls with the sum of the latents, until it or its slope is no number anymore."""

    def objective(latents: Tensor) -> Tensor:
        total = latents.sum(dim=(1, 2))
        if kind == "cost":
            return torch.where(total < threshold, -total, torch.nan)
        slope = torch.sqrt((threshold - total).clamp(min=0))  # an infinite slope at and beyond the threshold
        return slope - 10 * total

    return objective


@pytest.mark.parametrize("kind", ["cost", "slope"])
def test_a_row_that_breaks_stops_alone(kind: str) -> None:
    latents = torch.zeros(2, 1, 2, dtype=torch.float64)
    latents[1] = -0.9
    found = refine(lambda code: code, broken_from(0.9, kind=kind), latents, steps=10)
    assert found.cost_after.isfinite().all()
    assert (found.cost_after < found.cost_before).all()
    assert found.latents.isfinite().all()
    torch.testing.assert_close(found.latents[1], torch.full((1, 2), 0.1).double(), atol=1e-2, rtol=0)  # all ten steps


def test_a_start_without_a_cost_stays_as_it_is() -> None:
    latents = torch.full((1, 1, 2), 0.5, dtype=torch.float64)
    found = refine(lambda code: code, broken_from(-9, kind="cost"), latents, steps=10)
    assert found.steps == 0
    assert torch.equal(found.latents, latents)
    assert found.cost_before.isnan().all()
    assert found.cost_after.isnan().all()


@pytest.mark.parametrize(
    "objective",
    [lambda code: torch.zeros(3), lambda code: (code.sum(dim=(1, 2)) > 0).double()],
    ids=["constant", "a step"],
)
def test_an_objective_without_gradients(objective: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="no gradient with respect to the latents, expected a differentiable one"):
        refine(lambda code: code, objective, start(0), steps=3)


def test_an_objective_of_a_wrong_shape() -> None:
    with pytest.raises(ValueError, match=r"costs of shape \[3, 2\], expected \[3\]"):
        refine(bent, lambda decoded: decoded, start(0), steps=3)


@pytest.mark.parametrize(("steps", "learning_rate"), [(-1, 0.1), (1, 0.0), (1, float("nan"))])
def test_settings_that_are_none(steps: int, learning_rate: float) -> None:
    with pytest.raises(ValueError, match=f"steps is {steps} and learning_rate {learning_rate}"):
        refine(bent, distance_to(0.0), start(0), steps=steps, learning_rate=learning_rate)


def test_the_last_step_asks_for_no_gradient() -> None:
    """Nobody descends from there; all else is as if it had one."""
    asked: list[bool] = []

    def objective(decoded: Tensor) -> Tensor:
        asked.append(decoded.requires_grad)
        return distance_to(1.0)(decoded)

    found = refine(bent, objective, start(2), steps=3)
    assert asked == [True, True, True, False]
    torch.testing.assert_close(found.cost_after, distance_to(1.0)(bent(found.latents)))


@pytest.mark.parametrize(
    ("deadline_s", "steps"), [(0.0, 0), (1.9, 0), (2.0, 1), (3.9, 2), (4.0, 3), (99.0, 6), (None, 6)]
)
def test_refinement_ends_before_its_deadline(deadline_s: float | None, steps: int) -> None:
    """A look takes a second: the first is at the start, a step is made only if its look will end in time."""
    now_s = 100.0

    def decode(latents: Tensor) -> Tensor:
        nonlocal now_s
        now_s += 1.0
        return bent(latents)

    found = refine(decode, distance_to(1.0), start(4), steps=6, deadline_s=deadline_s, clock=lambda: now_s)
    assert found.steps == steps
    assert now_s == 101.0 + steps
    as_many = refine(bent, distance_to(1.0), start(4), steps=steps)
    torch.testing.assert_close(found.latents, as_many.latents)  # the best so far
    torch.testing.assert_close(found.cost_after, as_many.cost_after)


@pytest.mark.parametrize("deadline_s", [-1.0, float("nan")])
def test_a_deadline_that_is_none(deadline_s: float) -> None:
    with pytest.raises(ValueError, match=f"deadline_s is {deadline_s}, expected 0 or more seconds"):
        refine(bent, distance_to(1.0), start(0), steps=1, deadline_s=deadline_s)


def refined_by_the_model(*, steps: int, causal: bool = True, width: int = 2) -> tuple[RefineResult, Tensor]:
    """The best codes of a beam, refined towards a goal; and the costs of the search."""
    model = tiny_model(causal=causal)
    with torch.no_grad():
        _, memory = seen_by(model, batch_of(crowd()))
    goal, decode = torch.tensor([6.0, 2.0]), PrefixDecoder(model, memory)

    def cost(decoded: MeanAndStd) -> Tensor:
        return (decoded[0][:, :, -1] - goal).norm(dim=-1)

    codebook = model.codebook(2)
    found = beam_search(decode, cost, codebook=codebook, num_rows=3, depth=3, beam_width=width)
    seeds = codebook.codes(found.ids).flatten(0, 1)
    with torch.no_grad():  # a caller's mode does not matter
        refined = refine(decode.decode, lambda decoded: cost(decoded).flatten(), seeds, steps=steps)
    return refined, found.costs.flatten()


@pytest.mark.parametrize("causal", [True, False])
def test_the_real_decoder_is_refined(causal: bool) -> None:
    refined, searched = refined_by_the_model(steps=15, causal=causal)
    torch.testing.assert_close(refined.cost_before, searched, atol=1e-3, rtol=1e-4)
    assert (refined.cost_after <= refined.cost_before).all()
    assert (refined.cost_after < refined.cost_before - 1e-3).any()
    assert refined.latents.shape == (6, 3, 3)
    assert refined.latents.abs().max() <= 1


def test_refinement_leaves_the_model_alone() -> None:
    model = tiny_model()
    with torch.no_grad():
        _, memory = seen_by(model, batch_of(crowd()))
    refine(
        PrefixDecoder(model, memory).decode,
        lambda decoded: decoded[1][:, :, -1].norm(dim=-1).flatten(),
        random_latents(3, 2, 3),
        steps=2,
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_codes_that_do_not_fit_the_rows() -> None:
    model = tiny_model()
    _, memory = seen_by(model, batch_of(crowd()))
    with pytest.raises(ValueError, match="got 4 codes, expected a multiple of 3"):
        PrefixDecoder(model, memory).decode(random_latents(4, 2, 3))
