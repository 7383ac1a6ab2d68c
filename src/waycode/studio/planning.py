"""Plans for the page: views that are encoded once and cached, plans with the candidates of every token, code, draws."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from waycode.model.decoder import PRIOR_LEVELS
from waycode.model.saved import ModelError
from waycode.objectives import BaseObjective, JointCandidates, Verdict, parse_objective
from waycode.objectives.base import Scope
from waycode.objectives.candidates import AnyCandidates
from waycode.planner import JointPlan, JointView, Plan, Planner, PlannerError, View
from waycode.scene import Scene
from waycode.studio.messages import (
    AgentChoice,
    AgentPlanReply,
    CandidateReply,
    CodeReply,
    DecodeRequest,
    DrawReply,
    DrawRequest,
    EncodeRequest,
    PlanReply,
    PlanRequest,
    PolylineReply,
    SearchStepReply,
    TrajectoryReply,
    finite,
    rounded,
)
from waycode.studio.scenes import SceneCatalogue, SceneSource

MAX_CANDIDATES = 4096  # of one search step: beam width times codes of a token
MAX_DEADLINE_S = 10.0  # also of plans without a deadline of their own: no request holds a thread for longer
_MAX_DRAWN = 64  # candidates of a token in a reply
_NUM_CACHED_SCENES, _NUM_CACHED_VIEWS = 32, 64  # about 1 MB each

_HOW_TO_JOIN = "Train one with the recipe small-joint, and give its folder as --joint-model"

_ViewKey = tuple[str, int, str | None, tuple[str, ...]]  # dataset, scene, agent, agents
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ComputedOnce(Generic[_Key, _Value]):
    """A cache of the last used values. Threads that ask for the same missing value wait for one computation."""

    def __init__(self, compute: Callable[[_Key], _Value], *, size: int):
        self._compute, self._size, self._lock = compute, size, threading.Lock()
        self._values: OrderedDict[_Key, Future[_Value]] = OrderedDict()  # the last used at the end

    def __call__(self, key: _Key) -> _Value:
        with self._lock:
            value, is_new = self._values.get(key), key not in self._values
            if value is None:
                value = self._values[key] = Future()
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        if is_new:
            try:
                value.set_result(self._compute(key))
            except BaseException as error:
                with self._lock:
                    self._values.pop(key, None)  # a failure is not cached: the next request tries again
                value.set_exception(error)
        return value.result()

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class JointModel:
    """The model that plans for several agents at once, or the reason why there is none."""

    name: str  # or folder, as a user would give it
    planner: Planner | None
    problem: str | None = None  # a sentence, if there is no planner

    @staticmethod
    def open(name: str) -> "JointModel":
        """Loads the model; one that is missing or not joint becomes a reason, as the studio works without it."""
        try:
            planner = Planner.from_pretrained(name)
        except ModelError as error:
            return JointModel(name, None, f"joint plans need a joint model: {error}. {_HOW_TO_JOIN}")
        if not planner.model.config.joint:
            return JointModel(
                name, None, f"joint plans need a joint model: {name} encodes every agent on its own. {_HOW_TO_JOIN}"
            )
        return JointModel(name, planner)


class PlanDesk:
    """Answers requests for plans. All methods block and may be called from several threads."""

    def __init__(self, planner: Planner, catalogue: SceneCatalogue, *, joint: JointModel):
        self.planner, self.catalogue, self.joint = planner, catalogue, joint
        self.num_plans = 0
        self.scene: ComputedOnce[tuple[str, int], Scene] = ComputedOnce(self._read, size=_NUM_CACHED_SCENES)
        self.views: ComputedOnce[_ViewKey, View] = ComputedOnce(self._encode, size=_NUM_CACHED_VIEWS)

    def view(self, choice: AgentChoice) -> View:
        """The encoded scene, a `JointView` of several agents; encoded at the first request."""
        return self.views((choice.dataset, choice.scene, None if choice.agents else choice.agent, tuple(choice.agents)))

    def planner_of(self, choice: AgentChoice) -> Planner:
        """The joint planner for several agents; raises `PlannerError` if there is none."""
        if not choice.agents:
            return self.planner
        if self.joint.planner is None:
            raise PlannerError(str(self.joint.problem))
        return self.joint.planner

    def search(self, request: PlanRequest, objective: BaseObjective | None = None) -> tuple[View, Plan]:
        """The plan of a request, as the library makes it.

        Args:
            request: the request.
            objective: that of the request, if the caller has parsed it.
        """
        config = self.planner_of(request).model.config
        num_candidates = request.beam_width * request.levels**config.token_dim
        if num_candidates > MAX_CANDIDATES:
            raise PlannerError(
                f"beam width {request.beam_width} with {request.levels} levels has {num_candidates} candidates per "
                f"token, expected at most {MAX_CANDIDATES}: reduce one of them"
            )
        view = self.view(request)
        plan = view.plan(
            objective or parse_objective(request.objective),
            beam_width=request.beam_width,
            depth=request.depth,
            levels=request.levels,
            gate=request.gate,
            refine_steps=request.refine_steps,
            deadline_s=MAX_DEADLINE_S if request.deadline_s is None else request.deadline_s,
        )
        self.num_plans += 1
        return view, plan

    def plan(self, request: PlanRequest) -> PlanReply:
        watched = _Watched(parse_objective(request.objective))
        view, plan = self.search(request, watched)
        steps = _search_steps(watched, plan, levels=request.levels) if request.with_search else []
        return plan_reply(view, plan, levels=request.levels, objective=str(watched), search=steps)

    def decode(self, request: DecodeRequest) -> PlanReply:
        view = self.view(request)
        plan = view.decode(request.tokens, levels=request.levels)
        return plan_reply(view, plan, levels=request.levels)

    def encode(self, request: EncodeRequest) -> CodeReply:
        """The code of the recorded future."""
        view = self.view(request)
        encode = view.encode_recording if isinstance(view, JointView) else view.encode_trajectory
        code = encode(levels=request.levels)
        return CodeReply(tokens=list(code.ids or ()), levels=request.levels)

    def draw(self, request: DrawRequest) -> DrawReply:
        """Different plans of the prior, with the number of draws of each."""
        view = self.view(request)
        if request.how == "most-likely":
            plans = view.most_likely(request.count)
        else:
            plans = view.sample(request.count, seed=request.seed, temperature=request.temperature)
        counts: dict[tuple[int, ...], int] = {}
        for plan in plans:
            counts[plan.tokens or ()] = counts.get(plan.tokens or (), 0) + 1
        different = {plan.tokens or (): plan for plan in reversed(plans)}
        ranked = sorted(counts, key=lambda tokens: (-counts[tokens], -(different[tokens].log_probability or 0.0)))
        return DrawReply(
            plans=[plan_reply(view, different[tokens], levels=PRIOR_LEVELS) for tokens in ranked],
            counts=[counts[tokens] for tokens in ranked],
        )

    def _read(self, key: tuple[str, int]) -> Scene:
        return self.catalogue.source(key[0]).read(key[1])

    def _encode(self, key: _ViewKey) -> View:
        dataset, index, agent, agents = key
        planner = self.planner_of(AgentChoice(dataset=dataset, scene=index, agents=list(agents)))
        scene = self.scene((dataset, index))
        return planner.encode(scene, agents=agents) if agents else planner.encode(scene, agent)


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
class _Watched(BaseObjective):
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
def _search_steps(watched: _Watched, plan: Plan, *, levels: int) -> list[SearchStepReply]:
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


def exported(plan: Plan) -> str:
    """The plan in the library's JSON; of a joint plan a list with the plan of each agent."""
    return f"[{','.join(one.to_json() for one in plan.agents)}]" if isinstance(plan, JointPlan) else plan.to_json()


def python_code(request: PlanRequest, source: SceneSource, *, model: str, view: View) -> str:
    """Code that makes the plan of a request.

    Args:
        request: the request.
        source: of the scene.
        model: name or folder of the model.
        view: the encoded scene of the request.
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
        reading = f"scene = wc.load_scene({str(source.path)!r}, {request.scene})"
        imports = "import waycode as wc\n"
    agents = f"agents={request.agents!r}" if request.agents else repr(view.setting.agent_id)
    lines = [
        imports,
        reading,
        f"planner = wc.Planner.from_pretrained({model!r})",
        f"view = planner.encode(scene, {agents})",
        f"plan = view.plan({', '.join(arguments)})",
        "print(plan.status, plan.message, dict(plan.costs))",
    ]
    return "\n".join(lines) + "\n"
