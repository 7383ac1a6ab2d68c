"""Drives as animations show them: plans, candidates, and the score so far."""

import numpy as np
from jaxtyping import Float

from waycode.driving import Trajectory
from waycode.plotting.animation import ShownDrive
from waycode.plotting.shapes import Polyline
from waycode.scene import Scene
from waycode.simulation.history import History
from waycode.simulation.metrics import score_run
from waycode.simulation.rollout import Rollout

_SCORE_EVERY_S = 1.0  # scoring a drive takes about as long as drawing ten frames of it
_PATH_STRIDE = 4  # steps between drawn points of a plan


def drive_to_show(scene: Scene, rollout: Rollout, *, name: str) -> ShownDrive:
    """A drive for `save_animation`.

    Args:
        scene: the scene that was driven.
        rollout: the drive, with its plans (`SimulationConfig.keep_plans`).
        name: of the driver.
    """
    return ShownDrive(
        scene=rollout.scene,
        name=name,
        first_step=scene.current_step,
        plans_m=[_path(plan) for plan in rollout.plans],
        candidates_m=[[_path(one) for one in candidates] for candidates in rollout.candidates],
        scores=running_scores(rollout.history),
    )


def running_scores(history: History, *, every_s: float = _SCORE_EVERY_S) -> Float[np.ndarray, " T"]:
    """Score of the run up to each step, computed every so many seconds and held in between; the last is the whole's.

    Args:
        history: a run of T steps.
        every_s: time between two computations.
    """
    total = len(history.ego)
    dt_s = float(history.ego.time_s[-1]) / max(total - 1, 1)
    stride = max(1, round(every_s / max(dt_s, 1e-6)))
    scores = np.zeros(total)
    for end in sorted({*range(1 + stride, total, stride), total}):
        scores[max(0, end - stride) :] = score_run(history.until(end)).score
    scores[-1] = score_run(history).score
    return scores


def _path(trajectory: Trajectory) -> Polyline:
    return np.asarray(trajectory.position_m[::_PATH_STRIDE], np.float64)
