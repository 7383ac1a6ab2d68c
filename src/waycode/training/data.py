"""Training examples from datasets. The scenes and agents of step k depend on the seed and k alone.

A resumed run hence continues with exactly the batches of an uninterrupted one.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lightning
import numpy as np
from jaxtyping import Float, Int
from torch.utils import data

from waycode.dataset.dataset import Dataset
from waycode.features import Batch, Example, collate, mirror
from waycode.scene.interaction import who_interacts
from waycode.scene.manoeuvre import Manoeuvre
from waycode.training.config import TrainingConfig, TrainingError, check_fit
from waycode.training.examples import PreparedExamples, prepare_examples

_STANDING_SHARE = 0.3  # weight of standing agents, compared with agents of other manoeuvres
_SCENES_PER_RUN, _SCENES_PER_WINDOW = 50, 1600  # shuffled in two stages: neighbouring scenes are in the same file

AgentKind = tuple[int, Manoeuvre]  # type of the track, and its manoeuvre


@dataclass(frozen=True)
class AgentIndex:
    """The agents of every scene that can be modelled, with sampling weights."""

    starts: Int[np.ndarray, " scenes_plus_1"]  # of each scene in the array below
    weights: Float[np.ndarray, " agents"]

    def draw(
        self, scene: int, count: int, rng: np.random.Generator
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Draws up to `count` different agents of a scene, by weight.

        Returns:
            Indices of the agents in their scene, ascending, and their importance: the inverse of the weight, with a
            mean of 1 over all agents as they are drawn.
        """
        weights = self.weights[self.starts[scene] : self.starts[scene + 1]]
        chosen = rng.choice(len(weights), size=min(count, len(weights)), replace=False, p=weights / weights.sum())
        return np.sort(chosen), self.weights.mean() / weights[np.sort(chosen)]


def index_agents(examples: PreparedExamples, *, balance: bool = True, alternative_draws: float = 1.0) -> AgentIndex:
    """Indexes the agents of prepared scenes.

    Args:
        examples: of the whole dataset.
        balance: whether weights balance manoeuvres and types of road users (ours), or are all equal.
        alternative_draws: factor of the weights of agents that have an alternative future (ours).
    """
    kinds = [examples.kinds(scene) for scene in range(len(examples))]
    flat = [kind for scene in kinds for kind in scene]
    starts = np.cumsum([0] + [len(scene) for scene in kinds])
    weights = balancing_weights(flat) if balance else np.ones(len(flat))
    if alternative_draws != 1:
        for scene, start in enumerate(starts[:-1]):
            weights[start + np.unique(examples[scene].alternative_agent)] *= alternative_draws
    return AgentIndex(starts=starts, weights=weights)


def balancing_weights(kinds: Sequence[AgentKind]) -> Float[np.ndarray, " agents"]:
    """Weights by which a kind is drawn in proportion to the square root of its number; standing agents less often."""
    seen = Counter(kinds)
    share = {kind: (_STANDING_SHARE if kind[1] == Manoeuvre.STANDING else 1.0) for kind in seen}
    return np.array([share[kind] / np.sqrt(seen[kind]) for kind in kinds], np.float64)


class Examples(data.Dataset[Example]):
    """Examples by (scene, seed); the seed decides on agents, alternative futures and mirroring."""

    def __init__(self, prepared: PreparedExamples, agents: AgentIndex, config: TrainingConfig):
        self.prepared, self.agents, self.config = prepared, agents, config

    def __getitem__(self, key: tuple[int, int]) -> Example:
        scene, seed = key
        rng = np.random.default_rng(seed)
        prepared = self.prepared[scene]
        if self.config.model.joint:
            first, _ = self.agents.draw(scene, 1, rng)
            count = int(rng.integers(2, max(2, self.config.agents_per_scene) + 1))
            position_m, valid = _in_scene_frame(prepared.example), prepared.example.future_valid
            chosen = who_interacts(position_m, valid, int(first[0]), count=count)
            importance = np.ones(len(chosen))
        else:
            chosen, importance = self.agents.draw(scene, self.config.agents_per_scene, rng)
        example, importance = prepared.example, importance.astype(np.float32)
        future, valid = example.future_m[chosen], example.future_valid[chosen]  # copies
        for row, agent in enumerate(chosen):
            others = np.flatnonzero(prepared.alternative_agent == agent)
            if len(others) and rng.random() < self.config.alternative_share:
                future[row], valid[row], importance[row] = prepared.alternative_m[rng.choice(others)], True, 0
        example = replace(
            example, agents=example.agents[chosen], reachability=example.reachability[chosen], future_m=future,
            future_valid=valid, importance=importance,
        )  # fmt: skip
        return mirror(example) if self.config.mirror and rng.random() < 0.5 else example


