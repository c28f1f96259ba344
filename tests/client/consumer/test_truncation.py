"""Answers of replaced leaders are ignored, and records lost in an unclean election are detected (KIP-320)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

from sparklog.base.errors import FencedLeaderEpoch, KafkaError, LogTruncation, OffsetOutOfRange, UnknownLeaderEpoch
from sparklog.base.ids import TopicPartition
from sparklog.client.aio import AsyncConsumer
from sparklog.log.epochs import LeaderEpochs
from sparklog.records.batch import last_leader_epoch
from sparklog.records.records import Record, write_records
from sparklog.v1 import admin_pb2, log_pb2, records_pb2
from support.brokers.scripted import ScriptedBroker, running
from support.patience import PATIENCE_S

PARTITION = TopicPartition("t", 0)
READER = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 5, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


class Replica(ScriptedBroker):
    """A broker with a log of one record for each epoch in `log`, and `leader` and `epoch` in its metadata."""

    def __init__(self, number: int, *, leader: int, log: list[int]) -> None:
        super().__init__(partitions=1)
        self.number, self.leader, self.log = number, leader, log
        self.epoch = log[-1]
        self.all: list[Replica] = []
        self.fetched: asyncio.Queue[int] = asyncio.Queue()
        """Offsets that were asked for."""

    async def DescribeCluster(self, request: Any, context: Any) -> Any:  # noqa: N802
        brokers = [admin_pb2.Broker(id=each.number, grpc_address=each.address) for each in self.all]
        return admin_pb2.DescribeClusterResponse(cluster_id="c", controller_id=0, brokers=brokers)

    async def DescribeTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        part = admin_pb2.PartitionDescription(partition=0, leader=self.leader, leader_epoch=self.epoch)
        topic = admin_pb2.TopicDescription(name="t", partitions=[part], topic_id=str(UUID(int=1)))
        return admin_pb2.DescribeTopicsResponse(topics=[topic])

    async def ListOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        [query] = request.partitions
        found = log_pb2.PartitionOffset(topic="t", partition=0, offset=0 if query.earliest else len(self.log))
        if error := self._refusal(query):
            found.error.CopyFrom(_message(error))
        return log_pb2.ListOffsetsResponse(partitions=[found])

    async def Fetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        [part] = request.partitions
        self.fetched.put_nowait(part.fetch_offset)
        begin, end = part.fetch_offset, len(self.log)
        found = log_pb2.PartitionFetched(topic="t", partition=0, high_watermark=end, next_offset=begin)
        if error := self._refusal(part) or (OffsetOutOfRange(f"the end is {end}") if self._is_out(part) else None):
            found.error.CopyFrom(_message(error))
        elif (departs := self._departs(part)) is not None:
            found.diverging.CopyFrom(departs)
        elif begin == end:
            await asyncio.sleep(0.005)
        else:
            found.batches = b"".join(
                bytes(
                    write_records([Record(offset=at, timestamp_ms=1, value=b"%d:%d" % (at, epoch))], leader_epoch=epoch)
                )
                for at, epoch in enumerate(self.log)
                if at >= begin
            )
            found.next_offset = end
        return log_pb2.FetchResponse(partitions=[found])

    def _refusal(self, part: Any) -> KafkaError | None:
        if not part.HasField("current_leader_epoch") or part.current_leader_epoch == self.epoch:
            return None
        behind = part.current_leader_epoch < self.epoch
        return FencedLeaderEpoch("behind") if behind else UnknownLeaderEpoch("ahead")

    def _is_out(self, part: Any) -> bool:
        return part.fetch_offset > len(self.log) and self._departs(part) is None

    def _departs(self, part: Any) -> Any:
        epochs = LeaderEpochs()
        for at, epoch in enumerate(self.log):
            epochs = epochs.assign(epoch, at)
        if not part.HasField("last_fetched_epoch"):
            return None
        end = epochs.assign(self.epoch, len(self.log)).end_offset_for(part.last_fetched_epoch, len(self.log))
        if end.epoch < part.last_fetched_epoch or end.end_offset < part.fetch_offset:
            return log_pb2.DivergingEpoch(leader_epoch=end.epoch, end_offset=end.end_offset)
        return None


def _message(error: KafkaError) -> Any:
    return records_pb2.Error(code=error.code, name=error.name, message=str(error), retriable=error.retriable)


@pytest.fixture
async def both() -> AsyncIterator[list[Replica]]:
    """Two brokers with the second as leader in epoch 5 in their metadata; it has four records."""
    both = [Replica(0, leader=1, log=[4, 4, 5, 5]), Replica(1, leader=1, log=[4, 4, 5, 5])]
    async with AsyncExitStack() as stack:
        for each in both:
            each.all = both
            await stack.enter_async_context(running(each))
        yield both


def reader(brokers: list[Replica], **options: Any) -> AsyncConsumer:
    return AsyncConsumer(bootstrap_servers=[each.address for each in brokers], **(READER | options))


async def read(consumer: AsyncConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(1_000)]
    return values


async def test_a_replaced_leader_does_not_make_a_position_out_of_range(both: list[Replica]) -> None:
    zombie, leader = both
    async with reader(both) as consumer:
        consumer.assign([PARTITION])
        assert await read(consumer, 4) == [b"0:4", b"1:4", b"2:5", b"3:5"]
        zombie.leader, zombie.epoch, zombie.log = 0, 4, [4, 4]
        for _ in range(5):  # whoever asks the first broker who leads is told of that one
            consumer._cluster.lost_leader(PARTITION)
            consumer._cluster._answered_last = ()
            leader.log.append(5)
            assert await read(consumer, 1) == [b"%d:5" % (len(leader.log) - 1)]


async def test_a_replaced_leader_that_is_asked_by_mistake_refuses_and_tells_no_offsets(both: list[Replica]) -> None:
    leader, zombie = both
    async with reader(both) as consumer:
        consumer.assign([PARTITION])
        await read(consumer, 4)
        leader.leader = 0
        zombie.epoch, zombie.log = 4, [4, 4]
        assert (await consumer.end_offsets([PARTITION]))[PARTITION] == 4


async def test_a_consumer_goes_back_to_where_an_unclean_election_has_cut_the_log(both: list[Replica]) -> None:
    async with reader(both) as consumer:
        consumer.assign([PARTITION])
        await read(consumer, 4)
        for each in both:
            each.leader, each.epoch, each.log = 0, 6, [4, 4, 5, 6, 6]
        assert await read(consumer, 2) == [b"3:6", b"4:6"]


async def test_without_a_reset_a_consumer_is_told_until_it_is_moved(both: list[Replica]) -> None:
    async with reader(both, auto_offset_reset="none") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        await read(consumer, 4)
        for each in both:
            each.leader, each.epoch, each.log = 0, 6, [4, 4, 5, 6, 6]
        for _ in range(2):
            with pytest.raises(LogTruncation, match="from offset 3 to 4 were read"):
                await read(consumer, 1)
        consumer.seek(PARTITION, 3)
        assert await read(consumer, 2) == [b"3:6", b"4:6"]


async def test_what_was_fetched_and_is_gone_before_it_was_returned_is_fetched_again(both: list[Replica]) -> None:
    async with reader(both, auto_offset_reset="none") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        async with asyncio.timeout(PATIENCE_S):
            while not (first := await consumer.poll(1_000, max_records=1)):
                pass
        assert [record.value for record in first] == [b"0:4"]
        for each in both:
            each.leader, each.epoch, each.log = 0, 6, [4, 4, 6]
        async with asyncio.timeout(PATIENCE_S):
            while await both[0].fetched.get() != 1:
                pass
        assert await read(consumer, 2) == [b"1:4", b"2:6"]


@pytest.mark.parametrize(
    ("epochs", "cut", "last"), [([], 0, -1), ([3], 0, 3), ([3, 3, 7], 0, 7), ([3, 7], 5, 3), ([3], 60, -1)]
)
def test_the_last_whole_batch_says_the_epoch(epochs: list[int], cut: int, last: int) -> None:
    batches = [write_records([Record(offset=0, timestamp_ms=0, value=b"v")], leader_epoch=epoch) for epoch in epochs]
    data = b"".join(bytes(each) for each in batches)
    assert last_leader_epoch(data[: len(data) - cut]) == last
