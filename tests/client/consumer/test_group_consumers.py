"""Consumers of one group against a real broker: assignment, and rebalances after joins and leaves."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from sparklog.base.errors import ConfigError, FencedInstanceId, InconsistentGroupProtocol, InvalidRequest
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.client.aio import AsyncConsumer
from sparklog.client.assignors import Assignor, Member
from sparklog.client.assignors.assignor import Assignments, PartitionCounts
from sparklog.testing import RunningBroker, start_broker
from support.clients.group_members import Listener, crash, poll_until, read, shares
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NewConsumer = Callable[..., Consumer]
NewProducer = Callable[..., Producer]

PARTITIONS = 4
EAGER_AND_COOPERATIVE = pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])


@pytest.fixture(scope="module")
def sparklog_broker() -> Iterator[RunningBroker]:
    with start_broker(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100, offsets_topic_num_partitions=3
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topic(admin: Admin, numbers: Iterator[int]) -> str:
    name = f"topic-{next(numbers)}"
    admin.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def join(new_consumer: NewConsumer, topic: str) -> Callable[..., Consumer]:
    """A consumer with a subscription in the test's group."""

    def make(listener: Listener | None = None, **options: object) -> Consumer:
        consumer = new_consumer(**{"group_id": f"of-{topic}", "heartbeat_interval_ms": 20} | options)
        consumer.subscribe([topic], listener=listener)
        return consumer

    return make


