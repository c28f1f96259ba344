"""Reads a described segment in chunks of whole batches: from its folder if this machine sees it, else from the broker.

Files of closed segments never change, but may be replaced: a file whose size differs from the description is refused
with InvalidUpdateVersion. BeginReplace and CommitReplace compare the segment's identity, so they detect a replacement
of the same size. The active segment is read up to its end as described.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparklog.base.errors import CorruptRecord, InvalidUpdateVersion
from sparklog.base.fs import LocalFs
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.files import LOG, segment_name
from sparklog.log.segment.scan import place_at
from sparklog.spark.folders import belongs_to

CHUNK_BYTES = 4 << 20


def is_visible(log: LogDescription) -> bool:
    """Return whether the log's folder, as seen from this machine, is the one that its broker describes."""
    return belongs_to(os.path.dirname(log.folder), log.cluster_id, log.broker_id)


def read_segment(
    log: LogDescription,
    segment: SegmentDescription,
    client_options: Mapping[str, Any],
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[bytes]:
    """Yield the segment in chunks of whole batches, each of about `chunk_bytes` or one larger batch.

    Raises InvalidUpdateVersion if the file is gone or has another size, CorruptRecord for bytes that are no batch, and
    the errors of the client.
    """
    if is_visible(log):
        path, is_active = f"{log.folder}/{segment_name(segment.base_offset, LOG)}", segment == log.segments[-1]
        pieces = _read_file(path, segment.size_bytes, chunk_bytes, may_grow=is_active)
    else:
        pieces = _read_from_broker(log, segment, client_options)
    yield from whole_batches(pieces, segment.size_bytes, chunk_bytes)


def whole_batches(pieces: Iterable[bytes], size: int, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of the pieces, `size` bytes in all, in chunks that end between batches.

    Memory: a chunk and a piece, or one larger batch. Raises CorruptRecord if the bytes are not whole batches.
    """
    rest, position = bytearray(), 0
    for piece in pieces:
        rest += piece
        if len(rest) >= chunk_bytes or position + len(rest) >= size:
            end = _whole_end(rest, position, size)
            if end:
                yield bytes(rest[:end])
                del rest[:end]
                position += end
    if rest:
        raise CorruptRecord(f"no whole batch at position {position} of {size}")


def _whole_end(data: bytearray, position: int, size: int) -> int:
    """Return where in `data` its last whole batch ends; `data` is at `position` of `size` bytes."""
    at = 0
    while (place := place_at(data, at, position + at)) is not None and at + place.size <= len(data):
        at += place.size
    if place is not None and place.end > size:
        raise CorruptRecord(f"the batch at position {place.position} would end at {place.end}, after the last byte")
    return at


def _read_file(path: str, size: int, piece_bytes: int, *, may_grow: bool) -> Iterator[bytes]:
    try:
        file = LocalFs().open_read(path)
    except FileNotFoundError:
        raise InvalidUpdateVersion(f"{path} is gone") from None
    try:
        if file.size < size or (file.size > size and not may_grow):
            raise InvalidUpdateVersion(f"{path} has {file.size} bytes, not {size}")
        for position in range(0, size, piece_bytes):
            yield file.read_at(position, min(piece_bytes, size - position))
    finally:
        file.close()


def _read_from_broker(
    log: LogDescription, segment: SegmentDescription, client_options: Mapping[str, Any]
) -> Iterator[bytes]:
    from sparklog.client import Maintenance  # loads gRPC, which tasks that see the folder do not need

    with Maintenance(**client_options) as maintenance:
        yield from maintenance.read_segment(log, segment, 0, segment.size_bytes)
