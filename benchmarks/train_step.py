"""Samples per second of a recipe's training step, where the time goes, and how long it waits for data.

python benchmarks/train_step.py [FOLDER] [--recipe small] [--steps 60] [--threads 2]
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from waycode.demo import bundled_dataset
from waycode.features import Agents, Batch, SceneFeatures
from waycode.model.bottleneck import prefix_probabilities
from waycode.training.config import RECIPES
from waycode.training.data import SceneData
from waycode.training.losses import beta_nll, weighted_mean
from waycode.training.module import AutoencoderModule

TARGET_SAMPLES_PER_S = 150
TARGET_WAITING_SHARE = 0.10
WARM_UP_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a dataset; left out: the bundled sample")
    parser.add_argument("--recipe", default="small", choices=sorted(RECIPES))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--workers", type=int, default=1, help="processes that read scenes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = replace(RECIPES[options.recipe](), steps=WARM_UP_STEPS + options.steps)
    folder = options.folder or bundled_dataset().folder
    data = SceneData(folder, config, workers=options.workers)
    module = AutoencoderModule(config)
    print(f"{options.recipe}: {module.model.num_parameters:,} parameters; {options.threads} threads; {folder}")
    report_steps(module, data)
    batch = next(iter(SceneData(folder, replace(config, steps=1), workers=0).train_dataloader()))
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


def report_steps(module: AutoencoderModule, data: SceneData) -> None:
    """Whole steps as in training (without Lightning), batches made by worker processes."""
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


def make_step(module: AutoencoderModule, batch: Batch, optimizer: torch.optim.Optimizer) -> None:
    loss = module.training_step(batch, 0)["loss"]
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(module.parameters(), module.config.clip_norm)
    optimizer.step()


def report_parts(module: AutoencoderModule, batch: Batch, *, rounds: int) -> None:
    """One batch, part by part: forward in turn, backward as a whole, the optimiser."""
    watch, model, config = Stopwatch(), module.model, module.config
    optimizer = module.configure_optimizers()["optimizer"]
    future, valid = batch.future_m[batch.agents.mask], batch.future_valid[batch.agents.mask]
    for _ in range(rounds):
        with watch.part("scene encoder, forward"):
            tokens = model.scene_encoder(batch.scene, batch.agents)
        with watch.part("trajectory encoder, forward"):
            latents = model.apply_bottleneck(model.encode(future, valid, tokens), 0.3)
        with watch.part("decoder, forward"):
            mean, std = model.decoder.decode_all_prefixes(latents, model.decoder.embed_scene(tokens))
        with watch.part("loss"):
            weights = prefix_probabilities(config.model.num_tokens).expand(len(future), -1)
            loss = weighted_mean(beta_nll(mean, std, future, valid, beta=config.beta), weights)
        with watch.part("backward"):
            optimizer.zero_grad()
            torch.autograd.backward(loss)
        with watch.part("clipping and optimiser"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            optimizer.step()
    print_parts(watch)


def print_parts(watch: Stopwatch) -> None:
    medians = {name: statistics.median(seconds) for name, seconds in watch.seconds.items()}
    whole = sum(medians.values())
    for name, seconds in medians.items():
        print(f"  {name:28s} {1000 * seconds:7.1f} ms  {seconds / whole:5.1%}")


def report_sharing(module: AutoencoderModule, batch: Batch, *, rounds: int) -> None:
    """The scene encoder over scenes with all their agents, beside each agent with a copy of its scene."""
    alone_scene, alone_agents = one_scene_per_agent(batch)
    shared = best_seconds(lambda: module.model.scene_encoder(batch.scene, batch.agents), rounds)
    alone = best_seconds(lambda: module.model.scene_encoder(alone_scene, alone_agents), rounds)
    print(
        f"embeddings shared by the agents of a scene: scene encoder {1000 * shared:.1f} ms; "
        f"baseline, a scene per agent: {1000 * alone:.1f} ms, {alone / shared:.2f} x"
    )


def one_scene_per_agent(batch: Batch) -> tuple[SceneFeatures, Agents]:
    scene_of_row, slot = batch.agents.mask.nonzero(as_tuple=True)
    scene = replace(batch.scene, **{name: value[scene_of_row] for name, value in vars(batch.scene).items()})
    track = batch.agents.track[scene_of_row, slot][:, None]
    reachability = batch.agents.reachability[scene_of_row, slot][:, None]
    return scene, Agents(track=track, mask=torch.ones_like(track, dtype=torch.bool), reachability=reachability)


def best_seconds(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    main()
