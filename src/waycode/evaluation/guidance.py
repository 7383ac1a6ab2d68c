"""Guided planning: how often search achieves an objective, and how realistic its plans are (paper, 5.3 and A.7).

A task selects cases and measures motions. Every case is answered by several methods: the recorded motion, its best
code (which separates faults of the decoder from faults of guidance), the most certain plan without an objective,
greedy search with 1, 2, ... tokens, a beam, and a beam constrained to avoid road edges and other road users. The same
measures apply to all answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from waycode.dataset.dataset import Dataset
from waycode.dataset.seeds import episode_of
from waycode.dataset.workers import map_tasks
from waycode.evaluation.motion import MeasuredMotion, lane_use
from waycode.evaluation.realism import RoadShape, realism_of
from waycode.evaluation.report import chosen_indices
from waycode.evaluation.selection import (
    HORIZON_STEPS,
    Case,
    Group,
    goal_cases,
    lane_change_cases,
    left_turn_cases,
    route_cases,
    slow_down_cases,
)
from waycode.objectives import (
    BaseObjective,
    Collision,
    GoalPoint,
    LaneChange,
    LeftTurn,
    Reconstruction,
    RoadEdge,
    RouteFollowing,
    SlowDown,
)
from waycode.objectives.goals import REACHED_M
from waycode.objectives.route import ON_ROUTE_M
from waycode.planner import Plan, Planner, View
from waycode.scene import Scene
from waycode.scene.geometry import project
from waycode.scene.manoeuvre import LEFT_TURN_RAD

_BEAM_WIDTH = 4
_SLOW_MPS = 5.0  # v_max of the paper's speed reduction
_ROUTE_PROGRESS = 0.7  # least share of the recorded distance
_SCENES_PER_PART = 25  # per task of a worker process
_GUARD = RoadEdge() + Collision()  # others at constant velocity: a plan must not see the recording
RECORDED, DECODED, UNGUIDED, BEAM = "ground truth", "its code", "no objective", f"beam {_BEAM_WIDTH}"
GUARDED = "guarded"
SUCCESS, UNCERTAIN = "success", "uncertain"  # names of measures, beside `REALISM_MEASURES`
ALL_CROSSINGS, ALL_WAY_STOPS = "all crossings", "all-way stops"  # parts of the left-turn table
LEFT_TURN_UNAVAILABLE = (Group.FROM_NO_LANE, Group.FROM_ANOTHER_LANE)  # as in the paper's figure

Measure = Callable[[MeasuredMotion, Scene, Case], dict[str, float]]  # by name; `SUCCESS` is 0 or 1
CaseObjective = Callable[[Scene, Case], BaseObjective]  # for objectives that depend on the recording


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """A part of a table: the cases of one or more groups, counted together."""

    name: str
    groups: tuple[Group, ...]
    only_all_way_stops: bool = False
    is_split: bool = False  # counts cases of the part before it again, by group

    def has(self, case: Case) -> bool:
        """Whether the case belongs to this part."""
        return case.group in self.groups and (case.all_way_stop or not self.only_all_way_stops)


@dataclass(frozen=True, kw_only=True)
class GuidanceTask:
    """One table: the cases, the objective of each group, and the measures."""

    name: str  # as `waycode eval` takes it
    select: Callable[[Scene], list[Case]]
    objectives: Mapping[Group, BaseObjective | CaseObjective]
    measure: Measure
    parts: tuple[TablePart, ...]
    refine_steps: tuple[int, ...] = ()  # further rows: the beam's plan, refined by this many gradient steps
    by_certainty: bool = True  # see `View.plan`

    def objective_of(self, scene: Scene, case: Case) -> BaseObjective:
        """The objective of the case's group."""
        objective = self.objectives[case.group]
        return objective if isinstance(objective, BaseObjective) else objective(scene, case)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The motion that one method gives for a case."""

    method: str  # one of `methods`
    future_m: Float[np.ndarray, "T 2"]  # positions in the scene frame
    measures: Mapping[str, float]  # by name: those of the task, `REALISM_MEASURES` and `UNCERTAIN`


@dataclass(frozen=True, kw_only=True)
class AnsweredCase:
    """A case with the answers of the methods, in the order of the table's rows."""

    case: Case
    scene_number: int
    episode: str  # cases of one episode are resampled together
    answers: tuple[Answer, ...] = field(repr=False)

    def answer(self, method: str) -> Answer:
        return next(answer for answer in self.answers if answer.method == method)


def answer_cases(
    planner: Planner, scenes: Iterable[tuple[int, Scene]], *, task: GuidanceTask, only: Sequence[str] | None = None
) -> list[AnsweredCase]:
    """Answers every case of numbered scenes by all methods, or by those named in `only`."""
    answered = []
    for number, scene in scenes:
        if cases := task.select(scene):
            road = RoadShape(scene)
            for case in cases:
                answers = _answers(planner.encode(scene, case.agent), case, task=task, road=road, only=only)
                answered.append(
                    AnsweredCase(case=case, scene_number=number, episode=episode_of(scene), answers=answers)
                )
    return answered


