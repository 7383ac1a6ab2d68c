"""The `Source` protocol, its conversion to a dataset, and the checks that every source passes."""

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from waycode.dataset.dataset import DatasetInfo, ShardContents, write_dataset
from waycode.dataset.files import describe
from waycode.dataset.storage import same_scene, scene_from_row, scenes_to_table
from waycode.scene import InvalidScene, Scene, WaycodeError

Reference = TypeVar("Reference")
_SCENES_PER_SHARD = 32  # reading one scene opens its whole shard, which takes 2 ms with 32 scenes


class SourceError(WaycodeError):
    """Raw data cannot be read. The message names the file and the place in it."""


@runtime_checkable
class Source(Protocol):
    """Raw data that converts to scenes, one reference at a time.

    A reference identifies one scene: a path, a path and a byte offset, a token. References and the source itself must
    be picklable, because worker processes read the scenes.
    """

    @property
    def name(self) -> str:
        """Short name, stored in every scene and dataset."""
        ...

    def references(self) -> Sequence[Any]:
        """References of all scenes, always in the same order. Cheap: reads an index only."""
        ...

    def read(self, reference: Any) -> Scene:
        """Reads one scene, or raises `SourceError`."""
        ...


@contextmanager
def reading(place: object) -> Iterator[None]:
    """Turns whatever is raised within into a `SourceError` that begins with the place.

    Damaged files show themselves in errors of many kinds, those of numpy, shapely, Arrow and GDAL among them: there is
    no list of them to catch. Places nest: "scene.json: objects[3]: KeyError: 'type'".

    Args:
        place: the file, or the part of it, that is being read.
    """
    try:
        yield
    except SourceError as error:
        if str(place) in str(error):
            raise
        raise SourceError(f"{place}: {error}") from error
    except InvalidScene:
        raise
    except Exception as error:
        raise SourceError(f"{place}: {describe(error)}") from error


def list_files(
    files: Sequence[Path], list_one: Callable[[Path], list[Reference]], *, damaged: Callable[[Path], Reference]
) -> list[Reference]:
    """References of the scenes of all files. One damaged file does not hide the scenes of the others.

    Args:
        files: in the order of the references.
        list_one: references of the scenes of a file.
        damaged: the one reference of a file that cannot be listed; reading it must raise the reason. If no file can be
            listed, the reason is raised here.
    """
    found: list[Reference] = []
    reasons: list[SourceError] = []
    for file in files:
        try:
            with reading(file):
                found += list_one(file)
        except SourceError as error:
            reasons.append(error)
            found.append(damaged(file))
    if reasons and len(reasons) == len(files):
        raise reasons[0]
    return found


def read_all(source: Source) -> Iterator[Scene]:
    """Reads all scenes of a source, one at a time."""
    return (source.read(reference) for reference in source.references())


def find_files(
    paths: str | Path | Sequence[str | Path], accepts: Callable[[str], bool], *, expected: str
) -> list[Path]:
    """Finds the files that a source reads.

    Args:
        paths: files, which are always taken, and folders, which are searched recursively.
        accepts: whether a file below a folder is taken, by its name.
        expected: the accepted names in words, for the error message.
    """
    given = [paths] if isinstance(paths, (str, Path)) else paths
    found: list[Path] = []
    for path in map(Path, given):
        if path.is_file():
            found.append(path)
            continue
        if not path.is_dir():
            raise SourceError(f"{path} does not exist: expected a file, or a folder with {expected} below it")
        below = sorted(file for file in path.rglob("*") if accepts(file.name) and file.is_file())
        if not below:
            raise SourceError(f"{path} holds no file that matches {expected}")
        found += below
    return found


@dataclass(frozen=True)
class SourceReport:
    """Result of `check_source`."""

    name: str  # of the source
    num_references: int  # scenes that the source offers
    num_checked: int  # scenes that were read
    faults: tuple[str, ...]  # one sentence each; empty if the source passed

    @property
    def passed(self) -> bool:
        return not self.faults


def check_source(source: Source, *, limit: int | None = None) -> SourceReport:
    """Reads the first `limit` scenes (all by default) and lists every broken rule.

    References must be stable, distinct and picklable. Scenes must be valid, carry the source's name, have unique ids,
    be equal when read twice, and survive a round trip through Parquet.
    """
    given: Any = source.references()
    references = list(given)
    faults = [] if isinstance(given, Sequence) else [f"references() gives a {type(given).__name__}, expected a list"]
    faults += [*_reference_faults(source, references), *_pickle_faults("the source", source)]
    chosen = references[:limit]
    if not faults:
        source = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own bytes; workers receive the source this way)
    ids: Counter[str] = Counter()
    for reference in chosen:
        try:
            scene = source.read(reference)
            faults += _scene_faults(source, reference, scene)
        except Exception as error:  # a user's source may raise anything
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
    """Converts a source to a dataset of Parquet shards.

    Args:
        source: where the scenes come from.
        out: folder of the dataset. A conversion that was interrupted continues there.
        settings: stored in `dataset.json`. A dataset that was started with other settings is refused.
        workers: number of processes.
        skip_bad: count and leave out scenes that cannot be read, instead of raising.
        limit: number of references to convert, from the first; all by default.
        on_shard: called with the number of scenes of each finished shard.
    """
    references = source.references()[:limit]
    if not references:
        raise SourceError(f"{source.name}: nothing to convert was found")
    chunks = [references[start : start + _SCENES_PER_SHARD] for start in range(0, len(references), _SCENES_PER_SHARD)]
    return write_dataset(
        out,
        [_ConversionTask(source, tuple(chunk), skip_bad) for chunk in chunks],
        make=_convert_chunk,
        source=source.name,
        # Not `skip_bad`: shards without bad scenes are the same, so that a conversion that failed can go on with it.
        settings={**settings, "limit": limit, "num_references": len(references)},
        workers=workers,
        on_shard=on_shard,
    )


def _convert_chunk(task: _ConversionTask) -> ShardContents:
    scenes = []
    rejected: Counter[str] = Counter()
    for reference in task.references:
        try:
            with reading(reference):
                scene = task.source.read(reference)
                scene.validate()
        except (SourceError, InvalidScene) as error:
            if not task.skip_bad:
                raise
            rejected[type(error).__name__] += 1
            continue
        scenes.append(scene)
    return ShardContents(scenes, rejected)
