"""The offset at which an out-of-sync leader's log departs from others, and in-sync brokers that are no replicas."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from msgspec import structs

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.memory import MemoryNodes, MemoryStore
from sparklog.cluster.model import ReplicaAssignment
from sparklog.cluster.partition_states import Leadership, encode_state
from sparklog.cluster.store import ensure_path
from sparklog.cluster.topics import TopicStore, encode_assignment, state_path
from sparklog.log.epochs import EpochStart, LeaderEpochs
from sparklog.testing.sim.checks.history import UncleanElection
from sparklog.testing.sim.store import ObservedTree, ReplicaEnd, first_missing_offset

pytestmark = pytest.mark.slow


def log(end: int, *starts: tuple[int, int], is_leading: bool = False) -> ReplicaEnd:
    return ReplicaEnd(LeaderEpochs(tuple(EpochStart(*each) for each in starts)), end, is_leading)


def test_what_the_leader_lacks_begins_at_its_end() -> None:
    assert first_missing_offset(log(60, (0, 0)), [log(73, (0, 0)), log(50, (0, 0))]) == 60


def test_what_another_epoch_wrote_at_the_same_offsets_is_lacking() -> None:
    assert first_missing_offset(log(60, (0, 0), (1, 44)), [log(73, (0, 0), (1, 44), (3, 58))]) == 58
    assert first_missing_offset(log(60, (0, 0), (1, 44)), [log(44, (0, 0))]) == 60


def test_who_leads_on_and_does_not_know_better_writes_on_from_its_end() -> None:
    elected = log(43, (0, 0), (2, 20))
    assert first_missing_offset(elected, [log(28, (0, 0), (2, 20), is_leading=True)]) == 28
    assert first_missing_offset(elected, [log(28, (0, 0), (2, 20))]) == 43
    assert first_missing_offset(elected, [log(50, (0, 0), (2, 20), is_leading=True)]) == 43


def tree_with(
    replicas: tuple[int, ...], state: Leadership, *, log_end: Callable[[TopicPartition, int, int], int] = lambda *_: 0
) -> tuple[ObservedTree, MemoryStore]:
    """With partition 0 of the topic t."""
    tree = ObservedTree(MemoryNodes(), log_end)
    store = MemoryStore(tree)
    topics = TopicStore(store, TopicConfig())
    topics.make_paths()
    topics.add("t", UUID(int=1), [replicas], {})
    ensure_path(store, "/brokers/topics/t/partitions/0")
    store.create(state_path("t", 0), encode_state(state))
    return tree, store


def test_who_is_in_sync_and_no_replica_is_seen_whichever_of_both_was_written() -> None:
    name = TopicPartition("t", 0)
    state = Leadership(leader=1, leader_epoch=0, isr=(1, 2, 3), controller_epoch=1)
    tree, store = tree_with((1, 2, 3), state)
    assert not tree.outsiders

    store.set(state_path(*name), encode_state(structs.replace(state, isr=(1, 4))))
    assert tree.outsiders == {(name, 4)}
    store.set("/brokers/topics/t", encode_assignment(UUID(int=1), [ReplicaAssignment(replicas=(4, 2))]))
    assert tree.outsiders == {(name, 4), (name, 1)}


def test_who_alone_is_in_sync_may_be_no_replica() -> None:
    tree, _ = tree_with((1, 2), Leadership(leader=-1, leader_epoch=0, isr=(3,), controller_epoch=1))
    assert not tree.outsiders


def test_an_unclean_election_of_a_replica_that_is_being_added_may_lose_all_records() -> None:
    name = TopicPartition("t", 0)
    state = Leadership(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)
    tree, store = tree_with((1, 2), state, log_end=lambda *_: 7)
    moved = ReplicaAssignment(replicas=(3, 2, 1), adding=(3,), removing=(1,))
    store.set("/brokers/topics/t", encode_assignment(UUID(int=1), [moved]))
    for epoch, leader in enumerate((2, 3), 1):
        store.set(state_path(*name), encode_state(structs.replace(state, leader=leader, leader_epoch=epoch)))
    assert tree.unclean == {name: [UncleanElection(7, 1), UncleanElection(0, 2)]}
