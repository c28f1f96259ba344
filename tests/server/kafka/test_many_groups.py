"""A broker with tens of thousands of groups: others have their turn while they are listed, or lose their offsets."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from sparklog.group.classic_group import ClassicGroup
from sparklog.offsets_topic.records import CoordinatorRecord, OffsetKey, OffsetValue
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import groups_pb2
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.brokers.most_calls import MOST_CALLS, most_calls
from support.kafka.connection import Wire
from support.patience import PATIENCE_S, wait_until

LIST_GROUPS, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS = 16, 10, 19, 20
MANY = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that has the groups g0, g1, …"""
    with start_broker(kafka=True, offsets_topic_num_partitions=3) as running:
        with Wire(running.node.kafka_addresses["PLAINTEXT"]) as wire:
            wire.send(FIND_COORDINATOR, 1, key="g", key_type=0)
        running.run(_make_groups(running))
        yield running


async def _make_groups(broker: RunningBroker) -> None:
    groups = broker.node.broker.services.groups
    for number in range(MANY):
        group = ClassicGroup(group_id=f"g{number}")
        (await groups._host(group.group_id)).shard.groups[group.group_id] = group


@pytest.mark.parametrize("version", [3, 5])
def test_others_have_their_turn_while_groups_are_listed(broker: RunningBroker, version: int) -> None:
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire, most_calls(broker) as most:
        listed = wire.send(LIST_GROUPS, version)
    assert {group.group_id for group in listed.groups} == {f"g{number}" for number in range(MANY)}
    assert most.calls < MOST_CALLS / 3, most


def test_others_have_their_turn_while_groups_are_listed_by_grpc(broker: RunningBroker) -> None:
    with grpc.insecure_channel(broker.bootstrap) as channel, most_calls(broker) as most:
        listed = GroupsStub(channel).ListGroups(groups_pb2.ListGroupsRequest())
    assert {group.group_id for group in listed.groups} == {f"g{number}" for number in range(MANY)}
    assert most.calls < MOST_CALLS / 3, most


@pytest.mark.parametrize("how", ["deleted", "expired"])
def test_others_have_their_turn_while_offsets_are_removed(broker: RunningBroker, how: str) -> None:
    topic, groups = f"topic-{how}", broker.node.broker.services.groups
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        wire.send(CREATE_TOPICS, 4, topics=[new], timeout=PATIENCE_S * 1000, validate_only=False)
        broker.run(_commit(broker, topic))
        with most_calls(broker) as most:
            if how == "deleted":
                wire.send(DELETE_TOPICS, 4, topic_names=[topic], timeout=PATIENCE_S * 1000)
                wait_until(lambda: not offsets_left(broker), "no group has an offset")
            else:
                broker.run(groups.expire())
    assert not offsets_left(broker)
    assert most.calls < MOST_CALLS, most


async def _commit(broker: RunningBroker, topic: str) -> None:
    """Each group has an offset; those of the first group are many and all are old."""
    services = broker.node.broker.services
    topic_id = services.metadata.get(topic).topic_id
    value = OffsetValue(offset=1, commit_timestamp_ms=0, topic_id=topic_id)
    for number in range(MANY):
        shard = (await services.groups._host(f"g{number}")).shard
        for partition in range(1 if number else 3_000):
            shard.replay(CoordinatorRecord(OffsetKey(group_id=f"g{number}", topic=topic, partition=partition), value))


def offsets_left(broker: RunningBroker) -> int:
    """How many groups have offsets."""
    return sum(len(host.shard.offsets._groups) for host in broker.node.broker.services.groups._hosts())
