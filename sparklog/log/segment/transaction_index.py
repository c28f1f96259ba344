"""The transaction index of a segment (`.txnindex`): the aborted transactions whose markers lie in it.

    position  size  field; entries follow one another in the order of their markers
    0         2     version: 0
    2         8     producer id
    10        8     first offset of the transaction
    18        8     last offset: that of the marker
    26        8     last stable offset, as it became with the marker

As org.apache.kafka.storage.internals.log.TransactionIndex. A segment without aborted transactions has no such file, or
an empty one.

A search may end at the last stable offset of an entry: a transaction that is aborted later begins at or above it. The
entries of the active segment are written to the file at once, but not flushed: after an unclean stop, the indexes of
unflushed segments are built again from their batches.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Buffer

VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted; offsets in the partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int


def write_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the bytes of entries, to be appended to a file."""
    return b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)


def read_entries(data: Buffer) -> list[AbortedTransaction]:
    """Return the entries of a file. Raises CorruptRecord for a part of an entry, or one of another version."""
    if len(data) % ENTRY_SIZE:
        raise CorruptRecord(f"a transaction index of {len(data)} bytes: an entry has {ENTRY_SIZE}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptRecord(f"a transaction index of version {version}")
        entries.append(AbortedTransaction(*fields))
    return entries


class TransactionIndex:
    """The entries of one segment, in memory. Reads may run concurrently with one writer."""

    __slots__ = ("_data",)

    def __init__(self, data: Buffer = b"") -> None:
        """data: the file's content. Raises CorruptRecord if it is not one."""
        self._data = bytearray(data)
        read_entries(self._data)

    def __len__(self) -> int:
        return len(self._data) // ENTRY_SIZE

    def __getitem__(self, number: int) -> AbortedTransaction:
        return AbortedTransaction._make(_ENTRY.unpack_from(self._data, number * ENTRY_SIZE)[1:])

    @property
    def size_bytes(self) -> int:
        """The bytes of all entries, including those that are not in the file yet."""
        return len(self._data)

    def bytes_from(self, position: int) -> bytes:
        """Return the file's content from byte `position` on."""
        return bytes(self._data[position:])

    def check(self, base_offset: int) -> None:
        """Raise CorruptRecord unless the entries can be those of the segment that begins at `base_offset`."""
        before = base_offset - 1
        for entry in read_entries(self._data):
            if entry.last_offset <= before or not 0 <= entry.first_offset < entry.last_offset:
                raise CorruptRecord(f"a transaction index of the segment at {base_offset} has the entry {entry}")
            before = entry.last_offset

    def append(self, entry: AbortedTransaction) -> None:
        """Add the transaction that was aborted last."""
        self._data += _ENTRY.pack(VERSION, *entry)

    def truncate(self, offset: int) -> None:
        """Drop the transactions whose markers are at or above `offset`."""
        del self._data[self._first_since(offset) * ENTRY_SIZE :]

    def collect(self, offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Add the transactions with a record between `offset` and `upper_bound` to `found`.

        Returns whether no later entry has such a transaction, in this segment or another.
        """
        for number in range(self._first_since(offset), len(self)):
            entry = self[number]
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def _first_since(self, offset: int) -> int:
        """Return the number of the first entry whose marker is at or above `offset`."""
        return bisect_left(range(len(self)), offset, key=lambda number: self[number].last_offset)
