"""The log of one partition: a folder of segments, of which the last is written.

    log start offset    the first offset there is for readers; segments below it go when retention comes by
    recovery point      everything below is on the disk: batches, names, leader epochs
    log end offset      what the next record will get

    append     check and stamp the batches (produced.py), see whether they are the next of their producers or have been
               written before (producer_state.py), roll if need be, one write, index entries; nothing is flushed
    read       as readable.py says: a slice of whole batches, still unread
    flush      what was written since the recovery point, the names, the leader epochs; then the recovery point moves
               (durable.py)
    replace    closed segments by one that a cleaner has made of them (replaceable.py)
    truncate   the recovery point is lowered first, on the disk too; then files are cut and flushed
    retain     the log start offset is moved first, on the disk too; then the oldest segments' files become .deleted.
               They go after file.delete.delay.ms, and a slice in flight stays readable even then

`remember`, given to `open`, is what writes the first two down: they are kept for all logs of a directory together.

Threads: every method may be called from any. Changes take one lock, which nobody holds while waiting for a disk,
except a truncation (what else is locked: durable.py); reads take none: they work on the segments as they were when they
began.

After a crash: recovery.py. When the disk fails: disk.py.
"""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Callable, Sequence

from sparklog.base.clock import Clock
from sparklog.base.errors import InconsistentTopicId, InvalidRecord, OffsetOutOfRange, UnexpectedGap
from sparklog.base.fs import Buffer, Fs
from sparklog.base.ids import encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.log.active import ActiveSegment
from sparklog.log.cache import SegmentCache
from sparklog.log.checkpoints import PartitionMetadata
from sparklog.log.disk import DiskGuard, without_room
from sparklog.log.epochs import LeaderEpochs
from sparklog.log.files import delete_folder_name
from sparklog.log.offset_snapshot import OffsetSnapshots, Snapshot, SnapshotId, SnapshotWriter, what_is_stale
from sparklog.log.produced import Prepared, prepare, read_placed
from sparklog.log.producer_recovery import rebuild
from sparklog.log.producer_state import Duplicate, ProducerState
from sparklog.log.recovery import Loading, load
from sparklog.log.replaceable import ReplaceableLog
from sparklog.log.retention import count_below_start, count_removable
from sparklog.log.segment import Segment
from sparklog.log.slice import Appended, LogSlice, TimestampOffset
from sparklog.log.snapshots import SnapshotFiles
from sparklog.records.batch import BatchHeader

__all__ = ["Appended", "Log", "LogSlice", "TimestampOffset"]
logger = logging.getLogger(__name__)


