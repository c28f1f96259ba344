"""The log of a coordinator's shard: its partition of an internal topic, while this broker leads it.

If flush.messages requires a flush, records are committed only once they are on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sparklog.base.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.log.producers.verifications import Verification
from sparklog.log.slice import LogAppendInfo
from sparklog.records import records as batches
from sparklog.records.markers import EndTransactionMarker
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.state_machine import ProducerIdAndEpoch

ACKS_ALL = -1
ANY_ISR = 1  # the leader alone suffices: what is committed stays committed in any ISR
Record = TypeVar("Record")


class PartitionLog(Generic[Record]):
    """Implements ShardLog over the replica of a partition. Records are written like any producer's, with acks=all."""

    def __init__(
        self,
        name: TopicPartition,
        led_since: int,
        replicas: ReplicaManager,
        waiting: Purgatory[TopicPartition],
        *,
        timeout_ms: int,
        encode: Callable[[Record], tuple[bytes | None, bytes | None]],
    ) -> None:
        """timeout_ms: the longest wait for replicas. encode: returns a record's key and value."""
        self._name = name
        self._led_since = led_since
        self._replicas = replicas
        self._waiting = waiting
        self._timeout_ms = timeout_ms
        self._encode = encode
        self._must_flush_to = -1
        """Last offset of the records that require a flush."""
        self._flushed_below = 0
        """The offset below which flushes have covered the records."""

    def append(
        self,
        records: Sequence[Record],
        now_ms: int,
        producer: ProducerIdAndEpoch | None = None,
        verification: Verification | None = None,
    ) -> int:
        """Append the records as one batch and return the last one's offset. Raises KafkaError with nothing written."""
        written: list[batches.Record] = []
        for offset, record in enumerate(records):
            key, value = self._encode(record)
            # A sequence without a producer id, as Kafka's coordinator writes it.
            written.append(batches.Record(offset=offset, timestamp_ms=now_ms, key=key, value=value, sequence=offset))
        if producer is None:
            batch = batches.write_records(written)
        else:
            batch = batches.write_records(
                written, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, transactional=True
            )
        return self._after_append(
            self._replicas.append(
                self._replica(), batch, acks=ACKS_ALL, verification=verification, is_coordinators=True
            )
        )

    def append_marker(self, producer: ProducerIdAndEpoch, marker: EndTransactionMarker, *, is_strict: bool) -> int:
        """End a producer's transaction, and return the marker's offset. Raises KafkaError with nothing written."""
        return self._after_append(
            self._replicas.append_marker(
                self._replica(),
                marker,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_strict=is_strict,
            )
        )

    def _replica(self) -> Replica:
        replica = self._replicas.get_leader(self._name)
        if replica.partition.led_since != self._led_since:
            raise NotLeaderOrFollower(f"{self._name} has been led by another broker meanwhile")
        return replica

    def _after_append(self, appended: LogAppendInfo) -> int:
        if appended.must_flush:
            self._must_flush_to = appended.last_offset
        return appended.last_offset

    def is_committed(self, offset: int) -> bool:
        replica = self._replicas.find(self._name)
        try:
            return replica is not None and replica.partition.is_replicated(offset, self._led_since, ANY_ISR)
        except KafkaError:
            return False  # `wait_committed` raises an error with the reason

    async def wait_committed(self, offset: int, *, is_new: bool) -> None:
        replica = self._replicas.get(self._name)
        if self._must_flush_to >= self._flushed_below:
            self._flushed_below = await self._replicas.flush(replica)

        def attempt() -> bool | None:
            replica = self._replicas.get(self._name)
            min_insync_replicas = replica.config.min_insync_replicas if is_new else ANY_ISR
            return replica.partition.is_replicated(offset, self._led_since, min_insync_replicas) or None

        if await self._waiting.wait([self._name], attempt, self._timeout_ms) is None:
            raise RequestTimedOut(f"{self._name}: the in-sync replicas took longer than {self._timeout_ms} ms")
