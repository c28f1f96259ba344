"""A cluster whose store was lost comes back: its topics, their replicas, and every acknowledged record."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest

from sparklog.base.errors import EligibleLeadersNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker.apis import describe_topics, elect_leaders
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.topics import TopicStore
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import PowerCut
from support import patience
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.patience import PATIENCE_MS

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)
ALL = {1, 2, 3}
CONFIGS = {"retention.ms": "12345"}


@pytest.fixture
async def three():
    made = BrokersOnOneLoop(default_replication_factor="3", offsets_topic_replication_factor="3")
    await made.start(1, 2, 3)
    yield made
    await made.stop_all()


def stored(three: BrokersOnOneLoop) -> TopicStore:
    return TopicStore(MemoryStore(three.tree), TopicConfig())


def assigned(three: BrokersOnOneLoop, topic: str = "t") -> list[tuple[int, ...]]:
    return [each.replicas for each in stored(three).load_assignment(topic).partitions]


def info(three: BrokersOnOneLoop, broker_id: int, name: TopicPartition = T0) -> Any:
    return three.brokers[broker_id].services.metadata.find_partition(name)


async def until(three: BrokersOnOneLoop, isr: set[int], name: TopicPartition = T0) -> int:
    """Wait until the partition has a leader and these replicas are in sync; return the leader."""
    leader = -1
    for broker_id, broker in three.brokers.items():
        metadata = broker.services.metadata

        def is_so(broker_id: int = broker_id) -> bool:
            found = info(three, broker_id, name)
            return found is not None and found.leader > 0 and set(found.in_sync_replicas) == isr

        assert await metadata.wait_until(is_so, PATIENCE_MS), info(three, broker_id, name)
        leader = info(three, broker_id, name).leader
    await three.until_led(name, leader, isr=isr)
    return leader


async def until_kept(three: BrokersOnOneLoop, replicas: tuple[int, ...], configs: Mapping[str, str]) -> None:
    """Wait until every broker has a copy of the topic beside its logs, which it writes after it learns of the topic."""

    def are_kept() -> bool:
        copies = [broker.services.logs.kept_topics.get("t") for broker in three.brokers.values()]
        return all(copy and copy.overrides == configs and copy.partitions[0].replicas == replicas for copy in copies)

    await patience.until(are_kept, "every broker has its copy")


async def read(three: BrokersOnOneLoop, leader: int, name: TopicPartition) -> bytes:
    """Read the whole log, once the leader knows that its followers have it."""
    replica = three.brokers[leader].services.replicas.get(name)
    await patience.until(
        lambda: replica.partition.high_watermark == replica.log.log_end_offset, "all records are committed"
    )
    return await three.read(leader, name)


async def write(three: BrokersOnOneLoop, name: TopicPartition, data: bytearray) -> None:
    leader = next(iter(three.brokers.values())).services.metadata.find_partition(name).leader
    assert (await three.produce(leader, name, data)).error is None


async def stop(three: BrokersOnOneLoop, *ids: int) -> None:
    for broker_id in ids:
        await three.stop(broker_id)


async def kill(three: BrokersOnOneLoop) -> None:
    """Cut the power of all brokers. Their sessions end, too."""
    ids = list(three.brokers)
    for killed in [three.kill(broker_id) for broker_id in ids]:
        with suppress(PowerCut):
            await killed.stop()
    for broker_id in ids:
        three.expire(broker_id)


@pytest.mark.parametrize("order", list(permutations(ALL)), ids=str)
async def test_no_acknowledged_record_is_lost_in_whatever_order_the_brokers_start(
    three: BrokersOnOneLoop, batch, order: tuple[int, ...]
) -> None:
    """Broker 1, the first of the replicas, lags."""
    await three.create("t", [[1, 2, 3]], **CONFIGS)
    await three.create("single", [[1], [2], [3]])
    topic_id = three.brokers[1].services.metadata.get("t").topic_id
    await until(three, ALL)
    for number in range(3):
        name = TopicPartition("single", number)
        await three.until_led(name, number + 1)
        await write(three, name, batch([b"single"]))
    await write(three, T0, batch([b"a", b"b"]))
    await stop(three, 1)
    await until(three, {2, 3})
    await write(three, T0, batch([b"c", b"d"]))
    heard_of = info(three, 2).leader_epoch
    await kill(three)
    three.lose_store()
    await three.start(*order)
    leader = await until(three, ALL)
    assert info(three, leader).leader_epoch > heard_of
    found = await read(three, leader, T0)
    assert [(each.base_offset, each.last_offset) for _, each in iterate_headers(found)] == [(0, 1), (2, 3)]
    topic = three.brokers[1].services.metadata.get("t")
    assert (topic.topic_id, topic.overrides, assigned(three)) == (topic_id, CONFIGS, [(1, 2, 3)])
    for number in range(3):
        assert b"single" in await read(three, number + 1, TopicPartition("single", number))
    await write(three, T0, batch([b"e"]))
    assert [three.brokers[each].services.logs.get(T0).log_end_offset for each in ALL] == [5, 5, 5]


async def test_a_partition_waits_until_all_its_replicas_are_compared_or_for_an_operator(
    three: BrokersOnOneLoop, batch
) -> None:
    await three.create("t", [[1, 2, 3]])
    await until(three, ALL)
    await write(three, T0, batch([b"a"]))
    await stop(three, 1)
    await until(three, {2, 3})
    await write(three, T0, batch([b"b"]))
    await kill(three)
    three.lose_store()
    await three.start(1, 2)
    for broker_id in (1, 2):
        assert (info(three, broker_id).leader, info(three, broker_id).in_sync_replicas) == (-1, ())
    while "[3] have not told yet" not in str(refused := await elect(three, unclean=False)):
        assert isinstance(refused, EligibleLeadersNotAvailable)
    request = describe_topics.DescribeTopicsRequest(names=["t"], include_unsure=True)
    [described] = (await three.brokers[1].serve(describe_topics.API, request)).topics
    assert described.is_unsure
    assert "the replicas are compared first; start broker 3" in str(described.partitions[0].error)
    assert await elect(three, unclean=True) is None
    assert await until(three, {1, 2}) == 2
    assert b"b" in await read(three, 2, T0)
    await three.start(3)
    await until(three, ALL)


async def elect(three: BrokersOnOneLoop, *, unclean: bool) -> Exception | None:
    request = elect_leaders.ElectLeadersRequest(partitions=[T0], is_unclean=unclean, timeout_ms=PATIENCE_MS)
    response = await three.brokers[1].serve(elect_leaders.API, request)
    return response.errors[T0]


async def test_the_newest_assignment_counts_though_a_broker_that_missed_it_starts_first(
    three: BrokersOnOneLoop, batch
) -> None:
    await three.create("t", [[1, 2]])
    await until(three, {1, 2})
    await write(three, T0, batch([b"a"]))
    await stop(three, 1)
    await until(three, {2})
    await move(three, T0, (3, 2))
    await until(three, {2, 3})
    await until_kept(three, (3, 2), {})
    await write(three, T0, batch([b"b"]))
    await kill(three)
    three.lose_store()
    await three.start(1, 2)
    assert assigned(three) == [(3, 2)]
    assert info(three, 1).leader == -1
    await three.start(3)
    leader = await until(three, {2, 3})
    assert b"b" in await read(three, leader, T0)
    assert "t-0" in three.folders(1)


async def move(three: BrokersOnOneLoop, name: TopicPartition, target: tuple[int, ...]) -> None:
    controller = next(each.services.controller for each in three.brokers.values() if each.services.controller.is_active)
    answers = await controller.ask(lambda active: active.operations.reassign({name: target}, may_resize=True))
    assert answers == {name: None}
    for broker_id, broker in three.brokers.items():
        metadata = broker.services.metadata
        assert await metadata.wait_until(
            lambda broker_id=broker_id: info(three, broker_id, name).replicas == target, PATIENCE_MS
        )


@pytest.mark.parametrize("is_altered_again", [False, True])
async def test_the_newest_configuration_counts_unless_it_was_changed_since(
    three: BrokersOnOneLoop, *, is_altered_again: bool
) -> None:
    await three.create("t", [[1, 2, 3]], **CONFIGS)
    await until(three, ALL)
    await stop(three, 1)
    await three.brokers[2].services.topics.alter("t", lambda _: {"retention.ms": "7"})
    await until_kept(three, (1, 2, 3), {"retention.ms": "7"})
    await kill(three)
    three.lose_store()
    await three.start(1)
    assert stored(three).load_overrides("t") == CONFIGS
    if is_altered_again:
        await three.brokers[1].services.topics.alter("t", lambda _: {"retention.ms": "8"})
    await three.start(2, 3)
    expected = {"retention.ms": "8" if is_altered_again else "7"}
    for broker in three.brokers.values():
        metadata = broker.services.metadata
        assert await metadata.wait_until(lambda metadata=metadata: metadata.get("t").overrides == expected, PATIENCE_MS)
    assert stored(three).load_overrides("t") == expected


async def test_a_restored_topic_that_is_deleted_does_not_come_back(three: BrokersOnOneLoop, batch) -> None:
    await three.create("t", [[1, 2, 3]])
    await until(three, ALL)
    await kill(three)
    three.lose_store()
    await three.start(3, 1, 2)
    await until(three, ALL)
    await three.brokers[1].services.topics.delete("t")
    await kill(three)
    await three.start(2, 3, 1)
    assert not stored(three).exists("t")
    await patience.until(
        lambda: not any("t" in broker.services.logs.kept_topics for broker in three.brokers.values()),
        "no broker has a copy",
    )
    await kill(three)
    three.lose_store()
    await three.start(2, 3, 1)
    assert not stored(three).exists("t")


async def test_the_store_may_be_lost_again_before_all_brokers_are_back(three: BrokersOnOneLoop, batch) -> None:
    await three.create("t", [[1, 2, 3]])
    await until(three, ALL)
    await write(three, T0, batch([b"a"]))
    await stop(three, 3)
    await until(three, {1, 2})
    await write(three, T0, batch([b"b"]))
    await kill(three)
    for started in ((3, 1), (2,), (3, 2, 1)):
        three.lose_store()
        await three.start(*started)
        if len(started) < 3:
            assert info(three, started[0]).leader == -1
            await kill(three)
    leader = await until(three, ALL)
    assert b"b" in await read(three, leader, T0)


async def test_a_broker_with_a_new_disk_has_nothing_to_compare(three: BrokersOnOneLoop, batch) -> None:
    await three.create("t", [[1, 2, 3]])
    await until(three, ALL)
    await write(three, T0, batch([b"a"]))
    await kill(three)
    three.lose_store()
    three.new_disk(1)
    await three.start(2, 1, 3)  # alone, it would make another cluster
    leader = await until(three, ALL)
    assert leader in {2, 3}
    assert b"a" in await read(three, leader, T0)


async def test_a_topic_is_restored_by_brokers_without_its_folders_too(three: BrokersOnOneLoop, batch) -> None:
    """Otherwise a client that requests it before its broker is back would create another one."""
    await three.create("t", [[3]])
    await three.until_led(T0, 3)
    await write(three, T0, batch([b"a"]))
    await until_kept(three, (3,), {})
    topic_id = three.brokers[1].services.metadata.get("t").topic_id
    await kill(three)
    three.lose_store()
    await three.start(1, 2)
    assert three.brokers[1].services.metadata.get("t").topic_id == topic_id
    await three.start(3)
    await three.until_led(T0, 3)
    assert b"a" in await read(three, 3, T0)
