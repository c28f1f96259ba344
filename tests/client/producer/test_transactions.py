"""Transactions of the Python producer against a real broker: seen as a whole or not at all, by our own consumers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.base.errors import (
    ConfigError,
    IllegalGeneration,
    InvalidTxnState,
    MessageTooLarge,
    ProducerFenced,
    TransactionAbortable,
    UnknownMemberId,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, GroupMetadata, Producer
from sparklog.client.aio import AsyncProducer
from sparklog.testing import RunningBroker
from support.names import unique
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]


@pytest.fixture
def topics(admin: Admin) -> tuple[str, str]:
    for name in ("t", "u"):
        admin.create_topic(name, partitions=3)
    return "t", "u"


@pytest.fixture
def producer(new_producer: NewProducer) -> Producer:
    return new_producer(transactional_id=unique("id"))


@pytest.fixture
def read(new_consumer: NewConsumer) -> Callable[..., list[bytes]]:
    """All values of topics up to the ends that a reader of this isolation level sees, sorted."""

    def read(*names: str, isolation_level: str = "read_committed") -> list[bytes]:
        with new_consumer(isolation_level=isolation_level) as consumer:
            found: list[bytes] = []
            partitions = [TopicPartition(name, number) for name in names for number in range(3)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(each) < end for each, end in ends.items()):
                found += [record.value for record in consumer.poll(PATIENCE_MS)]
        return sorted(found)

    return read


def send(producer: Producer, *values: bytes, topics: tuple[str, str] = ("t", "u")) -> None:
    for number, value in enumerate(values):
        producer.send(topics[number % 2], value, partition=number % 3)


def test_a_transaction_over_topics_and_partitions_is_seen_once_it_is_committed(
    topics: tuple[str, str], producer: Producer, read: Callable[..., list[bytes]]
) -> None:
    producer.begin()
    send(producer, b"1", b"2", b"3", b"4", b"5", b"6")
    producer.flush()
    assert read("t", "u") == []
    assert read("t", "u", isolation_level="read_uncommitted") == [b"1", b"2", b"3", b"4", b"5", b"6"]

    producer.commit()

    assert read("t", "u") == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_an_aborted_transaction_is_never_seen_and_the_next_ones_are(
    topics: tuple[str, str], producer: Producer, read: Callable[..., list[bytes]]
) -> None:
    for value in (b"a", b"x", b"b", b"y", b"c"):
        producer.begin()
        send(producer, value, value, value)
        if value in (b"x", b"y"):
            producer.flush()
            producer.abort()
        else:
            producer.commit()

    assert read("t", "u") == sorted([b"a", b"b", b"c"] * 3)


def test_records_that_were_not_sent_yet_are_dropped_by_an_abort(
    topics: tuple[str, str], new_producer: NewProducer, read: Callable[..., list[bytes]]
) -> None:
    producer = new_producer(transactional_id=unique("id"), linger_ms=60_000)
    producer.begin()
    delivery = producer.send("t", b"dropped", partition=0)
    producer.abort()

    with pytest.raises(TransactionAbortable):
        delivery.result(PATIENCE_S)
    producer.begin()
    producer.send("t", b"kept", partition=0)
    producer.commit()
    assert read("t", isolation_level="read_uncommitted") == [b"kept"]


def test_a_block_commits_at_its_end_and_aborts_after_an_exception(
    topics: tuple[str, str], producer: Producer, read: Callable[..., list[bytes]]
) -> None:
    with producer.transaction():
        producer.send("t", b"kept", partition=0)

    def fail() -> None:
        with producer.transaction():
            producer.send("t", b"lost", partition=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert read("t") == [b"kept"]


def test_an_empty_transaction_can_be_committed_and_aborted(topics: tuple[str, str], producer: Producer) -> None:
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()


def test_the_next_producer_of_an_id_aborts_what_the_former_left_and_fences_it(
    topics: tuple[str, str], new_producer: NewProducer, read: Callable[..., list[bytes]]
) -> None:
    first, second = (new_producer(transactional_id="same") for _ in range(2))
    first.begin()
    first.send("t", b"lost", partition=0)
    first.flush()

    second.begin()
    second.send("t", b"kept", partition=0)
    second.commit()

    with pytest.raises(ProducerFenced, match="another one with this id has started"):
        first.commit()
    with pytest.raises(ProducerFenced):
        first.begin()
    assert read("t") == [b"kept"]


def test_what_does_not_fit_is_refused_outside_and_inside_of_a_transaction(
    topics: tuple[str, str], producer: Producer, new_producer: NewProducer
) -> None:
    for refused in (lambda: producer.send("t", b"x"), producer.commit, producer.abort):
        with pytest.raises(InvalidTxnState, match="call begin"):
            refused()
    producer.begin()
    with pytest.raises(InvalidTxnState, match="open already"):
        producer.begin()
    producer.abort()
    with pytest.raises(InvalidTxnState, match="give it a transactional_id"):
        new_producer().begin()
    with pytest.raises(ConfigError, match="acks = 1: it must be all with transactional_id"):
        new_producer(transactional_id="x", acks=1)


def test_a_record_that_fails_leaves_a_transaction_that_can_only_be_aborted(
    admin: Admin, topics: tuple[str, str], new_producer: NewProducer, read: Callable[..., list[bytes]]
) -> None:
    admin.alter_configs("u", set={"max.message.bytes": "1000"})
    producer = new_producer(transactional_id=unique("id"))
    producer.begin()
    producer.send("t", b"lost", partition=0)
    delivery = producer.send("u", bytes(5_000), partition=0)
    with pytest.raises(MessageTooLarge):
        delivery.result(PATIENCE_S)

    with pytest.raises(TransactionAbortable, match="can only be aborted"):
        producer.commit()
    producer.abort()

    producer.begin()
    producer.send("t", b"kept", partition=0)
    producer.commit()
    assert read("t") == [b"kept"]


def test_offsets_count_once_the_transaction_is_committed(
    topics: tuple[str, str], producer: Producer, new_consumer: NewConsumer
) -> None:
    partition = TopicPartition("t", 0)
    reader = new_consumer(group_id=unique("g"))
    group = reader.config.group_id

    producer.begin()
    producer.send_offsets({partition: 5}, group)
    producer.abort()
    assert reader.committed([partition]) == {partition: None}

    producer.begin()
    producer.send_offsets({partition: 7}, group)
    producer.commit()
    wait_until(lambda: reader.committed([partition])[partition], "the offset is committed")
    assert reader.committed([partition])[partition].offset == 7


def test_a_member_that_is_no_longer_in_its_group_cannot_commit(
    topics: tuple[str, str], producer: Producer, new_consumer: NewConsumer
) -> None:
    consumer = new_consumer(group_id=unique("g"))
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(100) or consumer.assignment(), "the consumer is in its group")
    member = consumer.group_metadata()
    assert member.generation >= 0
    partition = TopicPartition("t", 0)
    with producer.transaction():
        producer.send_offsets({partition: 1}, member)

    producer.begin()
    with pytest.raises((IllegalGeneration, UnknownMemberId)):
        producer.send_offsets({partition: 9}, GroupMetadata(member.group_id, member.generation - 1, member.member_id))
    with pytest.raises(TransactionAbortable):
        producer.commit()
    producer.abort()
    wait_until(lambda: consumer.committed([partition])[partition], "the offset is committed")
    assert consumer.committed([partition])[partition].offset == 1


async def test_the_asynchronous_producer_has_them_too(
    sparklog_broker: RunningBroker, topics: tuple[str, str], read: Callable[..., list[bytes]]
) -> None:
    async with AsyncProducer(bootstrap_servers=sparklog_broker.bootstrap, transactional_id="async") as producer:
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("t", b"b" * (1 // 0), partition=0)
    assert read("t") == [b"a"]
