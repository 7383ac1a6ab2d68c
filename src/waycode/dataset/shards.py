"""Open shards: Parquet files that any number of threads read, each checked once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.parquet as pq

from waycode.dataset.files import DatasetError, describe, sha256_of_file

MAX_OPEN_ROW_GROUPS = 2048  # an open shard's footer takes about 60 kB of memory per scene: 120 MB at most


class OpenShards:
    """The shards of a folder, opened on demand.

    Two threads must not use one Parquet reader at the same time: Arrow would crash. A thread therefore takes a reader
    out of the idle ones for as long as it reads, and opens another if none is idle; no thread waits for the disk with
    the lock in its hands. The readers that were idle for longest are closed, which bounds memory and open files.

    Args:
        folder: of the shards.
        checksums: SHA-256 by the file's name; a shard that has another is refused. Empty: no shard is checked.
    """

    def __init__(self, folder: Path, checksums: dict[str, str]):
        self.folder, self.checksums = folder, checksums
        self._verified: set[str] = set()
        self._idle: list[tuple[str, pq.ParquetFile]] = []  # the most recently used last
        self._lock = Lock()

    @contextmanager
    def reader(self, name: str) -> Iterator[pq.ParquetFile]:
        """A reader of a shard for this thread alone. Whatever goes wrong within is a `DatasetError` with the file."""
        path = self.folder / name
        with unreadable(path, hint="`waycode data check` lists the damaged shards"):
            reader = self._take(name)
            if reader is None:
                self._verify(path)
                # Not memory-mapped: that is no faster, and a file truncated by another process would crash this one.
                # Not buffered by Arrow's own threads either: row groups are small.
                reader = pq.ParquetFile(path, page_checksum_verification=True)
            yield reader
        # After an error the reader is dropped: its state is unknown.
        self._give_back(name, reader)

    def _take(self, name: str) -> pq.ParquetFile | None:
        with self._lock:
            for place in reversed(range(len(self._idle))):
                if self._idle[place][0] == name:
                    return self._idle.pop(place)[1]
        return None

    def _give_back(self, name: str, reader: pq.ParquetFile) -> None:
        closed = []
        with self._lock:
            self._idle.append((name, reader))
            open_groups = sum(file.metadata.num_row_groups for _, file in self._idle)
            while open_groups > MAX_OPEN_ROW_GROUPS and len(self._idle) > 1:
                closed.append(self._idle.pop(0)[1])
                open_groups -= closed[-1].metadata.num_row_groups
        for file in closed:
            file.close()

    def _verify(self, path: Path) -> None:
        """Compares the checksum, once per shard."""
        if self.checksums and path.name not in self._verified:
            if sha256_of_file(path) != self.checksums[path.name]:
                raise ValueError("it does not have the checksum that dataset.json gives")
            self._verified.add(path.name)

    def __getstate__(self) -> dict[str, Any]:  # other processes open the files themselves
        return {**self.__dict__, "_idle": [], "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


@contextmanager
def unreadable(path: Path, *, hint: str) -> Iterator[None]:
    """Turns whatever is raised within into a `DatasetError` that names the file.

    Damage shows itself in errors of many kinds, Arrow's, numpy's and our own: there is no list of them to catch.

    Args:
        path: the file that is read.
        hint: what the user can do, the end of the sentence.
    """
    try:
        yield
    except DatasetError:
        raise
    except Exception as error:
        raise DatasetError(f"{path} cannot be read ({describe(error)}): {hint}") from error
