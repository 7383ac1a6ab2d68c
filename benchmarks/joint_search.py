"""Joint search: how its time grows with the depth and with the number of agents, at a beam of 64.

python benchmarks/joint_search.py [--model FOLDER] [--rounds 10] [--threads 1]

Without a model, the recipe `small-joint` with random weights: the time does not depend on them.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor

from waycode.demo import bundled_dataset
from waycode.model import MeanAndStd, Model, PrefixDecoder
from waycode.model.saved import load_model
from waycode.planner import JointView, Planner
from waycode.scene.interaction import interacting_tracks
from waycode.search import beam_search
from waycode.training.config import small_joint

BEAM_WIDTH, DEPTH, NUM_AGENTS = 64, 8, 4
TARGET_GROWTH = 1.25  # time per token, or per agent, at the largest over that at half of it: linear is 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a joint model or of a run")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = Model(small_joint().model).eval() if options.model is None else load_model(options.model).model
    planner = Planner(model.requires_grad_(False))
    views = {count: crowded_view(planner, count) for count in (1, 2, 4, 8)}
    runs = {f"{NUM_AGENTS} agents, {depth} tokens": (views[NUM_AGENTS], depth) for depth in (2, 4, 8)}
    runs |= {f"{count} agents, {DEPTH} tokens": (view, DEPTH) for count, view in views.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds + 1):  # in turn, so that a busy machine is busy for all of them
        for name, (view, depth) in runs.items():
            began = time.perf_counter()
            search(view, depth)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    for name, median_s in medians.items():
        print(f"beam of {BEAM_WIDTH}, {name:22s} {1000 * median_s:8.1f} ms")
    # The first token has 8 candidates, all others 512: they are what grows.
    say("depth", (medians["4 agents, 8 tokens"] - medians["4 agents, 4 tokens"]) / 4,
        (medians["4 agents, 4 tokens"] - medians["4 agents, 2 tokens"]) / 2)  # fmt: skip
    say("agents", medians["8 agents, 8 tokens"] / 8, medians["4 agents, 8 tokens"] / 4)


def crowded_view(planner: Planner, count: int) -> JointView:
    """The agents around the first road user of a bundled scene that has enough of them."""
    for scene in bundled_dataset():
        for agent in scene.tracks.to_predict.tolist():
            agents = interacting_tracks(scene, agent, count=count)
            if len(agents) == count and scene.tracks.valid[agents, scene.current_step].all():
                return planner.encode(scene, agents=agents)
    raise SystemExit(f"no bundled scene has {count} road users that interact")


def search(view: JointView, depth: int) -> None:
    """The paper's guidance: all agents should end ahead of where they are."""

    def cost(decoded: MeanAndStd) -> Tensor:
        distance = (decoded[0][:, :, -1] - 20.0).norm(dim=-1)  # [A, K]
        return distance.mean(dim=0, keepdim=True)

    beam_search(
        PrefixDecoder(view.model, view.embedding), cost, codebook=view.model.codebook(), num_rows=1, depth=depth,
        beam_width=BEAM_WIDTH,
    )  # fmt: skip


def say(name: str, large_s: float, half_s: float) -> None:
    growth = large_s / half_s
    reached = "reached" if growth <= TARGET_GROWTH else "MISSED"
    print(f"time per unit of {name}, the largest over half of it: {growth:.2f}; target {TARGET_GROWTH}: {reached}")


if __name__ == "__main__":
    main()
