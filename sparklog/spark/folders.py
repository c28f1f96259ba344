"""Topics from a log directory, without a broker. Sparklog or Apache Kafka may have written it.

``path`` names a log directory (every ``<topic>-<n>`` in it) or the folder of a single partition. A plain path is local;
a URI (``s3://``, ``hdfs://``, ``file://``) goes through `pyarrow.fs`. Records are read up to the high watermark that is
checkpointed in the log directory (``replication-offset-checkpoint``), or to the end of the log if there is none; with
read_committed, up to the first offset whose transaction was open there.

    ArrowFs            a file system of pyarrow.fs, for reads
    FolderLookup       where the topics in a log directory begin and end
    open_lookup        the lookup of a read: a folder's for the option `path`, else the broker's
    Owner              the broker that a log directory belongs to: hosts may have different ones at one path
    sees               whether this machine sees the folder that the driver saw
    describe_folders   partitions of a topic, described as a broker would describe them
"""

from __future__ import annotations

import errno
import os
import posixpath
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs as pafs

from sparklog.base.errors import ConfigError, KafkaError, OffsetOutOfRange
from sparklog.base.fs import LocalFs, ReadFs
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition, encode_id
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.directory.checkpoints import (
    COMPACTED,
    CorruptCheckpoint,
    DirectoryCheckpoints,
    MetaProperties,
    read_offsets,
    read_topic_id,
)
from sparklog.log.files import LOG, parse_name
from sparklog.log.reader import LogReader
from sparklog.log.transactions import TransactionWalk
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.spark.source.offsets import ArchiveName, Bounds, Lookup, OffsetRange, Offsets, check_there
from sparklog.spark.source.options import (
    AllTopics,
    Assign,
    IsolationLevel,
    ReadOptions,
    Selection,
    Subscribe,
    SubscribePattern,
)


