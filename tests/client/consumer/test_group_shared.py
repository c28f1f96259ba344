"""One group with sparklog's consumer over gRPC and Kafka's clients, with either as the leader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any, Protocol

import confluent_kafka
import kafka
import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import wait_until

pytestmark = pytest.mark.slow

PARTITIONS, RECORDS = 6, 300
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        listeners=("PLAINTEXT://127.0.0.1:0",), group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=3
    ) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: RunningBroker) -> Iterator[str]:
    def make() -> Iterator[str]:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for number in itertools.count():
                admin.create_topic(f"t{number}", partitions=PARTITIONS)
                yield f"t{number}"

    with closing(make()) as names:
        yield names


class Reader(Protocol):
    """A member of the group, of any client library."""

    def poll(self) -> list[tuple[int, int]]:
        """Partition and offset of the polled records."""
        ...

    def assignment(self) -> set[int]:
        """The assigned partitions."""
        ...

    def close(self) -> None: ...


class Ours:
    def __init__(self, broker: RunningBroker, topic: str, strategy: str) -> None:
        self._consumer = Consumer(
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            partition_assignment_strategy=strategy,
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, int]]:
        return [(record.partition, record.offset) for record in self._consumer.poll(50)]

    def assignment(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, broker: RunningBroker, topic: str, strategy: str) -> None:
        modules = {
            "range": "range.RangePartitionAssignor",
            "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
            "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
            "cooperative-sticky": "cooperative_sticky.CooperativeStickyAssignor",
        }
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=str(broker.node.kafka_addresses["PLAINTEXT"]),
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[find(f"kafka.coordinator.assignors.{modules[strategy]}")],
        )

    def poll(self) -> list[tuple[int, int]]:
        # Where a poll ends while it joins, kafka-python takes itself for a member without partitions.
        found = self._consumer.poll(1_000).values()
        return [(record.partition, record.offset) for records in found for record in records]

    def assignment(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class Librdkafka:
    def __init__(self, broker: RunningBroker, topic: str, strategy: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": str(broker.node.kafka_addresses["PLAINTEXT"]),
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "partition.assignment.strategy": strategy,
                "fetch.queue.backoff.ms": 10,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[tuple[int, int]]:
        found = self._consumer.consume(100, 0.05)
        return [(message.partition(), message.offset()) for message in found if not message.error()]

    def assignment(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


def find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(__import__(module, fromlist=[name]), name)


def poll_all(seen: list[tuple[int, int]], readers: list[Reader], done: Callable[[], bool]) -> None:
    """Let the readers poll concurrently until `done`; their records are added to `seen`."""
    with ThreadPoolExecutor(len(readers)) as threads:

        def is_done_or_poll() -> bool:
            if done():
                return True
            for found in threads.map(lambda reader: reader.poll(), readers):
                seen.extend(found)
            return False

        def tell() -> object:
            return [reader.assignment() for reader in readers]

        wait_until(is_done_or_poll, "the group is as the test waits for it", tell=tell, every_s=0)


def fill(broker: RunningBroker, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=1) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


@pytest.mark.parametrize(
    ("theirs", "strategy"),
    [
        (KafkaPython, "range"),
        pytest.param(KafkaPython, "sticky", marks=pytest.mark.soak_only),
        (Librdkafka, "range"),
        (Librdkafka, "roundrobin"),
        (Librdkafka, "cooperative-sticky"),
    ],
)
@pytest.mark.parametrize("ours_leads", [True, False])
def test_our_consumer_and_kafkas_share_a_group(
    broker: RunningBroker, topics: Iterator[str], theirs: Any, strategy: str, ours_leads: bool
) -> None:
    topic = next(topics)
    fill(broker, topic, RECORDS)
    everything = {(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)}
    seen: list[tuple[int, int]] = []
    with ExitStack() as stack:
        readers: list[Reader] = []
        for kind in (Ours, theirs) if ours_leads else (theirs, Ours):
            readers.append(stack.enter_context(closing(kind(broker, topic, strategy))))
            if len(readers) == 1:
                poll_all(seen, readers, lambda: len(readers[0].assignment()) == PARTITIONS)

        poll_all(seen, readers, lambda: [len(reader.assignment()) for reader in readers] == [3, 3])
        poll_all(seen, readers, lambda: everything <= set(seen))
        assert readers[0].assignment() | readers[1].assignment() == set(range(PARTITIONS))

        readers[0].close()
        fill(broker, topic, RECORDS)
        after = {(partition, offset + RECORDS // PARTITIONS) for partition, offset in everything}
        poll_all(seen, readers[1:], lambda: after <= set(seen))

    assert set(seen) == everything | after
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.list_group_offsets(topic)
    ends = {TopicPartition(topic, number): 2 * RECORDS // PARTITIONS for number in range(PARTITIONS)}
    assert {item: found.offset for item, found in offsets.items()} == ends
