"""Moving a log to another log directory of its broker, while it is read and written.

The copy grows in a folder of the other directory, `<topic>-<n>.<unique>-future` (KIP-113). A copy that is not finished
is of no use to anybody: a start begins it again. `Log` stays the same object; when the copy has caught up, the log goes
over to it, with all that it has in memory.

    copy      copy files in bounded pieces, which need no lock. A closed segment is copied whole, with its indexes, and
              flushed; of the active segment, the batches so far. The copy notes for each file the state that it is of
              (`_Wanted.version`). After a truncation, a replacement of segments or a deletion, the version of the file
              is another one: it is copied again from its first byte, or removed
    switch    files_lock and the flusher's lock are held all the time; so no names of segments change, and the recovery
              point stays. Everything below it is in the copy, and flushed, before the other directory's checkpoints
              name the partition
        1     with the log's lock: copy the rest, which is below `MAX_REST_BYTES`, without a flush; rename the log's
              folder to `<topic>-<n>.<unique>-delete`, with the same <unique>; go over to the copy
        2     flush the name of the folder that is to be deleted
        3     with the log's lock: rename the copy to `<topic>-<n>`; then flush that name

After a crash before 1, the log is where it was. After a crash between 1 and 3, there is no folder `<topic>-<n>`, but
two with the same <unique>: the next start takes over the copy. Because of 2 there are never two folders `<topic>-<n>`.

Appends wait for the log's lock only: while a few hundred KiB are written into the page cache. A read takes no lock. A
read that finds a file under its former name only waits until the rename is done (read.py).

The identities of segments change, as at a start. So a plan made before, of a cleaner or a follower, is stale.

A disk that fails or is full is told apart by its guard: that of the log's directory, or that of the copy's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.log.append import LogWriter
from sparklog.log.deleted_segments import DeletedSegments
from sparklog.log.directory.checkpoints import PartitionMetadataFile, read_file
from sparklog.log.directory.room import FreeSpace
from sparklog.log.disk import DiskGuard, without_room
from sparklog.log.files import (
    DELETE_FOLDER,
    FUTURE_FOLDER,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    segment_name,
    snapshot_name,
)
from sparklog.log.flush import Flusher
from sparklog.log.offset_snapshots.store import SnapshotStore
from sparklog.log.replacement.replace import SegmentReplacer
from sparklog.log.state import LogState

PIECE_BYTES = 1 << 20
MAX_REST_BYTES = 256 << 10
"""The most that is copied while appends wait."""


class MoveTarget(NamedTuple):
    """The folder of the copy, and what belongs to its log directory."""

    folder: str
    """`<log dir>/<topic>-<n>.<unique>-future`."""
    disk: DiskGuard
    room: FreeSpace


class _Wanted(NamedTuple):
    """A file that the copy must have."""

    name: str
    version: object
    """Another one if the file has other bytes than before, except for those that were appended."""
    size: int | None
    """None: the file never grows, and all of it is wanted; if there is none, the copy has none."""
    is_closed: bool = True
    """False: the log appends to the file, so the copy is flushed later."""


class LogMove:
    """One move of one log, made by `Log.begin_move`. One thread at a time. Methods raise KafkaStorageError."""

    def __init__(
        self,
        state: LogState,
        writer: LogWriter,
        flusher: Flusher,
        deleted: DeletedSegments,
        snapshots: SnapshotStore,
        replacer: SegmentReplacer,
        fs: Fs,
        target: MoveTarget,
    ) -> None:
        self.folder = target.folder
        self._state = state
        self._writer = writer
        self._flusher = flusher
        self._deleted = deleted
        self._snapshots = snapshots
        self._replacer = replacer
        self._fs = fs
        self._target = target
        self._copied: dict[str, tuple[object, int]] = {}
        """The version that each file of the copy is of, and how many bytes of it the copy has."""
        self._complete: dict[str, _Wanted] = {}
        """What the copy has of each file, as far as that was all that was wanted of it, and it is flushed."""
        self._has_gone_over = False

    # Progress; any thread

    @property
    def size_bytes(self) -> int:
        """The bytes of batches that the copy has."""
        return sum(size for name, (_, size) in tuple(self._copied.items()) if name.endswith(LOG))

    @property
    def end_offset(self) -> int:
        """The offset up to which the copy has whole segments; the log's end once it has all of them."""
        end = self._state.end_offset
        for segment in self._state.segments:
            if self._copied.get(segment_name(segment.base_offset, LOG)) != (segment.identity, segment.size_bytes):
                return segment.base_offset
        return end

    # Copying

    def create(self) -> None:
        """Create the folder of the copy, by which a start knows that the log moves; durable on return."""
        with self._target_disk():
            self._fs.make_dir(self.folder)
            self._fs.flush_dir(posixpath.dirname(self.folder))

    def copy(self, max_bytes: int) -> int:
        """Copy at most `max_bytes` of what the copy lacks, and return how many; fewer: it lacks nothing now.

        Raises KafkaStorageError also if the log is closed, or the target directory is full.
        """
        left = max_bytes
        with self._state.disk:
            for wanted in self._wanted():
                if self._complete.get(wanted.name) != wanted:
                    left -= self._copy(wanted, left)
                if left <= 0:
                    break
        return max_bytes - left

    def _wanted(self) -> list[_Wanted]:
        """List the files that the copy must have now. With the log's lock, nothing changes meanwhile."""
        truncations = self._state.truncations  # before the files: each truncation is counted before it begins
        *closed, active = self._state.segments.items
        found = []
        for each in closed:
            name, now = segment_name(each.base_offset, ""), (each.identity, each.size_bytes)
            found.append(_Wanted(name + LOG, each.identity, each.size_bytes))
            found += [_Wanted(name + suffix, now, None) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)]
        found += [_Wanted(segment_name(each, SNAPSHOT), truncations, None) for each in self._writer.snapshot_offsets]
        found += [_Wanted(snapshot_name(*each), truncations, None) for each in self._snapshots.ids()]
        found.append(_Wanted(segment_name(active.base_offset, LOG), active.identity, active.size_bytes, False))
        return found

    def _copy(self, wanted: _Wanted, max_bytes: int, *, flushes: bool = True) -> int:
        """Copy a piece of a file; return how many bytes."""
        version, begun = self._copied.get(wanted.name, (None, 0))
        if version != wanted.version:
            begun = 0
        try:
            source = self._fs.open_read(f"{self._state.folder}/{wanted.name}")
        except FileNotFoundError:
            if wanted.size is not None:
                if wanted in self._wanted():
                    raise
                return 0  # removed from the log meanwhile
            self._remove(wanted.name)
            self._complete[wanted.name] = wanted
            return 0
        try:
            end = source.size if wanted.size is None else wanted.size
            with self._target_disk():
                copy = self._fs.open(f"{self.folder}/{wanted.name}", create=True)
            try:
                position = begun
                with self._target_disk():
                    if copy.size > position:
                        copy.truncate(position)
                while position < end and position - begun < max_bytes:
                    data = source.read_at(position, min(PIECE_BYTES, end - position, max_bytes - (position - begun)))
                    if not data:
                        break  # truncated meanwhile: the file has another version by now
                    with self._target_disk():
                        self._target.room.take(len(data))
                        copy.append(data)
                    position += len(data)
                self._copied[wanted.name] = wanted.version, position
                if position >= end:
                    if flushes and wanted.is_closed:
                        with self._target_disk():
                            copy.flush()
                    self._complete[wanted.name] = wanted
                return position - begun
            finally:
                copy.close()
        finally:
            source.close()

    def _remove(self, name: str) -> None:
        self._copied.pop(name, None)
        self._complete.pop(name, None)
        path = f"{self.folder}/{name}"
        with self._target_disk():
            if self._fs.exists(path):
                self._fs.remove(path)

    @contextmanager
    def _target_disk(self) -> Iterator[None]:
        with self._target.disk, without_room(self.folder):
            yield

    # Going over

    def switch(
        self,
        *,
        write_checkpoints: Callable[[], None],
        taking_over: Callable[[], AbstractContextManager[None]],
        flush_source: Callable[[], None],
    ) -> str:
        """Let the log go over to the copy; durable on return. Return the path of the folder that is to be deleted.

        Returns an empty string if too much has been written meanwhile: `copy` it, and try again.

        write_checkpoints: writes those of the target's directory, with this log. taking_over: a context in which the
        log leaves one directory for the other; raises KafkaStorageError if one of them has failed. flush_source:
        flushes the names in the log's present directory; a failure is that directory's, no longer this log's.
        """
        state = self._state
        with self._replacer.paused(), state.files_lock, self._flusher.lock:
            with state.disk:
                if self.copy(MAX_REST_BYTES) >= MAX_REST_BYTES:
                    return ""
                self._finish()
                write_checkpoints()
                left = self._go_over(taking_over)
            if left:
                flush_source()
                self._take_the_name()
            return left

    def _finish(self) -> None:
        """Flush the copy, and add the small files."""
        state, folder = self._state, self.folder
        wanted = {each.name for each in self._wanted()}
        epochs = f"{state.folder}/{LEADER_EPOCHS}"
        content = read_file(self._fs, epochs) if self._fs.exists(epochs) else None
        with self._target_disk():
            for name in self._fs.list(folder):
                if name not in wanted and name not in (LEADER_EPOCHS, PARTITION_METADATA):
                    self._remove(name)
            active = self._fs.open(f"{folder}/{segment_name(state.segments.last.base_offset, LOG)}", create=True)
            try:
                active.flush()
            finally:
                active.close()
            if content is not None:
                self._put(LEADER_EPOCHS, content, flushes=True)
            if state.topic_id is not None:
                PartitionMetadataFile(self._fs, folder).write(state.topic_id)
            self._fs.flush_dir(folder)
            self._fs.flush_dir(posixpath.dirname(folder))

    def _put(self, name: str, content: bytes, *, flushes: bool = False) -> None:
        file = self._fs.open(f"{self.folder}/{name}", create=True)
        try:
            file.truncate(0)
            file.append(content)
            if flushes:
                file.flush()
        finally:
            file.close()

    def _go_over(self, taking_over: Callable[[], AbstractContextManager[None]]) -> str:
        state = self._state
        left = posixpath.join(
            posixpath.dirname(state.folder),
            posixpath.basename(self.folder).removesuffix(FUTURE_FOLDER) + DELETE_FOLDER,
        )
        with state.lock, state.disk:
            rest = [each for each in self._wanted() if self._complete.get(each.name) != each]
            if sum(self._missing(each) for each in rest) > MAX_REST_BYTES:
                return ""
            for each in rest:
                self._copy(each, MAX_REST_BYTES, flushes=False)
                if self._complete.get(each.name) != each:
                    raise KafkaStorageError(f"{state.folder}/{each.name} is shorter than what was written to it")
            active = segment_name(state.segments.last.base_offset, LOG)
            with self._target_disk():
                for suffix, content in self._writer.index_files().items():
                    self._put(active.removesuffix(LOG) + suffix, content)
                file = self._fs.open(f"{self.folder}/{active}", create=True)
            with taking_over(), state.room.needed(left):
                self._fs.rename(state.folder, left)
                self._has_gone_over = True
                state.change_directory(self.folder, self._target.disk, self._target.room)
                self._writer.change_directory(self.folder, file)
                self._snapshots.move(self.folder)
                self._deleted.leave_behind(left)
                self._flusher.names_changed()
        return left

    def _missing(self, wanted: _Wanted) -> int:
        """Return how many bytes of a file the copy lacks."""
        version, begun = self._copied.get(wanted.name, (None, 0))
        size = wanted.size
        if size is None:
            try:
                source = self._fs.open_read(f"{self._state.folder}/{wanted.name}")
            except FileNotFoundError:
                return 0
            size = source.size
            source.close()
        return size - (begun if version == wanted.version else 0)

    def _take_the_name(self) -> None:
        state = self._state
        with state.disk:
            folder = f"{posixpath.dirname(self.folder)}/{state.partition}"
            with state.lock, state.room.needed(folder):
                self._fs.rename(self.folder, folder)
                state.move(folder)
                for segment in state.segments:
                    segment.move(folder)
                self._writer.move_snapshots(folder)
                self._snapshots.move(folder)
            self._fs.flush_dir(posixpath.dirname(folder))

    def discard(self) -> str:
        """Rename the copy, which is not wanted any more, so that it is deleted; return the new path.

        An empty string: there is no copy, or it is the log. Durable on return.
        """
        folder = self.folder.removesuffix(FUTURE_FOLDER) + DELETE_FOLDER
        if self._has_gone_over:
            return ""
        with self._target_disk():
            if not self._fs.exists(self.folder):
                return ""
            self._fs.rename(self.folder, folder)
            self._fs.flush_dir(posixpath.dirname(folder))
        return folder
