"""The progress of a partition since an offset that a consumer has committed.

The age of the oldest unconsumed record comes from the header of its batch, so nothing is decompressed. All records of a
batch count as old as its first one.
"""

from __future__ import annotations

from sparklog.base.errors import OffsetOutOfRange
from sparklog.log.log import LogSlice
from sparklog.log.segment.scan import place_at
from sparklog.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    read_header,
    size_and_magic,
)
from sparklog.replica.manager import Replica
from sparklog.replica.messages import DescribedPosition


def describe(replica: Replica, offset: int) -> DescribedPosition:
    """Return the partition's progress since `offset`. Reads a batch's header, so it may block; any thread.

    Raises KafkaError: OffsetNotAvailable if a new leader does not know the high watermark yet, KafkaStorageError.
    """
    partition, log = replica.partition, replica.log
    if partition.is_leader:
        partition.check_offset_is_known()
    high_watermark = partition.high_watermark
    if offset >= high_watermark:
        return DescribedPosition(high_watermark=high_watermark)
    try:
        found = log.read(max(offset, log.log_start_offset), 1, max_offset=high_watermark)
    except OffsetOutOfRange:  # the log start has moved meanwhile
        return DescribedPosition(high_watermark=high_watermark)
    timestamp_ms = _timestamp_of(found) if found.size else NO_TIMESTAMP
    return DescribedPosition(
        high_watermark=high_watermark, timestamp_ms=None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
    )


def _timestamp_of(batch: LogSlice) -> int:
    """Return the timestamp of a batch's first record in ms, or the greatest one if the header has only that."""
    head = batch.head(HEADER_SIZE)
    if size_and_magic(head)[1] == MAGIC:
        header = read_header(head)
        has_first = not header.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
        return header.base_timestamp if has_first else header.max_timestamp
    place = place_at(head, 0, batch.position)
    return place.max_timestamp_ms if place else NO_TIMESTAMP
