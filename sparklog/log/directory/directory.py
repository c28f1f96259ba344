"""One log directory: its owner, partitions, checkpoints and state.

<log dir>/.lock                               held while a broker uses the directory
<log dir>/.kafka_cleanshutdown                exists after a clean stop, until the next start
<log dir>/meta.properties                     broker and cluster
<log dir>/*-offset-checkpoint                 see checkpoints.py
<log dir>/topic-config-checkpoint             see topic_configs.py
<log dir>/.reserve                            1 MiB for checkpoints and starts on a full disk, see free_space.py
<log dir>/<topic>-<n>/                        a partition
<log dir>/<topic>-<n>.<unique>-future/        a copy of a partition that moves here from another log directory
<log dir>/<topic>-<n>.<unique>-delete/        a deleted partition; removed after file.delete.delay.ms or a restart
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from msgspec import structs

from sparklog.base.errors import ConfigError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import (
    COMPACTED,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    CleanShutdownMarker,
    CorruptCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
)
from sparklog.log.directory.free_space import FreeSpace
from sparklog.log.directory.topic_configs import Overrides, TopicConfigCheckpoint, TopicCopies, TopicCopy
from sparklog.log.files import DELETE_FOLDER, FUTURE_FOLDER, marked_folder_name
from sparklog.log.log import Log

LOCK = ".lock"
logger = logging.getLogger(__name__)
Content = TypeVar("Content")


class LogDirectory:
    """A directory of logs. Thread-safe."""

    def __init__(self, fs: Fs, path: str, min_free_bytes: int = 0) -> None:
        self.path = path
        self.room = FreeSpace(fs, path, min_free_bytes)
        self.failure = ""
        """The reason why the directory is no longer used; empty while it works."""
        self.was_clean = False
        self._fs = fs
        self._writing = threading.Lock()
        self._recovery_points = OffsetCheckpoint(fs, f"{path}/{RECOVERY_POINTS}")
        self._log_starts = OffsetCheckpoint(fs, f"{path}/{LOG_STARTS}")
        self._marker = CleanShutdownMarker(fs, path)
        self._known_recovery_points: dict[TopicPartition, int] = {}
        self._known_log_starts: dict[TopicPartition, int] = {}
        self._cleaned = OffsetCheckpoint(fs, f"{path}/{COMPACTED}")
        self._known_cleaned: dict[TopicPartition, int] | None = None
        """None: the checkpoint is missing or unreadable, so any partition may have been compacted."""
        self._configs = TopicConfigCheckpoint(fs, path)
        self.kept_configs = self._written_configs = TopicCopies()
        """Copies of the configurations of the topics with folders here."""
        self._damaged: set[TopicPartition] = set()
        self.futures: list[str] = []
        """The names of the folders with copies of replicas that were moving here before the start."""
        self.deleted: list[str] = []
        """The names of the folders of deleted partitions that were here at the start."""
        self._expiring: deque[tuple[int, str]] = deque()

    def fail(self, error: OSError) -> None:
        """Record why the directory is no longer used."""
        self.failure = str(error)

    def acquire(self, held: contextlib.ExitStack) -> None:
        """Create the directory if it is missing, and lock it until `held` is closed.

        Raises ConfigError if another broker uses it or if it is a folder of log directories, or OSError.
        """
        self._make()
        self._check_is_one()
        try:
            held.enter_context(self._fs.lock(f"{self.path}/{LOCK}"))
        except BlockingIOError:
            raise ConfigError(f"log directory {self.path} is used by another broker") from None

    def _check_is_one(self) -> None:
        """Refuse the folder made by `sparklog up --brokers`: its log directories broker-1 … look like partitions."""
        for name in self._fs.list(self.path):
            if self._fs.exists(f"{self.path}/{name}/{META_PROPERTIES}"):
                raise ConfigError(
                    f"{self.path} is no log directory, but a folder of such: {name} in it is a broker's; "
                    "sparklog up --brokers starts those"
                )

    def _make(self) -> None:
        """Create the directory and its missing parents durably."""
        missing = []
        path = self.path
        while path and not self._fs.exists(path):
            missing.append(path)
            path = posixpath.dirname(path)
        self._fs.make_dir(self.path)
        for made in reversed(missing):
            self._fs.flush_dir(posixpath.dirname(made) or ".")

    def begin(self) -> list[TopicPartition]:
        """Read the checkpoints and return the partitions that have folders here. Raises OSError."""
        self.was_clean = self._marker.remove()
        self._known_recovery_points = _read_or_do_without(self._recovery_points.read, {})
        self._known_log_starts = _read_or_do_without(self._log_starts.read, {})
        self._known_cleaned = _read_or_do_without(self._cleaned.read, None) if self._cleaned.has_content() else None
        self.kept_configs = self._written_configs = _read_or_do_without(self._configs.read, TopicCopies())
        found = []
        for name in self._fs.list(self.path):
            if name.endswith(DELETE_FOLDER):
                self.deleted.append(name)
                self.expire(f"{self.path}/{name}", 0)
                continue
            if name.endswith(FUTURE_FOLDER):
                self.futures.append(name)
                continue
            with contextlib.suppress(ValueError):
                found.append(TopicPartition.parse(name))
        return found

    def folder_of(self, name: TopicPartition) -> str:
        """Return the path of the partition's folder."""
        return f"{self.path}/{name}"

    def recovery_point_of(self, name: TopicPartition) -> int:
        """Return the checkpointed recovery point; 0 if there is none."""
        return self._known_recovery_points.get(name, 0)

    def log_start_of(self, name: TopicPartition) -> int | None:
        """Return the checkpointed log start offset; None: the log begins with its first segment."""
        return self._known_log_starts.get(name)

    def compacted_to(self, name: TopicPartition) -> int | None:
        """Return the offset above which gaps do not come from compaction; None for a partition without checkpoints."""
        is_known = self._known_cleaned is not None and name in self._known_recovery_points
        return (self._known_cleaned or {}).get(name, 0) if is_known else None

    def set_aside(self, name: TopicPartition, log: Log | None = None) -> None:
        """Keep the values for the checkpoints of a partition whose log cannot be used.

        log: as it was until now; None: keep the values of the last start.
        """
        with self._writing:
            if log:
                self._known_recovery_points[name] = log.recovery_point
                self._known_log_starts[name] = log.promised_start_offset
            self._damaged.add(name)

    def is_damaged(self, name: TopicPartition) -> bool:
        """Return whether the partition has been set aside."""
        return name in self._damaged

    def has_folder(self, name: TopicPartition) -> bool:
        """Return whether the directory works and the partition has a folder here."""
        return not self.failure and self._fs.exists(self.folder_of(name))

    def discard(self, name: TopicPartition, mark: str) -> str:
        """Rename the folder of a partition that is not open, and return its new path. Raises OSError.

        The caller must flush the names in the directory.
        """
        folder = f"{self.path}/{marked_folder_name(str(name), uuid.uuid4().hex, mark)}"
        self._fs.rename(self.folder_of(name), folder)
        self._damaged.discard(name)
        return folder

    def write_recovery_points(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Write the recovery points of `logs`, the logs of this directory; called once this thread has the lock.

        Raises OSError, or KafkaStorageError if there is no room.
        """
        with self._writing:
            kept = {name: self._known_recovery_points.get(name, 0) for name in self._damaged}
            self.room.write(
                RECOVERY_POINTS,
                lambda: self._recovery_points.write(kept | {log.partition: log.recovery_point for log in logs()}),
            )

    def write_log_starts(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Write the log start offsets; otherwise like `write_recovery_points`.

        Kafka leaves out a log that begins with its first segment. But a crash may bring back a segment before it, or
        take the first one away, and recovery must see that.
        """
        with self._writing:
            kept = {name: offset for name, offset in self._known_log_starts.items() if name in self._damaged}
            self.room.write(
                LOG_STARTS,
                lambda: self._log_starts.write(kept | {log.partition: log.promised_start_offset for log in logs()}),
            )

    def write_cleaned_offsets(self, logs: Callable[[], Iterable[Log]]) -> None:
        """Write the compacted offsets if they have changed; otherwise like `write_recovery_points`."""
        with self._writing:
            known = self._known_cleaned or {}
            kept = {name: offset for name, offset in known.items() if name in self._damaged}
            cleaned = kept | {log.partition: offset for log in logs() if (offset := log.compacted_to)}
            if cleaned != self._known_cleaned:
                self.room.write(COMPACTED, lambda: self._cleaned.write(cleaned))
                self._known_cleaned = cleaned

    def keep_topics(
        self, topics: Mapping[str, TopicCopy], seen_change: int, ids: Collection[tuple[str, UUID | None]] | None = None
    ) -> None:
        """Store copies of topics.

        topics: new and changed topics. ids: the names and ids of all known topics; copies of other topics are dropped,
        unless one of their partitions is set aside. None: all copies stay. Raises OSError, or KafkaStorageError if
        there is no room; a later `write_configs` then writes the copies.
        """
        with self._writing:
            before = self.kept_configs
            kept = dict(before.topics)
            if ids is not None:
                aside = {name.topic for name in self._damaged}
                kept = {name: copy for name, copy in kept.items() if name in aside or (name, copy.topic_id) in ids}
            kept |= {name: topic.learn(before.topics.get(name), seen_change) for name, topic in topics.items()}
            if kept != before.topics:
                seen = max(seen_change, before.seen_change)
                self.kept_configs = structs.replace(before, topics=kept, seen_change=seen)
        self.write_configs()

    def keep_brokers(self, brokers: Mapping[str, Overrides]) -> None:
        """Store copies of the broker keys that were set at run time. Raises as `keep_topics` does."""
        with self._writing:
            if brokers != self.kept_configs.brokers:
                self.kept_configs = structs.replace(self.kept_configs, brokers=brokers)
        self.write_configs()

    def note_leap(self, topic: str, leader_epoch: int) -> None:
        """Store that the topic's leader epochs leap up to `leader_epoch`. Raises as `keep_topics` does."""
        with self._writing:
            before = self.kept_configs
            leapt = structs.replace(before.topics[topic], leader_epoch=leader_epoch)
            self.kept_configs = structs.replace(before, topics={**before.topics, topic: leapt})
        self.write_configs()

    def note_change(self, seen_change: int, store_id: str) -> None:
        """Store the cluster store's id and the number of its newest change. Raises as `keep_topics` does."""
        with self._writing:
            before = self.kept_configs
            if (seen_change, store_id) == (before.seen_change, before.store_id):
                return
            topics = before.topics
            if before.store_id not in ("", store_id):  # another store numbers its changes from the beginning
                topics = {name: structs.replace(copy, seen_change=0) for name, copy in topics.items()}
            self.kept_configs = TopicCopies(topics, seen_change, store_id, before.brokers)
        self.write_configs()

    def write_configs(self) -> None:
        """Write the copies of configurations if they changed. Raises OSError, or KafkaStorageError without room."""
        with self._writing:
            if (kept := self.kept_configs) is not self._written_configs:
                with self.room.retriable_write("topics' configurations"):
                    self._configs.write(kept)
                self._written_configs = kept

    def adopt(self, future: str, name: TopicPartition) -> None:
        """Make the copy in the folder `future` the partition's folder; durable on return. Raises OSError."""
        self._fs.rename(f"{self.path}/{future}", self.folder_of(name))
        self._fs.flush_dir(self.path)

    def expire(self, folder: str, due_ms: int) -> None:
        """Schedule the removal of a deleted partition's folder. due_ms: of the monotonic clock."""
        self._expiring.append((due_ms, folder))

    def remove_expired(self, now_ms: int) -> int:
        """Remove the folders that are due and return how many. Raises OSError."""
        count = 0
        while self._expiring and self._expiring[0][0] <= now_ms:
            self._fs.remove_dir(self._expiring[0][1])
            self._expiring.popleft()
            count += 1
        return count

    def end(self) -> None:
        """Mark a clean stop after all is closed and written, unless a partition is set aside. Raises OSError."""
        if not self._damaged:
            self._marker.write()

    def read_meta(self) -> MetaProperties | None:
        """Return `meta.properties`; None if it is missing. Raises CorruptCheckpoint or OSError."""
        return MetaProperties.read(self._fs, self.path)

    def write_meta(self, meta: MetaProperties) -> None:
        """Write `meta.properties`. Raises OSError."""
        meta.write(self._fs, self.path)


def _read_or_do_without(read: Callable[[], Content], nothing: Content) -> Content:
    try:
        return read()
    except CorruptCheckpoint as error:
        logger.warning("%s; doing without it", error)
        return nothing
