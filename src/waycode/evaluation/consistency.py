"""Whether unguided agents follow a guided one: only one agent of a joint future has a goal, and this goal moves.

The guided agent is the one of each scene that travels farthest. Its goal is where it was recorded to be at the end, or
where it was after 60 % of the time: it has to be slower. The likelihood of the joint code stands for the agents without
a goal: search would otherwise choose their tokens by chance.

S scenes, T steps.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from waycode.evaluation import joint
from waycode.evaluation.motion import MeasuredMotion
from waycode.evaluation.realism import body_corners_m
from waycode.objectives import GoalPoint, Likelihood
from waycode.objectives.base import ForAgent
from waycode.planner import JointPlan, JointView, Planner
from waycode.scene import Scene
from waycode.scene.geometry import boxes_overlap

NATS_M = 0.2  # metres that the goal may be missed by for a nat of likelihood
SHARES = {"goal as recorded": 1.0, "goal at 60 % of the time": 0.6}
GUIDED_FDE, OTHERS_ADE, OTHERS_MOVED = "guided_fde_m", "others_ade_m", "others_moved_m"
OVERLAP_RECORDED = "overlap_recorded"  # of the guided agent with the others, if these kept their recording


def joint_consistency(batch: joint.JointBatch) -> joint.JointMeasures:
    """Measures for each goal of the guided agent; see the module. Agents move by the mean distance over time."""
    planner = Planner(batch.model)
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in SHARES}
    for scene, agents in zip(batch.scenes, batch.agents, strict=True):
        guided = max(agents, key=lambda agent: _travelled_m(scene, agent))
        view = planner.encode(scene, agents=agents)
        plans = [plan_towards(view, guided, share) for share in SHARES.values()]
        for name, share, plan in zip(SHARES, SHARES.values(), plans, strict=True):
            measured[name].append(measures_of(scene, guided, agents, share, plan=plan, first=plans[0]))
    return by_measure(measured)


def plan_towards(view: JointView, guided: int, share: float) -> JointPlan:
    """The joint future in which one agent ends where it was recorded after a share of the future; the others are free.

    Args:
        view: the scene, encoded for all agents.
        guided: track of the agent with a goal.
        share: of its recorded future; 0 is where it is now.
    """
    scene = view.scene
    goal = ForAgent((GoalPoint(*_recorded_at(scene, guided, share)),), scene.tracks.ids[guided])
    depth = min(joint.SEARCH_DEPTH, view.model.config.num_tokens)
    return view.plan(goal + NATS_M * Likelihood(), beam_width=joint.BEAM_WIDTH, depth=depth, gate=False)


def by_measure(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> joint.JointMeasures:
    """Values of each measure over all scenes, from the measures of each scene, by method."""
    return {
        name: {measure: np.array([one[measure] for one in values]) for measure in values[0]}
        for name, values in measured.items()
    }


def measures_of(
    scene: Scene, guided: int, agents: Sequence[int], share: float, *, plan: JointPlan, first: JointPlan
) -> dict[str, float]:
    """Measures of one joint future.

    Args:
        scene: with the recording.
        guided: track of the agent with a goal.
        agents: tracks of all agents.
        share: of the recorded future, where the goal is.
        plan: the joint future.
        first: another one, from which the moves of the others are measured.
    """
    now = scene.current_step
    others = [agent for agent in agents if agent != guided]
    paths, before = ({agent: path_of(one, scene, agent) for agent in agents} for one in (plan, first))
    body, seen = body_of(scene, guided, paths[guided]), _seen(scene, guided, len(paths[guided]))
    hits, recorded_hits, away_m, moved_m = [], [], [], []
    for agent in others:
        other_seen = _seen(scene, agent, len(seen))
        both = seen & other_seen
        recorded_m = scene.tracks.position_m[agent, now + 1 :][: len(seen)].astype(np.float64)
        hits.append(bool((boxes_overlap(body, body_of(scene, agent, paths[agent])) & both).any()))
        kept_m = np.where(other_seen[:, None], recorded_m, scene.tracks.position_m[agent, now])
        recorded_hits.append(bool((boxes_overlap(body, body_of(scene, agent, kept_m)) & both).any()))
        distance_m = np.linalg.norm(paths[agent] - recorded_m, axis=1)[other_seen]
        away_m.append(float(distance_m.mean()))
        moved_m.append(float(np.linalg.norm(paths[agent] - before[agent], axis=1).mean()))
    off_m = float(np.linalg.norm(paths[guided][-1] - _recorded_at(scene, guided, share)))
    return {
        GUIDED_FDE: off_m,
        OTHERS_ADE: float(np.mean(away_m)),
        OTHERS_MOVED: float(np.mean(moved_m)),
        joint.OVERLAP: float(any(hits)),
        OVERLAP_RECORDED: float(any(recorded_hits)),
    }


def path_of(plan: JointPlan, scene: Scene, agent: int) -> Float[np.ndarray, "T 2"]:
    """The planned positions of an agent, in the frame of the scene."""
    return plan.of(scene.tracks.ids[agent]).position_in(scene).astype(np.float64)


def body_of(scene: Scene, agent: int, path_m: Float[np.ndarray, "T 2"]) -> Float[np.ndarray, "T 4 2"]:
    return body_corners_m(MeasuredMotion.of(scene, agent, path_m), scene, agent)


def _seen(scene: Scene, agent: int, steps: int) -> Bool[np.ndarray, " T"]:
    """At which future steps the agent was observed."""
    future = scene.tracks.valid[agent, scene.current_step + 1 :][:steps]
    return np.pad(future, (0, steps - len(future)))


def _recorded_at(scene: Scene, agent: int, share: float) -> tuple[float, float]:
    """Where the agent was observed last, up to this share of the future; for 0 where it is now."""
    if share == 0:
        now_x_m, now_y_m = scene.tracks.position_m[agent, scene.current_step].tolist()
        return float(now_x_m), float(now_y_m)
    future = np.flatnonzero(scene.tracks.valid[agent, scene.current_step + 1 :])
    step = future[future <= share * future[-1]][-1] if (future <= share * future[-1]).any() else future[0]
    x_m, y_m = scene.tracks.position_m[agent, scene.current_step + 1 + step].tolist()
    return float(x_m), float(y_m)


def _travelled_m(scene: Scene, agent: int) -> float:
    start_m = scene.tracks.position_m[agent, scene.current_step]
    return float(np.linalg.norm(np.array(_recorded_at(scene, agent, 1.0)) - start_m))
