"""Generated scenes per second with one and with two workers, and what the scenes are worth.

python benchmarks/generate_sumo.py [--scenes 200] [--seed 0]
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from waycode.dataset.dataset import Dataset
from waycode.scene import TrackType
from waycode.scene.conflicts import overlapping_pairs, red_light_crossings
from waycode.scene.kinematics import comfortable
from waycode.sources.sumo import SumoSettings, generate_dataset

TARGET_SCENES_PER_S, TARGET_COMFORT, TARGET_BYTES = 3.0, 0.9, 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folders = {workers: Path(temporary) / str(workers) for workers in (1, 2)}
        rates = {workers: rate(folder, options, workers) for workers, folder in folders.items()}
        print(f"scenes/s: {rates[1]:.2f} with 1 worker, {rates[2]:.2f} with 2 (target {TARGET_SCENES_PER_S})")
        print(f"two workers are {rates[2] / rates[1]:.2f} times as fast as one")
        report(Dataset(folders[2]))


def rate(folder: Path, options: argparse.Namespace, workers: int) -> float:
    started = time.perf_counter()
    settings = SumoSettings(num_scenes=options.scenes, seed=options.seed)
    generate_dataset(folder, settings=settings, workers=workers)
    return options.scenes / (time.perf_counter() - started)


def report(dataset: Dataset) -> None:
    """Comfort, accidents, red lights and size of everything that was kept."""
    judged = kept = overlaps = crossings = 0
    for scene in dataset:
        comfort, seen = comfortable(scene.tracks, dt_s=scene.dt_s)
        judged, kept = judged + int(seen.sum()), kept + int(comfort.sum())
        vehicles = scene.tracks.types == TrackType.VEHICLE
        overlaps += len(overlapping_pairs(scene.tracks, which=vehicles))
        crossings += len(red_light_crossings(scene))
    size = sum(shard.num_bytes for shard in dataset.info.shards) / len(dataset)
    print(f"comfortable: {kept / judged:.1%} of {judged} moving tracks (target {TARGET_COMFORT:.0%})")
    print(f"overlapping vehicles: {overlaps}, crossings on red: {crossings} (target 0 and 0)")
    print(f"bytes per scene: {size:,.0f} (target under {TARGET_BYTES:,})")


if __name__ == "__main__":
    main()
