"""Prepared examples: the features of every scene of a dataset, extracted once and kept in a cache on disk.

Reading a scene, extracting its features and finding alternative futures takes ten times as long as a training step
needs for it, and a run visits every scene many times. The cache has an entry per dataset and feature settings; an entry
is a folder of parts, each with the arrays of some scenes, and is read through the memory map of the system.

Axes as in `waycode.features.types`; G alternatives of a scene.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from safetensors.numpy import save

from waycode.dataset.dataset import Dataset
from waycode.dataset.files import only_writer, remove_unfinished, replace_file
from waycode.dataset.shards import unreadable
from waycode.dataset.workers import run_tasks
from waycode.features import Example, FeatureConfig, extract
from waycode.features.extract import MapSegments
from waycode.scene import Scene, TrackType
from waycode.scene.manoeuvre import Manoeuvre, classify
from waycode.training.alternatives import alternative_future

CACHE_VARIABLE = "WAYCODE_CACHE"
_VERSION = 1  # of the content: part of the key of an entry
_SCENES_PER_PART = 100
_ALTERNATIVES = 2  # tries per car; most cars have none
_MIN_OBSERVED_STEPS = 30  # of a modelled agent's future
_OFF_MAP_M = 15.0  # from the nearest lane
_MANOEUVRES = tuple(Manoeuvre)
_HEADER_BYTES = 8  # a safetensors file begins with the length of its JSON header


@dataclass(frozen=True, kw_only=True)
class PreparedScene:
    """The example of a scene with all agents that can be modelled, and alternative futures of some of them."""

    example: Example
    manoeuvre: Int64[np.ndarray, " A"]  # index into `Manoeuvre`
    alternative_m: Float32[np.ndarray, "G T 2"]  # in the agent's frame
    alternative_agent: Int64[np.ndarray, " G"]  # index among the A agents


class PreparedExamples:
    """The prepared scenes of a dataset, by their index.

    Args:
        folder: an entry of the cache, as `prepare_examples` returns it.
        num_scenes: of the dataset.
    """

    def __init__(self, folder: Path, num_scenes: int):
        self.folder, self.num_scenes = folder, num_scenes
        self._parts: dict[int, dict[str, np.ndarray]] = {}

    def __len__(self) -> int:
        return self.num_scenes

    def __getitem__(self, scene: int) -> PreparedScene:
        part, place = divmod(scene, _SCENES_PER_PART)
        arrays = self._part(part)

        def taken(name: str, axis: str) -> np.ndarray:
            starts = arrays[f"{axis}_starts"]
            return arrays[name][starts[place] : starts[place + 1]]

        segments = {one.name: taken(f"segments.{one.name}", "segments") for one in fields(MapSegments)}
        tracks = {name: taken(name, "tracks") for name in ("history", "size_m", "track_kind", "track_pose")}
        agents = {name: taken(name, "agents") for name in ("agents", "future_m", "future_valid")}
        count = len(agents["agents"])
        reachability = taken("reachability", "reachability").reshape(count, len(segments["kind"]))
        return PreparedScene(
            example=Example(
                segments=MapSegments(**segments),
                reachability=reachability.astype(np.float32) / 2,
                importance=np.ones(count, np.float32),
                **tracks,
                **agents,
            ),
            manoeuvre=taken("manoeuvre", "agents"),
            alternative_m=taken("alternative_m", "alternatives"),
            alternative_agent=taken("alternative_agent", "alternatives"),
        )

    def kinds(self, scene: int) -> list[tuple[int, Manoeuvre]]:
        """Type and manoeuvre of each agent of a scene."""
        prepared = self[scene]
        types = prepared.example.track_kind[prepared.example.agents]
        return [(int(kind), _MANOEUVRES[index]) for kind, index in zip(types, prepared.manoeuvre, strict=True)]

    def __getstate__(self) -> dict[str, object]:  # worker processes open the files themselves
        return {"folder": self.folder, "num_scenes": self.num_scenes, "_parts": {}}

    def _part(self, index: int) -> dict[str, np.ndarray]:
        if index not in self._parts:
            path = _part_path(self.folder, index)
            with unreadable(path, hint="remove it, and it is made again"):
                self._parts[index] = _open_arrays(path)
        return self._parts[index]


@dataclass(frozen=True)
class _Part:
    """The task that prepares some scenes."""

    dataset: Path
    scenes: range
    features: FeatureConfig
    out: Path


def prepare_examples(
    dataset: Dataset,
    features: FeatureConfig,
    *,
    cache: Path | None = None,
    bound_gb: float = 20.0,
    workers: int = 1,
    on_scenes: Callable[[int], None] = lambda count: None,
) -> PreparedExamples:
    """The prepared scenes of a dataset, from the cache as far as they are there.

    Args:
        dataset: the scenes.
        features: settings of the features.
        cache: folder of the cache; by default `default_cache()`.
        bound_gb: entries of other datasets that were used least recently are removed until the cache is this small.
        workers: number of processes.
        on_scenes: called with the number of scenes of each part.
    """
    cache = default_cache() if cache is None else cache
    folder = cache / _key(dataset, features)
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(dataset), _SCENES_PER_PART)
    tasks = {
        str(index): _Part(
            dataset.folder,
            range(start, min(start + _SCENES_PER_PART, len(dataset))),
            features,
            _part_path(folder, index),
        )
        for index, start in enumerate(starts)
    }
    missing = {name: part for name, part in tasks.items() if not part.out.exists()}
    if missing:  # a complete entry needs no lock: any number of runs may read it
        with only_writer(folder):
            remove_unfinished(folder)
            # Looked up again: another run may have made them before this one got the lock.
            missing = {name: part for name, part in missing.items() if not part.out.exists()}
            for name, part in tasks.items():
                if name not in missing:
                    on_scenes(len(part.scenes))
            for _, count in run_tasks(missing, _prepare_part, workers=workers if len(missing) > 1 else 1):
                on_scenes(count)
    else:
        on_scenes(len(dataset))
    with suppress(OSError):  # the cache may be readable only
        (folder / "used").touch()
    _evict(cache, keep=folder, bound_bytes=int(bound_gb * 1e9))
    return PreparedExamples(folder, len(dataset))


def default_cache() -> Path:
    """The folder of the cache: the variable WAYCODE_CACHE, or waycode's folder in the user's cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "waycode" / "examples"


