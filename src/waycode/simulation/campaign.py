"""Drives a planner through many scenes, in one process or in several; what is kept of a run is small."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from waycode.dataset.dataset import Dataset
from waycode.dataset.workers import run_tasks
from waycode.scene import Scene
from waycode.simulation.metrics import METRICS, ScenarioScore, score_run
from waycode.simulation.registry import DriverSpec, TrafficName, build_traffic
from waycode.simulation.rollout import Rollout, SimulationConfig, simulate


@dataclass(frozen=True, kw_only=True)
class ScenarioResult:
    """How one scenario came out. Metrics are in [0, 1]; a failed one has 0 everywhere and says why."""

    index: int  # in the dataset
    scene_id: str
    tags: tuple[str, ...]
    score: float
    metrics: dict[str, float]
    reasons: tuple[str, ...]  # what cost score, in order of time
    failure: str | None
    planning_s: Float[np.ndarray, " n"]  # processor time of each call of the planner


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Who drives where."""

    folder: Path
    indices: tuple[int, ...]
    planner: DriverSpec
    traffic: TrafficName = "replay"
    horizon_s: float = 15.0


@dataclass(frozen=True, kw_only=True)
class _Task:
    campaign: Campaign
    index: int


def drive_campaign(campaign: Campaign, *, workers: int = 1) -> Iterator[ScenarioResult]:
    """Results as they come, so not in the order of the scenes; each process computes with one thread."""
    tasks = {str(index): _Task(campaign=campaign, index=index) for index in campaign.indices}
    for _, result in run_tasks(tasks, _drive, workers=workers):
        yield result


def drive_scenario(scene: Scene, campaign: Campaign) -> Rollout:
    """One run; the clock counts this process's own time, whatever else the machine does."""
    traffic = build_traffic(campaign.traffic)
    config = SimulationConfig(horizon_s=campaign.horizon_s)
    return simulate(scene, campaign.planner.build(scene), traffic=traffic, config=config, clock=time.process_time)


def at_its_worst(scene: Scene, campaign: Campaign) -> tuple[Scene, int, str]:
    """One more run as a scene, the step at which it lost most, and what that was; for pictures."""
    rollout = drive_scenario(scene, campaign)
    cause = score_run(rollout.history).costliest()
    what = rollout.history.failure or ("nothing was lost" if cause is None else cause.description)
    after_s = rollout.history.ego.time_s[-1] if cause is None else cause.time_s
    driven = replace(rollout.scene, current_step=scene.current_step)
    return driven, scene.current_step + round(after_s / scene.dt_s), what


def _drive(task: _Task) -> ScenarioResult:
    torch.set_num_threads(1)
    scene: Scene | None = None
    try:
        scene = Dataset(task.campaign.folder)[task.index]
        rollout = drive_scenario(scene, task.campaign)
        scored = score_run(rollout.history)
    except Exception as error:  # one scene that cannot be read, driven or judged must not end all others
        return failed_result(scene, task.index, f"{type(error).__name__}: {error}")
    return result_of(scored, rollout, index=task.index, tags=tuple(scene.tags))


def result_of(scored: ScenarioScore, rollout: Rollout, *, index: int, tags: Sequence[str]) -> ScenarioResult:
    """What is kept of a run."""
    failed = scored.failure is not None
    return ScenarioResult(
        index=index,
        scene_id=scored.scene_id,
        tags=tuple(tags),
        score=scored.score,
        metrics={name: 0.0 if failed else float(result.score) for name, result in scored.metrics.items()},
        reasons=tuple(f"{evidence.time_s:.1f} s: {evidence.description}" for evidence in scored.reasons()),
        failure=scored.failure,
        planning_s=rollout.planning_s,
    )


def failed_result(scene: Scene | None, index: int, failure: str) -> ScenarioResult:
    """A scenario that could not be driven at all, or not even be read."""
    return ScenarioResult(
        index=index,
        scene_id=f"scene {index}" if scene is None else scene.id,
        tags=() if scene is None else tuple(scene.tags),
        score=0.0,
        metrics={metric.name: 0.0 for metric in METRICS},
        reasons=(),
        failure=failure,
        planning_s=np.zeros(0),
    )
