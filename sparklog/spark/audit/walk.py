"""Walks all batches of a `.log` file, in tables of headers, and continues after damage if possible.

If bytes are no batch, the offset index may name the position of a later batch. The walk continues there, if the batch
at that position is the one that the index names. Memory: a piece of `PIECE_BYTES` and a table of `TABLE_ROWS`, whatever
a header claims. Python computes one CRC for each batch; a compiled loop reads the headers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.records import header_kernels as h
from sparklog.records.batch import CONTROL_BIT, HEADER_SIZE, MAGIC

PIECE_BYTES = 8 << 20
TABLE_ROWS = 1 << 16
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Read = Callable[[int, int], bytes]
"""Given a position and a size, returns that many bytes; fewer only at the end of the file."""

_V2_CRC_FROM, _LEGACY_CRC_FROM = 21, 16


class CheckedBatches(NamedTuple):
    """Whole batches, one after the other."""

    table: Ints
    """As `header_kernels` fills it; positions are those in the file."""
    is_right: Bools
    """Whether the CRC of each batch is right."""
    markers: Ints
    """How each batch ends a transaction: ABORT, COMMIT or NO_MARKER of `header_kernels`."""


class Damage(NamedTuple):
    """Bytes that are no batch, from `position` on."""

    position: int
    reason: str
    is_end: bool
    """Whether no batch was found after the damage."""


Found = CheckedBatches | Damage


def walk_all(read: Read, size: int, indexed: Ints) -> Iterator[Found]:
    """Yield all batches and damage in the first `size` bytes.

    indexed: rows of offset and position, from the offset index
    Raises OSError.
    """
    position = 0
    while position < size:
        stopped = yield from _walk_from(read, position, size)
        if stopped is None:
            return
        position, reason = stopped
        behind = _find_behind(read, position, size, indexed)
        yield Damage(position, reason, behind is None)
        if behind is None:
            return
        position = behind


def _walk_from(read: Read, start: int, size: int) -> Generator[Found, None, tuple[int, str] | None]:
    """Yield batches to the end (return None), or to bytes that are no batch (return their position and the reason)."""
    table = np.empty((TABLE_ROWS, h.COLUMNS), np.int64)
    while start < size:
        piece = read(start, min(PIECE_BYTES, size - start))
        if not piece:
            return None  # the file has been truncated meanwhile
        data = np.frombuffer(piece, np.uint8)
        at = 0
        while True:
            rows, stop, why = h.scan_headers(data, at, table)
            if rows:
                yield _check_crcs(piece, table[:rows], start)
            at = stop
            if why == h.NO_BATCH:
                return start + at, "no batch begins like this"
            if why == h.CUT_OFF:
                break
        start += at
        if start < size and at == 0:
            large = _large_batch(read, start, size, len(piece), table[0])
            if large is None:
                return start, "cut off"
            yield large
            start += int(large.table[0, h.SIZE])
    return None


def _check_crcs(piece: bytes, table: Ints, start: int) -> CheckedBatches:
    view = memoryview(piece)
    computed = [
        crc32c(view[position + _V2_CRC_FROM : position + size])
        if magic == MAGIC
        else zlib.crc32(view[position + _LEGACY_CRC_FROM : position + size])
        for position, size, magic in table[:, (h.POSITION, h.SIZE, h.MAGIC)].tolist()
    ]
    is_right = np.array(computed, np.int64) == table[:, h.CRC]
    copied = table.copy()
    copied[:, h.POSITION] += start
    return CheckedBatches(copied, is_right, _find_markers(piece, table))


def _find_markers(piece: bytes, table: Ints) -> Ints:
    markers = np.full(len(table), h.NO_MARKER, np.int64)
    is_control = (table[:, h.MAGIC] == MAGIC) & (table[:, h.ATTRIBUTES] & CONTROL_BIT != 0)
    if is_control.any():
        found = np.empty(int(is_control.sum()), np.int64)
        h.read_marker_types(np.frombuffer(piece, np.uint8), np.ascontiguousarray(table[is_control]), found)
        markers[is_control] = found
    return markers


def _large_batch(read: Read, start: int, size: int, seen: int, row: Ints) -> CheckedBatches | None:
    """Return a batch that is larger than a piece; None if the file ends within it."""
    if seen < HEADER_SIZE or start + int(row[h.SIZE]) > size:
        return None
    compute, since = (crc32c, _V2_CRC_FROM) if row[h.MAGIC] == MAGIC else (zlib.crc32, _LEGACY_CRC_FROM)
    crc, position, end = 0, start + since, start + int(row[h.SIZE])
    while position < end:
        data = read(position, min(PIECE_BYTES, end - position))
        if not data:
            return None
        crc = compute(data, crc)
        position += len(data)
    table = row.reshape(1, -1).copy()
    table[0, h.POSITION] = start
    return CheckedBatches(table, np.array([crc == row[h.CRC]]), np.array([h.NO_MARKER]))


def _find_behind(read: Read, position: int, size: int, indexed: Ints) -> int | None:
    """Return the first indexed position after `position` at which the batch that the index names begins."""
    table = np.empty((1, h.COLUMNS), np.int64)
    for offset, behind in indexed[np.searchsorted(indexed[:, 1], position, side="right") :].tolist():
        if behind >= size:
            return None
        header = read(behind, HEADER_SIZE)
        rows, _, why = h.scan_headers(np.frombuffer(header, np.uint8), 0, table)
        whole = table[0, h.SIZE] <= size - behind
        if (rows or why == h.CUT_OFF) and len(header) == HEADER_SIZE and whole and table[0, h.LAST_OFFSET] == offset:
            return cast(int, behind)
    return None


def read_index(content: bytes, layout: Any) -> Ints:
    """Return the entries of an index file as rows of two numbers, without the zeros at its end.

    Kafka preallocates the index of the segment that is still written.
    """
    dtype = np.dtype(layout)
    written = -(-len(content.rstrip(b"\0")) // dtype.itemsize)
    entries = np.frombuffer(content, dtype, min(written, len(content) // dtype.itemsize))
    return np.stack([entries[name].astype(np.int64) for name in dtype.names or ()], axis=1)
