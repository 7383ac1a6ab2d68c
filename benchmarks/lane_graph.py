"""Precision and recall of the lane graph that is inferred from geometry, against the graph that WOMD recorded.

python benchmarks/lane_graph.py FILE.tfrecord...
"""

import argparse
from pathlib import Path

import numpy as np

from waycode.scene.lane_inference import infer_lane_graph, precision_recall
from waycode.sources import womd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="TFRecord files of the Waymo Open Motion Dataset")
    for scene in womd.read(parser.parse_args().files):
        lanes = scene.map.lanes
        inferred = infer_lane_graph(lanes.centrelines, lanes.types)
        print(f"{scene.id}: {len(lanes)} lanes")
        for name in ("successors", "left_neighbours", "right_neighbours"):
            found, truth = getattr(inferred, name), getattr(lanes, name)
            precision, recall = precision_recall(found, truth)
            print(f"  {name:17} precision {precision:.3f}  recall {recall:.3f}  of {len(truth)} recorded")
            if name != "successors":
                apart = np.array([distance_m(lanes.centrelines[a], lanes.centrelines[b]) >= 2 for a, b in truth])
                _, recall = precision_recall(found, truth[apart])
                print(f"  {'':17} recall {recall:.3f} of the {int(apart.sum())} that stay at least 2 m apart")


def distance_m(one: np.ndarray, other: np.ndarray) -> float:
    """The least distance between points of two centrelines."""
    return float(np.linalg.norm(one[:, None] - other[None], axis=-1).min())


if __name__ == "__main__":
    main()
