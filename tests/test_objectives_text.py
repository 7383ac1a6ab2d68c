"""Objectives put together, in Python and as text, and what is said about them."""

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from roads import candidates_in, road, shifted, straight, wiggly
from waycode.objectives import (
    OBJECTIVES,
    BaseObjective,
    Candidates,
    Collision,
    Comfort,
    FollowingGap,
    GoalPoint,
    GoesFirst,
    LaneChange,
    LeftTurn,
    ObjectiveError,
    RoadEdge,
    SlowDown,
    SpeedProfile,
    StopAt,
    TerminalVariance,
    as_objective,
    describe_objectives,
    parse_objective,
)

DOCS = Path(__file__).parents[1] / "docs" / "objectives.md"


@dataclass(frozen=True)
class Fixed(BaseObjective):
    """The given costs."""

    costs: tuple[float, ...]

    def __call__(self, candidates: Candidates) -> Tensor:
        return torch.tensor(self.costs, dtype=torch.float64)


A, B = Fixed((1.0, 2.0, 3.0)), Fixed((30.0, 20.0, 10.0))


def three() -> Candidates:
    return candidates_in(road(), wiggly(0, count=3))


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (A + B, [[31.0], [22.0], [13.0]]),
        (2.0 * A, [[2.0], [4.0], [6.0]]),
        (A * 2 + B, [[32.0], [24.0], [16.0]]),
        (A + B + A, [[32.0], [24.0], [16.0]]),
        (A.then(B), [[1.0, 30.0], [2.0, 20.0], [3.0, 10.0]]),
        (A.where(B), [[30.0, 1.0], [20.0, 2.0], [10.0, 3.0]]),
        (A.then(B).where(2 * A), [[2.0, 1.0, 30.0], [4.0, 2.0, 20.0], [6.0, 3.0, 10.0]]),
        (A.for_agent("ego"), [[1.0], [2.0], [3.0]]),
        (A.then(B).for_agent("car1"), [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
        (A + (lambda candidates: candidates.final_std_m * 0), [[1.0], [2.0], [3.0]]),
    ],
    ids=["+", "*", "* and +", "+ +", "then", "where", "then where", "for_agent", "for another", "a function"],
)
def test_combinations(objective: BaseObjective, expected: list[list[float]]) -> None:
    levels = objective.levels(three())
    assert levels.tolist() == expected
    assert len(objective.level_names) == len(expected[0])


def test_what_the_parts_say() -> None:
    explained = (2 * A + Comfort()).then(A).where(LaneChange(0)).explain(three())
    assert explained["fixed"].tolist() == explained["fixed (2)"].tolist() == [1.0, 2.0, 3.0]  # without weights
    assert {"comfort", "lane-change.wrong_changes", "lane-change.offset_m", "lane-change.to_left"} <= set(explained)
    assert all(values.shape == (3,) for values in explained.values())


