"""Opening a partition's folder: finish what a crash interrupted, find the segments, check what was never flushed.

    1  leftovers   .deleted and .cleaned files go. A replacement of segments is carried on, or given up (swap.py).
    2  segments    every .log file is one, but those wholly below the log start go, and so do index files without a
                   .log; missing indexes are built again. An index that tells of batches below the recovery point which
                   are in no file says that flushed records are lost: the log is not opened.
    3  the end     after a clean stop, walk the last segment from its last index entry. After an unclean one, take the
                   segments from the one that holds the recovery point on: batches above it are checked (CRC, length,
                   offsets that increase and fit the segment), the file is cut at the first bad byte and the segments
                   behind it go, indexes are built again. Batches below the recovery point are trusted: they were
                   flushed, nothing of them is rewritten.
                   What producers have numbered is taken up on the way, from the last snapshot before it on.
    4  the rest    all segments go if the log start offset lies behind the log's end; leader epochs are cut to the log;
                   snapshots of producer state go if they belong to no segment, and after an unclean stop those that
                   lie behind the end or cannot be read.

Each step can be repeated: a crash in the middle of opening leaves a folder that opens.

A gap between offsets is what compaction leaves, and is kept. But where the caller knows up to where the log has been
compacted (`compacted_to`), a gap above that and above the recovery point is a hole that the crash tore: the log ends
there. Below the recovery point segments may have been replaced since: a gap is kept there also where the leader epochs
cannot be read, so that every batch is checked again.

Everything is read in pieces: memory does not grow with the size of a segment or with what a broken header claims.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Fs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.checkpoints import CorruptCheckpoint, LeaderEpochCheckpoint, PartitionMetadata
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    SegmentFile,
    parse_name,
    path_in,
)
from sparklog.log.losses import HOW_TO_GO_ON, check_emptied, check_missing
from sparklog.log.producers.producer_state import ProducerStates
from sparklog.log.producers.recovery import rebuild, replay
from sparklog.log.producers.snapshots import CorruptSnapshot, SnapshotFiles
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.entries import MAX_RELATIVE_OFFSET
from sparklog.log.segment.scan import BatchPlace, check_batches, walk
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.segment_writer import SegmentWriter
from sparklog.log.swap import finish_swaps

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Loading:
    """A folder while it is being opened; `segments`, `end_offset`, `epochs` and `producers` are the result."""

    fs: Fs
    folder: str
    config: TopicConfig
    now_ms: int
    clean: bool
    recovery_point: int
    log_start_offset: int
    compacted_to: int | None = None
    """Gaps below this are compaction's; None: the folder is new to its directory, so any may be."""
    flushed_to: int = 0
    """Everything below was on the disk: gaps in it are compaction's too. `recovery_point`: all below it is trusted."""
    cache: SegmentCache
    segments: list[Segment] = field(default_factory=list)
    dropped: list[Segment] = field(default_factory=list)
    """Out of the log, and still on disk under their names."""
    topic_id: UUID | None = None
    """As `partition.metadata` says; None: it does not, or cannot be read, so that it is written anew."""
    end_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    epochs_on_disk: LeaderEpochs | None = None
    snapshots: SnapshotFiles
    producers: ProducerStates = field(default_factory=ProducerStates)
    has_changed: bool = False
    """Files were made or removed: names need to be flushed."""


def load(state: Loading) -> None:
    """Open the folder, which exists. Raises OSError, or CorruptRecord where flushed batches cannot be read."""
    state.flushed_to = state.recovery_point
    finish_swaps(state.fs, state.folder)
    try:
        state.topic_id = PartitionMetadata(state.fs, state.folder).read()
    except CorruptCheckpoint as error:
        logger.warning("%s", error)
    _find_segments(state)
    try:
        state.epochs = state.epochs_on_disk = LeaderEpochCheckpoint(state.fs, state.folder).read()
    except CorruptCheckpoint as error:
        logger.warning("%s; taking the leader epochs from the batches", error)
        state.clean, state.recovery_point = False, 0
    if state.clean:
        _find_end(state)
    if state.clean:
        _find_producers(state, state.end_offset)
    else:
        _recover(state)
    _trim(state)
    _tidy_snapshots(state)


