"""A finished drive as a file: the driven scene, with its score over time, to be played again.

The file is an ordinary Parquet file of one scene, which `waycode.load_scene` reads; the rest is in its metadata.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from waycode.dataset.dataset import load_scene
from waycode.dataset.files import parse_json, replace_file
from waycode.dataset.shards import unreadable
from waycode.dataset.storage import write_shard
from waycode.scene import Scene
from waycode.simulation.history import History
from waycode.simulation.metrics import METRICS, Evidence, score_run
from waycode.simulation.rollout import Rollout

DRIVES_FOLDER = "drives"  # beside the scores of `waycode simulate --out`
_KEY = "drive"  # in the file's metadata
_SCORE_EVERY_S = 0.5  # of the curve of scores
_PLAN_STRIDE = 4  # steps between the kept points of a plan: they are drawn, not driven
_EGO_SERIES = (
    "time_s", "rear_axle_m", "heading_rad", "velocity_mps", "acceleration_mps2", "yaw_rate_radps",
    "yaw_acceleration_radps2",
)  # fields of EgoHistory with a value per step  # fmt: skip

_Numbers = list[float]
_Points = list[list[float]]  # pairs of x and y in metres, in the scene frame


@dataclass(frozen=True, kw_only=True)
class Drive:
    """A drive of n steps, as plain values that JSON can hold; step 0 is the start of the drive."""

    scene: Scene  # as it was driven; its current step is the start of the drive
    planner: str  # name of the driver
    traffic: str  # name of the traffic
    score: float  # in [0, 1]
    failure: str | None  # why the driver failed, in one sentence; such a drive scores 0
    metrics: dict[str, float]  # in [0, 1], by name
    reasons: tuple[Evidence, ...]  # what cost score, in order of time
    score_time_s: _Numbers
    scores: _Numbers  # the score of the drive up to each of these times
    speed_mps: _Numbers  # n + 1 values; so have the next two
    expert_speed_mps: _Numbers  # of the recorded ego
    expert_m: _Points  # centre of the recorded ego
    planning_s: _Numbers  # duration of each call of the driver
    plans_m: list[_Points]  # the trajectory that was followed from each step on; empty if not kept

    @staticmethod
    def of(scene: Scene, rollout: Rollout, *, planner: str, traffic: str) -> "Drive":
        """Scores a rollout, as a whole and up to every half second.

        Args:
            scene: that was driven.
            rollout: the drive; its plans are kept if it has them.
            planner: name of the driver.
            traffic: name of the traffic.
        """
        history = rollout.history
        scored, ends = score_run(history), _ends(history)
        failed = scored.failure is not None
        return Drive(
            scene=replace(rollout.scene, current_step=scene.current_step),
            planner=planner,
            traffic=traffic,
            score=round(scored.score, 4),
            failure=scored.failure,
            metrics={name: 0.0 if failed else round(float(one.score), 4) for name, one in scored.metrics.items()},
            reasons=tuple(replace(one, time_s=round(float(one.time_s), 2)) for one in scored.reasons()),
            score_time_s=[round(float(history.ego.time_s[end - 1]), 3) for end in ends],
            scores=[round(score_run(history.until(end)).score, 4) for end in ends],
            speed_mps=_rounded(history.ego.speed_mps),
            expert_speed_mps=_rounded(history.expert.speed_mps),
            expert_m=_rounded(history.expert.centre_m),
            planning_s=_rounded(rollout.planning_s, 5),
            plans_m=[_rounded(plan.position_m[::_PLAN_STRIDE]) for plan in rollout.plans],
        )


def drive_path(folder: Path, index: int) -> Path:
    """The file of the drive through the scene with this index."""
    return folder / f"scene-{index:06d}.parquet"


def drive_paths(folder: Path) -> list[Path]:
    """The files of all drives of a folder, in the order of their scenes."""
    return sorted(folder.glob("scene-*.parquet"))


def save_drive(drive: Drive, path: Path) -> None:
    """Writes the drive atomically, with its folder."""
    kept = {name: value for name, value in vars(drive).items() if name != "scene"}  # which has columns of its own
    kept["reasons"] = [asdict(one) for one in drive.reasons]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda unfinished: write_shard(unfinished, [drive.scene], metadata={_KEY: kept}))


def load_drive(path: Path) -> Drive:
    """Reads a drive; raises `DatasetError` if the file is damaged or has no drive."""
    scene, kept = load_scene(path), drive_notes(path)
    with unreadable(path, hint="expected a drive of `waycode simulate --out`"):
        drive = Drive(**{**kept, "scene": scene, "reasons": tuple(Evidence(**one) for one in kept["reasons"])})
        _check(drive)
    order = [metric.name for metric in METRICS]  # JSON has sorted them
    metrics = dict(
        sorted(drive.metrics.items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order))
    )
    return replace(drive, metrics=metrics)


def drive_notes(path: Path) -> dict[str, Any]:
    """What the file says of the drive beside its scene, without reading the scene; arguments as for `load_drive`."""
    with unreadable(path, hint="expected a drive of `waycode simulate --out`"):
        notes = parse_json((pq.read_schema(path).metadata or {}).get(b"waycode", b"{}"))
        return dict(notes[_KEY])


def _check(drive: Drive) -> None:
    """Raises `ValueError` for lists that do not belong together: files come from anywhere."""
    words = [
        drive.planner,
        drive.traffic,
        drive.failure or "",
        *drive.metrics,
        *(one.description for one in drive.reasons),
    ]
    words += [one.track_id or "" for one in drive.reasons]
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a name or a sentence of the drive is not text")
    steps = drive.scene.num_steps - drive.scene.current_step
    if not len(drive.speed_mps) == len(drive.expert_speed_mps) == len(drive.expert_m) == steps:
        raise ValueError(f"it has {len(drive.speed_mps)} speeds, expected {steps} as the driven scene has steps")
    if len(drive.scores) != len(drive.score_time_s):
        raise ValueError(f"it has {len(drive.scores)} scores at {len(drive.score_time_s)} times")
    numbers = [*drive.metrics.values(), drive.score, *drive.scores, *drive.score_time_s, *drive.planning_s,
               *drive.speed_mps, *drive.expert_speed_mps, *(one.time_s for one in drive.reasons)]  # fmt: skip
    if not np.isfinite(np.array(numbers, np.float64)).all():
        raise ValueError("a number of the drive is not finite")
    for points in (drive.expert_m, *drive.plans_m):
        if not np.isfinite(np.array(points, np.float64).reshape(-1, 2)).all():
            raise ValueError("a point of the drive is not finite")


def _rounded(values: np.ndarray, digits: int = 2) -> Any:
    return np.round(np.asarray(values, np.float64), digits).tolist()


def _ends(history: History) -> list[int]:
    """Numbers of steps at which the score is computed; the last is the whole drive."""
    total, dt_s = len(history.ego), float(np.diff(history.ego.time_s[:2]).sum()) or 0.1
    stride = max(1, round(_SCORE_EVERY_S / dt_s))
    return sorted({*range(1 + stride, total, stride), total})
