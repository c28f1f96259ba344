"""Checkpoints: small text files of a log directory or a partition's folder, in Kafka's formats.

    recovery-point-offset-checkpoint     in a log directory: the offset up to which each partition is flushed
    log-start-offset-checkpoint          each partition's log start offset, if not 0
    replication-offset-checkpoint        each partition's high watermark
    cleaner-offset-checkpoint            the offset up to which each partition has been compacted
        0                                version
        2                                number of lines that follow
        orders 0 1500                    topic, partition, offset
        orders 1 0

    leader-epoch-checkpoint              in a partition's folder: epoch and its first offset
        0
        1
        7 1200

    partition.metadata                   in a partition's folder: the topic's id; no line break at the end
        version: 0
        topic_id: CeWNTpoLSru0hj3_5YiFeQ

    meta.properties                      in a log directory: its owner (Java properties)
    .kafka_cleanshutdown                 in a log directory: nothing needs recovery

A checkpoint is replaced as a whole: written as `.tmp`, flushed, renamed, and the folder flushed. A crash leaves the old
file or the new one. A file that cannot be parsed raises CorruptCheckpoint; the caller decides whether to continue
without it.
"""

from __future__ import annotations

import base64
import json
import posixpath
import threading
import uuid
from collections.abc import Iterable, Mapping

from msgspec import Struct

from sparklog.base.errors import SparklogError
from sparklog.base.fs import Fs, ReadFs
from sparklog.base.ids import TopicPartition, decode_id, encode_id
from sparklog.log.epochs import EpochStart, LeaderEpochs
from sparklog.log.files import LEADER_EPOCHS, PARTITION_METADATA

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
COMPACTED = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = 0
_TEMPORARY = ".tmp"


class CorruptCheckpoint(SparklogError):
    """A checkpoint file cannot be parsed."""


def read_file(fs: ReadFs, path: str) -> bytes:
    """Return the content of a small file. Raises OSError."""
    file = fs.open_read(path)
    try:
        return file.read_at(0, file.size)
    finally:
        file.close()


def replace_file(fs: Fs, path: str, content: bytes) -> None:
    """Replace the file at `path` atomically and durably with `content`. Raises OSError."""
    file = fs.open(path + _TEMPORARY, create=True)
    try:
        file.truncate(0)
        file.append(content)
        file.flush()
    finally:
        file.close()
    fs.rename(path + _TEMPORARY, path)
    fs.flush_dir(posixpath.dirname(path))


class OffsetCheckpoint:
    """A file with one offset for each partition. Thread-safe."""

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        self._lock = threading.Lock()

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; empty if there is no file. Raises CorruptCheckpoint or OSError."""
        return read_offsets(self._fs, self._path)

    def has_content(self) -> bool:
        """Return whether the file is there and not empty. Raises OSError."""
        return _has_content(self._fs, self._path)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file. Raises OSError."""
        lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
        with self._lock:
            replace_file(self._fs, self._path, _format(lines))


def read_offsets(fs: ReadFs, path: str) -> dict[TopicPartition, int]:
    """Return the content of an `OffsetCheckpoint`, from any file system; empty if there is no file.

    Raises CorruptCheckpoint or OSError.
    """
    rows = _read_rows(fs, path, fields=3)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


