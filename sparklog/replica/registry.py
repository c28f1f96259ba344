"""Which replicas are here, and what has become of those whose log has failed."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.base.errors import KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.epochs import EpochEnd
from sparklog.log.log import Log
from sparklog.replica.partition import NO_EPOCH, Partition

logger = logging.getLogger(__name__)
OnLeadership = Callable[[TopicPartition, bool, int], None]


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

    def is_replicated(self, last_offset: int, led_since: int) -> bool:
        """As `Partition.is_replicated`, with the topic's min.insync.replicas."""
        return self.partition.is_replicated(last_offset, led_since, self.config.min_insync_replicas)


class Replicas:
    """Replicas by partition.

    `on_leadership` is given by whoever puts the broker together. It is told of every change: which partition, whether
    it is led here from now on, and the leader epoch.
    """

    def __init__(
        self, on_high_watermark: Callable[[TopicPartition], None], exists: Callable[[TopicPartition], bool]
    ) -> None:
        """on_high_watermark: who waits for a partition's records, or for the end of their wait, looks again.
        exists: whether the cluster has the partition."""
        self._on_high_watermark = on_high_watermark
        self._exists = exists
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline: dict[TopicPartition, str] = {}
        self.on_leadership: OnLeadership = lambda name, is_leader, leader_epoch: None

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The partitions that are here, those whose directory has failed too."""
        return (*self._replicas, *self._offline)

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions whose log cannot be used, and why."""
        return self._offline

    def get(self, name: TopicPartition) -> Replica:
        """Whatever it is here, leader or not.

        Raises KafkaStorageError where the partition's log has failed, NotLeaderOrFollower where others have it, and
        UnknownTopicOrPartition.
        """
        replica = self._replicas.get(name)
        if replica is None:
            if why := self._offline.get(name):
                raise KafkaStorageError(f"{name} is offline: {why}")
            if self._exists(name):
                raise NotLeaderOrFollower(f"{name} has no replica here")
            raise UnknownTopicOrPartition(f"{name.topic!r} has no partition {name.partition} here")
        return replica

    def get_leader(self, name: TopicPartition) -> Replica:
        """The same, of a partition that is led here: raises NotLeaderOrFollower for others, as long as they exist."""
        replica = self._replicas.get(name) or self.get(name)
        if not replica.partition.is_leader:
            if not self._exists(name):
                raise UnknownTopicOrPartition(f"{name.topic!r} has no partition {name.partition}, or not any more")
            replica.partition.check_leader()
        return replica

    def find(self, name: TopicPartition) -> Replica | None:
        return self._replicas.get(name)

    def is_led(self, name: TopicPartition) -> bool:
        """Whether this broker leads it; any thread may ask."""
        replica = self._replicas.get(name)
        return replica is not None and replica.partition.is_leader

    def find_high_watermark(self, name: TopicPartition) -> int | None:
        replica = self._replicas.get(name)
        return replica.partition.high_watermark if replica else None

    def drop(self, name: TopicPartition) -> None:
        """Forget a partition; who waits for it learns that it is gone."""
        self._offline.pop(name, None)
        self._leave(name)

    def set_offline(self, name: TopicPartition, why: str) -> None:
        """Serve the partition no more, and say why, to who waits for it too."""
        self._offline[name] = why
        self._leave(name)

    def set_dir_offline(self, path: str, why: str) -> None:
        """Serve the partitions of a log directory that has failed no more."""
        for replica in self:
            if posixpath.dirname(replica.log.folder) == path:
                self.set_offline(replica.partition.name, why)

    def _leave(self, name: TopicPartition) -> None:
        if replica := self._replicas.pop(name, None):
            before = (replica.partition.is_leader, NO_EPOCH)
            replica.partition.leave()
            self._changed(replica.partition, before)

    def _changed(self, partition: Partition, before: tuple[bool, int]) -> None:
        """Tell who waits, and who goes by the leadership."""
        if before == (partition.is_leader, partition.leader_epoch):
            return
        logger.info(
            "%s: %s of leader epoch %d, leader %d", partition.name, partition.role.value, partition.leader_epoch,
            partition.leader,
        )  # fmt: skip
        self._on_high_watermark(partition.name)
        self.on_leadership(partition.name, partition.is_leader, partition.leader_epoch)
