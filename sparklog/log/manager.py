"""All logs of a broker: found in its log directories, opened, looked after, closed.

    load         lock each directory; after a clean stop open its logs as they are, else recover them, in
                 num.recovery.threads.per.data.dir threads
    look after   flush what is due, write checkpoints, apply retention, remove what has expired: methods for a schedule,
                 each of which may run in any thread
    close        close and flush every log, write the checkpoints, then the marker of a clean stop

A directory fails as a whole: the first OSError of the disk under it takes its logs offline, and no others. Their
partitions raise KafkaStorageError until the broker is started again, and so do those that were being made or deleted
there: what is on the disk is not known, so none of them is made anew in another directory meanwhile.

A log that cannot be opened because flushed batches are damaged is offline alone. So is a partition that lies in two
directories, as one does whose directory was left out of log.dirs for a while: which of the two is the right one
nothing on the disk says for sure, and somebody has to move one away.

Recovery points, log start offsets and cleaned offsets are kept for all logs of a directory in one file each. They are
written on a schedule, and at once when a log is about to change what they promise.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid4

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import CorruptRecord, InconsistentTopicId, KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.cache import SegmentCache
from sparklog.log.directory import LogDirectory
from sparklog.log.disk import NOT_THE_DISK
from sparklog.log.log import Log
from sparklog.log.ownership import Ownership

logger = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int, TopicPartition], None]
"""Told after each log that was opened: how many are done, of how many, and which it was. From several threads."""


class LogManager:
    """The logs in `dirs`. Methods may be called from any thread; all but `get` and iteration may wait for a disk."""

    def __init__(
        self,
        fs: Fs,
        dirs: tuple[str, ...],
        config: BrokerConfig,
        clock: Clock,
        *,
        on_dir_failure: Callable[[str, OSError], None] | None = None,
        jitter: Callable[[int], int] = random.randrange,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        """on_dir_failure: told of a directory that has failed. jitter: a random number below its argument. new_id: of a
        directory that has none."""
        self._fs = fs
        self._config = config
        self._clock = clock
        self._on_dir_failure = on_dir_failure
        self._jitter = jitter
        self._dirs = {path: LogDirectory(fs, path) for path in (path.rstrip("/") or "/" for path in dirs)}
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        """Where partitions lie, those that are offline and those that are being made too."""
        self._offline: dict[TopicPartition, str] = {}
        self._unlisted: set[LogDirectory] = set()
        """Those with logs that are not in their checkpoints yet."""
        self._cache = SegmentCache()
        self._lock = threading.RLock()
        self._held = contextlib.ExitStack()
        self.ownership = Ownership(self._live, self._guard, config.broker_id, new_id)

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

    # Start

    def load(self, topic_configs: Mapping[str, TopicConfig] | None = None, *, progress: Progress | None = None) -> None:
        """Open every log there is. topic_configs: by topic; the broker's defaults for all others.

        Raises ConfigError where a directory is used by another broker, and KafkaStorageError where none works.
        """
        configs = topic_configs or {}
        found: list[tuple[LogDirectory, TopicPartition]] = []
        try:
            for directory in self._dirs.values():
                with self._guard(directory):
                    directory.acquire(self._held)
                    found += [(directory, name) for name in directory.begin()]
            self._check_live()
            self._open_all(self._settle(found), configs, progress)
            self._check_live()
        except BaseException:
            self._held.close()
            raise
        for directory in self._live():
            with self._guard(directory):
                self._write_checkpoints(directory)

    def _check_live(self) -> None:
        if not self._live():
            raise KafkaStorageError(f"no log directory works: {dict(self.failed_dirs)}")

    def _settle(self, found: list[tuple[LogDirectory, TopicPartition]]) -> list[tuple[LogDirectory, TopicPartition]]:
        """Without the partitions that lie in two directories: these are offline."""
        homes: dict[TopicPartition, list[LogDirectory]] = {}
        for directory, name in found:
            self._homes[name] = directory
            homes.setdefault(name, []).append(directory)
        for name, several in homes.items():
            if len(several) > 1:
                folders = " and ".join(directory.folder_of(name) for directory in several)
                self._set_aside(name, several, f"it lies in {folders}: move one of them away, and restart the broker")
        return [(directory, name) for directory, name in found if len(homes[name]) == 1]

    def _open_all(
        self,
        found: list[tuple[LogDirectory, TopicPartition]],
        configs: Mapping[str, TopicConfig],
        progress: Progress | None,
    ) -> None:
        done = 0

        def load_one(directory: LogDirectory, name: TopicPartition) -> None:
            nonlocal done
            with self._guard(directory):
                self._open(directory, name, configs.get(name.topic, self._config.topic_defaults))
            with self._lock:
                done += 1
                count = done
            if progress:
                progress(count, len(found), name)

        with contextlib.ExitStack() as pools:
            threads = self._config.num_recovery_threads_per_data_dir
            by_dir = {
                directory.path: pools.enter_context(ThreadPoolExecutor(threads, "log-recovery"))
                for directory in self._live()
            }
            waiting = [by_dir[directory.path].submit(load_one, directory, name) for directory, name in found]
            for future in waiting:
                future.result()

    def _open(self, directory: LogDirectory, name: TopicPartition, config: TopicConfig) -> None:
        try:
            log = Log.open(
                self._fs, directory.folder_of(name), config, self._clock,
                clean=directory.was_clean,
                recovery_point=directory.recovery_point_of(name),
                log_start_offset=directory.log_start_of(name),
                compacted_to=directory.compacted_to(name),
                cache=self._cache, on_error=self._log_failed, remember=self._remember, jitter=self._jitter,
            )  # fmt: skip
        except CorruptRecord as error:
            self._set_aside(name, [directory], str(error))
        else:
            self._add(directory, log)

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

    # Partitions

    def get(self, name: TopicPartition) -> Log | None:
        """The partition's log, if there is one here; raises KafkaStorageError where it is offline."""
        log = self._logs.get(name)
        if log is None and name in self._offline:
            raise KafkaStorageError(f"{name} is offline: {self._offline[name]}")
        return log

    def create(
        self, name: TopicPartition, config: TopicConfig, *, topic_id: UUID | None = None, is_new: bool = True
    ) -> Log:
        """The partition's log; if there is none, an empty one, in the directory with the fewest.

        topic_id: the log is or becomes one of that topic; where it is one of another, as it was left behind by a topic
        of the same name, it goes offline. is_new: False where the partition has existed before. It may then lie in a
        directory that has failed, so while one has, nothing is made in its place.

        Raises KafkaStorageError, also for a partition that is offline or no directory that works.
        """
        log = self._find_or_make(name, config, is_new=is_new)
        try:
            if topic_id:
                log.claim(topic_id)
        except InconsistentTopicId as error:
            self._set_aside(name, [self._directory_of(log)], f"INCONSISTENT_TOPIC_ID: {error}")
            self._close_log(log)
            raise KafkaStorageError(f"{name} is offline: INCONSISTENT_TOPIC_ID: {error}") from error
        return log

    def _find_or_make(self, name: TopicPartition, config: TopicConfig, *, is_new: bool) -> Log:
        with self._lock:
            if (log := self.get(name)) is not None:
                return log
            if self.failed_dirs and not is_new:
                raise KafkaStorageError(f"{name} may lie in a failed directory: {dict(self.failed_dirs)}")
            directory = self._homes.get(name) or self._emptiest()
            self._homes[name] = directory
        with self._guard(directory, reraise=True):
            made = Log.open(
                self._fs, directory.folder_of(name), config, self._clock, clean=True,
                cache=self._cache, on_error=self._log_failed, remember=self._remember, jitter=self._jitter,
            )  # fmt: skip
        with self._lock:
            self._add(directory, made)
            self._unlisted.add(directory)
        return self.get(name) or made

    def _emptiest(self) -> LogDirectory:
        """The directory with the fewest partitions. Raises KafkaStorageError."""
        live = self._live()
        if not live:
            raise KafkaStorageError(f"no log directory works: {dict(self.failed_dirs)}")
        counts = Counter(self._homes.values()) if len(live) > 1 else {}
        return min(live, key=lambda directory: counts.get(directory, 0))

    def delete(self, name: TopicPartition) -> None:
        """As `delete_all`, of one partition; raises KafkaStorageError."""
        for error in self.delete_all([name]).values():
            raise error

    def delete_all(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        """Take partitions away; their folders go after file.delete.delay.ms. No error where there is none.

        One that lies in two directories goes from both. -> why one is not deleted, and stays offline if it was: also
        where it is not found and a directory has failed, as it may lie there.
        """
        errors: dict[TopicPartition, KafkaStorageError] = {}
        touched: dict[LogDirectory, list[TopicPartition]] = {}
        for name in names:
            try:
                for directory in self._delete(name):
                    touched.setdefault(directory, []).append(name)
            except KafkaStorageError as error:
                errors[name] = error
        for directory, deleted in touched.items():
            try:
                with self._guard(directory, reraise=True):
                    self._fs.flush_dir(directory.path)
                    self._write_checkpoints(directory)  # new partitions of these names must not inherit what they say
            except KafkaStorageError as error:
                errors |= dict.fromkeys(deleted, error)
                if directory.failure:  # after a power cut they may be there again
                    with self._lock:
                        self._offline |= dict.fromkeys(deleted, str(error))
        return errors

    def _delete(self, name: TopicPartition) -> list[LogDirectory]:
        """The directories in which it was. Raises KafkaStorageError; then it stays what it is."""
        log = self._logs.get(name)
        due_ms = self._clock.monotonic_ms() + (log.config if log else self._config.topic_defaults).file_delete_delay_ms
        if log:
            homes = [self._directory_of(log)]
            homes[0].expire(log.rename_for_delete(), due_ms)
        else:
            homes = [directory for directory in self._dirs.values() if directory.is_damaged(name)]
            if self.failed_dirs and (not homes or any(directory.failure for directory in homes)):
                raise KafkaStorageError(f"{name} may lie in a failed directory: {dict(self.failed_dirs)}")
            for directory in homes:
                with self._guard(directory, reraise=True):
                    directory.discard(name, due_ms)
        with self._lock:
            self._logs.pop(name, None)
            self._offline.pop(name, None)
            if homes:  # else its folder may be half made
                self._homes.pop(name, None)
        return homes

    def update_config(self, topic: str, config: TopicConfig) -> None:
        """From now on, the topic's logs go by `config`."""
        for log in self:
            if log.partition.topic == topic:
                log.configure(config)

    # Looking after them

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed, and closed segments. now_ms: of the monotonic clock.

        Recovery points that closed segments have moved, and those of new logs, are written down at once.
        """
        moved = self._take_unlisted()
        for log in self:
            with contextlib.suppress(KafkaStorageError):  # it has been said, and its directory is offline
                if log.flush_if_due(now_ms):
                    moved.add(self._directory_of(log))
        self._write_recovery_points(moved)

    def list_new(self) -> None:
        """Write down which logs there are, if some are new: after a crash a gap in one of them is a hole from now on.

        To be called before others count on what is in them.
        """
        self._write_recovery_points(self._take_unlisted())

    def _take_unlisted(self) -> set[LogDirectory]:
        with self._lock:
            taken, self._unlisted = self._unlisted, set()
            return taken

    def _write_recovery_points(self, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            with self._guard(directory):
                directory.write_recovery_points(partial(self._logs_in, directory.path))

    def checkpoint_recovery_points(self) -> None:
        self._write_recovery_points(self._live())

    def checkpoint_log_starts(self) -> None:
        for directory in self._live():
            with self._guard(directory):
                directory.write_log_starts(partial(self._logs_in, directory.path))

    def apply_retention(
        self,
        now_ms: int,
        high_watermark: Callable[[TopicPartition], int | None] | None = None,
        is_led: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> int:
        """Let go of the segments that retention gives up, and say how many.

        now_ms: of the wall clock. high_watermark: nothing at or above it goes; where it is None, or answers None, the
        log end offset takes its place. is_led: of others, only what lies below the log start goes.
        """
        count = 0
        for log in self:
            limit = high_watermark(log.partition) if high_watermark else None
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_old_segments(now_ms, high_watermark=limit, is_led=is_led(log.partition))
        return count

    @property
    def greatest_producer_id(self) -> int:
        """Of those that a log remembers; -1 where there is none."""
        return max((producer_id for log in self for producer_id in log.producers), default=-1)

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for producer.id.expiration.ms, and say how many. now_ms: wall clock."""
        after_ms = self._config.producer_id_expiration_ms
        return sum(log.expire_producers(now_ms, after_ms) for log in self)

    def delete_expired(self, now_ms: int) -> int:
        """Remove the files of segments and partitions whose delay has passed, and say of how many.

        now_ms: of the monotonic clock.
        """
        count = 0
        for log in self:
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_expired(now_ms)
        for directory in self._live():
            with self._guard(directory):
                count += directory.remove_expired(now_ms)
        return count

    # Stop

    def close(self) -> None:
        """Close everything. A directory is marked as cleanly stopped if all its logs could be closed."""
        logs = list(self)
        closed = self.in_threads(self._close_log, logs)
        failed = {posixpath.dirname(log.folder) for log, is_closed in zip(logs, closed, strict=True) if not is_closed}
        for directory in self._live():
            with self._guard(directory):
                self._write_checkpoints(directory)
                if directory.path not in failed:
                    directory.end()
        self._logs.clear()
        self._held.close()

    def _close_log(self, log: Log) -> bool:
        try:
            log.close()
        except KafkaStorageError as error:
            logger.error("%r could not be closed: %s", log, error)
            return False
        return True

    # Directories

    def in_threads(self, work: Callable[[Item], Result], items: Collection[Item]) -> list[Result]:
        """What `work` returns for each, several at a time: logs wait for the disk, hardly for one another."""
        threads = self._config.num_recovery_threads_per_data_dir
        if threads == 1 or len(items) < 2:
            return [work(each) for each in items]
        with ThreadPoolExecutor(threads, "logs") as pool:
            return list(pool.map(work, items))

    def _live(self) -> list[LogDirectory]:
        return [directory for directory in self._dirs.values() if not directory.failure]

    def _directory_of(self, log: Log) -> LogDirectory:
        return self._dirs[posixpath.dirname(log.folder)]

    def _logs_in(self, path: str) -> list[Log]:
        return [log for log in self if posixpath.dirname(log.folder) == path]

    def _write_checkpoints(self, directory: LogDirectory) -> None:
        directory.write_recovery_points(partial(self._logs_in, directory.path))
        directory.write_log_starts(partial(self._logs_in, directory.path))
        directory.write_cleaned_offsets(partial(self._logs_in, directory.path))

    def _remember(self, log: Log) -> None:
        directory = self._directory_of(log)
        with self._guard(directory, reraise=True):
            self._write_checkpoints(directory)

    def _log_failed(self, log: Log, error: OSError) -> None:
        self._fail(self._directory_of(log), error)

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
