"""The consumer against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from sparklog.base.errors import ClosedError, InvalidRequest, OffsetOutOfRange, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client import CONSUMED, Admin, Consumer, ConsumerRecord, ListedOffset, Producer
from sparklog.client.aio import AsyncConsumer, AsyncProducer
from sparklog.client.serializers import from_json, from_text
from sparklog.testing import RunningBroker
from support.patience import PATIENCE_MS, PATIENCE_S, until, wait_until

pytestmark = pytest.mark.slow

NewProducer = Callable[..., Producer]
NewConsumer = Callable[..., Consumer]

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def filled(admin: Admin, new_producer: NewProducer) -> None:
    """Topic "t": partition 0 has the values 0 to 99 at the times 1000 to 1099, partition 1 the values 0 to 9."""
    admin.create_topic("t", partitions=2)
    producer = new_producer()
    for number in range(100):
        producer.send("t", b"%d" % number, partition=0, timestamp_ms=1000 + number)
    for number in range(10):
        producer.send("t", b"%d" % number, partition=1, timestamp_ms=2000 + number)
    producer.flush()


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value) for record in records]


def read(consumer: Consumer, count: int, **options: int) -> list[ConsumerRecord]:
    """Read `count` records, in any number of polls."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        found = consumer.poll(PATIENCE_MS, **options)
        assert found, f"{len(records)} of {count} records have come"
        records += found
    assert len(records) == count
    return records


@pytest.mark.usefixtures("filled")
def test_every_record_of_an_assigned_partition_comes_once_and_in_order(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO])

    assert values(read(consumer, 100, max_records=7)) == list(range(100))
    assert consumer.poll(10) == []
    assert consumer.position(ZERO) == 100


@pytest.mark.usefixtures("filled")
def test_a_topic_can_be_assigned_as_a_whole(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()

    assert consumer.assign_topic("t") == [ZERO, ONE]
    assert consumer.assignment() == [ZERO, ONE]
    assert len(read(consumer, 110)) == 110


@pytest.mark.usefixtures("filled")
def test_partitions_take_turns(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO, ONE])

    turns = [
        record.partition for record in itertools.chain(*(consumer.poll(PATIENCE_MS, max_records=5) for _ in range(4)))
    ]

    assert sorted(turns) == [0] * 10 + [1] * 10


@pytest.mark.usefixtures("filled")
def test_one_poll_returns_no_more_than_asked(new_consumer: NewConsumer) -> None:
    consumer = new_consumer(max_poll_records=30)
    consumer.assign([ZERO])

    assert len(consumer.poll(PATIENCE_MS)) == 30
    assert len(consumer.poll(PATIENCE_MS, max_records=3)) == 3


@pytest.mark.usefixtures("filled")
def test_seeking_goes_on_elsewhere(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO, ONE])
    consumer.pause(ONE)

    for offset in (50, 97, 3):
        consumer.seek(ZERO, offset)
        assert consumer.position(ZERO) == offset
        assert values(consumer.poll(PATIENCE_MS, max_records=2)) == [offset, offset + 1]
        assert consumer.position(ZERO) == offset + 2

    consumer.seek_to_end(ZERO)
    assert consumer.position(ZERO) == 100
    assert consumer.poll(10) == []
    consumer.seek_to_beginning()
    assert values(consumer.poll(PATIENCE_MS, max_records=1)) == [0]
    consumer.seek_to_timestamp(1042, ZERO)
    assert values(consumer.poll(PATIENCE_MS, max_records=1)) == [42]
    consumer.seek_to_timestamp(1500, ZERO)
    assert consumer.position(ZERO) == 100


@pytest.mark.usefixtures("filled")
def test_seeking_does_not_wait_for_the_long_poll_that_is_under_way(new_consumer: NewConsumer) -> None:
    consumer = new_consumer(fetch_max_wait_ms=10 * PATIENCE_MS, request_timeout_ms=20 * PATIENCE_MS)
    consumer.assign([ZERO])
    read(consumer, 100)
    assert consumer.poll(100) == []

    consumer.seek(ZERO, 90)

    assert values(read(consumer, 10)) == list(range(90, 100))


@pytest.mark.usefixtures("filled")
def test_wrong_uses_are_refused(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO])

    with pytest.raises(InvalidRequest, match="call assign or assign_topic first"):
        new_consumer().poll(10)
    with pytest.raises(InvalidRequest, match="t-1 is not assigned"):
        consumer.seek(ONE, 0)
    with pytest.raises(InvalidRequest):
        consumer.pause(ONE)
    with pytest.raises(ValueError, match="the first is 0"):
        consumer.seek(ZERO, -1)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(10)


