"""A broker with tens of thousands of groups: others have their turn while they are listed, or lose their offsets."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from sparklog.group.classic_group import ClassicGroup
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import groups_pb2
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.brokers.most_calls import MOST_CALLS, most_calls
from support.kafka.connection import Wire

LIST_GROUPS, FIND_COORDINATOR = 16, 10
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
