"""Moves of replicas between the log directories of a broker (KIP-113). log/move.py moves one log.

    begin     begin to copy a partition's log to another directory. A later `begin` for another directory ends the
              former move
    step      copy the next piece of one of the moves, or switch its log to the copy
    cancel    end the moves of deleted partitions

A move ends without effect if it is cancelled, if the log goes offline, or if the target directory fails or is full.
Its copy is then deleted, and the log stays where it is.

A start finds interrupted moves by the folders of their copies (`resume`, `begin_again`):

    `<topic>-<n>` and a copy in another directory     the copy is deleted, and the move begins again
    no `<topic>-<n>`, and a deleted folder with the
    <unique> of the copy                              the log had switched to the copy: it becomes `<topic>-<n>`
    a copy alone                                      it is incomplete, and left alone
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.clock import Clock
from sparklog.base.errors import InvalidTopic, KafkaStorageError, LogDirNotFound, ReplicaNotAvailable
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.directories import LogDirectories
from sparklog.log.directory.directory import LogDirectory
from sparklog.log.files import DELETE_FOLDER, FUTURE_FOLDER, MAX_FOLDER_NAME
from sparklog.log.log import Log
from sparklog.log.move import LogMove

BeforeSwitch = Callable[[TopicPartition, str], None]
"""Arguments: a partition, and the target directory of its log."""
Found = list[tuple[LogDirectory, TopicPartition]]
logger = logging.getLogger(__name__)


class FutureReplica(Struct, frozen=True, kw_only=True):
    """The progress of a move."""

    partition: TopicPartition
    path: str
    """The target directory."""
    size_bytes: int
    end_offset: int


class _Move(Struct, kw_only=True, eq=False):
    log: Log
    target: LogDirectory
    copy: LogMove
    busy: threading.Lock = field(default_factory=threading.Lock)
    """Held during a step."""


class ReplicaMoves:
    """The moves of one broker's replicas. Thread-safe; all methods may wait for a disk."""

    def __init__(self, fs: Fs, directories: LogDirectories, clock: Clock, new_id: Callable[[], UUID]) -> None:
        """new_id: returns a random id, for the name of a copy"""
        self._fs = fs
        self._new_id = new_id
        self._directories = directories
        self._clock = clock
        self._beginning = threading.Lock()
        self._lock = threading.Lock()
        self._moves: dict[TopicPartition, _Move] = {}
        """In the order in which they get their next step."""
        self._interrupted: dict[TopicPartition, tuple[LogDirectory, list[str]]] = {}
        """Moves that the last stop interrupted, each with its target and copies."""
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._moves)

    def futures(self) -> list[FutureReplica]:
        """Return the progress of all moves."""
        with self._lock:
            moves = tuple(self._moves.values())
        return [
            FutureReplica(
                partition=each.log.partition,
                path=each.target.path,
                size_bytes=each.copy.size_bytes,
                end_offset=each.copy.end_offset,
            )
            for each in moves
        ]

    def begin(self, name: TopicPartition, path: str, *, is_known: bool = False) -> None:
        """Begin to move the partition's log to the log directory `path`, unless it is there.

        is_known: the cluster has the partition; if this broker gets a replica of it later, it is created in `path`.

        Raises LogDirNotFound; KafkaStorageError if the partition is offline, the target is full or a directory has
        failed, as the partition may lie there too; InvalidTopic if the name is too long for the copy's folder;
        ReplicaNotAvailable if this broker has no replica.
        """
        target = self._directories.at(path)
        if target is None:
            raise LogDirNotFound(f"{path} is no log directory of this broker: {', '.join(self._directories.dirs)} are")
        if target.failure:
            raise KafkaStorageError(f"log directory {path} has failed: {target.failure}")
        folder = f"{name}.{self._new_id().hex}{FUTURE_FOLDER}"
        if len(folder) > MAX_FOLDER_NAME:
            raise InvalidTopic(f"the name of {name} is too long for a folder that it moves in: {folder}")
        log = self._directories.get(name)
        if log is None:
            if is_known:
                self._directories.prefer(name, target)
            raise ReplicaNotAvailable(f"this broker has no replica of {name}")
        with self._beginning:
            self._begin(name, log, target, folder)

    def _begin(self, name: TopicPartition, log: Log, target: LogDirectory, folder: str) -> None:
        current = self._moves.get(name)
        if current and current.log is log and current.target is target:
            return
        self.cancel([name])
        if self._directories.directory_of(log) is target:
            return
        if failed := self._directories.failed_dirs:
            raise KafkaStorageError(f"nothing is moved while a log directory has failed: {dict(failed)}")
        if target.room.is_short:
            raise KafkaStorageError(f"log directory {target.path} is full")
        copy = log.begin_move(f"{target.path}/{folder}", target.room, partial(self._directories.fail, target))
        copy.create()
        with self._lock:
            if self._is_stopped:
                raise KafkaStorageError("the broker stops")
            self._moves[name] = _Move(log=log, target=target, copy=copy)
        logger.info("%s moves from %s to %s", name, log.folder, target.path)

    def cancel(self, names: Iterable[TopicPartition]) -> None:
        """End the moves of these partitions, if any, and delete the copies."""
        with self._lock:
            moves = [move for name in names if (move := self._moves.pop(name, None))]
        for move in moves:
            logger.info("%s does not move to %s any more", move.log.partition, move.target.path)
            with move.busy:
                self._discard(move)

    def step(self, max_bytes: int, before_switch: BeforeSwitch = lambda *_: None) -> int | None:
        """Do the next step of one of the moves; return how many bytes were copied, at most about `max_bytes`.

        Returns None if there are no moves. before_switch: called before a log switches to its copy.
        """
        with self._lock:
            if self._is_stopped or not self._moves:
                return None
            name = next(iter(self._moves))
            move = self._moves[name] = self._moves.pop(name)
        with move.busy:
            if self._moves.get(name) is not move:
                return 0
            try:
                return self._step(move, max_bytes, before_switch)
            except KafkaStorageError as error:
                self._forget(move)
                logger.error("%s does not move to %s: %s", name, move.target.path, error)
                self._discard(move)
                return 0

    def _step(self, move: _Move, max_bytes: int, before_switch: BeforeSwitch) -> int:
        log, target, directories = move.log, move.target, self._directories
        if target.failure:
            raise KafkaStorageError(f"log directory {target.path} has failed: {target.failure}")
        copied = move.copy.copy(max_bytes)
        if copied >= max_bytes:
            return copied
        source = directories.directory_of(log)
        before_switch(log.partition, target.path)
        with directories.arrival(log, target):
            left = move.copy.switch(
                write_checkpoints=partial(directories.write_promises, target),
                taking_over=partial(directories.taking_over, log, target),
                flush_source=partial(self._flush_names, source),
            )
        if left:
            self._forget(move)
            source.expire(left, self._clock.monotonic_ms() + log.config.file_delete_delay_ms)
            logger.info("%s has moved from %s to %s", log.partition, source.path, target.path)
            with contextlib.suppress(KafkaStorageError):  # the next checkpoint leaves the partition out
                directories.write_promises(source)
        return copied

    def _flush_names(self, directory: LogDirectory) -> None:
        with contextlib.suppress(KafkaStorageError), self._directories.guard(directory, reraise=True):
            self._fs.flush_dir(directory.path)

    def _forget(self, move: _Move) -> None:
        with self._lock:
            if self._moves.get(move.log.partition) is move:
                del self._moves[move.log.partition]

    def _discard(self, move: _Move) -> None:
        with contextlib.suppress(KafkaStorageError):  # the directory has failed, which is logged
            if folder := move.copy.discard():
                move.target.expire(folder, 0)

    def stop(self) -> None:
        """Stop moving; on return no step is in progress. The copies stay for the next start."""
        with self._lock:
            self._is_stopped = True
            moves = tuple(self._moves.values())
        for move in moves:
            with move.busy:
                pass

    # Start

    def resume(self, found: Found) -> Found:
        """Return the partitions with folders: `found`, and those whose logs had switched to copies before a crash."""
        homes: dict[TopicPartition, list[LogDirectory]] = {}
        for directory, name in found:
            homes.setdefault(name, []).append(directory)
        live = self._directories.live()
        deleted = {name.removesuffix(DELETE_FOLDER) for directory in live for name in directory.deleted}
        adopted: Found = []
        for directory in live:
            for future in directory.futures:
                stem = future.removesuffix(FUTURE_FOLDER)
                try:
                    name = TopicPartition.parse(stem.rpartition(".")[0])
                except ValueError:
                    continue
                if name not in homes and stem in deleted:
                    logger.warning(
                        "%s/%s takes over: the move was interrupted after its last step", directory.path, future
                    )
                    with self._directories.guard(directory):
                        directory.adopt(future, name)
                        adopted.append((directory, name))
                        homes[name] = [directory]
                elif name in homes:
                    self._interrupted.setdefault(name, (directory, []))[1].append(f"{directory.path}/{future}")
                else:
                    logger.warning("%s/%s is a copy of no log here: it is left alone", directory.path, future)
        return found + adopted

    def begin_again(self) -> None:
        """Begin again the moves that the last stop interrupted, of the logs that are open now."""
        for name, (target, copies) in self._interrupted.items():
            try:
                self.begin(name, target.path)
            except (KafkaStorageError, ReplicaNotAvailable, InvalidTopic) as error:
                logger.warning("%s does not go on to move to %s: %s", name, target.path, error)
                continue
            for folder in copies:
                target.expire(folder, 0)
        self._interrupted.clear()
