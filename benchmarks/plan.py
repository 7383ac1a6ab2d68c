"""Milliseconds to encode a scene and to plan in it, on one thread and on two; baseline: encoding anew for every plan.

Then the encoding for several agents of one scene at once; baseline: encoding the scene for each of them.

python benchmarks/plan.py [--model sumo-small] [--scenes 24] [--rounds 5]
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from waycode.demo import bundled_dataset
from waycode.objectives import GoalPoint, LeftTurn, RouteFollowing, TerminalVariance
from waycode.planner import Planner, View
from waycode.scene import Scene

TARGET_PLAN_MS = 50.0  # a plan every half step of 10 Hz, on one thread
AGENT_COUNTS = (1, 8, 32)  # encoded at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sumo-small")
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    planner = Planner.from_pretrained(options.model)
    scenes = bundled_dataset()[: options.scenes]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        views = [planner.encode(scene) for scene in scenes]  # and warms up
        encode = [milliseconds(partial(planner.encode, scene), options.rounds) for scene in scenes]
        print(f"{options.model}, {threads} thread(s), median of {len(scenes)} scenes, best of {options.rounds} each:")
        print(f"  encode                          {statistics.median(encode):7.1f} ms")
        report_plans(views, options.rounds, encode_ms=statistics.median(encode), is_judged=threads == 1)
        report_agents(planner, scenes, options.rounds)


def report_plans(views: Sequence[View], rounds: int, *, encode_ms: float, is_judged: bool) -> None:
    asked: dict[str, Callable[[View], object]] = {
        "greedy, goal point": lambda view: view.plan(GoalPoint(20.0, 0.0, frame="agent")),
        "greedy, left turn": lambda view: view.plan(LeftTurn()),
        "greedy, route following": lambda view: view.plan(RouteFollowing()),
        "beam of 4, goal point": lambda view: view.plan(GoalPoint(20.0, 0.0, frame="agent"), beam_width=4),
        "greedy + 5 refinement steps": lambda view: view.plan(
            GoalPoint(20.0, 0.0, frame="agent"), refine_steps=5, refine_objective=TerminalVariance()
        ),
        "greedy, goal and likelihood": lambda view: view.plan("goal-point(20, 0, frame=agent) + 0.5 * likelihood"),
        "the 6 most likely": lambda view: view.most_likely(6),
        "decode 3 tokens": lambda view: view.decode([1, 2, 3]),
    }
    for name, run in asked.items():
        median = statistics.median(milliseconds(partial(run, view), rounds) for view in views)
        print(f"  {name:30s}  {median:7.1f} ms; with encoding anew {(encode_ms + median) / median:.1f} x")
        if is_judged and name == "greedy, goal point":
            print(f"  target {TARGET_PLAN_MS:.0f} ms: {'reached' if median <= TARGET_PLAN_MS else 'MISSED'}")


def report_agents(planner: Planner, scenes: Sequence[Scene], rounds: int) -> None:
    """Encoding for the first agents of the scene with the most road users; rounds go in turn through all counts."""
    observed = [np.flatnonzero(scene.tracks.valid[:, scene.current_step]).tolist() for scene in scenes]
    agents, scene = max(zip(observed, scenes, strict=True), key=lambda pair: len(pair[0]))
    counts = [count for count in AGENT_COUNTS if count <= len(agents)]
    best = dict.fromkeys(counts, math.inf)
    for _ in range(rounds):
        for count in counts:
            best[count] = min(best[count], milliseconds(partial(planner.encode_agents, scene, agents[:count]), 1))
    for count in counts:
        each = best[count] / count
        print(
            f"  encode for {count:2d} of {len(agents)} agents         {each:7.1f} ms each; alone {best[1] / each:.1f} x"
        )


def milliseconds(run: Callable[[], object], rounds: int) -> float:
    """The best of some rounds: what else the machine does only ever adds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return 1000 * min(times)


if __name__ == "__main__":
    main()
