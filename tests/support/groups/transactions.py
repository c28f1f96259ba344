"""A shard over a real log in memory: decisions, markers and loads go through the bytes of a partition."""

from __future__ import annotations

from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.group.loader import load
from sparklog.group.requests import (
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from sparklog.group.shard import GroupShard
from sparklog.log.log import Log
from sparklog.offsets_topic.records import CoordinatorRecord, encode
from sparklog.records.markers import EndTransactionMarker, write_marker
from sparklog.records.records import Record, write_records
from sparklog.runtime.state_machine import Decision
from sparklog.testing import SimClock
from sparklog.testing.memory_fs import MemoryFs
from support.groups.consumer_group import FakeTopics

FOLDER = "/data/__consumer_offsets-0"
HELD = -1
"""What `fetch` returns for an offset that may still change."""


class TransactionalWorld:
    """One coordinator. While `is_held`, the log commits nothing; the topic `orders` has four partitions."""

    def __init__(self) -> None:
        fs = MemoryFs()
        fs.make_dir("/data")
        self.log = Log.open(fs, FOLDER, TopicConfig(segment_bytes=2_000), SimClock(), clean=True)
        self.topics = FakeTopics(orders=4)
        self.now_ms = 1_000
        self.is_held = False
        self.shard = self.new_shard()

    def new_shard(self) -> GroupShard:
        return GroupShard(BrokerConfig(), self.topics, lambda: UUID(int=1))

    def carry_out(self, decision: Decision[CoordinatorRecord, object]) -> None:
        """Append and replay the records of a decision, as a coordinator's runtime does."""
        if not decision.records:
            return
        first, producer = self.log.log_end_offset, decision.producer
        written = [
            Record(offset=first + number, timestamp_ms=self.now_ms, key=key, value=value)
            for number, (key, value) in enumerate(map(encode, decision.records))
        ]
        batch = write_records(written, leader_epoch=0) if producer is None else write_records(
            written, leader_epoch=0, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
            transactional=True,
        )  # fmt: skip
        self.log.as_follower.append(batch)
        for record in decision.records:
            self.shard.replay(record, self._uncommitted_offset(), producer)

    def mark(self, producer_id: int, *, is_commit: bool) -> None:
        """End the producer's transaction in this partition."""
        first = self.log.log_end_offset
        batch = write_marker(
            EndTransactionMarker(is_commit=is_commit, coordinator_epoch=0), producer_id=producer_id, producer_epoch=0,
            timestamp_ms=self.now_ms,
        )  # fmt: skip
        batch[:8] = first.to_bytes(8, "big")
        batch[12:16] = bytes(4)  # the leader epoch
        self.log.as_follower.append(batch)
        self.shard.end_transaction(producer_id, is_commit=is_commit, log_offset=self._uncommitted_offset())

    def _uncommitted_offset(self) -> int | None:
        return self.log.log_end_offset - 1 if self.is_held else None

    def release(self) -> None:
        """The log commits all that it has."""
        self.is_held = False
        self.shard.offsets.settle(lambda _: True)

    def move(self) -> None:
        """Another broker coordinates the groups from now on, and loads the log."""
        self.is_held = False
        self.shard = self.load()

    def load(self, end_offset: int | None = None) -> GroupShard:
        return load(self.log, end_offset or self.log.log_end_offset, self.new_shard, lambda: True)[0]

    def commit(self, group: str, partition: int, offset: int) -> None:
        request = OffsetCommit(group_id=group, offsets=[OffsetToCommit(partition=orders(partition), offset=offset)])
        self.carry_out(self.shard.commit(request, self.now_ms))

    def commit_in_transaction(
        self, producer_id: int, group: str, partition: int, offset: int
    ) -> OffsetCommitResponse | None:
        decision = self.shard.commit_in_transaction(
            in_transaction(producer_id, group, {partition: offset}), self.now_ms
        )
        self.carry_out(decision)
        return decision.response


def orders(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def in_transaction(producer_id: int, group: str, offsets: dict[int, int], **fields: object) -> TxnOffsetCommit:
    asked = [OffsetToCommit(partition=orders(partition), offset=offset) for partition, offset in offsets.items()]
    wanted = {"transactional_id": f"t{producer_id}", "producer_id": producer_id, "producer_epoch": 0, **fields}
    return TxnOffsetCommit(group_id=group, offsets=asked, **wanted)  # type: ignore[arg-type]


def fetch(
    shard: GroupShard, group: str, *, stable: bool = False, partitions: list[int] | None = None
) -> dict[int, int]:
    """Return the committed offsets by partition number; HELD if they may still change."""
    asked = None if partitions is None else [orders(each) for each in partitions]
    answer = shard.fetch_offsets(OffsetFetch(group_id=group, partitions=asked, require_stable=stable))
    assert answer.error is None
    return {
        each.partition.partition: HELD if each.error is not None else each.offset
        for each in answer.offsets
        if each.error is not None or each.offset >= 0
    }
