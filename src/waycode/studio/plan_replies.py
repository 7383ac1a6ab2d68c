"""Plans as the page draws them: trajectories, the candidates of every token, and the Python code that makes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from waycode.model.decoder import PRIOR_LEVELS
from waycode.objectives import BaseObjective, JointCandidates, Verdict
from waycode.objectives.base import Scope
from waycode.objectives.candidates import AnyCandidates
from waycode.planner import JointPlan, Plan, View
from waycode.studio.catalogue import SceneSource
from waycode.studio.messages import (
    AgentPlanReply,
    CandidateReply,
    PlanReply,
    PlanRequest,
    PolylineReply,
    SearchStepReply,
    TrajectoryReply,
    finite,
    rounded,
)

_MAX_DRAWN = 64  # candidates of a token in a reply


def plan_reply(
    view: View,
    plan: Plan,
    *,
    levels: int,
    objective: str | None = None,
    search: list[SearchStepReply] | None = None,
) -> PlanReply:
    """A plan as the page draws it.

    Args:
        view: the view that made it.
        plan: the plan.
        levels: of its codebook.
        objective: as text, if it was searched for.
        search: the candidates of every token.
    """
    others = plan.agents[1:] if isinstance(plan, JointPlan) else ()
    return PlanReply(
        agent=plan.agent_id,
        objective=objective,
        trajectory=_trajectory_reply(view, plan),
        others=[AgentPlanReply(agent=one.agent_id, trajectory=_trajectory_reply(view, one)) for one in others],
        tokens=None if plan.tokens is None else list(plan.tokens),
        latents=[rounded(row, 4) for row in plan.latents],
        levels=None if plan.tokens is None else levels,
        log_probability=None if plan.log_probability is None else finite(plan.log_probability),
        costs={name: finite(cost) for name, cost in plan.costs.items()},
        cost_levels=[finite(cost) for cost in plan.levels],
        status=plan.status.value,
        satisfied=plan.satisfied,
        message=plan.message,
        num_decodes=plan.num_decodes,
        final_std_m=round(plan.final_std_m, 3),
        timings_ms={name: round(1e3 * duration_s, 2) for name, duration_s in plan.timings_s.items()},
        search=search or [],
    )


def _trajectory_reply(view: View, plan: Plan) -> TrajectoryReply:
    position_m = plan.position_in(view.scene)
    return TrajectoryReply(
        x_m=rounded(position_m[:, 0]),
        y_m=rounded(position_m[:, 1]),
        heading_rad=rounded(plan.heading_rad, 3),
        speed_mps=rounded(plan.speed_mps),
        std_along_m=rounded(plan.std_m[:, 0]),
        std_across_m=rounded(plan.std_m[:, 1]),
    )


@dataclass(frozen=True)
class WatchedObjective(BaseObjective):
    """An objective that keeps the candidates that the search shows it: decoding them again would double the time."""

    objective: BaseObjective
    seen: dict[int, AnyCandidates] = field(default_factory=dict)  # by number of tokens

    scope: ClassVar[Scope] = "parts"  # that of the objective, which checks it itself

    def __call__(self, candidates: AnyCandidates) -> Any:
        self.seen.setdefault(candidates.num_tokens, candidates)  # refinement shows single ones later
        return self.objective.levels(candidates)

    def met(self, candidates: AnyCandidates) -> list[Verdict]:
        return self.objective.met(candidates)

    @property
    def name(self) -> str:
        return self.objective.name

    @property
    def level_names(self) -> tuple[str, ...]:
        return self.objective.level_names

    def explain(self, candidates: AnyCandidates) -> dict[str, Tensor]:
        return self.objective.explain(candidates)

    def differentiable_parts(self) -> list[BaseObjective]:
        return self.objective.differentiable_parts()

    def __str__(self) -> str:
        return str(self.objective)


@torch.no_grad()
def search_steps(watched: WatchedObjective, plan: Plan, *, levels: int) -> list[SearchStepReply]:
    """The candidates of every token, best first."""
    rows = [] if plan.trace is None else plan.trace.to_pylist()
    steps = []
    for depth, decoded in watched.seen.items():
        found = [row for row in rows if row["depth"] == depth]  # in the order of the candidates
        shown = sorted(range(len(found)), key=lambda place: found[place]["rank"])[:_MAX_DRAWN]
        chosen = decoded.select(torch.tensor(shown, device=decoded.final_std_m.device))
        is_rated = chosen.prior is not None and levels == PRIOR_LEVELS
        likelihood = chosen.log_probability.tolist() if is_rated else [None] * len(shown)
        # Every second step: lines between samples 0.2 s apart are smooth on the screen.
        agents = chosen.agents if isinstance(chosen, JointCandidates) else (chosen,)
        position_m = [one.position_m[:, 1::2].cpu().double().numpy() for one in agents]
        spread_m = chosen.final_std_m.tolist()
        steps.append(
            SearchStepReply(
                depth=depth,
                num_candidates=len(found),
                candidates=[
                    _candidate_reply(
                        found[place],
                        [one[rank] for one in position_m],
                        spread_m=spread_m[rank],
                        log_probability=likelihood[rank],
                    )
                    for rank, place in enumerate(shown)
                ],
            )
        )
    return steps


def _candidate_reply(
    row: dict[str, Any], position_m: Sequence[np.ndarray], *, spread_m: float, log_probability: float | None
) -> CandidateReply:
    first, *others = [PolylineReply(x_m=rounded(one[:, 0]), y_m=rounded(one[:, 1])) for one in position_m]
    return CandidateReply(
        tokens=row["tokens"],
        costs=[finite(cost) for cost in row["costs"]],
        is_usable=row["usable"],
        is_rejected=row["rejected"],
        is_kept=row["kept"],
        rank=row["rank"],
        final_std_m=finite(spread_m),
        log_probability=None if log_probability is None else finite(log_probability),
        x_m=first.x_m,
        y_m=first.y_m,
        others=others,
    )


def python_code(request: PlanRequest, source: SceneSource, *, model: str, agent: str) -> str:
    """Code that makes the plan of a request.

    Args:
        request: the request.
        source: of the scene.
        model: name or folder of the model.
        agent: id of the agent that is planned for; not used if the plan is joint.
    """
    defaults = PlanRequest(dataset="-", scene=0, objective="-")
    names = ("beam_width", "depth", "levels", "gate", "refine_steps", "deadline_s")
    given = {name: getattr(request, name) for name in names}
    arguments = [repr(request.objective)]
    arguments += [f"{name}={value!r}" for name, value in given.items() if value != getattr(defaults, name)]
    if source.bundled is not None:
        reading = f"scene = bundled_dataset({source.bundled!r})[{request.scene}]"
        imports = "import waycode as wc\nfrom waycode.demo import bundled_dataset\n"
    else:
        path, index = source.place(request.scene)
        reading = f"scene = wc.load_scene({str(path)!r}, {index})"
        imports = "import waycode as wc\n"
    agents = f"agents={request.agents!r}" if request.agents else repr(agent)
    lines = [
        imports,
        reading,
        f"planner = wc.Planner.from_pretrained({model!r})",
        f"view = planner.encode(scene, {agents})",
        f"plan = view.plan({', '.join(arguments)})",
        "print(plan.status, plan.message, dict(plan.costs))",
    ]
    return "\n".join(lines) + "\n"
