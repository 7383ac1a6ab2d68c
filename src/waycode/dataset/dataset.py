"""A dataset: a folder of Parquet shards and a `dataset.json` that describes them.

Shards are independent: each is made from its own task, is renamed to its final name when it is complete, and is never
made twice. So a run that was killed at any time continues when it is started again, and ends with the same bytes as a
run without interruption, for any number of workers.
"""

import hashlib
import json
from bisect import bisect_right
from collections import Counter
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
from waycode.dataset.files import (
    describe,
    is_leftover,
    only_writer,
    parse_json,
    remove_unfinished,
    replace_file,
    sha256_of_file,
)
from waycode.dataset.samples import sample_folder
from waycode.dataset.shards import OpenShards, unreadable
from waycode.dataset.storage import SCHEMA_VERSION, read_scene, write_shard
from waycode.dataset.workers import Task, run_tasks
from waycode.scene.arguments import check_kind
from waycode.scene.types import Scene

INFO_FILE = "dataset.json"
_MAX_BYTES = 10**15  # of a shard; a damaged number must not pass for a size


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

    def __post_init__(self) -> None:
        for name, kind in (("file", str), ("num_scenes", int), ("num_bytes", int), ("sha256", str)):
            if type(getattr(self, name)) is not kind:
                raise ValueError(f"{name} of a shard is {getattr(self, name)!r:.60}, expected a {kind.__name__}")
        if self.file in ("", ".", "..") or any(mark in self.file for mark in "/\\\0"):
            raise ValueError(f"file of a shard is {self.file!r:.60}, expected the name of a file in the folder")
        if not 0 <= self.num_scenes <= self.num_bytes <= _MAX_BYTES:  # a scene has many bytes
            sizes = f"{self.num_scenes!r:.60} scenes and {self.num_bytes!r:.60} bytes"
            raise ValueError(f"{self.file} is said to have {sizes}, expected at most {_MAX_BYTES} and a scene per byte")


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

    def __post_init__(self) -> None:
        kinds = {"source": str, "settings": Mapping, "settings_sha256": str, "complete": bool, "num_shards": int,
                 "num_scenes": int, "rejected": Mapping}  # fmt: skip
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} is {getattr(self, name)!r:.60}, expected a {kind.__name__}")
        if not all(isinstance(count, int) for count in self.rejected.values()):
            raise ValueError(f"rejected is {self.rejected!r:.60}, expected numbers of scenes by reason")

    @staticmethod
    def read(dataset: str | Path) -> "DatasetInfo":
        """Reads `dataset.json`. Raises `DatasetError` if it is missing, damaged or of another version.

        Args:
            dataset: folder, Parquet file of scenes, or name of bundled scenes, as for `Dataset`.
        """
        folder = sample_folder(dataset) or Path(dataset)
        if folder.is_file():
            return _info_of_file(folder)
        path = folder / INFO_FILE
        if not path.is_file():
            raise DatasetError(
                f"{folder} is not a dataset: it has no {INFO_FILE} (make one with `waycode data sumo` or `convert`)"
            )
        try:
            content = parse_json(path.read_bytes())
            version = content["schema_version"]
            if version != SCHEMA_VERSION:
                raise DatasetError(f"{path} has schema version {version!r:.60}, this waycode reads {SCHEMA_VERSION}")
            shards = tuple(ShardInfo(**shard) for shard in content.pop("shards"))
            return DatasetInfo(**content, shards=shards)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DatasetError(
                f"{path} is damaged ({describe(error)}): expected the JSON that waycode writes"
            ) from error

    def write(self, folder: Path) -> None:
        """Writes `dataset.json` atomically."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"
        replace_file(folder / INFO_FILE, lambda path: path.write_text(text))


class Dataset(Sequence[Scene]):
    """Random access to the scenes of a complete dataset, for any number of threads.

    Can be passed to other processes, by fork or pickle.

    Args:
        folder: of the dataset; or a Parquet file of scenes, such as one shard; the name "sample" (or
            "sample-crossings") is that of bundled scenes.
        verify: whether each shard's checksum is compared when it is first opened, and each scene validated when it is
            first read. The checksum takes about a millisecond per megabyte, the validation a third of a read.
    """

    def __init__(self, folder: str | Path, *, verify: bool = True):
        check_kind("a name or a path", DatasetError, folder=folder)
        self.folder, self.verify = sample_folder(folder) or Path(folder), verify
        self.info = DatasetInfo.read(self.folder)
        if not self.info.complete:
            raise DatasetError(
                f"{self.folder} is not finished: run the command that makes it again, it continues where it stopped"
            )
        self._ends = list(accumulate(shard.num_scenes for shard in self.info.shards))
        checksums = {shard.file: shard.sha256 for shard in self.info.shards} if verify else {}
        self._open = OpenShards(shards_folder(self.folder), checksums)
        self._valid: set[int] = set()  # scenes that have been validated

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
        row = place - self._ends[shard] + self.info.shards[shard].num_scenes
        with self._open.reader(self.info.shards[shard].file) as file:
            scene = read_scene(file, row)
            if self.verify and place not in self._valid:
                scene.validate()
                self._valid.add(place)
        return scene

    def ids(self) -> list[str]:
        """The ids of all scenes, in order, without reading the scenes."""
        return [str(name) for name in self.column("id")]

    def column(self, name: str) -> list[Any]:
        """One column of the Parquet schema for all scenes, in order, without reading the other columns."""
        values = []
        for shard in self.info.shards:
            with self._open.reader(shard.file) as file:
                found = file.read([name], use_threads=False)[name].to_pylist()
                if len(found) != shard.num_scenes:
                    raise ValueError(f"it has {len(found)} scenes, expected {shard.num_scenes}")
            values += found
        return values


def load_scene(path: str | Path, index: int = 0) -> Scene:
    """Reads and validates a scene.

    Args:
        path: a Parquet file of scenes, the folder of a dataset, or "sample" (or "sample-crossings") for bundled scenes.
        index: of the scene in the file or dataset.
    """
    check_kind("a name or a path", DatasetError, path=path)
    check_kind("a whole number", DatasetError, index=index)
    path = sample_folder(path) or Path(path)
    if path.is_dir():
        dataset = Dataset(path)
        if not 0 <= index < len(dataset):
            raise DatasetError(f"{path} has no scene {index}: expected 0 to {len(dataset) - 1}")
        return dataset[index]
    if not path.is_file():
        raise DatasetError(f"{path} does not exist: expected a Parquet file of scenes or a dataset's folder")
    with (
        unreadable(path, hint="expected a Parquet file of scenes"),
        pq.ParquetFile(path, page_checksum_verification=True) as file,
    ):
        count = file.metadata.num_row_groups
        if not 0 <= index < count:
            raise DatasetError(f"{path} has no scene {index}: expected 0 to {count - 1}")
        scene = read_scene(file, index)
        scene.validate()
    return scene


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
    info, whole = DatasetInfo.read(folder), not Path(folder).is_file()
    folder = shards_folder(folder)
    faults = [] if info.complete else ["the dataset is not finished"]
    if info.settings_sha256 != settings_hash(info.source, info.settings):
        faults.append(f"the settings in {INFO_FILE} do not have the hash that it gives")
    for shard in info.shards:
        path = folder / shard.file
        if not path.is_file():
            faults.append(f"{shard.file} is missing")
        elif sha256_of_file(path) != shard.sha256:
            faults.append(f"{shard.file} does not have the checksum that {INFO_FILE} gives")
    if info.complete and whole:  # until it is complete, no shard is listed
        unlisted = {path.name for path in folder.glob("*.parquet")} - {shard.file for shard in info.shards}
        faults += [f"{name} is not listed in {INFO_FILE}" for name in sorted(unlisted)]
    return faults


def shards_folder(dataset: str | Path) -> Path:
    """The folder of a dataset's shards; `dataset` as for `Dataset`."""
    path = sample_folder(dataset) or Path(dataset)
    return path.parent if path.is_file() else path


