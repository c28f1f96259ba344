"""Check that a segment's indexes match its file, and rebuild them from the headers of its batches.

A broker checks an index when it loads one (Kafka: OffsetIndex.sanityCheck, TimeIndex.sanityCheck), since the disk or a
person may have changed the file. Entries must increase, and the last entry must describe an existing batch. A wrong
entry before the last one costs a longer walk, or the walk detects it (read_segment.py). The last entry of a time index
must be right, because retention deletes by it. The batches after the last entry of the offset index show whether a time
index has lost its last entries. Earlier batches are not walked: a start would then read all segments.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import ReadFile
from sparklog.log.segment.indexes import OffsetIndex, TimeEntry, TimeIndex
from sparklog.log.segment.scan import BatchPlace, walk
from sparklog.records.batch import NO_TIMESTAMP

INTERVAL_BYTES = 4096
"""The default of index.interval.bytes."""


def offsets_fit(index: OffsetIndex, file: ReadFile, size_bytes: int) -> bool:
    """Return whether an offset index, which must have entries, matches its file. Raises OSError."""
    if not index.is_in_order():
        return False
    offset, position = index[len(index) - 1]
    place = _first_of(file, position, size_bytes)
    return place is not None and place.base_offset <= offset <= place.last_offset


def times_fit(index: TimeIndex, offsets: OffsetIndex, file: ReadFile, size_bytes: int) -> bool:
    """Return whether a time index matches its file. `offsets` must match it already. Raises OSError."""
    if not index.is_in_order():
        return False
    timestamp, offset = index.last
    try:
        places = walk(file, offsets.position_for(offset), size_bytes)
        found = next((place.max_timestamp_ms for place in places if place.last_offset >= offset), NO_TIMESTAMP)
    except CorruptRecord:
        return not len(index)  # unreadable batches can have no entries
    return found == timestamp and not _is_passed_at_the_end(timestamp, offsets, file, size_bytes)


def _is_passed_at_the_end(timestamp: int, offsets: OffsetIndex, file: ReadFile, size_bytes: int) -> bool:
    try:
        places = walk(file, offsets.last_position(size_bytes), size_bytes)
        return any(place.max_timestamp_ms > timestamp for place in places)
    except CorruptRecord:  # a read of the batch reports it
        return False


def _first_of(file: ReadFile, position: int, size_bytes: int) -> BatchPlace | None:
    """Return the batch that begins at `position`, or None."""
    if position >= size_bytes:
        return None
    try:
        return next(walk(file, position, size_bytes), None)
    except CorruptRecord:
        return None


def build(
    base_offset: int, places: Iterable[BatchPlace], interval_bytes: int = INTERVAL_BYTES
) -> tuple[OffsetIndex, TimeIndex]:
    """Return the indexes of a segment of these batches, as the segment writer would have built them."""
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
