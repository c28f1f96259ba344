"""All logs of a broker: found in its log directories, opened, looked after, closed.

    load         lock each directory; after a clean stop open its logs as they are, else recover them, in
                 num.recovery.threads.per.data.dir threads
    create       an empty log, in the directory with the fewest partitions
    delete       the folder gets another name, and goes after file.delete.delay.ms
    look after   background_tasks.py
    close        close and flush every log, write the checkpoints, then the marker of a clean stop

A directory that fails, and what is offline then: directories.py. A log that cannot be opened because flushed batches
are damaged is offline alone. So is a partition that lies in two directories, as one does whose directory was left out
of log.dirs for a while: which of the two is the right one nothing on the disk says for sure, and somebody has to move
one away.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid4

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import CorruptRecord, InconsistentTopicId, KafkaStorageError, PolicyViolation
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.background_tasks import BackgroundTasks
from sparklog.log.directory.directories import LogDirectories
from sparklog.log.directory.directory import LogDirectory
from sparklog.log.directory.open_files import NO_LIMIT, OpenFiles
from sparklog.log.directory.ownership import Ownership
from sparklog.log.directory.topic_configs import UNLIMITED, Overrides
from sparklog.log.log import Log
from sparklog.log.segment.cache import SegmentCache

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
        open_files: OpenFiles = NO_LIMIT,
    ) -> None:
        """on_dir_failure: told of a directory that has failed. jitter: a random number below its argument. new_id: of a
        directory that has none. open_files: more logs than these are not opened."""
        self._fs = fs
        self._config = config
        self._clock = clock
        self._directories = directories = LogDirectories(fs, dirs, on_dir_failure, config.log_dir_min_free_bytes)
        self.tasks = BackgroundTasks(directories, config)
        self._jitter = jitter
        self._open_files = open_files
        self._cache = SegmentCache(open_files.closed_segments)
        self._held = contextlib.ExitStack()
        self.ownership = Ownership(directories.live, directories.guard, config.broker_id, new_id)

    def __iter__(self) -> Iterator[Log]:
        """The logs that work."""
        return iter(self._directories)

    @property
    def dirs(self) -> tuple[str, ...]:
        """The directories that work."""
        return self._directories.dirs

    @property
    def failed_dirs(self) -> Mapping[str, str]:
        """The directories that have failed, and why."""
        return self._directories.failed_dirs

    @property
    def full_dirs(self) -> tuple[str, ...]:
        """The directories that work, and to which nothing is appended until there is room."""
        return self._directories.full_dirs

    @property
    def greatest_producer_id(self) -> int:
        """Of those that a log remembers; -1 where there is none."""
        return max((producer_id for log in self for producer_id in log.producers), default=-1)

    def get(self, name: TopicPartition) -> Log | None:
        """The partition's log, if there is one here; raises KafkaStorageError where it is offline."""
        return self._directories.get(name)

    def list_new(self) -> None:
        """As `LogDirectories.list_new`."""
        self._directories.list_new()

    # Start

    def load(self, topic_configs: Mapping[str, TopicConfig] | None = None, *, progress: Progress | None = None) -> None:
        """Open every log there is. topic_configs: by topic; nothing is deleted from any other's. None: the broker's
        defaults for all.

        Raises ConfigError where a directory is used by another broker, and KafkaStorageError where none works.
        """
        found: list[tuple[LogDirectory, TopicPartition]] = []
        try:
            for directory in self._directories.all:
                with self._directories.guard(directory):
                    directory.acquire(self._held)
                    found += [(directory, name) for name in directory.begin()]
            self._directories.check_live()
            self._open_all(self._settle(found), topic_configs, progress)
            self._directories.check_live()
        except BaseException:
            self._held.close()
            raise
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                self._directories.write_checkpoints(directory)

    def _settle(self, found: list[tuple[LogDirectory, TopicPartition]]) -> list[tuple[LogDirectory, TopicPartition]]:
        """Without the partitions that lie in two directories: these are offline."""
        homes: dict[TopicPartition, list[LogDirectory]] = {}
        for directory, name in found:
            self._directories.found(name, directory)
            homes.setdefault(name, []).append(directory)
        for name, several in homes.items():
            if len(several) > 1:
                folders = " and ".join(directory.folder_of(name) for directory in several)
                self._directories.set_aside(
                    name, several, f"it lies in {folders}: move one of them away, and restart the broker"
                )
        return [(directory, name) for directory, name in found if len(homes[name]) == 1]

    def _open_all(
        self,
        found: list[tuple[LogDirectory, TopicPartition]],
        configs: Mapping[str, TopicConfig] | None,
        progress: Progress | None,
    ) -> None:
        done = 0
        for directory, name in found[self._open_files.logs :]:
            self._directories.set_aside(name, [directory], self._open_files.why)
        found = found[: self._open_files.logs]
        defaults = self._config.topic_defaults
        if configs is None:
            configs = {}
        else:
            defaults = TopicConfig.parse(UNLIMITED, defaults)

        def load_one(directory: LogDirectory, name: TopicPartition) -> None:
            nonlocal done
            with self._directories.guard(directory):
                self._open(directory, name, configs.get(name.topic, defaults))
            with self._directories.lock:
                done += 1
                count = done
            if progress:
                progress(count, len(found), name)

        with contextlib.ExitStack() as pools:
            threads = self._config.num_recovery_threads_per_data_dir
            by_dir = {
                directory.path: pools.enter_context(ThreadPoolExecutor(threads, "log-recovery"))
                for directory in self._directories.live()
            }
            waiting = [by_dir[directory.path].submit(load_one, directory, name) for directory, name in found]
            for future in waiting:
                future.result()

    def check_room(self, partitions: int) -> None:
        """Raises PolicyViolation where there are not so many files left to be opened."""
        if len(self._directories) + partitions > self._open_files.logs:
            raise PolicyViolation(f"{partitions} partitions more: {self._open_files.why}")

    def _open(self, directory: LogDirectory, name: TopicPartition, config: TopicConfig) -> None:
        """As the directory's checkpoints remember it. Raises OSError."""
        try:
            log = self._open_log(
                directory,
                name,
                config,
                clean=directory.was_clean,
                recovery_point=directory.recovery_point_of(name),
                log_start_offset=directory.log_start_of(name),
                compacted_to=directory.compacted_to(name),
            )
        except CorruptRecord as error:
            self._directories.set_aside(name, [directory], str(error))
        else:
            self._directories.add(directory, log)

    def _open_log(
        self,
        directory: LogDirectory,
        name: TopicPartition,
        config: TopicConfig,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        compacted_to: int | None = None,
    ) -> Log:
        """Raises OSError, or CorruptRecord."""
        return Log.open(
            self._fs,
            directory.folder_of(name),
            config,
            self._clock,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            compacted_to=compacted_to,
            cache=self._cache,
            on_error=partial(self._directories.fail, directory),
            write_checkpoints=partial(self._directories.write_promises, directory),
            jitter=self._jitter,
            room=directory.room,
        )

    # Partitions

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
            self._directories.set_aside(name, [self._directories.directory_of(log)], f"INCONSISTENT_TOPIC_ID: {error}")
            self._close_log(log)
            raise KafkaStorageError(f"{name} is offline: INCONSISTENT_TOPIC_ID: {error}") from error
        return log

    def _find_or_make(self, name: TopicPartition, config: TopicConfig, *, is_new: bool) -> Log:
        with self._directories.lock:
            if (log := self.get(name)) is not None:
                return log
            if len(self._directories) >= self._open_files.logs:
                raise KafkaStorageError(f"{name} is not opened: {self._open_files.why}")
            if self.failed_dirs and not is_new:
                raise KafkaStorageError(f"{name} may lie in a failed directory: {dict(self.failed_dirs)}")
            directory = self._directories.home_of(name)
        with self._directories.guard(directory, reraise=True), directory.room.needed(f"another log, of {name}"):
            made = self._open_log(directory, name, config)
        self._directories.add(directory, made)
        self._directories.has_new(directory)
        return self.get(name) or made

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
                with self._directories.guard(directory, reraise=True):
                    self._fs.flush_dir(directory.path)
                    self._directories.write_checkpoints(
                        directory
                    )  # new partitions of these names must not inherit what they say
            except KafkaStorageError as error:
                errors |= dict.fromkeys(deleted, error)
                if directory.failure:  # after a power cut they may be there again
                    self._directories.set_offline(deleted, str(error))
        return errors

    def _delete(self, name: TopicPartition) -> list[LogDirectory]:
        """The directories in which it was. Raises KafkaStorageError; then it stays what it is."""
        log = self._directories.find(name)
        due_ms = self._clock.monotonic_ms() + (log.config if log else self._config.topic_defaults).file_delete_delay_ms
        if log:
            homes = [self._directories.directory_of(log)]
            homes[0].expire(log.rename_for_delete(), due_ms)
        else:
            homes = [directory for directory in self._directories.all if directory.is_damaged(name)]
            if self.failed_dirs and (not homes or any(directory.failure for directory in homes)):
                raise KafkaStorageError(f"{name} may lie in a failed directory: {dict(self.failed_dirs)}")
            for directory in homes:
                with self._directories.guard(directory, reraise=True):
                    directory.discard(name, due_ms)
        self._directories.forget(name, was_found=bool(homes))
        return homes

    def update_config(self, topic: str, config: TopicConfig) -> None:
        """From now on, the topic's logs go by `config`."""
        for log in self:
            if log.partition.topic == topic:
                log.configure(config)

    def keep_configs(self, overrides: Mapping[str, Overrides], seen_change: int) -> None:
        """Write down beside their folders what these topics go by. seen_change: of the store that says so."""
        for directory in self._directories.live():
            ids = {log.partition.topic: log.topic_id for log in self._directories.logs_in(directory.path)}
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                directory.keep_configs(ids, overrides, seen_change)

    def find_kept_config(self, topic: str, topic_id: UUID | None) -> Overrides | None:
        """What the topic went by when that was last written down; None where it is not known."""
        for directory in self._directories.live():
            found = directory.kept_configs.topics.get(topic)
            if found and found.topic_id == topic_id:
                return found.overrides
        return None

    def note_change(self, seen_change: int) -> None:
        """The store's newest change is this one: it has got back what it had lost, as far as that is known."""
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                directory.note_change(seen_change)

    @property
    def seen_change(self) -> int:
        """The newest change of the store that what is kept came from."""
        return max((directory.kept_configs.seen_change for directory in self._directories.live()), default=0)

    # Stop

    def close(self) -> None:
        """Close everything. A directory is marked as cleanly stopped if all its logs could be closed."""
        logs = list(self)
        closed = self.in_threads(self._close_log, logs)
        failed = {posixpath.dirname(log.folder) for log, is_closed in zip(logs, closed, strict=True) if not is_closed}
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                self._directories.write_checkpoints(directory)
                directory.write_configs()
                if directory.path not in failed:
                    directory.end()
        self._directories.clear()
        self._held.close()

    def _close_log(self, log: Log) -> bool:
        try:
            log.close()
        except KafkaStorageError as error:
            logger.error("%r could not be closed: %s", log, error)
            return False
        return True

    def in_threads(self, work: Callable[[Item], Result], items: Collection[Item]) -> list[Result]:
        """What `work` returns for each, several at a time: logs wait for the disk, hardly for one another."""
        threads = self._config.num_recovery_threads_per_data_dir
        if threads == 1 or len(items) < 2:
            return [work(each) for each in items]
        with ThreadPoolExecutor(threads, "logs") as pool:
            return list(pool.map(work, items))
