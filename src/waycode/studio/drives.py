"""Closed-loop drives for playback: one at a time in the background, with their score over time."""

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from waycode.driving import Driver, Observation, Trajectory
from waycode.scene import Scene, WaycodeError
from waycode.scene.manoeuvre import classify
from waycode.simulation.history import History
from waycode.simulation.metrics import ScenarioScore, score_run
from waycode.simulation.registry import DriverSpec, build_traffic
from waycode.simulation.rollout import Rollout, SimulationConfig, simulate
from waycode.studio.messages import DriveEvent, DriveReply, DriveRequest, DriveResult, PolylineReply, Problem, rounded
from waycode.studio.scenes import SceneNotFoundError, track_replies

_SCORE_EVERY_S = 0.5  # of the curve of scores
_PLAN_STRIDE = 4  # steps between drawn points of a plan
_NUM_KEPT, _MAX_WAITING = 32, 8


class DriveQueueError(WaycodeError):
    """Too many drives wait."""


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

    def __init__(self, read_scene: Callable[[tuple[str, int]], Scene], *, model: str):
        self._read_scene, self._model = read_scene, model
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="studio-drive")
        self._lock, self._is_closed = threading.Lock(), False
        self._drives: OrderedDict[str, DriveReply] = OrderedDict()  # the oldest first

    def start(self, request: DriveRequest) -> DriveReply:
        """Queues a drive and returns its state."""
        self._read_scene((request.dataset, request.scene))  # raises for a scene that is not there
        with self._lock:
            for known in self._drives.values():
                if known.request == request and known.state != "failed":
                    return known
            if sum(drive.state in ("waiting", "running") for drive in self._drives.values()) >= _MAX_WAITING:
                raise DriveQueueError(f"{_MAX_WAITING} drives wait already: try again when one is done")
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
                raise SceneNotFoundError(
                    f"there is no drive {name!r:.60}: the last {_NUM_KEPT} are kept, start it again"
                )
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
            scene = self._read_scene((request.dataset, request.scene))
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
            self._update(name, state="done", result=drive_result(scene, rollout))
        except WaycodeError as error:
            self._update(name, state="failed", problem=Problem(kind="failed", message=str(error)))
        except _Stopped:
            return
        except Exception as error:  # the page must not wait for ever
            message = f"the drive failed with {type(error).__name__}: {error}"
            self._update(name, state="failed", problem=Problem(kind="failed", message=message))


def drive_result(scene: Scene, rollout: Rollout) -> DriveResult:
    """A drive as the page plays it.

    Args:
        scene: that was driven.
        rollout: the drive.
    """
    history = rollout.history
    scored, times_s, scores = score_run(history), [], []
    for end in _ends(history):
        times_s.append(round(float(history.ego.time_s[end - 1]), 3))
        scores.append(round(score_run(history.until(end)).score, 4))
    failed = scored.failure is not None
    return DriveResult(
        score=round(scored.score, 4),
        failure=scored.failure,
        metrics={name: 0.0 if failed else round(float(result.score), 4) for name, result in scored.metrics.items()},
        reasons=_events(scored),
        score_time_s=times_s,
        scores=scores,
        speed_mps=rounded(history.ego.speed_mps),
        expert_speed_mps=rounded(history.expert.speed_mps),
        planning_ms=rounded(1e3 * rollout.planning_s),
        plans=[
            PolylineReply(
                x_m=rounded(plan.position_m[::_PLAN_STRIDE, 0]), y_m=rounded(plan.position_m[::_PLAN_STRIDE, 1])
            )
            for plan in rollout.plans
        ],
        tracks=track_replies(rollout.scene.tracks, manoeuvres=_manoeuvres(scene, rollout.scene)),
        num_steps=rollout.scene.tracks.num_steps,
    )


def _manoeuvres(scene: Scene, driven: Scene) -> list[str]:
    """Those of the recording; a road user that the traffic added has none."""
    recorded = dict(zip(scene.tracks.ids, map(str, classify(scene)), strict=True))
    return [recorded.get(name, "unobserved") for name in driven.tracks.ids]


def _events(scored: ScenarioScore) -> list[DriveEvent]:
    return [
        DriveEvent(time_s=round(evidence.time_s, 2), description=evidence.description, track=evidence.track_id)
        for evidence in scored.reasons()
    ]


def _ends(history: History) -> list[int]:
    """Numbers of steps at which the score is computed; the last is the whole drive."""
    total, dt_s = len(history.ego), float(np.diff(history.ego.time_s[:2]).sum()) or 0.1
    stride = max(1, round(_SCORE_EVERY_S / dt_s))
    return sorted({*range(1 + stride, total, stride), total})
