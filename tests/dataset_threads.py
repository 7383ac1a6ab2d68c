"""Eight threads read one dataset, as a program of its own that the tests can watch crash: FOLDER."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from waycode.dataset import shards
from waycode.dataset.dataset import Dataset
from waycode.dataset.storage import same_scene

_THREADS, _READS = 8, 300


def run(folder: Path) -> None:
    shards.MAX_OPEN_ROW_GROUPS = 7  # files are opened and closed all the time
    dataset, expected = Dataset(folder), list(Dataset(folder))
    ids = [scene.id for scene in expected]

    def read(seed: int) -> bool:
        order = np.random.default_rng(seed).integers(0, len(dataset), _READS).tolist()
        return dataset.ids() == ids and all(same_scene(dataset[index], expected[index]) for index in order)

    with ThreadPoolExecutor(_THREADS) as pool:
        answers = list(pool.map(read, range(_THREADS)))
    print("as read by one thread" if all(answers) else "other scenes than one thread")  # noqa: T201


if __name__ == "__main__":
    run(Path(sys.argv[1]))
