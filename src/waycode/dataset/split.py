"""Splits a dataset in two by scene ids: a scene that is held out once is held out in every dataset."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from waycode.dataset.dataset import Dataset, DatasetError, DatasetInfo, write_dataset
from waycode.dataset.workers import ShardContents

_SCENES_PER_SHARD = 32
_SIDES = {"kept": False, "held out": True}


@dataclass(frozen=True)
class _Part:
    folder: Path
    scenes: tuple[int, ...]


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
    sides = {name: [i for i in range(len(ids)) if is_held_out(ids[i], share) == held] for name, held in _SIDES.items()}
    infos = []
    for name, out in (("kept", kept), ("held out", held_out)):
        if not sides[name]:
            raise DatasetError(f"no scene of {folder} is {name} with a share of {share}: choose another share")
        infos.append(
            write_dataset(
                out,
                _parts(dataset.folder, sides[name]),
                make=_copy,
                source=dataset.info.source,
                settings={"split_of": dataset.info.settings_sha256, "share": share, "side": name},
                workers=workers,
                on_shard=on_shard,
            )
        )
    return infos[0], infos[1]


def _parts(folder: Path, scenes: list[int]) -> list[_Part]:
    starts = range(0, len(scenes), _SCENES_PER_SHARD)
    return [_Part(folder, tuple(scenes[start : start + _SCENES_PER_SHARD])) for start in starts]


def _copy(part: _Part) -> ShardContents:
    dataset = Dataset(part.folder)
    return ShardContents([dataset[scene] for scene in part.scenes])
