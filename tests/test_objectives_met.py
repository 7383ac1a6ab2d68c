"""Whether a trajectory does what an objective asks for: by hand, as a value and as a sentence with numbers."""

from dataclasses import replace
from math import radians

import numpy as np
import pytest
import torch
from torch import Tensor

from roads import CAR_LENGTH_M, STEPS, arc, candidates_in, road, shifted, straight, wiggly
from test_guidance_selection import APPROACH, EXIT, crossing
from waycode.objectives import (
    OBJECTIVES,
    BaseObjective,
    Candidates,
    Collision,
    Comfort,
    GoalPoint,
    KeepDistance,
    LaneChange,
    LeftTurn,
    Likelihood,
    Reconstruction,
    RightTurn,
    RoadEdge,
    RouteFollowing,
    SlowDown,
    SpeedProfile,
    StopAt,
    TerminalVariance,
    Verdict,
    as_objective,
    parse_objective,
)
from waycode.objectives.verdict import combined
from waycode.scene import GraphOrigin, Scene


def verdict(objective: BaseObjective, path_m: np.ndarray, *, scene: Scene | None = None) -> Verdict:
    (found,) = objective.met(candidates_in(road() if scene is None else scene, path_m))
    return found


def stopping(distance_m: float) -> np.ndarray:
    """Along x, standing after the first 4 s, [T, 2]."""
    share = np.clip(np.arange(1, STEPS + 1) / (STEPS / 2), 0, 1)
    return np.stack([distance_m * share, np.zeros(STEPS)], axis=-1)


@pytest.mark.parametrize(
    ("objective", "path_m", "satisfied", "sentence"),
    [
        (LeftTurn(), arc(turn_rad=radians(50)), True, "turned 50 of 45 degrees"),
        (LeftTurn(), arc(turn_rad=radians(45)), True, "turned 45 of 45 degrees"),
        (LeftTurn(), arc(turn_rad=radians(44.7)), False, "turned 44 of 45 degrees"),
        (LeftTurn(), arc(turn_rad=radians(-50)), False, "turned 0 of 45 degrees"),
        (RightTurn(), arc(turn_rad=radians(-50)), True, "turned 50 of 45 degrees"),
        (
            LeftTurn(max_curvature_1pm=0.1),
            arc(turn_rad=1.0, speed_mps=1.01),
            False,
            "turned 57 of 45 degrees; a bend is sharper than 0.1 / m",
        ),
        (LaneChange(1), shifted(3.5), True, "1 lane change to the left, as asked"),
        (LaneChange(1), straight(), False, "1 of 1 lane change to the left missing"),
        (LaneChange(2), shifted(3.5), False, "1 of 2 lane changes to the left missing"),
        (LaneChange(3), straight(), False, "3 of 3 lane changes to the left missing: only 2 lanes to the left"),
        (
            LaneChange(-1),
            shifted(3.5),
            False,
            "1 of 1 lane change to the right missing: no lane to the right of this one, "
            "1 lane change to the left, asked for none",
        ),
        (LaneChange(0), straight(), True, "no lane change, as asked"),
        (LaneChange(0), shifted(3.5), False, "1 lane change to the left, asked for none"),
        (LaneChange(1), shifted(7.0), False, "2 lane changes to the left, asked for 1"),
        (LaneChange(1, either_side=True), shifted(3.5), True, "1 lane change, as asked"),
        (SlowDown(12.0), straight(), True, "up to 10.0 m/s from 5 s on, asked for 12 m/s at most"),
        (
            SlowDown(5.0, from_s=2.0, until_s=3.0),
            straight(),
            False,
            "up to 10.0 m/s from 2 to 3 s, asked for 5 m/s at most",
        ),
        (SpeedProfile((0.0,), (10.2,)), straight(), True, "0.2 m/s off the speed profile on average"),
        (SpeedProfile((0.0,), (7.0,)), straight(), False, "3.0 m/s off the speed profile on average"),
        (StopAt(21.0, 0.0), stopping(20.0), True, "stands 1.0 m from the place to stop, from 7 s on"),
        (StopAt(distance_m=30.0), stopping(20.0), False, "stands 10.0 m from the place to stop, from 7 s on"),
        (
            StopAt(80.0, 0.0, by_s=7.8),
            straight(),
            False,
            "drives at up to 10.0 m/s 1.0 m from the place to stop, from 7.8 s on",
        ),
        (GoalPoint(80.0, 1.5), straight(), True, "1.5 m from the goal at the end"),
        (GoalPoint(557.0, 0.0), straight(), False, "477 m from the goal at the end"),
        (GoalPoint(20.0, 0.0, at_s=2.4), straight(), False, "4.0 m from the goal at 2.4 s"),
        (RouteFollowing(), straight(), True, "80 m along the route, at most 0.0 m from its lanes"),
        (RouteFollowing(), straight(y_m=-3.0), False, "80 m along the route, at most 3.0 m from its lanes"),
        (RouteFollowing(), straight(speed_mps=0.05), False, "0 m along the route, at most 0.0 m from its lanes"),
        (KeepDistance(1.0, standstill_m=2.0), straight(speed_mps=1.0), True, "keeps its distance to the vehicle ahead"),
        (RoadEdge(), straight(), True, "touches no road edge"),
        (RoadEdge(), straight(y_m=-2.0), False, "touches a road edge for 8.0 s"),
        (Collision(), straight(speed_mps=1.0), True, "collides with nobody"),
        # 10 m/s through a car of equal length at x = 30: in contact over twice its length
        (Collision(), straight(), False, f"collides for {2 * CAR_LENGTH_M / 10:.1f} s with car1"),
        (Comfort(), straight(), True, "within the comfort bounds"),
        (Reconstruction(), straight(y_m=1.0), True, "1.0 m from the given path on average, 1.0 m at its end"),
        (Reconstruction(), straight(y_m=3.0), False, "3.0 m from the given path on average, 3.0 m at its end"),
        (TerminalVariance(), straight(), None, "final standard deviation 1.41 m"),
    ],
    ids=lambda value: str(value) if isinstance(value, BaseObjective) else "",
)
def test_what_a_trajectory_achieves(
    objective: BaseObjective, path_m: np.ndarray, satisfied: bool | None, sentence: str
) -> None:
    assert verdict(objective, path_m) == Verdict(satisfied=satisfied, sentence=sentence)


