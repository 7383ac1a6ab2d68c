"""New scenarios: a scene whose agents do something else, found by search or drawn from the prior."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from waycode.objectives import JointCandidates, Objective, RoadEdge
from waycode.planner.joint_plan import JointPlan
from waycode.planner.joint_view import JointView
from waycode.planner.plan import PlannerError
from waycode.scene import Scene, TrackType
from waycode.scene.conflicts import overlapping_pairs


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A joint future as a scene, and what is wrong with it."""

    plan: JointPlan
    scene: Scene  # agents that were not planned for keep their recording
    faults: tuple[str, ...]  # sentences; empty if there is nothing to object


def generate_scenarios(
    view: JointView,
    objective: Objective | str | None = None,
    *,
    count: int = 6,
    depth: int | None = None,
    beam_width: int = 64,
    refine_steps: int = 0,
    seed: int = 0,
) -> list[Scenario]:
    """Different joint futures of a scene, best first.

    Args:
        view: the scene, and the agents that may change what they do.
        objective: what is searched for; None draws from the model's prior.
        count: number of scenarios.
        depth: number of tokens; by default all that the model has. Fewer tokens: more realistic, less exact.
        beam_width: of the search; at least `count`.
        refine_steps: gradient steps on each future that search finds.
        seed: of the draws.
    """
    if count < 1:
        raise PlannerError(f"asked for {count} scenarios, expected at least 1")
    if objective is None:
        plans: Sequence[JointPlan] = view.sample(count, depth=depth, seed=seed)
    else:
        plans = view.beam(objective, count=count, beam_width=max(beam_width, count), depth=depth, gate=False)
        if refine_steps:
            plans = [view.refine(plan, objective, steps=refine_steps, gate=False) for plan in plans]
    codes = torch.tensor(np.stack([plan.latents for plan in plans]))
    candidates = view.decode_many(codes)
    scenarios = []
    for number, plan in enumerate(plans):
        scene = plan.in_scene(view.scene)
        faults = (*_overlaps(scene, view), *_over_edges(candidates, number))
        scene = replace(scene, id=f"{scene.id}-{number + 1}")
        scenarios.append(Scenario(plan=plan, scene=scene, faults=faults))
    return scenarios


def _overlaps(scene: Scene, view: JointView) -> list[str]:
    """Overlaps of planned agents with anybody that the recording did not have."""
    planned = {setting.agent for setting in view.settings}
    now, everybody = scene.current_step, np.ones(len(scene.tracks), np.bool_)

    def pairs(of: Scene) -> dict[tuple[int, int], int]:
        """Number of steps by pair."""
        counts: dict[tuple[int, int], int] = {}
        for one, other, step in overlapping_pairs(of.tracks, which=everybody).tolist():
            if step > now and (one in planned or other in planned):
                counts[one, other] = counts.get((one, other), 0) + 1
        return counts

    recorded, ids = pairs(view.scene), scene.tracks.ids
    return [
        f"{ids[one]} and {ids[other]} overlap for {steps * scene.dt_s:.1f} s"
        for (one, other), steps in pairs(scene).items()
        if (one, other) not in recorded
    ]


def _over_edges(candidates: JointCandidates, number: int) -> list[str]:
    """Vehicles that touch a road edge, unless they stand on one at the start."""
    faults = []
    for agent in candidates.agents:
        setting = agent.setting
        if setting.scene.tracks.types[setting.agent] != TrackType.VEHICLE:
            continue
        contact = RoadEdge().contact(agent.select(slice(number, number + 1)))[0]
        if bool(contact.any()) and not bool(contact[0]):
            seconds = float(contact.sum()) * agent.dt_s
            faults.append(f"{setting.agent_id} touches a road edge for {seconds:.1f} s")
    return faults
