"""The same tokens for every number of threads and every order of agents; how far positions may differ then."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from waycode import Planner, Scene
from waycode.demo import bundled_dataset
from waycode.planner import Plan
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
