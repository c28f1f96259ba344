"""The log of one partition: a folder of segments, of which the last is written.

    log start offset    the first offset there is for readers; segments below it go when retention comes by
    recovery point      everything below is on the disk: batches, names, leader epochs
    log end offset      what the next record will get

A `Log` is built up part by part, each a class of its own that knows those above it:

    readable.py      a slice of whole batches, still unread; what a log tells of itself
    durable.py       flush: what was written since the recovery point, the names, the leader epochs; locks
    replaceable.py   closed segments give way to one that a cleaner has made of them
    snapshotted.py   the newest records of each key, beside the segments
    appendable.py    append as a leader; roll
    following.py     append as a follower, to the segments that the leader has
    cuttable.py      truncate the end, retain the front
    log.py           open, close, rename to be deleted; which topic it is of

`remember`, given to `open`, is what writes the first two down: they are kept for all logs of a directory together.

Threads: every method may be called from any. Changes take one lock, which nobody holds while waiting for a disk,
except a truncation (what else is locked: durable.py); reads take none: they work on the segments as they were when they
began.

After a crash: recovery.py. When the disk fails: disk.py.
"""

from __future__ import annotations

import posixpath
import uuid
import weakref
from collections.abc import Callable

from sparklog.base.clock import Clock
from sparklog.base.errors import InconsistentTopicId
from sparklog.base.fs import Fs
from sparklog.base.ids import encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.log.cache import SegmentCache
from sparklog.log.checkpoints import PartitionMetadata
from sparklog.log.cuttable import CuttableLog
from sparklog.log.disk import DiskGuard
from sparklog.log.files import delete_folder_name
from sparklog.log.recovery import Loading, load
from sparklog.log.room import Room
from sparklog.log.slice import Appended, LogSlice, TimestampOffset
from sparklog.log.snapshots import SnapshotFiles

__all__ = ["Appended", "Log", "LogSlice", "TimestampOffset"]


def _told_of(log: Log, tell: Callable[..., None] | None) -> Callable[..., None]:
    """`tell` with the log as its first argument. It does not keep the log, which has it: in a cycle, files of a deleted
    log would stay open, and their room taken, until the cycle is collected."""
    reference = weakref.ref(log)

    def tell_it(*arguments: object) -> None:
        living = reference()
        if tell and living is not None:
            tell(living, *arguments)

    return tell_it


class Log(CuttableLog):
    """One partition's log, made by `open`. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self,
        loaded: Loading,
        clock: Clock,
        on_error: Callable[[Log, OSError], None] | None,
        remember: Callable[[Log], None] | None,
        jitter: Callable[[int], int] | None,
        room: Room,
    ) -> None:
        disk = DiskGuard(loaded.folder, _told_of(self, on_error))
        super().__init__(loaded, disk, clock, _told_of(self, remember), room, jitter)
        self.topic_id = loaded.topic_id

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
        room: Room | None = None,
    ) -> Log:
        """Open the log in `folder` (`<log dir>/<topic>-<n>`), recovering it first, or make an empty one there.

        clean: the last stop was clean, so there is nothing to recover. recovery_point, log_start_offset: as remembered.
        compacted_to: see recovery.py. cache: shared with other logs. on_error: told when the disk fails. remember:
        writes down this log's recovery point and start. jitter: a random number below its argument, for
        segment.jitter.ms. room: of its directory.

        Raises OSError, or CorruptRecord where flushed batches cannot be read.
        """
        fs.make_dir(folder)
        loading = Loading(
            fs=fs, folder=folder, config=config, now_ms=clock.time_ms(), clean=clean, recovery_point=recovery_point,
            log_start_offset=log_start_offset, compacted_to=compacted_to,
            cache=SegmentCache() if cache is None else cache, snapshots=SnapshotFiles(fs, folder),
        )  # fmt: skip
        load(loading)
        return cls(loading, clock, on_error, remember, jitter, room or Room(fs, folder))

    def claim(self, topic_id: uuid.UUID) -> None:
        """Write down that this is a partition of that topic, if nobody has yet; on the disk when this returns.

        Raises InconsistentTopicId where it is one of another topic, or KafkaStorageError.
        """
        with self._disk:
            if self.topic_id is None:
                with self._room.needed("the topic's id"):
                    PartitionMetadata(self._fs, self.folder).write(topic_id)
                self.topic_id = topic_id
        if self.topic_id != topic_id:
            raise InconsistentTopicId(
                f"{self.folder} is of the topic with id {encode_id(self.topic_id)}, not {encode_id(topic_id)}"
            )

    def close(self) -> None:
        """Finish and flush everything, close the files, and refuse all use from now on."""
        with self._files, self._disk:
            with self._lock, self._room.needed("the end of a log"):
                self._active.close()
                if self._snapshots.take(self.log_end_offset, self._producers.entries(), flush=True):
                    self._flushed.have_names_changed = True
            self.flush()
            self._disk.offline = "the log is closed"
            for segment in self.segments:
                self._cache.forget(segment)
                segment.release()

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
            for segment in self.segments:
                self._cache.forget(segment)
            return folder