def _in_scene_frame(example: Example) -> Float[np.ndarray, "A T 2"]:
    """The futures of the agents in one frame."""
    x_m, y_m, heading_rad = example.track_pose[example.agents].T[:, :, None]  # each [A, 1]
    cos, sin = np.cos(heading_rad), np.sin(heading_rad)
    ahead, left = example.future_m[..., 0], example.future_m[..., 1]  # [A, T]
    return np.stack([x_m + cos * ahead - sin * left, y_m + sin * ahead + cos * left], axis=-1)


class StepSampler(data.Sampler[list[tuple[int, int]]]):
    """The (scene, seed) keys of every step from `first_step` on, in passes over shuffled scenes.

    Neighbouring scenes stay within a window of the pass, because they are in the same file, and opening a file costs
    more than reading a scene.

    Args:
        scenes: indices of the scenes to draw from.
        config: gives the seed, the number of steps and the scenes per batch.
        first_step: the first step to yield.
    """

    def __init__(self, scenes: Sequence[int], config: TrainingConfig, first_step: int = 0):
        self.scenes, self.config, self.first_step = np.asarray(scenes), config, first_step

    def __len__(self) -> int:
        return self.config.steps  # of the whole run: the trainer counts from step 0 even if the run is resumed

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        size = min(self.config.scenes_per_batch, len(self.scenes))
        per_pass = len(self.scenes) // size
        for step in range(self.first_step, self.config.steps):
            shuffled = shuffle_nearby(self.scenes, np.random.default_rng([self.config.seed, step // per_pass]))
            begin = step % per_pass * size
            seeds = np.random.default_rng([self.config.seed, step, 1]).integers(2**62, size=size)
            chosen = shuffled[begin : begin + size]
            yield [(int(scene), int(seed)) for scene, seed in zip(chosen, seeds, strict=True)]


def shuffle_nearby(scenes: Int[np.ndarray, " n"], rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Shuffles runs of neighbouring scenes, then the scenes within windows of many runs."""
    run_of_scene = np.arange(len(scenes)) // _SCENES_PER_RUN
    order = np.argsort(rng.permutation(run_of_scene[-1] + 1)[run_of_scene], kind="stable")
    window = np.arange(len(scenes)) // _SCENES_PER_WINDOW
    return scenes[order[np.lexsort([rng.random(len(scenes)), window])]]


class TimedLoader:
    """Batches of a loader; reports the seconds spent waiting for each."""

    def __init__(self, loader: data.DataLoader[Batch], on_wait: Callable[[float], None]):
        self.loader, self.on_wait = loader, on_wait

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        began = time.perf_counter()
        for batch in self.loader:
            self.on_wait(time.perf_counter() - began)
            yield batch
            began = time.perf_counter()


def _leave_signals_to_the_run(worker: int) -> None:
    """Ignores requests to stop, which a terminal or a scheduler sends to the whole process group.

    The run answers them after the current step, for which it needs this worker; it ends its workers itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class SceneData(lightning.LightningDataModule):
    """Training batches, from the trainer's current step on.

    Args:
        folder: dataset to train on.
        config: of the run.
        workers: processes that read examples; 0 reads them in this process. One more prepares them.
        cache: folder of prepared examples; by default that of `training.examples`.
        on_scenes: called with the number of scenes prepared, before the first step.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainingConfig,
        *,
        workers: int = 1,
        cache: Path | None = None,
        on_scenes: Callable[[int], None] = lambda count: None,
    ):
        super().__init__()
        self.dataset, self.config, self.workers = Dataset(folder), config, workers
        check_fit(self.dataset, config.model.features)
        self.prepared = prepare_examples(
            self.dataset, config.model.features, cache=cache, workers=max(1, workers + 1), on_scenes=on_scenes
        )
        self.agents = index_agents(self.prepared, balance=config.balance, alternative_draws=config.alternative_draws)
        self._waited_s = 0.0
        if len(self.agents.weights) == 0:
            raise TrainingError(f"{folder} has no road user that is observed at the current step and long enough after")

    def take_waited_s(self) -> float:
        """Seconds spent waiting for batches since the last call."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def train_dataloader(self) -> TimedLoader:
        has_agents = np.flatnonzero(np.diff(self.agents.starts) > 0)
        first_step = self.trainer.global_step if self.trainer is not None else 0
        loader: data.DataLoader[Batch] = data.DataLoader(
            Examples(self.prepared, self.agents, self.config),  # type: ignore[arg-type]
            batch_sampler=StepSampler(has_agents.tolist(), self.config, first_step),
            collate_fn=collate,
            num_workers=self.workers,
            prefetch_factor=4 if self.workers else None,
            persistent_workers=False,
            worker_init_fn=_leave_signals_to_the_run,
        )
        return TimedLoader(loader, self._add_wait)

    def _add_wait(self, seconds: float) -> None:
        self._waited_s += seconds
