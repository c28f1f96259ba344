"""Loading of log slices into the page cache before they are sent.

sendfile and read block the event loop while the disk is read. So a thread first reads slices that are not in the page
cache. A slice is probed: some of its pages, closer together than the disk's read-ahead, are read with preadv2 and
RWF_NOWAIT, which fails instead of waiting; below 128 KiB only the last page. No slice is loaded if the system does not
support this, as for files in memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence

from sparklog.base.fs import ReadFile
from sparklog.log.slice import LogSlice

ASKED_EVERY_BYTES = 128 << 10
READ_BYTES = 1 << 20
Frame = Sequence[bytes | LogSlice]


async def bring_in(frame: Frame) -> None:
    """Load the log slices of a frame into the page cache, but not those whose bytes are in memory.

    The page cache may evict them at any time. Raises KafkaStorageError.
    """
    cold = [part for part in frame if isinstance(part, LogSlice) and not part.data and not is_cached(part)]
    if cold:
        await asyncio.to_thread(_read_through, cold)


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
