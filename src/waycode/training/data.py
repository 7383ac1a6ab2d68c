"""Training examples from datasets: which scenes and agents make up step k is a pure function of the seed and k.

A run that was interrupted therefore goes on with exactly the batches that it would have seen.
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
from waycode.dataset.workers import run_tasks
from waycode.features import Batch, Example, collate, extract
from waycode.features.mirror import mirror
from waycode.scene import Scene, TrackType
from waycode.scene.manoeuvre import Manoeuvre, classify
from waycode.training.alternatives import another_way
from waycode.training.checks import check_fit
from waycode.training.config import TrainingConfig
from waycode.training.errors import TrainingError

MIN_FUTURE_STEPS = 30  # of the modelled agents' future must be observed
OFF_MAP_M = 15.0  # from every lane
STANDING_SHARE = 0.3  # how often a standing agent is drawn, compared with one of another manoeuvre
SCENES_PER_TASK = 100
SCENES_PER_RUN, SCENES_PER_WINDOW = 50, 1600  # a dataset keeps files with 2,048 scenes open

AgentKind = tuple[int, Manoeuvre]  # the type of road user, and what it does
SceneAgents = list[tuple[int, AgentKind]]  # the tracks of a scene that can be modelled


@dataclass(frozen=True)
class AgentIndex:
    """The agents of every scene that can be modelled, and how often each is to be drawn."""

    starts: Int[np.ndarray, " scenes_plus_1"]
    tracks: Int[np.ndarray, " agents"]
    weights: Float[np.ndarray, " agents"]

    def draw(self, scene: int, count: int, rng: np.random.Generator) -> list[int]:
        """Different agents of a scene, by weight; all of them if there are no more."""
        part = slice(self.starts[scene], self.starts[scene + 1])
        tracks, weights = self.tracks[part], self.weights[part]
        chosen = rng.choice(len(tracks), size=min(count, len(tracks)), replace=False, p=weights / weights.sum())
        return [int(track) for track in tracks[np.sort(chosen)]]


def index_agents(
    dataset: Dataset, *, workers: int = 1, on_scenes: Callable[[int], None] = lambda count: None
) -> AgentIndex:
    """Finds what every agent does and balances manoeuvres and kinds of road users: rare ones are drawn more often."""
    count = len(dataset)
    parts = {
        str(start): range(start, min(start + SCENES_PER_TASK, count)) for start in range(0, count, SCENES_PER_TASK)
    }
    tasks = {name: (dataset.folder, scenes) for name, scenes in parts.items()}
    agents: dict[str, list[SceneAgents]] = {}
    for name, part in run_tasks(tasks, _agents_of, workers=workers if len(tasks) > 1 else 1):
        agents[name] = part
        on_scenes(len(part))
    found = [scene for name in parts for scene in agents[name]]
    weights = balancing_weights([kind for scene in found for _, kind in scene])
    return AgentIndex(
        starts=np.cumsum([0] + [len(scene) for scene in found]),
        tracks=np.array([track for scene in found for track, _ in scene], np.int64),
        weights=weights,
    )


def balancing_weights(kinds: Sequence[AgentKind]) -> Float[np.ndarray, " agents"]:
    """Kinds are drawn with the square root of their number, those that stand still more seldom."""
    seen = Counter(kinds)
    share = {kind: (STANDING_SHARE if kind[1] == Manoeuvre.STANDING else 1.0) for kind in seen}
    return np.array([share[kind] / np.sqrt(seen[kind]) for kind in kinds], np.float64)


def modelled_agents(scene: Scene) -> list[int]:
    """Tracks of a known type that are seen now and for long enough afterwards."""
    future = scene.tracks.valid[:, scene.current_step + 1 :]
    now = scene.tracks.valid[:, scene.current_step]
    known = scene.tracks.types != TrackType.OTHER
    enough = max(1, min(MIN_FUTURE_STEPS, future.shape[1]))  # a scene may end earlier
    return [int(track) for track in np.flatnonzero(now & known & (future.sum(axis=1) >= enough))]


def leaves_map(scene: Scene, agents: Sequence[int]) -> Bool[np.ndarray, " agents"]:
    """Which vehicles were seen last where the map has no lanes any more: it was cut off around somebody else.

    Nobody can say where the road goes there, and a model that is asked to learns not to trust the map.
    """
    if len(scene.map.lanes) == 0:
        return np.zeros(len(agents), np.bool_)
    chosen, tracks = np.asarray(agents, np.int64), scene.tracks
    last = tracks.num_steps - 1 - tracks.valid[chosen, ::-1].argmax(axis=1)
    last_m = tracks.position_m[chosen, last].astype(np.float64)
    away = scene.map.lanes.graph.distance_to_nearest_m(last_m) > OFF_MAP_M
    return away & (tracks.types[chosen] == TrackType.VEHICLE)


def _agents_of(task: tuple[Path, range]) -> list[SceneAgents]:
    """Per scene: its agents, each with its type and manoeuvre."""
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
    """Examples by (scene, seed); the seed chooses the agents, who does something else, and whether it is mirrored."""

    def __init__(self, dataset: Dataset, agents: AgentIndex, config: TrainingConfig):
        self.dataset, self.agents, self.config = dataset, agents, config

    def __getitem__(self, key: tuple[int, int]) -> Example:
        scene, seed = key
        rng = np.random.default_rng(seed)
        chosen = self.agents.draw(scene, self.config.agents_per_scene, rng)
        recorded = self.dataset[scene]
        example = extract(recorded, chosen, config=self.config.model.features)
        if self.config.alternative_share:
            example = self._otherwise(example, recorded, chosen, rng)
        return mirror(example) if self.config.mirror and rng.random() < 0.5 else example

    def _otherwise(self, example: Example, scene: Scene, agents: list[int], rng: np.random.Generator) -> Example:
        """The example with other futures for some of the cars."""
        future, valid = example.future_m.copy(), example.future_valid.copy()
        for row, agent in enumerate(agents):
            if rng.random() < self.config.alternative_share:
                way = another_way(scene, agent, rng, steps=future.shape[1])
                if way is not None:
                    future[row], valid[row] = way, True
        return replace(example, future_m=future, future_valid=valid)


class StepSampler(data.Sampler[list[tuple[int, int]]]):
    """The (scene, seed) keys of every step, in passes over shuffled scenes; starts anywhere.

    Neighbouring scenes stay within a window of the pass, because they lie in the same file: opening a file costs more
    than reading a scene of it.
    """

    def __init__(self, scenes: Sequence[int], config: TrainingConfig, first_step: int = 0):
        self.scenes, self.config, self.first_step = np.asarray(scenes), config, first_step

    def __len__(self) -> int:
        return self.config.steps  # of the whole run: the trainer counts from its beginning, also when it is resumed

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
    """The scenes in random order: runs of neighbours are shuffled, then the scenes of many runs among each other."""
    run_of_scene = np.arange(len(scenes)) // SCENES_PER_RUN
    order = np.argsort(rng.permutation(run_of_scene[-1] + 1)[run_of_scene], kind="stable")
    window = np.arange(len(scenes)) // SCENES_PER_WINDOW
    return scenes[order[np.lexsort([rng.random(len(scenes)), window])]]


class TimedLoader:
    """Batches of a loader; adds up how long they were waited for."""

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
    """Training batches; the trainer's step says where to go on."""

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
            raise TrainingError(f"{folder} has no road user that is seen now and for {MIN_FUTURE_STEPS} steps after")

    def take_waited_s(self) -> float:
        """Seconds that were spent waiting for batches since the last call."""
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
