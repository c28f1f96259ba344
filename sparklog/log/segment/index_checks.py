"""Whether a segment's indexes are its own, and how to make them anew from the headers of its batches.

Checked when a broker loads one (Kafka: OffsetIndex.sanityCheck, TimeIndex.sanityCheck), as a disk, or somebody, may
have changed the file since it was written: entries increase, and the last one tells of a batch that is there. An index
that is wrong somewhere before that costs a longer walk, or is noticed by it (segment.py); a time index by which
retention would delete is right at its end. One that has lost its last entries shows that by the segment's last batches,
those behind the last entry of the offset index, where timestamps grow at all: the others are not walked, as that would
cost a start the reading of all segments.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import ReadFile
from sparklog.log.segment.offset_index import OffsetIndex
from sparklog.log.segment.scan import BatchPlace, walk
from sparklog.log.segment.time_index import TimeEntry, TimeIndex
from sparklog.records.batch import NO_TIMESTAMP

INTERVAL_BYTES = 4096
"""Of index.interval.bytes, the default."""


def offsets_fit(index: OffsetIndex, file: ReadFile, size_bytes: int) -> bool:
    """Raises OSError."""
    if not index.is_in_order():
        return False
    offset, position = index[len(index) - 1]
    place = _first_of(file, position, size_bytes)
    return place is not None and place.base_offset <= offset <= place.last_offset


def times_fit(index: TimeIndex, offsets: OffsetIndex, file: ReadFile, size_bytes: int) -> bool:
    """`offsets` fit. Raises OSError."""
    if not index.is_in_order():
        return False
    timestamp, offset = index.last
    try:
        places = walk(file, offsets.position_for(offset), size_bytes)
        found = next((place.max_timestamp_ms for place in places if place.last_offset >= offset), NO_TIMESTAMP)
    except CorruptRecord:
        return not len(index)  # of nothing that can be read
    return found == timestamp and not _is_passed_at_the_end(timestamp, offsets, file, size_bytes)


def _is_passed_at_the_end(timestamp: int, offsets: OffsetIndex, file: ReadFile, size_bytes: int) -> bool:
    try:
        places = walk(file, offsets.last_position(size_bytes), size_bytes)
        return any(place.max_timestamp_ms > timestamp for place in places)
    except CorruptRecord:  # whoever reads the batch finds out
        return False


def _first_of(file: ReadFile, position: int, size_bytes: int) -> BatchPlace | None:
    """The batch that begins there, if one does."""
    if position >= size_bytes:
        return None
    try:
        return next(walk(file, position, size_bytes), None)
    except CorruptRecord:
        return None


def build(
    base_offset: int, places: Iterable[BatchPlace], interval_bytes: int = INTERVAL_BYTES
) -> tuple[OffsetIndex, TimeIndex]:
    """The indexes of a segment that consists of these batches, as they would have come to be while it was written."""
    offsets, times = OffsetIndex(base_offset), TimeIndex(base_offset)
    largest = TimeEntry(NO_TIMESTAMP, base_offset)
    bytes_since_entry = 0
    for place in places:
        if place.max_timestamp_ms > largest.timestamp_ms:
            largest = TimeEntry(place.max_timestamp_ms, place.last_offset)
        if bytes_since_entry > interval_bytes:
            offsets.append(place.last_offset, place.position)
            times.append(*largest)
            bytes_since_entry = 0
        bytes_since_entry += place.size
    times.append(*largest)
    return offsets, times
