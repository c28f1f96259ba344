"""A broker with tens of thousands of groups: other requests are served during lists and the removal of offsets."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from msgspec.structs import replace

from sparklog.coordinator.runtime import CoordinatorRuntime
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.shard import GroupShard
from sparklog.offsets_topic.records import (
    CoordinatorRecord,
    GroupKey,
    GroupValue,
    MemberMetadata,
    OffsetKey,
    OffsetValue,
)
from sparklog.runtime.state_machine import Decision
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import groups_pb2
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.brokers.most_calls import MOST_CALLS, most_calls
from support.kafka.connection import Wire
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

LIST_GROUPS, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, DELETE_GROUPS = 16, 10, 19, 20, 42
MANY = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker with the groups g0, g1, …"""
    with start_broker(kafka=True, offsets_topic_num_partitions=3) as running:
        with Wire(running.node.kafka_addresses["PLAINTEXT"]) as wire:
            wire.send(FIND_COORDINATOR, 1, key="g", key_type=0)
        running.run(_make_groups(running))
        yield running


async def _make_groups(broker: RunningBroker) -> None:
    groups = broker.node.broker.services.groups
    for number in range(MANY):
        group = ClassicGroup(group_id=f"g{number}")
        (await groups._runtime(group.group_id)).shard.groups[group.group_id] = group


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
    """Commit an offset of each group; those of the first group are many and old."""
    services = broker.node.broker.services
    topic_id = services.metadata.get(topic).topic_id
    value = OffsetValue(offset=1, commit_timestamp_ms=0, topic_id=topic_id)
    for number in range(MANY):
        shard = (await services.groups._runtime(f"g{number}")).shard
        for partition in range(1 if number else 3_000):
            shard.replay(CoordinatorRecord(OffsetKey(group_id=f"g{number}", topic=topic, partition=partition), value))


def offsets_left(broker: RunningBroker) -> int:
    """The number of groups with offsets."""
    return sum(len(host.shard.offsets._groups) for host in broker.node.broker.services.groups.partitions.runtimes)


def test_others_have_their_turn_while_a_group_with_many_offsets_is_deleted(broker: RunningBroker) -> None:
    """Its offsets exceed the maximum of a batch, because topics have long names."""
    broker.run(_replay(broker, _many_offsets("deleted", 10_000)))
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire, most_calls(broker) as most:
        results = wire.send(DELETE_GROUPS, 1, groups_names=["deleted", "missing"]).results
    assert [(each.group_id, each.error_code) for each in results] == [("deleted", 0), ("missing", 69)]
    [host] = {broker.run(broker.node.broker.services.groups._runtime("deleted"))}
    assert not host.shard.offsets.of("deleted")
    assert "deleted" not in host.shard.groups
    assert most.calls < MOST_CALLS / 3, most


def test_others_have_their_turn_while_a_partition_of_many_members_is_loaded() -> None:
    member = MemberMetadata(
        member_id="m", group_instance_id=None, client_id="c", client_host="h", rebalance_timeout_ms=60_000,
        session_timeout_ms=60_000, subscription=b"", assignment=b"",
    )  # fmt: skip
    members = tuple(replace(member, member_id=f"m{number}") for number in range(10))
    value = GroupValue(
        protocol_type="consumer", generation=1, protocol="range", leader="m0", current_state_timestamp_ms=0,
        members=members,
    )  # fmt: skip
    records = [CoordinatorRecord(GroupKey(group_id=f"g{number}"), value) for number in range(2_000)]
    with start_broker(kafka=True, offsets_topic_num_partitions=1) as broker:
        with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
            wire.send(FIND_COORDINATOR, 1, key="g", key_type=0)
        groups = broker.node.broker.services.groups
        before = broker.run(_replay(broker, records, is_written=True))
        with most_calls(broker) as most:
            broker.run(_load_again(groups))
        [host] = groups.partitions.runtimes
        assert host is not before
        assert len(host.shard.groups) == 2_000
        assert len(host._timers) == 20_000
        assert most.calls < MOST_CALLS / 3, most


def _many_offsets(group_id: str, number: int) -> list[CoordinatorRecord]:
    value = OffsetValue(offset=1, commit_timestamp_ms=0)
    keys = (OffsetKey(group_id=group_id, topic="t" * 200, partition=partition) for partition in range(number))
    return [CoordinatorRecord(key, value) for key in keys]


async def _replay(
    broker: RunningBroker, records: list[CoordinatorRecord], *, is_written: bool = False
) -> CoordinatorRuntime[GroupShard]:
    """Replay records into the shard of the first record's group."""
    host = await broker.node.broker.services.groups._runtime(records[0].key.group_id)
    if is_written:
        for record in records:
            await host.write(Decision(records=[record]))
    else:
        for record in records:
            host.shard.replay(record)
    return host


async def _load_again(groups: GroupCoordinator) -> None:
    epoch = groups.partitions._led[0].leader_epoch
    groups.partitions.unload(0)
    groups.partitions.load(0, epoch)
    await groups.partitions.loaded()
