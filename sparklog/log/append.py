"""Appending to a log as its leader: the active segment, rolling, and producer state.

    append     check and stamp the batches (validator.py); check their sequence numbers (producer_state.py); roll if
               needed; write once; add index entries. Nothing is flushed
    marker     the same with the marker of a transaction; an abort marker also gets an entry in the transaction index
    roll       finish the segment, begin the next one at the log end offset, and write a snapshot of the producer
               state at that offset, from which a recovery starts

Each step takes the log's lock, and none waits for a disk. A full disk leaves the log unchanged (free_space.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparklog.base.clock import Clock
from sparklog.base.fs import Buffer, File, Fs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.disk import undoing
from sparklog.log.flush import Flusher
from sparklog.log.producers.producer_state import (
    DuplicateAppend,
    MarkerBatch,
    ProducerBatch,
    ProducerState,
    ProducerStates,
)
from sparklog.log.producers.recovery import rebuild
from sparklog.log.producers.snapshots import ProducerSnapshots
from sparklog.log.producers.verifications import Verification
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.segment_writer import SegmentWriter
from sparklog.log.slice import LogAppendInfo
from sparklog.log.state import LogState
from sparklog.log.validator import PreparedBatches, prepare, prepare_marker
from sparklog.records.markers import EndTransactionMarker


class LogWriter:
    """Writer of a log's active segment, and owner of its producer state. Call `open` first.

    If the disk fails, methods raise KafkaStorageError; methods whose caller holds the lock raise OSError.
    """

    def __init__(
        self,
        state: LogState,
        flusher: Flusher,
        deleted: DeletedSegments,
        *,
        fs: Fs,
        cache: SegmentCache,
        clock: Clock,
        snapshots: ProducerSnapshots,
        producers: ProducerStates,
        jitter: Callable[[int], int],
    ) -> None:
        self._state = state
        self._flusher = flusher
        self._deleted = deleted
        self._fs = fs
        self._cache = cache
        self._clock = clock
        self._snapshots = snapshots
        self._producers = producers
        self._jitter = jitter
        self._segment: SegmentWriter

    def open(self, dropped: Iterable[Segment]) -> None:
        """Reopen the last segment, or begin the first one. dropped: removed segments whose files are not renamed yet"""
        dropped = list(dropped)
        if dropped:
            self._deleted.discard(dropped)
            self._flusher.flush_names()  # new records may get the same offsets
        if len(self._state.segments):
            self.reopen(self._state.segments.last)
        else:
            self._state.segments.add(self._begin_segment(self._state.end_offset))

    # Producers

    @property
    def producers(self) -> dict[int, ProducerState]:
        """A copy of the producers' states, by producer id."""
        with self._state.lock:
            return self._producers.copy()

    def expire_producers(self, now_ms: int, after_ms: int) -> int:
        """See `Log.expire_producers`."""
        with self._state.lock:
            return self._producers.expire(now_ms, after_ms)

    def begin_verification(self, producer_id: int, producer_epoch: int, first_sequence: int) -> Verification | None:
        """See `Log.begin_verification`."""
        with self._state.lock:
            return self._producers.begin_verification(
                producer_id, producer_epoch, first_sequence, self._clock.time_ms()
            )

    def last_stable_offset(self, high_watermark: int) -> int:
        """See `Log.last_stable_offset`."""
        stable = self._producers.transactions.last_stable_offset(high_watermark)
        if stable < high_watermark:
            return min(high_watermark, max(stable, self._state.start_offset))
        return stable

    def producers_at(self, offset: int) -> ProducerStates:
        """Return the producer state as of `offset`, where a segment begins. Raises OSError."""
        return rebuild(self._snapshots, self._state.segments.items, offset, self._clock.time_ms())

    def replay_producers(self, producer_batches: Iterable[ProducerBatch | MarkerBatch]) -> None:
        """Apply written batches and markers to the producer state; the leader has checked them. Raises OSError."""
        now_ms = self._clock.time_ms()
        for found in producer_batches:
            aborted = self._producers.replay(found, now_ms)
            if aborted and self._segment.add_aborted(aborted):
                self._flusher.names_changed()

    @property
    def snapshot_offsets(self) -> list[int]:
        """The offsets of the snapshots of producer state."""
        return self._snapshots.offsets

    def index_files(self) -> dict[str, bytes]:
        """See `SegmentWriter.index_files`. The caller holds the lock."""
        return self._segment.index_files()

    def change_directory(self, folder: str, file: File) -> None:
        """Continue in `folder`, which has copies of all files. file: the active segment's file there. The caller holds
        the lock."""
        for segment in self._state.segments.items[:-1]:
            segment.change_directory(folder)
        self._segment.change_directory(folder, file)
        self.move_snapshots(folder)

    def move_snapshots(self, folder: str) -> None:
        """Record that the log's folder is `folder` now."""
        self._snapshots.move(folder)

    def drop_snapshots_below(self, offset: int) -> None:
        """Remove the snapshots of producer state below `offset`. Raises OSError."""
        self._snapshots.remove(lambda taken: taken < offset)

    def drop_snapshots_at(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots of producer state at `offsets`. Raises OSError."""
        self._snapshots.remove(frozenset(offsets).__contains__)

    # Records

    def configure(self, config: TopicConfig) -> None:
        """See `Log.configure`."""
        with self._state.lock:
            self._state.configure(config)
            self._segment.configure(config)

    def append(
        self,
        data: bytearray | memoryview,
        leader_epoch: int,
        verification: Verification | None,
        *,
        is_coordinators: bool = False,
    ) -> LogAppendInfo:
        """See `Log.append`."""
        state = self._state
        with state.lock, state.disk:
            first_offset, now_ms = state.end_offset, self._clock.time_ms()
            prepared = prepare(
                data, next_offset=first_offset, leader_epoch=leader_epoch, config=state.config, now_ms=now_ms
            )
            if not prepared.producer_batches:
                return self.write(data, prepared, first_offset, leader_epoch, now_ms)
            checked = self._producers.check(
                prepared.producer_batches, now_ms, verification, is_coordinators=is_coordinators
            )
            if isinstance(checked, DuplicateAppend):
                append_time_ms = checked.timestamp_ms if prepared.log_append_time_ms >= 0 else -1
                return checked.append_info(
                    append_time_ms, leader_epoch, log_start_offset=state.start_offset, must_flush=state.must_flush
                )
            appended = self.write(data, prepared, first_offset, leader_epoch, now_ms)
            self._producers.apply(checked)
            return appended

    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, leader_epoch: int, is_strict: bool
    ) -> LogAppendInfo:
        """See `Log.append_marker`."""
        state = self._state
        with state.lock, state.disk:
            offset, now_ms = state.end_offset, self._clock.time_ms()
            found = MarkerBatch(
                producer_id, producer_epoch, offset, marker.is_commit, marker.coordinator_epoch, now_ms
            )  # fmt: skip
            if not self._producers.check_marker(found, is_strict=is_strict):
                return LogAppendInfo(
                    offset - 1, offset - 1, now_ms, offset - 1, -1, leader_epoch, size_bytes=0,
                    log_start_offset=state.start_offset, must_flush=state.must_flush, is_duplicate=True,
                )  # fmt: skip
            data, prepared = prepare_marker(found, leader_epoch=leader_epoch, config=state.config)
            appended = self.write(data, prepared, offset, leader_epoch, now_ms)
            self.replay_producers((found,))
            return appended

    def write(
        self,
        data: Buffer,
        prepared: PreparedBatches,
        first_offset: int,
        leader_epoch: int,
        now_ms: int,
        *,
        rolls: bool = True,
    ) -> LogAppendInfo:
        """Write checked batches. The caller holds the lock.

        rolls: roll to a new segment if one is due. Raises KafkaStorageError if the disk has no room, or OSError: the
        log is unchanged then.
        """
        state = self._state
        batches, max_timestamp_ms, offset_of_max_timestamp, append_time_ms, _ = prepared
        last_offset = batches[-1].last_offset
        size = len(data)
        self._state.room.claim(size)
        if rolls and self._segment.should_roll(size, last_offset, max_timestamp_ms, now_ms):
            self.roll(first_offset)
        try:
            self._segment.append(data, batches)
        except OSError as error:
            self._state.room.check(error, "records")
            raise
        must_flush = state.note_append(leader_epoch, first_offset, last_offset + 1)
        return LogAppendInfo(
            first_offset, last_offset, max_timestamp_ms, offset_of_max_timestamp, append_time_ms, leader_epoch, size,
            state.start_offset, must_flush,
        )  # fmt: skip

    # Segments; the caller holds the lock

    def has_room_for(self, last_offset: int) -> bool:
        """Return whether the active segment's indexes can hold that offset."""
        return self._segment.has_room_for(last_offset)

    def roll(self, base_offset: int) -> None:
        """Begin a new segment at `base_offset`, unless the active one begins there. Raises OSError."""
        if base_offset == self._state.segments.last.base_offset:
            return
        with self._state.room.retriable_write("another segment"):
            former = self._segment
            former.finish()
            segment = self._begin_segment(base_offset)
            former.abandon()
            self._state.add_segment(segment)
            if self._snapshots.take(base_offset, self._producers.entries()):
                self._flusher.names_changed()

    def reopen(self, segment: Segment) -> None:
        """Make `segment` the active one; the former has been released. Raises OSError."""
        limit_ms = min(self._state.config.segment_jitter_ms, self._state.config.segment_ms)
        jitter_ms = self._jitter(limit_ms) if limit_ms else 0
        self._segment = SegmentWriter.open(
            self._fs, segment, self._state.config, self._clock.time_ms(), jitter_ms=jitter_ms
        )

    def reopen_previous(self) -> None:
        """Remove the last segment, which is empty, and reopen the one before it. Raises OSError."""
        self._state.lower_promises(self._state.end_offset)  # a running flush must not count that one as flushed
        empty, before = self._state.segments.items[-1], self._state.segments.items[-2]
        former = self._segment
        self.reopen(before)
        former.abandon()
        self._state.segments.remove([empty])
        self._deleted.discard([empty])

    def remove_segments(self, gone: Iterable[Segment]) -> None:
        """Remove the given last segments and reopen the one before them. Raises OSError."""
        gone = list(gone)
        self._segment.abandon()
        self._state.segments.remove(gone)
        self._deleted.discard(gone)
        self.reopen(self._state.segments.last)

    def restart_at(self, offset: int) -> None:
        """Remove all segments; the next record gets `offset`. Raises OSError."""
        self._segment.abandon()
        self._deleted.discard(self._state.segments)
        segment = self._begin_segment(offset)
        self._state.restart_at(offset, segment)
        self.forget_producers_above(-1)
        self._producers.clear()

    def cut(self, end_offset: int, position: int) -> None:
        """Truncate the active segment at a batch boundary, and flush it. Raises OSError."""
        self._segment.truncate(end_offset, position, self._clock.time_ms())

    def forget_producers_above(self, end_offset: int) -> None:
        """Remove the snapshots of producer state above `end_offset`, the log's new end. Raises OSError."""
        if self._snapshots.remove(lambda taken: taken > end_offset):
            self._flusher.names_changed()

    def rebuild_producers(self, end_offset: int) -> None:
        """Rebuild the producer state as of `end_offset`, the log's new end. Raises OSError."""
        if len(self._producers):
            self._producers = self.producers_at(end_offset)
        else:
            self._producers.clear()  # verifications are void

    def close(self) -> None:
        """Finish the segment and write a snapshot of the producer state. Raises OSError."""
        self._segment.close()
        if self._snapshots.take(self._state.end_offset, self._producers.entries(), flush=True):
            self._flusher.names_changed()

    def abandon(self) -> None:
        """Stop writing, and leave the files as they are."""
        self._segment.abandon()

    def _begin_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._fs, self._state.folder, base_offset, 0, self._cache)
        segment.remove()
        try:
            self.reopen(segment)
        except OSError:
            with undoing(f"half of {segment}"):
                segment.remove()  # the log continues without it, and must not get an empty segment in its middle
            raise
        finally:
            self._flusher.names_changed()
        return segment
