"""`JointPlan`: the plans of several agents of a scene, from one code."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from waycode.planner.plan import Plan, PlannerError
from waycode.scene import Scene
from waycode.scene.frames import wrap_angle


@dataclass(frozen=True, kw_only=True)
class JointPlan(Plan):
    """The plans of several agents from one code. As a `Plan`, it is that of the first agent.

    Tokens, costs, status and message are those of the joint future, in all of the plans.
    """

    agents: tuple[Plan, ...]  # the first agent's included

    def of(self, agent_id: str) -> Plan:
        """The plan of one of the agents."""
        for plan in self.agents:
            if plan.agent_id == agent_id:
                return plan
        available = ", ".join(plan.agent_id for plan in self.agents)
        raise PlannerError(f"no agent {agent_id!r} was planned for, expected one of {available}")

    def as_scene(self, scene: Scene, *, scene_id: str | None = None) -> Scene:
        """The scene with these futures instead of the recorded ones; all other agents keep their recording.

        Args:
            scene: that was planned in.
            scene_id: of the new scene; by default that of the old one.
        """
        tracks, now = scene.tracks, scene.current_step
        steps = min(len(self.time_s), tracks.num_steps - 1 - now)
        if scene.id != self.scene_id or steps < 1:
            raise PlannerError(
                f"the plan is of scene {self.scene_id!r} and has {len(self.time_s)} steps, got scene {scene.id!r} with "
                f"{tracks.num_steps - 1 - now} steps after the current one: expected the same scene with a future"
            )
        later = slice(now + 1, now + 1 + steps)
        names = ("x_m", "y_m", "heading_rad", "vx_mps", "vy_mps", "valid")
        changed = {name: getattr(tracks, name).copy() for name in names}
        for plan in self.agents:
            track = tracks.ids.index(plan.agent_id)
            position_m = plan.position_in(scene)[:steps]
            before_m = np.concatenate([tracks.position_m[track, now : now + 1], position_m])
            changed["x_m"][track, later], changed["y_m"][track, later] = position_m.T
            changed["heading_rad"][track, later] = wrap_angle(plan.heading_rad[:steps])
            changed["vx_mps"][track, later], changed["vy_mps"][track, later] = np.diff(before_m, axis=0).T / scene.dt_s
            changed["valid"][track, later] = True
            for name in names:
                changed[name][track, later.stop :] = 0  # beyond the horizon, the recording does not continue the plan
        return replace(scene, id=scene_id or scene.id, tracks=replace(tracks, **changed))


def joint_plan(plans: Sequence[Plan], *, log_probability: float | None) -> JointPlan:
    """The plans of all agents as one."""
    shared = [replace(plan, log_probability=log_probability) for plan in plans]
    first = {one.name: getattr(shared[0], one.name) for one in fields(Plan)}
    return JointPlan(**first, agents=tuple(shared))