@pytest.mark.parametrize(
    ("objective", "differentiable"),
    [
        (LeftTurn(), True),
        (LeftTurn() + 2 * Comfort(), True),
        (LaneChange(), False),
        (LeftTurn() + A, False),
        (LeftTurn().then(Comfort()), False),
        (LeftTurn().for_agent("ego"), True),
    ],
    ids=str,
)
def test_what_has_a_gradient(objective: BaseObjective, differentiable: bool) -> None:
    assert objective.differentiable == differentiable


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LaneChange() + Comfort(), "cannot add lane-change, which has the levels .*: expected one; use 'then'"),
        (lambda: -1.0 * Comfort(), "the weight of comfort is -1.0, expected a number of at least 0"),
        (lambda: as_objective(3), "got 3, expected an objective or a function"),
        (lambda: GoalPoint(float("nan"), 0.0), "x_m of goal-point is nan, expected finite numbers"),
        (
            lambda: SpeedProfile((0.0, 1.0), (3.0,)),
            "speed-profile has 2 times and 1 speeds, expected equally many of both",
        ),
        (lambda: SpeedProfile((1.0, 1.0), (3.0, 3.0)), r"times of speed-profile are \[1.0, 1.0\], expected increasing"),
        (lambda: StopAt(1.0, 2.0, distance_m=3.0), "expected a point .* or a distance_m"),
        (lambda: as_objective(lambda candidates: [1, 2], name="odd").levels(three()), "odd gave list, expected"),
        (
            lambda: as_objective(lambda candidates: torch.zeros(2)).levels(three()),
            r"shape \[2, 1\], expected .* \[3, 1\]",
        ),
    ],
    ids=range(9),
)
def test_what_cannot_be_put_together(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ObjectiveError, match=words):
        make()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comfort", Comfort()),
        ("lane-change(+1)", LaneChange(1)),
        ("lane-change(-1, either_side=true)", LaneChange(-1, either_side=True)),
        ("lane-change(+1) then comfort", LaneChange(1).then(Comfort())),
        (
            "2 * goal-point(10, 3) + comfort where road-edge",
            (2.0 * GoalPoint(10.0, 3.0) + Comfort()).where(RoadEdge()),
        ),
        ("comfort+2*road-edge", Comfort() + 2 * RoadEdge()),
        ("comfort +2 * road-edge", Comfort() + 2 * RoadEdge()),
        ("goal-point(x_m=-1e1, y_m=.5, frame=agent)", GoalPoint(-10.0, 0.5, frame="agent")),
        ("collision(others=recorded)", Collision(others="recorded")),
        ("speed-profile([0, 8], [5, 2.5])", SpeedProfile((0.0, 8.0), (5.0, 2.5))),
        ("slow-down(4, from_s=6)", SlowDown(4.0, from_s=6.0)),
        ("comfort then left-turn then slow-down", Comfort().then(LeftTurn()).then(SlowDown())),
        ("comfort where road-edge where collision", Comfort().where(RoadEdge()).where(Collision())),
        ("comfort then left-turn where road-edge", Comfort().then(LeftTurn()).where(RoadEdge())),
        ("comfort then (left-turn where road-edge)", Comfort().then(LeftTurn().where(RoadEdge()))),
        ("2 * (comfort + left-turn)", 2 * (Comfort() + LeftTurn())),
        ("# slowly\nslow-down(3)  # 3 m/s\n\n  then comfort\n", SlowDown(3.0).then(Comfort())),
        ("((comfort))", Comfort()),
        ("left-turn()", LeftTurn()),
    ],
)
def test_text(text: str, expected: BaseObjective) -> None:
    parsed = parse_objective(text)
    assert parsed == expected
    assert parse_objective(str(parsed)) == expected  # and back


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "character 1: got the end, expected the name of an objective, a weight or '('"),
        ("lane-chnge(1)", "character 1: no objective is called 'lane-chnge': did you mean lane-change?"),
        ("comfort + zebra", "character 11: no objective is called 'zebra', available are left-turn, right-turn, "),
        ("comfort then", "character 13: got the end, expected the name of an objective, a weight or '('"),
        ("comfort )", "character 9: got ')', expected '+', 'then', 'where' or the end"),
        ("(comfort", "character 9: got the end, expected ')'"),
        ("2 comfort", "character 3: got 'comfort', expected '*'"),
        ("comfort(1)", "character 9: got '1', expected ')'"),
        ("lane-change(1", "character 14: got the end, expected ',' or ')'"),
        ("lane-change(1.5)", "character 13: count of lane-change is '1.5', expected: whole number"),
        ("goal-point(1)", "character 1: goal-point lacks y_m"),
        ("goal-point(1, 2, 3)", "character 18: got '3', expected ')', or an argument of goal-point with its name: x_m"),
        ("goal-point(1, 2, x_m=3)", "character 18: x_m of goal-point is given twice"),
        ("goal-point(1, 2, frame=world)", "character 24: frame of goal-point is 'world', expected: scene or agent"),
        ("left-turn(angle=1)", "character 11: left-turn has no 'angle', expected min_angle_rad, max_curvature_1pm"),
        ("speed-profile([0 1], [2])", "character 18: got '1', expected ',' or ']'"),
        ("comfort then\nlane-change + comfort", "line 2, character 13: cannot add lane-change"),
        ("comfort & left-turn", "character 9: got '&', expected a name, a number or a bracket"),
        ("goal-point(1e999, 0)", "character 12: got '1e999', expected a number of at most 1e+09"),
        ("reconstruction(valid=1)", "character 22: valid of reconstruction is '1', expected: array, in Python only"),
        ("(" * 3_000, "brackets are nested too deeply, expected at most 50 levels"),
    ],
)
def test_text_that_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ObjectiveError, match=re.escape(words)):
        parse_objective(text)


