"""The planner's desk: views that are encoded once and cached, plans, codes, draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from waycode.model.decoder import PRIOR_LEVELS
from waycode.model.saved import ModelError
from waycode.objectives import BaseObjective, parse_objective
from waycode.planner import JointPlan, JointView, Plan, Planner, PlannerError, View
from waycode.scene import Scene, WaycodeError
from waycode.studio.caching import ComputedOnce
from waycode.studio.catalogue import SceneCatalogue, SceneSource
from waycode.studio.errors import kind_of
from waycode.studio.messages import (
    AgentChoice,
    CodeReply,
    DecodeRequest,
    DrawReply,
    DrawRequest,
    EncodeRequest,
    LiveReply,
    LiveRequest,
    PlanReply,
    PlanRequest,
    Problem,
    PythonReply,
)
from waycode.studio.plan_replies import WatchedObjective, plan_reply, python_code, search_steps

MAX_CANDIDATES = 4096  # of one search step: beam width times codes of a token
MAX_DEADLINE_S = 10.0  # also of plans without a deadline of their own: no request holds a thread for longer
_NUM_CACHED_SCENES, NUM_CACHED_VIEWS = 32, 64  # of each process; about 1 MB each

_HOW_TO_JOIN = "Train one with the recipe small-joint, and give its folder as --joint-model"

_ViewKey = tuple[str, int, str | None, tuple[str, ...]]  # dataset, scene, agent, agents


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
    """Answers requests for plans."""

    def __init__(self, sources: Sequence[SceneSource], *, model: str, joint_model: str):
        """Loads the models.

        Args:
            sources: scenes that can be planned in.
            model: name or folder of the model.
            joint_model: the same, of the model that plans for several agents.
        """
        self.planner, self.joint = Planner.from_pretrained(model), JointModel.open(joint_model)
        self._catalogue, self._model = SceneCatalogue(sources), model
        self.scene: ComputedOnce[tuple[str, int], Scene] = ComputedOnce(self._read, size=_NUM_CACHED_SCENES)
        self.views: ComputedOnce[_ViewKey, View] = ComputedOnce(self._encode, size=NUM_CACHED_VIEWS)

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
        return view, plan

    def plan(self, request: PlanRequest) -> PlanReply:
        watched = WatchedObjective(parse_objective(request.objective))
        view, plan = self.search(request, watched)
        steps = search_steps(watched, plan, levels=request.levels) if request.with_search else []
        return plan_reply(view, plan, levels=request.levels, objective=str(watched), search=steps)

    def live(self, request: LiveRequest, skipped: int) -> LiveReply:
        """The plan of a message of the live socket, or why there is none."""
        try:
            return LiveReply(sequence=request.sequence, plan=self.plan(request.plan), skipped=skipped)
        except WaycodeError as error:
            problem = Problem(kind=kind_of(error), message=str(error))
            return LiveReply(sequence=request.sequence, problem=problem, skipped=skipped)

    def export(self, request: PlanRequest) -> str:
        """The plan in the library's JSON; of a joint plan a list with the plan of each agent."""
        plan = self.search(request)[1]
        return f"[{','.join(one.to_json() for one in plan.agents)}]" if isinstance(plan, JointPlan) else plan.to_json()

    def python(self, request: PlanRequest) -> PythonReply:
        """Python code that makes the same plan."""
        model = self.joint.name if request.agents else self._model
        source = self._catalogue.source(request.dataset)
        return PythonReply(code=python_code(request, source, model=model, agent=self.view(request).setting.agent_id))

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
        return self._catalogue.source(key[0]).read(key[1])

    def _encode(self, key: _ViewKey) -> View:
        dataset, index, agent, agents = key
        planner = self.planner_of(AgentChoice(dataset=dataset, scene=index, agents=list(agents)))
        scene = self.scene((dataset, index))
        return planner.encode(scene, agents=agents) if agents else planner.encode(scene, agent)
