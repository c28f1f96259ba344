"""Waiting fetches: the cost of an append while many of them wait for many partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest

from sparklog.broker.apis import fetch
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from support.brokers.most_calls import fewest_calls
from support.kafka.connection import Wire
from support.logs.builders import batch
from support.patience import PATIENCE_MS, wait_until

pytestmark = pytest.mark.slow

PRODUCE, FETCH = 0, 1
WAITING = 20
MOST_CALLS_PER_FETCH = 400
"""Far fewer than to read each of its partitions, or even to name them."""
ALWAYS = 2_000_000_000
"""More bytes than ever come."""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as started, grpc.insecure_channel(started.bootstrap) as channel:
        topic = {"name": "t", "partitions": 3}
        admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic]))
        yield started


@pytest.mark.parametrize("partitions", [fetch.TOGETHER - 1, fetch.TOGETHER + 1])
def test_an_append_costs_a_waiting_fetch_one_partition(broker: RunningBroker, partitions: int) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(address(broker))) for _ in range(WAITING)]
        for wire in wires:
            wire.write(FETCH, 11, **all_of(partitions))
        cost_of_appends(broker, stack.enter_context(Wire(address(broker))))


def test_an_append_costs_a_waiting_grpc_fetch_one_partition(broker: RunningBroker) -> None:
    topic = {"name": "many", "partitions": 400}
    parts = [{"topic": "t", "partition": 0}] + [{"topic": "many", "partition": number} for number in range(400)]
    with grpc.insecure_channel(broker.bootstrap) as channel, Wire(address(broker)) as wire:
        admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic]))
        wanted = log_pb2.FetchRequest(partitions=parts, min_bytes=ALWAYS, max_bytes=ALWAYS, max_wait_ms=PATIENCE_MS)
        fetches = [log_pb2_grpc.LogStub(channel).Fetch.future(wanted) for _ in range(WAITING)]
        cost_of_appends(broker, wire)
        for each in fetches:
            each.cancel()


def cost_of_appends(broker: RunningBroker, wire: Wire) -> None:
    wait_until(lambda: broker.node.broker.services.waiting.waiting == WAITING, "the fetches wait")
    append(wire)
    most = fewest_calls(broker, lambda: append(wire))
    assert most.total < WAITING * MOST_CALLS_PER_FETCH
    assert broker.node.broker.services.waiting.waiting == WAITING


@pytest.mark.parametrize("partitions", [3, fetch.TOGETHER + 1])
def test_a_fetch_ends_with_the_append_that_makes_it_enough(broker: RunningBroker, partitions: int) -> None:
    size = len(bytes(batch(1)))
    with Wire(address(broker)) as reading, Wire(address(broker)) as wire:
        append(wire, 1)
        reading.write(FETCH, 11, **all_of(partitions, min_bytes=3 * size))
        wait_until(lambda: broker.node.broker.services.waiting.waiting == 1, "the fetches wait")
        append(wire, 0)
        assert broker.node.broker.services.waiting.waiting == 1
        append(wire, 1)
        [topic] = reading.read(FETCH, 11, 1).responses
        found = {part.partition_index: len(part.records or b"") for part in topic.partitions if part.records}
        assert found == {0: size, 1: 2 * size}


def test_waiting_fetches_are_all_answered_though_few_in_a_turn(broker: RunningBroker) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(address(broker))) for _ in range(WAITING)]
        for wire in wires:
            wire.write(FETCH, 11, **all_of(fetch.TOGETHER, min_bytes=1))
        wait_until(lambda: broker.node.broker.services.waiting.waiting == WAITING, "the fetches wait")
        append(stack.enter_context(Wire(address(broker))))
        for wire in wires:
            assert wire.read(FETCH, 11, 1).responses[0].partitions[0].high_watermark == 1


def address(broker: RunningBroker) -> tuple[str, int]:
    host, _, port = broker.kafka.rpartition(":")
    return host, int(port)


def append(wire: Wire, partition: int = 0) -> None:
    data = {"index": partition, "records": bytes(batch(1))}
    done = wire.send(
        PRODUCE, 9, transactional_id=None, acks=-1, timeout=PATIENCE_MS,
        topic_data=[{"name": "t", "partition_data": [data]}],
    )  # fmt: skip
    assert done.responses[0].partition_responses[0].error_code == 0


def all_of(partitions: int, min_bytes: int = ALWAYS) -> dict:
    """A fetch of the topic's three partitions, and of missing ones."""
    asked = [
        {
            "partition": number, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        }
        for number in range(partitions)
    ]  # fmt: skip
    return {
        "replica_id": -1, "max_wait": PATIENCE_MS, "min_bytes": min_bytes, "max_bytes": ALWAYS, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": "t", "partitions": asked}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
