"""Files that are whole or not there at all, and folders that one run at a time writes to."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from waycode.scene.errors import DatasetError

LOCK_FILE = ".lock"
_UNFINISHED = ".*.part-*"  # what a killed run may leave behind


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Writes to a temporary file beside the path and puts it there in one step: no half-written file is ever seen."""
    temporary = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
        if os.name == "posix":
            _sync(path.parent)  # the file's new name, too, must survive a power cut
    except OSError as error:
        raise DatasetError(f"{path} could not be written ({error}): no part of it was left behind") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keeps other runs out of the folder; the system lifts the lock even when this process is killed."""
    path = folder / LOCK_FILE
    file = _lock(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def is_leftover(path: Path) -> bool:
    """Whether the file is one that a killed run left behind."""
    return path.name == LOCK_FILE or path.match(_UNFINISHED)


def remove_unfinished(folder: Path) -> None:
    """Removes what a killed run had begun to write; only for the folder's only writer."""
    for path in folder.glob(_UNFINISHED):
        path.unlink()


def sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock(path: Path) -> IO[str]:
    """Opens the file and locks it, or says who has the lock; not a wait, as the other run may take hours."""
    while True:
        try:
            file = path.open("a+")
        except OSError as error:
            raise DatasetError(f"{path.parent} cannot be written to ({error})") from error
        if not _try_lock(file):
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise DatasetError(
                f"{path.parent} is being written by another run (process {owner}): wait for it or choose another folder"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                return file
        file.close()  # the run that held the lock removed the file between our two steps: the lock is worth nothing


def _try_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no such locks; there, two runs at once are the user's to avoid
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(path: Path) -> None:
    """Waits until the file or folder is on the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
