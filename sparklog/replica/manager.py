"""The replicas of this broker: the shell that does what `Partition` decides on the logs of `LogManager`.

All methods run on the event loop, but for those that say they block. Appends and reads are a system call into the
page cache, cheaper than handing them to a thread; whatever waits for a disk is done in a thread by the caller.

High watermarks are written to `replication-offset-checkpoint` in each log directory, for readers of the files (Spark's
`path` mode) that have no broker to ask. A checkpoint is always behind what it describes, never ahead.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.base.errors import KafkaStorageError, UnknownTopicOrPartition
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.checkpoints import HIGH_WATERMARKS, OffsetCheckpoint
from sparklog.log.epochs import EpochEnd
from sparklog.log.log import Appended, Log, LogSlice
from sparklog.log.manager import LogManager
from sparklog.replica.partition import Partition

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Replica:
    """One partition and the log it is kept in."""

    partition: Partition
    log: Log
    config: TopicConfig

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """Where a leader epoch ends; the leader's own begins at the log's end where it has written nothing yet."""
        end_offset = self.log.log_end_offset
        return self.log.epochs.assign(self.partition.leader_epoch, end_offset).end_offset_for(epoch, end_offset)


class ReplicaManager:
    """Replicas by partition."""

    def __init__(self, fs: Fs, logs: LogManager, on_high_watermark: Callable[[TopicPartition], None]) -> None:
        self._fs = fs
        self._logs = logs
        self._on_high_watermark = on_high_watermark
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._checkpoints: dict[str, OffsetCheckpoint] = {}
        self._written: dict[str, Mapping[TopicPartition, int]] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The partitions that are here, those whose directory has failed too."""
        return (*self._replicas, *self._offline)

    def get(self, name: TopicPartition) -> Replica:
        """Raises UnknownTopicOrPartition, or KafkaStorageError where the partition's directory has failed."""
        replica = self._replicas.get(name)
        if replica is None:
            if why := self._offline.get(name):
                raise KafkaStorageError(f"{name} is offline: {why}")
            raise UnknownTopicOrPartition(f"{name.topic!r} has no partition {name.partition} here")
        return replica

    def find(self, name: TopicPartition) -> Replica | None:
        return self._replicas.get(name)

    def find_high_watermark(self, name: TopicPartition) -> int | None:
        replica = self._replicas.get(name)
        return replica.partition.high_watermark if replica else None

    def lead(self, name: TopicPartition, log: Log, *, leader_epoch: int, config: TopicConfig, broker_id: int) -> None:
        """Become the leader, and only replica, of a partition whose log is open."""
        partition = Partition(
            name,
            leader_epoch=leader_epoch,
            in_sync_replicas=(broker_id,),
            log_end_offset=log.log_end_offset,
        )
        self._replicas[name] = Replica(partition=partition, log=log, config=config)

    def drop(self, name: TopicPartition) -> None:
        """Forget a partition; who waits for it learns that it is gone."""
        self._offline.pop(name, None)
        self._replicas.pop(name, None)
        self._on_high_watermark(name)

    def set_offline(self, name: TopicPartition, why: str) -> None:
        """Serve the partition no more, and say why, to who waits for it too."""
        self._offline[name] = why
        self._replicas.pop(name, None)
        self._on_high_watermark(name)

    def set_dir_offline(self, path: str, why: str) -> None:
        """Serve the partitions of a log directory that has failed no more."""
        for replica in self:
            if posixpath.dirname(replica.log.folder) == path:
                self.set_offline(replica.partition.name, why)

    def update_config(self, topic: str, config: TopicConfig) -> None:
        self._logs.update_config(topic, config)
        for replica in self:
            if replica.partition.name.topic == topic:
                replica.config = config

    def append(
        self, name: TopicPartition, data: bytearray | memoryview, *, acks: int, leader_epoch: int | None = None
    ) -> Appended:
        """As `append_to`; raises as `get` does, too."""
        return self.append_to(self.get(name), data, acks=acks, leader_epoch=leader_epoch)

    def append_to(
        self, replica: Replica, data: bytearray | memoryview, *, acks: int, leader_epoch: int | None = None
    ) -> Appended:
        """Append the batches of one produce request; their offsets are written into `data`.

        Raises as `Partition.check_leader_epoch`, `Partition.check_in_sync` and `Log.append` do.
        """
        partition = replica.partition
        partition.check_leader_epoch(leader_epoch)
        partition.check_in_sync(acks, replica.config.min_insync_replicas)
        appended = replica.log.append(data, leader_epoch=partition.leader_epoch)
        if not appended.is_duplicate and partition.log_appended(appended.last_offset + 1):
            self._on_high_watermark(partition.name)
        return appended

    def read(self, replica: Replica, offset: int, max_bytes: int, *, min_one_batch: bool) -> LogSlice:
        """Committed batches from `offset`; raises OffsetOutOfRange outside of the log."""
        return replica.log.read(
            offset, max_bytes, max_offset=replica.partition.high_watermark, min_one_batch=min_one_batch
        )

    def high_watermarks(self) -> dict[str, dict[TopicPartition, int]]:
        """By log directory, what `write_high_watermarks` is to write."""
        found: dict[str, dict[TopicPartition, int]] = {folder: {} for folder in self._logs.dirs}
        for replica in self:
            folder = posixpath.dirname(replica.log.folder)
            found.setdefault(folder, {})[replica.partition.name] = replica.partition.high_watermark
        return found

    def write_high_watermarks(self, found: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Blocks: writes and flushes one file in each directory, unless it says so already."""
        for folder, offsets in found.items():
            if self._written.get(folder) == offsets:
                continue
            checkpoint = self._checkpoints.setdefault(folder, OffsetCheckpoint(self._fs, f"{folder}/{HIGH_WATERMARKS}"))
            try:
                checkpoint.write(offsets)
                self._written[folder] = offsets
            except OSError as error:
                logger.error("high watermarks in %s could not be written: %s", folder, error)
