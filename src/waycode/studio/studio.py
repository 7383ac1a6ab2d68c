"""`Studio`: the scenes, the model, and the threads that compute. It knows nothing of HTTP."""

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from waycode import __version__
from waycode.demo import bundled_dataset
from waycode.planner import Planner
from waycode.planner.joint_view import MAX_AGENTS
from waycode.scene import WaycodeError
from waycode.simulation.registry import PLANNERS
from waycode.studio.drives import DriveDesk
from waycode.studio.messages import (
    AboutReply,
    DrawRequest,
    LimitsReply,
    ModelReply,
    PlanRequest,
    StatusReply,
)
from waycode.studio.objective_rows import objective_replies
from waycode.studio.palette import PALETTES
from waycode.studio.planning import MAX_CANDIDATES, MAX_DEADLINE_S, JointModel, PlanDesk
from waycode.studio.scenes import SceneCatalogue, SceneSource

JOINT_MODEL = "sumo-small-joint"  # bundled as soon as it is trained
_BUNDLED = ("sumo-crossings", "sumo")
_TICK_S = 0.02  # of the measurement of stalls
_STALLS_KEPT = 3000  # ticks: a minute
_READ_PAUSE_S = 0.02  # between scenes that are read in the background: requests come first

_Result = TypeVar("_Result")


class StudioError(WaycodeError):
    """Datasets or a model that the studio cannot open."""


class StudioBusyError(WaycodeError):
    """More requests wait than the studio accepts."""


@dataclass(frozen=True, kw_only=True)
class StudioLimits:
    """Bounds on what clients can ask for at once."""

    threads: int = 2  # that compute; more than the machine has cores only adds waiting
    max_waiting: int = 64  # requests beyond those that are computed
    max_request_bytes: int = 65_536
    max_sockets: int = 64  # open live connections

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise StudioError(f"{name} is {value}, expected at least 1")


class Studio:
    """What the API serves. `start` and `close` belong to the event loop that serves it."""

    def __init__(
        self,
        planner: Planner,
        sources: Sequence[SceneSource],
        *,
        model: str,
        joint: JointModel,
        limits: StudioLimits | None = None,
    ):
        """A studio.

        Args:
            planner: the loaded model.
            sources: scenes that can be read; there are no others.
            model: name or folder of the model, as a user would give it.
            joint: the model that plans for several agents.
            limits: bounds on requests.
        """
        self.limits, self.catalogue = limits or StudioLimits(), SceneCatalogue(sources)
        self.plans = PlanDesk(planner, self.catalogue, joint=joint)
        self.drives = DriveDesk(self.plans.scene, model=model)
        self.model = model
        self._pool = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="studio")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="studio-reader")
        self._num_running, self._is_closed = 0, False
        self._stalls_s: deque[float] = deque(maxlen=_STALLS_KEPT)
        self._watch: asyncio.Task[None] | None = None

    @staticmethod
    def open(
        paths: Sequence[str | Path], *, model: str, joint_model: str = JOINT_MODEL, limits: StudioLimits | None = None
    ) -> "Studio":
        """Opens datasets and a model.

        Args:
            paths: folders of datasets and Parquet files of scenes; none: the bundled scenes.
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
        joint = JointModel.open(joint_model)
        return Studio(Planner.from_pretrained(model), sources, model=model, joint=joint, limits=limits)

    async def start(self) -> None:
        """Starts reading manoeuvres in the background and watching the event loop."""
        self._watch = asyncio.create_task(self._watch_loop())
        asyncio.get_running_loop().run_in_executor(self._reader, self._read_scenes)

    async def close(self) -> None:
        """Ends all threads."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        for pool in (self._reader, self._pool):
            pool.shutdown(wait=True, cancel_futures=True)
        self.drives.close()

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Computes in the pool; raises `StudioBusyError` if too many requests wait."""
        if self._num_running >= self.limits.threads + self.limits.max_waiting:
            raise StudioBusyError(f"{self.limits.max_waiting} requests wait already: try again in a moment")
        self._num_running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._num_running -= 1

    def about(self) -> AboutReply:
        joint = self.plans.joint
        return AboutReply(
            version=__version__,
            model=_model_reply(self.model, self.plans.planner),
            joint=None if joint.planner is None else _model_reply(joint.name, joint.planner),
            joint_problem=joint.problem,
            datasets=self.catalogue.about(),
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

    def status(self) -> StatusReply:
        return StatusReply(
            num_plans=self.plans.num_plans,
            num_cached_views=len(self.plans.views),
            num_waiting=max(0, self._num_running - self.limits.threads),
            largest_stall_ms=round(1e3 * max(self._stalls_s, default=0.0), 2),
            memory_mb=round(_memory_mb(), 1),
        )

    async def _watch_loop(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self._stalls_s.append(max(0.0, time.perf_counter() - began - _TICK_S))

    def _read_scenes(self) -> None:
        while not self._is_closed and self.catalogue.read_next():
            time.sleep(_READ_PAUSE_S)


def _model_reply(name: str, planner: Planner) -> ModelReply:
    config = planner.model.config
    return ModelReply(
        name=Path(name).name,
        num_tokens=config.num_tokens,
        token_dim=config.token_dim,
        has_prior=config.prior,
        horizon_s=config.features.future_steps * config.features.dt_s,
        sigma_max_m=dict(planner.sigma_max_m),
    )


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _upper_bound(message: type[PlanRequest] | type[DrawRequest], name: str) -> int:
    """The largest value that a field accepts."""
    return int(next(rule.le for rule in message.model_fields[name].metadata if hasattr(rule, "le")))


def _memory_mb() -> float:
    """Resident memory of this process; its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