def _info_of_file(path: Path) -> DatasetInfo:
    """Describes one Parquet file: as a part of the dataset that lists it, so that its seed is known, or on its own."""
    if (path.parent / INFO_FILE).is_file():
        whole = DatasetInfo.read(path.parent)
        for shard in whole.shards:
            if shard.file == path.name:
                return replace(whole, num_shards=1, num_scenes=shard.num_scenes, rejected={}, shards=(shard,))
    with unreadable(path, hint="expected a Parquet file of scenes"):
        num_scenes = pq.read_metadata(path).num_row_groups
        shard = ShardInfo(path.name, num_scenes, path.stat().st_size, sha256_of_file(path))
    settings = {"file_sha256": shard.sha256}
    return DatasetInfo(
        schema_version=SCHEMA_VERSION,
        source="file",
        settings=settings,
        settings_sha256=settings_hash("file", settings),
        complete=True,
        num_shards=1,
        num_scenes=num_scenes,
        shards=(shard,),
    )


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
    if not info.complete and not any(folder.glob("shard-*.parquet")):
        return None  # a run that failed before its first shard leaves nothing that other settings could conflict with
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
    with unreadable(path, hint="it is not a shard of this dataset, so remove it and run again"):
        metadata = pq.read_metadata(path)
        notes = parse_json((metadata.metadata or {})[b"waycode"])
        return metadata.num_rows, {str(reason): int(count) for reason, count in notes.get("rejected", {}).items()}