class Log(ReplaceableLog):
    """One partition's log, made by `open`. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self,
        loaded: Loading,
        clock: Clock,
        on_error: Callable[[Log, OSError], None] | None,
        remember: Callable[[Log], None] | None,
        jitter: Callable[[int], int] | None,
    ) -> None:
        disk = DiskGuard(loaded.folder, lambda error: on_error(self, error) if on_error else None)
        super().__init__(loaded, disk, clock, lambda: remember(self) if remember else None)
        self.topic_id = loaded.topic_id
        self._jitter = jitter or (lambda _: 0)
        self._producers = loaded.producers
        self._offset_snapshots = OffsetSnapshots(loaded.fs, loaded.folder)
        self._offset_snapshots.tidy(loaded.end_offset)
        if loaded.dropped:
            self._discard(loaded.dropped)
            self._flushed.flush_names()  # what comes next may take the same offsets
        if loaded.segments:
            self._active = self._write_to(self._segments.last)
        else:
            self._active = self._begin_segment(self.log_end_offset)
            self._segments.add(self._active.segment)

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
        log_start_offset: int = 0,
        compacted_to: int | None = None,
        cache: SegmentCache | None = None,
        on_error: Callable[[Log, OSError], None] | None = None,
        remember: Callable[[Log], None] | None = None,
        jitter: Callable[[int], int] | None = None,
    ) -> Log:
        """Open the log in `folder` (`<log dir>/<topic>-<n>`), recovering it first, or make an empty one there.

        clean: the last stop was clean, so there is nothing to recover. recovery_point, log_start_offset: as remembered.
        compacted_to: see recovery.py. cache: shared with other logs. on_error: told when the disk fails. remember:
        writes down this log's recovery point and start. jitter: a random number below its argument, for
        segment.jitter.ms.

        Raises OSError, or CorruptRecord where flushed batches cannot be read.
        """
        fs.make_dir(folder)
        loading = Loading(
            fs=fs, folder=folder, config=config, now_ms=clock.time_ms(), clean=clean, recovery_point=recovery_point,
            log_start_offset=log_start_offset, compacted_to=compacted_to,
            cache=SegmentCache() if cache is None else cache, snapshots=SnapshotFiles(fs, folder),
        )  # fmt: skip
        load(loading)
        return cls(loading, clock, on_error, remember, jitter)

    @property
    def producers(self) -> dict[int, ProducerState]:
        """What is remembered of each producer, by its id."""
        with self._lock:
            return self._producers.copy()

    def claim(self, topic_id: uuid.UUID) -> None:
        """Write down that this is a partition of that topic, if nobody has yet; on the disk when this returns.

        Raises InconsistentTopicId where it is one of another topic, or KafkaStorageError.
        """
        with self._disk:
            if self.topic_id is None:
                PartitionMetadata(self._fs, self.folder).write(topic_id)
                self.topic_id = topic_id
        if self.topic_id != topic_id:
            raise InconsistentTopicId(
                f"{self.folder} is of the topic with id {encode_id(self.topic_id)}, not {encode_id(topic_id)}"
            )

    def configure(self, config: TopicConfig) -> None:
        """From now on, go by `config`."""
        with self._lock:
            self.config = config
            self._active.configure(config)

    # Appending

    def append(self, data: bytearray | memoryview, *, leader_epoch: int) -> Appended:
        """Append produced batches as their leader; their offsets, epoch and timestamps are written into `data`.

        Raises as `prepare` and `ProducerStates.check` do, with nothing written, or KafkaStorageError.
        """
        with self._lock, self._disk:
            first_offset, now_ms = self.log_end_offset, self._clock.time_ms()
            prepared = prepare(
                data, next_offset=first_offset, leader_epoch=leader_epoch, config=self.config, now_ms=now_ms
            )
            if not prepared.numbered:
                return self._write(data, prepared, first_offset, leader_epoch, now_ms)
            checked = self._producers.check(prepared.numbered, now_ms)
            if isinstance(checked, Duplicate):
                append_time_ms = checked.timestamp_ms if prepared.log_append_time_ms >= 0 else -1
                return checked.answer(append_time_ms, leader_epoch)
            appended = self._write(data, prepared, first_offset, leader_epoch, now_ms)
            self._producers.apply(checked)
            return appended

    def append_as_follower(self, data: Buffer, *, rolls: bool = True, takes_gaps: bool = True) -> Appended:
        """Append batches as their leader stored them: offsets and epochs are theirs, and may leave gaps.

        rolls: begin a new segment when a leader would; False: only `follow_segment` does. takes_gaps: False where a
        recovery that takes a gap for torn would cut off what others count on (`append_with_gaps`).

        Raises CorruptRecord, InvalidRecord for an offset that is taken, UnexpectedGap or KafkaStorageError; nothing is
        written then.
        """
        with self._lock, self._disk:
            prepared, headers, numbered = read_placed(data)
            first = headers[0]
            if first.base_offset < self.log_end_offset:
                raise InvalidRecord(f"{self!r} cannot take a batch at offset {first.base_offset}")
            if not (rolls or self._active.has_room_for(headers[-1].last_offset)):
                raise InvalidRecord(f"{self!r}: offset {headers[-1].last_offset} is too far from its segment's base")
            if not takes_gaps and _has_gap(headers, self.log_end_offset):
                raise UnexpectedGap(f"{self!r} gets a gap at offset {first.base_offset} or later")
            appended = self._write(
                data, prepared, first.base_offset, first.leader_epoch, self._clock.time_ms(), rolls=rolls
            )
            for header in headers[1:]:
                self._assign_epoch(header.leader_epoch, header.base_offset)
            for found in numbered:
                self._producers.replay(found, self._clock.time_ms())
            return appended

    def append_with_gaps(self, data: Buffer) -> None:
        """As `append_as_follower` without rolling, of a log that a cleaner has taken records from.

        All is on the disk when this returns, and written down as flushed: no recovery takes a gap below that for torn.
        """
        self.append_as_follower(data, rolls=False)
        self.flush()
        with self._disk:
            self._remember()

    def roll(self) -> None:
        """Begin a new segment at the log end offset, unless the one that is written is empty."""
        with self._lock, self._disk:
            self._roll(self.log_end_offset)

    def follow_segment(self, base_offset: int) -> None:
        """What comes next lies in the leader's segment that begins at `base_offset`: write to one that begins there.

        Where a truncation has left the last segment empty and the leader has not rolled there, the one before is
        written again. Where this log has records on both sides of `base_offset` in one segment, as a cleaner had made
        one of what are several on the new leader, it goes on with that one until the leader rolls again.

        Where the segment begins behind this log's end, a cleaner has taken all that was between: the log then ends
        where the segment begins, and on the disk too when this returns.
        """
        with self._files, self._lock, self._disk:
            has_gap = base_offset > self.log_end_offset
            if self._must_roll_to(base_offset):
                self._roll(base_offset)
                self.log_end_offset = base_offset
            elif self._must_go_back_to(base_offset):
                self._active.close()
                empty, before = self.segments[-1], self.segments[-2]
                self._segments.remove([empty])
                self._discard([empty])
                self._active = self._write_to(before)
        if has_gap:
            self.flush()
            with self._disk:
                self._remember()

    def is_at_segment(self, base_offset: int) -> bool:
        """Whether `follow_segment` has nothing to do; never waits."""
        return not (self._must_roll_to(base_offset) or self._must_go_back_to(base_offset))

    def _must_roll_to(self, base_offset: int) -> bool:
        return base_offset > self._segments.last.base_offset and base_offset >= self.log_end_offset

    def _must_go_back_to(self, base_offset: int) -> bool:
        last = self.segments[-2:]
        return len(last) > 1 and last[1].size_bytes == 0 and last[0].base_offset == base_offset

    def _write(
        self,
        data: Buffer,
        prepared: Prepared,
        first_offset: int,
        leader_epoch: int,
        now_ms: int,
        *,
        rolls: bool = True,
    ) -> Appended:
        batches, max_timestamp_ms, offset_of_max_timestamp, append_time_ms, _ = prepared
        last_offset = batches[-1].last_offset
        size = len(data)
        if rolls and self._active.should_roll(size, last_offset, max_timestamp_ms, now_ms):
            self._roll(first_offset)
        self._active.append(data, batches)
        self._assign_epoch(leader_epoch, first_offset)
        self.log_end_offset = last_offset + 1
        return Appended(
            first_offset, last_offset, max_timestamp_ms, offset_of_max_timestamp, append_time_ms, leader_epoch, size
        )

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch > self._epochs.latest:
            self._epochs = self._epochs.assign(epoch, start_offset)

    def _roll(self, base_offset: int) -> None:
        if base_offset == self._active.segment.base_offset:
            return
        self._active.finish()
        active = self._begin_segment(base_offset)
        self._active.close()
        self._active = active
        self._segments.add(active.segment)
        self._snapshots.take(base_offset, self._producers.entries())

    def _begin_segment(self, base_offset: int) -> ActiveSegment:
        segment = Segment(self._fs, self.folder, base_offset, 0, self._cache)
        segment.remove()
        self._flushed.have_names_changed = True
        return self._write_to(segment)

    def _write_to(self, segment: Segment) -> ActiveSegment:
        limit_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter_ms = self._jitter(limit_ms) if limit_ms else 0
        return ActiveSegment(self._fs, segment, self.config, self._clock.time_ms(), jitter_ms=jitter_ms)

    # Cutting off the end

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a record at or above `offset`; on the disk when this returns."""
        with self._files, self._lock, self._disk:
            if offset >= self.log_end_offset:
                self._epochs = self._epochs.truncate_from_end(self.log_end_offset)
            elif offset < self.segments[0].base_offset:
                self.truncate_fully_and_start_at(offset)
            else:
                self._lower_promises(offset)
                self._truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the next record gets `offset`. On the disk when this returns."""
        with self._files, self._lock, self._disk:
            self._lower_promises(0)  # with only some segments gone, a gap must not look like compaction's
            self._active.close()
            self._discard(self.segments)
            self._active = self._begin_segment(offset)
            self._segments.reset(self._active.segment)
            self._snapshots.remove(lambda _: True)
            self._offset_snapshots.remove(lambda _: True)
            self._producers.clear()
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset
            self._epochs = LeaderEpochs()
            self._flushed.flush_names()
            self._flushed.flush_epochs(self._epochs)
            self._remember()

    def _truncate_to(self, offset: int) -> None:
        last = self._segments.since(offset)[0]
        place = last.find(offset, last.size_bytes)
        end = min(offset, place.base_offset) if place else offset
        if end < offset:  # in the middle of a batch, which goes as a whole
            self._lower_promises(end)
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self._epochs = self._epochs.truncate_from_end(end)
        gone = self._segments.since(offset)[1:]
        if gone:
            self._active.close()
            self._segments.remove(gone)
            self._discard(gone)
            self._active = self._write_to(last)
        if place:
            self._active.truncate(end, place.position, self._clock.time_ms())
        self._flushed.have_names_changed |= self._snapshots.remove(lambda taken: taken > end)
        self._flushed.have_names_changed |= self._offset_snapshots.remove(lambda each: each.end_offset > end)
        self._flushed.flush_names()
        if len(self._producers):
            self._producers = rebuild(self._snapshots, self.segments, end, self._clock.time_ms())
        self._flushed.flush_epochs(self._epochs.truncate_from_end(self.recovery_point))

    # Cutting off the front

    def advance_log_start(self, offset: int) -> None:
        """Let readers begin at `offset`. What lies below is removed by the next `delete_old_segments`.

        Raises OffsetOutOfRange above the log end. Below the log start offset, nothing happens.
        """
        with self._lock, self._disk:
            if offset > self.log_end_offset:
                raise OffsetOutOfRange(f"offset {offset} is not in {self!r}")
            self.log_start_offset = max(offset, self.log_start_offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None, is_led: bool = True) -> int:
        """Let go of the segments that retention gives up (retention.py), and say how many.

        now_ms: of the wall clock. high_watermark: nothing at or above it goes; None: the log end offset. is_led: False
        where another broker decides.
        """
        with self._files, self._disk:
            limit = self.log_end_offset if high_watermark is None else high_watermark
            facts, start = self._segments.facts(self.log_end_offset), self.log_start_offset
            count = (
                count_removable(facts, log_start_offset=start, high_watermark=limit, config=self.config, now_ms=now_ms)
                if is_led
                else count_below_start(facts, start)
            )
            if not count:
                return 0
            start = facts[count - 1].next_offset
            with self._lock:
                if start == self.log_end_offset:
                    self._roll(start)
                if start not in (segment.base_offset for segment in self.segments):
                    return 0  # appended to or truncated meanwhile: look again next time
                self.advance_log_start(start)
            self._remember()
            with self._lock:
                if self.log_start_offset < start:
                    return 0  # truncated below
                gone = [segment for segment in self.segments if segment.base_offset < start]
                self._segments.remove(gone)
                self._epochs = self._epochs.truncate_from_start(start)
                self._snapshots.remove(lambda taken: taken < start)
            self._discard(gone)
            logger.info("%r: removed %d segments", self, len(gone))
            return len(gone)

    def delete_expired(self, now_ms: int) -> int:
        """Remove files that have been .deleted for file.delete.delay.ms, and say of how many segments.

        now_ms: of the monotonic clock.
        """
        with self._files, self._disk:
            return self._segments.remove_expired(now_ms)

    def expire_producers(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for `after_ms`, and say how many. now_ms: of the wall clock."""
        with self._lock:
            return self._producers.expire(now_ms, after_ms)

    # The newest records of each key (offset_snapshot.py)

    def newest_snapshot(self, what_is_wrong: Callable[[SnapshotId], str]) -> Snapshot | None:
        """The newest that is whole, and that `what_is_wrong` has nothing against."""
        with self._disk:
            return self._offset_snapshots.newest(what_is_wrong)

    def newest_snapshot_id(self) -> SnapshotId | None:
        """As its name says, whatever is in it."""
        with self._disk:
            return next(iter(self._offset_snapshots.ids()), None)

    def open_snapshot(self, snapshot: SnapshotId) -> LogSlice:
        """Its record batches, as another replica copies and checks them. Raises OffsetOutOfRange where it is gone."""
        with self._disk:
            try:
                file, size = self._offset_snapshots.open(snapshot)
            except FileNotFoundError:
                raise OffsetOutOfRange(f"{self!r} has no snapshot up to {snapshot.end_offset}") from None
            return LogSlice(file, 0, size, snapshot.end_offset, self._disk)

    def begin_snapshot(self, end_offset: int) -> SnapshotWriter:
        """Take a snapshot of the records below `end_offset`, in pieces; `install_snapshot` ends it.

        Blocks until those records are on the disk: they may not be lost before what was made of them. Raises
        OffsetOutOfRange where the log does not hold them.
        """
        snapshot = SnapshotId(end_offset, self.epochs.epoch_at(end_offset - 1))
        if not self.log_start_offset < end_offset <= self.log_end_offset or snapshot.leader_epoch < 0:
            raise OffsetOutOfRange(f"{self!r} has no records up to {end_offset}")
        self.flush(end_offset)
        with self._disk, without_room("a snapshot"):
            return self._offset_snapshots.begin(snapshot)

    def write_snapshot(self, writer: SnapshotWriter, data: Buffer) -> None:
        with self._disk, without_room("a snapshot"):
            writer.append(data)

    def abort_snapshot(self, writer: SnapshotWriter) -> None:
        with self._disk:
            writer.abort()

    def install_snapshot(self, writer: SnapshotWriter) -> int:
        """Put a snapshot in place, instead of older ones; -> its size. Blocks until it is on the disk.

        Raises CorruptRecord or InvalidRecord where it may not be one, OffsetOutOfRange where the log has been cut
        meanwhile; nothing is left of it then.
        """
        with self._disk, without_room("a snapshot"):
            size = writer.finish()
            with self._lock:
                if stale := what_is_stale(writer.id, self.epochs, self.log_start_offset, self.log_end_offset):
                    writer.abort()
                    raise OffsetOutOfRange(f"{self!r} does not take a snapshot up to {writer.id.end_offset}: {stale}")
                writer.put()
                self.generation += 1
            self._fs.flush_dir(self.folder)
            self._offset_snapshots.remove(lambda each: each < writer.id)
            return size

    # The end

    def close(self) -> None:
        """Finish and flush everything, and refuse all use from now on."""
        with self._files, self._disk:
            with self._lock:
                self._active.close()
                if self._snapshots.take(self.log_end_offset, self._producers.entries(), flush=True):
                    self._flushed.have_names_changed = True
            self.flush()
            self._disk.offline = "the log is closed"

    def go_offline(self, reason: str) -> None:
        """Refuse all use from now on, and leave the files alone: their directory has failed."""
        self._disk.offline = self._disk.offline or reason

    def rename_for_delete(self) -> str:
        """Refuse all use from now on, and give the folder a name that is deleted at the next start; -> that folder.

        Whoever asks flushes the names in the log directory.
        """
        with self._files, self._flushing, self._lock, self._disk:
            self._disk.offline = "the log is deleted"
            parent, name = posixpath.split(self.folder)
            folder = f"{parent}/{delete_folder_name(name, uuid.uuid4().hex)}"
            try:
                self._fs.rename(self.folder, folder)
            except OSError:
                self._disk.offline = ""  # it is there still, and its disk has failed: not what was to happen
                raise
            self.folder = folder
            self._segments.move(folder)
            return folder


def _has_gap(headers: Sequence[BatchHeader], end_offset: int) -> bool:
    ends = (end_offset, *(header.next_offset for header in headers))
    return any(header.base_offset > end for header, end in zip(headers, ends, strict=False))
