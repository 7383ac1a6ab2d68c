"""Milliseconds of processor time per planning step in the loop: latent search beside PDM-Closed, a scene per core.

python benchmarks/drive.py [FOLDER] [--scenes 12] [--workers 2]
"""

import argparse
from pathlib import Path

import numpy as np

from waycode.dataset.dataset import Dataset
from waycode.demo import bundled_dataset
from waycode.simulation.campaign import Campaign, drive_campaign
from waycode.simulation.registry import DriverSpec
from waycode.simulation.scenarios import choose_scenarios

TARGET_MS = 100.0  # a plan at every step of 10 Hz, but for one in twenty


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="a dataset; the bundled one if not given")
    parser.add_argument("--scenes", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    dataset = bundled_dataset() if options.folder is None else Dataset(options.folder)
    indices = choose_scenarios(dataset, options.scenes, only_fit=True).indices
    taken = {name: planning_ms(dataset, indices, name, workers=options.workers) for name in ("pdm-closed", "latent")}
    for name, (median, slow) in taken.items():
        print(f"{name:12s} {median:6.1f} ms, one step in twenty above {slow:6.1f} ms")
    ratio = taken["latent"][0] / taken["pdm-closed"][0]
    print(f"{len(indices)} scenes: latent search takes {ratio:.1f} times as long")
    print(f"target {TARGET_MS:.0f} ms for 19 steps of 20: {'reached' if taken['latent'][1] < TARGET_MS else 'MISSED'}")


def planning_ms(dataset: Dataset, indices: tuple[int, ...], name: str, *, workers: int) -> tuple[float, float]:
    """Median and 95th percentile over all steps of all scenes."""
    campaign = Campaign(folder=dataset.folder, indices=indices, planner=DriverSpec(name=name))
    steps = np.concatenate([result.planning_s for result in drive_campaign(campaign, workers=workers)])
    return 1e3 * float(np.median(steps)), 1e3 * float(np.quantile(steps, 0.95))


if __name__ == "__main__":
    main()
