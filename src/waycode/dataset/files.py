"""Files that are whole or absent, folders with one writer at a time, and JSON from anywhere."""

import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from waycode.scene.types import WaycodeError

LOCK_FILE = ".lock"
_YOUNG_S = 60.0  # age of a temporary folder below which it is not judged abandoned
_UNFINISHED = ".*.part-*"  # partly written files of a killed run


class DatasetError(WaycodeError):
    """A dataset that cannot be read, or cannot be written where it was asked for."""


def replace_file(path: Path, write: Callable[[Path], object], *, keep: Path | None = None) -> None:
    """Writes a file atomically: to a temporary file beside it, which is then renamed.

    Args:
        path: the file to write or replace.
        write: writes the content to the path that it is given.
        keep: new name of the replaced file, in the same folder; by default it is gone.
    """
    # The name cannot be guessed, so nobody can put a link there; names of 255 bytes must still fit.
    temporary = path.with_name(f".{path.name[:40]}.part-{secrets.token_hex(8)}")
    for abandoned in path.parent.glob(
        f".{glob.escape(path.name[:40])}.part-*"
    ):  # of a killed run; one file, one writer
        with suppress(OSError):
            abandoned.unlink(missing_ok=True)
    try:
        write(temporary)
        _sync(temporary)
        if keep is not None and path.exists():
            path.replace(keep)
        temporary.replace(path)
        if os.name == "posix":
            _sync(path.parent)  # the new name must survive a power cut too
    except OSError as error:
        raise DatasetError(f"{path} could not be written ({error}): no part of it was left behind") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder for temporary files of this process; removes those that killed processes left behind.

    Args:
        prefix: of the folder's name, the rest of which is random.
    """
    if os.name == "posix":  # elsewhere nothing tells whether a folder is in use
        _remove_abandoned(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as name, only_writer(Path(name)):
        yield Path(name)


def _remove_abandoned(prefix: str) -> None:
    """Removes our temporary folders that no process has locked; young ones may be about to be locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError, DatasetError):
            about = folder.lstat()
            is_ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
            if is_ours and time.time() - about.st_mtime > _YOUNG_S:
                with only_writer(folder):
                    shutil.rmtree(folder)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Locks the folder against other runs; the system releases the lock even if this process is killed."""
    path = folder / LOCK_FILE
    file = _lock(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def is_leftover(path: Path) -> bool:
    """Whether a killed run left the file behind."""
    return path.name == LOCK_FILE or path.match(_UNFINISHED)


def remove_unfinished(folder: Path) -> None:
    """Removes partly written files of a killed run; the caller must hold the lock."""
    for path in folder.glob(_UNFINISHED):
        path.unlink()


def safe_file_name(text: str) -> str:
    """At most 80 letters, digits, dots, dashes and underscores: an id may hold anything, also a path."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:80]


def parse_json(text: str | bytes) -> Any:
    """Parses JSON. Raises `ValueError` for whatever is wrong with it, also for values nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def describe(error: BaseException) -> str:
    """An error in one line of at most 300 characters; with its kind where the message alone says nothing."""
    text = " ".join(str(error).split())
    plain = isinstance(error, (WaycodeError, OSError)) or (type(error) is ValueError and text)
    return (text if plain else f"{type(error).__name__}: {text}".removesuffix(": "))[:300]


def sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock(path: Path) -> IO[str]:
    """Opens and locks the file. Raises an error that names the owner instead of waiting, which could take hours."""
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
        file.close()  # the previous owner removed the file between open and lock: this lock holds nothing


def _try_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no such locks; the user must avoid two runs at once
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(path: Path) -> None:
    """Flushes a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
