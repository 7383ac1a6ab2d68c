"""Guided planning judged: left turns, lane changes and slowing down (paper, section 5.3 and appendix A.7).

Every case is answered in several ways: by what the road user did, by the code that says best what it did (which tells
faults of the decoder from those of guidance), by the plan that the model is surest of without any objective, by greedy
search with 1, 2, ... tokens, by a beam, and by a beam under the constraint to hit nothing. Success and realism of all
are measured alike.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from jaxtyping import Float

from waycode.evaluation.driven import Driven, lane_use
from waycode.evaluation.realism import RoadShape, realism_of
from waycode.evaluation.selection import Case, Group, lane_change_cases, left_turn_cases, slow_down_cases
from waycode.objectives import (
    BaseObjective,
    Collision,
    LaneChange,
    LeftTurn,
    Reconstruction,
    RoadEdge,
    SlowDown,
)
from waycode.planner import Planner, PlanStatus, View
from waycode.scene import Scene
from waycode.scene.lane_graph import LaneGraph
from waycode.scene.manoeuvre import LEFT_TURN_RAD

BEAM_WIDTH = 4
SLOW_MPS = 5.0  # v_max of the paper's speed reduction
RECORDED, DECODED, UNGUIDED, BEAM = "ground truth", "its code", "no objective", f"beam {BEAM_WIDTH}"
GUARDED = "guarded"
GUARD = RoadEdge() + Collision()  # others drive on at constant velocity: the plan knows nothing of the recording
SUCCESS, UNCERTAIN = "success", "uncertain"  # names of measures; those of realism are the fields of `Realism`

Measure = Callable[[Driven, LaneGraph, Group], dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class GuidanceTask:
    """One table: which cases, what is asked for in each group, and what is measured (success first)."""

    name: str
    select: Callable[[Scene], list[Case]]
    objectives: Mapping[Group, BaseObjective]
    measure: Measure


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One way to answer a case."""

    method: str
    future_m: Float[np.ndarray, "T 2"]  # in the scene frame
    measures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class AnsweredCase:
    """A case with all its answers, in the order of the table's rows."""

    case: Case
    scene_number: int  # cases of one scene go together in confidence intervals
    answers: tuple[Answer, ...] = field(repr=False)

    def answer(self, method: str) -> Answer:
        return next(answer for answer in self.answers if answer.method == method)


def answer_cases(
    planner: Planner,
    scenes: Iterable[tuple[int, Scene]],
    *,
    task: GuidanceTask,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> list[AnsweredCase]:
    """Answers every case of the numbered scenes."""
    answered = []
    for number, scene in scenes:
        cases = task.select(scene)
        if cases:
            road, index = RoadShape(scene), scene.map.lanes.graph
            for case in cases:
                answers = _answers(planner.encode(scene, case.agent), case, task=task, road=road, index=index)
                answered.append(AnsweredCase(case=case, scene_number=number, answers=answers))
        on_scenes(1)
    return answered


def methods(num_tokens: int) -> list[str]:
    """The rows of a table, from top to bottom."""
    return [RECORDED, DECODED, UNGUIDED, *(greedy(depth) for depth in range(1, num_tokens + 1)), BEAM, GUARDED]


def greedy(depth: int) -> str:
    """Name of the row of greedy search with this many tokens."""
    return f"greedy {depth}"


def _answers(view: View, case: Case, *, task: GuidanceTask, road: RoadShape, index: LaneGraph) -> tuple[Answer, ...]:
    objective, depth = task.objectives[case.group], view.model.config.num_tokens
    plans = [
        view.plan(Reconstruction()),
        *view.candidates(1),
        *(view.plan(objective, depth=tokens) for tokens in range(1, depth + 1)),
        view.plan(objective, beam_width=BEAM_WIDTH),
        view.plan(objective.where(GUARD), beam_width=BEAM_WIDTH),
    ]
    scene, steps = view.scene, view.model.config.features.future_steps
    after = scene.current_step + 1
    recorded = scene.tracks.position_m[case.agent, after : after + steps]
    futures = [(recorded, False)]
    futures += [(plan.position_in(scene), plan.status is PlanStatus.UNCERTAIN) for plan in plans]
    answers = []
    for method, (future, uncertain) in zip(methods(depth), futures, strict=True):
        driven = Driven.of(scene, case.agent, future)
        realism = realism_of(driven, scene, agent=case.agent, road=road)
        measures = {
            **task.measure(driven, index, case.group),
            **{name: float(value) for name, value in asdict(realism).items()},
            UNCERTAIN: float(uncertain),
        }
        answers.append(Answer(method=method, future_m=future, measures=measures))
    return tuple(answers)


def _left_turn(driven: Driven, index: LaneGraph, group: Group) -> dict[str, float]:
    turned = driven.leftward_turn_rad()
    return {
        SUCCESS: float(turned > LEFT_TURN_RAD),
        "leftward_turn_deg": float(np.degrees(turned)),
        "mean_speed_mps": driven.mean_speed_mps,
    }


def _lane_change(driven: Driven, index: LaneGraph, group: Group) -> dict[str, float]:
    use = lane_use(index, driven)
    wanted = (1, 0) if group is Group.ONE else (0, 0)
    return {
        SUCCESS: float((use.changes_left, use.changes_right) == wanted),
        "centre_distance_m": use.centre_distance_m,
        "mean_speed_mps": driven.mean_speed_mps,
    }


def _slow_down(driven: Driven, index: LaneGraph, group: Group) -> dict[str, float]:
    late = driven.late_speed_mps
    return {SUCCESS: float(late <= SLOW_MPS), "late_speed_mps": late, "mean_speed_mps": driven.mean_speed_mps}


TASKS: dict[str, GuidanceTask] = {
    task.name: task
    for task in (
        GuidanceTask(
            name="left-turn",
            select=left_turn_cases,
            objectives=dict.fromkeys(
                (Group.AVAILABLE, Group.AVAILABLE_ELSEWHERE, Group.NOT_AVAILABLE, Group.FROM_ANOTHER_LANE), LeftTurn()
            ),
            measure=_left_turn,
        ),
        GuidanceTask(
            name="lane-change",
            select=lane_change_cases,
            objectives={Group.ZERO: LaneChange(0), Group.ONE: LaneChange(1)},
            measure=_lane_change,
        ),
        GuidanceTask(
            name="slow-down",
            select=slow_down_cases,
            objectives={Group.STEADY: SlowDown(SLOW_MPS)},
            measure=_slow_down,
        ),
    )
}
