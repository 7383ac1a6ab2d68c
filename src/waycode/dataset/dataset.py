"""A dataset: a folder of Parquet shards and a `dataset.json` that describes them.

Shards are independent: each is made from its own task, is renamed to its final name when it is complete, and is never
made twice. So a run that was killed at any time continues when it is started again, and ends with the same bytes as a
run without interruption, for any number of workers.
"""

import hashlib
import json
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from operator import index as as_index
from pathlib import Path
from typing import Any, SupportsIndex, overload

import pyarrow.parquet as pq

from waycode.dataset.files import DatasetError as DatasetError
from waycode.dataset.files import is_leftover, only_writer, remove_unfinished, replace_file, sha256_of_file
from waycode.dataset.samples import sample_folder
from waycode.dataset.storage import SCHEMA_VERSION, scene_from_row, write_shard
from waycode.dataset.workers import Task, run_tasks
from waycode.scene.types import Scene

INFO_FILE = "dataset.json"
MAX_OPEN_ROW_GROUPS = 2048  # an open shard's footer takes about 60 kB of memory per scene: 120 MB at most


@dataclass(frozen=True)
class ShardContents:
    """Result of a task that makes a shard."""

    scenes: list[Scene]
    rejected: Mapping[str, int] = field(default_factory=dict)  # reason -> number of scenes left out for it


