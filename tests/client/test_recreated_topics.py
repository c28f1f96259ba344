"""A recreated topic is another topic: positions in the old one are void."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

from sparklog.base.errors import InconsistentTopicId, KafkaError, OffsetOutOfRange, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, OffsetAndMetadata, Producer
from sparklog.client.config import ConsumerConfig
from sparklog.client.consumer.callback_invoker import CallbackInvoker
from sparklog.client.consumer.committer import Committer
from sparklog.client.consumer.subscription_state import SubscriptionState
from sparklog.testing import RunningBroker, start_broker
from sparklog.testing.sim.clock import SimClock
from support.patience import PATIENCE_MS, wait_until

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(auto_create_topics_enable=False) as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> Iterator[str]:
    """A topic with five records."""
    make(broker, [f"first {number}" for number in range(5)])
    yield T0.topic
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([T0.topic])


def make(broker: RunningBroker, values: list[str], *, partitions: int = 1) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(T0.topic, partitions=partitions)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(T0.topic, value)
        producer.flush()


def make_again(broker: RunningBroker, values: list[str], *, partitions: int = 1) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([T0.topic])
    make(broker, values, partitions=partitions)


def consumer(broker: RunningBroker, **options: str) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": "false", **options},
    )


def read(reader: Consumer, count: int) -> list[str]:
    found: list[str] = []

    def enough() -> bool:
        found.extend(record.value.decode() for record in reader.poll(100))
        return len(found) >= count

    wait_until(enough, f"{count} records are read", tell=lambda: found)
    return found


@pytest.mark.usefixtures("topic")
def test_a_reader_begins_where_it_would_with_any_new_topic(broker: RunningBroker) -> None:
    with consumer(broker) as reader:
        reader.assign([T0])
        read(reader, 5)
        make_again(broker, second := [f"second {number}" for number in range(9)])
        assert read(reader, 9) == second


@pytest.mark.usefixtures("topic")
def test_a_reader_that_resets_nowhere_is_told(broker: RunningBroker) -> None:
    with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        read(reader, 5)
        make_again(broker, ["second"] * 9)
        with pytest.raises(OffsetOutOfRange, match="another topic"):
            read(reader, 1)
        reader.seek(T0, 7)
        assert read(reader, 2) == ["second"] * 2


@pytest.mark.usefixtures("topic")
def test_a_group_begins_the_new_topic_at_its_beginning(broker: RunningBroker) -> None:
    """A member that had read the old topic commits after the creation of the new one."""
    with consumer(broker, group_id="group") as reader:
        reader.assign([T0])
        read(reader, 5)
        reader.pause(T0)  # it hears of nothing
        make_again(broker, second := [f"second {number}" for number in range(9)])
        with pytest.raises((InconsistentTopicId, UnknownTopicOrPartition)):
            reader.commit()
    with consumer(broker, group_id="group") as other:
        other.assign([T0])
        assert read(other, 9) == second


@pytest.mark.usefixtures("topic")
def test_a_group_goes_on_where_it_has_committed_in_the_new_topic(broker: RunningBroker) -> None:
    with (
        consumer(broker, group_id="going on") as reader,
        consumer(broker, group_id="going on") as other,
    ):
        reader.assign([T0])
        read(reader, 5)
        reader.pause(T0)
        make_again(broker, second := [f"second {number}" for number in range(9)])
        other.assign([T0])
        read(other, 9)
        other.commit({T0: 7})
        reader.resume(T0)
        assert read(reader, 2) == second[7:]


@pytest.mark.usefixtures("topic")
def test_offsets_that_a_user_names_are_of_the_topic_that_was_read(broker: RunningBroker) -> None:
    with consumer(broker, group_id="named") as reader:
        reader.assign([T0])
        read(reader, 5)
        reader.pause(T0)
        make_again(broker, ["second"] * 9)
        with pytest.raises(KafkaError):
            reader.commit({T0: 5})
        assert reader.committed([T0]) == {T0: None}


@pytest.mark.usefixtures("topic")
def test_a_writer_goes_on_with_the_partitions_that_are_left(broker: RunningBroker) -> None:
    make_again(broker, [], partitions=3)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        keys = [f"key {number}" for number in range(20)]
        chosen = {key: producer.send(T0.topic, key=key).result(PATIENCE_MS).partition for key in keys}
        assert set(chosen.values()) == {0, 1, 2}
        lost = next(key for key, partition in chosen.items() if partition == 2)
        make_again(broker, [])
        with pytest.raises(UnknownTopicOrPartition, match="partition t-2 is gone"):
            producer.send(T0.topic, key=lost).result(PATIENCE_MS)
        table = pa.table({"key": [*keys, None], "value": ["v"] * 21})
        for delivery in [*(producer.send(T0.topic, key=key) for key in keys), producer.send(T0.topic, "no key")]:
            assert delivery.result(PATIENCE_MS).partition == 0
        producer.send_table(T0.topic, table).result(PATIENCE_MS)
        assert producer.partitions_for(T0.topic) == [0]


def commits_at(offset: int) -> tuple[Committer, SubscriptionState, list[tuple[int, str]]]:
    """The commits of a consumer that has read the old topic up to the offset; those that are sent go to the list."""
    sent: list[tuple[int, str]] = []

    class Sent:
        async def commit(
            self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *_: object, topic_ids: Any, timeout_ms: object
        ) -> None:
            sent.extend((at.offset, topic_ids.get(partition)) for partition, at in offsets.items())

    assignment = SubscriptionState()
    assignment.assign([T0])
    assignment.state(T0).begin_at(offset, topic_id="the old topic's")
    config = ConsumerConfig.parse({"bootstrap_servers": "127.0.0.1:1", "group_id": "g"})
    turns = CallbackInvoker(lambda: None)
    return Committer(cast(Any, Sent()), cast(Any, None), assignment, turns, config, SimClock()), assignment, sent


@pytest.mark.parametrize("offsets", [None, {T0: 7}])
async def test_a_commit_is_of_the_topic_that_was_read_when_it_was_asked_for(offsets: dict[TopicPartition, int]) -> None:
    """The request is sent later, when another topic may have the name."""
    committer, assignment, sent = commits_at(7)

    committer.commit_async(offsets, None)
    assignment.state(T0).look_up(None)
    await committer.settle(PATIENCE_MS)

    assert sent == [(7, "the old topic's")]


async def test_a_new_topic_that_is_read_to_the_same_offset_is_committed_too() -> None:
    committer, assignment, sent = commits_at(7)
    await committer.before_giving_up(PATIENCE_MS)
    await committer.before_giving_up(PATIENCE_MS)
    assert sent == [(7, "the old topic's")]

    assignment.state(T0).begin_at(7, topic_id="the new topic's")
    await committer.before_giving_up(PATIENCE_MS)

    assert sent[1:] == [(7, "the new topic's")]
