"""The same tokens for every number of threads and every order of agents; how far positions may differ then."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from waycode import Planner, Scene
from waycode.demo import bundled_dataset
from waycode.planner import Plan
from waycode.planner.manoeuvre_index import build_index
from waycode.planner.planner import recorded_agents

TOLERANCE_M = 1e-3  # stated in SECURITY.md
OBJECTIVES = ("comfort", "terminal-variance", "slow-down then comfort", "lane-change(+1)")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.from_pretrained("sumo-small")


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return bundled_dataset()[0:12:4]


def assert_same(one: Plan, other: Plan) -> None:
    assert one.tokens == other.tokens
    assert (one.agent_id, one.status) == (other.agent_id, other.status)
    for name in ("x_m", "y_m"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=TOLERANCE_M)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_the_number_of_threads_changes_no_token(planner: Planner, scenes: list[Scene], num_threads: int) -> None:
    for scene in scenes:
        for objective in OBJECTIVES:
            torch.set_num_threads(1)
            expected = planner.encode(scene).plan(objective, beam_width=2)
            torch.set_num_threads(num_threads)
            assert_same(planner.encode(scene).plan(objective, beam_width=2), expected)


def test_the_order_of_agents_changes_no_token(planner: Planner, scenes: list[Scene]) -> None:
    for seed, scene in enumerate(scenes):
        agents = recorded_agents(scene)[:4]
        order = np.random.default_rng(seed).permutation(len(agents)).tolist()
        views = planner.encode_agents(scene, agents)
        shuffled = planner.encode_agents(scene, [agents[place] for place in order])
        for new, place in enumerate(order):
            assert_same(shuffled[new].plan("terminal-variance"), views[place].plan("terminal-variance"))


def test_a_plan_made_twice_is_the_same_to_the_last_bit(planner: Planner, scenes: list[Scene]) -> None:
    for scene in scenes:
        one, other = (planner.encode(scene).plan("comfort", refine_steps=3) for _ in range(2))
        for name in ("x_m", "y_m", "heading_rad", "speed_mps", "std_m", "latents"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_order_of_scenes_in_a_batch_changes_no_token(
    planner: Planner, scenes: list[Scene], num_threads: int
) -> None:
    """The encoder's tokens of all recorded futures, computed in batches of scenes."""
    torch.set_num_threads(1)
    one = build_index(scenes, planner)
    torch.set_num_threads(num_threads)
    other = build_index(scenes[::-1], planner)
    assert len(one) == len(other) > 0
    for row in range(len(one)):
        again = other.row_of(one.scene_ids[row], one.agent_ids[row])
        np.testing.assert_array_equal(other.tokens[again], one.tokens[row])
        np.testing.assert_allclose(other.latents[again], one.latents[row], rtol=0, atol=TOLERANCE_M)


def test_joint_plans_have_the_same_tokens_for_every_number_of_threads_and_order_of_agents(scenes: list[Scene]) -> None:
    joint, scene = Planner.from_pretrained("sumo-small-joint"), scenes[0]
    agents: list[int | str] = list(recorded_agents(scene)[:3])
    torch.set_num_threads(1)
    expected = joint.encode(scene, agents=agents).plan("all: comfort", depth=3)
    torch.set_num_threads(2)
    for order in (agents, agents[::-1]):
        found = joint.encode(scene, agents=order).plan("all: comfort", depth=3)
        assert found.tokens == expected.tokens
        for name in (scene.tracks.ids[int(agent)] for agent in agents):
            for axis in ("x_m", "y_m"):
                one, other = (getattr(plan.of(name), axis) for plan in (found, expected))
                np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE_M)