@dataclass(frozen=True)
class ShardInfo:
    """A shard as listed in `dataset.json`."""

    file: str  # name in the dataset's folder
    num_scenes: int
    num_bytes: int
    sha256: str  # checksum of the file


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """The content of `dataset.json`."""

    schema_version: int  # of the Parquet columns
    source: str  # name of the source of the scenes
    settings: Mapping[str, Any]  # of the generator or converter
    settings_sha256: str  # `settings_hash` of source and settings
    complete: bool  # whether all shards are written
    num_shards: int  # when complete
    num_scenes: int = 0  # in all shards; 0 until complete
    rejected: Mapping[str, int] = field(default_factory=dict)  # reason -> number of scenes left out for it
    shards: tuple[ShardInfo, ...] = ()  # empty until complete

    @staticmethod
    def read(folder: Path) -> "DatasetInfo":
        """Reads `dataset.json`. Raises `DatasetError` if it is missing, damaged or of another version."""
        path = folder / INFO_FILE
        if not path.is_file():
            raise DatasetError(
                f"{folder} is not a dataset: it has no {INFO_FILE} (make one with `waycode data sumo` or `convert`)"
            )
        try:
            content = json.loads(path.read_text())
            version = content["schema_version"]
            if version != SCHEMA_VERSION:
                raise DatasetError(f"{path} has schema version {version}, this waycode reads {SCHEMA_VERSION}")
            shards = tuple(ShardInfo(**shard) for shard in content.pop("shards"))
            return DatasetInfo(**content, shards=shards)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatasetError(f"{path} is damaged ({error}): expected the JSON that waycode writes") from error

    def write(self, folder: Path) -> None:
        """Writes `dataset.json` atomically."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"
        replace_file(folder / INFO_FILE, lambda path: path.write_text(text))


class Dataset(Sequence[Scene]):
    """Random access to the scenes of a complete dataset. Can be passed to other processes, by fork or pickle."""

    def __init__(self, folder: str | Path):
        """Opens the dataset in a folder; the name "sample" (or "sample-crossings") is that of bundled scenes."""
        self.folder = sample_folder(folder) or Path(folder)
        self.info = DatasetInfo.read(self.folder)
        if not self.info.complete:
            raise DatasetError(
                f"{self.folder} is not finished: run the command that makes it again, it continues where it stopped"
            )
        self._ends = list(accumulate(shard.num_scenes for shard in self.info.shards))
        self._open_files: OrderedDict[str, pq.ParquetFile] = OrderedDict()  # the most recently used last

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __repr__(self) -> str:
        return (
            f"Dataset {str(self.folder)!r}: {len(self)} scenes of {self.info.source} in {len(self.info.shards)} shards"
        )

    @overload
    def __getitem__(self, index: SupportsIndex) -> Scene: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scene]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Scene | list[Scene]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = as_index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"scene {place} of {len(self)} in {self.folder}")
        place %= len(self)
        shard = bisect_right(self._ends, place)
        return self._read(self.info.shards[shard], place - self._ends[shard] + self.info.shards[shard].num_scenes)

    def ids(self) -> list[str]:
        """The ids of all scenes, in order, without reading the scenes."""
        return [str(name) for name in self.column("id")]

    def column(self, name: str) -> list[Any]:
        """One column of the Parquet schema for all scenes, in order, without reading the other columns."""
        return [value for shard in self.info.shards for value in self._file(shard.file).read([name])[name].to_pylist()]

    def _read(self, shard: ShardInfo, row: int) -> Scene:
        try:
            return scene_from_row(self._file(shard.file).read_row_group(row, use_threads=False))
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise DatasetError(
                f"{self.folder / shard.file} cannot be read ({error}): `waycode data check` lists the damaged shards"
            ) from error

    def _file(self, name: str) -> pq.ParquetFile:
        """The opened shard; the least recently used ones are closed to bound memory and open files."""
        if name in self._open_files:
            self._open_files.move_to_end(name)
        else:
            # Not memory-mapped: that is no faster, and a file truncated by another process would crash this one.
            self._open_files[name] = pq.ParquetFile(self.folder / name)
            open_groups = sum(file.metadata.num_row_groups for file in self._open_files.values())
            while open_groups > MAX_OPEN_ROW_GROUPS and len(self._open_files) > 1:
                open_groups -= self._open_files.popitem(last=False)[1].metadata.num_row_groups
        return self._open_files[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_files": OrderedDict()}


def load_scene(path: str | Path, index: int = 0) -> Scene:
    """Reads a scene.

    Args:
        path: a Parquet file of scenes, the folder of a dataset, or "sample" (or "sample-crossings") for bundled scenes.
        index: of the scene in the file or dataset.
    """
    path = sample_folder(path) or Path(path)
    if path.is_dir():
        dataset = Dataset(path)
        if not 0 <= index < len(dataset):
            raise DatasetError(f"{path} has no scene {index}: expected 0 to {len(dataset) - 1}")
        return dataset[index]
    if not path.is_file():
        raise DatasetError(f"{path} does not exist: expected a Parquet file of scenes or a dataset's folder")
    try:
        with pq.ParquetFile(path) as file:
            count = file.metadata.num_row_groups
            if not 0 <= index < count:
                raise DatasetError(f"{path} has no scene {index}: expected 0 to {count - 1}")
            return scene_from_row(file.read_row_group(index, use_threads=False))
    except (OSError, ValueError, KeyError) as error:
        raise DatasetError(f"{path} is not a Parquet file of scenes ({error})") from error


def save_scene(scene: Scene, path: str | Path) -> None:
    """Validates a scene and writes it to a Parquet file."""
    scene.validate()
    replace_file(Path(path), lambda temporary: write_shard(temporary, [scene], metadata={}))


def write_dataset(
    folder: str | Path,
    tasks: Sequence[Task],
    *,
    make: Callable[[Task], ShardContents],
    source: str,
    settings: Mapping[str, Any],
    workers: int = 1,
    on_shard: Callable[[int], None] = lambda num_scenes: None,
) -> DatasetInfo:
    """Writes a dataset with one shard per task; continues where an earlier run with the same settings stopped.

    Args:
        folder: new, or of an earlier run.
        tasks: one per shard.
        make: module-level function whose result depends on its task alone; runs in worker processes.
        source: name of the source of the scenes.
        settings: of the generator or converter, as JSON values; a folder with other settings is refused.
        workers: number of processes.
        on_shard: called with the number of scenes of every shard, old or new.
    """
    folder = Path(folder)
    wanted = DatasetInfo(
        schema_version=SCHEMA_VERSION,
        source=source,
        settings=json.loads(json.dumps(settings)),  # as read back: tuples become lists
        settings_sha256=settings_hash(source, settings),
        complete=False,
        num_shards=len(tasks),
    )
    info = _existing(folder, wanted)
    if info is None or not info.complete:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatasetError(f"{folder} cannot be made ({error}): choose another folder") from error
        with only_writer(folder):
            info = _existing(folder, wanted)  # read again: another run may have finished in the meantime
            remove_unfinished(folder)
            if info is None:
                wanted.write(folder)
                info = wanted
            if not info.complete:
                return _write_shards(folder, info, tasks, make=make, workers=workers, on_shard=on_shard)
    on_shard(info.num_scenes)
    return info


def check_shards(folder: str | Path) -> list[str]:
    """Faults of the files of a dataset: missing, changed or unlisted shards."""
    folder = Path(folder)
    info = DatasetInfo.read(folder)
    faults = [] if info.complete else ["the dataset is not finished"]
    if info.settings_sha256 != settings_hash(info.source, info.settings):
        faults.append(f"the settings in {INFO_FILE} do not have the hash that it gives")
    for shard in info.shards:
        path = folder / shard.file
        if not path.is_file():
            faults.append(f"{shard.file} is missing")
        elif sha256_of_file(path) != shard.sha256:
            faults.append(f"{shard.file} does not have the checksum that {INFO_FILE} gives")
    if info.complete:  # until then, no shard is listed
        unlisted = {path.name for path in folder.glob("*.parquet")} - {shard.file for shard in info.shards}
        faults += [f"{name} is not listed in {INFO_FILE}" for name in sorted(unlisted)]
    return faults


def settings_hash(source: str, settings: Mapping[str, Any]) -> str:
    """Hash by which a dataset is recognised as made with these settings."""
    text = json.dumps([SCHEMA_VERSION, source, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _existing(folder: Path, wanted: DatasetInfo) -> DatasetInfo | None:
    """The dataset that an earlier run began in the folder, or None; refuses a folder with other content."""
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is a file: expected a folder, or the name of one to make")
    if not (folder / INFO_FILE).exists():
        if folder.exists() and not all(is_leftover(path) for path in folder.iterdir()):
            raise DatasetError(f"{folder} is not empty and holds no dataset: choose another folder")
        return None
    info = DatasetInfo.read(folder)
    if info.settings_sha256 != wanted.settings_sha256:
        raise DatasetError(
            f"{folder} holds a dataset with other settings ({_difference(info, wanted)}): choose another folder"
        )
    if info.num_shards != wanted.num_shards:
        raise DatasetError(
            f"{folder} holds a dataset of {info.num_shards} shards, but the same settings now ask for "
            f"{wanted.num_shards}: has the raw data changed? Choose another folder"
        )
    return info


def _write_shards(
    folder: Path,
    info: DatasetInfo,
    tasks: Sequence[Task],
    *,
    make: Callable[[Task], ShardContents],
    workers: int,
    on_shard: Callable[[int], None],
) -> DatasetInfo:
    """Writes the missing shards and then the final `dataset.json`."""
    names = [f"shard-{index:05d}.parquet" for index in range(len(tasks))]
    missing = {}
    for name, task in zip(names, tasks, strict=True):
        if (folder / name).exists():
            on_shard(_shard_facts(folder / name)[0])
        else:
            missing[name] = task
    with closing(run_tasks(missing, make, workers=workers)) as made:
        for name, contents in made:
            for scene in contents.scenes:
                scene.validate()
            metadata = {"rejected": dict(contents.rejected), "settings_sha256": info.settings_sha256}
            replace_file(folder / name, partial(write_shard, scenes=contents.scenes, metadata=metadata))
            on_shard(len(contents.scenes))
    rejected: Counter[str] = Counter()
    shards = []
    for name in names:
        num_scenes, reasons = _shard_facts(folder / name)
        rejected.update(reasons)
        shards.append(ShardInfo(name, num_scenes, (folder / name).stat().st_size, sha256_of_file(folder / name)))
    finished = replace(
        info,
        complete=True,
        num_scenes=sum(shard.num_scenes for shard in shards),
        rejected=dict(sorted(rejected.items())),
        shards=tuple(shards),
    )
    finished.write(folder)
    return finished


def _difference(info: DatasetInfo, wanted: DatasetInfo) -> str:
    """The settings of an existing dataset that differ from the wanted ones, in words."""
    if info.source != wanted.source:
        return f"source is {info.source!r}, asked for {wanted.source!r}"
    return ", ".join(
        f"{name} is {info.settings.get(name)!r:.60}, asked for {wanted.settings.get(name)!r:.60}"
        for name in sorted({*info.settings, *wanted.settings})
        if info.settings.get(name) != wanted.settings.get(name)
    )


def _shard_facts(path: Path) -> tuple[int, dict[str, int]]:
    """Number of scenes in a shard, and number of rejected ones by reason."""
    try:
        metadata = pq.read_metadata(path)
        notes = json.loads((metadata.metadata or {})[b"waycode"])
    except (OSError, ValueError, KeyError) as error:
        raise DatasetError(f"{path} is not a shard of this dataset ({error}): remove it and run again") from error
    return metadata.num_rows, notes.get("rejected", {})