class DirectoryCheckpoints:
    """The checkpoints of a log directory, for readers of many partitions: each file is read once, at its first use."""

    def __init__(self, fs: ReadFs, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._offsets: dict[str, dict[TopicPartition, int] | None] = {}
        self._is_clean: bool | None = None

    def offset(self, name: str, partition: TopicPartition) -> int | None:
        """Return the partition's offset in the file `name`, 0 if it is not there; None if there is no such file.

        Raises CorruptCheckpoint or OSError.
        """
        if name not in self._offsets:
            path = f"{self._directory}/{name}"
            self._offsets[name] = read_offsets(self._fs, path) if self._fs.exists(path) else None
        found = self._offsets[name]
        return None if found is None else found.get(partition, 0)

    @property
    def is_clean(self) -> bool:
        """Whether the directory has the marker of a clean shutdown. Raises OSError."""
        if self._is_clean is None:
            self._is_clean = self._fs.exists(f"{self._directory}/{CLEAN_SHUTDOWN}")
        return self._is_clean


class LeaderEpochCheckpoint:
    """The leader epochs of one partition."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self._path = f"{folder}/{LEADER_EPOCHS}"

    def read(self) -> LeaderEpochs:
        """Return the epochs; empty if there is no file. Raises CorruptCheckpoint or OSError."""
        rows = _read_rows(self._fs, self._path, fields=2)
        return LeaderEpochs(tuple(EpochStart(int(epoch), int(offset)) for epoch, offset in rows))

    def has_content(self) -> bool:
        """Return whether the file is there and not empty: it is written before the recovery point rises."""
        return _has_content(self._fs, self._path)

    def write(self, epochs: LeaderEpochs) -> None:
        """Replace the file. Raises OSError."""
        replace_file(self._fs, self._path, _format(f"{epoch} {offset}" for epoch, offset in epochs.entries))


class PartitionMetadataFile:
    """The file with the id of the topic that a partition's folder belongs to (KIP-516). It never changes."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self._folder = folder

    def read(self) -> uuid.UUID | None:
        """Return the topic id; None if there is no file. Raises CorruptCheckpoint or OSError."""
        return read_topic_id(self._fs, self._folder)

    def write(self, topic_id: uuid.UUID) -> None:
        """Write the file. Raises OSError."""
        content = f"version: 0\ntopic_id: {encode_id(topic_id)}".encode()
        replace_file(self._fs, f"{self._folder}/{PARTITION_METADATA}", content)


def read_topic_id(fs: ReadFs, folder: str) -> uuid.UUID | None:
    """Return the topic id of a `PartitionMetadataFile`, from any file system; None if there is no file.

    Raises CorruptCheckpoint or OSError.
    """
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        content = read_file(fs, path)
    except FileNotFoundError:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in content.decode("ascii").splitlines())
        if fields["version"] != "0":
            raise CorruptCheckpoint(f"{path}: version {fields['version']}, only 0 is known")
        topic_id = decode_id(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{path}: {error}") from None
    if topic_id.int == 0:
        raise CorruptCheckpoint(f"{path}: no topic has the id 0")
    return topic_id


class MetaProperties(Struct, frozen=True, kw_only=True):
    """The owner and id of a log directory (org.apache.kafka.metadata.properties.MetaProperties, version 1)."""

    broker_id: int
    cluster_id: str
    directory_id: str

    @staticmethod
    def new_directory_id() -> str:
        """Return a random id in Kafka's form: a UUID in URL-safe base64 without padding."""
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    @classmethod
    def read(cls, fs: ReadFs, folder: str) -> MetaProperties | None:
        """Return the file's content; None if there is no file.

        Version 0 calls the broker's id `broker.id`, version 1 `node.id`. Raises CorruptCheckpoint or OSError.
        """
        path = f"{folder}/{META_PROPERTIES}"
        if not fs.exists(path):
            return None
        try:
            lines = read_file(fs, path).decode().splitlines()
            pairs = dict(line.strip().split("=", 1) for line in lines if line.strip() and not line.startswith("#"))
            broker_id = pairs.get("node.id", pairs.get("broker.id"))
            if broker_id is None:
                raise CorruptCheckpoint(f"{path}: it names no broker (node.id)")
            return cls(
                broker_id=int(broker_id),
                cluster_id=pairs.get("cluster.id", "").replace("\\", ""),
                directory_id=pairs.get("directory.id", "").replace("\\", ""),
            )
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: {error}") from None

    def write(self, fs: Fs, folder: str) -> None:
        """Replace the file. Raises OSError."""
        lines = [
            "#",
            f"node.id={self.broker_id}",
            f"directory.id={self.directory_id}",
            "version=1",
            f"cluster.id={self.cluster_id}",
        ]
        replace_file(fs, f"{folder}/{META_PROPERTIES}", ("\n".join(lines) + "\n").encode())


class CleanShutdownMarker:
    """A file whose existence means that every log in the directory was closed, so nothing needs recovery."""

    def __init__(self, fs: Fs, folder: str) -> None:
        self._fs = fs
        self._folder = folder
        self._path = f"{folder}/{CLEAN_SHUTDOWN}"

    def remove(self) -> bool:
        """Remove the marker durably, since it does not cover later writes; return whether it existed."""
        if not self._fs.exists(self._path):
            return False
        self._fs.remove(self._path)
        self._fs.flush_dir(self._folder)
        return True

    def write(self) -> None:
        """Write the marker. Raises OSError."""
        replace_file(self._fs, self._path, json.dumps({"version": 0, "brokerEpoch": -1}).encode())


def _format(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "".join(f"{row}\n" for row in (str(_VERSION), str(len(rows)), *rows)).encode()


def _has_content(fs: ReadFs, path: str) -> bool:
    return fs.exists(path) and bool(read_file(fs, path))


def _read_rows(fs: ReadFs, path: str, *, fields: int) -> list[list[str]]:
    if not fs.exists(path):
        return []
    try:
        lines = read_file(fs, path).decode("ascii").splitlines()
        if not lines:
            return []  # Kafka creates the file empty before its first write
        if int(lines[0]) != _VERSION:
            raise CorruptCheckpoint(f"{path}: version {lines[0]}, only {_VERSION} is known")
        rows = [line.split(" ") for line in lines[2:]]
        if len(rows) != int(lines[1]) or any(len(row) != fields for row in rows):
            raise CorruptCheckpoint(f"{path}: {lines[1]} lines of {fields} fields were to follow")
        for row in rows:
            [int(number) for number in row[fields - 2 :]]
    except (ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"{path}: {error}") from None
    return rows
