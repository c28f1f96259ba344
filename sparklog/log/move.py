"""Moving a log to another log directory of its broker, while it is read and written.

The copy grows in a folder of the other directory, `<topic>-<n>.<unique>-future` (KIP-113). After a stop, an unfinished
copy is discarded and begun again. `Log` stays the same object: when the copy has caught up, the log switches to it and
keeps its state in memory.

    copy      copy files in bounded pieces, without a lock. A closed segment is copied whole, with its indexes, and
              flushed; the active segment as far as it goes. The move remembers the version of each copied file
              (`_SourceFile.version`). Truncation, replacement and deletion of segments change the version: the file is
              then copied again from its first byte, or removed
    switch    the move holds files_lock and the flusher's lock, so no segment is renamed and the recovery point stays.
              All records below the recovery point are in the copy, and flushed, before the other directory's
              checkpoints name the partition
        1     with the log's lock: copy the rest, less than `MAX_REST_BYTES`, without a flush; rename the log's folder
              to `<topic>-<n>.<unique>-delete`, with the same <unique>; switch to the copy
        2     flush the name of the folder that is to be deleted
        3     with the log's lock: rename the copy to `<topic>-<n>`; then flush that name

After a crash before 1, the log is where it was. After a crash between 1 and 3, there is no folder `<topic>-<n>`, but
two with the same <unique>: the next start takes over the copy. Because of 2 there are never two folders `<topic>-<n>`.

Appends wait only for the log's lock, while a few hundred KiB are written into the page cache. Reads take no lock. A
read that misses a file under its former name waits until the rename is done (read.py).

The identities of segments change, as at a start. So earlier plans of a cleaner or a follower become stale.

Each directory has a disk guard of its own, so a failed or full disk is attributed to the right directory.
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
from sparklog.log.directory.free_space import FreeSpace
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
"""Maximum bytes copied while appends wait."""


class MoveTarget(NamedTuple):
    """The folder of the copy, and what belongs to its log directory."""

    folder: str
    """`<log dir>/<topic>-<n>.<unique>-future`."""
    disk: DiskGuard
    room: FreeSpace


class _SourceFile(NamedTuple):
    """A file of the log that the copy must have."""

    name: str
    version: object
    """Changes when bytes of the file change other than by append."""
    size: int | None
    """The bytes to copy; None: the whole file, which never grows. A missing file is missing in the copy too."""
    is_closed: bool = True
    """False: the log still appends to the file, so the copy is flushed later."""


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
        """The version of each copied file, and how many of its bytes are copied."""
        self._complete: dict[str, _SourceFile] = {}
        """The files that are completely copied and flushed, as they were then."""
        self._has_switched = False

    # Progress; any thread

    @property
    def size_bytes(self) -> int:
        """The bytes of batches in the copy."""
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
        """Copy at most `max_bytes` of the missing bytes; return how many. Fewer: nothing is missing now.

        Raises KafkaStorageError also if the log is closed, or the target directory is full.
        """
        left = max_bytes
        with self._state.disk:
            for source_file in self._source_files():
                if self._complete.get(source_file.name) != source_file:
                    left -= self._copy(source_file, left)
                if left <= 0:
                    break
        return max_bytes - left

    def _source_files(self) -> list[_SourceFile]:
        """List the files that the copy must have now. The list stays true while the caller holds the log's lock."""
        truncations = self._state.truncations  # before the files: each truncation is counted before it begins
        *closed, active = self._state.segments.items
        found = []
        for each in closed:
            name, now = segment_name(each.base_offset, ""), (each.identity, each.size_bytes)
            found.append(_SourceFile(name + LOG, each.identity, each.size_bytes))
            found += [_SourceFile(name + suffix, now, None) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)]
        found += [
            _SourceFile(segment_name(each, SNAPSHOT), truncations, None) for each in self._writer.snapshot_offsets
        ]
        found += [_SourceFile(snapshot_name(*each), truncations, None) for each in self._snapshots.ids()]
        found.append(_SourceFile(segment_name(active.base_offset, LOG), active.identity, active.size_bytes, False))
        return found

    def _copy(self, source_file: _SourceFile, max_bytes: int, *, flushes: bool = True) -> int:
        """Copy a piece of a file; return how many bytes."""
        version, begun = self._copied.get(source_file.name, (None, 0))
        if version != source_file.version:
            begun = 0
        try:
            source = self._fs.open_read(f"{self._state.folder}/{source_file.name}")
        except FileNotFoundError:
            if source_file.size is not None:
                if source_file in self._source_files():
                    raise
                return 0  # removed from the log meanwhile
            self._remove(source_file.name)
            self._complete[source_file.name] = source_file
            return 0
        try:
            end = source.size if source_file.size is None else source_file.size
            with self._target_disk():
                copy = self._fs.open(f"{self.folder}/{source_file.name}", create=True)
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
                        self._target.room.claim(len(data))
                        copy.append(data)
                    position += len(data)
                self._copied[source_file.name] = source_file.version, position
                if position >= end:
                    if flushes and source_file.is_closed:
                        with self._target_disk():
                            copy.flush()
                    self._complete[source_file.name] = source_file
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

    # Switching

    def switch(
        self,
        *,
        write_checkpoints: Callable[[], None],
        taking_over: Callable[[], AbstractContextManager[None]],
        flush_source: Callable[[], None],
    ) -> str:
        """Switch the log to the copy; durable on return. Return the path of the folder that is to be deleted.

        Returns an empty string if too much has been written meanwhile: `copy` it, and try again.

        write_checkpoints: writes the checkpoints of the target directory, with this log. taking_over: a context in
        which the log moves from one directory to the other; raises KafkaStorageError if one of them has failed.
        flush_source: flushes the names in the log's former directory, and blames a failure on that directory.
        """
        state = self._state
        with self._replacer.paused(), state.files_lock, self._flusher.lock:
            with state.disk:
                if self.copy(MAX_REST_BYTES) >= MAX_REST_BYTES:
                    return ""
                self._complete_copy()
                write_checkpoints()
                left = self._switch_to_copy(taking_over)
            if left:
                flush_source()
                self._rename_copy()
            return left

    def _complete_copy(self) -> None:
        """Flush the copy, and add the small files."""
        state, folder = self._state, self.folder
        needed = {each.name for each in self._source_files()}
        epochs = f"{state.folder}/{LEADER_EPOCHS}"
        content = read_file(self._fs, epochs) if self._fs.exists(epochs) else None
        with self._target_disk():
            for name in self._fs.list(folder):
                if name not in needed and name not in (LEADER_EPOCHS, PARTITION_METADATA):
                    self._remove(name)
            active = self._fs.open(f"{folder}/{segment_name(state.segments.last.base_offset, LOG)}", create=True)
            try:
                active.flush()
            finally:
                active.close()
            if content is not None:
                self._write_file(LEADER_EPOCHS, content, flushes=True)
            if state.topic_id is not None:
                PartitionMetadataFile(self._fs, folder).write(state.topic_id)
            self._fs.flush_dir(folder)
            self._fs.flush_dir(posixpath.dirname(folder))

    def _write_file(self, name: str, content: bytes, *, flushes: bool = False) -> None:
        file = self._fs.open(f"{self.folder}/{name}", create=True)
        try:
            file.truncate(0)
            file.append(content)
            if flushes:
                file.flush()
        finally:
            file.close()

    def _switch_to_copy(self, taking_over: Callable[[], AbstractContextManager[None]]) -> str:
        state = self._state
        left = posixpath.join(
            posixpath.dirname(state.folder),
            posixpath.basename(self.folder).removesuffix(FUTURE_FOLDER) + DELETE_FOLDER,
        )
        with state.lock, state.disk:
            rest = [each for each in self._source_files() if self._complete.get(each.name) != each]
            if sum(self._missing_bytes(each) for each in rest) > MAX_REST_BYTES:
                return ""
            for each in rest:
                self._copy(each, MAX_REST_BYTES, flushes=False)
                if self._complete.get(each.name) != each:
                    raise KafkaStorageError(f"{state.folder}/{each.name} is shorter than what was written to it")
            active = segment_name(state.segments.last.base_offset, LOG)
            with self._target_disk():
                for suffix, content in self._writer.index_files().items():
                    self._write_file(active.removesuffix(LOG) + suffix, content)
                file = self._fs.open(f"{self.folder}/{active}", create=True)
            with taking_over(), state.room.retriable_write(left):
                self._fs.rename(state.folder, left)
                self._has_switched = True
                state.change_directory(self.folder, self._target.disk, self._target.room)
                self._writer.change_directory(self.folder, file)
                self._snapshots.move(self.folder)
                self._deleted.leave_behind(left)
                self._flusher.names_changed()
        return left

    def _missing_bytes(self, source_file: _SourceFile) -> int:
        """Return how many bytes of a file the copy lacks."""
        version, begun = self._copied.get(source_file.name, (None, 0))
        size = source_file.size
        if size is None:
            try:
                source = self._fs.open_read(f"{self._state.folder}/{source_file.name}")
            except FileNotFoundError:
                return 0
            size = source.size
            source.close()
        return size - (begun if version == source_file.version else 0)

    def _rename_copy(self) -> None:
        state = self._state
        with state.disk:
            folder = f"{posixpath.dirname(self.folder)}/{state.partition}"
            with state.lock, state.room.retriable_write(folder):
                self._fs.rename(self.folder, folder)
                state.move(folder)
                for segment in state.segments:
                    segment.move(folder)
                self._writer.move_snapshots(folder)
                self._snapshots.move(folder)
            self._fs.flush_dir(posixpath.dirname(folder))

    def discard(self) -> str:
        """Rename a copy that is no longer needed, so that it is deleted; return the new path. Durable on return.

        Returns an empty string if there is no copy, or if it has become the log.
        """
        folder = self.folder.removesuffix(FUTURE_FOLDER) + DELETE_FOLDER
        if self._has_switched:
            return ""
        with self._target_disk():
            if not self._fs.exists(self.folder):
                return ""
            self._fs.rename(self.folder, folder)
            self._fs.flush_dir(posixpath.dirname(folder))
        return folder
