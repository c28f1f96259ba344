"""The log of one partition: a folder of segments, of which the last is written.

`Log` is the face of it. What the log is at the moment stands in one place (state.py, with its offsets, invariants and
locks); each of the others does one thing to it:

    read.py               a slice of whole batches, still unread; records by their timestamp
    append.py             append as a leader; roll
    follow.py             append as a follower, to the segments that the leader has
    flush.py              segments, names, leader epochs to the disk; the recovery point
    truncate.py           cut off the end
    old_segments.py       delete the front
    replace.py            put segments that a cleaner has made in the place of closed ones
    deleted_segments.py   files of what has left the log, until they are removed
    offset_snapshots.py   the newest records of each key, beside the segments
    recovery.py           open a folder, after a crash too

`write_checkpoints`, given to `open`, writes down the recovery point, the log start offset and how far the log has been
compacted: these are kept for all logs of a directory together.

Every method may be called from any thread. When the disk fails: disk.py.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Sequence

from sparklog.base.clock import Clock
from sparklog.base.errors import InconsistentTopicId
from sparklog.base.fs import Buffer, Fs
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.log.append import LogWriter
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.description import SegmentDescription, SegmentSum
from sparklog.log.directory.checkpoints import PartitionMetadata
from sparklog.log.directory.room import Room
from sparklog.log.disk import DiskGuard
from sparklog.log.epochs import EpochEnd, LeaderEpochs
from sparklog.log.files import delete_folder_name
from sparklog.log.flush import Flusher
from sparklog.log.follow import FollowerAppends
from sparklog.log.offset_snapshot import Snapshot, SnapshotId, SnapshotWriter
from sparklog.log.offset_snapshots import SnapshotStore
from sparklog.log.old_segments import OldSegments
from sparklog.log.producers.producer_state import ProducerState
from sparklog.log.producers.snapshots import SnapshotFiles
from sparklog.log.read import SegmentsReader
from sparklog.log.recovery import Loading, load
from sparklog.log.replace import KnownSegment, SegmentReplacer, StagedSegment
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.segment import Segment
from sparklog.log.slice import Appended, LogSlice, TimestampOffset
from sparklog.log.staged import StagedFile
from sparklog.log.state import LogState
from sparklog.log.truncate import Truncator

__all__ = ["Appended", "Log", "LogSlice", "TimestampOffset"]


class Log:
    """One partition's log, made by `open`. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self,
        loaded: Loading,
        clock: Clock,
        on_error: Callable[[OSError], None] | None,
        write_checkpoints: Callable[[], None],
        jitter: Callable[[int], int],
        room: Room,
    ) -> None:
        """`open` is what to call."""
        fs, cache = loaded.fs, loaded.cache
        self._fs = fs
        self._cache = cache
        self._room = room
        self._state = state = LogState(loaded, DiskGuard(loaded.folder, on_error))
        self._reader = SegmentsReader(state, fs)
        self._flusher = flusher = Flusher(
            state, fs, clock, room, loaded.epochs_on_disk, have_names_changed=loaded.has_changed
        )
        self._deleted = deleted = DeletedSegments(state, flusher, clock)
        self._writer = writer = LogWriter(
            state, flusher, deleted, fs=fs, cache=cache, clock=clock, room=room, snapshots=loaded.snapshots,
            producers=loaded.producers, jitter=jitter,
        )  # fmt: skip
        self._follower = FollowerAppends(state, writer, flusher, clock, write_checkpoints)
        self._snapshots = SnapshotStore(state, flusher, fs)
        self._truncator = Truncator(state, writer, flusher, self._snapshots, room, write_checkpoints)
        self._old_segments = OldSegments(state, writer, deleted, write_checkpoints)
        self._replacer = SegmentReplacer(
            state, self._reader, writer, flusher, deleted, fs=fs, cache=cache, clock=clock,
            write_checkpoints=write_checkpoints,
        )  # fmt: skip

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
        log_start_offset: int = 0,
        compacted_to: int | None = None,
        cache: SegmentCache | None = None,
        on_error: Callable[[OSError], None] | None = None,
        write_checkpoints: Callable[[], None] = lambda: None,
        jitter: Callable[[int], int] = lambda _: 0,
        room: Room | None = None,
    ) -> Log:
        """Open the log in `folder` (`<log dir>/<topic>-<n>`), recovering it first, or make an empty one there.

        clean: the last stop was clean, so there is nothing to recover. recovery_point, log_start_offset: as the
        checkpoints say. compacted_to: see recovery.py. cache: shared with other logs. on_error: told when the disk
        fails. write_checkpoints: writes down this log's recovery point and start. jitter: a random number below its
        argument, for segment.jitter.ms. room: of its directory.

        Raises OSError, or CorruptRecord where flushed batches cannot be read.
        """
        fs.make_dir(folder)
        loading = Loading(
            fs=fs, folder=folder, config=config, now_ms=clock.time_ms(), clean=clean, recovery_point=recovery_point,
            log_start_offset=log_start_offset, compacted_to=compacted_to,
            cache=SegmentCache() if cache is None else cache, snapshots=SnapshotFiles(fs, folder),
        )  # fmt: skip
        load(loading)
        log = cls(loading, clock, on_error, write_checkpoints, jitter, room or Room(fs, folder))
        log._writer.open(loading.dropped)
        log._snapshots.tidy()
        return log

    def claim(self, topic_id: uuid.UUID) -> None:
        """Write down that this is a partition of that topic, if nobody has yet; on the disk when this returns.

        Raises InconsistentTopicId where it is one of another topic, or KafkaStorageError.
        """
        state = self._state
        with state.disk:
            if state.topic_id is None:
                with self._room.needed("the topic's id"):
                    PartitionMetadata(self._fs, state.folder).write(topic_id)
                state.topic_id = topic_id
        if state.topic_id != topic_id:
            raise InconsistentTopicId(
                f"{state.folder} is of the topic with id {encode_id(state.topic_id)}, not {encode_id(topic_id)}"
            )

    def close(self) -> None:
        """Finish and flush everything, close the files, and refuse all use from now on."""
        state = self._state
        with state.files_lock, state.disk:
            with state.lock, self._room.needed("the end of a log"):
                self._writer.close()
            self.flush()
            state.disk.offline = "the log is closed"
            for segment in state.segments:
                self._cache.forget(segment)
                segment.release()

    def go_offline(self, reason: str) -> None:
        """Refuse all use from now on, and leave the files alone: their directory has failed."""
        self._state.disk.offline = self._state.disk.offline or reason

    def rename_for_delete(self) -> str:
        """Refuse all use from now on, and give the folder a name that is deleted at the next start; -> that folder.

        Whoever asks flushes the names in the log directory.
        """
        state = self._state
        with state.files_lock, self._flusher.lock, state.lock, state.disk:
            state.disk.offline = "the log is deleted"
            parent, name = posixpath.split(state.folder)
            folder = f"{parent}/{delete_folder_name(name, uuid.uuid4().hex)}"
            try:
                self._fs.rename(state.folder, folder)
            except OSError:
                state.disk.offline = ""  # the log is there still, and its disk has failed: not what was to happen
                raise
            state.folder = folder
            self._deleted.move(folder)
            for segment in state.segments:
                segment.folder = folder
                self._cache.forget(segment)
            return folder

    def configure(self, config: TopicConfig) -> None:
        """From now on, go by `config`."""
        self._writer.configure(config)

    # What it is

    @property
    def partition(self) -> TopicPartition:
        return self._state.partition

    @property
    def folder(self) -> str:
        return self._state.folder

    @property
    def config(self) -> TopicConfig:
        return self._state.config

    @property
    def topic_id(self) -> uuid.UUID | None:
        """None: nobody has claimed the log yet."""
        return self._state.topic_id

    @property
    def log_start_offset(self) -> int:
        return self._state.start_offset

    @property
    def log_end_offset(self) -> int:
        return self._state.end_offset

    @property
    def recovery_point(self) -> int:
        return self._state.recovery_point

    @property
    def compacted_to(self) -> int:
        """As the cleaner has said; what the checkpoint is to say."""
        return self._state.compacted_to

    @property
    def cleaned_offset(self) -> int:
        """Everything below has been compacted, or lies below the log start."""
        return max(self._state.compacted_to, self._state.start_offset)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last is the one that is written."""
        return self._state.segments.items

    @property
    def first_base_offset(self) -> int:
        """Where the oldest segment begins: where an empty replica of this log begins too."""
        return self._state.segments.items[0].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._state.segments)

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the records from the log start on."""
        return self._state.epochs

    @property
    def stored_epochs(self) -> LeaderEpochs:
        """The same of all records that are stored, those below the log start too."""
        return self._state.stored_epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of a record; -1 if there is none."""
        return self._state.stored_epochs.latest

    @property
    def generation(self) -> int:
        """Incremented when closed segments, or what is known of them, change other than by append: whoever has compared
        this log with another one looks again then."""
        return self._state.generation

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """Where an epoch's records end, which tells a follower what to truncate."""
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
        """Whole batches from the one that holds `offset` on, of one segment, at most `max_bytes`.

        max_offset: nothing at or above it; None: up to the log end. min_one_batch: the first batch is found even if
        it is larger than `max_bytes`. for_replica: what lies below the log start is found too, as far as it is still
        there: a replica has whole segments. Raises OffsetOutOfRange below the log start or above the log end, or
        KafkaStorageError.
        """
        return self._reader.read(
            offset, max_bytes, max_offset=max_offset, min_one_batch=min_one_batch, for_replica=for_replica
        )

    def open_file(self, base_offset: int, suffix: str, identity: str | None = None) -> LogSlice:
        """A whole file of the segment that begins there, or LEADER_EPOCHS, as it is now; empty where there is none.

        Of the segment that is written, the batches that there are. Raises OffsetOutOfRange where no segment begins
        there, InvalidUpdateVersion where its identity is another one, or KafkaStorageError.
        """
        return self._reader.open_file(base_offset, suffix, identity)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`; None if there is none."""
        return self._reader.offset_for_timestamp(timestamp_ms)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the greatest timestamp; None if no record has one."""
        return self._reader.max_timestamp()

    # Append

    def append(self, data: bytearray | memoryview, *, leader_epoch: int) -> Appended:
        """Append produced batches as their leader; their offsets, epoch and timestamps are written into `data`.

        Raises as `prepare` and `ProducerStates.check` do, with nothing written, or KafkaStorageError.
        """
        return self._writer.append(data, leader_epoch)

    def append_as_follower(self, data: Buffer, *, rolls: bool = True, takes_gaps: bool = True) -> Appended:
        """Append batches as their leader stored them: offsets and epochs are theirs, and may leave gaps.

        rolls: begin a new segment when a leader would; False: only `follow_segment` does. takes_gaps: False where a
        recovery that takes a gap for torn would cut off what others count on (`append_with_gaps`).

        Raises CorruptRecord, InvalidRecord for an offset that is taken, UnexpectedGap or KafkaStorageError; nothing is
        written then.
        """
        return self._follower.append(data, rolls=rolls, takes_gaps=takes_gaps)

    def append_with_gaps(self, data: Buffer) -> None:
        """As `append_as_follower` without rolling, of a log that a cleaner has taken records from.

        All is on the disk when this returns, and written down as flushed: no recovery takes a gap below that for torn.
        """
        self._follower.append_with_gaps(data)

    def follow_segment(self, base_offset: int) -> None:
        """Write to a segment that begins at `base_offset`, where the leader's segment of the next record begins.

        Where a truncation has left the last segment empty and the leader has not rolled there, the one before is
        written again. Where this log has records on both sides of `base_offset` in one segment, as a cleaner had made
        one of what are several on the new leader, it goes on with that one until the leader rolls again.

        Where the segment begins behind this log's end, a cleaner has taken all that was between: the log then ends
        where the segment begins, and on the disk too when this returns.
        """
        self._follower.follow_segment(base_offset)

    def is_at_segment(self, base_offset: int) -> bool:
        """Whether `follow_segment` has nothing to do; never waits."""
        return self._follower.is_at_segment(base_offset)

    def roll(self) -> None:
        """Begin a new segment at the log end offset, unless the one that is written is empty."""
        with self._state.lock, self._state.disk:
            self._writer.roll(self._state.end_offset)

    @property
    def producers(self) -> dict[int, ProducerState]:
        """What is remembered of each producer, by its id."""
        return self._writer.producers

    def expire_producers(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for `after_ms`, and say how many. now_ms: of the wall clock."""
        return self._writer.expire_producers(now_ms, after_ms)

    # Flush

    def flush(self, up_to: int | None = None) -> None:
        """Return once every record below `up_to` (None: all) would survive a power cut. Moves the recovery point."""
        self._flusher.flush(up_to)

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush if flush.ms has passed with records unflushed; if not, segments that were closed since the last flush.

        now_ms: of the monotonic clock. -> whether closed segments were flushed.
        """
        return self._flusher.flush_if_due(now_ms)

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages records are unflushed. Appends wait for no disk: whoever appends sees to it."""
        return self._state.must_flush

    @property
    def counted_end_offset(self) -> int:
        """Up to where what is written may count as safe here: to the end, or to what is flushed where more must be."""
        return self._state.recovery_point if self._state.must_flush else self._state.end_offset

    # Truncate and delete

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a record at or above `offset`; on the disk when this returns."""
        self._truncator.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the next record gets `offset`. On the disk when this returns."""
        self._truncator.truncate_fully_and_start_at(offset)

    def advance_log_start(self, offset: int) -> None:
        """Let readers begin at `offset`. What lies below is removed by the next `delete_old_segments`.

        Raises OffsetOutOfRange above the log end. Below the log start offset, nothing happens.
        """
        self._old_segments.advance_log_start(offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None, is_led: bool = True) -> int:
        """Let go of the segments that retention gives up (retention.py), and say how many.

        now_ms: of the wall clock. high_watermark: nothing at or above it goes; None: the log end offset. is_led: False
        where another broker decides.
        """
        return self._old_segments.delete(now_ms, high_watermark, is_led=is_led)

    def delete_expired(self, now_ms: int) -> int:
        """Remove files that have been .deleted for file.delete.delay.ms, and say of how many segments.

        now_ms: of the monotonic clock.
        """
        return self._deleted.delete_expired(now_ms)

    # Replace closed segments

    def describe(self) -> tuple[SegmentDescription, ...]:
        """The segments, oldest first; the last is the one that is written. May wait for the disk."""
        return self._replacer.describe()

    def sums(self, since: int, up_to: int, *, read_bytes: int) -> tuple[SegmentSum, ...]:
        """The closed segments from `since` on that end at or below `up_to`, oldest first. May wait for the disk.

        read_bytes: with the checksums of their files, until so much has been read for them, and one more; 0: without.
        What was read is known the next time.
        """
        return self._replacer.sums(since, up_to, read_bytes=read_bytes)

    def check_sources(self, sources: Sequence[KnownSegment]) -> tuple[Segment, ...]:
        """The neighbouring closed segments that `sources` describe. Never waits for a disk.

        Raises InvalidUpdateVersion where one of them is no longer what it was, or is not closed.
        """
        return self._replacer.check_sources(sources)

    def staged_path(self, base_offset: int) -> str:
        """Where the new segment's batches are to be written, in a file made for it."""
        return self._replacer.staged_path(base_offset)

    def stage(self, base_offset: int) -> StagedFile:
        """A new empty file there, in place of any other."""
        return self._replacer.stage(base_offset)

    def discard_staged(self, base_offset: int) -> None:
        """Remove what has been staged; waits for a replacement that is under way. No error where nothing is."""
        self._replacer.discard_staged(base_offset)

    def replace(
        self, sources: Sequence[KnownSegment], *, size_bytes: int, crc32c: int, high_watermark: int
    ) -> SegmentDescription:
        """Put what is staged in the place of `sources`; on the disk when this returns. -> the new segment.

        size_bytes, crc32c: of the staged file. Raises InvalidUpdateVersion as `check_sources` does, and where the
        sources do not lie below the high watermark; ResourceNotFound where nothing is staged; CorruptRecord or
        InvalidRecord where it may not take their place; KafkaStorageError. Then the log is as it was, and nothing is
        left of what was staged.
        """
        return self._replacer.replace(sources, size_bytes=size_bytes, crc32c=crc32c, high_watermark=high_watermark)

    def replace_all(
        self,
        sources: Sequence[KnownSegment],
        staged: Sequence[StagedSegment],
        *,
        high_watermark: int,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[SegmentDescription, ...]:
        """Put what is staged, in the order of offsets, in the place of `sources`; else as `replace`.

        is_wanted: asked on the way; where it is not, raises InvalidUpdateVersion.
        """
        return self._replacer.replace_all(sources, staged, high_watermark=high_watermark, is_wanted=is_wanted)

    def set_cleaned_offset(self, offset: int, segments: Sequence[KnownSegment]) -> None:
        """Everything below `offset` has been compacted, now that `segments` are in place; on the disk on return.

        segments: those below it that the log still has. Raises InvalidUpdateVersion where one of them is no longer what
        it was, OffsetOutOfRange for an offset that the log does not have.
        """
        self._replacer.set_cleaned_offset(offset, segments)

    # Snapshots of the newest record of each key (offset_snapshot.py)

    def newest_snapshot(self, what_is_wrong: Callable[[SnapshotId], str]) -> Snapshot | None:
        """The newest that is whole, and that `what_is_wrong` has nothing against."""
        return self._snapshots.newest(what_is_wrong)

    def newest_snapshot_id(self) -> SnapshotId | None:
        """The newest, whatever is in it."""
        return self._snapshots.newest_id()

    def open_snapshot(self, snapshot: SnapshotId) -> LogSlice:
        """Its record batches, as another replica copies and checks them. Raises OffsetOutOfRange where it is gone."""
        return self._snapshots.open(snapshot)

    def begin_snapshot(self, end_offset: int) -> SnapshotWriter:
        """Take a snapshot of the records below `end_offset`, in pieces; `install_snapshot` ends it.

        Blocks until those records are on the disk: they may not be lost before what was made of them. Raises
        OffsetOutOfRange where the log does not hold them.
        """
        return self._snapshots.begin(end_offset)

    def write_snapshot(self, writer: SnapshotWriter, data: Buffer) -> None:
        """Add the next bytes of record batches, which may be cut anywhere."""
        self._snapshots.write(writer, data)

    def abort_snapshot(self, writer: SnapshotWriter) -> None:
        """Remove what was written."""
        self._snapshots.abort(writer)

    def install_snapshot(self, writer: SnapshotWriter) -> int:
        """Put a snapshot in place, instead of older ones; -> its size. Blocks until it is on the disk.

        Raises CorruptRecord or InvalidRecord where it may not be one, OffsetOutOfRange where the log has been cut
        meanwhile; nothing is left of it then.
        """
        return self._snapshots.install(writer)
