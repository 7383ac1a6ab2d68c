"""Makes datasets of generated traffic: shards of scenes over all families, balanced by manoeuvre."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from waycode.dataset.dataset import DatasetInfo, ShardContents, write_dataset
from waycode.scene import Scene
from waycode.scene.manoeuvre import Manoeuvre
from waycode.sources.base import SourceError
from waycode.sources.sumo.episode import GENERATOR_VERSION, EpisodeSeed, run_episode
from waycode.sources.sumo.families import Family
from waycode.sources.sumo.recording import STEP_S
from waycode.sources.sumo.windows import EpisodeArrays, Window, candidates, cut_scene, faults_of_window

SCENES_PER_SHARD = 50
MIN_GAP_S = 4.0  # between two windows of one episode with the same ego
MAX_ATTEMPTS = 8


@dataclass(frozen=True, kw_only=True)
class SumoSettings:
    """What a generated dataset is made of."""

    num_scenes: int = 2000
    seed: int = 0
    history_s: float = 1.0
    duration_s: float = 8.0  # the future after the current step: 8 s for open loop, 15 s for closed loop
    families: tuple[Family, ...] = tuple(Family)

    def __post_init__(self) -> None:
        if self.num_scenes < 1:
            raise SourceError(f"num_scenes is {self.num_scenes}, expected at least 1")
        if self.seed < 0:
            raise SourceError(f"seed is {self.seed}, expected 0 or more")
        if not 1.0 <= self.duration_s <= 30.0:
            raise SourceError(f"duration_s is {self.duration_s}, expected 1 to 30 seconds")
        if not 0.5 <= self.history_s <= 5.0:
            raise SourceError(f"history_s is {self.history_s}, expected 0.5 to 5 seconds")
        if not self.families:
            raise SourceError(f"families is empty; available: {', '.join(Family)}")

    @property
    def history_steps(self) -> int:
        return round(self.history_s / STEP_S)

    @property
    def future_steps(self) -> int:
        return round(self.duration_s / STEP_S)


@dataclass(frozen=True)
class _Shard:
    settings: SumoSettings
    index: int
    num_scenes: int


def generate_dataset(
    out: str | Path,
    *,
    settings: SumoSettings,
    workers: int = 1,
    on_shard: Callable[[int], None] = lambda num_scenes: None,
) -> DatasetInfo:
    """Writes a dataset of generated scenes; the same settings give the same bytes for any number of workers."""
    starts = range(0, settings.num_scenes, SCENES_PER_SHARD)
    shards = [
        _Shard(settings, index, min(SCENES_PER_SHARD, settings.num_scenes - start))
        for index, start in enumerate(starts)
    ]
    return write_dataset(
        out,
        shards,
        make=_make_shard,
        source="sumo",
        settings={**asdict(settings), "families": list(settings.families), "generator_version": GENERATOR_VERSION},
        workers=workers,
        on_shard=on_shard,
    )


def generate(settings: SumoSettings) -> Iterator[Scene]:
    """The scenes of `generate_dataset`, one after the other, without writing them."""
    for index, start in enumerate(range(0, settings.num_scenes, SCENES_PER_SHARD)):
        count = min(SCENES_PER_SHARD, settings.num_scenes - start)
        yield from _make_shard(_Shard(settings, index, count)).scenes


def _make_shard(shard: _Shard) -> ShardContents:
    """The scenes of one shard: as many from each family as can be, from episodes of its own."""
    scenes: list[Scene] = []
    rejected: Counter[str] = Counter()
    chosen: Counter[Manoeuvre] = Counter()
    families = shard.settings.families
    for position, family in enumerate(families):
        # A shard that does not divide evenly starts with another family than the one before it.
        place = (position - shard.index) % len(families)
        wanted = shard.num_scenes // len(families) + (place < shard.num_scenes % len(families))
        for attempt in range(MAX_ATTEMPTS):
            if wanted == 0:
                break
            seed = EpisodeSeed(family=family, numbers=(shard.settings.seed, shard.index, attempt))
            made = _scenes_of_episode(seed, shard.settings, wanted=wanted, chosen=chosen, rejected=rejected)
            scenes += made
            wanted -= len(made)
        if wanted:
            raise SourceError(
                f"family {family} gave too few good scenes in {MAX_ATTEMPTS} episodes (shard {shard.index})"
            )
    return ShardContents(scenes, rejected)


def _scenes_of_episode(
    seed: EpisodeSeed, settings: SumoSettings, *, wanted: int, chosen: Counter[Manoeuvre], rejected: Counter[str]
) -> list[Scene]:
    """Up to `wanted` good scenes of an episode, always of the manoeuvre that was chosen least so far."""
    episode = run_episode(seed, window_s=settings.history_s + settings.duration_s)
    arrays = EpisodeArrays.of(episode)
    waiting = candidates(episode, arrays, history_steps=settings.history_steps, future_steps=settings.future_steps)
    rng = np.random.default_rng([*seed.numbers, len(waiting)])
    for windows in waiting.values():
        rng.shuffle(windows)
    scenes: list[Scene] = []
    taken: list[Window] = []
    while waiting and len(scenes) < wanted:
        manoeuvre = min(waiting, key=lambda kind: (chosen[kind], str(kind)))
        window = waiting[manoeuvre].pop()
        if not waiting[manoeuvre]:
            del waiting[manoeuvre]
        if any(_too_close(window, other) for other in taken):
            continue
        scene = cut_scene(episode, arrays, window, scene_id=_scene_id(seed, chosen.total()))
        fault = faults_of_window(scene)
        if fault is not None:
            rejected[fault] += 1
            continue
        scenes.append(scene)
        taken.append(window)
        chosen[manoeuvre] += 1
    return scenes


def _too_close(one: Window, other: Window) -> bool:
    """Whether two windows would show nearly the same: the same ego, or the same moment."""
    gap_s = abs(one.current_step - other.current_step) * STEP_S
    return gap_s < MIN_GAP_S and (one.ego == other.ego or gap_s == 0)


def _scene_id(seed: EpisodeSeed, place: int) -> str:
    """The family, the dataset's seed, the shard, and the scene's place in it."""
    dataset_seed, shard, _ = seed.numbers
    return f"{seed.family}-{dataset_seed}-{shard:05d}-{place:02d}"
