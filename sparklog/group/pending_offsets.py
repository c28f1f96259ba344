"""Offsets that were committed in transactions that have not ended (KIP-447).

    put       a transaction commits an offset: it is pending until the transaction's end
    drop      a later commit or a tombstone of the partition: its pending offsets can no longer take effect
    end       a marker ends a transaction: its offsets take effect or are dropped

Calls come in the order of the log. Of several offsets of a partition, the last one in the log counts, in whichever
order the transactions end. So an offset that takes effect drops those before it. Kafka's OffsetMetadataManager keeps
superseded offsets until their transactions end; the committed offsets are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparklog.base.ids import TopicPartition
from sparklog.offsets_topic.records import OffsetValue

ENTRY_BYTES = 600
"""Approximate memory of a pending offset without its metadata."""
Waiting = Mapping[int, OffsetValue]
"""Offsets of one partition by producer id, in the order of the log."""


class TransactionalOffset(NamedTuple):
    """An offset that a transaction has committed."""

    group_id: str
    partition: TopicPartition
    value: OffsetValue


def size_of(metadata: str) -> int:
    """Return the approximate memory in bytes of a pending offset with this metadata."""
    return ENTRY_BYTES + 4 * len(metadata)


class PendingOffsets:
    """The pending offsets of all groups of a shard."""

    __slots__ = ("_by_group", "_by_producer", "size_bytes")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, dict[int, OffsetValue]]] = {}
        self._by_producer: dict[int, dict[tuple[str, TopicPartition], None]] = {}
        self.size_bytes = 0
        """Approximate memory of the offsets."""

    def of(self, group_id: str) -> Mapping[TopicPartition, Waiting]:
        """Return a group's pending offsets, by partition and producer id; empty if there are none."""
        return self._by_group.get(group_id, {})

    def put(self, producer_id: int, group_id: str, partition: TopicPartition, value: OffsetValue) -> None:
        """Keep an offset until the end of the producer's transaction, in place of the transaction's earlier one."""
        self._remove(producer_id, group_id, partition)
        self._by_group.setdefault(group_id, {}).setdefault(partition, {})[producer_id] = value
        self._by_producer.setdefault(producer_id, {})[group_id, partition] = None
        self.size_bytes += size_of(value.metadata)

    def drop(self, group_id: str, partition: TopicPartition) -> None:
        """Drop all offsets of a partition: a later record of the log sets or deletes its offset."""
        for producer_id in tuple(self.of(group_id).get(partition, ())):
            self._remove(producer_id, group_id, partition)

    def end(self, producer_id: int, *, is_commit: bool) -> list[TransactionalOffset]:
        """Remove and return the offsets of a producer. If they are committed, drop the offsets that they supersede."""
        ended = []
        for group_id, partition in self._by_producer.pop(producer_id, ()):
            if is_commit and len(self._by_group[group_id][partition]) > 1:
                self._drop_before(producer_id, group_id, partition)
            ended.append(TransactionalOffset(group_id, partition, self._take(producer_id, group_id, partition)))
        return ended

    def _drop_before(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        for other_id in tuple(self._by_group[group_id][partition]):
            if other_id == producer_id:
                return
            self._remove(other_id, group_id, partition)

    def _remove(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        of_producer = self._by_producer.get(producer_id, {})
        if (group_id, partition) in of_producer:
            self._take(producer_id, group_id, partition)
            del of_producer[group_id, partition]
            if not of_producer:
                del self._by_producer[producer_id]

    def _take(self, producer_id: int, group_id: str, partition: TopicPartition) -> OffsetValue:
        of_group = self._by_group[group_id]
        waiting = of_group[partition]
        value = waiting.pop(producer_id)
        self.size_bytes -= size_of(value.metadata)
        if not waiting:
            del of_group[partition]
            if not of_group:
                del self._by_group[group_id]
        return value
