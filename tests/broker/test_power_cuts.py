"""A broker whose power is cut, on a disk in memory, and that flushes what it writes: what it acknowledged or showed is
there at its next start.
"""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from sparklog.base.config import Setting, parse_broker_config
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import create_topics, delete_records, fetch, group_apis, offset_commit, produce
from sparklog.broker.node import Broker
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import Store
from sparklog.group.requests import OffsetCommit, OffsetFetch, OffsetToCommit
from sparklog.records.records import Record, read_records, write_records
from sparklog.testing import SimClock
from sparklog.testing.memory_fs import MemoryFs
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

PARTITIONS = 3
CONFIG = {
    "log.dirs": "/a,/b",
    "log.flush.interval.messages": "1",
    "log.flush.offset.checkpoint.interval.ms": "1",
    "replica.high.watermark.checkpoint.interval.ms": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
}
Acknowledged = dict[tuple[int, int], bytes]


class LastingStore(SqliteStore):
    """A cluster store in memory that outlives its broker."""

    def close(self) -> None:
        pass


async def start(fs: MemoryFs, store: Store) -> Broker:
    config = parse_broker_config([Setting(name, raw, "") for name, raw in CONFIG.items()])
    broker = Broker(config, fs=fs, clock=SimClock(), store=store)
    await broker.start("here:1")
    return broker


async def produce_until_the_power_goes(broker: Broker, chance: random.Random) -> Acknowledged:
    """Return the acknowledged records, by partition and offset."""
    acknowledged: Acknowledged = {}
    for number in range(200):
        partition, value = chance.randrange(PARTITIONS), f"{number}".encode() * chance.randint(1, 60)
        data = write_records([Record(offset=0, timestamp_ms=1_700_000_000_000, value=value)])
        part = produce.PartitionProduce(topic="t", partition=partition, data=data)
        try:
            response = await broker.serve(produce.API, produce.ProduceRequest(partitions=[part]))
        except KafkaError:
            return acknowledged
        if response.partitions[0].error:
            return acknowledged
        acknowledged[partition, response.partitions[0].base_offset] = value
    return acknowledged


async def watch(broker: Broker, shown: dict[int, int]) -> None:
    """Record the end of what consumers can read of each partition; never returns."""
    while True:
        for partition in range(PARTITIONS):
            replica = broker.services.replicas.find(TopicPartition("t", partition))
            if replica is not None:
                shown[partition] = max(shown.get(partition, 0), replica.partition.high_watermark)
        await asyncio.sleep(0)


async def read_everything(broker: Broker) -> Acknowledged:
    found: Acknowledged = {}
    for partition in range(PARTITIONS):
        offset = 0
        while True:
            part = fetch.PartitionFetch(topic="t", partition=partition, fetch_offset=offset, max_bytes=1 << 20)
            request = fetch.FetchRequest(max_bytes=1 << 20, partitions=[part])
            result = (await broker.serve(fetch.API, request)).partitions[0]
            assert result.error is None
            if result.slice is None:
                break
            data, position = result.slice.read(), 0
            while position < len(data):
                for record in read_records(data, position):
                    found[partition, record.offset] = record.value or b""
                position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            offset = result.next_offset
    return found


@pytest.mark.soak
async def test_records_that_were_acknowledged_or_read_after_a_flush_survive(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # a broker without power has much to complain about
    for seed in seeds(10, soak=200):
        chance = random.Random(seed)
        fs, store = MemoryFs(), LastingStore.open(":memory:")
        broker = await start(fs, store)
        topic = create_topics.NewTopic(name="t", partitions=PARTITIONS, configs={"internal.segment.bytes": "900"})
        await broker.serve(create_topics.API, create_topics.CreateTopicsRequest(topics=[topic]))
        acknowledged: Acknowledged = {}
        shown: dict[int, int] = {}
        for _ in range(3):
            fs.cut_power_after(chance.randint(1, 400), chance)
            watching = asyncio.create_task(watch(broker, shown))
            acknowledged |= await produce_until_the_power_goes(broker, chance)
            watching.cancel()
            await broker._schedule.stop()  # all that a process without power stops doing; nothing is closed
            fs = fs.crash(chance)
            broker = await start(fs, store)
            found = await read_everything(broker)
            assert {place: found.get(place) for place in acknowledged} == acknowledged, f"seed {seed}"
            ends = {
                partition: max((at for its, at in found if its == partition), default=-1) + 1 for partition in shown
            }
            assert all(ends[partition] >= end for partition, end in shown.items()), f"seed {seed}"
        await broker.stop()


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(2, soak=20))
async def test_a_commit_that_was_acknowledged_after_a_flush_survives(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    fs, store = MemoryFs(), LastingStore.open(":memory:")
    broker = await start(fs, store)
    topic = create_topics.NewTopic(name="t", partitions=1)
    await broker.serve(create_topics.API, create_topics.CreateTopicsRequest(topics=[topic]))
    place = TopicPartition("t", 0)
    commit = OffsetCommit(group_id="g", offsets=[OffsetToCommit(partition=place, offset=5)])
    assert (await broker.serve(offset_commit.API, commit)).errors == {place: None}
    await broker._schedule.stop()
    broker = await start(fs.crash(random.Random(seed)), store)
    await broker.services.groups.partitions.loaded()
    answer = await broker.serve(group_apis.OFFSET_FETCH, OffsetFetch(group_id="g", partitions=[place]))
    assert [each.offset for each in answer.offsets] == [5]
    await broker.stop()


async def test_deleted_records_stay_deleted_after_a_power_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    fs, store = MemoryFs(), LastingStore.open(":memory:")
    broker = await start(fs, store)
    topic = create_topics.NewTopic(name="t", partitions=1)
    await broker.serve(create_topics.API, create_topics.CreateTopicsRequest(topics=[topic]))
    for number in range(5):
        data = write_records([Record(offset=0, timestamp_ms=1_700_000_000_000, value=b"%d" % number)])
        part = produce.PartitionProduce(topic="t", partition=0, data=data)
        await broker.serve(produce.API, produce.ProduceRequest(partitions=[part]))
    asked = delete_records.RecordsToDelete(topic="t", partition=0, before_offset=3)
    request = delete_records.DeleteRecordsRequest(partitions=[asked])
    deleted = (await broker.serve(delete_records.API, request)).partitions[0]
    assert (deleted.error, deleted.log_start_offset) == (None, 3)
    await broker._schedule.stop()
    broker = await start(fs.crash(random.Random(3)), store)
    log = broker.services.replicas.get(TopicPartition("t", 0)).log
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    await broker.stop()
