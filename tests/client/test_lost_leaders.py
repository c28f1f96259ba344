"""Clients wait for a partition without a leader, without delay for the topic's other partitions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from sparklog.base.errors import DuplicateSequenceNumber, NotLeaderOrFollower, OutOfOrderSequenceNumber
from sparklog.base.ids import TopicPartition
from sparklog.client.aio import AsyncConsumer, AsyncProducer
from sparklog.client.producer import sender
from sparklog.client.producer.delivery import NO_OFFSET
from support.brokers.scripted import LOSE_ANSWER, LOSE_LAST, LOSE_REST, ScriptedBroker, running
from support.patience import PATIENCE_MS, PATIENCE_S, until

NO_IDENTITY = -1
ELSEWHERE = 7  # a broker that the cluster does not have
LONG_MS = 2 * PATIENCE_MS


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with running(ScriptedBroker()) as broker:
        yield broker


def producer_of(*brokers: str, **options: Any) -> AsyncProducer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "delivery_timeout_ms": LONG_MS}
    return AsyncProducer(bootstrap_servers=list(brokers), **(quick | options))


@pytest.mark.parametrize("leader", [NO_IDENTITY, ELSEWHERE])
async def test_a_leader_is_asked_for_until_there_is_one(broker: ScriptedBroker, leader: int) -> None:
    broker.leaders.extend([leader] * 3)
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        metadata = await (await producer.send("t", b"v", partition=0))
    assert metadata.offset == 0


async def test_a_leader_that_resigned_is_asked_for_until_there_is_another(broker: ScriptedBroker) -> None:
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        await (await producer.send("t", b"0", partition=0))
        broker.script.append(NotLeaderOrFollower("resigned"))
        broker.leaders.extend([NO_IDENTITY] * 3)
        assert (await (await producer.send("t", b"1", partition=0))).offset == 1


async def test_a_leader_that_lacks_what_was_acknowledged_is_taken_for_a_replaced_one(broker: ScriptedBroker) -> None:
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        await (await producer.send("t", b"0", partition=0))
        broker.script.extend([OutOfOrderSequenceNumber("the last was none")] * 3)
        assert (await (await producer.send("t", b"1", partition=0))).offset == 1
    assert broker.values[TopicPartition("t", 0)] == [b"0", b"1"]


@pytest.mark.slow
async def test_it_is_no_matter_how_often_a_leader_was_looked_for_before_a_replaced_one_answers(
    broker: ScriptedBroker,
) -> None:
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        await (await producer.send("t", b"0", partition=0))
        broker.script.extend(
            [NotLeaderOrFollower("nobody leads")] * 30 + [OutOfOrderSequenceNumber("the last was none")]
        )
        assert (await (await producer.send("t", b"1", partition=0))).offset == 1


async def test_what_a_leader_has_written_is_not_written_again_after_a_replaced_one_has_refused_it(
    broker: ScriptedBroker,
) -> None:
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        await (await producer.send("t", b"0", partition=0))
        broker.script.extend([LOSE_ANSWER, *[OutOfOrderSequenceNumber("the last was none")] * 3])
        assert (await (await producer.send("t", b"1", partition=0))).offset == 1
        assert (await (await producer.send("t", b"2", partition=0))).offset == 2
    assert broker.values[TopicPartition("t", 0)] == [b"0", b"1", b"2"]


async def several_in_flight(producer: AsyncProducer, broker: ScriptedBroker, *steps: Any, count: int = 5) -> list[Any]:
    """Records in a batch each: a first one alone, then `count` others, whose first request meets `steps`."""
    broker.may_answer.clear()
    broker.script.extend([None, *steps])
    first = await producer.send("t", b"0", partition=0)
    await until(lambda: broker.requests, "the first is under way")
    others = [await producer.send("t", b"%d" % number * 100, partition=0) for number in range(1, count + 1)]
    broker.may_answer.set()
    return [first, *others]


@pytest.mark.parametrize("lost", [LOSE_REST, LOSE_LAST])
@pytest.mark.parametrize("count", [5, 12])
async def test_a_new_leader_that_has_copied_only_some_batches_of_a_request_gets_the_others(
    broker: ScriptedBroker, lost: str, count: int
) -> None:
    async with producer_of(broker.address, batch_size=100) as producer, asyncio.timeout(PATIENCE_S):
        sent = await several_in_flight(producer, broker, lost, count=count)
        assert [(await each).offset for each in sent] == list(range(count + 1))
    assert broker.values[TopicPartition("t", 0)] == [b"0", *[b"%d" % number * 100 for number in range(1, count + 1)]]


async def test_a_batch_that_was_written_at_an_offset_which_nobody_remembers_is_written(broker: ScriptedBroker) -> None:
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        broker.script.extend([LOSE_ANSWER, DuplicateSequenceNumber("it was written long ago")])
        assert (await (await producer.send("t", b"0", partition=0))).offset == NO_OFFSET
        assert (await (await producer.send("t", b"1", partition=0))).offset == 1
    assert broker.values[TopicPartition("t", 0)] == [b"0", b"1"]


async def test_batches_that_may_have_been_written_are_given_up_together(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "BEHIND_MS", 40)
    async with producer_of(broker.address, batch_size=100) as producer, asyncio.timeout(PATIENCE_S):
        behind = [OutOfOrderSequenceNumber("the last was none")] * 10_000
        first, *others = await several_in_flight(producer, broker, LOSE_ANSWER, *behind)
        await first
        for each in others:
            with pytest.raises(OutOfOrderSequenceNumber):
                await each
            broker.script.clear()
        assert (await (await producer.send("t", b"6", partition=0))).offset == 6
    values = broker.values[TopicPartition("t", 0)]
    assert len(set(values)) == len(values) == 7


@pytest.mark.parametrize("first", [[], [LOSE_ANSWER]])
async def test_a_sequence_that_stays_out_of_order_is_given_up_and_what_follows_goes_on(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, first: list[str]
) -> None:
    monkeypatch.setattr(sender, "BEHIND_MS", 40)
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        await (await producer.send("t", b"0", partition=0))
        broker.script.extend([*first, *[OutOfOrderSequenceNumber("the last was none")] * 10_000])
        lost, later = [await producer.send("t", value, partition=0) for value in (b"1", b"2")]
        with pytest.raises(OutOfOrderSequenceNumber, match=r"t-0 does not have .* acknowledged before"):
            await lost
        broker.script.clear()
        with contextlib.suppress(OutOfOrderSequenceNumber):  # it may have been sent with the first, or behind it
            await later
        await (await producer.send("t", b"3", partition=0))
    values = broker.values[TopicPartition("t", 0)]
    assert values == sorted(set(values))
    assert {b"0", b"3"} <= set(values)
    assert (b"1" in values) == bool(first)


async def test_partitions_with_a_leader_go_on_while_another_has_none(broker: ScriptedBroker) -> None:
    broker.leaders.extend([NO_IDENTITY] * 100_000)
    async with producer_of(broker.address) as producer, asyncio.timeout(PATIENCE_S):
        stuck = await producer.send("t", b"0", partition=0)
        for number in range(5):
            assert (await (await producer.send("t", b"1", partition=1))).offset == number
        assert not stuck.done()
        broker.leaders.clear()
        assert (await stuck).offset == 0


async def test_a_consumer_reads_partitions_with_a_leader_while_another_has_none(sparklog_broker: Any) -> None:
    async with AsyncProducer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
        await (await producer.send("t", b"0", partition=0))
    async with (
        AsyncConsumer(bootstrap_servers=sparklog_broker.bootstrap, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(PATIENCE_S),
    ):
        real_topic = consumer._cluster._learn_topic

        async def learn(name: str, timeout_ms: int) -> Any:
            picture = await real_topic(name, timeout_ms)
            return type(picture)(name=name, leaders=(*picture.leaders, NO_IDENTITY), learnt_ms=picture.learnt_ms)

        consumer._cluster._learn_topic = learn
        consumer.assign([TopicPartition("t", 1), TopicPartition("t", 0)])
        while not (records := await consumer.poll(1_000)):
            pass
        assert [record.value for record in records] == [b"0"]


async def test_a_broker_that_hangs_is_passed_over_for_one_that_answers(broker: ScriptedBroker) -> None:
    hung = grpc.aio.server()

    async def hang(_: Any, __: Any) -> bytes:
        await asyncio.sleep(3_600)
        return b""

    class Everything(grpc.GenericRpcHandler):
        def service(self, _: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(hang)

    hung.add_generic_rpc_handlers((Everything(),))
    address = f"127.0.0.1:{hung.add_insecure_port('127.0.0.1:0')}"
    await hung.start()
    async with producer_of(address, broker.address, request_timeout_ms=100) as producer, asyncio.timeout(PATIENCE_S):
        assert (await (await producer.send("t", b"v", partition=0))).offset == 0
    await hung.stop(None)
