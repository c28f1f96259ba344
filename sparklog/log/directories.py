"""The log directories of a broker: which of them work, which logs are in each, and what happens when one fails.

A directory fails as a whole: the first OSError of the disk under it takes its logs offline, and no others. Their
partitions raise KafkaStorageError until the broker is started again, and so do those that were being made or deleted
there: what is on the disk is not known, so none of them is made anew in another directory meanwhile.

A partition can be offline alone, too, in a directory that works: it is set aside.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory import LogDirectory
from sparklog.log.disk import NOT_THE_DISK
from sparklog.log.log import Log

logger = logging.getLogger(__name__)


class LogDirectories:
    """The part of a `LogManager` that knows what there is, and what has failed."""

    def __init__(
        self,
        fs: Fs,
        dirs: Iterable[str],
        on_dir_failure: Callable[[str, OSError], None] | None,
        min_free_bytes: int = 0,
    ) -> None:
        self._fs = fs
        self._on_dir_failure = on_dir_failure
        paths = (path.rstrip("/") or "/" for path in dirs)
        self._dirs = {path: LogDirectory(fs, path, min_free_bytes) for path in paths}
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        """Where partitions lie, those that are offline and those that are being made too."""
        self._offline: dict[TopicPartition, str] = {}
        self._lock = threading.RLock()

    def __iter__(self) -> Iterator[Log]:
        """The logs that work."""
        return iter(tuple(self._logs.values()))

    @property
    def dirs(self) -> tuple[str, ...]:
        """The directories that work."""
        return tuple(each.path for each in self._live())

    @property
    def failed_dirs(self) -> Mapping[str, str]:
        """The directories that have failed, and why."""
        return {each.path: each.failure for each in self._dirs.values() if each.failure}

    @property
    def full_dirs(self) -> tuple[str, ...]:
        """The directories that work, and to which nothing is appended until there is room."""
        return tuple(each.path for each in self._live() if each.room.is_short)

    def get(self, name: TopicPartition) -> Log | None:
        """The partition's log, if there is one here; raises KafkaStorageError where it is offline."""
        log = self._logs.get(name)
        if log is None and name in self._offline:
            raise KafkaStorageError(f"{name} is offline: {self._offline[name]}")
        return log

    def _add(self, directory: LogDirectory, log: Log) -> None:
        """It works from now on, unless its directory has failed meanwhile."""
        with self._lock:
            if not directory.failure:
                self._logs.setdefault(log.partition, log)
                return
        log.go_offline(f"log directory {directory.path} has failed: {directory.failure}")

    def _set_aside(self, name: TopicPartition, homes: Iterable[LogDirectory], why: str) -> None:
        """Its log is not to be used: the partition is offline, and its files stay as they are."""
        logger.error("%s is offline: %s", name, why)
        for directory in homes:
            directory.set_aside(name)
        with self._lock:
            self._logs.pop(name, None)
            self._offline[name] = why

    def _live(self) -> list[LogDirectory]:
        return [directory for directory in self._dirs.values() if not directory.failure]

    def _directory_of(self, log: Log) -> LogDirectory:
        return self._dirs[posixpath.dirname(log.folder)]

    def _logs_in(self, path: str) -> list[Log]:
        return [log for log in self if posixpath.dirname(log.folder) == path]

    @contextlib.contextmanager
    def _guard(self, directory: LogDirectory, *, reraise: bool = False) -> Iterator[None]:
        """An OSError inside is the directory's failure; reraise: and a KafkaStorageError for the caller."""
        try:
            yield
        except OSError as error:
            if error.errno not in NOT_THE_DISK:
                self._fail(directory, error)
            elif not reraise:
                raise
            if reraise:
                raise KafkaStorageError(f"{directory.path}: {error}") from error

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        with self._lock:
            if directory.failure:
                return
            directory.failure = str(error)
            why = f"log directory {directory.path} has failed: {error}"
            gone = self._logs_in(directory.path)
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
