"""`Studio`: the processes that compute, and who of them answers what. It knows nothing of HTTP."""

import asyncio
import resource
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from waycode import __version__
from waycode.demo import bundled_dataset
from waycode.planner import Planner
from waycode.planner.joint_view import MAX_AGENTS
from waycode.simulation.registry import PLANNERS
from waycode.studio.catalogue import SceneCatalogue, SceneSource
from waycode.studio.drives import DriveDesk
from waycode.studio.errors import BusyError, StudioError
from waycode.studio.library import Library
from waycode.studio.messages import (
    AboutReply,
    AgentChoice,
    DrawRequest,
    LimitsReply,
    ModelReply,
    PlanRequest,
    StatusReply,
)
from waycode.studio.objective_rows import objective_replies
from waycode.studio.palette import PALETTES
from waycode.studio.planning import MAX_CANDIDATES, MAX_DEADLINE_S, NUM_CACHED_VIEWS, JointModel, PlanDesk
from waycode.studio.workers import WorkerProcess

JOINT_MODEL = "sumo-small-joint"
_BUNDLED = ("sumo-crossings", "sumo")
_TICK_S = 0.02  # of the measurement of stalls
_STALLS_KEPT = 3000  # ticks: a minute


@dataclass(frozen=True, kw_only=True)
class StudioLimits:
    """Bounds on what clients can ask for at once."""

    workers: int = 2  # processes that plan; more than the machine has cores only adds waiting
    max_waiting: int = 64  # requests beyond those that are computed
    max_request_bytes: int = 65_536
    max_sockets: int = 64  # open live connections

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise StudioError(f"{name} is {value}, expected at least 1")


