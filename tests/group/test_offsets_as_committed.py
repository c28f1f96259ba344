"""Fetches of offsets return commits that are committed in the log, for the present topic."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import CoordinatorNotAvailable, KafkaError, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import ZERO_ID
from sparklog.coordinator.partition_log import PartitionLog
from sparklog.coordinator.runtime import CoordinatorRuntime
from sparklog.group.requests import (
    DeleteGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from sparklog.group.shard import GroupShard
from sparklog.offsets_topic.records import CoordinatorRecord, encode
from support.groups.coordinator import GroupWorld, MemoryLog, SimTopic, SimTopics
from support.replicas import replica_host

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 0)


@pytest.fixture
async def world() -> GroupWorld:
    made = GroupWorld()
    made.topics.find("orders")
    made.topics.find("others")
    return made


def begin_commit(world: GroupWorld, offset: int, partition: TopicPartition = ORDERS) -> asyncio.Task[KafkaError | None]:
    request = OffsetCommit(group_id="g", offsets=[OffsetToCommit(partition=partition, offset=offset)])

    async def commit() -> KafkaError | None:
        try:
            return (await world.host.ask(lambda _, now_ms: world.host.shard.commit(request, now_ms))).errors[partition]
        except KafkaError as error:
            return error

    return asyncio.ensure_future(commit())


def fetch(world: GroupWorld) -> dict[TopicPartition, int]:
    """All that the group has committed, which is what each partition alone says, too."""
    found = world.fetch_offsets(OffsetFetch(group_id="g", partitions=None)).offsets
    alone = world.fetch_offsets(OffsetFetch(group_id="g", partitions=[ORDERS, OTHERS])).offsets
    offsets = {each.partition: each.offset for each in found}
    assert {each.partition: each.offset for each in alone if each.offset >= 0} == offsets
    return offsets


async def test_a_commit_is_shown_once_the_log_has_it_for_good(world: GroupWorld) -> None:
    await begin_commit(world, 5)
    world.log.hold()
    commits = [begin_commit(world, 6), begin_commit(world, 7), begin_commit(world, 1, OTHERS)]
    await world.settle()
    assert fetch(world) == {ORDERS: 5}
    world.log.release()
    assert [await commit for commit in commits] == [None] * 3
    assert fetch(world) == {ORDERS: 7, OTHERS: 1}


async def test_a_commit_that_timed_out_is_not_shown_before_it_is_committed_after_all(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_commit(world, 5)
    world.log.hold()

    async def time_out(self: MemoryLog, offset: int, *, is_new: bool) -> None:
        raise RequestTimedOut("the in-sync replicas took too long")

    monkeypatch.setattr(MemoryLog, "wait_committed", time_out)
    assert isinstance(await begin_commit(world, 6), CoordinatorNotAvailable)
    assert fetch(world) == {ORDERS: 5}
    world.log.release()
    assert fetch(world) == {ORDERS: 6}


def test_too_few_replicas_refuse_new_commits_only() -> None:
    """Offsets that were committed before are fetched, and members of groups keep their membership."""

    async def test(host: replica_host.Host) -> None:
        settings = {"min.insync.replicas": "2"}
        await host.become(1, 0, isr=(1, 2), overrides=settings)
        host.fetched(2, 0)
        log: PartitionLog[CoordinatorRecord] = PartitionLog(
            replica_host.NAME, 0, host.replicas, host.waiting, timeout_ms=5_000, encode=encode
        )
        shard = GroupShard(BrokerConfig(), SimTopics(), lambda: UUID(int=1))
        runtime = CoordinatorRuntime(shard, log, host.clock, asyncio.get_running_loop().call_later)

        async def commit(offset: int) -> None:
            request = OffsetCommit(group_id="g", offsets=[OffsetToCommit(partition=ORDERS, offset=offset)])
            await runtime.ask(lambda _, now_ms: shard.commit(request, now_ms))

        async def check_state(offset: int) -> None:
            await runtime.ask(lambda *_: shard.delete(DeleteGroups(group_ids=["nobody's"])))  # writes nothing
            await runtime.committed()
            runtime.settle()
            fetched = shard.fetch_offsets(OffsetFetch(group_id="g", partitions=[ORDERS]))
            assert [each.offset for each in fetched.offsets] == [offset]

        committing = asyncio.ensure_future(commit(5))
        await asyncio.sleep(0)
        host.fetched(2, 1)
        await committing
        await check_state(5)
        unanswered = asyncio.ensure_future(commit(6))
        await asyncio.sleep(0)
        await host.become(1, 0, isr=(1,), overrides=settings)
        with pytest.raises(CoordinatorNotAvailable):
            await unanswered  # one replica has it
        await check_state(6)
        with pytest.raises(CoordinatorNotAvailable):
            await commit(7)
        await check_state(6)

    replica_host.run(test)


async def test_a_deleted_group_keeps_its_offsets_until_that_is_committed(world: GroupWorld) -> None:
    await begin_commit(world, 5)
    world.log.hold()
    shard = world.host.shard
    deleting = asyncio.ensure_future(world.host.ask(lambda *_: shard.delete(DeleteGroups(group_ids=["g"]))))
    await world.settle()
    assert fetch(world) == {ORDERS: 5}
    world.log.release()
    await deleting
    assert fetch(world) == {}


async def test_an_answer_without_records_waits_for_those_before_it(world: GroupWorld) -> None:
    world.log.hold()
    committing = begin_commit(world, 5)
    beating = asyncio.ensure_future(
        world.host.ask(lambda *_: world.host.shard.delete(DeleteGroups(group_ids=["nobody's"])))
    )
    await world.settle()
    assert not committing.done()
    assert not beating.done()
    world.log.release()
    await asyncio.gather(committing, beating)


async def test_commits_for_a_topic_are_not_returned_for_a_new_topic_of_its_name(world: GroupWorld) -> None:
    await begin_commit(world, 5)
    await begin_commit(world, 1, OTHERS)
    world.topics.make_again("orders")
    assert fetch(world) == {OTHERS: 1}
    await begin_commit(world, 2)
    assert fetch(world) == {ORDERS: 2, OTHERS: 1}


@pytest.mark.parametrize("how", ["loaded", "expired"])
async def test_offsets_that_could_not_be_deleted_with_their_topic_are_deleted_later(
    world: GroupWorld, how: str
) -> None:
    await begin_commit(world, 5)
    world.topics.make_again("orders")
    if how == "loaded":
        world.move()
    else:
        await world.host.write(world.host.shard.expire(world.clock.time_ms()))
    assert dict(world.host.shard.offsets.of("g")) == {}


async def test_the_end_of_a_topic_leaves_what_was_committed_for_its_successor(world: GroupWorld) -> None:
    old = world.topics.find("orders").topic_id
    world.topics.make_again("orders")
    await begin_commit(world, 3)
    await world.host.write(world.host.shard.delete_topics({"orders": old}))
    assert fetch(world) == {ORDERS: 3}
    await world.host.write(world.host.shard.delete_topics({"orders": world.topics.find("orders").topic_id}))
    assert fetch(world) == {}


@pytest.mark.parametrize("has_successor", [True, False])
async def test_a_commit_without_an_id_goes_with_its_topic(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, *, has_successor: bool
) -> None:
    monkeypatch.setitem(world.topics, "orders", SimTopic("orders", range(8), ZERO_ID))
    await begin_commit(world, 3)
    successor = SimTopic("orders", range(8), UUID(int=10)) if has_successor else None
    monkeypatch.setattr(type(world.topics), "find", lambda *_: successor)
    await world.host.write(world.host.shard.delete_topics({"orders": UUID(int=9)}))
    assert dict(world.host.shard.offsets.of("g")) == {}
