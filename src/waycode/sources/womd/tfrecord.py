"""TFRecord framing: length (uint64), its masked CRC-32C, the payload, its masked CRC-32C; all little-endian."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from waycode.sources.base import SourceError

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_GZIP_MAGIC = b"\x1f\x8b\x08"
_CHUNK_BYTES = 1 << 20


def record_offsets(path: Path) -> list[int]:
    """Byte offsets of the records, in order. Reads the headers only.

    Damaged places are listed too; `read_record` reports what is wrong with them. After a damaged header the search
    continues at the next valid header, so that one bad byte does not hide the rest of the file.
    """
    checksum = _masked_crc32c()
    offsets: list[int] = []
    with _open(path) as file:
        size, offset = path.stat().st_size, 0
        while offset < size:
            offsets.append(offset)
            length = _record_length(file, offset, checksum)
            if length is None:
                _refuse_gzip(file, path, offset)
                offset = _next_header(file, offset + 1, size, checksum)
            else:
                offset += _HEADER.size + length + _FOOTER.size
    return offsets or [0]  # an empty file counts as one damaged record


def read_record(path: Path, offset: int) -> bytes:
    """The payload of the record at a byte offset. Both checksums are verified."""
    checksum = _masked_crc32c()
    place = f"{path}, record at byte {offset}"
    with _open(path) as file:
        size = path.stat().st_size
        if size - offset < _HEADER.size + _FOOTER.size:
            raise SourceError(f"{place}: the file is truncated or empty, it has {size} bytes in all")
        length = _record_length(file, offset, checksum)
        if length is None:
            _refuse_gzip(file, path, offset)
            raise SourceError(f"{place}: the length's checksum does not match, the record is corrupted")
        end = offset + _HEADER.size + length + _FOOTER.size
        if end > size:
            raise SourceError(f"{place}: the file is truncated, it ends at byte {size} but the record at byte {end}")
        file.seek(offset + _HEADER.size)
        payload = file.read(length)
        (expected,) = _FOOTER.unpack(file.read(_FOOTER.size))
    if checksum(payload) != expected:
        raise SourceError(f"{place}: the checksum of its {length} bytes does not match, the record is corrupted")
    return payload


def framed(payload: bytes) -> bytes:
    """A payload as a record."""
    checksum, length = _masked_crc32c(), struct.pack("<Q", len(payload))
    return length + _FOOTER.pack(checksum(length)) + payload + _FOOTER.pack(checksum(payload))


def _record_length(file: BinaryIO, offset: int, checksum: Callable[[bytes], int]) -> int | None:
    """The length in the header at a byte offset; None if the header is incomplete or its checksum is wrong."""
    file.seek(offset)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, expected = _HEADER.unpack(header)
    return int(length) if checksum(header[:8]) == expected else None


def _next_header(file: BinaryIO, start: int, size: int, checksum: Callable[[bytes], int]) -> int:
    """Offset of the first header with a valid checksum from `start` on; the file's size if there is none."""
    for chunk_start in range(start, size, _CHUNK_BYTES):
        file.seek(chunk_start)
        chunk = file.read(_CHUNK_BYTES + _HEADER.size - 1)
        # Records are smaller than 4 GiB: the upper half of the length is zero, which is rare elsewhere.
        zero = np.frombuffer(chunk, np.uint8) == 0
        last = len(chunk) - _HEADER.size + 1
        if last <= 0:
            break
        candidates = np.flatnonzero(np.all([zero[at : at + last] for at in (4, 5, 6, 7)], axis=0))
        for at in candidates.tolist():
            _, expected = _HEADER.unpack_from(chunk, at)
            if checksum(chunk[at : at + 8]) == expected:
                return int(chunk_start + at)
    return size


def _masked_crc32c() -> Callable[[bytes], int]:
    try:
        from crc32c import crc32c
    except ImportError as error:
        raise SourceError("reading TFRecords needs crc32c: run `pip install 'waycode[womd]'`") from error

    def masked(data: bytes) -> int:
        crc = crc32c(data)
        return int(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    return masked


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error}): expected a TFRecord file") from error


def _refuse_gzip(file: BinaryIO, path: Path, offset: int) -> None:
    file.seek(0)
    if offset == 0 and file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC:
        raise SourceError(f"{path} is compressed with gzip, expected a plain TFRecord: unpack it with `gunzip` first")