def answer_dataset(
    task: GuidanceTask,
    *,
    model: str,
    folder: Path,
    scenes: int | None = None,
    workers: int = 1,
    only: Sequence[str] | None = None,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> list[AnsweredCase]:
    """Answers the cases of a dataset, in the order of the scenes.

    Args:
        task: one of `TASKS`, or a variant of it.
        model: what `--model` takes.
        folder: dataset of scenes that the model was not trained on.
        scenes: number of scenes, evenly spread over the dataset; None: all.
        workers: processes; if more than one, each computes with one thread.
        only: names of `methods`; None: all of them.
        on_scenes: called with the number of scenes done since the last call.
    """
    chosen = chosen_indices(len(Dataset(folder)), scenes)
    parts = [chosen[start : start + _SCENES_PER_PART] for start in range(0, len(chosen), _SCENES_PER_PART)]
    answer = partial(_answer_part, task=task, model=model, folder=folder, one_thread=workers > 1, only=only)
    answered = []
    for part, found in zip(parts, map_tasks(answer, parts, workers=workers), strict=True):
        answered += found
        on_scenes(len(part))
    return answered


def methods(num_tokens: int, refine_steps: Sequence[int] = ()) -> list[str]:
    """Names of the methods: the rows of a table, from top to bottom."""
    return [
        RECORDED,
        DECODED,
        UNGUIDED,
        *(greedy(depth) for depth in range(1, num_tokens + 1)),
        BEAM,
        *(refined(steps) for steps in refine_steps),
        GUARDED,
    ]


def greedy(depth: int) -> str:
    """Name of greedy search with `depth` tokens."""
    return f"greedy {depth}"


def refined(steps: int) -> str:
    """Name of the beam's plan after gradient steps."""
    return f"refined {steps}"


def _answer_part(
    indices: Sequence[int],
    *,
    task: GuidanceTask,
    model: str,
    folder: Path,
    one_thread: bool,
    only: Sequence[str] | None,
) -> list[AnsweredCase]:
    """Answers some scenes of a dataset, perhaps in a worker process."""
    if one_thread:
        torch.set_num_threads(1)
    planner, dataset = Planner.from_pretrained(model), Dataset(folder)
    return answer_cases(planner, ((index, dataset[index]) for index in indices), task=task, only=only)


def _answers(
    view: View, case: Case, *, task: GuidanceTask, road: RoadShape, only: Sequence[str] | None
) -> tuple[Answer, ...]:
    scene, depth = view.scene, view.model.config.num_tokens
    objective = task.objective_of(scene, case)
    search = partial(view.plan, objective, by_certainty=task.by_certainty)
    plans: dict[str, Callable[[], Plan]] = {
        DECODED: lambda: view.plan(Reconstruction()),
        UNGUIDED: lambda: view.candidates(1)[0],
        **{greedy(tokens): partial(search, depth=tokens) for tokens in range(1, depth + 1)},
        BEAM: partial(search, beam_width=_BEAM_WIDTH),
        **{refined(steps): partial(search, beam_width=_BEAM_WIDTH, refine_steps=steps) for steps in task.refine_steps},
        GUARDED: partial(view.plan, objective.where(_GUARD), beam_width=_BEAM_WIDTH, by_certainty=task.by_certainty),
    }
    after = scene.current_step + 1
    recorded = scene.tracks.position_m[case.agent, after : after + view.model.config.features.future_steps]
    answers = []
    for method in methods(depth, task.refine_steps):
        if only is not None and method not in only:
            continue
        plan = plans[method]() if method in plans else None
        future = recorded if plan is None else plan.position_in(scene)
        motion = MeasuredMotion.of(scene, case.agent, future)
        realism = realism_of(motion, scene, agent=case.agent, road=road)
        measures = {
            **task.measure(motion, scene, case),
            **{name: float(value) for name, value in asdict(realism).items()},
            UNCERTAIN: float(plan is not None and plan.rejected),
        }
        answers.append(Answer(method=method, future_m=future, measures=measures))
    return tuple(answers)


def _left_turn(motion: MeasuredMotion, scene: Scene, case: Case) -> dict[str, float]:
    turned = motion.leftward_turn_rad()
    return {
        SUCCESS: float(turned > LEFT_TURN_RAD),
        "leftward_turn_deg": float(np.degrees(turned)),
        "mean_speed_mps": motion.mean_speed_mps,
    }


def _lane_change(motion: MeasuredMotion, scene: Scene, case: Case) -> dict[str, float]:
    use = lane_use(scene.map.lanes.graph, motion)
    wanted = (1, 0) if case.group is Group.ONE else (0, 0)
    return {
        SUCCESS: float((use.changes_left, use.changes_right) == wanted),
        "centre_distance_m": use.centre_distance_m,
        "mean_speed_mps": motion.mean_speed_mps,
    }


def _slow_down(motion: MeasuredMotion, scene: Scene, case: Case) -> dict[str, float]:
    late = motion.late_speed_mps
    return {SUCCESS: float(late <= _SLOW_MPS), "late_speed_mps": late, "mean_speed_mps": motion.mean_speed_mps}


def _goal(motion: MeasuredMotion, scene: Scene, case: Case) -> dict[str, float]:
    recorded = MeasuredMotion.of(scene, case.agent).position_m[: len(motion.position_m)]
    error = np.linalg.norm(motion.position_m - recorded, axis=1)
    final = float(error[-1])
    return {SUCCESS: float(final <= REACHED_M), "final_error_m": final, "mean_error_m": float(error[1:].mean())}


def _route(motion: MeasuredMotion, scene: Scene, case: Case) -> dict[str, float]:
    lines = [scene.map.lanes.centrelines[lane].astype(np.float64) for lane in scene.route.lanes] if scene.route else []
    distance = np.min([np.abs(project(motion.position_m[1:], line)[1]) for line in lines], axis=0).max()
    recorded = MeasuredMotion.of(scene, case.agent).position_m[: len(motion.position_m)]
    progress = motion.distance_m / float(np.linalg.norm(np.diff(recorded, axis=0), axis=1).sum())
    return {
        SUCCESS: float(distance <= ON_ROUTE_M and progress >= _ROUTE_PROGRESS),
        "route_distance_m": float(distance),
        "progress_ratio": progress,
    }


def _recorded_end(scene: Scene, case: Case) -> GoalPoint:
    """The goal, rounded to a centimetre as it is shown."""
    x_m, y_m = scene.tracks.position_m[case.agent, scene.current_step + HORIZON_STEPS].astype(np.float64)
    return GoalPoint(round(float(x_m), 2), round(float(y_m), 2))


def left_turn_part(where: str, *, available: bool) -> str:
    """Name of a part of the left-turn table; `where` is `ALL_CROSSINGS` or `ALL_WAY_STOPS`."""
    return f"{'left turn available' if available else 'no left turn available'}, {where}"


def _left_turn_parts() -> tuple[TablePart, ...]:
    """All crossings first, then the paper's all-way stops; cases without a turn are also split by the reason."""
    parts = []
    for where in (ALL_CROSSINGS, ALL_WAY_STOPS):
        stops, absent = where == ALL_WAY_STOPS, left_turn_part(where, available=False)
        parts += [
            TablePart(name=left_turn_part(where, available=True), groups=(Group.AVAILABLE,), only_all_way_stops=stops),
            TablePart(name=absent, groups=LEFT_TURN_UNAVAILABLE, only_all_way_stops=stops),
        ]
        parts += [
            TablePart(name=f"{absent}: {group}", groups=(group,), only_all_way_stops=stops, is_split=True)
            for group in LEFT_TURN_UNAVAILABLE
        ]
    return tuple(parts)


def _one_each(*groups: Group) -> tuple[TablePart, ...]:
    return tuple(TablePart(name=str(group), groups=(group,)) for group in groups)


TASKS: dict[str, GuidanceTask] = {
    task.name: task
    for task in (
        GuidanceTask(
            name="left-turn",
            select=left_turn_cases,
            objectives=dict.fromkeys((Group.AVAILABLE, *LEFT_TURN_UNAVAILABLE), LeftTurn()),
            measure=_left_turn,
            parts=_left_turn_parts(),
        ),
        GuidanceTask(
            name="lane-change",
            select=lane_change_cases,
            objectives={Group.ZERO: LaneChange(0), Group.ONE: LaneChange(1)},
            measure=_lane_change,
            parts=_one_each(Group.ZERO, Group.ONE),
        ),
        GuidanceTask(
            name="slow-down",
            select=slow_down_cases,
            objectives={Group.STEADY: SlowDown(_SLOW_MPS)},
            measure=_slow_down,
            parts=_one_each(Group.STEADY),
        ),
        GuidanceTask(
            name="goal",
            select=goal_cases,
            objectives={Group.GOAL: _recorded_end},
            measure=_goal,
            parts=_one_each(Group.GOAL),
            refine_steps=(5, 40),  # the paper's numbers of steps
        ),
        GuidanceTask(
            name="route",
            select=route_cases,
            objectives={Group.ROUTE: RouteFollowing()},
            measure=_route,
            parts=_one_each(Group.ROUTE),
        ),
    )
}