def parts(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def told(listener: Listener) -> list[tuple[str, list[TopicPartition]]]:
    """Partitions that were added and removed; a cooperative listener also gets rebalances without changes."""
    return [(what, found) for what, found in listener.told if found]


def fill(producer: Producer, topic: str, values: range) -> None:
    for number in values:
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush()


@EAGER_AND_COOPERATIVE
def test_consumers_share_the_partitions_and_each_record_is_read_once(
    join: Callable[..., Consumer], new_producer: NewProducer, topic: str, strategy: str
) -> None:
    one = join(partition_assignment_strategy=strategy)
    poll_until(lambda: shares(one) == [4], one)
    two = join(partition_assignment_strategy=strategy)
    seen = poll_until(lambda: shares(one, two) == [2, 2], one, two)
    fill(new_producer(), topic, range(200))

    seen += read([one, two], 200 - len(seen))

    assert sorted(int(record.value) for record in seen) == list(range(200))
    assert sorted(one.assignment() + two.assignment()) == parts(topic, 0, 1, 2, 3)


@EAGER_AND_COOPERATIVE
def test_when_one_leaves_the_other_goes_on_where_it_was(
    join: Callable[..., Consumer], new_producer: NewProducer, topic: str, strategy: str
) -> None:
    one, two = join(partition_assignment_strategy=strategy), join(partition_assignment_strategy=strategy)
    poll_until(lambda: shares(one, two) == [2, 2], one, two)
    producer = new_producer()
    fill(producer, topic, range(100))
    seen = read([one, two], 100)

    one.close()
    fill(producer, topic, range(100, 200))
    seen += read([two], 100)

    assert sorted(int(record.value) for record in seen) == list(range(200))
    assert shares(two) == [4]


def test_the_partitions_of_a_consumer_that_died_go_to_others_when_its_session_ends(
    join: Callable[..., Consumer], new_producer: NewProducer, topic: str
) -> None:
    one, two = join(session_timeout_ms=3_000), join()
    poll_until(lambda: shares(one, two) == [2, 2], one, two)
    producer = new_producer()
    fill(producer, topic, range(100))
    seen = read([one, two], 100)
    one.commit()

    crash(one)
    fill(producer, topic, range(100, 200))
    seen += read([two], 100)

    assert sorted(int(record.value) for record in seen) == list(range(200))
    assert shares(two) == [4]


def test_an_eager_listener_is_told_of_everything_in_the_thread_that_polls(
    join: Callable[..., Consumer], topic: str
) -> None:
    listener = Listener()
    one = join(listener)
    poll_until(lambda: shares(one) == [4], one)
    two = join()
    poll_until(lambda: shares(one, two) == [2, 2] and len(listener.told) > 2, one, two)
    one.close()

    assert listener.told == [
        ("assigned", parts(topic, 0, 1, 2, 3)),
        ("revoked", parts(topic, 0, 1, 2, 3)),
        ("assigned", listener.told[2][1]),
        ("revoked", listener.told[2][1]),
    ]
    assert len(listener.told[2][1]) == 2
    assert listener.threads == {threading.get_ident()}


def test_a_cooperative_listener_is_told_of_what_moves_only(join: Callable[..., Consumer], topic: str) -> None:
    first, second = Listener(), Listener()
    one = join(first, partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: shares(one) == [4], one)
    two = join(second, partition_assignment_strategy="cooperative-sticky")
    # What is assigned is so before `poll` has told the listener.
    poll_until(lambda: shares(one, two) == [2, 2] and bool(told(second)), one, two)

    moved = two.assignment()
    assert told(first) == [("assigned", parts(topic, 0, 1, 2, 3)), ("revoked", moved)]
    assert told(second) == [("assigned", moved)]


def test_a_cooperative_rebalance_does_not_interrupt_what_stays(
    admin: Admin, join: Callable[..., Consumer], new_producer: NewProducer, topic: str
) -> None:
    """The other partitions are read while a partition that moves waits for a poll of its reader."""
    one, idle, joining = (
        join(partition_assignment_strategy="cooperative-sticky", group_instance_id=name) for name in "abc"
    )
    poll_until(lambda: shares(one, idle) == [2, 2], one, idle)
    kept = one.assignment()

    joining.poll(0)
    poll_until(lambda: len(admin.describe_groups([f"of-{topic}"])[0].members) == 3, one)
    fill(new_producer(), topic, range(100))
    seen = read([one, joining], 50)

    assert {record.partition for record in seen} == {item.partition for item in kept}
    assert shares(one, idle, joining) == [2, 2, 0]
    poll_until(lambda: shares(one, idle, joining) == [2, 1, 1], one, idle, joining)


def test_what_was_fetched_of_a_revoked_partition_is_not_returned_any_more(
    join: Callable[..., Consumer], new_producer: NewProducer, topic: str
) -> None:
    fill(new_producer(), topic, range(80))
    one = join(max_poll_records=1)
    seen = read([one], 10)  # the others are fetched ahead
    two = join()
    seen += poll_until(lambda: shares(one, two) == [2, 2], one, two)

    seen += read([one, two], 80 - len(seen))

    assert sorted(int(record.value) for record in seen) == list(range(80))


def test_a_pattern_finds_topics_that_appear_and_leaves_out_what_is_denied(
    admin: Admin, new_consumer: NewConsumer, topic: str
) -> None:
    consumer = new_consumer(group_id=f"pattern-{topic}", metadata_max_age_ms=50, heartbeat_interval_ms=20)
    consumer.subscribe(pattern=f"{topic}-.*", deny=f"{topic}-test-.*")
    consumer.poll(100)
    assert consumer.assignment() == []

    for name in (f"{topic}-a", f"{topic}-test-a"):
        admin.create_topic(name, partitions=1)
    poll_until(lambda: consumer.assignment() == parts(f"{topic}-a", 0), consumer)

    admin.create_partitions(f"{topic}-a", 2)
    admin.create_topic(f"{topic}-b", partitions=1)
    poll_until(lambda: consumer.assignment() == [*parts(f"{topic}-a", 0, 1), *parts(f"{topic}-b", 0)], consumer)

    admin.delete_topics([f"{topic}-b"])
    poll_until(lambda: consumer.assignment() == parts(f"{topic}-a", 0, 1), consumer)


def test_another_subscription_takes_the_place_of_the_first(admin: Admin, join: Callable[..., Consumer]) -> None:
    one = join()
    poll_until(lambda: shares(one) == [4], one)
    other = f"{one.assignment()[0].topic}-other"
    admin.create_topic(other, partitions=1)

    one.subscribe([other])
    poll_until(lambda: one.assignment() == parts(other, 0), one)

    one.unsubscribe()
    assert one.assignment() == []
    one.assign(parts(other, 0))
    assert one.poll(10) == []


def test_who_does_not_poll_in_time_loses_its_partitions_and_comes_back(
    join: Callable[..., Consumer], topic: str
) -> None:
    listener = Listener()
    slow = join(listener, max_poll_interval_ms=500)
    poll_until(lambda: shares(slow) == [4], slow)
    other = join()

    poll_until(lambda: shares(other) == [4], other)  # only `other` polls
    poll_until(lambda: shares(slow, other) == [2, 2] and len(listener.told) > 2, slow, other)

    assert listener.told[:2] == [("assigned", parts(topic, 0, 1, 2, 3)), ("lost", parts(topic, 0, 1, 2, 3))]
    assert listener.told[2][0] == "assigned"


def test_heartbeats_go_on_while_the_user_works(
    join: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch, sparklog_broker: RunningBroker
) -> None:
    groups, beats = sparklog_broker.node.broker.services.groups, itertools.count(1)
    serve, enough = groups.heartbeat, threading.Event()

    async def heartbeat(request: object) -> object:
        if next(beats) == 50:
            enough.set()
        return await serve(request)

    listener = Listener()
    busy = join(listener)
    poll_until(lambda: shares(busy) == [4], busy)
    monkeypatch.setattr(groups, "heartbeat", heartbeat)

    assert enough.wait(PATIENCE_S)  # nobody polls meanwhile
    busy.poll(10)

    assert [what for what, _ in listener.told] == ["assigned"]


def test_a_static_member_that_comes_back_has_the_partitions_it_had(join: Callable[..., Consumer], topic: str) -> None:
    listener = Listener()
    stays = join(listener, group_instance_id="b")
    restarts = join(group_instance_id="a")
    poll_until(
        lambda: shares(stays, restarts) == [2, 2] and [len(had) for _, had in told(listener)[-1:]] == [2],
        stays,
        restarts,
    )
    before, told_before = restarts.assignment(), list(listener.told)

    restarts.close()
    again = join(group_instance_id="a")
    poll_until(lambda: shares(again) == [2], stays, again)

    assert again.assignment() == before
    assert listener.told == told_before


def test_of_two_with_one_instance_id_the_earlier_is_refused(join: Callable[..., Consumer]) -> None:
    earlier = join(group_instance_id="a")
    poll_until(lambda: shares(earlier) == [4], earlier)
    later = join(group_instance_id="a")
    poll_until(lambda: shares(later) == [4], later)

    with pytest.raises(FencedInstanceId):
        poll_until(lambda: False, earlier)
    assert earlier.assignment() == []
    later.poll(10)
    assert len(later.assignment()) == 4


def test_members_without_a_common_assignor_are_refused(join: Callable[..., Consumer]) -> None:
    one = join(partition_assignment_strategy="range")
    poll_until(lambda: shares(one) == [4], one)

    with pytest.raises(InconsistentGroupProtocol, match=r"no protocol in common with 'consumer' sticky, roundrobin$"):
        poll_until(lambda: False, join(partition_assignment_strategy="sticky,roundrobin"))


def test_what_a_listener_raises_comes_out_of_poll_and_the_group_goes_on(join: Callable[..., Consumer]) -> None:
    listener = Listener()

    def fail(_: object) -> None:
        raise ZeroDivisionError

    listener.on["assigned"] = fail
    one = join(listener)

    with pytest.raises(ZeroDivisionError):
        poll_until(lambda: False, one)
    poll_until(lambda: shares(one) == [4], one)


def test_what_is_raised_in_close_comes_out_of_it_after_everybody_was_told(
    join: Callable[..., Consumer], topic: str
) -> None:
    listener = Listener()
    one = join(listener, enable_auto_commit=False)
    poll_until(lambda: shares(one) == [4], one)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    one.commit_async({TopicPartition(topic, 0): 0}, fail)
    one.commit({TopicPartition(topic, 0): 0})  # they go one after the other
    with pytest.raises(ZeroDivisionError):
        one.close()

    assert listener.told[-1] == ("revoked", parts(topic, 0, 1, 2, 3))


def test_an_assignor_of_ones_own_is_used_and_its_failure_comes_out_of_poll(
    join: Callable[..., Consumer], topic: str
) -> None:
    def all_to_the_last(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
        everything = [TopicPartition(name, number) for name, count in partitions.items() for number in range(count)]
        assigned: Assignments = {member.member_id: [] for member in members}
        assigned[max(assigned)] = everything
        return assigned

    def fail(partitions: PartitionCounts, members: Sequence[Member]) -> Assignments:
        raise ZeroDivisionError

    own = [Assignor(name="own", assign=all_to_the_last)]
    one, two = join(partition_assignment_strategy=own), join(partition_assignment_strategy=own)
    poll_until(lambda: sorted(shares(one, two)) == [0, 4], one, two)
    failing = join(partition_assignment_strategy=[Assignor(name="own", assign=fail)], group_id=f"failing-{topic}")
    with pytest.raises(ZeroDivisionError):
        poll_until(lambda: False, failing)


def test_a_listener_may_seek_in_what_it_is_given(
    join: Callable[..., Consumer], new_producer: NewProducer, topic: str
) -> None:
    fill(new_producer(), topic, range(40))
    listener = Listener()
    one = join(listener)
    listener.on["assigned"] = lambda partitions: [one.seek(partition, 9) for partition in partitions]

    assert sorted(int(record.value) for record in read([one], 4)) == [36, 37, 38, 39]


async def test_listeners_of_the_asynchronous_consumer_are_awaited(sparklog_broker: RunningBroker, topic: str) -> None:
    told: list[str] = []

    class Slow:
        async def on_assigned(self, _: object) -> None:
            await asyncio.sleep(0)
            told.append("assigned")

        async def on_revoked(self, _: object) -> None:
            await consumer.commit()
            told.append("revoked")

    async with AsyncConsumer(bootstrap_servers=sparklog_broker.bootstrap, group_id=f"async-{topic}") as consumer:
        consumer.subscribe([topic], listener=Slow())
        async with asyncio.timeout(PATIENCE_S):
            while not consumer.assignment():
                await consumer.poll(100)
    assert told == ["assigned", "revoked"]


def test_wrong_uses_of_groups_are_refused(new_consumer: NewConsumer, topic: str, closing: ExitStack) -> None:
    alone, member = new_consumer(), new_consumer(group_id="wrong")

    with pytest.raises(InvalidRequest, match="give it a group_id"):
        alone.subscribe([topic])
    with pytest.raises(ConfigError, match="one of the two"):
        member.subscribe()
    with pytest.raises(ConfigError, match="no regular expression"):
        member.subscribe(pattern="(")
    member.assign(parts(topic, 0))
    with pytest.raises(InvalidRequest, match="assign"):
        member.subscribe([topic])
    member.assign([])
    member.subscribe([topic])
    with pytest.raises(InvalidRequest, match="unsubscribe first"):
        member.assign(parts(topic, 0))
    with pytest.raises(ConfigError, match="less than"):
        new_consumer(group_id="wrong", heartbeat_interval_ms=100, session_timeout_ms=100)
    with pytest.raises(ConfigError, match="partition_assignment_strategy"):
        new_consumer(group_id="wrong", partition_assignment_strategy="fair")
