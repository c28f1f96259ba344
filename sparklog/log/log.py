"""The log of one partition: a folder of segments; appends go to the last one, the active segment.

`Log` is the public interface; what only some callers need is in its parts `as_follower`, `replacer` and
`offset_snapshots`. The log's current state (offsets, invariants, locks) is in state.py. Each other module does one
thing to that state:

    read.py               find a slice of whole batches, not yet read; find records by timestamp
    append.py             append as a leader; roll; producers and their transactions (producers/)
    follow.py             append as a follower, into the same segments as the leader's
    flush.py              flush segments, file names and leader epochs; advance the recovery point
    truncate.py           remove the end of the log
    old_segments.py       delete the oldest segments
    replacement/          replace closed segments with the segments that a cleaner made
    move.py               move the log to another log directory
    deleted_segments.py   keep the files of removed segments until their delay has passed
    offset_snapshots/     store the newest record of each key, beside the segments
    recovery.py           open a folder, also after a crash

The `write_checkpoints` function passed to `open` stores the recovery point, the log start offset and the compacted
offset. One checkpoint file holds the values of all logs in a directory.

All methods are thread-safe. disk.py describes what happens when the disk fails.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable

from sparklog.base.clock import Clock
from sparklog.base.errors import InconsistentTopicId
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.log.append import LogWriter
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.directory.checkpoints import PartitionMetadataFile
from sparklog.log.directory.free_space import FreeSpace
from sparklog.log.disk import DiskGuard
from sparklog.log.epochs import EpochEnd, LeaderEpochs
from sparklog.log.files import DELETE_FOLDER, marked_folder_name
from sparklog.log.flush import Flusher
from sparklog.log.follow import FollowerAppends
from sparklog.log.move import LogMove, MoveTarget
from sparklog.log.offset_snapshots.store import SnapshotStore
from sparklog.log.old_segments import OldSegmentDeleter
from sparklog.log.producers.producer_state import ProducerState
from sparklog.log.producers.snapshots import ProducerSnapshots
from sparklog.log.producers.verifications import Verification
from sparklog.log.read import SegmentsReader
from sparklog.log.recovery import LoadState, load
from sparklog.log.replacement.replace import SegmentReplacer
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.slice import LogAppendInfo, LogSlice, TimestampOffset
from sparklog.log.state import LogChanges, LogState
from sparklog.log.truncate import Truncator
from sparklog.records.markers import EndTransactionMarker

__all__ = ["Log", "LogAppendInfo", "LogSlice", "TimestampOffset"]


class Log:
    """One partition's log, created by `open`. Methods raise KafkaStorageError if the disk fails."""

    def __init__(
        self,
        loaded: LoadState,
        clock: Clock,
        guard: DiskGuard,
        write_checkpoints: Callable[[], None],
        jitter: Callable[[int], int],
        room: FreeSpace,
        changes: LogChanges,
    ) -> None:
        """Internal: use `open`."""
        fs, cache = loaded.fs, loaded.cache
        self._fs = fs
        self._cache = cache
        self._state = state = LogState(loaded, guard, room, changes)
        self._reader = SegmentsReader(state, fs)
        self._flusher = flusher = Flusher(
            state, fs, clock, loaded.epochs_on_disk, have_names_changed=loaded.has_changed
        )
        self._deleted = deleted = DeletedSegments(state, flusher, clock)
        self._writer = writer = LogWriter(
            state, flusher, deleted, fs=fs, cache=cache, clock=clock, snapshots=loaded.snapshots,
            producers=loaded.producers, jitter=jitter,
        )  # fmt: skip
        self.as_follower = FollowerAppends(state, writer, flusher, clock, write_checkpoints)
        """Appends to a replica whose leader is another broker."""
        self.offset_snapshots = SnapshotStore(state, flusher, fs)
        """Snapshots of the newest record of each key."""
        self._truncator = Truncator(state, writer, flusher, self.offset_snapshots, write_checkpoints)
        self._old_segments = OldSegmentDeleter(state, writer, deleted, write_checkpoints)
        self.replacer = SegmentReplacer(
            state, self._reader, writer, flusher, deleted, fs=fs, cache=cache, clock=clock,
            write_checkpoints=write_checkpoints,
        )  # fmt: skip
        """Replaces closed segments by those that a cleaner made."""

    def __repr__(self) -> str:
        return f"Log({self.folder!r}, {self.log_start_offset}..{self.log_end_offset})"

    def __str__(self) -> str:
        return str(self._state)

    # Open and close

    @classmethod
    def open(
        cls,
        fs: Fs,
        folder: str,
        config: TopicConfig,
        clock: Clock,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        compacted_to: int | None = None,
        cache: SegmentCache | None = None,
        on_error: Callable[[OSError], None] | None = None,
        on_stop: Callable[[str], None] | None = None,
        write_checkpoints: Callable[[], None] = lambda: None,
        jitter: Callable[[int], int] = lambda _: 0,
        room: FreeSpace | None = None,
        changes: LogChanges | None = None,
    ) -> Log:
        """Open the log in `folder` (`<log dir>/<topic>-<n>`) and recover it, or create an empty log there.

        clean: the last shutdown was clean, so nothing needs recovery. recovery_point, log_start_offset: the
        checkpointed values; log_start_offset None: the log may begin at any offset. compacted_to: see recovery.py.
        cache: shared with other logs. on_error: called when the disk fails. on_stop: called with the reason when this
        log goes offline alone. write_checkpoints: stores this log's recovery point and log start offset. jitter:
        returns a random number below its argument, for segment.jitter.ms. room: the free-space check of the log's
        directory. changes: counts changes, together with those of other logs.

        Raises OSError, or CorruptRecord if flushed batches cannot be read.
        """
        fs.make_dir(folder)
        loading = LoadState(
            fs=fs, folder=folder, config=config, now_ms=clock.time_ms(), clean=clean, recovery_point=recovery_point,
            log_start_offset=log_start_offset or 0, knows_start=log_start_offset is not None, compacted_to=compacted_to,
            cache=SegmentCache() if cache is None else cache, snapshots=ProducerSnapshots.open(fs, folder),
        )  # fmt: skip
        load(loading)
        room, changes = room or FreeSpace(fs, folder), changes or LogChanges()
        guard = DiskGuard(folder, on_error, on_stop)
        log = cls(loading, clock, guard, write_checkpoints, jitter, room, changes)
        log._writer.open(loading.dropped)
        log.offset_snapshots.tidy()
        if compacted_to is None and not loading.clean:
            log.flush()  # the next start knows where checkpoints end, and must not take accepted gaps for holes
        return log

    def claim(self, topic_id: uuid.UUID) -> None:
        """Store the id of the partition's topic, unless one is already stored; durable on return.

        Raises InconsistentTopicId if the log belongs to another topic, or KafkaStorageError.
        """
        state = self._state
        with state.disk:
            if state.topic_id is None:
                with state.room.retriable_write("the topic's id"):
                    PartitionMetadataFile(self._fs, state.folder).write(topic_id)
                state.claim(topic_id)
            elif state.topic_id != topic_id:
                raise InconsistentTopicId(
                    f"{state.folder} is of the topic with id {encode_id(state.topic_id)}, not {encode_id(topic_id)}"
                )

    def close(self) -> None:
        """Finish and flush everything, close the files, and refuse all further use."""
        state = self._state
        with state.files_lock, state.disk:
            with state.lock, state.room.retriable_write("the end of a log"):
                self._writer.close()
            self.flush()
            state.disk.go_offline("the log is closed")
            for segment in state.segments:
                self._cache.forget(segment)
                segment.release()

    def go_offline(self, reason: str) -> None:
        """Refuse all further use and leave the files untouched: their directory has failed."""
        self._state.disk.go_offline(reason)

    def rename_for_delete(self, mark: str = DELETE_FOLDER) -> str:
        """Refuse all further use and rename the folder so that the next start deletes it. Return the new folder.

        mark: STRAY_FOLDER: no start deletes or opens it. The caller must flush the names in the log directory.
        """
        state = self._state
        with state.files_lock, self._flusher.lock, state.lock, state.disk:
            state.disk.go_offline("the log is deleted")
            parent, name = posixpath.split(state.folder)
            folder = f"{parent}/{marked_folder_name(name, uuid.uuid4().hex, mark)}"
            try:
                self._fs.rename(state.folder, folder)
            except OSError:
                state.disk.go_online()  # the log was not deleted: the disk guard records the failure instead
                raise
            state.move(folder)
            self._deleted.move(folder)
            self._writer.abandon()
            for segment in state.segments:
                segment.move(folder)
                self._cache.forget(segment)
                segment.release()
            return folder

    def begin_move(self, folder: str, room: FreeSpace, on_error: Callable[[OSError], None]) -> LogMove:
        """Return a move of this log to another log directory of its broker; nothing is copied yet.

        folder: where the copy grows, `<log dir>/<topic>-<n>.<unique>-future`. room, on_error: the free-space check of
        that directory, and a function that is called if its disk fails.
        """
        return LogMove(
            self._state, self._writer, self._flusher, self._deleted, self.offset_snapshots, self.replacer, self._fs,
            MoveTarget(folder, DiskGuard(folder, on_error, self._state.disk.on_stop), room),
        )  # fmt: skip

    def configure(self, config: TopicConfig) -> None:
        """Apply a new topic configuration."""
        self._writer.configure(config)

    # Properties

    @property
    def partition(self) -> TopicPartition:
        """The topic and the number of the partition, from the folder's name."""
        return self._state.partition

    @property
    def folder(self) -> str:
        """The path of the folder; another one after a move and after `rename_for_delete`."""
        return self._state.folder

    @property
    def config(self) -> TopicConfig:
        """The topic's configuration, as last given to `configure`."""
        return self._state.config

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id; None until `claim` has stored one."""
        return self._state.topic_id

    @property
    def log_start_offset(self) -> int:
        """The first offset that clients may read; older segments may still be there."""
        return self._state.start_offset

    @property
    def promised_start_offset(self) -> int:
        """The log start offset for the checkpoint; above the log's only while a deletion waits until it is written."""
        return self._state.promised_start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets, unless the leader of a follower leaves a gap."""
        return self._state.end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything would survive a power cut."""
        return self._state.recovery_point

    @property
    def compacted_to(self) -> int:
        """The offset up to which the cleaner has compacted, as written to the checkpoint."""
        return self._state.compacted_to

    @property
    def cleaned_offset(self) -> int:
        """The offset below which every record has been compacted or lies below the log start."""
        return max(self._state.compacted_to, self._state.start_offset)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the active one."""
        return self._state.segments.items

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment; an empty replica of this log starts there."""
        return self._state.segments.items[0].base_offset

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments' batches, without indexes."""
        return sum(segment.size_bytes for segment in self._state.segments)

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the records from the log start on."""
        return self._state.epochs

    @property
    def stored_epochs(self) -> LeaderEpochs:
        """The leader epochs of all stored records, including those below the log start."""
        return self._state.stored_epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of a record; -1 if there is none."""
        return self._state.stored_epochs.latest

    @property
    def generation(self) -> int:
        """A counter, incremented when closed segments, their metadata or snapshots change other than by append.

        A changed value means that an earlier comparison with another replica's log is out of date.
        """
        return self._state.generation

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """Return where the epoch's records end, from which a follower decides what to truncate."""
        return self._state.epochs.end_offset_for(epoch, self._state.end_offset)

    # Read; nothing here waits for a lock

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_offset: int | None = None,
        min_one_batch: bool = True,
        for_replica: bool = False,
    ) -> LogSlice:
        """Return a slice of whole batches of one segment, from the batch that holds `offset`, at most `max_bytes`.

        max_offset: exclude batches that reach this offset; None: read up to the log end. min_one_batch: return the
        first batch even if it is larger than `max_bytes`. for_replica: also serve stored records below the log start,
        because replicas copy whole segments.

        Raises OffsetOutOfRange below the log start or above the log end, or KafkaStorageError.
        """
        return self._reader.read(
            offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch, for_replica=for_replica
        )

    def read_with_aborted(
        self, offset: int, max_bytes: int, *, max_offset: int, min_one_batch: bool = True
    ) -> tuple[LogSlice, list[AbortedTransaction]]:
        """Read as `read` does; return also the aborted transactions with batches in the slice.

        Both come from the same segments: a cleaner or retention may remove the index of records that a slice still has.
        max_offset: the last stable offset. Raises as `read` and `aborted_transactions` do.
        """
        return self._reader.read_with_aborted(offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction has ended, its marker below `high_watermark`.

        At most `high_watermark`, and at least the log start offset unless that is higher.
        """
        return self._writer.last_stable_offset(high_watermark)

    def aborted_transactions(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `fetch_offset` on and below `upper_bound_offset`.

        In the order of their markers. Cost: a binary search in the index of one segment, and the entries until one
        that was written when all before the upper bound was stable; segments without aborted transactions cost
        nothing. Raises CorruptRecord if an index was damaged since the log was opened, or KafkaStorageError.
        """
        return self._reader.aborted_transactions(fetch_offset, upper_bound_offset)

    def open_file(self, base_offset: int, suffix: str, identity: str | None = None) -> LogSlice:
        """Return a whole file of the segment with that base offset, or the log's LEADER_EPOCHS file, as it is now.

        The slice is empty if the file does not exist. A `.log` file ends with its last whole batch, also in the active
        segment. Raises OffsetOutOfRange if no segment has that base offset, InvalidUpdateVersion if the segment's
        identity differs from `identity`, or KafkaStorageError.
        """
        return self._reader.open_file(base_offset, suffix, identity)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record with a timestamp at or after `timestamp_ms`, or None."""
        return self._reader.offset_for_timestamp(timestamp_ms)

    def max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the greatest timestamp; None if no record has one."""
        return self._reader.max_timestamp()

    # Append

    def append(
        self,
        data: bytearray | memoryview,
        *,
        leader_epoch: int,
        verification: Verification | None = None,
        is_coordinators: bool = False,
    ) -> LogAppendInfo:
        """Append produced batches as the leader; their offsets, epoch and timestamps are written into `data`.

        Return where they are; for duplicates, where they were appended before.

        verification: from `begin_verification`, after the coordinator has confirmed the transaction; needed by a batch
        that begins one. UNVERIFIED allows every transaction. is_coordinators: a coordinator writes the batch in a
        producer's transaction, without sequence numbers of its own (AppendOrigin.COORDINATOR in Apache Kafka).

        Raises what `prepare` and `ProducerStates.check` raise, in which case nothing is written, or KafkaStorageError.
        """
        return self._writer.append(data, leader_epoch, verification, is_coordinators=is_coordinators)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int = -1
    ) -> Verification | None:
        """Return the verification with which a batch may begin a transaction; None if the transaction is open here.

        Call it before the coordinator is asked, with the sequence number of the batch; pass the result to `append`. The
        verification is void, and `append` raises InvalidTxnState, once the transaction may have ended
        (producers/verifications.py). Raises InvalidProducerEpoch if a verification of a newer epoch is in progress.
        """
        return self._writer.begin_verification(producer_id, producer_epoch, first_sequence)

    def append_marker(
        self, marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, leader_epoch: int, is_strict: bool
    ) -> LogAppendInfo:
        """Append, as the leader, a marker that ends the producer's transaction, even if no transaction is open.

        A marker that was written before (same epoch, same coordinator epoch, no open transaction) is not written again:
        the result is a duplicate, whose last offset is committed once the marker is. is_strict: the marker must have a
        newer epoch than the transaction (transaction version 2).

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced or KafkaStorageError; nothing is written then.
        """
        return self._writer.append_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, leader_epoch=leader_epoch,
            is_strict=is_strict,
        )  # fmt: skip

    def roll(self) -> None:
        """Begin a new segment at the log end offset, unless the active one is empty."""
        with self._state.lock, self._state.disk:
            self._writer.roll(self._state.end_offset)

    @property
    def producers(self) -> dict[int, ProducerState]:
        """The state of each known producer, by producer id."""
        return self._writer.producers

    def expire_producers(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for `after_ms` and return how many. now_ms: of the wall clock."""
        return self._writer.expire_producers(now_ms, after_ms)

    # Flush

    def flush(self, up_to: int | None = None) -> None:
        """Make every record below `up_to` (None: all) survive a power cut, and advance the recovery point."""
        self._flusher.flush(up_to)

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush all records if flush.ms has passed with unflushed records, else the newly closed segments.

        now_ms: of the monotonic clock. Returns whether closed segments were flushed.
        """
        return self._flusher.flush_if_due(now_ms)

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages records are unflushed. Appends never flush: the caller flushes."""
        return self._state.must_flush

    @property
    def counted_end_offset(self) -> int:
        """The offset below which records count as stored here: the recovery point if `must_flush`, else the log end."""
        return self._state.recovery_point if self._state.must_flush else self._state.end_offset

    # Truncate and delete

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a record at or above `offset`; durable on return."""
        self._truncator.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next record gets `offset`. Durable on return."""
        self._truncator.truncate_fully_and_start_at(offset)

    def advance_log_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`. The next `delete_old_segments` removes the segments below.

        Raises OffsetOutOfRange above the log end. An offset below the log start changes nothing.
        """
        self._old_segments.advance_log_start(offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None, is_led: bool = True) -> int:
        """Delete the segments that retention selects (retention.py) and return how many.

        now_ms: of the wall clock. high_watermark: no record at or above it is deleted; None: the log end offset.
        is_led: False on a follower, which only deletes segments below the log start.
        """
        return self._old_segments.delete(now_ms, high_watermark, is_led=is_led)

    def delete_expired(self, now_ms: int) -> int:
        """Remove files that have been .deleted for file.delete.delay.ms; return the number of segments.

        now_ms: of the monotonic clock.
        """
        return self._deleted.delete_expired(now_ms)
