"""A run that writes a dataset, as a program of its own that the tests can kill: FOLDER LOG WORKERS."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from scenes import small_scene
from waycode.dataset.dataset import Dataset, DatasetInfo, ShardContents, write_dataset

NUM_SHARDS = 8
SCENES_PER_SHARD = 3


@dataclass(frozen=True)
class LoggedTask:
    """Which shard to make, and the file that is told of it."""

    index: int
    log: str
    seconds: float = 0.0


def make_logged(task: LoggedTask) -> ShardContents:
    with open(task.log, "a") as log:
        log.write(f"{task.index} {os.getpid()}\n")
    time.sleep(task.seconds)
    return make_shard(task.index)


def make_shard(index: int) -> ShardContents:
    scenes = [small_scene(f"{index}-{number}") for number in range(SCENES_PER_SHARD)]
    return ShardContents(scenes, {"overlap": index} if index else {})


def make_or_fail(index: int) -> ShardContents:
    if index == 5:
        raise RuntimeError("task 5 fails")
    return make_shard(index)


def make_or_die(index: int) -> ShardContents:
    if index == 2:
        os._exit(3)
    return make_shard(index)


def read_ids(dataset: Dataset, indices: list[int]) -> list[str]:
    return [dataset[index].id for index in indices]


def run(folder: Path, log: Path, workers: int, *, seconds: float = 0.0) -> DatasetInfo:
    tasks = [LoggedTask(index, str(log), seconds) for index in range(NUM_SHARDS)]
    return write_dataset(
        folder, tasks, make=make_logged, source="made-up", settings={"seed": 0, "sizes": (1, 2)}, workers=workers
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), seconds=0.1)
