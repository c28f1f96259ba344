"""Loading of log slices into memory before they are sent: small ones into the response, others into the page cache.

sendfile and read block the event loop while the disk is read. So a thread first reads slices that are not in the page
cache. A small slice is read with preadv2 and RWF_NOWAIT, which fails instead of waiting. A large slice is probed: some
of its pages, closer together than the disk's read-ahead, are read in the same way; below 128 KiB only the last page. No
slice is loaded if the system does not support this, as for files in memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence

from sparklog.base.fs import ReadFile
from sparklog.broker.apis.fetch import HELD_BYTES
from sparklog.log.slice import LogSlice

ASKED_EVERY_BYTES = 128 << 10
READ_BYTES = 1 << 20
JOINED_BYTES = 64 << 10
"""Maximum size of a slice that is read into the response and joined with its neighbours."""
Frame = Sequence[bytes | LogSlice]


async def bring_in(frame: Frame) -> Frame:
    """Return the frame with the bytes of small slices, after loading the others into the page cache.

    The page cache may evict them at any time. A slice whose file is too short stays. Raises KafkaStorageError.
    """
    parts: list[bytes | LogSlice] = []
    together: list[bytes | bytearray] = []
    cold: list[LogSlice] = []
    left = HELD_BYTES
    for part in frame:
        if not isinstance(part, LogSlice):
            together.append(part)
            continue
        if part.size < JOINED_BYTES and part.size <= left and (data := part.data or _read_cached(part)) is not None:
            left -= part.size
            together.append(data)
            continue
        if together:
            parts.append(b"".join(together))
            together = []
        parts.append(part)
        if not is_cached(part):
            cold.append(part)
    if together:
        parts.append(b"".join(together))
    if cold:
        await asyncio.to_thread(_read_through, cold)
    return parts


def _read_cached(part: LogSlice) -> bytes | bytearray | None:
    """Return the bytes of a slice; None if reading them would wait for the disk, or fails."""
    fd = descriptor(part.file)
    try:
        if fd is None:
            data: bytes | bytearray = part.file.read_at(part.position, part.size)
            return data if len(data) == part.size else None
        data = bytearray(part.size)
        return data if os.preadv(fd, (data,), part.position, os.RWF_NOWAIT) == part.size else None
    except OSError:
        return None


def is_cached(part: LogSlice) -> bool:
    """Return False if reading the slice would wait for the disk."""
    fd = descriptor(part.file)
    if fd is None or not part.size:
        return True
    byte = (bytearray(1),)
    last = part.position + part.size - 1
    try:
        for position in range(part.position, last, ASKED_EVERY_BYTES) if part.size > ASKED_EVERY_BYTES else ():
            os.preadv(fd, byte, position, os.RWF_NOWAIT)
        os.preadv(fd, byte, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # unsupported here, or the file is closed: sending it will report that
        return True
    return True


def descriptor(file: ReadFile) -> int | None:
    """Return the file descriptor; None if the file is in memory."""
    try:
        return int(file.fileno())  # type: ignore[attr-defined] # the broker's files are writable files, which have it
    except OSError:
        return None


def _read_through(parts: Iterable[LogSlice]) -> None:
    for part in parts:
        end = part.position + part.size
        try:
            for position in range(part.position, end, READ_BYTES):
                part.file.read_at(position, min(READ_BYTES, end - position))
        except OSError as error:
            raise part.disk.failed(error) from error