def modelled_agents(scene: Scene) -> list[int]:
    """Tracks of a known type that are observed at the current step and for long enough after it."""
    future = scene.tracks.valid[:, scene.current_step + 1 :]
    now = scene.tracks.valid[:, scene.current_step]
    known = scene.tracks.types != TrackType.OTHER
    enough = max(1, min(_MIN_OBSERVED_STEPS, future.shape[1]))  # a scene may be shorter
    return [int(track) for track in np.flatnonzero(now & known & (future.sum(axis=1) >= enough))]


def leaves_map(scene: Scene, agents: list[int]) -> Bool[np.ndarray, " agents"]:
    """Which agents are vehicles whose last observed position is off the map.

    Maps are cropped around the ego. Training on futures beyond the crop would teach a model not to trust the map.
    """
    if len(scene.map.lanes) == 0:
        return np.zeros(len(agents), np.bool_)
    chosen, tracks = np.asarray(agents, np.int64), scene.tracks
    last = tracks.num_steps - 1 - tracks.valid[chosen, ::-1].argmax(axis=1)
    last_m = tracks.position_m[chosen, last].astype(np.float64)
    away = scene.map.lanes.graph.distance_to_nearest_m(last_m) > _OFF_MAP_M
    return away & (tracks.types[chosen] == TrackType.VEHICLE)


