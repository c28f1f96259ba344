"""The state of log directories without a broker: sparklog's or Apache Kafka's, in use or not.

Several directories belong to the brokers that their `meta.properties` name, all of one cluster; a directory without
that file counts as a broker of its own. The bytes of a directory are compared with its checkpoints:

    replication-offset-checkpoint    the high watermark; without the file, logs are compared up to their ends
    log-start-offset-checkpoint      where a log begins, if not with its first segment. A first segment above it shows
                                     that others are missing; Kafka's own file may be a minute old
    cleaner-offset-checkpoint        the cleaner may have made gaps below. It writes the file at its end, so above this
                                     offset, in a compacted log, only the last segment is sure to have no gaps
    recovery-point-offset-checkpoint a log that is not in the file has not been in a checkpoint yet: a cleaner may have
                                     made its gaps
    leader-epoch-checkpoint          leader epochs, complete up to the recovery point

Log directories do not say which partitions there should be. So a folder is an orphan only if its topic id differs from
that of the other replicas.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from sparklog.arrow.filesystems import open_folder
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import ConfigError, CorruptRecord, OffsetOutOfRange
from sparklog.base.fs import LocalFs, ReadFs
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition, encode_id
from sparklog.log.directory.checkpoints import (
    COMPACTED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    LeaderEpochCheckpoint,
    MetaProperties,
    read_offsets,
    read_topic_id,
)
from sparklog.log.files import CLEANED, LOG, SWAP, parse_name
from sparklog.log.reader import LogReader
from sparklog.spark.audit.segment_scan import MISSING_BATCH, UNREADABLE_FILE
from sparklog.spark.audit.tables import AuditedReplica, AuditedSegment, ClusterView

COMPACTED_TOPICS = INTERNAL_TOPICS - {"__cluster_history"}
Checkpoint = dict[TopicPartition, int]
"""The content of a checkpoint file: an offset for each partition."""


class FolderSource:
    """Log directories, of the topics that `is_wanted` selects."""

    def __init__(self, paths: Sequence[str], is_wanted: Callable[[str], bool] = lambda _: True) -> None:
        self._paths = [path.rstrip("/") or "/" for path in paths]
        self._is_wanted = is_wanted

    def view(self) -> ClusterView:
        """Return the current state.

        Raises ConfigError if a path is no log directory, if paths are of several clusters, or if two have the same
        partition of one broker.
        """
        replicas: list[AuditedReplica] = []
        folders, problems = [], []
        for path, broker in self._owners():
            directory = _Directory.open(path, broker)
            for partition in directory.partitions():
                if not self._is_wanted(partition.topic):
                    continue
                try:
                    replicas.append(directory.replica(partition))
                except FileNotFoundError:
                    continue  # deleted a moment ago
                folders.append((broker, *partition, replicas[-1].folder))
            problems += directory.problems
        _check_unique(replicas)
        brokers = sorted({replica.broker for replica in replicas})
        return ClusterView(brokers=brokers, replicas=replicas, folders=folders, problems=problems)

    def _owners(self) -> Iterator[tuple[str, int]]:
        """Yield each path with the id of its broker."""
        metas = [_meta(path) for path in self._paths]
        clusters = {meta.cluster_id for meta in metas if meta}
        if len(clusters) > 1:
            raise ConfigError(f"the paths are of several clusters: {', '.join(sorted(clusters))}")
        taken = {meta.broker_id for meta in metas if meta}
        unnamed = (number for number in range(MAX_LONG) if number not in taken)
        for path, meta in zip(self._paths, metas, strict=True):
            yield path, meta.broker_id if meta else next(unnamed)


def _meta(path: str) -> MetaProperties | None:
    fs, folder = open_folder(path)
    try:
        return MetaProperties.read(fs, folder)
    except CorruptCheckpoint as error:
        raise ConfigError(str(error)) from None


def _check_unique(replicas: Sequence[AuditedReplica]) -> None:
    seen: dict[tuple[int, TopicPartition], str] = {}
    for replica in replicas:
        other = seen.setdefault((replica.broker, replica.partition), replica.folder)
        if other != replica.folder:
            raise ConfigError(
                f"{other} and {replica.folder} are both of broker {replica.broker}: "
                "replicas are told apart by node.id in meta.properties"
            )


class _Directory:
    """One log directory, or the folder of a single partition."""

    def __init__(self, fs: ReadFs, path: str, location: str, broker: int, names: Sequence[str]) -> None:
        self.problems: list[tuple[Any, ...]] = []
        self._fs = fs
        self._path = path
        self._location = location
        self._broker = broker
        self._names = names
        self._is_partition = any((file := parse_name(name)) and file.suffix == LOG for name in names)
        self._root = str(PurePosixPath(path).parent) if self._is_partition else path
        self._high_watermarks: Checkpoint | None = None
        self._log_starts: Checkpoint = {}
        self._cleaned: Checkpoint = {}
        self._recovery_points: Checkpoint = {}

    @classmethod
    def open(cls, location: str, broker: int) -> _Directory:
        """List the folder at `location` and read its checkpoints. Raises ConfigError if there is no such folder."""
        fs, path = open_folder(location)
        try:
            names = fs.list(path)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(f"path {location}: there is no such folder") from None
        directory = cls(fs, path, location, broker, names)
        directory._read_checkpoints()
        return directory

    def _read_checkpoints(self) -> None:
        self._high_watermarks = self._checkpoint(HIGH_WATERMARKS)
        self._log_starts = self._checkpoint(LOG_STARTS) or {}
        self._cleaned = self._checkpoint(COMPACTED) or {}
        self._recovery_points = self._checkpoint(RECOVERY_POINTS) or {}

    def partitions(self) -> list[TopicPartition]:
        names = [self._location.rpartition("/")[2]] if self._is_partition else self._names
        found = []
        for name in names:
            try:
                found.append(TopicPartition.parse(name))
            except ValueError:
                continue  # a checkpoint, or a folder that is being deleted
        if not found and self._is_partition:
            raise ConfigError(f"path {self._location} holds segments, but its name is not <topic>-<n>")
        return found

    def replica(self, partition: TopicPartition) -> AuditedReplica:
        location = self._location if self._is_partition else f"{self._location}/{partition}"
        folder = self._path if self._is_partition else f"{self._path}/{partition}"
        segments, is_being_cleaned = _segments(self._fs, folder)
        start = self._log_starts.get(partition, segments[0].base_offset if segments else 0)
        if segments and start < (first := segments[0].base_offset):
            found = f"offsets {start} to {first - 1} are not there: the log begins at {start}, its first segment later"
            self.problems.append((self._broker, *partition, MISSING_BATCH, start, found))
        gaps_to = self._gaps_to(partition, segments, is_being_cleaned)
        return AuditedReplica(
            broker=self._broker,
            partition=partition,
            log_start_offset=start,
            high_watermark=self._high_watermark(partition, folder),
            log_end_offset=-1 if segments else start,
            gaps_to=gaps_to,
            compared_from=self._cleaned.get(partition, 0),
            topic_id=self._topic_id(partition, folder),
            epochs=self._epochs(partition, folder),
            known_to=self._recovery_points.get(partition, 0),
            folder=location,
            segments=segments,
        )

    def _gaps_to(self, partition: TopicPartition, segments: Sequence[AuditedSegment], is_being_cleaned: bool) -> int:
        if partition not in self._recovery_points:
            return MAX_LONG
        is_compacted = partition in self._cleaned or partition.topic in COMPACTED_TOPICS or is_being_cleaned
        never_closed = segments[-1].base_offset if segments else 0
        return max(self._cleaned.get(partition, 0), never_closed if is_compacted else 0)

    def _high_watermark(self, partition: TopicPartition, folder: str) -> int:
        if self._high_watermarks is not None:
            return self._high_watermarks.get(partition, 0)
        try:
            return LogReader(self._fs, folder).end_offset()
        except (OffsetOutOfRange, CorruptRecord, OSError):
            return 0

    def _epochs(self, partition: TopicPartition, folder: str) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((epoch, start) for epoch, start in _read_epochs(self._fs, folder))
        except (CorruptCheckpoint, OSError) as error:
            self.problems.append((self._broker, *partition, UNREADABLE_FILE, None, str(error)))
            return ()

    def _topic_id(self, partition: TopicPartition, folder: str) -> str:
        try:
            topic_id = read_topic_id(self._fs, folder)
        except (CorruptCheckpoint, OSError) as error:
            self.problems.append((self._broker, *partition, UNREADABLE_FILE, None, str(error)))
            return ""
        return encode_id(topic_id) if topic_id else ""

    def _checkpoint(self, name: str) -> Checkpoint | None:
        """Read a checkpoint; None if there is no such file, or it cannot be read, which is a problem."""
        path = f"{self._root}/{name}"
        if not self._fs.exists(path):
            return None
        try:
            return read_offsets(self._fs, path)
        except (CorruptCheckpoint, OSError) as error:
            self.problems.append((self._broker, None, None, UNREADABLE_FILE, None, str(error)))
            return None


def _read_epochs(fs: ReadFs, folder: str) -> tuple[tuple[int, int], ...]:
    return LeaderEpochCheckpoint(fs, folder).read().entries  # type: ignore[arg-type]  # it only reads


def _segments(fs: ReadFs, folder: str) -> tuple[tuple[AuditedSegment, ...], bool]:
    """Return the segments of a folder, and whether a cleaner is at work in it."""
    files = [file for name in fs.list(folder) if (file := parse_name(name))]
    bases = sorted(file.base_offset for file in files if file.suffix == LOG and not file.mark)
    found = []
    for base, following in pairwise([*bases, -1]):
        size, identity = _size_and_identity(fs, f"{folder}/{base:020d}{LOG}")
        found.append(AuditedSegment(base_offset=base, next_offset=following, size_bytes=size, identity=identity))
    return tuple(found), any(file.mark in (CLEANED, SWAP) for file in files)


def _size_and_identity(fs: ReadFs, path: str) -> tuple[int, str]:
    """Return a file's size, -1 if it is gone, and an identity that changes when the file is replaced."""
    try:
        if isinstance(fs, LocalFs):
            status = os.stat(path)
            return status.st_size, str(status.st_ino)
        file = fs.open_read(path)
        try:
            return file.size, str(file.size)
        finally:
            file.close()
    except OSError:
        return -1, ""
