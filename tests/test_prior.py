"""The prior over codes: probabilities of all codes by hand, most likely and drawn plans, likelihood as an objective."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from roads import arc, candidates_in, road
from tiny_model import FEATURES, crowd, observed, tiny_model
from waycode.features import collate, extract
from waycode.model import Model, VarianceGate
from waycode.objectives import GoalPoint, Likelihood, ObjectiveError, TerminalVariance, parse_objective
from waycode.planner import Plan, Planner, PlannerError, PlanStatus, View
from waycode.planner.prior import CodePrior, draw

EVERY_CODE = list(product(range(8), repeat=3))


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model()


@pytest.fixture(scope="module")
def view(model: Model) -> View:
    scene = crowd()
    return Planner(model).encode(scene, observed(scene)[0])


@pytest.fixture(scope="module")
def by_hand(model: Model, view: View) -> dict[tuple[int, ...], float]:
    """Log probabilities of all 512 codes, one pass of the decoder for each."""
    found = {}
    for ids in EVERY_CODE:
        latents = model.codebook().codes(torch.tensor(ids))[None]
        with torch.no_grad():
            logits = model.decoder.next_token_logits(latents, view.embedding)[0, :3].double()
        chosen = logits.log_softmax(dim=1)[torch.arange(3), torch.tensor(ids)]
        found[ids] = float(chosen.sum())
    return found


def test_the_probabilities_of_all_codes_sum_to_one(view: View, by_hand: dict[tuple[int, ...], float]) -> None:
    everything = view.prior.of_all_codes(3)[0]
    assert float(everything.double().exp().sum()) == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(everything, [by_hand[ids] for ids in EVERY_CODE], atol=1e-4)
    assert [tuple(ids) for ids in view.prior.ids_of(torch.arange(512), 3).tolist()] == EVERY_CODE
    spread = max(by_hand.values()) - min(by_hand.values())
    assert spread > 1  # else the test would show nothing


def test_shorter_codes_are_sums_over_what_may_follow(view: View) -> None:
    whole = view.prior.of_all_codes(3)[0].double().exp()
    for depth in (1, 2):
        parts = whole.view(8**depth, -1).sum(dim=1)
        np.testing.assert_allclose(view.prior.of_all_codes(depth)[0].double().exp(), parts, atol=1e-5)


def test_rows_have_their_own_probabilities(model: Model) -> None:
    scene = crowd()
    agents = observed(scene, 3)
    batch = collate([extract(scene, agents, config=model.config.features)])
    with torch.no_grad():
        together = CodePrior(model=model, scene=model.encode_scene(batch.scene, batch.agents))
    views = Planner(model).encode_agents(scene, agents)
    for row, alone in enumerate(views):
        np.testing.assert_allclose(together.of_all_codes(3)[row], alone.prior.of_all_codes(3)[0], atol=1e-4)


def test_the_most_likely_codes_are_those_of_brute_force(view: View, by_hand: dict[tuple[int, ...], float]) -> None:
    plans = view.most_likely(40)
    ranked = sorted(EVERY_CODE, key=by_hand.__getitem__, reverse=True)
    assert [plan.tokens for plan in plans] == ranked[:40]
    for plan in plans:
        assert plan.log_probability == pytest.approx(by_hand[plan.tokens or ()], abs=1e-4)
        np.testing.assert_allclose(plan.x_m, view.decode(plan.tokens or ()).x_m, atol=1e-4)
    assert (plans[0].message, plans[1].message) == ("the most likely code", "the 2. most likely code")
    assert len({plan.tokens for plan in view.most_likely(512)}) == 512
    assert view.most_likely(3, depth=1)[0].depth == 1


def test_the_log_probability_of_given_codes(view: View, by_hand: dict[tuple[int, ...], float]) -> None:
    for ids in EVERY_CODE[::100]:
        assert view.log_probability(ids) == pytest.approx(by_hand[ids], abs=1e-4)
        assert view.decode(ids).log_probability == pytest.approx(by_hand[ids], abs=1e-4)
    sure = torch.tensor([[0.9, -0.2, 0.3], [0.1, 0.1, -0.1]])  # nearest: 1 0 1, 1 1 0
    assert view.log_probability(sure) == pytest.approx(view.log_probability([5, 6]), abs=1e-6)


def test_candidates_without_an_objective_are_the_most_likely(view: View, model: Model) -> None:
    assert [plan.tokens for plan in view.candidates(5)] == [plan.tokens for plan in view.most_likely(5)]
    without = Planner(tiny_model(prior=False)).encode(view.scene, view.agent)
    spreads = [plan.final_std_m for plan in without.candidates(12)]
    assert spreads == sorted(spreads)
    assert len(spreads) == 12
    assert without.candidates(1)[0].log_probability is None
    never = Planner(model, gate=VarianceGate(sigma_max_m={1: 0.0, 2: 0.0, 3: 0.0})).encode(view.scene, view.agent)
    assert all(plan.status is PlanStatus.UNCERTAIN for plan in never.candidates(2))


def test_draws_follow_the_probabilities(by_hand: dict[tuple[int, ...], float]) -> None:
    count = 40_000
    logarithms = torch.tensor([[by_hand[ids] for ids in EVERY_CODE]])
    for temperature in (1.0, 2.0, 0.5):
        wanted = (logarithms[0].double() / temperature).softmax(dim=0).numpy() * count
        drawn = draw(logarithms, count, seeds=[3], temperature=temperature)[0]
        seen = np.bincount(drawn.numpy(), minlength=512)
        frequent = wanted > 5
        parts = (seen[frequent] - wanted[frequent]) ** 2 / wanted[frequent]
        chi_square, freedom = float(parts.sum()), int(frequent.sum())
        assert chi_square < freedom + 4 * (2 * freedom) ** 0.5  # four standard deviations
        rest = count - seen[frequent].sum()
        assert rest == pytest.approx(count - wanted[frequent].sum(), abs=4 * count**0.5)


def test_samples_depend_on_their_seed_alone(view: View) -> None:
    def tokens(plans: list[Plan]) -> list[tuple[int, ...] | None]:
        return [plan.tokens for plan in plans]

    drawn = tokens(view.sample(30, seed=5))
    assert drawn == tokens(view.sample(30, seed=5))
    assert drawn[:10] == tokens(view.sample(10, seed=5))
    assert drawn != tokens(view.sample(30, seed=6))
    assert len(set(drawn)) > 5
    best = view.most_likely(1)[0]
    cold = view.sample(4, temperature=1e-3)
    assert tokens(cold) == [best.tokens] * 4
    assert cold[0].log_probability == best.log_probability
    assert view.sample(2, depth=2)[0].depth == 2


def test_a_wide_search_for_likelihood_finds_the_most_likely(view: View) -> None:
    found = view.beam(Likelihood(), beam_width=64, gate=False)
    wanted = view.most_likely(64)
    assert [plan.tokens for plan in found[:20]] == [plan.tokens for plan in wanted[:20]]
    for plan, other in zip(found[:20], wanted[:20], strict=True):
        assert plan.costs["likelihood"] == pytest.approx(-(other.log_probability or 0.0), abs=1e-4)
        assert plan.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_likelihood_is_added_to_other_costs(view: View) -> None:
    goal = GoalPoint(8.0, 0.0, frame="agent")
    plan = view.plan(goal + 0.5 * Likelihood(), beam_width=512, gate=False)
    alone, likely = view.plan(goal, beam_width=512, gate=False), view.most_likely(1)[0]
    assert plan.levels[0] == pytest.approx(plan.costs["goal-point"] + 0.5 * plan.costs["likelihood"], rel=1e-4)
    assert plan.costs["likelihood"] == pytest.approx(-view.log_probability(plan.tokens or ()), abs=1e-4)
    assert alone.log_probability is not None
    assert plan.log_probability is not None
    assert likely.log_probability is not None
    assert alone.log_probability <= plan.log_probability <= likely.log_probability
    as_text = view.plan("goal-point(8, 0, frame=agent) + 0.5 * likelihood", beam_width=512, gate=False)
    assert as_text.tokens == plan.tokens
    assert str(parse_objective("likelihood then comfort")) == "likelihood then comfort"


def test_refined_plans_are_rated_by_the_nearest_code(view: View) -> None:
    goal = GoalPoint(8.0, 0.0, frame="agent")
    searched = view.plan(goal + Likelihood(), gate=False)
    refined = view.refine(searched, goal, steps=3, gate=False, report=goal + Likelihood())
    assert refined.tokens is None
    assert refined.log_probability is not None
    assert refined.log_probability == pytest.approx(view.log_probability(refined.latents), abs=1e-5)
    assert refined.costs["likelihood"] == pytest.approx(-refined.log_probability, abs=1e-5)
    with pytest.raises(PlannerError, match="has no gradient"):
        view.plan(goal + Likelihood(), refine_steps=1, gate=False)


def test_plans_without_likelihood_do_not_compute_it(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = crowd()
    view = Planner(model).encode(scene, observed(scene)[0])
    monkeypatch.setattr(type(model.decoder), "prior_logits", lambda *_, **__: pytest.fail("the prior was asked"))
    (plan,) = view.beam(TerminalVariance(), gate=False, explain=False)
    assert plan.log_probability is None
    assert view.decode_many(torch.zeros(2, 3, 3)).position_m.shape[0] == 2


def test_log_probabilities_survive_json(view: View) -> None:
    for plan in (view.most_likely(1)[0], view.plan(TerminalVariance(), gate=False, levels=3)):
        assert Plan.from_json(plan.to_json()).log_probability == plan.log_probability


def test_other_levels_have_no_likelihood(view: View) -> None:
    assert view.plan(TerminalVariance(), gate=False, levels=3).log_probability is None
    with pytest.raises(
        ObjectiveError, match="no likelihood: expected codes of 2 levels, decoded by a model with a pri"
    ):
        view.plan(Likelihood(), gate=False, levels=3)
    code = replace(view.encode_trajectory(), levels=3)
    assert view.decode(code).log_probability is None
    with pytest.raises(PlannerError, match="the code has 3 levels, but the prior is of codes with 2"):
        view.log_probability(code)


def test_a_model_without_a_prior_says_so(view: View) -> None:
    without = Planner(tiny_model(prior=False)).encode(view.scene, view.agent)
    for ask in (lambda: without.sample(1), lambda: without.most_likely(1), lambda: without.log_probability([1])):
        with pytest.raises(PlannerError, match="the model has no prior over codes: expected one trained with"):
            ask()
    with pytest.raises(ObjectiveError, match="expected codes of 2 levels, decoded by a model with a prior"):
        without.plan(Likelihood(), gate=False)
    assert without.plan(TerminalVariance(), gate=False).log_probability is None


def test_trajectories_that_were_not_decoded_have_no_likelihood() -> None:
    with pytest.raises(ObjectiveError, match="the candidates have no likelihood"):
        Likelihood()(candidates_in(road(), arc(turn_rad=0.1)))


def test_requests_that_make_no_sense_are_one_sentence(view: View) -> None:
    requests: list[tuple[Callable[[], object], str]] = [
        (lambda: view.most_likely(513), "asked for 513 candidates, expected 1 to 512"),
        (lambda: view.most_likely(9, depth=1), "asked for 9 candidates, expected 1 to 8"),
        (lambda: view.sample(0), "asked for 0 plans, expected at least 1"),
        (lambda: view.sample(1, temperature=0.0), "temperature is 0.0, expected a number above 0"),
        (lambda: view.sample(1, depth=4), "depth is 4, expected 1 to 3"),
    ]
    for ask, sentence in requests:
        with pytest.raises(PlannerError, match=sentence):
            ask()
    deep = Planner(tiny_model(num_tokens=7)).encode(view.scene, view.agent)
    with pytest.raises(PlannerError, match="7 tokens have 2097152 codes, expected at most 262144"):
        deep.most_likely(1)
    assert deep.plan(Likelihood(), gate=False).depth == 7


def test_agents_that_are_encoded_together() -> None:
    scene = crowd()
    agents = observed(scene, 4)
    everywhere = replace(FEATURES, max_distance_m=1000.0)
    planner = Planner(tiny_model(max_scene_tokens=1000, features=everywhere))
    together = planner.encode_agents(scene, [agents[0], scene.tracks.ids[agents[1]], *agents[2:]])
    assert [view.agent for view in together] == agents
    for view in together:
        alone = planner.encode(scene, view.agent)
        one, other = view.decode([1, 2, 3]), alone.decode([1, 2, 3])
        np.testing.assert_allclose(one.x_m, other.x_m, atol=1e-3)
        np.testing.assert_allclose(one.std_m, other.std_m, rtol=1e-3)
        assert view.log_probability([1, 2]) == pytest.approx(alone.log_probability([1, 2]), abs=1e-4)
        np.testing.assert_allclose(
            view.encode_trajectory(levels=None).latents, alone.encode_trajectory(levels=None).latents, atol=1e-4
        )
    assert planner.encode_agents(scene, []) == []
    with pytest.raises(PlannerError, match="has no agent 'nobody'"):
        planner.encode_agents(scene, [agents[0], "nobody"])