def prepare_scene(scene: Scene, features: FeatureConfig, rng: np.random.Generator) -> PreparedScene:
    """Extracts the features of all agents that can be modelled, and searches alternative futures of cars.

    Args:
        scene: with the recorded future.
        features: settings of the features.
        rng: draws the alternatives.
    """
    seen = modelled_agents(scene)
    agents = [agent for agent, away in zip(seen, leaves_map(scene, seen), strict=True) if not away]
    manoeuvres = classify(scene)
    found: list[tuple[int, np.ndarray]] = []
    for row, agent in enumerate(agents):
        for _ in range(_ALTERNATIVES):
            alternative = alternative_future(scene, agent, rng, steps=features.future_steps)
            if alternative is None:
                break
            found.append((row, alternative))
    empty = np.zeros((0, features.future_steps, 2), np.float32)
    return PreparedScene(
        example=extract(scene, agents, config=features),
        manoeuvre=np.array([_MANOEUVRES.index(manoeuvres[agent]) for agent in agents], np.int64),
        alternative_m=np.stack([alternative for _, alternative in found]) if found else empty,
        alternative_agent=np.array([row for row, _ in found], np.int64),
    )


def _prepare_part(part: _Part) -> int:
    """Prepares and writes the scenes of a part; returns their number."""
    dataset = Dataset(part.dataset)
    prepared = [prepare_scene(dataset[i], part.features, np.random.default_rng([_VERSION, i])) for i in part.scenes]
    examples = [scene.example for scene in prepared]
    arrays = {
        **{f"segments.{one.name}": [getattr(e.segments, one.name) for e in examples] for one in fields(MapSegments)},
        **{name: [getattr(e, name) for e in examples] for name in ("history", "size_m", "track_kind", "track_pose")},
        **{name: [getattr(e, name) for e in examples] for name in ("agents", "future_m", "future_valid")},
        "reachability": [(2 * e.reachability).astype(np.uint8).flatten() for e in examples],
        "manoeuvre": [scene.manoeuvre for scene in prepared],
        "alternative_m": [scene.alternative_m for scene in prepared],
        "alternative_agent": [scene.alternative_agent for scene in prepared],
    }
    axes = {
        "segments": "segments.kind", "tracks": "track_kind", "agents": "agents", "reachability": "reachability",
        "alternatives": "alternative_agent",
    }  # fmt: skip
    starts = {
        f"{axis}_starts": np.cumsum([0] + [len(array) for array in arrays[name]], dtype=np.int64)
        for axis, name in axes.items()
    }
    joined = {name: np.ascontiguousarray(np.concatenate(parts)) for name, parts in arrays.items()}
    # `save_file` would raise errors of its own where the disk is full.
    replace_file(part.out, lambda path: path.write_bytes(save(joined | starts)))
    return len(part.scenes)


def _open_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file as views of its memory map: only what is used is read."""
    content = np.memmap(path, np.uint8, mode="r")
    length = int(content[:_HEADER_BYTES].view(np.uint64)[0])
    header: Mapping[str, Mapping[str, object]] = json.loads(content[_HEADER_BYTES : _HEADER_BYTES + length].tobytes())
    kinds = {"F32": np.float32, "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_}
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (_HEADER_BYTES + length + offset for offset in entry["data_offsets"])  # type: ignore[attr-defined]
        raw = content[begin:end]
        arrays[name] = raw.view(kinds[str(entry["dtype"])]).reshape(entry["shape"])  # type: ignore[call-overload]
    return arrays


def _part_path(folder: Path, index: int) -> Path:
    return folder / f"part-{index:05d}.safetensors"


def _key(dataset: Dataset, features: FeatureConfig) -> str:
    """The name of an entry: it changes with the scenes, the features and the code that makes them."""
    content = {
        "version": _VERSION, "alternatives": _ALTERNATIVES, "features": asdict(features),
        "dataset": dataset.info.settings_sha256, "shards": asdict(dataset.info).get("shards"),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _evict(cache: Path, *, keep: Path, bound_bytes: int) -> None:
    """Removes the entries that were used least recently until the cache is within its bound."""
    entries = sorted(cache.glob("*/used"), key=lambda used: used.stat().st_mtime)
    size = {used.parent: sum(file.stat().st_size for file in used.parent.iterdir()) for used in entries}
    for folder in list(size):
        if sum(size.values()) <= bound_bytes:
            return
        if folder != keep:
            shutil.rmtree(folder, ignore_errors=True)
            del size[folder]