@pytest.mark.usefixtures("filled")
def test_what_is_assigned_anew_keeps_its_position_and_what_is_not_forgets_it(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO])
    consumer.poll(PATIENCE_MS, max_records=5)

    consumer.assign([ZERO, ONE])
    assert consumer.position(ZERO) == 5
    consumer.assign([ONE])
    consumer.assign([ZERO])
    assert consumer.position(ZERO) == 0


@pytest.mark.usefixtures("filled")
def test_a_paused_partition_stays_silent_and_loses_nothing(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO, ONE])
    before = consumer.poll(PATIENCE_MS, max_records=3)
    consumer.pause(ZERO)
    assert consumer.paused() == [ZERO]

    while_paused = [record for limit_ms in (PATIENCE_MS, 50, 50, 50, 50) for record in consumer.poll(limit_ms)]
    assert {record.partition for record in while_paused} == {1}
    consumer.resume(ZERO)
    records = before + while_paused + read(consumer, 110 - len(before) - len(while_paused))

    assert values([record for record in records if record.partition == 0]) == list(range(100))


@pytest.mark.usefixtures("filled")
def test_new_records_come_as_they_are_written(new_consumer: NewConsumer, new_producer: NewProducer) -> None:
    consumer = new_consumer(auto_offset_reset="latest")
    consumer.assign([ZERO, ONE])
    assert consumer.position(ZERO) == 100
    assert consumer.position(ONE) == 10
    producer = new_producer(linger_ms=0)

    for number in range(5):
        producer.send("t", b"%d" % number, partition=number % 2)
        assert values(read(consumer, 1)) == [number]


@pytest.mark.usefixtures("filled")
def test_iterating_reads_on_and_on(new_consumer: NewConsumer, new_producer: NewProducer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO])
    producer = new_producer()
    later = threading.Timer(0.05, lambda: producer.send("t", b"100", partition=0))
    later.start()

    assert values(list(itertools.islice(consumer, 101))) == list(range(101))
    later.join()


