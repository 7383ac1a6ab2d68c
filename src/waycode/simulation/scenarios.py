"""Which scenes of a dataset are driven, and which of them are fit for judging a planner by.

A scene is fit if the ego is a car and if the log itself keeps to the speed limit, with 5 % to spare: nobody can make
the progress of a speeding expert without losing score for speeding. What is left out is counted by reason.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.scene import Scene, TrackType
from waycode.scene.geometry import project

LONGEST_CAR_M = 6.5
SPEEDING_SHARE = 1.05
ON_LANE_M = 2.0


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Indices of the scenes to drive, and how many were left out for which reason."""

    indices: tuple[int, ...]
    left_out: Mapping[str, int]


def choose_scenarios(dataset: Dataset, limit: int | None = None, *, only_fit: bool = False) -> Chosen:
    """This many scenes, evenly spread over the dataset (all if None); with `only_fit`, those of them that are fit."""
    total = len(dataset)
    count = total if limit is None else min(limit, total)
    spread = [int(index) for index in np.arange(count) * total // max(count, 1)]
    if not only_fit:
        return Chosen(indices=tuple(spread), left_out={})
    reasons = {index: unfit_because(dataset[index]) for index in spread}
    left_out = Counter(reason for reason in reasons.values() if reason is not None)
    return Chosen(indices=tuple(index for index in spread if reasons[index] is None), left_out=dict(left_out))


def unfit_because(scene: Scene) -> str | None:
    """Why a planner should not be judged by this scene; None if it may be."""
    tracks, ego = scene.tracks, scene.tracks.ego_index
    if ego is None:
        return "no ego"
    if tracks.types[ego] != TrackType.VEHICLE or tracks.length_m[ego] > LONGEST_CAR_M:
        return "the ego is no car"
    return "the recorded ego speeds" if _speeds(scene, ego) else None


def _speeds(scene: Scene, ego: int) -> bool:
    """Whether the log is ever faster than the fastest lane under it allows."""
    lanes = scene.map.lanes
    steps = np.flatnonzero(scene.tracks.valid[ego, scene.current_step :]) + scene.current_step
    position = scene.tracks.position_m[ego, steps].astype(np.float64)
    allowed = np.zeros(len(steps))  # of lanes with a known limit that are near; 0: there is none
    for lane in np.flatnonzero(lanes.speed_limit_known):
        _, offset, _ = project(position, lanes.centrelines[int(lane)].astype(np.float64))
        allowed = np.where(np.abs(offset) < ON_LANE_M, np.maximum(allowed, lanes.speed_limit_mps[lane]), allowed)
    return bool(((allowed > 0) & (scene.tracks.speed_mps[ego, steps] > SPEEDING_SHARE * allowed)).any())
