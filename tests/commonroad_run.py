"""Exports scenes to CommonRoad's XML and reads them back with commonroad-io: FOLDER.

A program of its own: commonroad-io needs protobuf 3.20, which the reader of WOMD does not run with. `make commonroad`
installs both into build/commonroad, which tests/test_export.py puts first on this program's path.
"""

import sys
from pathlib import Path

import numpy as np
from commonroad.common.file_reader import CommonRoadFileReader

from scenes import small_scene
from waycode.dataset.dataset import load_scene
from waycode.scene import Scene
from waycode.sources.export import export_scenes


def check(before: Scene, path: Path) -> None:
    """Compares lanes, their graph and widths, and all positions from the current step on."""
    scenario, _ = CommonRoadFileReader(str(path)).open()
    lanes, tracks, first = before.map.lanes, before.tracks, before.current_step
    lanelets = scenario.lanelet_network.lanelets
    assert len(lanelets) == len(lanes)
    pairs = {(one.lanelet_id - 1, other - 1) for one in lanelets for other in one.successor}
    assert pairs == {tuple(pair) for pair in lanes.successors.tolist()}
    for lanelet in lanelets:
        lane = lanelet.lanelet_id - 1
        width_m = np.linalg.norm(lanelet.left_vertices - lanelet.right_vertices, axis=-1)
        expected_m = lanes.width_m[lane] if lanes.width_known[lane] else 3.5
        np.testing.assert_allclose(width_m, expected_m, rtol=0, atol=1e-3)
        centre_m = lanes.centrelines[lane] + np.asarray(before.origin_m)
        np.testing.assert_allclose(lanelet.center_vertices, centre_m, rtol=0, atol=1e-3)
    observed = np.flatnonzero(tracks.valid[:, first]).tolist()
    assert len(scenario.dynamic_obstacles) == len(observed)
    for row, obstacle in zip(observed, scenario.dynamic_obstacles, strict=True):
        for step in range(first, before.num_steps):
            state = obstacle.state_at_time(step - first)
            if state is None:
                assert not tracks.valid[row, first : step + 1].all()
                break
            expected = tracks.position_m[row, step].astype(np.float64) + np.asarray(before.origin_m)
            np.testing.assert_allclose(state.position, expected, rtol=0, atol=1e-3)


def main() -> None:
    scenes = [load_scene("sample", 0), load_scene("sample", 5), small_scene("$odd/../id", num_steps=30)]
    paths = export_scenes(scenes, Path(sys.argv[1]), form="commonroad")
    for scene, path in zip(scenes, paths, strict=True):
        check(scene, path)
    sys.stdout.write(f"{len(paths)} scenes read back\n")


if __name__ == "__main__":
    main()
