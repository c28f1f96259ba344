"""Slices of the log that are about to be sent: are they in memory?

sendfile and reading block the event loop while the disk is read, so what is not in the page cache is first read
through in a thread. Whether it is there is asked of the system at some of its pages (preadv2 with RWF_NOWAIT, which
fails instead of waiting); the disk reads ahead further than from one of them to the next. Where the system cannot say,
as for files in memory, nothing is done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from sparklog.base.fs import ReadFile
from sparklog.log.slice import LogSlice

ASKED_EVERY_BYTES = 128 << 10
READ_BYTES = 1 << 20


async def bring_in(parts: Iterable[bytes | LogSlice]) -> None:
    """Return once the slices are, most probably, in the page cache. Raises KafkaStorageError."""
    cold = [part for part in parts if isinstance(part, LogSlice) and not is_cached(part)]
    if cold:
        await asyncio.to_thread(_read_through, cold)


def is_cached(part: LogSlice) -> bool:
    """False: reading it would wait for the disk."""
    fd = descriptor(part.file)
    if fd is None or not part.size:
        return True
    byte = (bytearray(1),)
    last = part.position + part.size - 1
    try:
        for position in range(part.position, last, ASKED_EVERY_BYTES):
            os.preadv(fd, byte, position, os.RWF_NOWAIT)
        os.preadv(fd, byte, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # not known here, or the file is closed: whoever sends it will see
        return True
    return True


def descriptor(file: ReadFile) -> int | None:
    """None: the file is in memory."""
    try:
        return int(file.fileno())  # type: ignore[attr-defined] # whatever a broker reads it can also write
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