def test_the_gap_that_is_missing_is_told() -> None:
    # the gap to the standing car at x = 30 shrinks to 30 - 20 - 4.5 = 5.5 m; wanted are 2 + 1.5 x 2.5 = 5.75 m
    found = verdict(KeepDistance(), straight(speed_mps=2.5))
    assert (found.satisfied, found.sentence) == (False, "up to 0.2 m too close to the vehicle ahead")


def test_the_worst_of_the_comfort_bounds_is_told() -> None:
    braking = np.stack([np.cumsum(np.maximum(0.0, 1.0 - 0.07 * np.arange(STEPS))), np.zeros(STEPS)], axis=-1)
    found = verdict(Comfort(), braking)
    assert found.satisfied is False
    assert found.sentence.endswith(" % of its comfort bound")
    assert int(found.sentence.split("up to ")[1].split(" %")[0]) > 110


@pytest.mark.parametrize(
    ("lane", "along_m", "reason"),
    [
        (APPROACH, 5.0, "the next left turn from this lane begins 75 m ahead"),
        (EXIT, 1.0, "no left turn leads from this lane"),
    ],
)
def test_the_map_gives_the_reason_for_a_turn_that_is_missing(lane: int, along_m: float, reason: str) -> None:
    lanes, scene = replace(crossing(), graph_origin=GraphOrigin.RECORDED), road()
    start_m = lanes.centrelines[lane][0].astype(np.float64) + np.array([along_m, 0.0])  # both lanes run along x
    tracks = scene.tracks
    there = replace(
        tracks, x_m=(tracks.x_m + start_m[0]).astype(np.float32), y_m=(tracks.y_m + start_m[1]).astype(np.float32)
    )
    scene = replace(scene, tracks=there, map=replace(scene.map, lanes=lanes), route=None)
    path_m = start_m + straight()
    assert verdict(LeftTurn(), path_m, scene=scene).sentence == f"turned 0 of 45 degrees: {reason}"


def test_a_likelihood_has_no_value_that_satisfies() -> None:
    rated = replace(candidates_in(road(), straight()), prior=lambda: torch.tensor([-3.25]))
    assert Likelihood().met(rated) == [Verdict(satisfied=None, sentence="log probability -3.25")]


@pytest.mark.parametrize(
    ("text", "satisfied", "violated", "sentence"),
    [
        ("goal-point(80, 0) then left-turn", False, False, "turned 0 of 45 degrees; 0.0 m from the goal at the end"),
        ("goal-point(80, 0) + road-edge", True, False, "0.0 m from the goal at the end; touches no road edge"),
        ("goal-point(80, 0) + 0 * left-turn", True, False, "0.0 m from the goal at the end"),
        (
            "2 * goal-point(80, 0) + terminal-variance",
            True,
            False,
            "0.0 m from the goal at the end; final standard deviation 1.41 m",
        ),
        ("goal-point(80, 0) where road-edge", True, False, "touches no road edge; 0.0 m from the goal at the end"),
        (
            "goal-point(80, 0) where collision",
            False,
            True,
            "constraint violated: collides for 0.9 s with car1; 0.0 m from the goal at the end",
        ),
        (
            "(goal-point(80, 0) where collision) then comfort",
            False,
            True,
            "constraint violated: collides for 0.9 s with car1; 0.0 m from the goal at the end; "
            "within the comfort bounds",
        ),
        (
            "goal-point(80, 0) where terminal-variance",
            True,
            False,
            "final standard deviation 1.41 m; 0.0 m from the goal at the end",
        ),
    ],
)
def test_combinations(text: str, satisfied: bool, violated: bool, sentence: str) -> None:
    found = verdict(parse_objective(text), straight())
    assert found == Verdict(satisfied=satisfied, violated=violated, sentence=sentence)


def test_an_objective_of_another_agent_has_no_verdict() -> None:
    assert verdict(GoalPoint(0.0, 0.0).for_agent("car1"), straight()) == Verdict()
    assert verdict(GoalPoint(80.0, 0.0).for_agent("ego"), straight()).satisfied is True


def test_a_function_has_no_verdict_of_its_own() -> None:
    def last_x(candidates: Candidates) -> Tensor:
        return candidates.position_m[:, -1, 0]

    assert verdict(as_objective(last_x), straight()) == Verdict()
    assert verdict(as_objective(last_x).then(RoadEdge()), straight()).satisfied is True
    assert combined([]) == Verdict()


ARGUMENTS = {"speed-profile": "([0], [5])", "stop-at": "(distance_m=20)", "goal-point": "(40, 0)"}


@pytest.mark.parametrize(
    "name", [name for name, kind in OBJECTIVES.items() if name != "likelihood" and kind.scope != "agents"]
)  # these need a prior, and several agents
def test_every_objective_tells_its_candidates_one_by_one(name: str) -> None:
    objective = parse_objective(f"{name}{ARGUMENTS.get(name, '')}")
    paths = wiggly(3, count=4)
    together = objective.met(candidates_in(road(), paths))
    assert together == [verdict(objective, path) for path in paths]
    assert all(found.sentence for found in together)
    assert all((found.satisfied is None) == (name == "terminal-variance") for found in together)