@given(st.text(alphabet="()[],=+*-. 12\n#thenwhrcomfotx_", max_size=30))
@settings(max_examples=200)
def test_any_text_is_an_objective_or_an_error_of_one_sentence(text: str) -> None:
    message = ""
    try:
        assert isinstance(parse_objective(text), BaseObjective)
    except ObjectiveError as error:
        message = str(error)
    assert not message or re.match(r"objective, (line \d+, )?character \d+: ", message)


def test_every_objective_is_described() -> None:
    described = {one.name: one for one in describe_objectives()}
    assert list(described) == list(OBJECTIVES)
    for name, kind in OBJECTIVES.items():
        assert described[name].summary.endswith(".")
        assert described[name].differentiable == kind.differentiable
        assert [one.name for one in described[name].parameters] == [one.name for one in fields(kind)]  # type: ignore[arg-type]
    parameter = described["slow-down"].parameters[0]
    assert (parameter.name, parameter.kind, parameter.unit, parameter.default) == (
        "max_speed_mps",
        "number",
        "m/s",
        5.0,
    )
    assert (parameter.required, parameter.positional) == (False, True)
    assert described["goal-point"].parameters[3].choices == ("scene", "agent")


def test_names_are_those_of_the_registry() -> None:
    given = {
        "speed-profile": SpeedProfile((0.0,), (1.0,)),
        "stop-at": StopAt(distance_m=1.0),
        "goal-point": GoalPoint(0.0, 0.0),
        "following-gap": FollowingGap("1", "2"),
        "goes-first": GoesFirst("1", "2"),
    }
    for name, kind in OBJECTIVES.items():
        assert (given[name] if name in given else kind()).name == name


def test_an_objective_that_is_no_dataclass() -> None:
    class KeepLeft(BaseObjective):
        def __call__(self, candidates: Candidates) -> Tensor:
            return -candidates.position_m[:, -1, 1]

    paths = torch.stack([torch.tensor(straight()), torch.tensor(shifted(3.5))])
    objective = KeepLeft() + TerminalVariance()
    assert str(objective) == "keep-left + terminal-variance"
    assert objective(candidates_in(road(), paths)).argmin() == 1


def test_the_examples_of_the_documentation() -> None:
    text = DOCS.read_text()
    for example in re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL):
        for objective in re.split(r"\n\n+", example.strip()):
            parse_objective(objective)
    for name in OBJECTIVES:
        assert f"`{name}" in text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lane-change(", "character 13: got the end, expected an argument or ')'"),
        ("goal-point(1,", "got the end"),
        ("goal-point(1, 2", "expected ',' or ')'"),
        ("goal-point(x_m=", "expected: number"),
        ("speed-profile([1, 2", "got the end"),
        (" then ".join(["comfort"] * 5000), "characters, expected at most 10,000"),
        (" then ".join(["comfort"] * 200), "the objective goes on after 100 terms, expected no more"),
        (" + ".join(["comfort"] * 200), "after 100 terms"),
        ("(" * 5000, "brackets are nested too deeply, expected at most 50 levels"),
        ("(" * 60 + "comfort" + ")" * 60, "nested too deeply"),
        ("comfort " * 2_000_000, "has 16,000,000 characters"),
        ("goal-point(1e999, 0)", "got '1e999', expected a number of at most 1e+09"),
        ("1e999 * comfort", "expected a number of at most"),
    ],
)
def test_text_has_limits(text: str, sentence: str) -> None:
    with pytest.raises(ObjectiveError, match=re.escape(sentence)):
        parse_objective(text)


def test_only_the_beginning_of_a_long_word_is_repeated() -> None:
    for text in ("a" * 9000, f"lane-change({'b' * 9000})", f"comfort {'c' * 9000}", f"comfort({'d' * 9000}=1)"):
        with pytest.raises(ObjectiveError) as error:
            parse_objective(text)
        assert len(str(error.value)) < 700
