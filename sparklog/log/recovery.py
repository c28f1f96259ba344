"""Opening a partition's folder: finish what a crash interrupted, find the segments, check unflushed batches.

    1  leftovers   remove .deleted and .cleaned files. Complete or abandon a replacement (replacement/swap.py).
    2  segments    list the .log files; drop those wholly below the log start, remove index files without a .log, build
                   missing indexes, check the transaction indexes. If a closed segment has lost flushed batches
                   (losses.py), the log is not opened.
    3  the end     after a clean stop, walk the last segment from its last index entry. After an unclean one, start with
                   the segment that holds the recovery point: check the batches above it (CRC, length, offsets that
                   increase and fit the segment), truncate the file at the first bad byte and drop the segments after
                   it, rebuild indexes. Batches below the recovery point are trusted and not rewritten, because they
                   were flushed. Producer state is replayed on the way, from the last snapshot before that point. A log
                   that ends below the checkpointed recovery point is not opened, and not truncated.
    4  the rest    build damaged transaction indexes again, from the producer state before their segments and their
                   batches; drop all segments if the log start offset lies above the log's end; truncate the leader
                   epochs to the log; remove the snapshots of producer state that belong to no segment and, after an
                   unclean stop, those above the end or unreadable.

Each step can be repeated: after a crash during opening, the folder can still be opened.

Gaps between offsets:

- A gap below the recovery point comes from compaction and is kept: a replacement raises the recovery point above its
  segments first. That holds even if the leader epochs are unreadable and all batches are checked again.
- A gap that begins above `compacted_to` and ends above the recovery point comes from the crash or a lost file: the log
  ends there. A replica with a gap between a known log start and the first segment has lost its records: it is emptied.
- Without `compacted_to`, for example after the checkpoints were lost, every gap is kept. The log is then flushed at
  once, so that its recovery point covers these gaps at the next start.

Files are read in pieces: memory does not grow with the size of a segment or with the claims of a broken header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import Fs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.checkpoints import CorruptCheckpoint, LeaderEpochCheckpoint, PartitionMetadataFile
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    SegmentFile,
    parse_name,
    path_in,
)
from sparklog.log.losses import HOW_TO_GO_ON, check_closed, check_end, check_missing
from sparklog.log.producers.producer_state import ProducerStates
from sparklog.log.producers.recovery import find_aborted, rebuild, replay
from sparklog.log.producers.snapshots import CorruptSnapshot, ProducerSnapshots
from sparklog.log.replacement.swap import finish_swaps
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.indexes import MAX_RELATIVE_OFFSET
from sparklog.log.segment.scan import BatchPlace, check_batches, walk
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.segment_writer import SegmentWriter
from sparklog.log.segment.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)


class LoadState(Struct, kw_only=True):
    """The state of opening a folder; `segments`, `end_offset`, `epochs` and `producers` are the result."""

    fs: Fs
    folder: str
    config: TopicConfig
    now_ms: int
    clean: bool
    recovery_point: int
    log_start_offset: int
    knows_start: bool
    """Whether the log must begin at `log_start_offset`; False: it begins with its first segment, if that is later."""
    compacted_to: int | None = None
    """Gaps below this come from compaction; None: not known, so any gap may come from compaction."""
    flushed_to: int = 0
    """The checkpointed recovery point: gaps below it come from compaction, too. During opening `recovery_point` may be
    lowered: batches below it are trusted, others are checked."""
    promised_to: int = 0
    """The checkpointed recovery point: the log must not end below it."""
    cache: SegmentCache
    segments: list[Segment] = field(default_factory=list)
    damaged: list[Segment] = field(default_factory=list)
    """Segments with unreadable transaction indexes."""
    dropped: list[Segment] = field(default_factory=list)
    """Removed segments whose files still have their names."""
    topic_id: UUID | None = None
    """The id in `partition.metadata`; None if it is missing or unreadable, so that it is written again."""
    end_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    epochs_on_disk: LeaderEpochs | None = None
    snapshots: ProducerSnapshots
    producers: ProducerStates = field(default_factory=ProducerStates)
    has_changed: bool = False
    """Whether files were created or removed, so that names must be flushed."""


def load(state: LoadState) -> None:
    """Open the folder, which must exist. Raises OSError, or CorruptRecord if flushed batches cannot be read."""
    state.flushed_to = state.promised_to = state.recovery_point
    finish_swaps(state.fs, state.folder)
    try:
        state.topic_id = PartitionMetadataFile(state.fs, state.folder).read()
    except CorruptCheckpoint as error:
        logger.warning("%s", error)
    _find_segments(state)
    try:
        checkpoint = LeaderEpochCheckpoint(state.fs, state.folder)
        is_due = (state.clean or state.recovery_point > 0) and any(each.size_bytes for each in state.segments)
        if is_due and not checkpoint.has_content():
            raise CorruptCheckpoint(f"{state.folder}: the leader epochs of flushed records are missing")
        state.epochs = state.epochs_on_disk = checkpoint.read()
    except CorruptCheckpoint as error:
        logger.warning("%s; taking the leader epochs from the batches", error)
        state.clean, state.recovery_point = False, 0
    if state.clean:
        _find_end(state)
    if state.clean:
        _find_producers(state, state.end_offset)
    else:
        _recover(state)
        state.has_changed = True  # a killed process may not have flushed the names of its files
    _check_end(state, state.end_offset)
    _rebuild_transaction_indexes(state)
    _reconcile(state)
    _tidy_snapshots(state)


def _find_segments(state: LoadState) -> None:
    """Do step 2: find the segments and build missing indexes."""
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
        opened = state.fs.open_read(path_in(state.folder, SegmentFile(base, LOG, "")))
        size_bytes = opened.size
        opened.close()
        segment = Segment(state.fs, state.folder, base, size_bytes, state.cache)
        segment.mark_flushed()
        state.segments.append(segment)
    while len(state.segments) > 1 and state.segments[1].base_offset <= state.log_start_offset:
        state.dropped.append(state.segments.pop(0))  # an interrupted deletion
    for segment, following in pairwise(state.segments):
        if following.base_offset <= state.flushed_to:
            check_closed(state.fs, state.folder, segment.base_offset, following.base_offset)
    for segment in state.segments:
        base = segment.base_offset
        if not {SegmentFile(base, OFFSET_INDEX, ""), SegmentFile(base, TIME_INDEX, "")} <= there:
            logger.warning("%s: building missing indexes", segment)
            segment.build_indexes(state.config.index_interval_bytes)
        if SegmentFile(base, TXN_INDEX, "") in there:
            segment.expect_aborted()
            if not _is_transaction_index_sound(segment):
                state.damaged.append(segment)


def _is_transaction_index_sound(segment: Segment) -> bool:
    try:
        segment.aborted.check(segment.base_offset)
    except CorruptRecord as error:
        logger.warning("%s: %s", segment, error)
        return False
    finally:
        segment.release()
    return True


def _rebuild_transaction_indexes(state: LoadState) -> None:
    for segment in state.damaged:
        if segment in state.segments:
            logger.warning("%s: building its transaction index again", segment)
            producers = rebuild(state.snapshots, state.segments, segment.base_offset, state.now_ms)
            index = TransactionIndex()
            for aborted in find_aborted(producers, segment, state.now_ms):
                index.append(aborted)
            segment.put_aborted(index)


def _find_end(state: LoadState) -> None:
    """Find the log end offset after a clean stop. The stop was not clean if the last segment ends inside a batch."""
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


def _find_producers(state: LoadState, offset: int) -> None:
    """Load the producer state at `offset`. After a clean stop, no snapshot means that there was no state."""
    state.producers = rebuild(state.snapshots, state.segments, offset, state.now_ms, walk_all=not state.clean)


def _recover(state: LoadState) -> None:
    """Do step 3 after an unclean stop: check the unflushed segments."""
    if _has_lost_its_start(state):
        logger.warning(
            "%s: begins at %d, not at %d: emptied", state.folder, state.segments[0].base_offset, state.log_start_offset
        )
        state.dropped += state.segments
        state.segments = []
        state.has_changed = True
    state.end_offset = state.segments[-1].base_offset if state.segments else state.log_start_offset
    if state.compacted_to is not None:
        state.epochs = state.epochs.truncate_from_end(state.recovery_point)  # later epochs are read from the batches
    unflushed = [
        number
        for number, segment in enumerate(state.segments)
        if number + 1 == len(state.segments) or state.segments[number + 1].base_offset >= state.recovery_point
    ]  # the segment that ends at the recovery point may have been closed later: its indexes may be unflushed
    if unflushed:
        _find_producers(state, state.segments[unflushed[0]].base_offset)
    for number in unflushed:
        segment = state.segments[number]
        is_torn = number > unflushed[0] and (
            segment.base_offset < state.end_offset or _is_hole(state, state.end_offset, segment.base_offset)
        )
        if is_torn or not _recover_segment(state, segment):
            kept = number if is_torn else number + 1
            logger.warning(
                "%s: removing %d segments after the first bad byte", state.folder, len(state.segments) - kept
            )
            state.dropped += state.segments[kept:]
            del state.segments[kept:]
            state.has_changed = True
            break
    state.recovery_point = min(state.flushed_to, state.end_offset)


def _recover_segment(state: LoadState, segment: Segment) -> bool:
    """Check the batches above the recovery point and build the indexes; return False if the segment was truncated."""
    active = SegmentWriter.open(state.fs, segment, state.config, state.now_ms, rebuild_indexes=True)
    end, position = segment.base_offset, 0
    for place in _trusted_batches(segment, state.recovery_point):
        active.add(place.position, place.size, place.last_offset, place.max_timestamp_ms)
        _replay(state, active, place)
        end, position = place.last_offset + 1, place.end
    for place in check_batches(segment.file, position, segment.size_bytes, end):
        is_too_far = place.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        if is_too_far or (position > 0 and _is_hole(state, end, place.base_offset)):
            break
        active.add(place.position, place.size, place.last_offset, place.max_timestamp_ms)
        _replay(state, active, place)
        if place.leader_epoch > state.epochs.latest:
            state.epochs = state.epochs.assign(place.leader_epoch, place.base_offset)
        end, position = place.last_offset + 1, place.end
    if segment in state.damaged:
        state.damaged.remove(segment)
    is_whole = position == segment.size_bytes
    if not is_whole:
        _check_end(state, end)
        logger.warning("%s: cutting %d bytes from position %d", segment, segment.size_bytes - position, position)
        active.truncate(end, position, state.now_ms)
    active.close_without_room()
    state.end_offset = end
    return is_whole


def _replay(state: LoadState, active: SegmentWriter, place: BatchPlace) -> None:
    aborted = replay(state.producers, active.segment.file, place, state.now_ms)
    if aborted and active.add_aborted(aborted):
        state.has_changed = True


def _trusted_batches(segment: Segment, recovery_point: int) -> Iterator[BatchPlace]:
    """Yield the batches below the recovery point, by their headers.

    Raises CorruptRecord if they cannot be walked: the disk has damaged flushed batches, and a truncation there would
    discard acknowledged records.
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