def _find_segments(state: Loading) -> None:
    """Step 2."""
    names = [parsed for parsed in map(parse_name, state.fs.list(state.folder)) if parsed and not parsed.mark]
    there = set(names)
    bases = {file.base_offset for file in names if file.suffix == LOG}
    for file in names:
        if file.suffix != SNAPSHOT and file.base_offset not in bases:
            check_missing(
                state.fs, state.folder, file, bases,
                log_start_offset=state.log_start_offset, recovery_point=state.flushed_to,
            )  # fmt: skip
            logger.warning("%s: removing an index without its log", path_in(state.folder, file))
            state.fs.remove(path_in(state.folder, file))
            state.has_changed = True
    for base in sorted(bases):
        segment = Segment(state.fs, state.folder, base, 0, state.cache)
        opened = state.fs.open_read(segment.path(LOG))
        segment.size_bytes = opened.size
        opened.close()
        segment.is_flushed = True
        state.segments.append(segment)
    while len(state.segments) > 1 and state.segments[1].base_offset <= state.log_start_offset:
        state.dropped.append(state.segments.pop(0))  # retention was about to do it
    for segment, following in pairwise(state.segments):
        if not segment.size_bytes and following.base_offset <= state.flushed_to:
            check_emptied(state.fs, state.folder, segment.base_offset)
    for segment in state.segments:
        base = segment.base_offset
        if not {SegmentFile(base, OFFSET_INDEX, ""), SegmentFile(base, TIME_INDEX, "")} <= there:
            logger.warning("%s: building missing indexes", segment)
            segment.build_indexes(state.config.index_interval_bytes)


def _find_end(state: Loading) -> None:
    """After a clean stop: the log end offset. Where the last segment does not end with a batch, it was none."""
    if not state.segments:
        state.end_offset = state.log_start_offset
        return
    last = state.segments[-1]
    end, position = last.base_offset, 0
    try:
        for place in last.walk(last.offsets.last_position(last.size_bytes), last.size_bytes):
            end, position = place.last_offset + 1, place.end
    except CorruptRecord:
        position = -1
    state.end_offset = end
    state.recovery_point = end
    if position != last.size_bytes:
        logger.warning("%s does not end with a whole batch: the stop was not clean", last)
        state.clean, state.recovery_point = False, last.base_offset
        state.flushed_to = last.base_offset


def _find_producers(state: Loading, offset: int) -> None:
    """The state of producers at `offset`. After a clean stop there is a snapshot of it, so where none is, none was."""
    state.producers = rebuild(state.snapshots, state.segments, offset, state.now_ms, walk_all=not state.clean)


def _recover(state: Loading) -> None:
    """Step 3 after an unclean stop."""
    state.end_offset = state.segments[-1].base_offset if state.segments else state.log_start_offset
    if state.compacted_to is not None:
        state.epochs = state.epochs.truncate_from_end(state.recovery_point)  # the batches say what follows
    unflushed = [
        number
        for number, segment in enumerate(state.segments)
        if number + 1 == len(state.segments) or state.segments[number + 1].base_offset >= state.recovery_point
    ]  # a segment that ends at the recovery point may have been closed after that: its indexes were not flushed
    if unflushed:
        _find_producers(state, state.segments[unflushed[0]].base_offset)
    for number in unflushed:
        segment = state.segments[number]
        is_torn = number > unflushed[0] and (
            segment.base_offset < state.end_offset or _is_hole(state, state.end_offset, segment.base_offset)
        )
        if is_torn or not _recover_segment(state, segment):
            kept = number if is_torn else number + 1
            logger.warning("%s: %d segments behind the first bad byte go", state.folder, len(state.segments) - kept)
            state.dropped += state.segments[kept:]
            del state.segments[kept:]
            state.has_changed = True
            break
    state.recovery_point = min(state.flushed_to, state.end_offset)


