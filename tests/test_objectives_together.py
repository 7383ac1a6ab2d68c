"""Objectives on joint futures, alone and in text."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scenes import small_scene
from waycode.objectives import (
    Candidates,
    Comfort,
    FollowingGap,
    GoalPoint,
    GoesFirst,
    JointCandidates,
    NoCollision,
    ObjectiveError,
    Setting,
    parse_objective,
)
from waycode.objectives.base import EveryAgent
from waycode.scene import Scene

STEPS = 30


def two_cars(scene: Scene | None = None) -> tuple[Scene, list[int]]:
    scene = small_scene() if scene is None else scene
    return scene, [int(one) for one in np.flatnonzero(scene.tracks.valid[:, scene.current_step])[:2]]


def straight(start_m: tuple[float, float], velocity_mps: tuple[float, float], dt_s: float) -> Tensor:
    time_s = dt_s * torch.arange(1, STEPS + 1, dtype=torch.float32)
    return torch.tensor(start_m) + time_s[:, None] * torch.tensor(velocity_mps)


def joint(*futures: list[tuple[tuple[float, float], tuple[float, float]]]) -> JointCandidates:
    """Futures of two cars of 4 m x 2 m: start and velocity of each, for every candidate."""
    scene, agents = two_cars()
    count = len(scene.tracks)
    length_m, width_m = np.full(count, 4.0, np.float32), np.full(count, 2.0, np.float32)
    scene = replace(scene, tracks=replace(scene.tracks, length_m=length_m, width_m=width_m))
    found = []
    for place, agent in enumerate(agents):
        position_m = torch.stack([straight(*future[place], scene.dt_s) for future in futures])
        found.append(
            Candidates(
                position_m=position_m.requires_grad_(),
                std_m=torch.full_like(position_m, 0.1 * (place + 1)),
                num_tokens=1,
                dt_s=scene.dt_s,
                setting=Setting(scene=scene, agent=agent),
            )
        )
    return JointCandidates(agents=tuple(found))


APART: Any = [((0.0, 0.0), (5.0, 0.0)), ((0.0, 20.0), (5.0, 0.0))]
MEETING: Any = [((0.0, 0.0), (5.0, 0.0)), ((15.0, 0.0), (-5.0, 0.0))]
FOLLOWING: Any = [((0.0, 0.0), (5.0, 0.0)), ((8.0, 0.0), (5.0, 0.0))]


def ids(candidates: JointCandidates) -> list[str]:
    return [one.setting.agent_id for one in candidates.agents]


def test_no_collision_counts_steps_of_overlap_and_has_a_gradient() -> None:
    candidates = joint(APART, MEETING, FOLLOWING)
    cost = NoCollision()(candidates)
    assert cost[0] == 0
    assert cost[2] == 0
    assert cost[1] > 3  # steps
    cost.sum().backward()  # type: ignore[no-untyped-call]
    gradient = candidates.agents[0].position_m.grad
    assert gradient is not None
    assert gradient[1].abs().max() > 0
    assert gradient[0].abs().max() == 0
    assert NoCollision(margin_m=5.0)(candidates)[2] > 0  # four metres between the bumpers


def test_following_gap_is_the_missing_distance() -> None:
    candidates = joint(FOLLOWING, APART)
    first, second = ids(candidates)
    gap = FollowingGap(first, second, 1.5)(candidates)
    assert gap[0].item() == pytest.approx(2.0 + 1.5 * 5.0 - 4.0, abs=0.3)  # 4 m between the bumpers
    assert FollowingGap(first, second, 0.2)(candidates)[0] == 0
    assert FollowingGap(second, first, 0.2)(candidates)[0] > 3  # the other way round, it is far too close


def test_who_goes_first() -> None:
    early: Any = [((0.0, 0.0), (10.0, 0.0)), ((15.0, -20.0), (0.0, 10.0))]  # the first is there after 1.5 s, then 2 s
    late: Any = [((0.0, 0.0), (5.0, 0.0)), ((15.0, -20.0), (0.0, 10.0))]  # 3 s, 2 s
    candidates = joint(early, late, APART)
    first, second = ids(candidates)
    cost = GoesFirst(first, second)(candidates)
    assert cost.tolist() == pytest.approx([0.5, 2.0, 0.0], abs=0.15)
    assert GoesFirst(second, first)(candidates).tolist() == pytest.approx([1.5, 0.0, 0.0], abs=0.15)


def test_objectives_of_one_and_of_all_agents() -> None:
    candidates = joint(APART, MEETING)
    first, second = ids(candidates)
    goal = GoalPoint(15.0, 0.0)
    alone = [goal(one) for one in candidates.agents]
    torch.testing.assert_close(goal.for_agent(first).levels(candidates)[:, 0], alone[0])
    torch.testing.assert_close(EveryAgent((goal,)).levels(candidates)[:, 0], alone[0] + alone[1])
    text = f"agent({second}): goal-point(15, 0) + all: no-collision"
    parsed = parse_objective(text)
    assert str(parsed) == f"agent({second}): goal-point(x_m=15, y_m=0) + all: no-collision"
    torch.testing.assert_close(parsed.levels(candidates)[:, 0], alone[1] + NoCollision()(candidates))
    assert set(parsed.explain(candidates)) == {f"agent({second}): goal-point", "no-collision"}
    both = parse_objective("all: comfort then no-collision")
    assert both.levels(candidates).shape == (2, 2)
    assert set(both.explain(candidates)) >= {f"agent({first}): comfort", f"agent({second}): comfort"}
    assert str(parse_objective(str(both))) == str(both)


def test_selecting_candidates_and_the_least_certain_agent() -> None:
    candidates = joint(APART, MEETING, FOLLOWING)
    part = candidates.select(slice(1, 3))
    assert len(part) == 2
    torch.testing.assert_close(part.position_m, candidates.position_m[:, 1:3])
    torch.testing.assert_close(candidates.final_std_m, candidates.agents[1].final_std_m)


def test_objectives_that_do_not_say_whom_they_are_about() -> None:
    candidates = joint(APART)
    with pytest.raises(ObjectiveError, match=r"comfort is about one agent, and several .*agent\(ID\): comfort"):
        Comfort().levels(candidates)
    with pytest.raises(ObjectiveError, match="no-collision is about several agents, and one is planned for"):
        NoCollision().levels(candidates.agents[0])
    with pytest.raises(ObjectiveError, match="no agent 'nobody' is planned for, expected one of"):
        Comfort().for_agent("nobody").levels(candidates)
    for text, words in (
        ("agent(): comfort", r"got '\)', expected the id of an agent"),
        ("agent(1) comfort", "got 'comfort', expected ':'"),
        ("all comfort", "got 'comfort', expected ':'"),
        ("goes-first(1)", "goes-first lacks second"),
    ):
        with pytest.raises(ObjectiveError, match=words):
            parse_objective(text)
