"""Drives many scenes, in one process or in several, and keeps a small result of each."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from waycode.dataset.dataset import Dataset
from waycode.dataset.seeds import episode_of
from waycode.dataset.workers import run_tasks
from waycode.scene import Scene
from waycode.simulation.metrics import METRICS, score_run
from waycode.simulation.metrics.freezing import find_freezes
from waycode.simulation.registry import DriverSpec, TrafficName, build_traffic
from waycode.simulation.rollout import Rollout, SimulationConfig, simulate


@dataclass(frozen=True, kw_only=True)
class ScenarioResult:
    """The scores of one scenario; a failed one has 0 everywhere."""

    index: int  # in the dataset
    scene_id: str
    episode: str  # scenarios of one are not independent; see `episode_of`
    tags: tuple[str, ...]
    score: float  # in [0, 1]
    metrics: dict[str, float]  # in [0, 1], by name; NaN for those that could not be judged
    reasons: tuple[str, ...]  # causes of lost score, in order of time
    failure: str | None  # why the scenario could not be read, driven or scored
    frozen_s: float  # time that the ego stood without a reason, in spells of 3 s or more; see `find_freezes`
    planning_s: Float[np.ndarray, " n"]  # processor time of each call of the driver


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A driver and the scenes that it drives."""

    folder: Path  # of the dataset
    indices: tuple[int, ...]  # of its scenes
    planner: DriverSpec  # the driver
    traffic: TrafficName = "replay"  # how the other road users move
    horizon_s: float = 15.0  # of each run


def drive_campaign(campaign: Campaign, *, workers: int = 1) -> Iterator[ScenarioResult]:
    """Yields results in order of completion, not of the scenes; each of the worker processes uses one thread."""
    tasks = {str(index): index for index in campaign.indices}
    for _, result in run_tasks(tasks, partial(_drive, campaign), workers=workers):
        yield result


def drive_scenario(scene: Scene, campaign: Campaign, *, keep_plans: bool = False) -> Rollout:
    """Drives one scene. Planning is timed in processor time, which other processes do not affect.

    Args:
        scene: the scene.
        campaign: gives the driver, the traffic and the duration.
        keep_plans: as in `SimulationConfig`, for animations.
    """
    traffic = build_traffic(campaign.traffic)
    config = SimulationConfig(horizon_s=campaign.horizon_s, keep_plans=keep_plans)
    return simulate(scene, campaign.planner.build(scene), traffic=traffic, config=config, clock=time.process_time)


def find_costliest_step(scene: Scene, rollout: Rollout) -> tuple[Scene, int, str]:
    """For a picture of a drive through `scene`: the drive as a scene, the step that cost most score, and the reason."""
    cause = score_run(rollout.history).costliest()
    reason = rollout.history.failure or ("nothing was lost" if cause is None else cause.description)
    after_s = rollout.history.ego.time_s[-1] if cause is None else cause.time_s
    driven = replace(rollout.scene, current_step=scene.current_step)
    return driven, scene.current_step + round(after_s / scene.dt_s), reason


def _drive(campaign: Campaign, index: int) -> ScenarioResult:
    torch.set_num_threads(1)
    scene: Scene | None = None
    try:
        scene = Dataset(campaign.folder)[index]
        rollout = drive_scenario(scene, campaign)
        scored = score_run(rollout.history)
        freezes = find_freezes(rollout.scene, first_step=scene.current_step)
    except Exception as error:  # one faulty scene must not end the campaign
        return failed_result(scene, index, f"{type(error).__name__}: {error}")
    failed = scored.failure is not None
    causes = [(evidence.time_s, evidence.description) for evidence in scored.reasons()]
    causes += [(freeze.start_s, f"stands for {freeze.duration_s:.1f} s with nobody in its way") for freeze in freezes]
    return ScenarioResult(
        index=index,
        scene_id=scored.scene_id,
        episode=episode_of(scene),
        tags=tuple(scene.tags),
        score=scored.score,
        metrics={
            name: 0.0 if failed else float(result.score) if result.applicable else float("nan")
            for name, result in scored.metrics.items()
        },
        reasons=tuple(f"{time_s:.1f} s: {cause}" for time_s, cause in sorted(causes)),
        failure=scored.failure,
        frozen_s=float(sum(freeze.duration_s for freeze in freezes)),
        planning_s=rollout.planning_s,
    )


def failed_result(scene: Scene | None, index: int, failure: str) -> ScenarioResult:
    """The result of a scenario that could not be driven, or not even read (then `scene` is None)."""
    return ScenarioResult(
        index=index,
        scene_id=f"scene {index}" if scene is None else scene.id,
        episode=f"scene {index}" if scene is None else episode_of(scene),
        tags=() if scene is None else tuple(scene.tags),
        score=0.0,
        metrics={metric.name: 0.0 for metric in METRICS},
        reasons=(),
        failure=failure,
        frozen_s=0.0,
        planning_s=np.zeros(0),
    )
