"""Training examples from datasets. The scenes and agents of step k depend on the seed and k alone.

A resumed run hence continues with exactly the batches of an uninterrupted one.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lightning
import numpy as np
from jaxtyping import Bool, Float, Int
from torch.utils import data

from waycode.dataset.dataset import Dataset
from waycode.dataset.workers import map_tasks
from waycode.features import Batch, Example, collate, extract, mirror
from waycode.scene import Scene, TrackType
from waycode.scene.manoeuvre import Manoeuvre, classify
from waycode.training.alternatives import alternative_future
from waycode.training.config import TrainingConfig, TrainingError, check_fit

_MIN_OBSERVED_STEPS = 30  # of a modelled agent's future
_OFF_MAP_M = 15.0  # from the nearest lane
_STANDING_SHARE = 0.3  # weight of standing agents, compared with agents of other manoeuvres
_SCENES_PER_TASK = 100
_SCENES_PER_RUN, _SCENES_PER_WINDOW = 50, 1600  # a window fits in the files that a dataset keeps open: 2,048 scenes

AgentKind = tuple[int, Manoeuvre]  # type of the track, and its manoeuvre
SceneAgents = list[tuple[int, AgentKind]]  # the tracks of a scene that can be modelled


@dataclass(frozen=True)
class AgentIndex:
    """The agents of every scene that can be modelled, with sampling weights."""

    starts: Int[np.ndarray, " scenes_plus_1"]  # of each scene in the arrays below
    tracks: Int[np.ndarray, " agents"]  # index of the track in its scene
    weights: Float[np.ndarray, " agents"]

    def draw(self, scene: int, count: int, rng: np.random.Generator) -> list[int]:
        """Draws up to `count` different agents of a scene, by weight."""
        part = slice(self.starts[scene], self.starts[scene + 1])
        tracks, weights = self.tracks[part], self.weights[part]
        chosen = rng.choice(len(tracks), size=min(count, len(tracks)), replace=False, p=weights / weights.sum())
        return [int(track) for track in tracks[np.sort(chosen)]]


def index_agents(
    dataset: Dataset, *, workers: int = 1, on_scenes: Callable[[int], None] = lambda count: None
) -> AgentIndex:
    """Indexes the agents of a dataset; the weights balance manoeuvres and types of road users.

    Args:
        dataset: all its scenes are read.
        workers: number of processes.
        on_scenes: called with the number of scenes of each finished part.
    """
    count = len(dataset)
    parts = [range(start, min(start + _SCENES_PER_TASK, count)) for start in range(0, count, _SCENES_PER_TASK)]
    tasks = [(dataset.folder, part) for part in parts]
    found: list[SceneAgents] = []
    for part in map_tasks(_agents_of, tasks, workers=workers if len(tasks) > 1 else 1):
        found += part
        on_scenes(len(part))
    return AgentIndex(
        starts=np.cumsum([0] + [len(scene) for scene in found]),
        tracks=np.array([track for scene in found for track, _ in scene], np.int64),
        weights=balancing_weights([kind for scene in found for _, kind in scene]),
    )


def balancing_weights(kinds: Sequence[AgentKind]) -> Float[np.ndarray, " agents"]:
    """Weights by which a kind is drawn in proportion to the square root of its number; standing agents less often."""
    seen = Counter(kinds)
    share = {kind: (_STANDING_SHARE if kind[1] == Manoeuvre.STANDING else 1.0) for kind in seen}
    return np.array([share[kind] / np.sqrt(seen[kind]) for kind in kinds], np.float64)


def modelled_agents(scene: Scene) -> list[int]:
    """Tracks of a known type that are observed at the current step and for long enough after it."""
    future = scene.tracks.valid[:, scene.current_step + 1 :]
    now = scene.tracks.valid[:, scene.current_step]
    known = scene.tracks.types != TrackType.OTHER
    enough = max(1, min(_MIN_OBSERVED_STEPS, future.shape[1]))  # a scene may be shorter
    return [int(track) for track in np.flatnonzero(now & known & (future.sum(axis=1) >= enough))]


def leaves_map(scene: Scene, agents: Sequence[int]) -> Bool[np.ndarray, " agents"]:
    """Which agents are vehicles whose last observed position is off the map.

    Maps are cropped around the ego. Training on futures beyond the crop would teach a model not to trust the map.
    """
    if len(scene.map.lanes) == 0:
        return np.zeros(len(agents), np.bool_)
    chosen, tracks = np.asarray(agents, np.int64), scene.tracks
    last = tracks.num_steps - 1 - tracks.valid[chosen, ::-1].argmax(axis=1)
    last_m = tracks.position_m[chosen, last].astype(np.float64)
    away = scene.map.lanes.graph.distance_to_nearest_m(last_m) > _OFF_MAP_M
    return away & (tracks.types[chosen] == TrackType.VEHICLE)


def _agents_of(task: tuple[Path, range]) -> list[SceneAgents]:
    """Agents of each scene, with type and manoeuvre."""
    folder, scenes = task
    dataset = Dataset(folder)
    found = []
    for index in scenes:
        scene = dataset[index]
        manoeuvres = classify(scene)
        seen = modelled_agents(scene)
        agents = [agent for agent, away in zip(seen, leaves_map(scene, seen), strict=True) if not away]
        found.append([(agent, (int(scene.tracks.types[agent]), manoeuvres[agent])) for agent in agents])
    return found


class Examples(data.Dataset[Example]):
    """Examples by (scene, seed); the seed decides on agents, alternative futures and mirroring."""

    def __init__(self, dataset: Dataset, agents: AgentIndex, config: TrainingConfig):
        self.dataset, self.agents, self.config = dataset, agents, config

    def __getitem__(self, key: tuple[int, int]) -> Example:
        scene, seed = key
        rng = np.random.default_rng(seed)
        chosen = self.agents.draw(scene, self.config.agents_per_scene, rng)
        recorded = self.dataset[scene]
        example = extract(recorded, chosen, config=self.config.model.features)
        if self.config.alternative_share:
            example = self._with_alternatives(example, recorded, chosen, rng)
        return mirror(example) if self.config.mirror and rng.random() < 0.5 else example

    def _with_alternatives(
        self, example: Example, scene: Scene, agents: list[int], rng: np.random.Generator
    ) -> Example:
        """The example with alternative futures for some of the cars."""
        future, valid = example.future_m.copy(), example.future_valid.copy()
        for row, agent in enumerate(agents):
            if rng.random() < self.config.alternative_share:
                alternative = alternative_future(scene, agent, rng, steps=future.shape[1])
                if alternative is not None:
                    future[row], valid[row] = alternative, True
        return replace(example, future_m=future, future_valid=valid)


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


class SceneData(lightning.LightningDataModule):
    """Training batches, from the trainer's current step on.

    Args:
        folder: dataset to train on.
        config: of the run.
        workers: processes that read scenes; 0 reads them in this process.
        on_scenes: called with the number of scenes indexed, before the first step.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainingConfig,
        *,
        workers: int = 1,
        on_scenes: Callable[[int], None] = lambda count: None,
    ):
        super().__init__()
        self.dataset, self.config, self.workers = Dataset(folder), config, workers
        check_fit(self.dataset, config.model.features)
        self.agents = index_agents(self.dataset, workers=max(1, workers + 1), on_scenes=on_scenes)
        self._waited_s = 0.0
        if len(self.agents.tracks) == 0:
            raise TrainingError(
                f"{folder} has no road user that is observed at the current step and for {_MIN_OBSERVED_STEPS} after it"
            )

    def take_waited_s(self) -> float:
        """Seconds spent waiting for batches since the last call."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def train_dataloader(self) -> TimedLoader:
        has_agents = np.flatnonzero(np.diff(self.agents.starts) > 0)
        first_step = self.trainer.global_step if self.trainer is not None else 0
        loader: data.DataLoader[Batch] = data.DataLoader(
            Examples(self.dataset, self.agents, self.config),  # type: ignore[arg-type]
            batch_sampler=StepSampler(has_agents.tolist(), self.config, first_step),
            collate_fn=collate,
            num_workers=self.workers,
            prefetch_factor=4 if self.workers else None,
            persistent_workers=False,
        )
        return TimedLoader(loader, self._add_wait)

    def _add_wait(self, seconds: float) -> None:
        self._waited_s += seconds