def _recover_segment(state: Loading, segment: Segment) -> bool:
    """Check the batches above the recovery point, build the indexes; False: the segment had to be cut."""
    segment.is_flushed = False
    active = SegmentWriter(state.fs, segment, state.config, state.now_ms, index_anew=True)
    end, position = segment.base_offset, 0
    for place in _trusted(segment, state.recovery_point):
        active.add(place.position, place.size, place.last_offset, place.max_timestamp_ms)
        replay(state.producers, segment.file, place, state.now_ms)
        end, position = place.last_offset + 1, place.end
    for place in check_batches(segment.file, position, segment.size_bytes, end):
        is_too_far = place.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        if is_too_far or (position > 0 and _is_hole(state, end, place.base_offset)):
            break
        active.add(place.position, place.size, place.last_offset, place.max_timestamp_ms)
        replay(state.producers, segment.file, place, state.now_ms)
        if place.leader_epoch > state.epochs.latest:
            state.epochs = state.epochs.assign(place.leader_epoch, place.base_offset)
        end, position = place.last_offset + 1, place.end
    is_whole = position == segment.size_bytes
    if not is_whole:
        logger.warning("%s: cutting %d bytes from position %d", segment, segment.size_bytes - position, position)
        active.truncate(end, position, state.now_ms)
    active.close()
    state.end_offset = end
    return is_whole


def _trusted(segment: Segment, recovery_point: int) -> Iterator[BatchPlace]:
    """The batches that lie below the recovery point, by their headers.

    Raises CorruptRecord where they cannot be walked: they were flushed, so the disk has changed them since, and cutting
    the log there would throw away what had been promised.
    """
    end = segment.base_offset
    try:
        for place in walk(segment.file, 0, segment.size_bytes):
            if place.base_offset < end or place.last_offset >= recovery_point:
                return
            yield place
            end = place.last_offset + 1
    except CorruptRecord as error:
        if end < recovery_point:
            raise CorruptRecord(
                f"{segment}: {error}, below the recovery point {recovery_point}: the disk has lost flushed records. "
                f"{HOW_TO_GO_ON} the segment's files"
            ) from None


def _is_hole(state: Loading, end: int, base_offset: int) -> bool:
    """Whether the offsets from `end` to `base_offset` are missing because of the crash."""
    return state.compacted_to is not None and base_offset > end >= max(state.flushed_to, state.compacted_to)


def _trim(state: Loading) -> None:
    """Step 4: make log start, segments and epochs agree."""
    if state.segments and state.end_offset < state.log_start_offset:
        logger.warning(
            "%s: ends at %d, before its start %d: emptied", state.folder, state.end_offset, state.log_start_offset
        )
        state.dropped += state.segments
        state.segments = []
        state.epochs = LeaderEpochs()
        state.producers = ProducerStates()
        state.has_changed = True
    while len(state.segments) > 1 and _ends_below(state.segments[0], state.log_start_offset):
        state.dropped.append(state.segments.pop(0))
    if not state.segments:
        state.end_offset = state.recovery_point = state.log_start_offset
    else:
        state.log_start_offset = max(state.log_start_offset, state.segments[0].base_offset)
    # an entry at the start of an empty log is what is left of its last epoch
    state.epochs = state.epochs.truncate_from_end(max(state.end_offset, state.log_start_offset + 1))
    first_offset = state.segments[0].base_offset if state.segments else state.log_start_offset
    state.epochs = state.epochs.truncate_from_start(first_offset)  # replicas ask about records below the log start too


def _ends_below(segment: Segment, offset: int) -> bool:
    """Whether no record of a segment that begins below `offset` lies at or above it."""
    return segment.base_offset < offset and segment.find(offset, segment.size_bytes) is None


def _tidy_snapshots(state: Loading) -> None:
    """Keep the snapshots where segments begin, and the latest behind the last one's beginning."""
    kept = {segment.base_offset for segment in state.segments}
    if kept:
        kept.add(max(offset for offset in (*kept, *state.snapshots.offsets) if offset <= state.end_offset))
    if not state.clean:
        kept -= {offset for offset in state.snapshots.offsets if not _is_readable(state, offset)}
    if state.snapshots.remove(lambda offset: offset not in kept) and not state.clean:
        state.fs.flush_dir(state.folder)  # other records may get their offsets


def _is_readable(state: Loading, offset: int) -> bool:
    try:
        state.snapshots.read(offset)
    except CorruptSnapshot as error:
        logger.warning("%s: snapshot %d: %s; removed", state.folder, offset, error)
        return False
    return True
