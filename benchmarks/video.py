"""Processor time of drawing animations: three bundled scenes, driven by IDM, as `waycode simulate --video gif` does.

    python benchmarks/video.py

Driving is not counted; computing the score so far is.
"""

import tempfile
import time
from pathlib import Path

import waycode as wc
from waycode.baselines import IdmDriver
from waycode.evaluation.drive_video import drive_to_show
from waycode.plotting.animation import save_animation
from waycode.simulation.rollout import SimulationConfig

SCENES = (0, 8, 16)


def main() -> None:
    total_s, config = 0.0, SimulationConfig(keep_plans=True)
    for index in SCENES:
        scene = wc.load_scene("sample", index)
        rollout = wc.simulate(scene, IdmDriver(), config=config)
        began = time.process_time()
        drive = drive_to_show(scene, rollout, name="idm")
        scored_s = time.process_time() - began
        with tempfile.TemporaryDirectory() as folder:
            path = save_animation([drive], Path(folder) / "drive.gif")
            spent_s, size_kb = time.process_time() - began, path.stat().st_size / 1024
        total_s += spent_s
        print(f"scene {index}: {spent_s:.2f} s of processor time ({scored_s:.2f} s for the scores), {size_kb:.0f} kB")
    print(f"{len(SCENES)} scenes: {total_s:.2f} s")


if __name__ == "__main__":
    main()
