"""The Waymo Open Motion Dataset, read from TFRecords of `Scenario` messages without TensorFlow.

A reference is a file and the byte offset of a record in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from waycode.scene import Scene
from waycode.sources.base import find_files, list_files, read_all, reading
from waycode.sources.womd.scenario import parse_scenario, scene_of
from waycode.sources.womd.tfrecord import read_record, record_offsets

__all__ = ["WomdSource", "read"]


@dataclass(frozen=True)
class WomdSource:
    """Scenes of TFRecord files."""

    paths: str | Path | Sequence[str | Path]  # files, and folders that are searched for names with `.tfrecord`

    @property
    def name(self) -> str:
        return "womd"

    def references(self) -> list[tuple[str, int]]:
        """(file, byte offset) of every record, and of every damaged place where a record should be."""
        found = find_files(self.paths, lambda name: ".tfrecord" in name, expected="*.tfrecord*")
        return list_files(
            found,
            lambda path: [(str(path), offset) for offset in record_offsets(path)],
            damaged=lambda path: (str(path), 0),
        )

    def read(self, reference: tuple[str, int]) -> Scene:
        """Reads the record at a byte offset. Raises `SourceError` that names the file and the offset."""
        path, offset = reference
        with reading(path), reading(f"{path}, record at byte {offset}"):
            return scene_of(parse_scenario(read_record(Path(path), offset)), source_name=self.name)


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[Scene]:
    """All scenes of TFRecord files or folders, one at a time."""
    return read_all(WomdSource(paths))
