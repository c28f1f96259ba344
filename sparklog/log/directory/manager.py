"""The manager of all logs of a broker, from finding them in the log directories to closing them.

    load         lock each directory; open its logs, with recovery unless the last stop was clean, in
                 num.recovery.threads.per.data.dir threads
    create       create an empty log, in the directory with the fewest partitions
    delete       rename the folder; remove it after file.delete.delay.ms
    moves        move partitions from one directory to another, see moves.py
    tasks        background tasks, see background_tasks.py
    close        close and flush every log, write the checkpoints, then the marker of a clean stop

directories.py describes the failure of a directory. A single log is offline if flushed batches are damaged, or if its
partition lies in two directories, for example because one directory was left out of log.dirs for a while. The disk
does not show reliably which copy is right, so an operator must move one away.
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
from sparklog.log.directory.moves import ReplicaMoves
from sparklog.log.directory.open_files import NO_LIMIT, OpenFileLimits
from sparklog.log.directory.ownership import Ownership
from sparklog.log.directory.topic_configs import UNLIMITED, Overrides, TopicCopy
from sparklog.log.files import DELETE_FOLDER, STRAY_FOLDER
from sparklog.log.log import Log
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.state import LogChanges

logger = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int, TopicPartition], None]
"""Called after each opened log with the number of logs done, their total, and the partition; from several threads."""


class LogManager:
    """The logs in `dirs`. Thread-safe; all methods except `get` and iteration may wait for a disk."""

    def __init__(
        self,
        fs: Fs,
        dirs: tuple[str, ...],
        config: BrokerConfig,
        clock: Clock,
        *,
        on_dir_failure: Callable[[str, OSError], None] | None = None,
        on_log_failure: Callable[[TopicPartition, str], None] | None = None,
        jitter: Callable[[int], int] = random.randrange,
        new_id: Callable[[], UUID] = uuid4,
        open_files: OpenFileLimits = NO_LIMIT,
    ) -> None:
        """on_dir_failure: called with a failed directory. on_log_failure: called with a partition whose log alone goes
        offline, and the reason. jitter: returns a random number below its argument. new_id: makes the id of a directory
        without one. open_files: limits the number of open logs."""
        self._fs = fs
        self._config = config
        self._clock = clock
        self._directories = directories = LogDirectories(
            fs, dirs, on_dir_failure, config.log_dir_min_free_bytes, on_log_failure=on_log_failure
        )
        self.tasks = BackgroundTasks(directories, config)
        self.moves = ReplicaMoves(fs, directories, clock, new_id)
        self._jitter = jitter
        self._open_files = open_files
        self._cache = SegmentCache(open_files.closed_segments)
        self.changes = LogChanges()
        """Counts the changes of all logs other than by append."""
        self._unflushed: dict[TopicPartition, list[LogDirectory]] = {}
        """Directories in which the partitions' folders were renamed, but maybe not durably."""
        self._held = contextlib.ExitStack()
        self.ownership = Ownership(directories.live, directories.guard, config.broker_id, new_id)

    def __iter__(self) -> Iterator[Log]:
        """Iterate over the logs that are online."""
        return iter(self._directories)

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """All partitions with a folder, including those that are offline."""
        return self._directories.partitions

    def find_topic_id(self, topic: str) -> UUID | None:
        """Return the id in the topic's folders, or beside them if none can be read; None if neither has one."""
        ids = (log.topic_id for log in self if log.partition.topic == topic)
        kept = (each.kept_configs.topics.get(topic) for each in self._directories.live())
        return next((found for found in (*ids, *(each.topic_id for each in kept if each)) if found), None)

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
        """The working directories that refuse appends until they have room."""
        return self._directories.full_dirs

    @property
    def greatest_producer_id(self) -> int:
        """The greatest producer id in the producer state of any log; -1 if there is none."""
        return max((producer_id for log in self for producer_id in log.producers), default=-1)

    def get(self, name: TopicPartition) -> Log | None:
        """Return the partition's log, or None if it is not here. Raises KafkaStorageError if it is offline."""
        return self._directories.get(name)

    def checkpoint_new_logs(self) -> None:
        """See `LogDirectories.checkpoint_new_logs`."""
        self._directories.checkpoint_new_logs()

    # Start

    def make_room(self) -> None:
        """Release the reserve of each directory whose disk is full: opening the cluster store may need the space."""
        for directory in self._directories.live():
            if self._fs.exists(directory.path):
                with self._directories.guard(directory):
                    directory.room.release_reserve_if_full()

    def load(self, topic_configs: Mapping[str, TopicConfig] | None = None, *, progress: Progress | None = None) -> None:
        """Open all logs in the directories.

        topic_configs: by topic; the logs of other topics get unlimited retention. None: the broker's defaults for all.
        Raises ConfigError if another broker uses a directory, and KafkaStorageError if no directory works.
        """
        found: list[tuple[LogDirectory, TopicPartition]] = []
        try:
            for directory in self._directories.all:
                with self._directories.guard(directory):
                    directory.acquire(self._held)
                    found += [(directory, name) for name in directory.begin()]
            self._directories.check_live()
            self._open_all(self._drop_doubled(self.moves.resume(found)), topic_configs, progress)
            self._directories.check_live()
        except BaseException:
            self._held.close()
            raise
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                self._directories.write_checkpoints(directory)
                directory.room.keep_reserve()
        self.moves.begin_again()

    def _drop_doubled(
        self, found: list[tuple[LogDirectory, TopicPartition]]
    ) -> list[tuple[LogDirectory, TopicPartition]]:
        """Return `found` without the partitions that lie in several directories, and take those offline."""
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
        """Raise PolicyViolation if the limit of open files does not allow that many more partitions."""
        if len(self._directories) + partitions > self._open_files.logs:
            raise PolicyViolation(f"{partitions} partitions more: {self._open_files.why}")

    def _open(self, directory: LogDirectory, name: TopicPartition, config: TopicConfig) -> None:
        """Open a log with the values of the directory's checkpoints. Raises OSError."""
        opened: list[Log] = []

        def open_log() -> None:
            opened.append(
                self._open_log(
                    directory,
                    name,
                    config,
                    clean=directory.was_clean,
                    recovery_point=directory.recovery_point_of(name),
                    log_start_offset=directory.log_start_of(name),
                    compacted_to=directory.compacted_to(name),
                )
            )

        try:
            directory.room.write("what a start writes: make room, and restart the broker", open_log)
        except (CorruptRecord, KafkaStorageError) as error:
            self._directories.set_aside(name, [directory], str(error))
        else:
            self._directories.add(directory, opened[0])

    def _open_log(
        self,
        directory: LogDirectory,
        name: TopicPartition,
        config: TopicConfig,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        compacted_to: int | None = None,
    ) -> Log:
        """Open a log with the manager's services. Raises OSError or CorruptRecord."""
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
            on_stop=partial(self._directories.stop_log, name),
            write_checkpoints=partial(self._directories.write_promises_of, name),
            jitter=self._jitter,
            room=directory.room,
            changes=self.changes,
        )

    # Partitions

    def needs_restart(self, name: TopicPartition) -> bool:
        """Return whether a partition that could not be opened or deleted stays so until the broker restarts."""
        return bool(self.failed_dirs) or self._directories.is_offline(name)

    def create(
        self, name: TopicPartition, config: TopicConfig, *, topic_id: UUID | None = None, is_new: bool = True
    ) -> Log:
        """Return the partition's log; if there is none, create one in the directory with the fewest partitions.

        topic_id: stored for the log if it has none. A log of another topic with the same name goes offline. is_new:
        False if the partition has existed before. It may then lie in a failed directory, so no new log is created
        while a directory has failed.

        Raises KafkaStorageError, also if the partition is offline or no directory works.
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
        with (
            self._directories.guard(directory, reraise=True),
            directory.room.retriable_write(f"another log, of {name}"),
        ):
            made = self._open_log(directory, name, config)
        self._directories.add(directory, made)
        self._directories.note_new_log(directory)
        return self.get(name) or made

    def delete(self, name: TopicPartition) -> None:
        """Delete one partition as `delete_all` does. Raises KafkaStorageError."""
        for error in self.delete_all([name]).values():
            raise error

    def delete_all(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        """Delete partitions; their folders are removed after file.delete.delay.ms. Missing ones are no error.

        A partition that lies in two directories is deleted from both. Returns the errors of the partitions that were
        not deleted; an offline one stays offline. While a directory has failed, a missing partition is an error: it
        may lie there.
        """
        return self._rename_folders(names, DELETE_FOLDER)

    def set_stray(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        """Rename the folders of partitions that do not belong to this broker, as Apache Kafka does, and keep the files.

        Returns the errors as `delete_all` does.
        """
        return self._rename_folders(names, STRAY_FOLDER)

    def _rename_folders(self, names: Iterable[TopicPartition], mark: str) -> dict[TopicPartition, KafkaStorageError]:
        errors: dict[TopicPartition, KafkaStorageError] = {}
        touched: dict[LogDirectory, list[TopicPartition]] = {}
        names = tuple(names)
        self.moves.cancel(names)
        for name in names:
            try:
                for directory in dict.fromkeys((*self._rename(name, mark), *self._unflushed.pop(name, ()))):
                    touched.setdefault(directory, []).append(name)
            except KafkaStorageError as error:
                errors[name] = error
        for directory, deleted in touched.items():
            try:
                with self._directories.guard(directory, reraise=True):
                    self._fs.flush_dir(directory.path)
                    self._directories.write_checkpoints(
                        directory
                    )  # a new partition of the same name must not inherit the old offsets
            except KafkaStorageError as error:
                errors |= dict.fromkeys(deleted, error)
                if directory.failure:  # after a power cut the deleted folders may be back
                    self._directories.set_offline(deleted, str(error))
                for name in deleted:
                    self._unflushed.setdefault(name, []).append(directory)
        return errors

    def _rename(self, name: TopicPartition, mark: str) -> list[LogDirectory]:
        """Rename a partition's folders and return their directories. Raises KafkaStorageError, changing nothing."""
        log = self._directories.find(name)
        due_ms = self._clock.monotonic_ms() + (log.config if log else self._config.topic_defaults).file_delete_delay_ms

        def renamed(directory: LogDirectory, folder: str) -> None:
            if mark == DELETE_FOLDER:
                directory.expire(folder, due_ms)

        if log:
            homes = [self._directories.directory_of(log)]
            renamed(homes[0], log.rename_for_delete(mark))
        else:
            homes = self._directories.homes_of_unopened(name)
            if self.failed_dirs and (not homes or any(directory.failure for directory in homes)):
                raise KafkaStorageError(f"{name} may lie in a failed directory: {dict(self.failed_dirs)}")
            for directory in homes:
                with self._directories.guard(directory, reraise=True):
                    renamed(directory, directory.discard(name, mark))
        self._directories.forget(name, was_found=bool(homes))
        return homes

    def configure(self, config: BrokerConfig) -> None:
        """Apply a new configuration of the broker. `update_configs` applies it to the logs."""
        self._config = config
        self.tasks.configure(config)

    def update_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Apply new configurations to the logs of these topics."""
        for log in self:
            if config := configs.get(log.partition.topic):
                log.configure(config)

    def keep_topics(
        self, topics: Mapping[str, TopicCopy], seen_change: int, known: Mapping[str, UUID] | None = None
    ) -> None:
        """Store copies of these topics in the log directories; later, where there is no room or file descriptor now.

        seen_change: the number of the cluster store's newest change. known: the ids of all topics of the cluster;
        copies of others are dropped, unless they have folders here. None: all copies stay.
        """
        ids = None if known is None else {*known.items(), *((log.partition.topic, log.topic_id) for log in self)}
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory, reraise=True):
                directory.keep_topics(topics, seen_change, ids)

    def keep_brokers(self, brokers: Mapping[str, Overrides]) -> None:
        """Store copies of the keys that were set at run time for all brokers and for this broker, by node."""
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory, reraise=True):
                directory.keep_brokers(brokers)

    @property
    def kept_brokers(self) -> Mapping[str, Overrides]:
        """The copies of the keys that were set for brokers; empty if there are none."""
        return next((found for each in self._directories.live() if (found := each.kept_configs.brokers)), {})

    @property
    def kept_topics(self) -> Mapping[str, TopicCopy]:
        """The copies of topics; if several directories have a copy of one topic, the one with more partitions."""
        found: dict[str, TopicCopy] = {}
        for directory in self._directories.live():
            for name, kept in directory.kept_configs.topics.items():
                if name not in found or len(kept.partitions) > len(found[name].partitions):
                    found[name] = kept
        return found

    def find_kept_config(self, topic: str, topic_id: UUID | None) -> Overrides | None:
        """Return the last stored copy of the topic's configuration; None if there is none for that topic id."""
        return next((kept.overrides for _, kept in self._copies_of(topic, topic_id)), None)

    def leapt_to(self, topic: str, topic_id: UUID | None) -> int:
        """Return the highest leader epoch that the topic's partitions have leapt to; -1 if they never have."""
        return max((kept.leader_epoch for _, kept in self._copies_of(topic, topic_id)), default=-1)

    def note_leap(self, topic: str, topic_id: UUID | None, leader_epoch: int) -> None:
        """Store that the topic's leader epochs leap up to `leader_epoch`, in all directories with a copy of it."""
        for directory, _ in self._copies_of(topic, topic_id):
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                directory.note_leap(topic, leader_epoch)

    def _copies_of(self, topic: str, topic_id: UUID | None) -> list[tuple[LogDirectory, TopicCopy]]:
        found = [(each, each.kept_configs.topics.get(topic)) for each in self._directories.live()]
        return [(each, kept) for each, kept in found if kept and kept.topic_id == topic_id]

    def note_change(self, seen_change: int, store_id: str) -> None:
        """Store the cluster store's id and the number of its newest change, even if it is lower than before."""
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                directory.note_change(seen_change, store_id)

    @property
    def store_id(self) -> str:
        """The id of the cluster store, as last stored in the directories; empty if none has one."""
        ids = (directory.kept_configs.store_id for directory in self._directories.live())
        return next((store_id for store_id in ids if store_id), "")

    @property
    def seen_change(self) -> int:
        """The number of the newest change of a cluster store that any directory has stored."""
        return max((directory.kept_configs.seen_change for directory in self._directories.live()), default=0)

    # Stop

    def close(self) -> None:
        """Close all logs and directories, whatever fails.

        A directory is marked as cleanly stopped if all its logs could be closed and its checkpoints written.
        """
        self.moves.stop()
        logs = list(self)
        closed = self.in_threads(self._close_log, logs)
        failed = {posixpath.dirname(log.folder) for log, is_closed in zip(logs, closed, strict=True) if not is_closed}
        for directory in self._directories.live():
            try:
                with self._directories.guard(directory, reraise=True):
                    self._directories.write_checkpoints(directory)
                    directory.write_configs()
                    if directory.path not in failed:
                        directory.end()
            except KafkaStorageError as error:
                logger.error("the next start recovers the logs: %s", error)
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
        """Return the results of `work` for each item, computed in several threads: most of the time is disk waits."""
        threads = self._config.num_recovery_threads_per_data_dir
        if threads == 1 or len(items) < 2:
            return [work(each) for each in items]
        with ThreadPoolExecutor(threads, "logs") as pool:
            return list(pool.map(work, items))


def set_deleted_aside(logs: LogManager, names: Collection[TopicPartition], why: str) -> None:
    """Rename the folders of partitions whose topics were deleted to -stray, and log it with `why`."""
    logger.warning(
        "topics were deleted %s: the folders of %s are renamed to -stray and not served; "
        "remove them if nobody wants their records", why, ", ".join(map(str, sorted(names))),
    )  # fmt: skip
    for name, error in logs.set_stray(names).items():
        logger.error("%s keeps its folder: %s", name, error)
