"""Finding records of a log by their timestamps.

Timestamps need not increase, so a segment is ruled out only by its greatest one. Inside a segment, the time index says
up to which offset every record is too early. Only the records of the matching batch are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparklog.base.fs import ReadFile
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import BatchPlace
from sparklog.log.slice import TimestampOffset
from sparklog.records.batch import MAGIC
from sparklog.records.legacy import iterate_messages, records_of
from sparklog.records.records import Record, iterate_records


def first_since(segments: Iterable[ReadSegment], timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    """Return the first record at or above `start_offset` with a timestamp at or after `timestamp_ms`, or None.

    Raises OSError or CorruptRecord.
    """
    for segment in segments:
        if segment.largest.timestamp_ms >= timestamp_ms and (found := first_in(segment, timestamp_ms, start_offset)):
            return found
    return None


def first_in(
    segment: ReadSegment, timestamp_ms: int, start_offset: int, *, trust_index: bool = True
) -> TimestampOffset | None:
    """Return what `first_since` returns, for one segment, whose time index may lack its last entries.

    trust_index: False if the index may hold anything, after a power cut.
    """
    after = max(segment.times.offset_for(timestamp_ms) if trust_index else 0, start_offset)
    first = segment.find(after, segment.size_bytes)
    for place in segment.walk(first.position, segment.size_bytes) if first else ():
        if place.max_timestamp_ms < timestamp_ms or place.last_offset < start_offset:
            continue
        for record in _records(segment.file, place):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return TimestampOffset(record.timestamp_ms, record.offset, place.leader_epoch)
    return None


def latest(segments: Sequence[ReadSegment]) -> TimestampOffset | None:
    """Return the first record with the greatest timestamp; None if no record has one, or a cleaner removed it.

    Raises OSError or CorruptRecord.
    """
    segment = max(segments, key=lambda each: each.largest.timestamp_ms)
    timestamp_ms, offset = segment.largest
    if timestamp_ms < 0:
        return None
    for place in segment.walk(segment.offsets.position_for(offset), segment.size_bytes):
        if place.max_timestamp_ms == timestamp_ms:
            for record in _records(segment.file, place):
                if record.timestamp_ms == timestamp_ms:
                    return TimestampOffset(timestamp_ms, record.offset, place.leader_epoch)
    return None


def _records(file: ReadFile, place: BatchPlace) -> Iterator[Record]:
    data = file.read_at(place.position, place.size)
    if place.magic == MAGIC:
        return iterate_records(data)
    return (record for message in iterate_messages(data) for record in records_of(message))
