"""Ranges of offsets in one segment: where they lie in its file, how they are divided, and their batches.

The positions of a range are those at the time when it was planned. A read takes them as hints (reader.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from sparklog.base.errors import CorruptRecord
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import BatchPlace, place_at


class ReadRange(NamedTuple):
    """A range of offsets in one segment, and its position and size in bytes when the range was planned."""

    offset_from: int
    offset_to: int
    segment_base: int
    position: int
    size: int


class RangePrefix(NamedTuple):
    """The first batches of some ranges of a log."""

    offset_to: int
    """The offset after the last of them."""
    size: int
    """Their size in bytes."""


def range_of(segment: ReadSegment, low: int, high: int, next_base: int) -> ReadRange:
    """Return the range of offsets `low` to `high` with its position and size in the segment.

    next_base: where the next segment begins; a range up to there ends with the file
    """
    position, end = 0, segment.size_bytes
    if low > segment.base_offset:
        first = _find(segment, low)
        position = first.position if first else segment.size_bytes
    if high < next_base and (last := _find(segment, high - 1)):
        end = last.end if last.base_offset < high else last.position
    return ReadRange(low, high, segment.base_offset, position, max(0, end - position))


def _find(segment: ReadSegment, offset: int) -> BatchPlace | None:
    try:
        return segment.find(offset, segment.size_bytes)
    except CorruptRecord:
        return None  # remains of an unclean stop; a read of the range reports them


def divide(segment: ReadSegment, whole: ReadRange, count: int) -> Iterator[ReadRange]:
    """Divide the range into about `count` ranges, cut where batches begin."""
    rest = whole
    end = rest.position + rest.size
    for number in range(1, count):
        target = whole.position + whole.size * number // count
        place = _first_from(segment, max(rest.position, segment.offsets.last_position(target + 1)), target, end)
        if place and rest.position < place.position and rest.offset_from < place.base_offset < rest.offset_to:
            yield rest._replace(offset_to=place.base_offset, size=place.position - rest.position)
            rest = rest._replace(offset_from=place.base_offset, position=place.position, size=end - place.position)
    yield rest


def take(segment: ReadSegment, whole: ReadRange, left: int, taken: RangePrefix) -> RangePrefix:
    """Return `taken` extended by the first batches of a range, up to `left` bytes; at least one batch in all."""
    end = whole.position + whole.size
    with contextlib.suppress(CorruptRecord):
        first = next(segment.walk(whole.position, end), None)
        if first is not None and first.size > left and taken.size:
            return taken
        if first is not None:
            stop, next_offset = segment.cut(first, first.position + max(first.size, left), end, whole.offset_to)
            return RangePrefix(min(next_offset, whole.offset_to), taken.size + stop - whole.position)
    return RangePrefix(whole.offset_to, taken.size + whole.size)


def _first_from(segment: ReadSegment, start: int, target: int, end: int) -> BatchPlace | None:
    """Return the first batch at or after position `target`, or None."""
    try:
        return next((place for place in segment.walk(start, end) if place.position >= target), None)
    except CorruptRecord:
        return None  # the index does not match the file: the ranges become larger


def position_of(segment: ReadSegment, offset: int, hint: int) -> int:
    """Return the position of the first batch that ends at or after `offset`: `hint`, if the batch there holds it."""
    place = None
    with contextlib.suppress(CorruptRecord):
        place = next(segment.walk(hint, segment.size_bytes), None)
    if place is None or not place.base_offset <= offset <= place.last_offset:
        place = segment.find(offset, segment.size_bytes)
    return place.position if place else segment.size_bytes


def chunks(
    segment: ReadSegment, position: int, offset_from: int, offset_to: int, chunk_bytes: int, stop: int
) -> Iterator[tuple[bytes, int]]:
    """Yield chunks of the batches from `position` on that begin below `offset_to`, each with the next offset.

    Ends at `offset_to`, or earlier at the end of the file or at an incomplete batch.

    stop: the planned end position; a chunk that begins before it does not read beyond it, except for a whole batch.
    """
    file, end = segment.file, segment.size_bytes
    while position < end and offset_from < offset_to:
        size = min(chunk_bytes, stop - position) if position < stop else chunk_bytes
        data = file.read_at(position, size)
        at, next_offset, place = _whole_batches(data, position, offset_to)
        if at == 0 and place and place.base_offset < offset_to and place.end <= end:
            data = file.read_at(position, place.size)
            at, next_offset, place = _whole_batches(data, position, offset_to)
        if at == 0 and next_offset < offset_to:
            return
        yield (data if at == len(data) else data[:at]), next_offset
        position += at
        offset_from = next_offset


def _whole_batches(data: bytes, position: int, offset_to: int) -> tuple[int, int, BatchPlace | None]:
    """Measure the whole batches at the start of `data` that begin below `offset_to`.

    Returns their size in bytes; the offset after the last of them, or `offset_to` if the next batch begins at or above
    it; and the next batch, if its header is in `data`.
    """
    at, next_offset = 0, -1
    while next_offset < offset_to and (place := place_at(data, at, position + at)):
        if place.base_offset >= offset_to:
            return at, offset_to, place
        if at + place.size > len(data):
            return at, next_offset, place
        at += place.size
        next_offset = place.last_offset + 1
    return at, next_offset, None
