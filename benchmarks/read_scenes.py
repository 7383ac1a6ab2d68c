"""Scenes per second that one core reads from a dataset, beside the same scenes in one .npz file each.

python benchmarks/read_scenes.py [FOLDER] [--rounds 5]
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # made-up scenes are shared with the tests

from scenes import traffic_scene  # noqa: E402
from waycode.dataset.dataset import Dataset, ShardContents, write_dataset  # noqa: E402
from waycode.dataset.storage import COLUMNS  # noqa: E402
from waycode.scene import Scene  # noqa: E402

SAMPLE = ROOT / "src" / "waycode" / "samples" / "sumo"
TARGET_SCENES_PER_S = 300
MADE_UP_SCENES, SCENES_PER_SHARD = 512, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", nargs="?", type=Path, help="a dataset; left out: the bundled sample, or made-up scenes"
    )
    parser.add_argument("--rounds", type=int, default=5, help="the best round counts, as other programs disturb")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})  # noqa: S311 (any core will do)
    with TemporaryDirectory() as temporary:
        folder = options.folder or (SAMPLE if SAMPLE.is_dir() else make_dataset(Path(temporary) / "made-up"))
        report(folder, Path(temporary), options.rounds)


def make_dataset(folder: Path) -> Path:
    """Scenes of the size that SUMO gives: 40 tracks x 91 steps, about 2,500 map points."""
    starts = range(0, MADE_UP_SCENES, SCENES_PER_SHARD)
    write_dataset(folder, starts, make=make_shard, source="made-up", settings={})
    return folder


def make_shard(start: int) -> ShardContents:
    return ShardContents([traffic_scene(seed) for seed in range(start, start + SCENES_PER_SHARD)])


def report(folder: Path, temporary: Path, rounds: int) -> None:
    dataset = Dataset(folder)
    order = list(range(len(dataset))) * max(1, 200 // len(dataset))
    shuffled = random.Random(0).sample(order, len(order))  # noqa: S311
    num_bytes = sum(shard.num_bytes for shard in dataset.info.shards)
    print(
        f"{folder}: {len(dataset)} scenes in {len(dataset.info.shards)} shards, {num_bytes / len(dataset):,.0f} B each"
    )
    print(describe([dataset[index] for index in range(min(50, len(dataset)))]))
    paths = write_npz(dataset, temporary)
    rates = {
        "Dataset, random access": rate(dataset.__getitem__, shuffled, rounds),
        "Dataset, in order": rate(dataset.__getitem__, order, rounds),
        "Dataset, opened for every scene": rate(lambda index: Dataset(folder)[index], shuffled[:100], rounds),
        "baseline: one .npz per scene": rate(lambda index: read_npz(paths[index]), shuffled, rounds),
    }
    baseline = rates["baseline: one .npz per scene"]
    for name, scenes_per_s in rates.items():
        print(f"{name:34s} {scenes_per_s:7.0f} scenes/s  {scenes_per_s / baseline:5.2f} x baseline")
    reached = rates["Dataset, random access"] >= TARGET_SCENES_PER_S
    print(f"target {TARGET_SCENES_PER_S} scenes/s: {'reached' if reached else 'MISSED'}")


def describe(scenes: Sequence[Scene]) -> str:
    tracks = np.mean([len(scene.tracks) for scene in scenes])
    steps = np.mean([scene.num_steps for scene in scenes])
    lanes = np.mean([len(scene.map.lanes.centrelines.points_m) for scene in scenes])
    rest = np.mean([len(scene.map.road_edges.points_m) + len(scene.map.road_lines.points_m) for scene in scenes])
    return f"mean: {tracks:.0f} tracks x {steps:.0f} steps, {lanes:.0f} lane points, {rest:.0f} line and edge points"


def rate(read: Callable[[int], Any], order: Sequence[int], rounds: int) -> float:
    """Scenes per second in the best round."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for index in order:
            read(index)
        times.append(time.perf_counter() - start)
    return len(order) / min(times)


def write_npz(dataset: Dataset, folder: Path) -> list[Path]:
    """What one would do by hand: the same arrays, compressed, one file per scene."""
    paths = [folder / f"{index}.npz" for index in range(len(dataset))]
    for path, scene in zip(paths, dataset, strict=True):
        columns = [column for column in COLUMNS if scene.route is not None or not column.path.startswith("route.")]
        values: dict[str, Any] = {column.name: np.asarray(attrgetter(column.path)(scene)) for column in columns}
        np.savez_compressed(path, **{name: value for name, value in values.items() if value.dtype != np.object_})
    return paths


def read_npz(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


if __name__ == "__main__":
    main()
