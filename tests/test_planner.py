"""The planner on the bundled model and scenes: plans, their promises, and one sentence for everything that is wrong."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuzz_text import example_plan
from tiny_model import sample_scenes
from waycode import Planner, Scene
from waycode.features import FeatureError
from waycode.model import MeanAndStd, PrefixDecoder, Spread, VarianceGate
from waycode.objectives import (
    BaseObjective,
    Candidates,
    GoalPoint,
    JointCandidates,
    LaneChange,
    ObjectiveError,
    Reconstruction,
    TerminalVariance,
)
from waycode.planner import Plan, PlannerError, PlanStatus, View
from waycode.planner.ranking import too_uncertain, uncertainty_reason
from waycode.planner.search_panels import search_panels
from waycode.planner.starting import stands
from waycode.scene import Polylines
from waycode.scene.frames import rotate
from waycode.search import beam_search

ARRAYS = ("time_s", "x_m", "y_m", "heading_rad", "speed_mps", "std_m", "latents")


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.from_pretrained("sumo-small")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return sample_scenes()[3]


@pytest.fixture(scope="module")
def view(planner: Planner, scene: Scene) -> View:
    return planner.encode(scene)


def same(one: Plan, other: Plan) -> bool:
    """Whether all is equal but the time it took."""
    texts = [replace(plan, timings_s={}).to_json() for plan in (one, other)]
    return texts[0] == texts[1]


def goal(view: View, *, ahead_m: float, left_m: float = 0.0) -> GoalPoint:
    return GoalPoint(ahead_m, left_m, frame="agent")


def end_of(view: View, *tokens: int) -> GoalPoint:
    """The end of a code's trajectory: a goal that the widest search reaches with any weights."""
    x_m, y_m = view.decode(tokens).position_in(view.scene)[-1].tolist()
    return GoalPoint(x_m, y_m)


def test_a_plan_is_the_codes_trajectory_in_the_world_frame(view: View, planner: Planner, scene: Scene) -> None:
    plan = view.plan(Reconstruction(), gate=False)
    with torch.no_grad():
        latents = torch.from_numpy(plan.latents).float()[None, None]
        decoded = planner.model.decode(latents, view.embedding)
    tracks, now = scene.tracks, scene.current_step
    turned = rotate(decoded[0][0, 0].double().numpy(), float(tracks.heading_rad[view.agent, now]))
    world = turned + tracks.position_m[view.agent, now].astype(np.float64) + np.array(scene.origin_m)
    np.testing.assert_allclose(np.stack([plan.x_m, plan.y_m], axis=-1), world, atol=1e-4)
    np.testing.assert_allclose(plan.position_in(scene), world - np.array(scene.origin_m), atol=1e-4)
    np.testing.assert_allclose(plan.time_s, 0.1 * np.arange(1, 81))
    assert all(getattr(plan, name).dtype == np.float64 for name in ARRAYS)
    assert (plan.scene_id, plan.agent_id) == (scene.id, tracks.ids[view.agent])


def test_far_from_the_worlds_origin_nothing_is_lost(planner: Planner, scene: Scene) -> None:
    far = replace(scene, origin_m=(4_512_345.0, -712_345.0))
    near_plan, far_plan = (planner.encode(one).plan(TerminalVariance()) for one in (scene, far))
    moved = np.array(far.origin_m) - np.array(scene.origin_m)
    np.testing.assert_allclose(far_plan.x_m - near_plan.x_m, moved[0], atol=1e-8)
    np.testing.assert_array_equal(far_plan.speed_mps, near_plan.speed_mps)


def test_heading_and_speed_are_those_of_the_steps(view: View, scene: Scene) -> None:
    plan = view.plan(goal(view, ahead_m=40.0))
    start = scene.tracks.position_m[view.agent, scene.current_step] + np.array(scene.origin_m)
    steps = np.diff(np.stack([plan.x_m, plan.y_m], axis=-1), axis=0, prepend=start[None])
    lengths = np.linalg.norm(steps, axis=1)
    np.testing.assert_allclose(plan.speed_mps, lengths / 0.1, atol=2e-3)
    moving = lengths > 0.1
    assert moving.any()
    np.testing.assert_allclose(
        np.exp(1j * plan.heading_rad[moving]), np.exp(1j * np.arctan2(steps[moving, 1], steps[moving, 0])), atol=1e-2
    )