def test_deserializers_make_values_and_never_see_none(
    admin: Admin, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    admin.create_topic("t")
    producer = new_producer()
    producer.send("t", b'{"a":1}', "k")
    producer.send("t")
    producer.flush()
    consumer = new_consumer(key_deserializer=from_text, value_deserializer=from_json)
    consumer.assign_topic("t")

    assert [(record.key, record.value) for record in read(consumer, 2)] == [("k", {"a": 1}), (None, None)]


def test_a_record_that_cannot_be_deserialized_stops_its_partition_until_it_is_passed_over(
    admin: Admin, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    admin.create_topic("t", partitions=2)
    producer = new_producer()
    for partition, value in [(0, b"1"), (0, b"2"), (0, b"bad"), (0, b"4"), (1, b"5")]:
        producer.send("t", value, partition=partition)
    producer.flush()
    consumer = new_consumer(value_deserializer=int)
    consumer.assign_topic("t")

    records = consumer.poll(PATIENCE_MS)
    for _ in range(2):
        with pytest.raises(ValueError, match="bad") as failed:  # noqa: PT012
            while True:
                records += consumer.poll(PATIENCE_MS)
        assert failed.value.__notes__ == ["the record at offset 2 of t-0: seek past it to continue"]
        assert consumer.position(TopicPartition("t", 0)) == 2
    consumer.seek(TopicPartition("t", 0), 3)
    records += read(consumer, 4 - len(records))
    assert sorted(record.value for record in records) == [1, 2, 4, 5]


@pytest.mark.usefixtures("filled")
def test_arrow_polls_give_tables_of_a_fixed_schema(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO])

    some = consumer.poll_arrow(1_000, max_records=10)
    tables = [some]
    while sum(table.num_rows for table in tables) < 100:
        tables.append(consumer.poll_arrow(1_000))
    table = pa.concat_tables(tables)

    assert some.num_rows == 10
    assert table.schema == CONSUMED
    assert table.column("offset").to_pylist() == list(range(100))
    assert set(table.column("topic").to_pylist()) == {"t"}
    assert table.column("value")[42].as_py() == b"42"
    empty = consumer.poll_arrow(10)
    assert (empty.num_rows, empty.schema) == (0, CONSUMED)


@pytest.mark.usefixtures("filled")
def test_polls_and_arrow_polls_may_be_mixed(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.assign([ZERO])

    assert values(consumer.poll(PATIENCE_MS, max_records=3)) == [0, 1, 2]
    assert consumer.poll_arrow(1_000, max_records=2).column("offset").to_pylist() == [3, 4]
    assert values(consumer.poll(PATIENCE_MS, max_records=1)) == [5]


@pytest.mark.usefixtures("filled")
def test_offsets_are_told_by_position_and_time(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()

    assert consumer.beginning_offsets([ZERO, ONE]) == {ZERO: 0, ONE: 0}
    assert consumer.end_offsets([ZERO, ONE]) == {ZERO: 100, ONE: 10}
    assert consumer.offsets_for_times({ZERO: 1010, ONE: 5000}) == {ZERO: ListedOffset(10, 1010), ONE: None}
    assert consumer.partitions_for("t") == [ZERO, ONE]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(("reset", "first"), [("earliest", 40), ("latest", 100)])
def test_a_position_that_is_gone_is_looked_up_again(
    reset: str, first: int, admin: Admin, new_consumer: NewConsumer
) -> None:
    admin.delete_records({ZERO: 40})
    consumer = new_consumer(auto_offset_reset=reset)
    consumer.assign([ZERO])
    consumer.seek(ZERO, 7)

    if reset == "earliest":
        assert values(read(consumer, 60)) == list(range(40, 100))
    else:

        def is_at_the_end() -> bool:
            assert consumer.poll(200) == []
            return consumer.position(ZERO) == first

        wait_until(is_at_the_end, "the position is looked up")


@pytest.mark.usefixtures("filled")
def test_with_reset_none_a_position_that_is_gone_is_an_error_until_one_seeks(
    admin: Admin, new_consumer: NewConsumer
) -> None:
    admin.delete_records({ZERO: 40})
    consumer = new_consumer(auto_offset_reset="none")
    consumer.assign([ZERO])
    with pytest.raises(OffsetOutOfRange, match="t-0 has no position"):
        consumer.poll(PATIENCE_MS)

    consumer.seek(ZERO, 7)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            consumer.poll(PATIENCE_MS)

    consumer.seek(ZERO, 40)
    assert values(read(consumer, 60)) == list(range(40, 100))


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_an_error(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    with pytest.raises(UnknownTopicOrPartition):
        consumer.assign_topic("nope")

    consumer.assign([TopicPartition("nope", 0)])
    with pytest.raises(UnknownTopicOrPartition):
        consumer.poll(PATIENCE_MS)


@pytest.mark.usefixtures("filled")
def test_a_topic_that_is_deleted_meanwhile_is_an_error(admin: Admin, new_consumer: NewConsumer) -> None:
    consumer = new_consumer(fetch_max_wait_ms=50)
    consumer.assign([ZERO])
    read(consumer, 100)
    admin.delete_topics(["t"])

    with pytest.raises(UnknownTopicOrPartition):
        consumer.poll(PATIENCE_MS)


def test_no_more_is_fetched_ahead_than_allowed(
    admin: Admin, new_producer: NewProducer, sparklog_broker: RunningBroker
) -> None:
    admin.create_topic("t", partitions=4)
    producer = new_producer(batch_size=10_000)
    for number in range(2_000):
        producer.send("t", b"x" * 1_000, partition=number % 4)
    producer.flush()
    limit = 100_000

    async def most_queued() -> tuple[int, int]:
        options = {"max_partition_fetch_bytes": 20_000, "prefetch_max_bytes": limit, "auto_offset_reset": "earliest"}
        async with AsyncConsumer(bootstrap_servers=sparklog_broker.bootstrap, **options) as consumer:
            await consumer.assign_topic("t")
            most = read = 0
            while read < 2_000:
                await until(lambda: consumer.queued_bytes, "more is fetched ahead", every_s=0.002)
                most = max(most, consumer.queued_bytes)
                read += len(await consumer.poll())
            return most, read

    most, count = asyncio.run(most_queued())

    assert count == 2_000
    assert 0 < most <= 2 * limit


def test_a_batch_larger_than_every_limit_is_read_all_the_same(
    admin: Admin, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    admin.create_topic("t")
    new_producer().send("t", b"x" * 500_000).result(PATIENCE_S)
    consumer = new_consumer(max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000, prefetch_max_bytes=1_000)
    consumer.assign_topic("t")

    assert len(read(consumer, 1)[0].value) == 500_000


async def test_on_an_event_loop_records_are_iterated_asynchronously(sparklog_broker: RunningBroker) -> None:
    async with (
        AsyncProducer(bootstrap_servers=sparklog_broker.bootstrap, linger_ms=0) as producer,
        AsyncConsumer(bootstrap_servers=sparklog_broker.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send("t", b"0")
        await producer.flush()
        await consumer.assign_topic("t")
        seen = []
        async for record in consumer:
            seen.append(int(record.value))
            if len(seen) == 5:
                break
            await producer.send("t", b"%d" % len(seen))

    assert seen == [0, 1, 2, 3, 4]
    assert asyncio.all_tasks() == {asyncio.current_task()}  # closing has ended everything that they had started