class Studio:
    """What the API serves. `start` and `close` belong to the event loop that serves it."""

    def __init__(self, sources: Sequence[SceneSource], *, about: AboutReply, model: str, joint_model: str,
                 limits: StudioLimits | None = None):  # fmt: skip
        """A studio; see `open`.

        Args:
            sources: scenes that can be read; there are no others.
            about: what the page is told of the studio.
            model: name or folder of the model, as a user would give it.
            joint_model: the same, of the model that plans for several agents.
            limits: bounds on requests.
        """
        self.sources, self.about, self.limits = tuple(sources), about, limits or StudioLimits()
        # Scenes have a process of their own: the list must not wait for plans, nor plans for the list.
        self._library = WorkerProcess(partial(Library, self.sources), name="library")
        desk = partial(PlanDesk, self.sources, model=model, joint_model=joint_model)
        self._planners = [WorkerProcess(desk, name=f"planner-{one}") for one in range(self.limits.workers)]
        self._driver = WorkerProcess(partial(DriveDesk, self.sources, model=model), name="driver")
        self._planner_of: OrderedDict[Any, WorkerProcess] = OrderedDict()  # by view; the last used at the end
        self._num_running, self._num_plans = 0, 0
        self._stalls_s: deque[float] = deque(maxlen=_STALLS_KEPT)
        self._watch: asyncio.Task[None] | None = None

    @staticmethod
    def open(
        paths: Sequence[str | Path], *, model: str, joint_model: str = JOINT_MODEL, limits: StudioLimits | None = None
    ) -> "Studio":
        """Opens scenes and models, and raises what is wrong with them.

        Args:
            paths: folders of datasets or of `waycode simulate --out`, and Parquet files of scenes; none: the bundled
                scenes.
            model: name of a bundled model, or folder of a model or of a run.
            joint_model: the same, of a joint model; without it the studio plans for one agent at a time.
            limits: bounds on requests.
        """
        sources = [
            SceneSource.open(bundled_dataset(name).folder, name=name, bundled=name)
            for name in (_BUNDLED if not paths else ())
        ]
        for path in map(Path, paths):
            name = path.resolve().stem or "scenes"
            taken = {source.name for source in sources}
            number = next(count for count in range(1, len(paths) + 2) if _numbered(name, count) not in taken)
            sources.append(SceneSource.open(path, name=_numbered(name, number)))
        # The processes load the models again; here they are only looked at.
        about = _about(sources, _model_reply(model, Planner.from_pretrained(model)), JointModel.open(joint_model))
        return Studio(sources, about=about, model=model, joint_model=joint_model, limits=limits)

    async def start(self) -> None:
        """Starts the processes, all but the one that drives, and begins to watch the event loop."""
        for worker in (self._library, *self._planners):
            worker.start()
        self._watch = asyncio.create_task(self._watch_loop())

    async def close(self) -> None:
        """Ends all processes, also those that compute."""
        if self._watch is not None:
            self._watch.cancel()
        for worker in self._workers:
            worker.close()

    async def ask_library(self, method: str, *arguments: Any) -> bytes:
        """The reply of a method of `Library`."""
        return await self._ask(self._library, method, *arguments)

    async def ask_planner(self, method: str, choice: AgentChoice, *arguments: Any) -> bytes:
        """The reply of a method of `PlanDesk`; `arguments` default to the choice of the agent, which is the request."""
        reply = await self._ask(self._planner(choice), method, *(arguments or (choice,)))
        self._num_plans += 1
        return reply

    async def ask_driver(self, method: str, *arguments: Any) -> bytes:
        """The reply of a method of `DriveDesk`."""
        return await self._ask(self._driver, method, *arguments)

    def status(self) -> StatusReply:
        return StatusReply(
            num_plans=self._num_plans,
            num_waiting=max(0, self._num_running - self.limits.workers),
            largest_stall_ms=round(1e3 * max(self._stalls_s, default=0.0), 2),
            memory_mb=round(_memory_mb([None, *(worker.pid for worker in self._workers if worker.pid)]), 1),
        )

    @property
    def _workers(self) -> list[WorkerProcess]:
        return [self._library, *self._planners, self._driver]

    async def _ask(self, worker: WorkerProcess, method: str, *arguments: Any) -> bytes:
        if self._num_running >= self.limits.workers + self.limits.max_waiting:
            raise BusyError(f"{self.limits.max_waiting} requests wait already: try again in a moment")
        self._num_running += 1
        try:
            return await worker.call(method, *arguments)
        finally:
            self._num_running -= 1

    def _planner(self, choice: AgentChoice) -> WorkerProcess:
        """Always the same process for a view, so that it is encoded once; a new one goes to who has least to do."""
        key = (choice.dataset, choice.scene, choice.agent, tuple(choice.agents))
        if key not in self._planner_of:
            self._planner_of[key] = min(self._planners, key=lambda planner: planner.num_waiting)
        self._planner_of.move_to_end(key)
        while len(self._planner_of) > NUM_CACHED_VIEWS * len(self._planners):
            self._planner_of.popitem(last=False)
        return self._planner_of[key]

    async def _watch_loop(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self._stalls_s.append(max(0.0, time.perf_counter() - began - _TICK_S))


def _about(sources: Sequence[SceneSource], model: ModelReply, joint: JointModel) -> AboutReply:
    return AboutReply(
        version=__version__,
        model=model,
        joint=None if joint.planner is None else _model_reply(joint.name, joint.planner),
        joint_problem=joint.problem,
        datasets=SceneCatalogue(sources).about(),
        objectives=objective_replies(),
        drivers=list(PLANNERS),
        traffic=["replay", "idm", "sumo"],
        limits=LimitsReply(
            max_candidates=MAX_CANDIDATES,
            max_beam_width=_upper_bound(PlanRequest, "beam_width"),
            max_levels=_upper_bound(PlanRequest, "levels"),
            max_refine_steps=_upper_bound(PlanRequest, "refine_steps"),
            max_deadline_s=MAX_DEADLINE_S,
            max_draws=_upper_bound(DrawRequest, "count"),
            max_agents=MAX_AGENTS,
        ),
        palettes=PALETTES,
    )


def _model_reply(name: str, planner: Planner) -> ModelReply:
    config = planner.model.config
    return ModelReply(
        name=Path(name).name,
        num_tokens=config.num_tokens,
        token_dim=config.token_dim,
        has_prior=config.prior,
        horizon_s=config.features.future_steps * config.features.dt_s,
        sigma_max_m=dict(planner.gate.sigma_max_m),
    )


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _upper_bound(message: type[PlanRequest] | type[DrawRequest], name: str) -> int:
    """The largest value that a field accepts."""
    return int(next(rule.le for rule in message.model_fields[name].metadata if hasattr(rule, "le")))


def _memory_mb(processes: Sequence[int | None]) -> float:
    """Resident memory of processes, None is this one; the peak of this one where the system does not tell."""
    pages = 0
    for process in processes:
        try:
            pages += int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1])
        except OSError:
            continue  # ended meanwhile, or not Linux
    return pages * resource.getpagesize() / 1e6 or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
