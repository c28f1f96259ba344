"""Order within a partition after all kinds of errors, with a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from sparklog.base.errors import (
    BufferExhausted,
    CorruptRecord,
    DeliveryTimeout,
    InvalidRecord,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from sparklog.base.ids import TopicPartition
from sparklog.client.aio import AsyncProducer
from support.brokers.scripted import HANG, LOSE_ANSWER, REFUSE_CALL, ScriptedBroker, Step, running
from support.patience import PATIENCE_MS, PATIENCE_S, until

pytestmark = pytest.mark.slow

PLACE = TopicPartition("t", 0)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with running(ScriptedBroker()) as broker:
        yield broker


def producer_of(broker: ScriptedBroker, **options: Any) -> AsyncProducer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    return AsyncProducer(bootstrap_servers=broker.address, **(quick | options))


@pytest.mark.parametrize("step", [NotLeaderOrFollower("moved"), NotEnoughReplicas("few"), CorruptRecord("noise"),
                                  RequestTimedOut("slow"), REFUSE_CALL])  # fmt: skip
async def test_a_retriable_error_is_tried_again_until_it_works(broker: ScriptedBroker, step: Step) -> None:
    broker.script.extend([step] * 3)
    async with producer_of(broker) as producer:
        metadata = await (await producer.send("t", b"v", partition=0))

    assert metadata.offset == 0
    assert broker.requests == 4
    assert broker.values == {PLACE: [b"v"]}


async def test_another_error_is_final(broker: ScriptedBroker) -> None:
    broker.script.append(InvalidRecord("not this"))
    async with producer_of(broker) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        with pytest.raises(InvalidRecord, match="not this"):
            await delivery

    assert broker.requests == 1


async def test_retries_are_counted(broker: ScriptedBroker) -> None:
    broker.script.extend([NotEnoughReplicas("few")] * 3)
    async with producer_of(broker, retries=2) as producer:
        delivery = await producer.send("t", b"v", partition=0)
        with pytest.raises(NotEnoughReplicas):
            await delivery

    assert broker.requests == 3


async def test_a_request_that_hangs_ends_with_the_records_time(broker: ScriptedBroker) -> None:
    broker.script.append(HANG)
    producer = producer_of(broker, delivery_timeout_ms=200)
    delivery = await producer.send("t", b"v", partition=0)

    with pytest.raises(DeliveryTimeout, match="not acknowledged within 200 ms"):
        await asyncio.wait_for(_known(delivery), PATIENCE_S)
    await producer.close()


async def test_a_broker_that_hangs_is_named_when_the_buffer_is_full(broker: ScriptedBroker) -> None:
    """No request has failed yet: the time-out of requests is longer than max_block_ms."""
    producer = producer_of(broker, buffer_memory=2_000, max_block_ms=500, acks="1")
    await (await producer.send("t", b"v", partition=0))
    assert producer.unacknowledged().records == 0
    broker.script.append(HANG)
    await producer.send("t", b"x" * 1_500, partition=0)
    await until(lambda: broker.requests == 2, "the request has come")

    with pytest.raises(BufferExhausted, match=rf": {broker.address} has not answered for \d+\.\d s$"):
        await producer.send("t", b"x" * 1_500, partition=0)
    waiting = producer.unacknowledged()
    assert (waiting.records, waiting.error, waiting.silent) == (1, "", broker.address)
    with pytest.raises(DeliveryTimeout, match=f"{broker.address} has not answered"):
        await producer.flush(10)
    await producer.close(timeout_ms=0)


async def test_a_time_out_is_logged_once_for_a_partition(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.id_script.extend([NotEnoughReplicas("few")] * 10_000)
    producer = producer_of(broker, delivery_timeout_ms=200, request_timeout_ms=100, batch_size=100)
    deliveries = [await producer.send("t", b"x" * 80, partition=0) for _ in range(20)]
    for delivery in deliveries:
        with pytest.raises(DeliveryTimeout):
            await asyncio.wait_for(_known(delivery), PATIENCE_S)
    assert caplog.text.count("were not delivered") < len(deliveries) / 2
    await producer.close()


async def test_records_behind_one_that_is_retried_wait_for_it(broker: ScriptedBroker) -> None:
    broker.script.extend([NotEnoughReplicas("few"), LOSE_ANSWER, NotEnoughReplicas("few"), REFUSE_CALL])
    values = [b"%d" % number for number in range(50)]
    async with producer_of(broker, batch_size=200) as producer:
        for value in values:
            await producer.send("t", value, partition=0)
            await asyncio.sleep(0)

    assert broker.values[PLACE] == values


@pytest.mark.parametrize("seed", range(4))
async def test_order_is_kept_through_any_mixture_of_failures(broker: ScriptedBroker, seed: int) -> None:
    random = Random(seed)
    steps: list[Step] = [None, LOSE_ANSWER, REFUSE_CALL, NotEnoughReplicas("few"), NotLeaderOrFollower("moved")]
    broker.script.extend(random.choices(steps, k=60))
    broker.max_batch_bytes = 1_500
    broker.answer_after = 0.001
    sent: dict[TopicPartition, list[bytes]] = {TopicPartition("t", 0): [], TopicPartition("t", 1): []}
    async with producer_of(broker, batch_size=2_000, max_request_size=5_000) as producer:
        deliveries = []
        for number in range(600):
            place = random.choice(list(sent))
            value = b"%04d" % number + b"x" * random.randrange(200)
            sent[place].append(value)
            deliveries.append(await producer.send("t", value, partition=place.partition))
            if number % 10 == 0:
                await asyncio.sleep(0.001)
        await producer.flush(PATIENCE_MS)
        offsets = [(await delivery).offset for delivery in deliveries]

    for place, values in sent.items():
        assert broker.values[place] == values
    assert min(offsets) >= 0
    assert broker.most_in_flight == 1


async def test_requests_for_other_partitions_do_not_wait(broker: ScriptedBroker) -> None:
    broker.script.append(HANG)
    producer = producer_of(broker)
    await producer.send("t", b"stuck", partition=0)
    await until(lambda: broker.requests, "the request that hangs is there")

    assert (await (await producer.send("t", b"free", partition=1))).offset == 0
    await producer.close(timeout_ms=0)


async def _known(delivery: Any) -> Any:
    return await delivery