def mean_error_m(decoded: MeanAndStd, *, future_m: Tensor) -> Tensor:
    return (decoded[0] - future_m).norm(dim=-1).mean(dim=-1)


def test_the_code_is_the_one_that_a_search_in_the_agents_frame_finds(planner: Planner) -> None:
    for one in sample_scenes():
        view = planner.encode(one)
        if stands(view.setting):  # its plans are made to start along its heading
            continue
        steps = slice(one.current_step + 1, one.current_step + 81)
        offset = one.tracks.position_m[view.agent, steps] - one.tracks.position_m[view.agent, one.current_step]
        future = torch.tensor(rotate(offset, -float(one.tracks.heading_rad[view.agent, one.current_step]))).float()
        assert one.tracks.valid[view.agent, steps].all()
        found = beam_search(
            PrefixDecoder(planner.model, view.embedding),
            partial(mean_error_m, future_m=future),
            codebook=planner.model.codebook(),
            num_rows=1,
            depth=3,
        )
        plan = view.plan(Reconstruction(), gate=False)
        assert plan.tokens == tuple(found.ids[0, 0].tolist())
        assert plan.levels[0] == pytest.approx(float(found.costs[0, 0, 0]), rel=1e-4)


def test_plans_do_not_depend_on_earlier_plans_of_the_view(planner: Planner, scene: Scene, view: View) -> None:
    asked: list[dict[str, Any]] = [{}, {"beam_width": 3}, {"refine_steps": 3}, {"depth": 1}]
    first = [view.plan(goal(view, ahead_m=30.0), **options) for options in asked]
    again = [view.plan(goal(view, ahead_m=30.0), **options) for options in reversed(asked)][::-1]
    fresh = [planner.encode(scene).plan(goal(view, ahead_m=30.0), **options) for options in asked]
    for one, other, third in zip(first, again, fresh, strict=True):
        assert same(one, other)
        assert same(one, third)


def test_a_wider_beam_of_all_codes_is_never_worse_than_greedy(view: View) -> None:
    greedy, widest = (view.plan(goal(view, ahead_m=25.0, left_m=2.0), beam_width=width) for width in (1, 64))
    assert widest.levels <= greedy.levels
    assert widest.num_decodes == 8 + 64 + 512
    assert greedy.num_decodes == 24


def test_of_plans_that_cost_the_same_the_surest_is_driven(view: View) -> None:
    content = view.plan(lambda candidates: torch.zeros(len(candidates)))
    assert content.tokens == view.plan(TerminalVariance()).tokens


def test_costs_are_explained_by_name(view: View) -> None:
    plan = view.plan((goal(view, ahead_m=20.0) * 2.0 + TerminalVariance()).then(TerminalVariance()))
    assert len(plan.levels) == 2
    distance, spread = plan.costs["goal-point"], plan.costs["terminal-variance"]
    assert plan.levels[0] == pytest.approx(2 * distance + spread, rel=1e-5)
    assert spread == pytest.approx(plan.final_std_m, rel=1e-5)


@pytest.mark.parametrize(
    ("objective", "levels"),
    [
        (lambda candidates: candidates.final_std_m, 1),
        (lambda candidates: torch.stack([torch.zeros(len(candidates)), candidates.final_std_m], dim=1), 2),
        (lambda candidates: candidates.final_std_m.numpy(), 1),
        (lambda candidates: candidates.final_std_m.tolist(), 1),
        (lambda candidates: [(0, spread) for spread in candidates.final_std_m.tolist()], 2),
    ],
    ids=["tensor", "levels", "array", "numbers", "tuples"],
)
def test_any_function_that_gives_ordered_values_is_an_objective(objective: Any, levels: int, view: View) -> None:
    plan = view.plan(objective)
    assert plan.tokens == view.plan(TerminalVariance()).tokens
    assert len(plan.levels) == len(plan.costs) == levels


