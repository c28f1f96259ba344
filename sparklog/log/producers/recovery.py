"""Rebuilding producer state as of an offset: the latest readable snapshot, and the batches after it.

Only headers are read, and the markers of control batches, which are small. A log without idempotent producers costs
only the walk; after a clean stop there is a snapshot of the log's end, so the walk is not needed either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import ReadFile
from sparklog.log.producers.producer_state import ProducerStates, read_producer_batch
from sparklog.log.producers.snapshots import CorruptSnapshot, ProducerSnapshots
from sparklog.log.segment.scan import BatchPlace
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, read_header

MAX_MARKER_BYTES = 4096  # a control batch takes 78
logger = logging.getLogger(__name__)


def rebuild(
    snapshots: ProducerSnapshots, segments: Sequence[Segment], end_offset: int, now_ms: int, *, walk_all: bool = True
) -> ProducerStates:
    """Return the state at `end_offset`, where a batch of `segments` begins or the last one ends.

    walk_all: without a snapshot, walk the log from its first segment; False: return an empty state then. Unreadable
    snapshots are removed. Raises OSError.
    """
    start, states = _load(snapshots, end_offset, now_ms)
    if start < 0 and not walk_all:
        return states
    following = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, next_base in zip(segments, following, strict=False):
        if segment.base_offset < end_offset and next_base > start:
            for _ in _replay(states, segment, start, end_offset, now_ms):
                pass
    return states


class AbortedTransactionFinder:
    """Finds the transactions that batches abort, given one after the other, as a cleaner leaves them."""

    def __init__(self, load: Callable[[], ProducerStates], now_ms: int) -> None:
        """load: returns the producer state before the first batch; called if there are transactions."""
        self._load = load
        self._now_ms = now_ms
        self._states: ProducerStates | None = None

    def look(self, file: ReadFile, place: BatchPlace) -> AbortedTransaction | None:
        """Return the transaction that the next batch aborts, if any. Raises OSError."""
        if not place.attributes & TRANSACTIONAL_BIT:
            return None
        if self._states is None:
            self._states = self._load()
        return replay(self._states, file, place, self._now_ms)


def find_aborted(states: ProducerStates, segment: Segment, now_ms: int) -> Iterator[AbortedTransaction]:
    """Yield the transactions that are aborted in `segment`; `states` as of its base offset. Raises OSError."""
    return _replay(states, segment, segment.base_offset, MAX_LONG, now_ms)


def replay(states: ProducerStates, file: ReadFile, place: BatchPlace, now_ms: int) -> AbortedTransaction | None:
    """Apply a batch in `file` and return the transaction that it aborts, if any. Raises OSError.

    An unreadable control batch is ignored.
    """
    if place.producer_id < 0:
        return None
    header = read_header(file.read_at(place.position, HEADER_SIZE))
    data = file.read_at(place.position, min(place.size, MAX_MARKER_BYTES)) if header.is_control else b""
    found = read_producer_batch(header, data)
    return states.replay(found, now_ms) if found else None


def _load(snapshots: ProducerSnapshots, end_offset: int, now_ms: int) -> tuple[int, ProducerStates]:
    """Return the offset and content of the latest readable snapshot at or below `end_offset`; -1 if there is none."""
    for offset in reversed(snapshots.offsets):
        if offset <= end_offset:
            try:
                return offset, ProducerStates(snapshots.read(offset), now_ms=now_ms)
            except CorruptSnapshot as error:
                logger.warning("%s: snapshot %d: %s; removed", snapshots.folder, offset, error)
                snapshots.remove(offset.__eq__)
    return -1, ProducerStates()


def _replay(
    states: ProducerStates, segment: Segment, start: int, end_offset: int, now_ms: int
) -> Iterator[AbortedTransaction]:
    first = segment.find(start, segment.size_bytes) if start > segment.base_offset else None
    try:
        for place in segment.walk(first.position if first else 0, segment.size_bytes):
            if place.base_offset >= end_offset:
                return
            if place.last_offset >= start and (aborted := replay(states, segment.file, place, now_ms)):
                yield aborted
    except CorruptRecord as error:
        logger.warning("%s: %s", segment, error)
