"""Splits a dataset in two by scene ids: a scene that is held out once is held out in every dataset."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from waycode.dataset.dataset import Dataset, DatasetError, DatasetInfo, ShardContents, write_dataset
from waycode.dataset.seeds import seed_of

_SCENES_PER_SHARD = 32


@dataclass(frozen=True)
class _Part:
    """The task that copies one shard."""

    folder: Path  # of the dataset that is split
    scenes: tuple[int, ...]  # indices in it


def is_held_out(scene_id: str, share: float) -> bool:
    """Whether a scene is held out: a function of its id alone, true for about `share` of all ids."""
    digest = hashlib.sha256(scene_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < share


def split_dataset(
    folder: str | Path,
    *,
    kept: str | Path,
    held_out: str | Path,
    share: float,
    workers: int = 1,
    on_shard: Callable[[int], None] = lambda num_scenes: None,
) -> tuple[DatasetInfo, DatasetInfo]:
    """Copies the scenes of a dataset into two new ones.

    Args:
        folder: the dataset.
        kept: folder of the new dataset with the scenes that are not held out.
        held_out: folder of the new dataset with the others.
        share: of the scenes to hold out, between 0 and 1.
        workers: number of processes.
        on_shard: called with the number of scenes of every shard that is written.
    """
    if not 0 < share < 1:
        raise DatasetError(f"share is {share}, expected a number between 0 and 1")
    dataset = Dataset(folder)
    ids = dataset.ids()
    seed = seed_of(dataset.info)
    origin = {"split_of": dataset.info.settings_sha256} | ({} if seed is None else {"seed": seed})  # keeps its role
    infos = []
    for name, held, out in (("kept", False, kept), ("held out", True, held_out)):
        scenes = [index for index, scene_id in enumerate(ids) if is_held_out(scene_id, share) == held]
        if not scenes:
            raise DatasetError(f"no scene of {folder} is {name} with a share of {share}: choose another share")
        shards = [scenes[start : start + _SCENES_PER_SHARD] for start in range(0, len(scenes), _SCENES_PER_SHARD)]
        infos.append(
            write_dataset(
                out,
                [_Part(dataset.folder, tuple(shard)) for shard in shards],
                make=_copy,
                source=dataset.info.source,
                settings={**origin, "share": share, "side": name},
                workers=workers,
                on_shard=on_shard,
            )
        )
    return infos[0], infos[1]


def _copy(part: _Part) -> ShardContents:
    dataset = Dataset(part.folder)
    return ShardContents([dataset[scene] for scene in part.scenes])
