"""Repeated batches are written once: with a scripted broker, and with a killed one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sparklog.base.errors import (
    ConfigError,
    CoordinatorLoadInProgress,
    DeliveryTimeout,
    InvalidRecord,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer, Producer
from sparklog.client.aio import AsyncProducer
from sparklog.client.config import ProducerConfig
from sparklog.client.producer.accumulator import LAST_EPOCH
from sparklog.log.producers.producer_state import ProducerState
from support.brokers.scripted import HANG, LOSE_ANSWER, REFUSE_CALL, ScriptedBroker, Step, running
from support.patience import PATIENCE_S
from support.processes.broker import BrokerProcess
from support.processes.lossy_proxy import LossyProxy

pytestmark = pytest.mark.slow

PLACE = TopicPartition("t", 0)
RECORDS = 3_000
KILL_AT = (800, 1_600, 2_400)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with running(ScriptedBroker()) as broker:
        yield broker


def producer_of(broker: ScriptedBroker, **options: Any) -> AsyncProducer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    return AsyncProducer(bootstrap_servers=broker.address, **(quick | options))


def state_of(broker: ScriptedBroker, producer_id: int = 1) -> ProducerState:
    return broker.producers[PLACE].get(producer_id)


async def test_a_record_whose_answer_was_lost_is_written_once(broker: ScriptedBroker) -> None:
    broker.script.extend([LOSE_ANSWER] * 3)
    async with producer_of(broker) as producer:
        metadata = await (await producer.send("t", b"v", partition=0))
    assert metadata.offset == 0
    assert broker.requests == 4
    assert broker.values == {PLACE: [b"v"]}


@pytest.mark.parametrize("seed", range(3))
async def test_every_record_is_written_once_whatever_gets_lost(broker: ScriptedBroker, seed: int) -> None:
    chance = Random(seed)
    faults: list[Step] = [LOSE_ANSWER, LOSE_ANSWER, REFUSE_CALL, NotLeaderOrFollower("moved"), NotEnoughReplicas("few")]
    broker.script.extend(chance.choice((None, *faults)) for _ in range(60))
    async with producer_of(broker, batch_size=200, max_request_size=1_000) as producer:
        deliveries = [
            await producer.send("t", b"%d" % number, partition=number % 2) for number in range(300)
        ]  # fmt: skip
        offsets = [(await each).offset for each in deliveries]
    for partition in range(2):
        assert broker.values[TopicPartition("t", partition)] == [b"%d" % number for number in range(partition, 300, 2)]
    assert offsets == [number // 2 for number in range(300)]


async def test_records_wait_until_there_is_a_producer_id(broker: ScriptedBroker) -> None:
    broker.id_script.extend([REFUSE_CALL, CoordinatorLoadInProgress("not yet"), REFUSE_CALL])
    async with producer_of(broker) as producer:
        assert (await (await producer.send("t", b"v", partition=0))).offset == 0
    assert state_of(broker).last_sequence == 0


async def test_a_record_that_waits_for_a_producer_id_in_vain_says_so(broker: ScriptedBroker) -> None:
    broker.id_script.extend([CoordinatorLoadInProgress("not yet")] * 1_000)
    async with producer_of(broker, delivery_timeout_ms=100) as producer:
        with pytest.raises(DeliveryTimeout, match="not yet"):
            await (await producer.send("t", b"v", partition=0))


async def test_after_a_failure_the_partition_goes_on_with_the_next_epoch(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as producer:
        await (await producer.send("t", b"0", partition=0))
        broker.script.append(InvalidRecord("not this"))
        with pytest.raises(InvalidRecord):
            await (await producer.send("t", b"1", partition=0))
        await (await producer.send("t", b"2", partition=0))
        assert (state_of(broker).epoch, state_of(broker).last_sequence) == (1, 0)
        await (await producer.send("t", b"3", partition=0))
    assert broker.values == {PLACE: [b"0", b"2", b"3"]}
    assert broker.producer_ids == 1


async def test_a_partition_without_another_epoch_goes_on_with_another_producer_id(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as producer:
        await (await producer.send("t", b"0", partition=0))
        queue = producer._accumulator.topics["t"].queues[0]
        queue.identity, queue.next_sequence = queue.identity._replace(epoch=LAST_EPOCH), 0
        broker.script.append(InvalidRecord("not this"))
        with pytest.raises(InvalidRecord):
            await (await producer.send("t", b"1", partition=0))
        await (await producer.send("t", b"2", partition=0))
    assert broker.values == {PLACE: [b"0", b"2"]}
    assert (state_of(broker, 2).epoch, state_of(broker, 2).last_sequence) == (0, 0)


async def test_records_behind_one_that_timed_out_are_written_once(broker: ScriptedBroker) -> None:
    broker.script.extend([None, LOSE_ANSWER, HANG])
    async with producer_of(broker, batch_size=1) as producer:
        await (await producer.send("t", b"0", partition=0))
        lasting, producer._accumulator._delivery_timeout_ms = producer._accumulator._delivery_timeout_ms, 1_000
        lost = await producer.send("t", b"1", partition=0)
        with pytest.raises(DeliveryTimeout):
            await lost
        producer._accumulator._delivery_timeout_ms = lasting
        await (await producer.send("t", b"2", partition=0))
    assert broker.values == {PLACE: [b"0", b"1", b"2"]}
    assert state_of(broker).epoch == 1


async def test_a_batch_that_is_split_keeps_its_numbers(broker: ScriptedBroker) -> None:
    broker.max_batch_bytes = 500
    broker.script.extend([None, None, LOSE_ANSWER, LOSE_ANSWER])
    async with producer_of(broker, linger_ms=50) as producer:
        for number in range(40):
            await producer.send("t", b"%04d" % number * 10, partition=0)
        await producer.flush()
    assert broker.values == {PLACE: [b"%04d" % number * 10 for number in range(40)]}
    assert (state_of(broker).epoch, state_of(broker).last_sequence) == (0, 39)


async def test_without_idempotence_nothing_is_numbered(broker: ScriptedBroker) -> None:
    for options in ({"enable_idempotence": False}, {"acks": "1"}):
        async with producer_of(broker, **options) as producer:
            await (await producer.send("t", b"v", partition=0))
    assert broker.producer_ids == 0
    assert len(broker.producers[PLACE]) == 0


@pytest.mark.parametrize("option", [{"acks": "1"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}])
def test_idempotence_is_on_where_nothing_speaks_against_it(option: dict[str, Any]) -> None:
    assert ProducerConfig.parse({}).enable_idempotence
    assert not ProducerConfig.parse(option).enable_idempotence
    with pytest.raises(ConfigError, match=next(iter(option))):
        ProducerConfig.parse(option | {"enable_idempotence": True})


@pytest.fixture
def proxy() -> Iterator[LossyProxy]:
    proxy = LossyProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def process(tmp_path: Path, proxy: LossyProxy) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, f"grpc.advertised.listener={proxy.address}")
    proxy.target = process.grpc
    process.start()
    yield process
    process.kill()


@pytest.mark.slow
def test_every_record_is_there_once_after_kill_9_with_answers_lost(process: BrokerProcess, proxy: LossyProxy) -> None:
    deliveries = []
    options = {"linger_ms": 1, "batch_size": 2_000, "request_timeout_ms": 5_000}
    with Producer(bootstrap_servers=proxy.address, **options) as producer:
        deliveries.append(producer.send("t", b"0", partition=0))
        deliveries[0].result(PATIENCE_S)
        for number in range(1, RECORDS):
            if number in KILL_AT:
                proxy.lose_answers()
            deliveries.append(producer.send("t", b"%d" % number, partition=0))
            if number % 20 == 0:
                time.sleep(0.002)  # spreads the records over the time in which the broker dies
            if number - 100 in KILL_AT:
                assert proxy.wait_for_loss(PATIENCE_S)
                process.kill()
                process.start()
                proxy.restore()
        offsets = [each.result(PATIENCE_S).offset for each in deliveries]

    with Consumer(bootstrap_servers=process.grpc, auto_offset_reset="earliest") as consumer:
        consumer.assign([PLACE])
        end = consumer.end_offsets([PLACE])[PLACE]
        found: list[int] = []
        for _ in range(10_000):
            if len(found) >= end:
                break
            found += [int(record.value) for record in consumer.poll()]
    assert found == list(range(RECORDS))
    assert offsets == list(range(RECORDS))
