"""The transaction index of a segment (`.txnindex`): the aborted transactions whose markers lie in it.

    position  size  field; entries follow one another in the order of their markers
    0         2     version: 0
    2         8     producer id
    10        8     first offset of the transaction
    18        8     last offset: that of the marker
    26        8     last stable offset, as it became with the marker

As org.apache.kafka.storage.internals.log.TransactionIndex. A segment without aborted transactions has no such file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from sparklog.base.errors import CorruptRecord

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


def read_entries(data: bytes) -> list[AbortedTransaction]:
    """Return the entries of a file. Raises CorruptRecord for a part of an entry, or one of another version."""
    if len(data) % ENTRY_SIZE:
        raise CorruptRecord(f"a transaction index of {len(data)} bytes: an entry has {ENTRY_SIZE}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptRecord(f"a transaction index of version {version}")
        entries.append(AbortedTransaction(*fields))
    return entries
