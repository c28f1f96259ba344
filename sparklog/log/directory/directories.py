"""The log directories of a broker: which of them work, which logs are in each, and what happens when one fails.

A directory fails as a whole: the first OSError of its disk takes all its logs offline, and no others. Their partitions
raise KafkaStorageError until the broker restarts. So do partitions that were being created or deleted there: their
state on the disk is unknown, so they are not created again in another directory.

A single partition of a working directory can also be offline: it is then set aside.
"""

from __future__ import annotations

import contextlib
import logging
import os
import posixpath
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.directory import LogDirectory
from sparklog.log.disk import NOT_THE_DISK
from sparklog.log.log import Log

logger = logging.getLogger(__name__)


class LogDirectories:
    """The broker's directories, their logs, and the failures of both. Thread-safe."""

    def __init__(
        self,
        fs: Fs,
        dirs: Iterable[str],
        on_dir_failure: Callable[[str, OSError], None] | None,
        min_free_bytes: int = 0,
        *,
        on_log_failure: Callable[[TopicPartition, str], None] | None = None,
    ) -> None:
        self._fs = fs
        self._on_dir_failure = on_dir_failure
        self._on_log_failure = on_log_failure
        paths = (path.rstrip("/") or "/" for path in dirs)
        self._dirs = {path: LogDirectory(fs, path, min_free_bytes) for path in paths}
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        """The directory of each partition, including those that are offline or being created."""
        self._offline: dict[TopicPartition, str] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        """The directories chosen for partitions that have no folder yet."""
        self._arriving: dict[TopicPartition, LogDirectory] = {}
        """The target directories of logs that are about to move; their checkpoints name these logs already."""
        self._unlisted: set[LogDirectory] = set()
        """The directories with logs that are not in their checkpoints yet."""
        self.lock = threading.RLock()
        """Held by callers that combine several queries and changes."""

    def __iter__(self) -> Iterator[Log]:
        """Iterate over the logs that are online."""
        return iter(tuple(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """All partitions with a folder, including those that are offline."""
        return tuple(self._homes)

    @property
    def all(self) -> Sequence[LogDirectory]:
        """All directories, including failed ones."""
        return tuple(self._dirs.values())

    @property
    def dirs(self) -> tuple[str, ...]:
        """The directories that work."""
        return tuple(each.path for each in self.live())

    @property
    def failed_dirs(self) -> Mapping[str, str]:
        """The directories that have failed, and why."""
        return {each.path: each.failure for each in self._dirs.values() if each.failure}

    @property
    def full_dirs(self) -> tuple[str, ...]:
        """The working directories that refuse appends until they have room."""
        return tuple(each.path for each in self.live() if each.room.is_short)

    def get(self, name: TopicPartition) -> Log | None:
        """Return the partition's log, or None if it is not here. Raises KafkaStorageError if it is offline."""
        log = self._logs.get(name)
        if log is None and name in self._offline:
            raise KafkaStorageError(f"{name} is offline: {self._offline[name]}")
        return log

    def is_offline(self, name: TopicPartition) -> bool:
        """Return whether the partition is offline until the broker restarts."""
        return name in self._offline and name not in self._logs

    def add(self, directory: LogDirectory, log: Log) -> None:
        """Add an open log; if its directory has failed meanwhile, take the log offline instead."""
        with self.lock:
            if not directory.failure:
                self._logs.setdefault(log.partition, log)
                return
        log.go_offline(f"log directory {directory.path} has failed: {directory.failure}")

    def set_aside(self, name: TopicPartition, homes: Iterable[LogDirectory], why: str) -> None:
        """Take a partition offline because of `why`, and leave its files in the directories `homes` untouched."""
        logger.error("%s is offline: %s", name, why)
        log = self._logs.get(name)
        for directory in homes:
            directory.set_aside(name, log)
        with self.lock:
            self._logs.pop(name, None)
            self._offline[name] = why

    def clear(self) -> None:
        """Forget all logs, after they were closed."""
        self._logs.clear()

    def find(self, name: TopicPartition) -> Log | None:
        """Return the partition's log if it is online, or None."""
        return self._logs.get(name)

    def found(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Record that the partition has a folder in `directory`."""
        self._homes[name] = directory

    def home_of(self, name: TopicPartition) -> LogDirectory:
        """Return the partition's directory; for a new partition, choose the preferred one, or else the working one
        with the fewest partitions.

        Raises KafkaStorageError if a new partition has no directory that works.
        """
        with self.lock:
            if name not in self._homes:
                preferred = self._preferred.pop(name, None)
                self._homes[name] = preferred if preferred and not preferred.failure else self._emptiest()
            return self._homes[name]

    def homes_of_unopened(self, name: TopicPartition) -> list[LogDirectory]:
        """Return the directories with files of a partition that is not open: it was set aside, or created halfway."""
        home = self._homes.get(name)
        return [each for each in self.all if each.is_damaged(name) or (each is home and each.has_folder(name))]

    def prefer(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Choose the directory of a partition that has no folder yet. A directory that fails until then is not used."""
        with self.lock:
            self._preferred[name] = directory

    @contextlib.contextmanager
    def arrival(self, log: Log, directory: LogDirectory) -> Iterator[None]:
        """Let the checkpoints of `directory` name a log that is about to move there."""
        self._arriving[log.partition] = directory
        try:
            yield
        finally:
            del self._arriving[log.partition]

    @contextlib.contextmanager
    def taking_over(self, log: Log, directory: LogDirectory) -> Iterator[None]:
        """Move a log from its directory to `directory`. Raises KafkaStorageError if one of them has failed."""
        with self.lock:
            for each in (self._homes[log.partition], directory):
                if each.failure:
                    raise KafkaStorageError(f"log directory {each.path} has failed: {each.failure}")
            yield
            self._homes[log.partition] = directory

    def _emptiest(self) -> LogDirectory:
        live = self.live()
        self.check_live()
        counts = Counter(self._homes.values()) if len(live) > 1 else {}
        return min(live, key=lambda directory: counts.get(directory, 0))

    def forget(self, name: TopicPartition, *, was_found: bool) -> None:
        """Forget a deleted partition. was_found: False: keep its directory, since its folder may be half created."""
        with self.lock:
            self._logs.pop(name, None)
            self._offline.pop(name, None)
            if was_found:
                self._homes.pop(name, None)

    def set_offline(self, names: Iterable[TopicPartition], why: str) -> None:
        """Take partitions offline, each with the reason `why`."""
        with self.lock:
            self._offline |= dict.fromkeys(names, why)

    def check_live(self) -> None:
        """Raise KafkaStorageError if no directory works."""
        if not self.live():
            raise KafkaStorageError(f"no log directory works: {dict(self.failed_dirs)}")

    # Checkpoints

    def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write recovery points, log start offsets and cleaned offsets.

        Raises OSError, or KafkaStorageError if there is no room.
        """
        logs = partial(self.listed_in, directory.path)
        directory.write_recovery_points(logs)
        directory.write_log_starts(logs)
        directory.write_cleaned_offsets(logs)

    def write_promises_of(self, name: TopicPartition) -> None:
        """Write the checkpoints for a log whose checkpointed offsets must be durable now. Raises KafkaStorageError."""
        home = self._homes.get(name)
        if home is None:
            raise KafkaStorageError(f"{name} is deleted")
        self.write_promises(home)

    def write_promises(self, directory: LogDirectory) -> None:
        """Write a directory's checkpoints. Raises KafkaStorageError."""
        with self.guard(directory, reraise=True):
            self.write_checkpoints(directory)

    def note_new_log(self, directory: LogDirectory) -> None:
        """Record that the directory has a log that is not in its checkpoints yet."""
        with self.lock:
            self._unlisted.add(directory)

    def checkpoint_new_logs(self, moved: Iterable[LogDirectory] = ()) -> None:
        """Add new logs to the checkpoints. From then on, recovery treats a gap in them after a crash as a hole.

        Call it before others count on records in a new log. moved: directories whose recovery points are written in
        any case. Raises KafkaStorageError if one of them has no room; the next call tries again.
        """
        with self.lock:
            taken, self._unlisted = self._unlisted, set()
        no_room: KafkaStorageError | None = None
        written = taken.union(moved)
        for directory in [each for each in self._dirs.values() if each in written]:
            try:
                with self.guard(directory):
                    logs = partial(self.listed_in, directory.path)
                    if directory in taken:
                        directory.write_log_starts(logs)
                    directory.write_recovery_points(logs)
            except KafkaStorageError as error:
                no_room = error
                self.note_new_log(directory)
        if no_room:
            raise no_room

    # Failures

    def live(self) -> list[LogDirectory]:
        """Return the directories that work."""
        return [directory for directory in self._dirs.values() if not directory.failure]

    def directory_of(self, log: Log) -> LogDirectory:
        """Return the directory that holds the log."""
        return self._dirs[posixpath.dirname(log.folder)]

    def logs_in(self, path: str) -> list[Log]:
        """Return the logs of the directory at `path`."""
        return [log for log in self if posixpath.dirname(log.folder) == path]

    def listed_in(self, path: str) -> list[Log]:
        """Return the logs that the checkpoints of the directory at `path` name."""
        arriving = [name for name, directory in tuple(self._arriving.items()) if directory.path == path]
        return [log for log in self if posixpath.dirname(log.folder) == path or log.partition in arriving]

    def at(self, path: str) -> LogDirectory | None:
        """Return the directory with this absolute path, or with this path in log.dirs; None if there is none."""
        normalized = path.rstrip("/") or "/"
        for each in self._dirs.values():
            if normalized in (each.path, os.path.abspath(each.path)):
                return each
        return None

    @contextlib.contextmanager
    def guard(self, directory: LogDirectory, *, reraise: bool = False) -> Iterator[None]:
        """Treat an OSError in the block as the directory's failure, except errors not caused by the disk.

        reraise: also raise KafkaStorageError to the caller.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in NOT_THE_DISK:
                self.fail(directory, error)
            elif not reraise:
                raise
            if reraise:
                raise KafkaStorageError(f"{directory.path}: {error}") from error

    def stop_log(self, name: TopicPartition, why: str) -> None:
        """Take a partition offline whose log has stopped alone, and report it."""
        if (log := self._logs.get(name)) is None:
            return
        self.set_aside(name, [self.directory_of(log)], why)
        if self._on_log_failure:
            self._on_log_failure(name, why)

    def fail(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory and its partitions offline after a disk failure; report the first failure only."""
        with self.lock:
            if directory.failure:
                return
            directory.fail(error)
            why = f"log directory {directory.path} has failed: {error}"
            gone = self.logs_in(directory.path)
            for log in gone:
                del self._logs[log.partition]
            lost = [name for name, home in self._homes.items() if home is directory]
            for name in lost:
                self._offline.setdefault(name, why)
        logger.error("log directory %s has failed, %d partitions are offline: %s", directory.path, len(lost), error)
        for log in gone:
            log.go_offline(why)
        if self._on_dir_failure:
            self._on_dir_failure(directory.path, error)
