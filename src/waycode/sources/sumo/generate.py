"""Generates datasets: shards with scenes of all families, balanced by manoeuvre."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from waycode.dataset.dataset import DatasetInfo, ShardContents, write_dataset
from waycode.scene import Scene
from waycode.scene.manoeuvre import Manoeuvre
from waycode.sources.base import SourceError
from waycode.sources.sumo.episode import GENERATOR_VERSION, EpisodeSeed, EpisodeWindow, run_episode
from waycode.sources.sumo.families import Family
from waycode.sources.sumo.recording import SUMO_STEP_S
from waycode.sources.sumo.windows import candidate_windows, cut_scene, rejection_reason

_SCENES_PER_SHARD = 50
_MIN_GAP_S = 4.0  # between two windows of one episode with the same ego
_MAX_ATTEMPTS = 8  # episodes per family and shard


@dataclass(frozen=True, kw_only=True)
class SumoSettings:
    """Settings of a generated dataset."""

    num_scenes: int = 2000
    seed: int = 0
    history_s: float = 1.0  # before the current step
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
        return round(self.history_s / SUMO_STEP_S)

    @property
    def future_steps(self) -> int:
        return round(self.duration_s / SUMO_STEP_S)


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
    """Writes a dataset of generated scenes. The same settings give the same bytes for any number of workers.

    Args:
        out: folder of the dataset. A run that was interrupted continues there.
        settings: what to generate.
        workers: number of processes.
        on_shard: called with the number of scenes of each finished shard.
    """
    return write_dataset(
        out,
        _shards(settings),
        make=_make_shard,
        source="sumo",
        settings={**asdict(settings), "families": list(settings.families), "generator_version": GENERATOR_VERSION},
        workers=workers,
        on_shard=on_shard,
    )


def generate(settings: SumoSettings) -> Iterator[Scene]:
    """The scenes of `generate_dataset`, one at a time, without writing them."""
    for shard in _shards(settings):
        yield from _make_shard(shard).scenes


def _shards(settings: SumoSettings) -> list[_Shard]:
    starts = range(0, settings.num_scenes, _SCENES_PER_SHARD)
    return [
        _Shard(settings, index, min(_SCENES_PER_SHARD, settings.num_scenes - start))
        for index, start in enumerate(starts)
    ]


def _make_shard(shard: _Shard) -> ShardContents:
    """The scenes of one shard, in equal numbers from each family."""
    scenes: list[Scene] = []
    rejected: Counter[str] = Counter()
    chosen: Counter[Manoeuvre] = Counter()
    families = shard.settings.families
    for position, family in enumerate(families):
        # The remainder of an uneven division goes to other families in each shard.
        place = (position - shard.index) % len(families)
        wanted = shard.num_scenes // len(families) + (place < shard.num_scenes % len(families))
        for attempt in range(_MAX_ATTEMPTS):
            if wanted == 0:
                break
            seed = EpisodeSeed(family=family, numbers=(shard.settings.seed, shard.index, attempt))
            made = _scenes_of_episode(seed, shard.settings, wanted=wanted, chosen=chosen, rejected=rejected)
            scenes += made
            wanted -= len(made)
        if wanted:
            raise SourceError(
                f"family {family} gave too few good scenes in {_MAX_ATTEMPTS} episodes (shard {shard.index})"
            )
    return ShardContents(scenes, rejected)


def _scenes_of_episode(
    seed: EpisodeSeed, settings: SumoSettings, *, wanted: int, chosen: Counter[Manoeuvre], rejected: Counter[str]
) -> list[Scene]:
    """Up to `wanted` good scenes of one episode, each of the manoeuvre that is rarest so far.

    Args:
        seed: of the episode.
        settings: of the dataset.
        wanted: largest number of scenes.
        chosen: scenes of the shard by manoeuvre; updated here.
        rejected: rejected windows by reason; updated here.
    """
    episode = run_episode(seed, window_s=settings.history_s + settings.duration_s)
    waiting = candidate_windows(episode, history_steps=settings.history_steps, future_steps=settings.future_steps)
    rng = np.random.default_rng([*seed.numbers, len(waiting)])
    for windows in waiting.values():
        rng.shuffle(windows)
    dataset_seed, shard, _ = seed.numbers
    scenes: list[Scene] = []
    taken: list[EpisodeWindow] = []
    while waiting and len(scenes) < wanted:
        manoeuvre = min(waiting, key=lambda kind: (chosen[kind], str(kind)))
        window = waiting[manoeuvre].pop()
        if not waiting[manoeuvre]:
            del waiting[manoeuvre]
        if any(_too_close(window, other) for other in taken):
            continue
        place = chosen.total()  # in the shard
        scene = cut_scene(episode, window, scene_id=f"{seed.family}-{dataset_seed}-{shard:05d}-{place:02d}")
        reason = rejection_reason(scene)
        if reason is not None:
            rejected[reason] += 1
            continue
        scenes.append(scene)
        taken.append(window)
        chosen[manoeuvre] += 1
    return scenes


def _too_close(one: EpisodeWindow, other: EpisodeWindow) -> bool:
    """Whether two windows are nearly the same: the same ego at nearly the same time, or the same time."""
    gap_s = abs(one.current_step - other.current_step) * SUMO_STEP_S
    return gap_s < _MIN_GAP_S and (one.ego == other.ego or gap_s == 0)