def test_values_that_only_python_can_order_are_ranked(view: View) -> None:
    plan = view.plan(lambda candidates: [f"{place:03d}" for place in range(len(candidates))][::-1])
    assert plan.tokens == (7, 7, 7)
    assert plan.levels == (0.0,)


class Counting:
    """An objective that counts how often it is asked."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, candidates: Candidates) -> Tensor:
        self.sizes.append(len(candidates))
        return candidates.final_std_m


def test_a_map_that_was_cut_before_is_seen_the_same(planner: Planner, scene: Scene, view: View) -> None:
    known = planner.encode(scene, segmented_map=planner.segment_map(scene.map))
    torch.testing.assert_close(known.embedding.tokens.tokens, view.embedding.tokens.tokens, atol=0, rtol=0)
    assert same(known.plan(LaneChange(0)), view.plan(LaneChange(0)))


def test_no_time_ends_the_search_after_the_first_token(view: View) -> None:
    counting = Counting()
    plan = view.plan(counting, deadline_s=0.0, refine_steps=5)
    assert (plan.status, plan.depth, plan.tokens) == (PlanStatus.DEADLINE, 1, view.plan(counting, depth=1).tokens)
    assert counting.sizes[0] == 8
    assert plan.num_decodes == 8  # and no refinement
    assert "deadline" in plan.message
    assert view.plan(counting, deadline_s=3600.0).status == PlanStatus.FOUND


def test_a_model_that_is_sure_of_nothing_says_so_and_still_gives_the_best(planner: Planner, scene: Scene) -> None:
    never = Planner(planner.model, gate=VarianceGate(sigma_max_m={1: 0.0, 2: 0.0, 3: 0.0})).encode(scene)
    plan = never.plan(GoalPoint(0.0, 0.0))
    assert plan.status == PlanStatus.UNCERTAIN
    assert "is uncertain of" in plan.message
    assert "0.00 m" in plan.message
    assert plan.tokens == never.plan(GoalPoint(0.0, 0.0), gate=False).tokens
    assert never.plan(GoalPoint(0.0, 0.0), gate=False).status == PlanStatus.FOUND
    assert never.decode(plan.tokens or ()).status == PlanStatus.UNCERTAIN
    assert all(one.status == PlanStatus.UNCERTAIN for one in never.candidates(3))


def test_the_gate_keeps_what_the_model_is_sure_of(planner: Planner, scene: Scene, view: View) -> None:
    spreads = sorted(one.final_std_m for one in view.beam(TerminalVariance(), beam_width=64))
    limit = spreads[3]
    strict = Planner(planner.model, gate=VarianceGate(sigma_max_m={1: 1e9, 2: 1e9, 3: limit})).encode(scene)
    far = goal(strict, ahead_m=500.0)  # whatever goes fast is best: only the gate holds it back
    plan = strict.plan(far, beam_width=64)
    assert plan.final_std_m <= limit
    assert plan.status == PlanStatus.FOUND
    assert plan.levels > strict.plan(far, beam_width=64, gate=False).levels


def test_the_gate_compares_the_smaller_standard_deviation_or_the_magnitude(planner: Planner, scene: Scene) -> None:
    view = Planner(planner.model).encode(scene)
    position_m = torch.zeros(3, 80, 2)
    std_m = torch.tensor([[3.0, 4.0], [0.5, 9.0], [9.0, 0.5]])[:, None].expand(3, 80, 2)
    candidates = Candidates(position_m=position_m, std_m=std_m, num_tokens=1, dt_s=0.1, setting=view.setting)
    both = VarianceGate(sigma_max_m={1: 5.0})  # the paper's
    assert too_uncertain(candidates, both).tolist() == [False, True, True]
    least = VarianceGate(sigma_max_m={1: 1.0}, spread=Spread.LEAST)  # unsure in one direction alone is sure enough
    assert too_uncertain(candidates, least).tolist() == [True, False, False]
    told = "its smaller final standard deviation is 3.00 m, above the limit of 1.00 m"
    assert uncertainty_reason(candidates, 0, least) == told
    assert uncertainty_reason(candidates, 1, least) is None
    jointly = JointCandidates(agents=(candidates, candidates.select(torch.tensor([1, 1, 1]))))
    assert too_uncertain(jointly, least).tolist() == [True, False, False]  # one doubtful agent is enough
    assert too_uncertain(jointly, both).tolist() == [True, True, True]


def test_a_plan_says_whether_it_does_what_was_asked(view: View) -> None:
    near, far = view.plan(end_of(view, 3, 5, 1), beam_width=64, gate=False), view.plan(goal(view, ahead_m=500.0))
    assert (near.status, near.satisfied) == (PlanStatus.FOUND, True)
    assert (far.status, far.satisfied) == (PlanStatus.FOUND, False)
    assert far.message.startswith(f"{far.levels[0]:.0f} m from the goal at the end; ")
    assert far.summary == f"found, not satisfied: {far.message}"
    for plan in (view.plan(TerminalVariance()), view.decode([1, 2]), view.plan(lambda one: one.final_std_m)):
        assert plan.satisfied is None
        assert plan.summary == f"found: {plan.message}"


def test_a_constraint_that_is_violated_is_the_status(view: View, planner: Planner, scene: Scene) -> None:
    impossible = TerminalVariance().where(goal(view, ahead_m=500.0))
    plan = view.plan(impossible)
    assert (plan.status, plan.satisfied) == (PlanStatus.VIOLATED, False)
    assert plan.message.startswith("constraint violated: 4")
    assert view.plan(impossible, refine_steps=2).status == PlanStatus.VIOLATED
    assert all(one.status == PlanStatus.VIOLATED for one in view.beam(impossible, beam_width=3))
    never = (
        Planner(planner.model, gate=VarianceGate(sigma_max_m={1: 0.0, 2: 0.0, 3: 0.0})).encode(scene).plan(impossible)
    )
    assert (never.status, never.rejected) == (PlanStatus.VIOLATED, True)  # both are told, the violation is the status
    assert "uncertain" in never.message
    assert (plan.rejected, view.plan(impossible, deadline_s=0.0).status) == (False, PlanStatus.VIOLATED)
    kept = view.plan(TerminalVariance().where(end_of(view, 3, 5, 1)), beam_width=64, gate=False)
    assert (kept.status, kept.satisfied) == (PlanStatus.FOUND, True)


def test_the_trace_tells_what_every_candidate_achieves(view: View) -> None:
    plan = view.plan(TerminalVariance().where(end_of(view, 3, 5, 1)), beam_width=64, gate=False)
    assert plan.trace is not None
    rows = plan.trace.to_pylist()
    assert {row["satisfied"] for row in rows} == {True, False}
    assert all(row["satisfied"] == (row["costs"][0] <= 2.0) == (not row["violated"]) for row in rows)
    again = Plan.from_json(view.plan(TerminalVariance()).to_json())
    assert again.trace is not None
    assert set(again.trace["satisfied"].to_pylist()) == {None}


def test_an_objective_without_any_usable_cost_is_told(view: View) -> None:
    plan = view.plan(lambda candidates: candidates.final_std_m * torch.nan, refine_steps=2)
    assert plan.status == PlanStatus.NO_COST
    assert "the plan is arbitrary" in plan.message
    assert same(Plan.from_json(plan.to_json()), plan)


@pytest.mark.parametrize("steps", [4, 8])
def test_refinement_is_never_worse_and_nears_the_goal(steps: int, view: View) -> None:
    objective = goal(view, ahead_m=33.0, left_m=1.0)
    searched, refined = view.plan(objective), view.plan(objective, refine_steps=steps)
    assert refined.levels < searched.levels
    assert refined.tokens is None
    assert np.abs(refined.latents).max() <= 1
    assert refined.num_decodes == searched.num_decodes + steps + 1
    assert set(refined.timings_s) == {"encode", "search", "refine"}


def test_refinement_by_another_objective(view: View) -> None:
    searched = view.plan(LaneChange(0))
    refined = view.plan(LaneChange(0), refine_steps=5, refine_objective=TerminalVariance())
    assert refined.final_std_m < searched.final_std_m


def test_refinement_never_leaves_the_gate(planner: Planner, scene: Scene, view: View) -> None:
    objective = goal(view, ahead_m=300.0)
    limit = 1.001 * view.plan(objective, gate=False).final_std_m
    gated = Planner(planner.model, gate=VarianceGate(sigma_max_m={1: 1e9, 2: 1e9, 3: limit})).encode(scene)
    plan = gated.plan(objective, refine_steps=10)
    assert plan.final_std_m <= limit
    assert plan.status == PlanStatus.FOUND
    assert plan.levels <= gated.plan(objective).levels


class WrongWay(BaseObjective):
    """The first level is certainty; the second, which alone has a gradient, leads away from it."""

    @property
    def level_names(self) -> tuple[str, ...]:
        return ("certainty", "wrong-way")

    def __call__(self, candidates: Candidates) -> Tensor:
        return torch.stack([candidates.final_std_m.detach(), -candidates.final_std_m], dim=1)


def test_what_leads_away_from_the_objective_is_not_kept(view: View) -> None:
    start = view.plan(TerminalVariance())
    objective = WrongWay()
    refined = view.refine(start, lambda candidates: objective(candidates), steps=5, gate=False)
    assert refined.final_std_m <= start.final_std_m * (1 + 1e-5)
    assert refined.tokens == start.tokens  # the start is the best of all that were visited
    assert refined.num_decodes == start.num_decodes + 6
    assert refined.message.endswith("refinement found nothing better in 5 steps")


@pytest.mark.parametrize(("deadline_s", "steps"), [(0.0, 0), (2.0, 1), (3.5, 2), (None, 5)])
def test_a_deadline_leaves_the_best_of_the_steps_before_it(view: View, deadline_s: float | None, steps: int) -> None:
    """A decode takes a second here; the plan is what it would be if only so many steps had been asked for."""
    found = view.plan(LaneChange(0))
    decodes = Counting()
    timed = replace(view, clock=lambda: float(len(decodes.sizes)))
    early = timed.refine(found, decodes, steps=5, deadline_s=deadline_s)
    assert early.num_decodes == found.num_decodes + steps + 1
    assert (early.tokens is None) == (steps > 0)
    decodes.sizes.clear()
    in_full = timed.refine(found, decodes, steps=steps)
    np.testing.assert_allclose(early.latents, in_full.latents, rtol=1.3e-6, atol=1e-5)
    assert early.timings_s["refine"] >= steps + 1  # the last look at the clock comes after the reported costs


def test_what_was_refined_is_not_decoded_again(view: View) -> None:
    found = view.plan(LaneChange(0))
    counting = Counting()
    refined = view.refine(found, counting, steps=3, report=TerminalVariance())
    assert counting.sizes == [1, 1, 1, 1]  # the start and three steps
    again = view.decode_many(torch.from_numpy(refined.latents).float()[None])
    np.testing.assert_allclose(refined.position_in(view.scene), again.position_m[0].numpy(), atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(refined.std_m, again.std_m[0].numpy(), atol=1e-4, rtol=1e-5)


def test_refinement_of_levels_never_gives_up_an_earlier_one(view: View) -> None:
    def stacked(candidates: Candidates) -> Tensor:
        return torch.stack([candidates.final_std_m.round().detach(), -candidates.travelled_m[:, -1]], dim=1)

    for objective in (TerminalVariance().then(goal(view, ahead_m=300.0)), stacked):
        searched, refined = view.plan(objective), view.plan(objective, refine_steps=5)
        assert refined.levels <= searched.levels


def test_the_levels_that_have_a_gradient_are_refined(view: View) -> None:
    objective = WithoutGradient().then(goal(view, ahead_m=80.0, left_m=0.5))
    searched, refined = view.plan(objective), view.plan(objective, refine_steps=10)
    assert refined.levels < searched.levels


@pytest.mark.parametrize("width", [1, 4, 20])
def test_the_beam_is_ranked_as_the_search_ranks_it(width: int, view: View) -> None:
    objective = goal(view, ahead_m=25.0, left_m=2.0)
    plans = view.beam(objective, beam_width=width)
    trace = plans[0].trace
    assert trace is not None
    last = sorted((row for row in trace.to_pylist() if row["depth"] == 3), key=lambda row: row["rank"])
    assert [plan.tokens for plan in plans] == [tuple(row["tokens"]) for row in last[:width]]
    assert [plan.levels for plan in plans] == [tuple(row["costs"]) for row in last[:width]]
    doubtful = [plan.status == PlanStatus.UNCERTAIN for plan in plans]
    assert doubtful == sorted(doubtful)  # accepted before rejected
    for is_doubtful in (False, True):
        levels = [plan.levels for plan, doubt in zip(plans, doubtful, strict=True) if doubt == is_doubtful]
        assert levels == sorted(levels)
    assert same(plans[0], view.plan(objective, beam_width=width))
    assert [one.tokens for one in view.beam(objective, beam_width=width, count=2)] == [p.tokens for p in plans[:2]]


def test_a_beam_that_is_not_explained_has_no_names(view: View) -> None:
    objective = goal(view, ahead_m=25.0)
    counting = Counting()
    named, unnamed = (view.beam(objective, beam_width=2, explain=explain) for explain in (True, False))
    assert [plan.costs for plan in unnamed] == [{}, {}]
    assert [(plan.tokens, plan.levels) for plan in named] == [(plan.tokens, plan.levels) for plan in unnamed]
    view.beam(counting, beam_width=2, explain=False)
    assert counting.sizes == [8, 16, 16]  # once per depth, and no more


def test_objectives_can_be_given_as_text(view: View) -> None:
    text = "goal-point(25, 2, frame=agent)"
    assert same(view.plan(text), view.plan(goal(view, ahead_m=25.0, left_m=2.0)))
    refined = view.plan("lane-change(0)", refine_steps=2, refine_objective="terminal-variance")
    assert same(refined, view.plan(LaneChange(0), refine_steps=2, refine_objective=TerminalVariance()))
    with pytest.raises(ObjectiveError, match="no objective is called 'nonsense'"):
        view.plan("nonsense")


@pytest.mark.parametrize("objective", ["collision", "collision(margin_m=1)", "keep-distance", "road-edge"])
def test_an_objective_that_nobody_is_near_for_can_be_refined(objective: str, planner: Planner, scene: Scene) -> None:
    """Its cost is zero everywhere, with a gradient of zero."""
    valid = scene.tracks.valid.copy()
    valid[np.arange(len(valid)) != scene.tracks.ego_index] = False
    features = replace(scene.map, road_edges=Polylines.of([]), road_edge_types=np.zeros(0, np.int8))
    alone = planner.encode(replace(scene, tracks=replace(scene.tracks, valid=valid), map=features))
    plan = alone.plan(objective, refine_steps=2)
    assert plan.levels == (0.0,)
    assert plan.tokens == alone.plan(objective).tokens
    assert plan.message.endswith("refinement found nothing better in 2 steps")


def test_plans_survive_json_to_the_last_bit(view: View) -> None:
    for plan in (view.plan(LaneChange(0)), view.plan(goal(view, ahead_m=5.0), refine_steps=2), view.decode([1, 2])):
        again = Plan.from_json(plan.to_json())
        assert again.to_json() == plan.to_json()
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(again, name), getattr(plan, name))
        assert (again.tokens, again.costs, again.levels) == (plan.tokens, plan.costs, plan.levels)
        assert (again.status, again.satisfied, again.rejected) == (plan.status, plan.satisfied, plan.rejected)
        assert again.status is plan.status
        assert again.trace == plan.trace


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no json", "is not a plan"),
        ("[]", "is not a plan"),
        ('{"version": 9}', "version 9"),
        ('{"version": 3}', "damaged"),
    ],
)
def test_json_that_is_no_plan_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(PlannerError, match=sentence):
        Plan.from_json(text)


def test_the_trace_has_every_candidate(view: View) -> None:
    plan = view.plan(TerminalVariance(), beam_width=2)
    assert plan.trace is not None
    rows = plan.trace.to_pylist()
    assert [row["depth"] for row in rows] == [1] * 8 + [2] * 16 + [3] * 16
    best = next(row for row in rows if row["depth"] == 3 and row["rank"] == 0)
    assert tuple(best["tokens"]) == plan.tokens
    assert tuple(best["costs"]) == plan.levels


def test_panels_show_the_growing_prefix(view: View) -> None:
    plan = view.plan(TerminalVariance())
    panels = search_panels(view, plan)
    assert [len(panel.position_m) for panel in panels] == [8, 8, 8]
    assert [panel.tokens for panel in panels] == [(plan.tokens or ())[:count] for count in (1, 2, 3)]
    np.testing.assert_allclose(panels[-1].position_m[panels[-1].chosen], plan.position_in(view.scene), atol=1e-3)
    refined = view.plan(TerminalVariance(), refine_steps=2)
    assert search_panels(view, refined)[-1].tokens == plan.tokens
    with pytest.raises(PlannerError, match="no trace"):
        search_panels(view, view.decode([1]))


def test_the_agent_is_found_by_index_by_id_and_by_default(planner: Planner, scene: Scene) -> None:
    tracks = scene.tracks
    seen = [int(track) for track in np.flatnonzero(tracks.valid[:, scene.current_step])]
    assert tracks.ego_index is not None
    assert planner.encode(scene).agent == tracks.ego_index
    assert planner.encode(scene, tracks.ids[seen[-1]]).agent == planner.encode(scene, seen[-1]).agent == seen[-1]
    without = replace(scene, tracks=replace(tracks, ego_index=None, to_predict=np.array(seen[-1:], np.int32)))
    assert planner.encode(without).agent == seen[-1]
    nobody = replace(scene, tracks=replace(tracks, ego_index=None, to_predict=np.zeros(0, np.int32)))
    with pytest.raises(PlannerError, match=f"name an agent; observed now: {tracks.ids[seen[0]]}"):
        planner.encode(nobody)


def test_agents_that_are_not_there_are_refused(planner: Planner, scene: Scene) -> None:
    first = scene.tracks.ids[int(scene.tracks.to_predict[0])]
    with pytest.raises(PlannerError, match=f"has no agent 'nobody'; observed now: {first}"):
        planner.encode(scene, "nobody")
    with pytest.raises(PlannerError, match=f"has no track {len(scene.tracks)}: expected 0 to"):
        planner.encode(scene, len(scene.tracks))
    valid = scene.tracks.valid.copy()
    valid[0] = False
    hidden = replace(scene, tracks=replace(scene.tracks, valid=valid))
    with pytest.raises(PlannerError, match="is not observed at the current step; observed now:"):
        planner.encode(hidden, 0)
    with pytest.raises(FeatureError, match="has steps of"):
        planner.encode(replace(scene, dt_s=0.2))


def test_a_scene_without_a_recorded_future_can_be_planned_in(planner: Planner, scene: Scene, view: View) -> None:
    now = scene.current_step
    valid = scene.tracks.valid.copy()
    valid[:, now + 1 :] = False
    tracks = replace(scene.tracks, valid=valid)
    blind = planner.encode(replace(scene, tracks=tracks))
    assert same(blind.plan(TerminalVariance()), view.plan(TerminalVariance()))
    with pytest.raises(PlannerError, match="has no recorded future"):
        blind.encode_trajectory()


class WithoutGradient(BaseObjective):
    """An objective that says of itself that it has no gradient."""

    def __call__(self, candidates: Candidates) -> Tensor:
        return candidates.final_std_m.round()

    def __str__(self) -> str:
        return "steps"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"depth": 4}, "depth is 4, expected 1 to 3"),
        ({"depth": 0}, "depth is 0, expected 1 to 3"),
        ({"beam_width": 0}, "beam_width is 0"),
        ({"levels": 1}, "levels is 1"),
        ({"refine_steps": -1}, "refine_steps is -1"),
        ({"deadline_s": -1.0}, "deadline_s is -1"),
        ({"objective": lambda candidates: torch.zeros(3)}, r"costs of shape \[3\], expected \[8\] or \[8, M\]"),
        ({"objective": lambda candidates: torch.zeros(8, 1, 1)}, r"costs of shape \[8, 1, 1\]"),
        ({"objective": lambda candidates: [0.0]}, r"returned \[0.0\], expected a tensor"),
        ({"objective": lambda candidates: 1.0}, "returned 1.0, expected a tensor"),
        ({"objective": WithoutGradient(), "refine_steps": 1}, "steps has no gradient"),
        ({"objective": lambda candidates: [0.0] * len(candidates), "refine_steps": 1}, "has no gradient"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(options: dict[str, Any], sentence: str, view: View) -> None:
    with pytest.raises(PlannerError, match=sentence) as raised:
        view.plan(**{"objective": TerminalVariance(), **options})
    assert "\n" not in str(raised.value)


def test_the_gate_needs_thresholds(planner: Planner, scene: Scene) -> None:
    view = Planner(planner.model).encode(scene)
    with pytest.raises(PlannerError, match=r"no threshold .* for \[1, 2, 3\] tokens; available: none"):
        view.plan(TerminalVariance())
    assert view.plan(TerminalVariance(), gate=False).status == PlanStatus.FOUND
    assert len(view.candidates(2)) == 2
    with pytest.raises(PlannerError, match="asked for 513 candidates, expected 1 to 512"):
        view.candidates(513)
    with pytest.raises(PlannerError, match="asked for 0 candidates"):
        view.candidates(0)


def test_equal_costs_are_ordered_by_certainty_or_by_the_codebook(planner: Planner) -> None:
    view = planner.encode(sample_scenes()[0])

    def equal(candidates: Candidates) -> Tensor:
        return torch.zeros(len(candidates.position_m))

    first = view.plan(equal, by_certainty=False, gate=False)
    certain = view.plan(equal, gate=False)
    assert first.tokens == (0, 0, 0)
    assert np.linalg.norm(certain.std_m[-1]) <= np.linalg.norm(first.std_m[-1])


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(example_plan().to_json()), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"x_m": [1.0, 2.0]},
        {"std_m": [1.0, 2.0]},
        {"latents": [[0.0, 0.0, 0.0]]},
        {"scene_id": 7},
        {"agent_id": None},
        {"message": ["a"]},
        {"tokens": [1.5, 2]},
        {"tokens": [1]},
        {"depth": "2"},
        {"num_decodes": 1.5},
        {"status": "fine"},
        {"y_m": "nan"},
        {"costs": [1]},
        {"trace": [1]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_json_of_a_plan_with_gaps_is_refused(changes: dict[str, Any]) -> None:
    assert Plan.from_json(changed()).to_json() == changed()
    with pytest.raises(PlannerError, match=r"the plan in JSON is damaged"):
        Plan.from_json(changed(**changes))
    with pytest.raises(PlannerError, match="is not a plan in JSON"):
        Plan.from_json("[" * 100_000)


def test_a_plan_with_an_empty_trace_survives_json() -> None:
    assert Plan.from_json(changed(trace=[])).to_json() == changed(trace=[])


@pytest.mark.parametrize("name", ["x_m", "heading_rad", "speed_mps", "std_m", "latents"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_plan_is_finite(view: View, name: str, value: float) -> None:
    plan = view.decode([1, 2])
    broken = getattr(plan, name).copy()
    broken.flat[1] = value
    with pytest.raises(PlannerError, match=f"{name} of the plan for agent .* has 1 values that are not finite"):
        replace(plan, **{name: broken})


def test_a_search_that_would_take_minutes_is_refused(view: View) -> None:
    with pytest.raises(PlannerError, match=r"levels is 50 and beam_width 1: 125,000 candidates for each token"):
        view.plan(TerminalVariance(), levels=50)
