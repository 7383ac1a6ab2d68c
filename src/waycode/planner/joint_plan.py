"""`JointPlan`: the plans of several agents of a scene, from one code."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from waycode.planner.plan import Plan, PlannerError
from waycode.scene import Scene


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

    def in_scene(self, scene: Scene) -> Scene:
        """The scene with the futures of all agents; those that were not planned for keep their recording.

        Args:
            scene: the scene that was planned for.
        """
        for plan in self.agents:
            scene = plan.in_scene(scene)
        return scene


def joint_plan(plans: Sequence[Plan], *, log_probability: float | None) -> JointPlan:
    """The plans of all agents as one."""
    shared = [replace(plan, log_probability=log_probability) for plan in plans]
    first = {one.name: getattr(shared[0], one.name) for one in fields(Plan)}
    return JointPlan(**first, agents=tuple(shared))
