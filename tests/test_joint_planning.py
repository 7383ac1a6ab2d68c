"""Planning for several agents from one code."""

from functools import cache

import numpy as np
import pytest

from tiny_model import crowd, observed, tiny_model
from waycode.model import VarianceGate
from waycode.objectives import GoalPoint, NoCollision
from waycode.planner import JointPlan, JointView, Planner, PlannerError
from waycode.scene.validation import validate

TOKENS = 4


@cache
def planner() -> Planner:
    return Planner(
        tiny_model(joint=True, num_tokens=TOKENS),
        gate=VarianceGate(sigma_max_m=dict.fromkeys(range(1, TOKENS + 1), 1e9)),
    )


def names(count: int = 3) -> list[str]:
    return [crowd().tracks.ids[track] for track in observed(crowd(), count)]


def view(count: int = 3) -> JointView:
    return planner().encode(crowd(), agents=names(count))


def test_the_goal_of_one_agent_guides_the_whole_future() -> None:
    first, second, third = names()
    guided = view().decode([1, 2, 3, 4]).of(second)
    goal = guided.position_in(crowd())[-1]
    plan = view().plan(f"agent({second}): goal-point({goal[0]}, {goal[1]})", beam_width=64)
    assert [one.agent_id for one in plan.agents] == [first, second, third]
    found = plan.of(second).position_in(crowd())[-1]
    assert np.linalg.norm(found - goal) == pytest.approx(plan.levels[0], abs=1e-3)
    every = [view().decode(ids) for ids in ([0, 0, 0, 0], [7, 7, 7, 7])]
    assert plan.levels[0] <= min(np.linalg.norm(one.of(second).position_in(crowd())[-1] - goal) for one in every) + 1e-3
    assert plan.tokens == plan.of(third).tokens
    assert f"agent({second}): goal-point" in plan.costs
    assert plan.satisfied is (plan.levels[0] <= 2.0)
    assert second in plan.message


def test_refinement_is_never_worse_and_moves_all_agents() -> None:
    objective = GoalPoint(5.0, 5.0).for_agent(names()[0]) + NoCollision()
    before = view().plan(objective, gate=False)
    after = view().refine(before, objective, steps=5, gate=False)
    assert isinstance(after, JointPlan)
    assert after.levels <= before.levels
    assert after.levels == before.levels or any(
        not np.array_equal(one.x_m, other.x_m) for one, other in zip(after.agents[1:], before.agents[1:], strict=True)
    )


def test_samples_follow_their_seed_and_more_draws_keep_the_earlier_ones() -> None:
    few, many = view().sample(3, seed=5), view().sample(6, seed=5)
    assert [plan.tokens for plan in many[:3]] == [plan.tokens for plan in few]
    assert len({plan.tokens for plan in many}) > 1
    for plan in few:
        assert plan.log_probability == pytest.approx(view().log_probability(list(plan.tokens or ())), abs=1e-4)
    cold = view().sample(4, seed=5, temperature=1e-4)
    assert len({plan.tokens for plan in cold}) == 1
    likely = view().most_likely(3)
    nats = [plan.log_probability or 0.0 for plan in likely]
    assert nats == sorted(nats, reverse=True)
    assert likely[0].log_probability >= cold[0].log_probability - 1e-4  # type: ignore[operator]


def test_the_code_of_the_recording_is_decoded_for_all_agents() -> None:
    code = view().encode_recording()
    assert len(code.latents) == TOKENS
    plan = view().decode(code)
    assert plan.tokens == code.ids
    assert len(plan.agents) == 3


def test_a_joint_plan_is_a_new_scene() -> None:
    scene, plan = crowd(), view().decode([1, 2, 3, 4])
    made = plan.in_scene(scene)
    validate(made)
    now, moved = scene.current_step, [scene.tracks.ids.index(one.agent_id) for one in plan.agents]
    others = [track for track in range(len(scene.tracks)) if track not in moved]
    assert np.array_equal(made.tracks.position_m[others], scene.tracks.position_m[others])
    assert np.array_equal(made.tracks.position_m[:, : now + 1], scene.tracks.position_m[:, : now + 1])
    steps = min(len(plan.time_s), scene.tracks.num_steps - 1 - now)
    for track, one in zip(moved, plan.agents, strict=True):
        got = made.tracks.position_m[track, now + 1 : now + 1 + steps]
        assert np.allclose(got, one.position_in(scene)[:steps])
        assert made.tracks.valid[track, now + 1 : now + 1 + steps].all()


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        (["nobody"], "has no agent 'nobody'; observed now:"),
        ([names()[0], names()[1], names()[0]], "is given twice, expected every agent once"),
        ([], "got 0 agents to plan for jointly, expected 1 to 8"),
        (names(9), "got 9 agents to plan for jointly, expected 1 to 8"),
    ],
    ids=["unknown", "twice", "none", "too many"],
)
def test_agents_that_cannot_be_planned_for(agents: list[str], words: str) -> None:
    with pytest.raises(PlannerError, match=words):
        planner().encode(crowd(), agents=agents)


def test_a_model_with_a_code_per_agent_says_so() -> None:
    with pytest.raises(PlannerError, match="every agent on its own, expected a joint one"):
        Planner(tiny_model()).encode(crowd(), agents=names())
    with pytest.raises(PlannerError, match="no agent 'nobody' was planned for, expected one of"):
        view().decode([1]).of("nobody")
