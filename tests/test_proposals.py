"""Where the trajectories of a step come from, PDM-Closed's scorer as a judge, and the studies made of both."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from driving_scenes import drives_along, observation_of, road_scene, setting_of
from waycode import Planner
from waycode.baselines import PdmConfig
from waycode.baselines.pdm_closed import score_proposals
from waycode.driving import LqrTracker, Observation, Trajectory, constant_velocity_forecast
from waycode.evaluation import closed_loop_studies
from waycode.evaluation.closed_loop_studies import (
    JUDGES,
    PAPER_ABLATIONS,
    POLICIES,
    PROPOSALS,
    ProposalStudy,
    StudyName,
    build_study,
    cell_of,
)
from waycode.evaluation.report import EvaluationError
from waycode.model import VarianceGate
from waycode.objectives import DRIVING_OBJECTIVE, Candidates
from waycode.planner import View
from waycode.simulation.drivers import LatentConfig, LatentDriver
from waycode.simulation.drivers.latent import loaded_planner, parse_judge
from waycode.simulation.drivers.pdm_score import PDM_SCORE, PdmScore
from waycode.simulation.drivers.policy import Evaluator, Judged, PolicyConfig
from waycode.simulation.drivers.proposals import rule_based_proposals, sampled_proposals, search_proposals

SAMPLES = Path(str(files("waycode"))) / "samples" / "sumo"
CODES = 8  # of one token: 2 levels in 3 dimensions


def evaluator(observation: Observation, *, objective: str = DRIVING_OBJECTIVE) -> Evaluator:
    return Evaluator(
        objective=parse_judge(objective), setting=setting_of(observation), tracker=LqrTracker(), policy=PolicyConfig()
    )


def view_of(observation: Observation, planner: Planner | None = None) -> View:
    planner = loaded_planner("sumo-small") if planner is None else planner
    return planner.encode(observation.scene, setting=setting_of(observation))


def searched(observation: Observation, *, depth: int, beam_width: int = 2) -> list[Judged]:
    view, evaluate = view_of(observation), evaluator(observation)
    return search_proposals(view, evaluate, depth=depth, beam_width=beam_width, levels=2, deadline_s=None)


def least(judged: list[Judged]) -> tuple[float, ...]:
    return min(tuple(row) for one in judged for row in one.levels.tolist())


def test_a_search_proposes_what_it_has_decoded_of_every_length() -> None:
    observation = observation_of(road_scene())
    without_gate = replace(view_of(observation), gate=VarianceGate(sigma_max_m=dict.fromkeys((1, 2, 3), np.inf)))
    evaluate = evaluator(observation)
    found = search_proposals(without_gate, evaluate, depth=3, beam_width=2, levels=2, deadline_s=None)
    assert [len(one.levels) for one in found] == [CODES, 2 * CODES, 2 * CODES]


def test_a_deeper_search_is_never_worse_by_its_judge() -> None:
    observation = observation_of(road_scene(others=((25.0, 0.0, 4.0),)))
    one, two, three = (least(searched(observation, depth=depth)) for depth in (1, 2, 3))
    assert three <= two <= one


def test_codes_that_the_model_is_uncertain_of_are_not_proposed() -> None:
    certain, observation = loaded_planner("sumo-small"), observation_of(road_scene())
    never = Planner(certain.model, gate=VarianceGate(sigma_max_m=dict.fromkeys(certain.gate.sigma_max_m, 0.0)))
    view, evaluate = view_of(observation, never), evaluator(observation)
    assert search_proposals(view, evaluate, depth=2, beam_width=1, levels=2, deadline_s=None) == []
    assert sampled_proposals(view, evaluate, depth=3) == []


def test_samples_of_the_prior_are_different_codes() -> None:
    observation = observation_of(road_scene())
    (found,) = sampled_proposals(view_of(observation), evaluator(observation), depth=3)
    assert 1 <= len(found.levels) <= 40
    assert len(np.unique(found.trajectory.position_m[:, -1], axis=0)) == len(found.levels)


@pytest.mark.parametrize(("kind", "count"), [("centreline", 15), ("constant-velocity", 1)])
def test_proposals_without_a_model_start_where_the_car_is(kind: str, count: int) -> None:
    observation = observation_of(road_scene())
    evaluate = evaluator(observation)
    (found,) = rule_based_proposals(kind, observation, evaluate.setting.road, evaluate)  # type: ignore[arg-type]
    assert found.levels.shape == (count, 2)
    assert found.drive.heading_rad.shape == (count, evaluate.num_steps + 1)
    if kind == "constant-velocity":
        np.testing.assert_allclose(found.drive.speed_mps, 10.0, atol=1e-6)


@pytest.mark.parametrize("proposals", ["search", "samples", "all-codes", "centreline", "constant-velocity"])
def test_a_car_drives_by_proposals_of_every_origin(proposals: str) -> None:
    config = LatentConfig(proposals=proposals, depth=2, beam_width=1)  # type: ignore[arg-type]
    driver, observation = LatentDriver(config=config), observation_of(road_scene())
    trajectory, _ = driver.plan(driver.reset(observation), observation)
    assert trajectory.speed_mps[10] > 5.0  # the road is free


# PDM-Closed's scorer as a judge


def judge(observation: Observation, *speeds_mps: float) -> tuple[np.ndarray, np.ndarray]:
    """Danger and lost score of driving straight on."""
    drives = drives_along(observation, *speeds_mps)
    levels = PdmScore().levels(Candidates.of_trajectory(drives, setting_of(observation)))
    return levels[:, 0].numpy(), levels[:, 1].numpy()


def test_the_judge_scores_as_pdm_closed_does() -> None:
    observation = observation_of(road_scene(others=((30.0, 0.0, 5.0),)))
    drives, setting = drives_along(observation, 4.0, 8.0, 12.0), setting_of(observation)
    others = constant_velocity_forecast(observation.scene, observation.agent, num_steps=49, near=observation.ego)
    scores = score_proposals(drives, others, road=setting.road, vehicle=setting.vehicle, dt_s=0.1, config=PdmConfig())
    _, lost = judge(observation, 4.0, 8.0, 12.0)
    np.testing.assert_allclose(lost, 1 - scores.total)


def test_a_collision_is_dangerous_and_the_sooner_the_more() -> None:
    danger, _ = judge(observation_of(road_scene(others=((25.0, 0.0, 0.0),))), 2.0, 8.0, 12.0)
    assert danger[0] == 0
    assert 1 <= danger[1] < danger[2] <= 2


def test_scores_that_depend_on_each_other_are_computed_together() -> None:
    observation = observation_of(road_scene())
    evaluate = evaluator(observation, objective=PDM_SCORE)
    slow, fast = (
        evaluate.judge(Trajectory.stack([drives_along(observation, speed).select(0)])) for speed in (5.0, 10.0)
    )
    assert slow.levels[0, 1] == pytest.approx(fast.levels[0, 1], abs=1e-6)  # each is the best of its own
    together = evaluate.levels_together([slow, fast])
    assert together[0, 1] > together[1, 1] + 0.1


# The studies


def test_the_study_of_proposals_has_a_cell_for_each_pair_and_less_policy_for_some() -> None:
    study = ProposalStudy()
    found = study.configurations()
    assert len(found) == len(PROPOSALS) * len(JUDGES) + len(study.with_policies) * (len(POLICIES) - 1)
    assert len(set(found.values())) == len(found)
    assert {cell_of(name)[0] for name in found} == set(PROPOSALS)


@pytest.mark.parametrize("name", ["proposals", "judges", "policies", "with_policies"])
def test_an_unknown_part_of_a_study_is_refused(name: str) -> None:
    with pytest.raises(EvaluationError, match=f"{name} has nobody, expected some of"):
        ProposalStudy(**{name: ("nobody",)})


def test_studies_are_compared_with_one_of_their_rows() -> None:
    names: tuple[StudyName, ...] = ("closed-loop-ablation", "paper-ablation", "proposals")
    for name in names:
        study = build_study(name, SAMPLES, indices=(0,), model="sumo-small")
        assert study.reference in study.campaigns


def test_the_papers_rows_need_a_model_with_enough_tokens() -> None:
    num_tokens = loaded_planner("sumo-small").model.config.num_tokens
    rows = closed_loop_studies._paper_rows("sumo-small")
    assert list(rows) == [name for name, config in PAPER_ABLATIONS.items() if config.depth <= num_tokens]
    assert all(config.policy is None for config in rows.values())


def test_a_tensor_of_costs_keeps_its_precision() -> None:
    """Costs of the driving terms are float64: differences of finer plans are below the precision of float32."""
    observation = observation_of(road_scene())
    drives = drives_along(observation, 8.0)
    candidates = Candidates.of_trajectory(drives, setting_of(observation))
    assert PdmScore().levels(candidates).dtype == torch.float64
