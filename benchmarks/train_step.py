"""Samples per second of a recipe's training step, beside the limit of arithmetic, and where the time goes.

python benchmarks/train_step.py [FOLDER] [--recipe small] [--steps 60] [--threads 2]

A sample is one modelled agent. The limit is the rate of a large matrix product in the same process, divided by the
number of floating-point operations of a sample as torch counts them. All of the recipe is on from the first step.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as the command line does

import torch
from torch.utils.flop_counter import FlopCounterMode

from waycode.demo import bundled_dataset
from waycode.features import Agents, Batch
from waycode.model import search_codes
from waycode.training.config import RECIPES
from waycode.training.data import SceneData
from waycode.training.module import AutoencoderModule

TARGET_SAMPLES_PER_S = 300
TARGET_WAITING_SHARE = 0.10
WARM_UP_STEPS = 5
GEMM_SIZE = 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a dataset; left out: the bundled sample")
    parser.add_argument("--recipe", default="small", choices=sorted(RECIPES))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--workers", type=int, default=1, help="processes that read scenes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = replace(RECIPES[options.recipe](), steps=WARM_UP_STEPS + options.steps, losses_from=0.0)
    folder = options.folder or bundled_dataset().folder
    data = SceneData(folder, config, workers=options.workers)
    module = AutoencoderModule(config)
    print(f"{options.recipe}: {module.model.num_parameters:,} parameters; {options.threads} threads; {folder}")
    rate = report_steps(module, data)
    batch = next(iter(SceneData(folder, replace(config, steps=1), workers=0).train_dataloader()))
    report_limit(module, batch, rate)
    report_parts(module, batch, rounds=max(3, options.steps // 6))
    report_sharing(module, batch, rounds=max(3, options.steps // 6))


class Stopwatch:
    """Adds up the time of parts by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)


def report_steps(module: AutoencoderModule, data: SceneData) -> float:
    """Whole steps as in training (without Lightning), batches made by worker processes; returns samples per second."""
    optimizer = module.configure_optimizers()["optimizer"]
    samples, began = 0, time.perf_counter()
    for step, batch in enumerate(data.train_dataloader()):
        if step == WARM_UP_STEPS:
            samples, began = 0, time.perf_counter()
            data.take_waited_s()
        make_step(module, batch, optimizer)
        samples += int(batch.agents.mask.sum())
    seconds, waited = time.perf_counter() - began, data.take_waited_s()
    rate, share = samples / seconds, waited / seconds
    steps = module.config.steps - WARM_UP_STEPS
    print(f"whole step: {1000 * seconds / steps:.0f} ms for {samples / steps:.0f} samples, {rate:.0f} samples/s")
    print(f"target {TARGET_SAMPLES_PER_S} samples/s: {'reached' if rate >= TARGET_SAMPLES_PER_S else 'MISSED'}")
    reached = "reached" if share < TARGET_WAITING_SHARE else "MISSED"
    print(f"waiting for data: {share:.1%} of the time; target under {TARGET_WAITING_SHARE:.0%}: {reached}")
    return rate


def report_limit(module: AutoencoderModule, batch: Batch, rate: float) -> None:
    """Counted operations of a step, and the samples per second that they allow at the rate of a matrix product."""
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(module.training_step(batch, 0)["loss"])
    samples = int(batch.agents.mask.sum())
    per_sample = counter.get_total_flops() / samples
    one, other = torch.randn(GEMM_SIZE, GEMM_SIZE), torch.randn(GEMM_SIZE, GEMM_SIZE)
    gemm_flops_per_s = 2 * GEMM_SIZE**3 / best_seconds(lambda: one @ other, 8)
    limit = gemm_flops_per_s / per_sample
    print(
        f"limit: {per_sample / 1e6:.0f} MFLOP per sample / {gemm_flops_per_s / 1e9:.0f} GFLOP/s of a matrix product = "
        f"{limit:.0f} samples/s; the step reaches {rate / limit:.0%} of it"
    )


def make_step(module: AutoencoderModule, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
    loss = module.training_step(batch, 0)["loss"]
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(module.parameters(), module.config.clip_norm)
    optimizer.step()


def report_parts(module: AutoencoderModule, batch: Batch, *, rounds: int) -> None:
    """One batch, part by part: forward in turn, then whole steps. What is left of a step is losses and backward."""
    watch, model, config = Stopwatch(), module.model, module.config
    optimizer = module.configure_optimizers()["optimizer"]
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    for _ in range(rounds):
        with watch.part("scene encoder, forward"):
            scene = model.encode_scene(batch.scene, batch.agents)
        with watch.part("trajectory encoder, forward"):
            latents = model.encode(future, valid, scene)
        with watch.part("decoder, forward"):
            model.decoder.decode_all_prefixes(latents, scene)
        with watch.part("search in the loop"), torch.no_grad():
            part = scene.first(round(config.searched_share * len(batch.agents.mask)))
            count = len(part.tokens.row)
            if count:
                search_codes(model, part, future[:count], valid[:count])
        with watch.part("whole step"):
            make_step(module, batch, optimizer)
    medians = {name: statistics.median(seconds) for name, seconds in watch.seconds.items()}
    for name, seconds in medians.items():
        print(f"  {name:28s} {1000 * seconds:7.1f} ms  {seconds / medians['whole step']:5.1%}")


def report_sharing(module: AutoencoderModule, batch: Batch, *, rounds: int) -> None:
    """The scene encoder for scenes with all their agents, beside one scene per agent."""
    scene_of_row, slot = batch.agents.mask.nonzero(as_tuple=True)
    alone_scene = replace(batch.scene, **{name: value[scene_of_row] for name, value in vars(batch.scene).items()})
    track = batch.agents.track[scene_of_row, slot][:, None]
    reachability = batch.agents.reachability[scene_of_row, slot][:, None]
    alone_agents = Agents(track=track, mask=torch.ones_like(track, dtype=torch.bool), reachability=reachability)
    with torch.no_grad():
        shared = best_seconds(lambda: module.model.scene_encoder(batch.scene, batch.agents), rounds)
        alone = best_seconds(lambda: module.model.scene_encoder(alone_scene, alone_agents), rounds)
    print(
        f"one encoding for the agents of a scene: {1000 * shared:.1f} ms; "
        f"baseline, an encoding per agent: {1000 * alone:.1f} ms, {alone / shared:.2f} x"
    )


def best_seconds(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    main()
