"""librdkafka with group.protocol=consumer (KIP-848): groups, moves of partitions, failures of clients and broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sparklog.group.requests import ConsumerGroupDescribe
from sparklog.testing import RunningBroker, start_broker
from support.kafka.group_members import Members, all_of, produce
from support.patience import PATIENCE_S
from support.processes.ports import reserve_port

pytestmark = pytest.mark.slow

SETTINGS = {
    "num_partitions": 4,
    "offsets_topic_num_partitions": 2,
    "group_consumer_heartbeat_interval_ms": 100,
    "group_consumer_assignment_interval_ms": 0,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, **SETTINGS) as running:
        yield running


@pytest.fixture
def members(broker: RunningBroker, new_name: Callable[[], str]) -> Iterator[Members]:
    group = Members(broker.kafka, f"new-{new_name()}")
    yield group
    for name in list(group.open):
        group.close(name)


@pytest.fixture
def topic(broker: RunningBroker, new_name: Callable[[], str]) -> str:
    """A topic with 40 records in 4 partitions."""
    name = f"new-{new_name()}"
    produce(broker.kafka, name)
    return name


def describe(broker: RunningBroker, group_id: str):
    asked = ConsumerGroupDescribe(group_ids=[group_id])
    return broker.run(broker.node.broker.services.groups.consumer_describe(asked)).groups[0]


def test_members_share_a_topic_and_offsets_outlive_them(broker: RunningBroker, members: Members, topic: str) -> None:
    a = members.add("a", topic)
    members.until(lambda: len(members.read["a"]) == 40)
    a.commit(asynchronous=False)
    members.add("b", topic)
    members.until(lambda: len(members.has("a")) == len(members.has("b")) == 2)
    assert members.has("a", "b") == all_of(topic)
    members.until(lambda: describe(broker, members.group_id).state == "Stable")
    members.close("a")
    members.until(lambda: members.has("b") == all_of(topic))
    committed = members.open["b"].committed(members.open["b"].assignment(), timeout=PATIENCE_S)
    assert [each.offset for each in committed] == [10, 10, 10, 10]
    assert members.read["b"] == []


def test_a_static_member_comes_back_to_its_partitions(broker: RunningBroker, members: Members, topic: str) -> None:
    members.add("a", topic, group_instance_id="i-a")
    members.add("b", topic, group_instance_id="i-b")
    members.until(lambda: len(members.has("a")) == len(members.has("b")) == 2)
    had, epoch = members.has("b"), describe(broker, members.group_id).group_epoch
    members.close("b")
    members.add("b", topic, group_instance_id="i-b")
    members.until(lambda: members.has("b") == had)
    assert describe(broker, members.group_id).group_epoch == epoch


def test_an_expression_takes_in_a_topic_that_comes_later(broker: RunningBroker, members: Members, topic: str) -> None:
    members.add("a", f"^{topic}.*")
    members.until(lambda: members.has("a") == all_of(topic))
    produce(broker.kafka, f"{topic}-later")
    members.until(lambda: members.has("a") == all_of(topic) + all_of(f"{topic}-later"))


def test_a_client_is_told_why_its_assignor_is_refused(members: Members, topic: str) -> None:
    members.add("a", topic, group_remote_assignor="lucky")
    consumer = members.open.pop("a")
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert "assignor or its version range is not supported" in message.error().str()
    consumer.close()


def test_tools_see_the_group(broker: RunningBroker, members: Members, topic: str) -> None:
    members.add("a", topic)
    members.until(lambda: members.has("a") == all_of(topic))
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert (listed[members.group_id].state.name, listed[members.group_id].type.name) == ("STABLE", "CONSUMER")
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([members.group_id])[members.group_id].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    members.close("a")
    admin.delete_consumer_groups([members.group_id])[members.group_id].result(PATIENCE_S)
    assert describe(broker, members.group_id).state == "Dead"


KILLED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[3]])
while not consumer.assignment():
    consumer.poll(0.05)
print("ready", flush=True)
while True:
    consumer.poll(0.05)
"""


@pytest.fixture
def members_of_short_sessions() -> Iterator[Members]:
    with start_broker(kafka=True, **SETTINGS, group_consumer_session_timeout_ms=4_000) as broker:
        group = Members(broker.kafka, "of-short-sessions")
        yield group
        for name in list(group.open):
            group.close(name)


def test_a_killed_member_loses_its_partitions_when_its_session_ends(members_of_short_sessions: Members) -> None:
    members, topic = members_of_short_sessions, "orders"
    produce(members.bootstrap, topic)
    members.add("a", topic)
    members.until(lambda: members.has("a") == all_of(topic))
    command = [sys.executable, "-c", KILLED, members.bootstrap, members.group_id, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        os.set_blocking(other.stdout.fileno(), False)
        try:
            members.until(lambda: len(members.has("a")) == 2 and other.stdout.read() == b"ready\n")
        finally:
            other.kill()
    members.until(lambda: members.has("a") == all_of(topic))


def test_the_group_is_the_same_after_the_broker_was_restarted(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    settings = {**SETTINGS, "listeners": (f"PLAINTEXT://127.0.0.1:{reserve_port(request.node)}",)}
    first = start_broker(tmp_path, **settings)
    produce(first.kafka, "orders")
    group = Members(first.kafka, "readers")
    try:
        group.add("a", "orders")
        group.add("b", "orders")
        group.until(lambda: len(group.has("a")) == len(group.has("b")) == 2)
        group.until(lambda: describe(first, "readers").state == "Stable")
        before = describe(first, "readers")
        first.stop()
        with start_broker(tmp_path, **settings) as second:
            group.until(lambda: describe(second, "readers").error is None)
            assert describe(second, "readers") == before
            group.add("c", "orders")  # the others have to give it something, so they are still in the group
            group.until(lambda: len(group.has("c")) == 1 and group.has("a", "b", "c") == all_of("orders"))
            for name in "abc":
                group.close(name)
    finally:
        first.stop()
