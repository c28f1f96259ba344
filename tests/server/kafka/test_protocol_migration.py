"""Clients of both protocols in one group: it is converted with the first new member and back with the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparklog.group.requests import ListGroups
from sparklog.testing import RunningBroker, start_broker
from support.kafka.group_members import AioKafka, KafkaPython, Members, all_of, produce

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        kafka=True,
        num_partitions=4,
        offsets_topic_num_partitions=2,
        group_initial_rebalance_delay_ms=0,
        group_consumer_heartbeat_interval_ms=100,
        group_consumer_assignment_interval_ms=0,
    ) as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker, new_name: Callable[[], str]) -> str:
    name = f"mixed-{new_name()}"
    produce(broker.kafka, name)
    return name


@pytest.fixture
def members(broker: RunningBroker, new_name: Callable[[], str]) -> Iterator[Members]:
    group = Members(broker.kafka, f"mixed-{new_name()}")
    yield group
    for name in list(group.open):
        group.close(name)


def kind_of(broker: RunningBroker, group_id: str) -> str:
    listed = broker.run(broker.node.broker.services.groups.list(ListGroups())).groups
    return next(group.type for group in listed if group.group_id == group_id)


def share(members: Members, topic: str, *names: str) -> Callable[[], bool]:
    return lambda: members.has(*names) == all_of(topic) and all(members.has(name) for name in names)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_librdkafka_of_both_protocols(broker: RunningBroker, members: Members, topic: str, strategy: str) -> None:
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 45_000,
    }
    members.add("a", topic, **classic)
    members.add("b", topic, **classic)
    members.until(share(members, topic, "a", "b"))
    assert kind_of(broker, members.group_id) == "classic"
    members.add("c", topic)
    members.until(share(members, topic, "a", "b", "c"))
    assert kind_of(broker, members.group_id) == "consumer"
    members.close("c")
    members.until(share(members, topic, "a", "b"))
    assert kind_of(broker, members.group_id) == "classic"
    members.close("a")
    members.until(share(members, topic, "b"))


def test_clients_that_know_only_the_classic_protocol(broker: RunningBroker, members: Members, topic: str) -> None:
    members.open["kafka-python"] = KafkaPython(members.bootstrap, members.group_id, topic)
    members.open["aiokafka"] = AioKafka(members.bootstrap, members.group_id, topic)
    members.until(share(members, topic, "kafka-python", "aiokafka"))
    members.add("c", topic)
    members.until(share(members, topic, "kafka-python", "aiokafka", "c"))
    assert kind_of(broker, members.group_id) == "consumer"
    members.close("c")
    members.until(share(members, topic, "kafka-python", "aiokafka"))
    assert kind_of(broker, members.group_id) == "classic"