def _check_end(state: LoadState, end_offset: int) -> None:
    """Raise CorruptRecord if the log cannot end there."""
    check_end(
        state.folder, end_offset, log_start_offset=state.log_start_offset, recovery_point=state.promised_to
    )  # fmt: skip


def _has_lost_its_start(state: LoadState) -> bool:
    """Return whether the crash has lost the first segments. Retention stores the log start before it removes any."""
    start = state.log_start_offset
    return state.knows_start and bool(state.segments) and _is_hole(state, start, state.segments[0].base_offset)


def _is_hole(state: LoadState, end: int, base_offset: int) -> bool:
    """Return whether some of the offsets from `end` to `base_offset` are missing for another reason than compaction."""
    is_known = state.compacted_to is not None and end >= state.compacted_to
    return is_known and base_offset > max(end, state.flushed_to)


def _reconcile(state: LoadState) -> None:
    """Do step 4: make log start, segments and epochs agree."""
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
    # An empty log keeps the entry at its start: the log's last epoch.
    state.epochs = state.epochs.truncate_from_end(max(state.end_offset, state.log_start_offset + 1))
    first_offset = state.segments[0].base_offset if state.segments else state.log_start_offset
    state.epochs = state.epochs.truncate_from_start(first_offset)  # replicas read records below the log start too


def _ends_below(segment: Segment, offset: int) -> bool:
    """Return whether the segment begins below `offset` and has no record at or above it."""
    return segment.base_offset < offset and segment.find(offset, segment.size_bytes) is None


def _tidy_snapshots(state: LoadState) -> None:
    """Keep only the snapshots at the base offsets of segments, and the latest one up to the log's end."""
    kept = {segment.base_offset for segment in state.segments}
    if kept:
        kept.add(max(offset for offset in (*kept, *state.snapshots.offsets) if offset <= state.end_offset))
    if not state.clean:
        kept -= {offset for offset in state.snapshots.offsets if not _is_readable(state, offset)}
    if state.snapshots.remove(lambda offset: offset not in kept) and not state.clean:
        state.fs.flush_dir(state.folder)  # new records may get the offsets that the removed snapshots describe


def _is_readable(state: LoadState, offset: int) -> bool:
    try:
        state.snapshots.read(offset)
    except CorruptSnapshot as error:
        logger.warning("%s: snapshot %d: %s; removed", state.folder, offset, error)
        return False
    return True
