"""Transactions of the Python producer against a real broker: atomic for sparklog's consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

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
    """All values of topics for a reader of this isolation level, sorted, after the end of transactions."""

    def read(*names: str, isolation_level: str = "read_committed", is_open: bool = False) -> list[bytes]:
        partitions = [TopicPartition(name, number) for name in names for number in range(3)]
        with (
            new_consumer(isolation_level=isolation_level) as consumer,
            new_consumer(isolation_level="read_uncommitted") as all_reader,
        ):
            if not is_open:  # markers are written after the answer
                wait_until(
                    lambda: consumer.end_offsets(partitions) == all_reader.end_offsets(partitions),
                    "no marker is missing",
                )
            found: list[bytes] = []
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(each) < end for each, end in ends.items()):
                found += [record.value for record in consumer.poll(PATIENCE_MS)]
        return sorted(found)

    return read


@pytest.fixture
def impatient_broker() -> Iterator[RunningBroker]:
    """A broker that aborts transactions soon after their time-out."""
    with start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=50) as broker:
        yield broker


def send(producer: Producer, *values: bytes, topics: tuple[str, str] = ("t", "u")) -> None:
    for number, value in enumerate(values):
        producer.send(topics[number % 2], value, partition=number % 3)


def test_a_transaction_over_topics_and_partitions_is_seen_once_it_is_committed(
    topics: tuple[str, str], producer: Producer, read: Callable[..., list[bytes]]
) -> None:
    producer.begin()
    send(producer, b"1", b"2", b"3", b"4", b"5", b"6")
    producer.flush()
    assert read("t", "u", is_open=True) == []
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


def test_an_empty_transaction_can_be_committed_and_aborted(
    topics: tuple[str, str], producer: Producer, read: Callable[..., list[bytes]]
) -> None:
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    with producer.transaction():
        producer.send("t", b"kept", partition=0)
    assert read("t") == [b"kept"]


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


def test_a_block_that_cannot_be_committed_is_aborted(
    admin: Admin, topics: tuple[str, str], new_producer: NewProducer, read: Callable[..., list[bytes]]
) -> None:
    admin.alter_configs("u", set={"max.message.bytes": "1000"})
    producer = new_producer(transactional_id=unique("id"))

    def fail() -> None:
        with producer.transaction():
            producer.send("t", b"lost", partition=0)
            producer.send("u", bytes(5_000), partition=0)

    with pytest.raises(TransactionAbortable, match="can only be aborted"):
        fail()
    with producer.transaction():
        producer.send("t", b"kept", partition=0)
    assert read("t") == [b"kept"]


def test_a_block_may_end_its_transaction_itself(
    topics: tuple[str, str], producer: Producer, read: Callable[..., list[bytes]]
) -> None:
    with producer.transaction():
        producer.send("t", b"kept", partition=0)
        producer.commit()
    with producer.transaction():
        producer.send("t", b"lost", partition=0)
        producer.abort()
    assert read("t") == [b"kept"]


def test_a_producer_that_is_closed_aborts_what_is_open(
    topics: tuple[str, str], new_producer: NewProducer, read: Callable[..., list[bytes]]
) -> None:
    with new_producer(transactional_id=unique("id")) as producer:
        producer.begin()
        producer.send("t", b"lost", partition=0)
        producer.flush()

    new_producer().send("t", b"behind it", partition=0).result(PATIENCE_S)
    assert read("t") == [b"behind it"]


def test_a_record_that_comes_while_its_transaction_is_committed_is_refused(
    topics: tuple[str, str], new_producer: NewProducer, read: Callable[..., list[bytes]]
) -> None:
    producer = new_producer(transactional_id=unique("id"), linger_ms=60_000)
    refused: list[str] = []

    def send_another(*_: object) -> None:
        try:
            producer.send("t", b"too late", partition=0)
        except InvalidTxnState as error:
            refused.append(str(error))

    producer.begin()
    producer.send("t", b"kept", partition=0, on_delivery=send_another)
    producer.commit()

    assert refused == [
        "a transaction is being committed: call commit() again if that has failed, as its outcome is not known"
    ]
    assert read("t", isolation_level="read_uncommitted") == [b"kept"]


def test_a_transaction_that_was_open_for_too_long_is_aborted_and_the_producer_goes_on(
    impatient_broker: RunningBroker,
) -> None:
    bootstrap = impatient_broker.bootstrap
    partition = TopicPartition("t", 0)
    options = {"bootstrap_servers": bootstrap, "linger_ms": 1}
    with (
        Producer(**options, transactional_id="slow", transaction_timeout_ms=1) as producer,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        producer.begin()
        producer.send("t", b"lost", partition=0).result(PATIENCE_S)
        wait_until(lambda: consumer.end_offsets([partition])[partition] == 2, "the transaction is aborted")
        with pytest.raises(TransactionAbortable, match="open for longer than transaction_timeout_ms = 1"):
            producer.commit()
        producer.abort()

        while True:  # this one, too, may be open for too long
            try:
                with producer.transaction():
                    producer.send("t", b"kept", partition=0)
                break
            except TransactionAbortable:
                continue
        consumer.assign([partition])
        found = wait_until(lambda: consumer.poll(PATIENCE_MS), "the next transaction is read")
        assert [record.value for record in found] == [b"kept"]


def test_a_consumer_that_has_left_its_group_names_no_member(topics: tuple[str, str], new_consumer: NewConsumer) -> None:
    consumer = new_consumer(group_id=unique("g"))
    assert consumer.group_metadata() == GroupMetadata(consumer.config.group_id)
    consumer.subscribe(["t"])
    with pytest.raises(UnknownMemberId, match="poll first"):
        consumer.group_metadata()


def test_after_an_abort_a_consumer_goes_back_to_what_is_committed(
    topics: tuple[str, str], producer: Producer, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    with new_producer() as feeder:
        for value in (b"1", b"2", b"3"):
            feeder.send("t", value, partition=0)
    consumer = new_consumer(group_id=unique("g"), enable_auto_commit=False)
    partition = TopicPartition("t", 0)
    consumer.assign([partition])

    def read_from_there(count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(PATIENCE_MS)]
        return found

    assert read_from_there(3) == [b"1", b"2", b"3"]
    with producer.transaction():
        producer.send_offsets({partition: 1}, consumer.group_metadata())
    producer.begin()
    producer.send_offsets({partition: 3}, consumer.group_metadata())
    producer.abort()

    consumer.seek_to_committed()
    assert read_from_there(2) == [b"2", b"3"]


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
