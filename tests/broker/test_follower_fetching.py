"""Reads from followers (KIP-392): in the consumer's rack, up to the follower's high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from sparklog.base.errors import NotLeaderOrFollower, OffsetNotAvailable, OffsetOutOfRange
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import fetch
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.patience import PATIENCE_MS

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
T0 = TopicPartition("t", 0)
Batch = Callable[..., bytearray]


@pytest.fixture
async def racks(batch: Batch) -> AsyncIterator[BrokersOnOneLoop]:
    """Brokers 1, 2 and 3 in the racks a, b and b; 1 leads t-0, which has one record."""
    made = BrokersOnOneLoop(replica_selector_class=RACK_AWARE)
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "b")):
        await made.start(broker_id, broker_rack=rack)
    metadata = made.brokers[1].services.metadata
    assert await metadata.wait_until(lambda: len(metadata.brokers) == 3, PATIENCE_MS)
    await made.create("t", [[1, 2, 3]])
    await made.produce(1, T0, batch([b"one"]))
    yield made
    await made.stop_all()


async def ask(racks: BrokersOnOneLoop, broker_id: int, offset: int = 0, **how: object) -> fetch.PartitionFetchResult:
    part = fetch.PartitionFetch(topic="t", partition=0, fetch_offset=offset, max_bytes=1 << 20)
    request = fetch.FetchRequest(max_bytes=1 << 20, partitions=[part])
    return (await racks.brokers[broker_id].serve(fetch.API, replace(request, **how))).partitions[0]


@pytest.mark.slow
async def test_a_leader_sends_consumers_to_a_replica_in_their_rack(racks: BrokersOnOneLoop) -> None:
    found = await ask(racks, 1, client_rack="b", max_wait_ms=10 * PATIENCE_MS)
    assert (found.preferred_read_replica, found.slice, found.error) == (2, None, None)
    for rack in ("a", "c", "", None):
        found = await ask(racks, 1, client_rack=rack)
        assert (found.preferred_read_replica, found.slice is None) == (-1, False), rack


async def test_consumers_are_not_sent_to_dead_brokers(racks: BrokersOnOneLoop) -> None:
    for each in (2, 3):
        zombie = racks.cut_off(each)
        await racks.until_led(T0, 1, isr={1, 2, 3} - set(range(2, each + 1)))
        await zombie.stop()
        assert (await ask(racks, 1, client_rack="b")).preferred_read_replica == (3 if each == 2 else -1)


@pytest.mark.slow
async def test_a_follower_serves_records_up_to_its_high_watermark(racks: BrokersOnOneLoop, batch: Batch) -> None:
    reading = asyncio.create_task(ask(racks, 2, 1, client_rack="b", max_wait_ms=10 * PATIENCE_MS))
    await asyncio.sleep(0)
    await racks.produce(1, T0, batch([b"two"]))
    found = await reading
    assert (found.error, found.high_watermark) == (None, 2)
    assert found.slice is not None


@pytest.mark.slow
async def test_offsets_above_a_followers_high_watermark_are_not_available_yet(racks: BrokersOnOneLoop) -> None:
    await ask(racks, 2, 1, client_rack="b", max_wait_ms=100)
    partition = racks.brokers[2].services.replicas.get(T0).partition
    partition.high_watermark = 0
    assert isinstance((await ask(racks, 2, 1, client_rack="b")).error, OffsetNotAvailable)
    assert isinstance((await ask(racks, 2, 2, client_rack="b")).error, OffsetOutOfRange)


@pytest.mark.slow
async def test_consumers_without_a_rack_read_from_leaders_only(racks: BrokersOnOneLoop) -> None:
    found = await ask(racks, 2)
    assert isinstance(found.error, NotLeaderOrFollower)
    assert found.leader_epoch == racks.brokers[1].services.replicas.get(T0).partition.leader_epoch
