"""What a source of scenes is, how it is converted to a dataset, and the checks that every source passes."""

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from waycode.dataset.dataset import DatasetInfo, ShardContents, write_dataset
from waycode.dataset.storage import same_scene, scene_from_row, scenes_to_table
from waycode.scene import InvalidScene, Scene, WaycodeError

SCENES_PER_SHARD = 32  # a shard is opened to read any one of its scenes: 2 ms for 32


class SourceError(WaycodeError):
    """Raw data that cannot be read; names the file and the place in it."""


@runtime_checkable
class Source(Protocol):
    """Raw data that can be turned into scenes, one reference at a time.

    A reference is whatever the source needs to find one scene again: a path, a path and a byte offset, a token. It can
    be pickled, so that scenes can be read in other processes; so can the source itself.
    """

    @property
    def name(self) -> str:
        """Short name, kept in every scene and dataset."""
        ...

    def references(self) -> Sequence[Any]:
        """All scenes, always in the same order; cheap, as nothing but an index is read."""
        ...

    def read(self, reference: Any) -> Scene:
        """Reads one scene, or raises `SourceError`."""
        ...


@dataclass(frozen=True)
class SourceReport:
    """What `check_source` found."""

    name: str
    num_references: int
    num_checked: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.faults


def check_source(source: Source, *, limit: int | None = None) -> SourceReport:
    """Reads scenes (the first `limit`, or all) and names everything that would trouble a user of them.

    Checked: references are stable, distinct and can be pickled; scenes are valid, carry the source's name, have ids of
    their own, read the same twice, and survive a round trip through the Parquet form.
    """
    given: Any = source.references()
    references = list(given)
    faults = [] if isinstance(given, Sequence) else [f"references() gives a {type(given).__name__}, expected a list"]
    faults += [*_reference_faults(source, references), *_pickle_faults("the source", source)]
    chosen = references[:limit]
    if not faults:
        source = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own bytes: this is how workers get it)
    ids: Counter[str] = Counter()
    for reference in chosen:
        try:
            scene = source.read(reference)
            faults += _scene_faults(source, reference, scene)
        except Exception as error:  # whatever a user's source raises is a fault to name
            faults.append(f"{reference}: read() raises {type(error).__name__} ({error})")
        else:
            ids[getattr(scene, "id", "")] += 1
    faults += [f"{count} scenes have the id {scene_id!r}" for scene_id, count in ids.items() if count > 1]
    return SourceReport(source.name, len(references), len(chosen), tuple(faults))


def _reference_faults(source: Source, references: list[Any]) -> list[str]:
    if not references:
        return ["references() is empty"]
    faults = [fault for reference in references for fault in _pickle_faults(f"the reference {reference}", reference)]
    if faults:
        return faults
    pickled = [pickle.dumps(reference) for reference in references]
    if len(set(pickled)) != len(pickled):
        faults.append("references() names a scene twice")
    if [pickle.dumps(reference) for reference in source.references()] != pickled:
        faults.append("references() gives another list when called again")
    return faults


def _pickle_faults(name: str, value: Any) -> list[str]:
    try:
        pickle.dumps(value)
    except Exception as error:  # pickle raises errors of many kinds
        return [f"{name} cannot be pickled, so other processes cannot read it ({error})"]
    return []


def _scene_faults(source: Source, reference: Any, scene: Any) -> list[str]:
    if not isinstance(scene, Scene):
        return [f"{reference}: read() gives a {type(scene).__name__}, expected a Scene"]
    try:
        scene.validate()
    except InvalidScene as error:
        return [f"{reference}: {error}"]
    faults = []
    if scene.source != source.name:
        faults.append(f"{reference}: scene.source is {scene.source!r}, expected {source.name!r}")
    if not same_scene(scene, source.read(reference)):
        faults.append(f"{reference}: reading twice gives different scenes")
    if not same_scene(scene, scene_from_row(scenes_to_table([scene]))):
        faults.append(f"{reference}: the scene changes on its way through Parquet")
    return faults


@dataclass(frozen=True)
class _ConversionTask:
    source: Source
    references: tuple[Any, ...]
    skip_bad: bool


def convert(
    source: Source,
    out: str | Path,
    *,
    settings: dict[str, Any],
    workers: int = 1,
    skip_bad: bool = False,
    limit: int | None = None,
    on_shard: Callable[[int], None] = lambda num_scenes: None,
) -> DatasetInfo:
    """Writes all scenes of a source to a dataset; with `skip_bad`, what cannot be read is counted and left out."""
    references = source.references()[:limit]
    if not references:
        raise SourceError(f"{source.name}: nothing to convert was found")
    chunks = [references[start : start + SCENES_PER_SHARD] for start in range(0, len(references), SCENES_PER_SHARD)]
    return write_dataset(
        out,
        [_ConversionTask(source, tuple(chunk), skip_bad) for chunk in chunks],
        make=_convert_chunk,
        source=source.name,
        settings={**settings, "skip_bad": skip_bad, "limit": limit, "num_references": len(references)},
        workers=workers,
        on_shard=on_shard,
    )


def _convert_chunk(task: _ConversionTask) -> ShardContents:
    scenes = []
    rejected: Counter[str] = Counter()
    for reference in task.references:
        try:
            scene = task.source.read(reference)
            scene.validate()
        except (SourceError, InvalidScene) as error:
            if not task.skip_bad:
                raise
            rejected[type(error).__name__] += 1
            continue
        scenes.append(scene)
    return ShardContents(scenes, rejected)
