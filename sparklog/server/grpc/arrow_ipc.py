"""Detection of compression in an Arrow IPC stream from the metadata of its messages, without decompressing.

Arrow's reader decompresses without a limit, so a request of a megabyte could take gigabytes of memory.
The metadata of a message is a flatbuffer (Arrow's Message.fbs). Only these slots are read:

    Message      slot 1 header type (3: record batch, 2: dictionary batch), slot 2 header
    RecordBatch  slot 3 compression                          DictionaryBatch  slot 1 its record batch
"""

from __future__ import annotations

import struct

import pyarrow as pa

from sparklog.base.errors import InvalidRecord
from sparklog.base.fs import Buffer

DICTIONARY_BATCH, RECORD_BATCH = 2, 3


def refuse_compressed(data: Buffer) -> None:
    """Raise InvalidRecord if the body of a message is compressed, and ArrowException if `data` is not an IPC stream."""
    for message in pa.ipc.MessageReader.open_stream(data):
        if _is_compressed(memoryview(message.metadata)):
            raise InvalidRecord("the Arrow IPC stream is compressed inside: send it plain, and set `codec`")


def _is_compressed(metadata: Buffer) -> bool:
    try:
        message = struct.unpack_from("<I", metadata, 0)[0]
        kind = _slot(metadata, message, 1)
        batch = _slot(metadata, message, 2)
        if kind is None or batch is None or metadata[kind] not in (DICTIONARY_BATCH, RECORD_BATCH):
            return False
        batch = _follow(metadata, batch)
        if metadata[kind] == DICTIONARY_BATCH:
            inner = _slot(metadata, batch, 1)
            if inner is None:
                return False
            batch = _follow(metadata, inner)
        return _slot(metadata, batch, 3) is not None
    except (struct.error, IndexError):
        raise InvalidRecord("an Arrow IPC message has metadata that point outside of themselves") from None


def _slot(metadata: Buffer, table: int, slot: int) -> int | None:
    """Return the position of a field of a flatbuffer table; None if the table does not have it."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    entry = 4 + 2 * slot
    offset = struct.unpack_from("<H", metadata, vtable + entry)[0] if entry < size else 0
    return table + offset if offset else None


def _follow(metadata: Buffer, position: int) -> int:
    return int(position + struct.unpack_from("<I", metadata, position)[0])
