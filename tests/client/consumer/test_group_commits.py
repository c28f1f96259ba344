"""Commits of consumers: their offsets, their times, and refused commits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sparklog.base.errors import ClosedError, IllegalGeneration, KafkaError, UnknownMemberId, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, ConsumerRecord, OffsetAndMetadata, Producer
from sparklog.testing import RunningBroker, start_broker
from support.clients.group_members import Listener, poll_until, read, shares
from support.patience import PATIENCE_MS

pytestmark = pytest.mark.slow

NewConsumer = Callable[..., Consumer]


@pytest.fixture(scope="module")
def sparklog_broker() -> Iterator[RunningBroker]:
    with start_broker(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100, offsets_topic_num_partitions=3
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def names(sparklog_broker: RunningBroker) -> Iterator[str]:
    """Create topics with one partition and ten records each."""

    def make() -> Iterator[str]:
        for number in itertools.count():
            admin.create_topic(f"t{number}", partitions=1)
            for value in range(10):
                producer.send(f"t{number}", b"%d" % value)
            producer.flush()
            yield f"t{number}"

    with ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap_servers=sparklog_broker.bootstrap))
        producer = stack.enter_context(Producer(bootstrap_servers=sparklog_broker.bootstrap, linger_ms=0))
        yield make()


@pytest.fixture
def partition(names: Iterator[str]) -> TopicPartition:
    return TopicPartition(next(names), 0)


@pytest.fixture
def member(new_consumer: NewConsumer, partition: TopicPartition) -> Callable[..., Consumer]:
    """A consumer that reads the test's partition as a member of a group."""

    def make(listener: object = None, **options: object) -> Consumer:
        consumer = new_consumer(**{"group_id": partition.topic, "heartbeat_interval_ms": 20} | options)
        consumer.subscribe([partition.topic], listener=listener)
        poll_until(lambda: shares(consumer) == [1], consumer)
        consumer.seek_to_beginning()
        return consumer

    return make


@pytest.fixture
def committed(admin: Admin, partition: TopicPartition) -> Callable[[], int | None]:
    """The offset that the test's group has committed."""

    def ask() -> int | None:
        found = admin.list_group_offsets(partition.topic).get(partition)
        return found.offset if found else None

    return ask


def test_commit_without_offsets_is_of_what_poll_has_returned(
    member: Callable[..., Consumer], committed: Callable[[], int | None], partition: TopicPartition
) -> None:
    consumer = member(enable_auto_commit=False)
    for expected in (3, 6):
        assert len(consumer.poll(PATIENCE_MS, max_records=3)) == 3
        consumer.commit()
        assert committed() == expected
    consumer.commit({partition: OffsetAndMetadata(2, "again")})
    assert consumer.committed([partition])[partition] == OffsetAndMetadata(2, "again")
    consumer.commit({partition: 4})
    consumer.close()

    assert [record.offset for record in read([member()], 6)][:1] == [0]  # `member` seeks to the beginning
    assert committed() == 4


def test_the_next_member_begins_where_the_last_one_committed(
    member: Callable[..., Consumer], new_consumer: NewConsumer, partition: TopicPartition
) -> None:
    first = member(enable_auto_commit=False)
    assert len(first.poll(PATIENCE_MS, max_records=3)) == 3
    first.commit()
    first.poll(PATIENCE_MS, max_records=3)  # and these are not committed
    first.close()

    second = new_consumer(group_id=partition.topic)
    second.subscribe([partition.topic])

    assert [record.offset for record in read([second], 7)] == [3, 4, 5, 6, 7, 8, 9]


def test_where_nothing_is_committed_auto_offset_reset_decides(
    new_consumer: NewConsumer, partition: TopicPartition
) -> None:
    consumer = new_consumer(group_id=partition.topic, auto_offset_reset="latest")
    consumer.subscribe([partition.topic])
    poll_until(lambda: shares(consumer) == [1], consumer)

    assert consumer.position(partition) == 10


def test_polling_commits_what_earlier_polls_returned(
    member: Callable[..., Consumer], committed: Callable[[], int | None]
) -> None:
    consumer = member(auto_commit_interval_ms=1)
    assert len(consumer.poll(PATIENCE_MS, max_records=3)) == 3
    assert committed() in (None, 0)

    assert len(consumer.poll(PATIENCE_MS, max_records=3)) == 3
    consumer.pause()
    poll_until(lambda: committed() == 6, consumer)


def test_closing_commits_and_a_rebalance_does(
    member: Callable[..., Consumer],
    new_consumer: NewConsumer,
    committed: Callable[[], int | None],
    partition: TopicPartition,
) -> None:
    consumer = member()
    assert len(consumer.poll(PATIENCE_MS, max_records=3)) == 3
    other = new_consumer(group_id=partition.topic, heartbeat_interval_ms=20)
    other.subscribe([partition.topic])
    consumer.pause()
    poll_until(lambda: sum(shares(consumer, other)) == 1 and committed() == 3, consumer, other)

    other.close()
    consumer.close()
    again = member()
    assert len(again.poll(PATIENCE_MS, max_records=5)) == 5
    again.close()
    assert committed() == 5


