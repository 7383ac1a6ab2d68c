"""Closed-loop drives for playback, one at a time in the background, with their score over time."""

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from waycode.driving import Driver, Observation, Trajectory
from waycode.scene import WaycodeError
from waycode.scene.manoeuvre import classify
from waycode.simulation.drive_file import Drive
from waycode.simulation.registry import DriverSpec, build_traffic
from waycode.simulation.rollout import SimulationConfig, simulate
from waycode.studio.catalogue import SceneCatalogue, SceneSource
from waycode.studio.drive_messages import DriveEvent, DriveReply, DriveRequest, DriveResult
from waycode.studio.errors import BusyError, NotFoundError
from waycode.studio.messages import PolylineReply, Problem
from waycode.studio.scenes import track_replies

_NUM_KEPT, _MAX_WAITING = 32, 8


class _Stopped(BaseException):
    """The studio closes. Not an `Exception`, which the simulation would count as a failure of the driver."""


@dataclass(frozen=True)
class _Watched:
    """A driver that reports each of its plans."""

    driver: Driver[Any]
    on_plan: Callable[[], None]

    def reset(self, observation: Observation) -> Any:
        return self.driver.reset(observation)

    def plan(self, state: Any, observation: Observation) -> tuple[Trajectory, Any]:
        self.on_plan()
        return self.driver.plan(state, observation)


class DriveDesk:
    """Drives scenes, one after the other. Runs are deterministic: an equal request gets the drive that is there."""

    def __init__(self, sources: Sequence[SceneSource], *, model: str):
        """Opens the desk.

        Args:
            sources: scenes that can be driven.
            model: name or folder of the model, for drivers that have one.
        """
        self._catalogue, self._model = SceneCatalogue(sources), model
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="studio-drive")
        self._lock, self._is_closed = threading.Lock(), False
        self._drives: OrderedDict[str, DriveReply] = OrderedDict()  # the oldest first

    def start(self, request: DriveRequest) -> DriveReply:
        """Queues a drive and returns its state."""
        self._catalogue.source(request.dataset).read(request.scene)  # raises for a scene that is not there
        with self._lock:
            for known in self._drives.values():
                if known.request == request and known.state != "failed":
                    return known
            if sum(drive.state in ("waiting", "running") for drive in self._drives.values()) >= _MAX_WAITING:
                raise BusyError(f"{_MAX_WAITING} drives wait already: try again when one is done")
            drive = DriveReply(id=uuid.uuid4().hex, request=request, state="waiting", steps_done=0, num_steps=None)
            self._drives[drive.id] = drive
            finished = [name for name, one in self._drives.items() if one.state in ("done", "failed")]
            for name in finished[: max(0, len(self._drives) - _NUM_KEPT)]:
                del self._drives[name]
        self._pool.submit(self._run, drive.id)
        return drive

    def get(self, name: str) -> DriveReply:
        """The state of a drive, with the result when it is done."""
        with self._lock:
            if name not in self._drives:
                raise NotFoundError(f"there is no drive {name!r:.60}: the last {_NUM_KEPT} are kept, start it again")
            return self._drives[name]

    def close(self) -> None:
        """Stops the running drive at its next step and forgets those that wait."""
        self._is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _update(self, name: str, **changes: Any) -> None:
        with self._lock:
            self._drives[name] = self._drives[name].model_copy(update=changes)

    def _run(self, name: str) -> None:
        request = self.get(name).request
        try:
            scene = self._catalogue.source(request.dataset).read(request.scene)
            num_steps = min(round(request.horizon_s / scene.dt_s), scene.num_steps - 1 - scene.current_step)
            self._update(name, state="running", num_steps=num_steps)

            def on_plan() -> None:
                if self._is_closed:
                    raise _Stopped
                self._update(name, steps_done=self.get(name).steps_done + 1)

            driver = DriverSpec(name=request.driver, model=self._model).build(scene)
            rollout = simulate(
                scene,
                _Watched(driver, on_plan),
                traffic=build_traffic(request.traffic),
                config=SimulationConfig(horizon_s=request.horizon_s, keep_plans=True),
                clock=time.thread_time,  # processor time: requests that run beside it do not count
            )
            drive = Drive.of(scene, rollout, planner=request.driver, traffic=request.traffic)
            self._update(name, state="done", result=drive_result(drive))
        except WaycodeError as error:
            self._update(name, state="failed", problem=Problem(kind="failed", message=str(error)))
        except _Stopped:
            return
        except Exception as error:  # the page must not wait for ever
            message = f"the drive failed with {type(error).__name__}: {error}"
            self._update(name, state="failed", problem=Problem(kind="failed", message=message))


def drive_result(drive: Drive) -> DriveResult:
    """A drive as the page plays it."""
    scene = drive.scene
    return DriveResult(
        driver=drive.planner,
        traffic=drive.traffic,
        score=drive.score,
        failure=drive.failure,
        metrics=drive.metrics,
        reasons=[
            DriveEvent(time_s=one.time_s, description=one.description, track=one.track_id) for one in drive.reasons
        ],
        score_time_s=drive.score_time_s,
        scores=drive.scores,
        speed_mps=drive.speed_mps,
        expert_speed_mps=drive.expert_speed_mps,
        expert=_polyline(drive.expert_m),
        planning_ms=[round(1e3 * duration_s, 2) for duration_s in drive.planning_s],
        plans=[_polyline(plan_m) for plan_m in drive.plans_m],
        tracks=track_replies(scene.tracks, manoeuvres=[str(found) for found in classify(scene)]),
        num_steps=scene.num_steps,
    )


def _polyline(points_m: Sequence[Sequence[float]]) -> PolylineReply:
    return PolylineReply(x_m=[x_m for x_m, _ in points_m], y_m=[y_m for _, y_m in points_m])
