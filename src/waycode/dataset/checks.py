"""Integrity of a dataset: its files, every scene in them, and the ids."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from waycode.dataset.dataset import DatasetInfo, ShardInfo, check_shards, shards_folder
from waycode.dataset.files import describe
from waycode.dataset.storage import read_scene
from waycode.dataset.workers import map_tasks
from waycode.scene.validation import faults_of


@dataclass(frozen=True)
class CheckReport:
    """Result of `check_dataset`."""

    num_scenes: int  # scenes that could be read
    num_shards: int  # shards that exist
    faults: tuple[str, ...]  # one sentence each

    @property
    def passed(self) -> bool:
        return not self.faults


def check_dataset(
    folder: str | Path, *, workers: int = 1, on_scenes: Callable[[int], None] = lambda num_scenes: None
) -> CheckReport:
    """Finds every fault of a dataset: damaged or missing files, invalid scenes, duplicate ids.

    Args:
        folder: the dataset.
        workers: number of processes.
        on_scenes: called with the number of scenes checked since the last call.
    """
    info, faults = DatasetInfo.read(folder), check_shards(folder)
    folder = shards_folder(folder)
    ids: Counter[str] = Counter()
    present = [shard for shard in info.shards if (folder / shard.file).is_file()]
    for found_ids, found_faults in map_tasks(_check_shard, [(folder, shard) for shard in present], workers=workers):
        ids.update(found_ids)
        faults += found_faults
        on_scenes(len(found_ids))
    faults += [f"{count} scenes have the id {scene_id!r}" for scene_id, count in ids.items() if count > 1]
    return CheckReport(ids.total(), len(present), tuple(faults))


def _check_shard(task: tuple[Path, ShardInfo]) -> tuple[list[str], list[str]]:
    """Ids and faults of the scenes in one file."""
    folder, shard = task
    ids: list[str] = []
    faults: list[str] = []
    try:
        file = pq.ParquetFile(folder / shard.file, page_checksum_verification=True)
    except Exception as error:  # as in `shards.unreadable`
        return [], [f"{shard.file} cannot be read ({describe(error)})"]
    rows = file.metadata.num_row_groups
    if rows != shard.num_scenes:
        faults.append(f"{shard.file} has {rows} scenes, expected {shard.num_scenes}")
    for row in range(rows):
        try:
            scene = read_scene(file, row)
            ids.append(scene.id)
            faults += [f"{shard.file}, scene {row} ({scene.id:.60}): {fault}" for fault in faults_of(scene)]
        except Exception as error:
            faults.append(f"{shard.file}, scene {row} cannot be read ({describe(error)})")
    return ids, faults
