"""WOMD as a source of scenes; a reference is a file and the byte where its record begins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waycode.scene import Scene
from waycode.sources.base import SourceError
from waycode.sources.womd.assemble import find_files
from waycode.sources.womd.scenes import scene_of
from waycode.sources.womd.schema import scenario_class
from waycode.sources.womd.tfrecord import read_record, record_offsets

SOURCE_NAME = "womd"


@dataclass(frozen=True)
class WomdSource:
    """TFRecord files, or folders with such files (`.tfrecord` in their names) anywhere below."""

    paths: str | Path | Sequence[str | Path]

    @property
    def name(self) -> str:
        return SOURCE_NAME

    def references(self) -> list[tuple[str, int]]:
        """(file, byte offset) of every record, and of every place where a record should be but is damaged."""
        found = find_files(self.paths, lambda name: ".tfrecord" in name, expected="*.tfrecord*")
        return [(str(path), offset) for path in found for offset in record_offsets(path)]

    def read(self, reference: tuple[str, int]) -> Scene:
        """Reads the record at a byte offset, or raises `SourceError` that names the file and the offset."""
        path, offset = reference
        place = f"{path}, record at byte {offset}"
        scenario = _parse(read_record(Path(path), offset), place)
        try:
            return scene_of(scenario, source_name=self.name)
        except (SourceError, ValueError, IndexError) as error:
            raise SourceError(f"{place}: {error}") from error


def read(paths: str | Path | Sequence[str | Path]) -> Iterator[Scene]:
    """All scenes of TFRecord files or folders, one at a time."""
    source = WomdSource(paths)
    return (source.read(reference) for reference in source.references())


def _parse(record: bytes, place: str) -> Any:
    message_class = scenario_class()
    from google.protobuf.message import DecodeError

    try:
        scenario = message_class.FromString(record)
        complaint = "" if scenario.tracks and scenario.timestamps_seconds else "it has no tracks or no time steps"
    except DecodeError as error:
        complaint = str(error)
    if complaint:
        raise SourceError(
            f"{place}: not a WOMD Scenario ({complaint}); the tf.Example form of WOMD is not read, "
            "take the files of its `scenario` folder"
        )
    return scenario
