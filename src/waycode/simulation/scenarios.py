"""Selection of the scenes of a dataset to drive, and of those fit for scoring a driver.

A scene is fit if the ego is a car and the recorded ego is at most 5 % above the speed limit: a driver cannot match the
progress of a speeding expert without losing score for speeding. Scenes left out are counted by reason.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.dataset.seeds import episodes_in
from waycode.scene import Scene, TrackType
from waycode.scene.geometry import project

_LONGEST_CAR_M = 6.5  # longer vehicles are buses and lorries
_TOLERATED_SPEEDING = 1.05  # share of the limit
_GOLDEN_RATIO = (1 + 5**0.5) / 2
_ON_LANE_M = 2.0  # the limit of a lane counts if its centreline is closer than this


@dataclass(frozen=True, kw_only=True)
class ScenarioSelection:
    """The scenes to drive."""

    indices: tuple[int, ...]  # in the dataset
    left_out: Mapping[str, int]  # number of scenes left out, by reason


def choose_scenarios(
    dataset: Dataset, limit: int | None = None, *, only_fit: bool = False, one_per_world: bool = False
) -> ScenarioSelection:
    """Selects scenes evenly spread over a dataset.

    Args:
        dataset: the scenes.
        limit: how many; None for all.
        only_fit: leave out scenes that are not fit, see `reason_unfit`.
        one_per_world: of each episode (`episodes_in`) take one scene alone, with `only_fit` the first that is fit; the
            limit is then the number of scenes that are driven, and worlds without a fit scene are counted.
    """
    if one_per_world:
        return _choose_worlds(dataset, limit, only_fit=only_fit)
    total = len(dataset)
    count = total if limit is None else min(limit, total)
    spread = [int(index) for index in np.arange(count) * total // max(count, 1)]
    if not only_fit:
        return ScenarioSelection(indices=tuple(spread), left_out={})
    reasons = {index: reason_unfit(dataset[index]) for index in spread}
    left_out = Counter(reason for reason in reasons.values() if reason is not None)
    fit = tuple(index for index in spread if reasons[index] is None)
    return ScenarioSelection(indices=fit, left_out=dict(left_out))


def _choose_worlds(dataset: Dataset, limit: int | None, *, only_fit: bool) -> ScenarioSelection:
    """One scene of each world, from evenly spread worlds; worlds without a fit scene are replaced by others.

    Not every n-th world: SUMO's come in turns of ten families, and every fourth is of five of them only.
    """
    worlds: dict[str, list[int]] = {}
    for index, episode in enumerate(episodes_in(dataset)):
        worlds.setdefault(episode, []).append(index)
    names = list(worlds)
    count = len(names) if limit is None else min(limit, len(names))
    order = np.argsort(np.arange(len(names)) * _GOLDEN_RATIO % 1.0)  # the first n are evenly spread for every n
    chosen: list[int] = []
    left_out: Counter[str] = Counter()
    for place in order.tolist():
        if len(chosen) == count:
            break
        reasons = [(index, reason_unfit(dataset[index]) if only_fit else None) for index in worlds[names[place]]]
        fit = [index for index, reason in reasons if reason is None]
        if fit:
            chosen.append(fit[0])
        else:
            left_out[f"no fit scene in the world: {reasons[0][1]}"] += 1
    return ScenarioSelection(indices=tuple(sorted(chosen)), left_out=dict(left_out))


def reason_unfit(scene: Scene) -> str | None:
    """Why a driver should not be scored by this scene; None if the scene is fit."""
    tracks, ego = scene.tracks, scene.tracks.ego_index
    if ego is None:
        return "no ego"
    if tracks.types[ego] != TrackType.VEHICLE or tracks.length_m[ego] > _LONGEST_CAR_M:
        return "the ego is no car"
    return "the recorded ego speeds" if _speeds(scene, ego) else None


def _speeds(scene: Scene, ego: int) -> bool:
    """Whether the recorded ego is ever too fast for the highest limit of the lanes around it."""
    lanes = scene.map.lanes
    steps = np.flatnonzero(scene.tracks.valid[ego, scene.current_step :]) + scene.current_step
    position = scene.tracks.position_m[ego, steps].astype(np.float64)
    allowed = np.zeros(len(steps))  # 0 where no lane with a known limit is near
    for lane in np.flatnonzero(lanes.speed_limit_known):
        _, offset, _ = project(position, lanes.centrelines[int(lane)].astype(np.float64))
        allowed = np.where(np.abs(offset) < _ON_LANE_M, np.maximum(allowed, lanes.speed_limit_mps[lane]), allowed)
    return bool(((allowed > 0) & (scene.tracks.speed_mps[ego, steps] > _TOLERATED_SPEEDING * allowed)).any())