def test_without_auto_commit_nothing_is_committed(
    member: Callable[..., Consumer], committed: Callable[[], int | None]
) -> None:
    consumer = member(enable_auto_commit=False, auto_commit_interval_ms=1)
    read([consumer], 10)
    consumer.poll(10)
    consumer.close()

    assert committed() is None


def test_commits_without_waiting_tell_their_callback_in_order(
    member: Callable[..., Consumer], committed: Callable[[], int | None], partition: TopicPartition
) -> None:
    consumer = member(enable_auto_commit=False)
    told: list[tuple[int, KafkaError | None]] = []

    def note(offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        told.append((offsets[partition].offset, error))

    for offset in range(1, 6):
        consumer.commit_async({partition: offset}, note)
    assert told == []
    poll_until(lambda: len(told) == 5, consumer)
    assert told == [(offset, None) for offset in range(1, 6)]
    assert committed() == 5

    consumer.commit_async({partition: 9}, note)
    consumer.close()
    assert told[5:] == [(9, None)]
    with pytest.raises(ClosedError):
        consumer.commit()


def test_a_consumer_whose_group_has_gone_on_commits_nothing(
    member: Callable[..., Consumer],
    new_consumer: NewConsumer,
    committed: Callable[[], int | None],
    partition: TopicPartition,
) -> None:
    listener = Listener()
    slow = member(listener, max_poll_interval_ms=500, enable_auto_commit=False)
    assert len(slow.poll(PATIENCE_MS, max_records=3)) == 3
    other = new_consumer(group_id=partition.topic, enable_auto_commit=False)
    other.subscribe([partition.topic])
    assert len(read([other], 10)) == 10
    other.commit()

    with pytest.raises(UnknownMemberId):
        slow.commit()
    with pytest.raises(UnknownMemberId):
        slow.commit({partition: 3})
    assert committed() == 10
    poll_until(lambda: listener.told[-1] == ("lost", [partition]), slow)


def test_a_commit_that_waited_while_its_partition_was_given_up_does_nothing(
    member: Callable[..., Consumer], committed: Callable[[], int | None], partition: TopicPartition
) -> None:
    consumer = member(enable_auto_commit=False)
    consumer.commit({partition: 7})
    refused: list[KafkaError | None] = []
    lock = consumer._core._group.committer._commits._in_turn  # as a commit that a slow broker has not answered
    consumer._run(lock.acquire())
    consumer.commit_async({partition: 3}, lambda _, error: refused.append(error))
    listener = Listener()  # a range assignor gives everything up before it joins again
    consumer.subscribe([partition.topic, "others"], listener=listener)
    poll_until(lambda: any(what == "revoked" for what, _ in listener.told), consumer)
    consumer._core._loop.call_soon_threadsafe(lock.release)
    poll_until(lambda: bool(refused), consumer)

    assert isinstance(refused[0], IllegalGeneration)
    assert committed() == 7


def test_a_listener_commits_what_it_is_about_to_lose(
    member: Callable[..., Consumer], committed: Callable[[], int | None]
) -> None:
    listener = Listener()
    consumer = member(listener, enable_auto_commit=False)
    listener.on["revoked"] = lambda _: consumer.commit()
    assert len(consumer.poll(PATIENCE_MS, max_records=3)) == 3

    consumer.close()

    assert committed() == 3


def test_a_consumer_of_assigned_partitions_commits_for_its_group(
    new_consumer: NewConsumer, committed: Callable[[], int | None], partition: TopicPartition
) -> None:
    with new_consumer(group_id=partition.topic) as first:
        first.assign([partition])
        assert len(first.poll(PATIENCE_MS, max_records=4)) == 4
    assert committed() == 4

    second = new_consumer(group_id=partition.topic)
    second.assign([partition])
    assert [record.offset for record in second.poll(PATIENCE_MS)] == [4, 5, 6, 7, 8, 9]


def test_an_iteration_commits_the_records_it_has_come_to(
    member: Callable[..., Consumer], committed: Callable[[], int | None], partition: TopicPartition
) -> None:
    consumer = member()
    for record in consumer:
        if record.offset == 1:
            consumer.commit()
            assert committed() == 2
        if record.offset == 3:
            break
    consumer.close()
    assert committed() == 4

    again = member()
    again.seek(partition, 4)
    assert next(iter(again)).offset == 4
    assert [record.offset for record in read([again], 5)] == [5, 6, 7, 8, 9]  # those that it had not come to
    again.seek(partition, 0)
    assert next(iter(again)).offset == 0
    again.seek(partition, 7)
    assert [record.offset for record in read([again], 3)] == [7, 8, 9]


def test_a_partition_that_is_not_there_cannot_be_committed(member: Callable[..., Consumer]) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        member().commit({TopicPartition("nowhere", 0): 1})


def test_interceptors_see_what_is_consumed_and_committed(
    member: Callable[..., Consumer], partition: TopicPartition
) -> None:
    committed: list[int] = []

    class OddOnly:
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [record for record in records if int(record.value) % 2]

        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            committed.append(offsets[partition].offset)

    class Failing:
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            raise ZeroDivisionError

    consumer = member(interceptors=[Failing(), OddOnly()], enable_auto_commit=False)

    assert [int(record.value) for record in read([consumer], 5)] == [1, 3, 5, 7, 9]
    consumer.commit()
    assert committed == [10]
