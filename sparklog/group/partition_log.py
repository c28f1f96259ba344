"""The log of a shard: its partition of the offsets topic, while this broker leads it.

If flush.messages requires a flush, records are committed only once they are on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.offsets_topic.records import CoordinatorRecord, encode
from sparklog.records.records import Record, write_records
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.purgatory import Purgatory

ACKS_ALL = -1


class PartitionLog:
    """A ShardLog over the replica of a partition. Records are written like any producer's, with acks=all."""

    def __init__(
        self,
        name: TopicPartition,
        led_since: int,
        replicas: ReplicaManager,
        waiting: Purgatory[TopicPartition],
        config: BrokerConfig,
    ) -> None:
        self._name = name
        self._led_since = led_since
        self._replicas = replicas
        self._waiting = waiting
        self._timeout_ms = config.offsets_commit_timeout_ms
        self._must_flush_to = -1
        """Last offset of the records that require a flush."""
        self._flushed_below = 0
        """The offset below which flushes have covered the records."""

    def append(self, records: Sequence[CoordinatorRecord], now_ms: int) -> int:
        written: list[Record] = []
        for offset, record in enumerate(records):
            key, value = encode(record)
            # A sequence without a producer id, as Kafka's coordinator writes it.
            written.append(Record(offset=offset, timestamp_ms=now_ms, key=key, value=value, sequence=offset))
        replica = self._replicas.get_leader(self._name)
        if replica.partition.led_since != self._led_since:
            raise NotLeaderOrFollower(f"{self._name} has been led by another broker meanwhile")
        appended = self._replicas.append(replica, write_records(written), acks=ACKS_ALL)
        if appended.must_flush:
            self._must_flush_to = appended.last_offset
        return appended.last_offset

    def is_committed(self, offset: int) -> bool:
        replica = self._replicas.find(self._name)
        try:
            return replica is not None and replica.is_replicated(offset, self._led_since)
        except KafkaError:
            return False  # `wait_committed` raises the reason

    async def wait_committed(self, offset: int) -> None:
        replica = self._replicas.get(self._name)
        if self._must_flush_to >= self._flushed_below:
            self._flushed_below = await self._replicas.flush(replica)

        def attempt() -> bool | None:
            return self._replicas.get(self._name).is_replicated(offset, self._led_since) or None

        if await self._waiting.wait([self._name], attempt, self._timeout_ms) is None:
            raise RequestTimedOut(f"{self._name}: the in-sync replicas took longer than {self._timeout_ms} ms")