class ArrowFile:
    """An open file. Implements ReadFile. An Arrow file has one read position, so reads are serialized by a lock."""

    __slots__ = ("_file", "_lock", "size")

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.size = size

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset`; fewer only at the end of the file. Raises OSError."""
        with self._lock:
            self._file.seek(min(offset, self.size))
            data: bytes = self._file.read(size)
            return data

    def close(self) -> None:
        self._file.close()


class ArrowFs:
    """A `pyarrow.fs.FileSystem`. Paths are the file system's own, without a scheme. Implements ReadFs."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    @classmethod
    def from_uri(cls, uri: str) -> tuple[ArrowFs, str]:
        """Return the file system that `uri` names (``s3://bucket/logs``, ``hdfs://host/logs``), and the path in it.

        Raises ConfigError if pyarrow does not support it.
        """
        try:
            filesystem, path = pafs.FileSystem.from_uri(uri)
        except (ValueError, OSError) as error:
            raise ConfigError(f"{uri}: {error}") from None
        return cls(filesystem), path

    def open_read(self, path: str) -> ArrowFile:
        """Return the file, open for reading. Raises FileNotFoundError, IsADirectoryError or OSError."""
        info = self._fs.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if info.type == pafs.FileType.Directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return ArrowFile(self._fs.open_input_file(path), info.size)

    def list(self, path: str) -> list[str]:
        """Return the names in the folder, sorted. Raises FileNotFoundError, NotADirectoryError or OSError."""
        return sorted(info.base_name for info in self._fs.get_file_info(pafs.FileSelector(path)))

    def exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type != pafs.FileType.NotFound)


def open_folder(location: str) -> tuple[ReadFs, str]:
    """Return the file system that holds `location`, and the path in it."""
    if not urlsplit(location).scheme:
        return LocalFs(), location
    return ArrowFs.from_uri(location)


def open_reader(location: str) -> LogReader:
    """Return a reader of the partition's folder at `location`."""
    return LogReader(*open_folder(location))


def log_directory(location: str) -> str:
    """Return the log directory of the partition whose folder is at `location`."""
    return posixpath.dirname(location.rstrip("/"))


def sees(folder: str, owner: Owner | None) -> bool:
    """Return whether this machine sees a partition's folder in the log directory whose owner the driver found."""
    parent = log_directory(folder)
    if owner is not None:
        return Owner.of(parent) == owner
    fs, path = open_folder(parent)
    return not isinstance(fs, LocalFs) or fs.exists(path or ".")


def not_seen(folder: str) -> ConfigError:
    """Return the error of a read that has no broker, on an executor for which `sees` is false."""
    parent = log_directory(folder)
    found = Owner.of(parent)
    seen = f"has that of broker {found.broker_id} of cluster {found.cluster_id} there" if found else "does not"
    return ConfigError(
        f"the driver sees the log directory {parent}, but the executor on {socket.gethostname()} {seen}. Driver and "
        "executors need the same one at this path (a shared file system, or an object store), or a broker to read from"
    )


class Readers:
    """Readers of many folders for one plan, which read the checkpoints and the owner of a log directory once."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, DirectoryCheckpoints] = {}
        self._owners: dict[str, Owner | None] = {}

    def open(self, location: str) -> LogReader:
        """Return a reader of the partition's folder at `location`."""
        fs, folder = open_folder(location)
        parent = log_directory(location)
        if parent not in self._checkpoints:
            self._checkpoints[parent] = DirectoryCheckpoints(fs, posixpath.dirname(folder.rstrip("/")))
        return LogReader(fs, folder, self._checkpoints[parent])

    def owner(self, location: str) -> Owner | None:
        """Return the owner of the log directory that has the partition's folder at `location`."""
        parent = log_directory(location)
        if parent not in self._owners:
            self._owners[parent] = Owner.of(parent)
        return self._owners[parent]


class Owner(NamedTuple):
    """The broker that a log directory belongs to, by its ``meta.properties``."""

    cluster_id: str
    broker_id: int

    @classmethod
    def of(cls, path: str) -> Owner | None:
        """Return the owner of the log directory at `path`, as this machine sees it.

        None if there is none, or the file cannot be read. Of a URI too: all machines see the same there.
        """
        if urlsplit(path).scheme:
            return None
        try:
            found = MetaProperties.read(LocalFs(), path)
        except (CorruptCheckpoint, OSError):
            return None
        return None if found is None else cls(found.cluster_id, found.broker_id)


def belongs_to(path: str, cluster_id: str, broker_id: int) -> bool:
    """Return whether the folder at `path`, as seen from this machine, is the log directory of that broker."""
    return Owner.of(path) == (cluster_id, broker_id)


class FolderLookup:
    """Lookup that answers from a log directory. Implements Lookup."""

    def __init__(self, folders: Mapping[TopicPartition, str], isolation_level: IsolationLevel) -> None:
        self._folders = folders
        self._is_committed_only = isolation_level is IsolationLevel.READ_COMMITTED
        self._walked: dict[TopicPartition, TransactionWalk] = {}
        """Transactions as of the last look, for the next one to go on from."""

    @classmethod
    def open(cls, path: str, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> FolderLookup:
        """Return a lookup of the partitions at `path`, which has the meaning of the option.

        Raises ConfigError if there are none.
        """
        return cls(_partition_folders(path.rstrip("/") or "/"), isolation_level)

    def topics(self, selection: Selection) -> list[str]:
        return sorted({partition.topic for partition in self._selected(selection)})

    def bounds(self, selection: Selection) -> dict[TopicPartition, Bounds]:
        readers = Readers()
        return {partition: self._bounds(partition, readers) for partition in self._selected(selection)}

    def offsets_for_times(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        readers = Readers()
        for partition, timestamp_ms in timestamps_ms.items():
            offset = readers.open(self._folders[partition]).offset_for_timestamp(timestamp_ms)
            end = self._bounds(partition, readers).end
            found[partition] = offset if offset is not None and offset < end else None
        return found

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return nothing: files know of no groups."""
        return {}

    def commit(self, offsets: Offsets) -> None:
        """Do nothing: files know of no groups."""

    def folder(self, partition: TopicPartition) -> str:
        """Return the location of the partition's folder."""
        return self._folders[partition]

    def segments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[SegmentDescription, ...]]:
        """Return nothing: all folders are visible."""
        return {}

    def aborted(self, whole: OffsetRange) -> AbortedRanges:
        if not self._is_committed_only:
            return NONE_ABORTED
        partition, offset_from, offset_to = whole
        if partition not in self._walked:
            self._bounds(partition, Readers())
        reader = open_reader(self._folders[partition])
        found = reader.aborted_transactions(offset_from, offset_to, self._walked[partition])
        return AbortedRanges(each[:3] for each in found)

    def archives(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchiveName]:
        """Return unknown locations: files do not name the archive."""
        return dict.fromkeys(partitions, ArchiveName("", ""))

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _bounds(self, partition: TopicPartition, readers: Readers) -> Bounds:
        reader = readers.open(self._folders[partition])
        try:
            start, end, high_watermark = reader.bounds()
        except OffsetOutOfRange:
            return Bounds(0, 0)  # no segment yet: the partition is being created
        committed = max(start, end if high_watermark is None else min(high_watermark, end))
        if not self._is_committed_only:
            return Bounds(start, committed)
        walked = reader.follow_transactions(committed, self._walked.get(partition))
        self._walked[partition] = walked
        unstable = walked.first_unstable_offset
        return Bounds(start, committed) if unstable is None else Bounds(start, committed, unstable)

    def _selected(self, selection: Selection) -> list[TopicPartition]:
        there = sorted(self._folders)
        match selection:
            case AllTopics():
                # a single folder may be of any topic; a whole directory is read without internal topics
                return there if len(there) == 1 else [each for each in there if each.topic not in INTERNAL_TOPICS]
            case SubscribePattern():
                return [each for each in there if each.topic not in INTERNAL_TOPICS and selection.matches(each.topic)]
            case Subscribe(names):
                check_there(set(names), {each.topic for each in there}, "in the log directory")
                return [each for each in there if each.topic in names]
            case Assign(partitions):
                check_there(partitions, set(there), "in the log directory")
                return sorted(partitions)


def open_lookup(options: ReadOptions) -> Lookup:
    """Return the lookup that the options ask for; the caller closes it."""
    if options.path is not None:
        return FolderLookup.open(options.path, options.isolation_level)
    from sparklog.spark.broker import BrokerLookup  # loads the gRPC client, which tasks that read files do not need

    assert options.broker is not None  # parse_read_options: a path or a broker
    return BrokerLookup(options.broker, options.read_mode, options.isolation_level)


def describe_folders(path: str, topic: str) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Return descriptions of the partitions of `topic` in the log directory at `path`.

    `path` may also be the folder of a single partition. The logs end at the checkpointed high watermark. Raises
    ConfigError and OSError.
    """
    lookup = FolderLookup.open(path)
    found: dict[TopicPartition, LogDescription | KafkaError] = {}
    for partition, bounds in lookup.bounds(Subscribe((topic,))).items():
        fs, folder = open_folder(lookup.folder(partition))
        try:
            topic_id = read_topic_id(fs, folder)
            cleaned = read_offsets(fs, f"{posixpath.dirname(folder)}/{COMPACTED}").get(partition, 0)
        except CorruptCheckpoint:
            topic_id, cleaned = None, bounds.high_watermark  # compaction may have removed anything
        found[partition] = LogDescription(
            partition=partition, topic_id=encode_id(topic_id) if topic_id else "", folder=lookup.folder(partition),
            log_start_offset=bounds.log_start, high_watermark=bounds.high_watermark,
            last_stable_offset=bounds.end, log_end_offset=bounds.high_watermark, cleaned_offset=cleaned,
        )  # fmt: skip
    return found


def _partition_folders(path: str) -> dict[TopicPartition, str]:
    """Return the folder of each partition. Raises ConfigError if `path` holds no partition."""
    fs, folder = open_folder(path)
    try:
        names = fs.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"path {path}: there is no such folder") from None
    if _holds_segments(names):
        return {_parse_folder(path): path}
    folders = {}
    for name in names:
        try:
            partition = TopicPartition.parse(name)
        except ValueError:
            continue  # a checkpoint, meta.properties, or a folder that is being deleted
        folders[partition] = f"{path}/{name}"
    if not folders:
        raise ConfigError(f"path {path} is neither a log directory nor a partition's folder: no <topic>-<n>, no .log")
    return folders


def _holds_segments(names: list[str]) -> bool:
    files = map(parse_name, names)
    return any(file is not None and file.suffix == LOG for file in files)


def _parse_folder(path: str) -> TopicPartition:
    name = path.rpartition("/")[2]
    try:
        return TopicPartition.parse(name)
    except ValueError:
        raise ConfigError(f"path {path} holds segments, but its name is not <topic>-<n>") from None
