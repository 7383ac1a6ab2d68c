"""Summary of a dataset: counts of scenes, road users, manoeuvres and map features."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from waycode.dataset.dataset import Dataset, DatasetInfo
from waycode.dataset.workers import map_tasks
from waycode.scene.kinematics import comfortable, moving
from waycode.scene.manoeuvre import classify
from waycode.scene.types import GraphOrigin, Scene, TrackType

_SCENES_PER_TASK = 32  # for a worker process
_MAP_FEATURES = (
    "lanes", "road_lines", "road_edges", "crosswalks", "stop_signs", "speed_bumps", "driveways", "drivable_areas",
)  # fields of MapFeatures, in the order of the table  # fmt: skip
_TRACK_KINDS = {**{kind.name.lower(): [kind] for kind in TrackType}, "all": list(TrackType)}


@dataclass(frozen=True, kw_only=True)
class RoadUserCounts:
    """Tracks of one type in a whole dataset."""

    total: int
    per_scene: float  # mean number
    moving: int  # more than 3 m from where they are first observed
    to_predict: int  # tracks whose future is of interest
    judged: int  # moving tracks that are observed long enough for the six comfort bounds
    comfortable: int  # judged tracks within the bounds
    judged_to_predict: int  # the same two of the tracks to predict
    comfortable_to_predict: int


@dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """Content of `waycode data info`. Names whose count is 0 are left out."""

    folder: str
    source: str
    num_scenes: int
    num_shards: int
    num_bytes: int  # of all shards
    bytes_per_scene: float  # mean
    settings: Mapping[str, Any]  # of the generator or converter
    settings_sha256: str
    steps: Mapping[int, int]  # number of steps -> scenes that have it
    dt_s: Mapping[float, int]  # seconds between steps -> scenes that have it
    road_users: Mapping[str, RoadUserCounts]  # by TrackType, and "all"
    manoeuvres: Mapping[str, int]  # of all tracks
    predicted_manoeuvres: Mapping[str, int]  # of the tracks to predict
    tags: Mapping[str, int]  # tag -> scenes that have it
    map_features: Mapping[str, int]  # kind -> number in all scenes
    scenes_with: Mapping[str, int]  # ego, route, map, lights, ... -> scenes that have it
    rejected: Mapping[str, int]  # reason -> scenes left out for it


@dataclass
class Tally:
    """Counts over some scenes; tallies of parts of a dataset can be merged."""

    steps: Counter[int] = field(default_factory=Counter)
    dt_s: Counter[float] = field(default_factory=Counter)
    tracks: Counter[tuple[str, str]] = field(default_factory=Counter)  # (name of _TRACK_KINDS, field of RoadUserCounts)
    manoeuvres: Counter[str] = field(default_factory=Counter)
    predicted_manoeuvres: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    map_features: Counter[str] = field(default_factory=Counter)
    scenes_with: Counter[str] = field(default_factory=Counter)

    def merge(self, other: "Tally") -> None:
        """Adds the counts of another tally."""
        for part in fields(self):
            getattr(self, part.name).update(getattr(other, part.name))


def summarise(
    folder: str | Path, *, workers: int = 1, on_scenes: Callable[[int], None] = lambda num_scenes: None
) -> DatasetSummary:
    """Reads every scene of a dataset once and counts.

    Args:
        folder: the dataset.
        workers: number of processes.
        on_scenes: called with the number of scenes read since the last call.
    """
    dataset = Dataset(folder)
    tally = Tally()
    starts = range(0, len(dataset), _SCENES_PER_TASK)
    tasks = [(dataset.folder, start, min(start + _SCENES_PER_TASK, len(dataset))) for start in starts]
    for part, count in map_tasks(_tally_range, tasks, workers=workers):
        tally.merge(part)
        on_scenes(count)
    return _summary(dataset.folder, dataset.info, tally)


def _tally_range(task: tuple[Path, int, int]) -> tuple[Tally, int]:
    folder, start, end = task
    dataset = Dataset(folder)
    return tally_scenes(dataset[index] for index in range(start, end)), end - start


def tally_scenes(scenes: Iterable[Scene]) -> Tally:
    """Counts over scenes of any source."""
    tally = Tally()
    for scene in scenes:
        tally.steps[scene.num_steps] += 1
        tally.dt_s[scene.dt_s] += 1
        tally.tags.update(scene.tags)
        _count_tracks(scene, tally)
        _count_map(scene, tally)
    return tally


def _count_tracks(scene: Scene, tally: Tally) -> None:
    tracks = scene.tracks
    is_comfortable, is_judged = comfortable(tracks, dt_s=scene.dt_s)
    predicted = np.zeros(len(tracks), np.bool_)
    predicted[tracks.to_predict] = True
    counted = {
        "total": np.ones(len(tracks), np.bool_),
        "moving": moving(tracks),
        "to_predict": predicted,
        "judged": is_judged,
        "comfortable": is_comfortable & is_judged,
        "judged_to_predict": is_judged & predicted,
        "comfortable_to_predict": is_comfortable & is_judged & predicted,
    }
    for name, kinds in _TRACK_KINDS.items():
        of_kind = np.isin(tracks.types, kinds)
        for what, which in counted.items():
            tally.tracks[name, what] += int((which & of_kind).sum())
    names = [str(manoeuvre) for manoeuvre in classify(scene)]
    tally.manoeuvres.update(names)
    tally.predicted_manoeuvres.update(names[track] for track in tracks.to_predict)


def _count_map(scene: Scene, tally: Tally) -> None:
    features, lanes = scene.map, scene.map.lanes
    for name in _MAP_FEATURES:
        tally.map_features[name.replace("_", " ")] += len(getattr(features, name))
    tally.map_features["signalled lanes"] += len(scene.signals)
    present = {
        "a map": len(lanes) > 0,
        "an ego": scene.tracks.ego_index is not None,
        "a route": scene.route is not None,
        "traffic lights": len(scene.signals) > 0,
        "stop signs": len(features.stop_signs) > 0,
        "lane widths": bool(lanes.width_known.any()),
        "speed limits": bool(lanes.speed_limit_known.any()),
        "a recorded lane graph": lanes.graph_origin == GraphOrigin.RECORDED,
        "an inferred lane graph": lanes.graph_origin == GraphOrigin.INFERRED,
        "a world to rebuild": scene.rebuild is not None,
    }
    tally.scenes_with.update({name: int(is_there) for name, is_there in present.items()})


def _summary(folder: Path, info: DatasetInfo, tally: Tally) -> DatasetSummary:
    num_bytes = sum(shard.num_bytes for shard in info.shards)
    return DatasetSummary(
        folder=str(folder),
        source=info.source,
        num_scenes=info.num_scenes,
        num_shards=info.num_shards,
        num_bytes=num_bytes,
        bytes_per_scene=num_bytes / max(info.num_scenes, 1),
        settings=info.settings,
        settings_sha256=info.settings_sha256,
        steps=dict(sorted(tally.steps.items())),
        dt_s=dict(sorted(tally.dt_s.items())),
        road_users=_road_users(tally, info.num_scenes),
        manoeuvres=_ranked(tally.manoeuvres),
        predicted_manoeuvres=_ranked(tally.predicted_manoeuvres),
        tags=_ranked(tally.tags),
        map_features={name: count for name, count in tally.map_features.items() if count},
        scenes_with={name: count for name, count in tally.scenes_with.items() if count},
        rejected=info.rejected,
    )


def _road_users(tally: Tally, num_scenes: int) -> dict[str, RoadUserCounts]:
    names = [part.name for part in fields(RoadUserCounts) if part.name != "per_scene"]
    by_kind = {kind: {name: tally.tracks[kind, name] for name in names} for kind in _TRACK_KINDS}
    return {
        kind: RoadUserCounts(per_scene=counts["total"] / max(num_scenes, 1), **counts)
        for kind, counts in by_kind.items()
        if counts["total"]
    }


def _ranked(counts: Counter[str]) -> dict[str, int]:
    """The most frequent first, ties by name: the order does not depend on the number of workers."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
