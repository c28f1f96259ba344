"""The tables of the states of partitions and replicas."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.controller.context import PartitionAndReplica
from sparklog.controller.states import (
    PARTITION_MOVES,
    REPLICA_MOVES,
    IllegalMove,
    PartitionState,
    ReplicaState,
    print_diagram,
    print_table,
)
from support.controller.state_machines import MachinesWorld
from support.controller.virtual_time import simulated

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ILLEGAL_OF_PARTITIONS = [pair for pair in product(PartitionState, PartitionState) if pair not in PARTITION_MOVES]
ILLEGAL_OF_REPLICAS = [pair for pair in product(ReplicaState, ReplicaState) if pair not in REPLICA_MOVES]


@pytest.mark.parametrize(("state", "target"), ILLEGAL_OF_PARTITIONS, ids=lambda each: each.name)
@simulated
async def test_a_partition_s_move_that_is_not_in_the_table_changes_nothing(
    state: PartitionState, target: PartitionState
) -> None:
    world = MachinesWorld({"t": [(1, 2), (2, 1)]})
    legal = next(each for each, to in PARTITION_MOVES if to is target)
    world.context.partition_states = {T0: legal, T1: state}
    before = world.snapshot()

    with pytest.raises(IllegalMove, match="t-1"):
        await world.partitions.move([T0, T1], target)

    assert world.snapshot() == before
    assert world.sent == []


@pytest.mark.parametrize(("state", "target"), ILLEGAL_OF_REPLICAS, ids=lambda each: each.name)
@simulated
async def test_a_replica_s_move_that_is_not_in_the_table_changes_nothing(
    state: ReplicaState, target: ReplicaState
) -> None:
    world = MachinesWorld({"t": [(1, 2), (2, 1)]})
    legal = next(each for each, to in REPLICA_MOVES if to is target)
    world.context.replica_states = {PartitionAndReplica(T0, 1): legal, PartitionAndReplica(T1, 1): state}
    before = world.snapshot()

    with pytest.raises(IllegalMove, match="t-1 on 1"):
        await world.replicas.move([PartitionAndReplica(T0, 1), PartitionAndReplica(T1, 1)], target)

    assert world.snapshot() == before
    assert world.sent == []


def test_whatever_is_there_can_be_deleted_in_the_end() -> None:
    for moves, last in ((PARTITION_MOVES, PartitionState.NON_EXISTENT), (REPLICA_MOVES, ReplicaState.NON_EXISTENT)):
        can = {last}
        while more := {state for state, target in moves if target in can} - can:
            can |= more
        assert can == set(type(last))


def test_the_documentation_shows_both_tables_and_diagrams_with_kafka_s_names() -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "concepts" / "controller.md").read_text()

    for moves in (PARTITION_MOVES, REPLICA_MOVES):
        assert print_table(moves) in documentation
        assert print_diagram(moves) in documentation
    assert "| OfflineReplica | ReplicaDeletionStarted | StopReplica to the broker, with deletion |" in documentation
