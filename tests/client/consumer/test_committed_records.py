"""Consumers of committed records, and Spark's reads through a broker: no aborted records, none of open transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer
from sparklog.client.aio import AsyncConsumer
from sparklog.log.reader import LogReader
from sparklog.testing.memory_fs import MemoryFs
from sparklog.v1 import admin_pb2, log_pb2
from support.brokers.scripted import ScriptedBroker, running
from support.logs.transactional_folder import TransactionalFolder
from support.patience import PATIENCE_S
from support.spark_topics import make_reader, rows_of

pytestmark = pytest.mark.slow

PARTITION = TopicPartition("t", 0)
FOLDER = "/logs/t-0"
LONG_MS = round(3_000 * PATIENCE_S)
"""Longer than the test may take."""


class Leader(ScriptedBroker):
    """A leader with a folder as its log; each answer has the batches of one segment."""

    def __init__(self, log: TransactionalFolder) -> None:
        super().__init__(partitions=1)
        self.log = log
        self.is_read = asyncio.Event()
        """Whether a consumer has asked for what follows the last committed record."""

    async def DescribeTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        part = admin_pb2.PartitionDescription(partition=0, leader=0, high_watermark=self.log.end)
        return admin_pb2.DescribeTopicsResponse(topics=[admin_pb2.TopicDescription(name="t", partitions=[part])])

    async def ListOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        end = self._end(request)
        found = [
            log_pb2.PartitionOffset(topic="t", partition=0, offset=0 if query.earliest else end)
            for query in request.partitions
        ]
        return log_pb2.ListOffsetsResponse(partitions=found)

    async def Fetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        [part] = request.partitions
        begin, end = part.fetch_offset, self._end(request)
        found = log_pb2.PartitionFetched(topic="t", partition=0, high_watermark=self.log.end, next_offset=begin)
        if begin < end:
            reader = LogReader(self.log.fs, FOLDER)
            [piece, *_] = reader.cut(begin, end, 1)
            found.batches = b"".join(reader.read(piece))
            found.next_offset = piece.offset_to
            if request.isolation_level == log_pb2.READ_COMMITTED:
                for entry in reader.aborted_transactions(begin, piece.offset_to):
                    found.aborted_transactions.add(
                        producer_id=entry.producer_id, first_offset=entry.first_offset, last_offset=entry.last_offset
                    )
        else:
            self.is_read.set()
            await asyncio.sleep(0.005)
        return log_pb2.FetchResponse(partitions=[found])

    def _end(self, request: Any) -> int:
        is_committed_only = request.isolation_level == log_pb2.READ_COMMITTED
        return self.log.last_stable_offset if is_committed_only else self.log.end


@pytest.fixture
def log() -> TransactionalFolder:
    """A log: producer 1 aborts across two segments, 2 commits; the last segment begins with an aborted transaction."""
    folder = TransactionalFolder(MemoryFs(), FOLDER)
    folder.write(1)
    folder.write(2)
    folder.roll()
    folder.write(1)
    folder.finish(1, commit=False)
    folder.finish(2, commit=True)
    folder.write(1)
    folder.finish(1, commit=False)
    folder.roll()
    folder.write(3)
    return folder


async def polled(consumer: AsyncConsumer, end: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while await consumer.position(PARTITION) < end:
            found += [record.offset for record in await consumer.poll(100)]
    return found


async def test_a_consumer_skips_aborted_records_and_waits_for_open_transactions(log):
    async with running(Leader(log)) as broker:
        options = {"bootstrap_servers": broker.address, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 5}
        async with AsyncConsumer(**options) as consumer:
            consumer.assign([PARTITION])
            assert await consumer.end_offsets([PARTITION]) == {PARTITION: log.last_stable_offset}
            assert await polled(consumer, log.last_stable_offset) == [2, 3] == log.readable
            log.finish(3, commit=True)
            assert await polled(consumer, log.end) == log.readable[2:] != []
        async with AsyncConsumer(**options, isolation_level="read_uncommitted") as consumer:
            consumer.assign([PARTITION])
            assert await consumer.end_offsets([PARTITION]) == {PARTITION: log.end}
            assert await polled(consumer, log.end) == log.records


async def test_a_poll_that_finds_only_aborted_records_moves_the_position_and_returns_at_once(log):
    leader = Leader(log)
    async with running(leader) as broker:

        def read() -> list[list[int]]:
            with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
                consumer.assign([PARTITION])
                polled = [[record.offset for record in consumer.poll(LONG_MS)]]
                asyncio.run_coroutine_threadsafe(leader.is_read.wait(), loop).result(PATIENCE_S)
                while consumer.position(PARTITION) < log.last_stable_offset:
                    polled.append([record.offset for record in consumer.poll(LONG_MS)])
            return polled

        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(read) == [log.readable, []]


async def test_a_read_in_spark_through_the_broker_does_the_same(log):
    async with running(Leader(log)) as broker:
        options = {"bootstrap.servers": broker.address, "subscribe": "t", "readMode": "fetch", "minPartitions": "3"}

        def offsets(**more: str) -> list[int]:
            return [row["offset"] for row in rows_of(make_reader({**options, **more}))]

        assert await asyncio.to_thread(offsets) == log.readable == [2, 3]
        uncommitted = {"kafka.isolation.level": "read_uncommitted"}
        assert await asyncio.to_thread(offsets, **uncommitted) == log.records
        log.finish(3, commit=True)
        assert await asyncio.to_thread(offsets) == log.readable != [2, 3]


async def test_another_isolation_level_is_refused(log):
    async with running(Leader(log)) as broker:

        def list_offsets() -> None:
            with Admin(bootstrap_servers=broker.address) as admin:
                admin.list_offsets({PARTITION: "latest"}, isolation_level="serializable")

        with pytest.raises(ConfigError, match="it must be read_uncommitted or read_committed"):
            await asyncio.to_thread(list_offsets)
        with pytest.raises(ConfigError, match="isolation_level"):
            AsyncConsumer(bootstrap_servers=broker.address, isolation_level="serializable")
