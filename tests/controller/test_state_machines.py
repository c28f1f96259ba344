"""The writes and requests of the state machines, on contexts made by hand."""

from __future__ import annotations

import pytest
from msgspec import structs

from sparklog.base.errors import (
    ControllerMoved,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    StoreError,
)
from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.partition_states import Leadership, read_states, write_states
from sparklog.cluster.topics import state_path
from sparklog.controller.context import PartitionAndReplica
from sparklog.controller.election import Election
from sparklog.controller.states import PartitionState, ReplicaState
from sparklog.replica.messages import LeaderAndIsr, StopReplica
from support.controller.state_machines import MachinesWorld
from support.controller.virtual_time import simulated

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def led(replicas: list[tuple[int, ...]]) -> MachinesWorld:
    world = MachinesWorld({"t": replicas})
    names = world.context.partitions()
    await world.partitions.move(names, PartitionState.NEW)
    await world.replicas.move(world.context.replicas(names), ReplicaState.NEW)
    await world.partitions.move(names, PartitionState.ONLINE)
    await world.replicas.move(world.context.replicas(names), ReplicaState.ONLINE)
    return world


def in_store(world: MachinesWorld, name: TopicPartition = T0) -> Leadership:
    return read_states(world.store, [name])[name]


def leader_writes(world: MachinesWorld, isr: tuple[int, ...], name: TopicPartition = T0) -> None:
    """Change the ISR as the leader does, unknown to the controller."""
    write_states(world.store, {name: structs.replace(in_store(world, name), isr=isr)}, world.context.epoch_version)


@simulated
async def test_replicas_of_a_new_partition_are_informed_before_all_brokers() -> None:
    world = await led([(2, 1)])

    assert in_store(world) == world.context.leadership[T0]
    assert in_store(world).isr == (2, 1)
    assert [(broker, type(request)) for broker, request in world.sent] == [
        (1, LeaderAndIsr),
        (2, LeaderAndIsr),
        (1, UpdateMetadata),
        (2, UpdateMetadata),
        (3, UpdateMetadata),
    ]
    first = world.sent[0][1]
    assert isinstance(first, LeaderAndIsr)
    assert first.partitions[0].is_new
    assert (first.partitions[0].leader, first.partitions[0].partition_epoch, first.broker_epoch) == (2, 0, 1)


@simulated
async def test_partitions_of_one_move_go_to_each_broker_in_one_request() -> None:
    world = await led([(1, 2), (2, 1), (3, 1)])

    requests = [request for broker, request in world.sent if broker == 1 and isinstance(request, LeaderAndIsr)]
    assert [len(request.partitions) for request in requests] == [3]


@simulated
async def test_an_election_that_a_leader_s_isr_change_has_overtaken_is_decided_again() -> None:
    world = await led([(1, 2, 3), (1, 2, 3)])
    leader_writes(world, (1, 3))
    del world.context.brokers[1]

    assert await world.partitions.move([T0, T1], PartitionState.ONLINE) == {}

    assert (in_store(world).leader, in_store(world).isr) == (3, (3,))
    assert (in_store(world, T1).leader, in_store(world, T1).isr) == (2, (2, 3))
    assert world.context.leadership[T0] == in_store(world)


@simulated
async def test_a_replica_leaves_the_isr_in_the_store() -> None:
    world = await led([(1, 2, 3)])
    leader_writes(world, (2, 1))
    await world.replicas.move([PartitionAndReplica(T0, 2)], ReplicaState.OFFLINE)

    assert in_store(world).isr == (1,)
    assert world.context.replica_state(PartitionAndReplica(T0, 2)) is ReplicaState.OFFLINE
    stops = [(broker, request) for broker, request in world.sent if isinstance(request, StopReplica)]
    assert [(broker, request.partitions[0].delete) for broker, request in stops] == [(2, False)]


@simulated
async def test_the_last_in_sync_stays_so_and_of_all_that_is_the_leader() -> None:
    world = await led([(2, 1, 3)])
    await world.replicas.move([PartitionAndReplica(T0, broker) for broker in (1, 2, 3)], ReplicaState.OFFLINE)

    assert (in_store(world).leader, in_store(world).isr) == (-1, (2,))


@simulated
async def test_without_a_possible_leader_a_partition_keeps_its_state_with_an_error() -> None:
    world = await led([(1, 2), (2, 1)])
    before = in_store(world)
    del world.context.brokers[1], world.context.brokers[2]
    await world.partitions.move([T0, T1], PartitionState.OFFLINE)
    world.sent.clear()

    errors = await world.partitions.move([T0], PartitionState.ONLINE)
    preferred = await world.partitions.move([T1], PartitionState.ONLINE, Election.PREFERRED)

    assert isinstance(errors[T0], EligibleLeadersNotAvailable)
    assert isinstance(preferred[T1], PreferredLeaderNotAvailable)
    assert world.context.partition_state(T0) is PartitionState.OFFLINE
    assert in_store(world) == before
    assert world.sent == []


@simulated
async def test_a_deposed_controller_writes_nothing_and_sends_nothing() -> None:
    world = await led([(1, 2)])
    before, known = in_store(world), dict(world.context.leadership)
    world.store.set("/controller_epoch", b"2")
    world.sent.clear()

    with pytest.raises(ControllerMoved):
        await world.partitions.move([T0], PartitionState.ONLINE)
    with pytest.raises(ControllerMoved):
        await world.replicas.move([PartitionAndReplica(T0, 2)], ReplicaState.OFFLINE)

    assert in_store(world) == before
    assert world.context.leadership == known
    assert world.sent == []


@simulated
async def test_a_replica_is_deleted_step_by_step_and_then_not_assigned_any_more() -> None:
    world = await led([(1, 2, 3)])
    gone = [PartitionAndReplica(T0, 3)]
    world.sent.clear()
    for target in (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL):
        await world.replicas.move(gone, target)
    await world.replicas.move(gone, ReplicaState.NON_EXISTENT)

    assert world.context.assignment(T0).replicas == (1, 2)
    assert PartitionAndReplica(T0, 3) not in world.context.replica_states
    stops = [request for broker, request in world.sent if broker == 3 and isinstance(request, StopReplica)]
    assert [request.partitions[0].delete for request in stops] == [False, True]


@simulated
async def test_a_partition_whose_state_the_store_has_lost_does_not_count_as_new() -> None:
    """It would get another leader in a leader epoch that was used before."""
    world = await led([(2, 1)])
    known = world.context.leadership[T0]
    world.store.delete(state_path(*T0))
    del world.context.brokers[2]
    await world.partitions.move([T0], PartitionState.OFFLINE)
    world.sent.clear()

    with pytest.raises(StoreError, match="has lost the states of t-0"):
        await world.partitions.move([T0], PartitionState.ONLINE)

    assert world.context.leadership[T0] == known
    assert read_states(world.store, [T0]) == {}
    assert world.sent == []
