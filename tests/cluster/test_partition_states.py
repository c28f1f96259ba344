"""States of partitions in the store, as the controller and as a leader write them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from sparklog.base.errors import BadVersion, ConnectionLoss, ControllerMoved, InvalidUpdateVersion, NoNode
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.partition_states import (
    STATES_AT_ONCE,
    Leadership,
    alter_isr,
    alter_isrs,
    fenced_multi,
    note_initialized,
    read_states,
    write_states,
)
from sparklog.cluster.store import Delete, Operation, ensure_path, subtree
from sparklog.cluster.topics import TopicStore
from sparklog.replica.messages import AlterIsr, AlterIsrResult

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = UUID(int=1)
FIRST = Leadership(leader=1, leader_epoch=0, isr=(1, 2, 3), controller_epoch=1)


@pytest.fixture
def store() -> MemoryStore:
    return new_store()


def new_store() -> MemoryStore:
    made = MemoryStore(MemoryTree())
    topics = TopicStore(made, TopicConfig())
    topics.make_paths()
    topics.add("t", TOPIC_ID, [(1, 2, 3)] * 2, {})
    made.create("/controller_epoch", b"1")
    ensure_path(made, "/brokers")
    return made


def let_count(store: MemoryStore, **epochs: int) -> None:
    lives = read_broker_epochs(store)
    store.multi([lives.write({int(name[1:]): epoch for name, epoch in epochs.items()})])


def change(isr: tuple[int, ...], *, version: int = 0, leader_epoch: int = 0, **joining: int) -> AlterIsr:
    return AlterIsr(
        name=T0,
        topic_id=TOPIC_ID,
        leader=1,
        leader_epoch=leader_epoch,
        controller_epoch=1,
        isr=isr,
        partition_epoch=version,
        joining={int(name[1:]): epoch for name, epoch in joining.items()},
    )


def test_states_are_created_and_then_set_where_they_are_as_they_were_read(store: MemoryStore) -> None:
    created = write_states(store, {T0: FIRST, T1: FIRST}, 0)
    assert {name: state.version for name, state in created.items()} == {T0: 0, T1: 0}
    moved = {name: structs.replace(state, leader=2) for name, state in created.items()}
    alter_isr(store, change((1, 2)))

    written = write_states(store, moved, 0)

    assert {name: state.version for name, state in written.items()} == {T1: 1}
    assert read_states(store, [T0, T1, TopicPartition("u", 0)]) == {
        T0: structs.replace(FIRST, isr=(1, 2), version=1),
        T1: structs.replace(FIRST, leader=2, version=1),
    }


def test_a_controller_that_was_deposed_writes_nothing(store: MemoryStore) -> None:
    write_states(store, {T0: FIRST}, 0)
    store.set("/controller_epoch", b"2")
    with pytest.raises(ControllerMoved):
        write_states(store, {T0: structs.replace(FIRST, leader=2, version=0), T1: FIRST}, 0)
    with pytest.raises(ControllerMoved):
        fenced_multi(store, 0, ())
    assert read_states(store, [T0, T1]) == {T0: structs.replace(FIRST, version=0)}


def test_more_states_than_go_into_one_transaction(store: MemoryStore) -> None:
    names = [TopicPartition("t", number) for number in range(STATES_AT_ONCE * 2 + 1)]
    assert set(write_states(store, dict.fromkeys(names, FIRST), 0)) == set(names)
    assert len(read_states(store, names)) == len(names)


def test_the_topic_s_node_knows_which_partitions_have_had_a_state(store: MemoryStore) -> None:
    """Otherwise a lost state would look like a new partition."""
    topics = TopicStore(store, TopicConfig())
    write_states(store, {T1: FIRST}, 0)
    assert topics.load_assignment("t").lost_states("t", read_states(store, [T0, T1])) == []
    write_states(store, {T0: FIRST}, 0)
    grown = topics.load_assignment("t")
    topics.set_assignment("t", structs.replace(grown, partitions=(*grown.partitions, grown.partitions[0])))
    assert topics.load_assignment("t").lost_states("t", read_states(store, [T0, T1])) == []

    store.delete("/brokers/topics/t/partitions/1/state")

    assert topics.load_assignment("t").lost_states("t", read_states(store, [T0, T1])) == [T1]


def test_a_controller_notes_it_for_topics_of_an_earlier_version_unless_they_have_changed(store: MemoryStore) -> None:
    topics = TopicStore(store, TopicConfig())
    topics.add("u", UUID(int=2), [(1,)] * 3, {})
    write_states(store, {T0: FIRST, T1: FIRST, TopicPartition("u", 0): FIRST}, 0)
    for name in ("t", "u"):
        topics.set_assignment(name, structs.replace(topics.load_assignment(name), initialized=0))
    read = {name: topics.load_assignment(name) for name in ("t", "u")}
    states = read_states(store, [T0, T1, *(TopicPartition("u", number) for number in range(3))])
    topics.set_assignment("u", read["u"])

    note_initialized(store, {"u": read["u"]}, states, 0)
    note_initialized(store, {"t": read["t"]}, states, 0)

    assert [topics.load_assignment(name).initialized for name in ("t", "u")] == [2, 0]
    note_initialized(store, {"u": topics.load_assignment("u")}, states, 0)
    assert topics.load_assignment("u").initialized == 1


def test_states_of_a_topic_that_was_deleted_meanwhile_are_not_written(store: MemoryStore) -> None:
    gone = TopicPartition("gone", 0)
    assert set(write_states(store, {T0: FIRST, gone: FIRST}, 0)) == {T0}
    assert not store.exists("/brokers/topics/gone")


@pytest.mark.slow
@given(st.sets(st.integers(0, STATES_AT_ONCE - 1), max_size=2))
def test_one_that_others_have_changed_costs_the_rest_few_writes(changed: set[int]) -> None:
    store = new_store()
    names = [TopicPartition("t", number) for number in range(STATES_AT_ONCE)]
    states = write_states(store, dict.fromkeys(names, FIRST), 0)
    for number in changed:
        write_states(store, {names[number]: states[names[number]]}, 0)
    writes = []
    multi = store.multi
    store.multi = lambda operations: (writes.append(1), multi(operations))  # type: ignore[method-assign]

    written = write_states(store, states, 0)

    assert set(written) == {name for number, name in enumerate(names) if number not in changed}
    assert len(writes) <= 1 + len(changed) * 2 * math.ceil(math.log2(STATES_AT_ONCE))


def test_a_leader_changes_the_isr_and_leaves_a_notice(store: MemoryStore) -> None:
    write_states(store, {T0: FIRST}, 0)
    assert alter_isr(store, change((1,))) == AlterIsrResult(isr=(1,), partition_epoch=1)
    let_count(store, b2=7)
    assert alter_isr(store, change((1, 2), version=1, b2=7)) == AlterIsrResult(isr=(1, 2), partition_epoch=2)
    assert len(store.children("/isr_change_notification")) == 2


def test_an_ended_broker_epoch_does_not_join_the_isr(store: MemoryStore) -> None:
    write_states(store, {T0: structs.replace(FIRST, isr=(1,))}, 0)
    for lives in ({}, {"b2": 6}, {"b3": 7}):
        let_count(store, **lives)
        with pytest.raises(InvalidUpdateVersion):
            alter_isr(store, change((1, 2), b2=7))
    assert read_states(store, [T0])[T0].isr == (1,)


def test_a_broker_that_shuts_down_does_not_join_the_isr(store: MemoryStore) -> None:
    write_states(store, {T0: structs.replace(FIRST, isr=(1,))}, 0)
    store.multi([read_broker_epochs(store).write({1: 5, 2: 6}, stopping={2})])
    with pytest.raises(InvalidUpdateVersion, match="broker 2 is shutting down"):
        alter_isr(store, change((1, 2), b2=6))
    assert read_states(store, [T0])[T0].isr == (1,)


def test_a_broker_epoch_that_ends_before_the_write_does_not_join_the_isr(store: MemoryStore) -> None:
    write_states(store, {T0: structs.replace(FIRST, isr=(1,))}, 0)
    let_count(store, b2=7)
    write, store.multi = store.multi, None

    def end_first(operations: object) -> None:
        store.multi = write
        let_count(store, b2=8)
        store.multi(operations)

    store.multi = end_first
    with pytest.raises(InvalidUpdateVersion):
        alter_isr(store, change((1, 2), b2=7))
    assert read_states(store, [T0])[T0].isr == (1,)


def test_a_broker_joins_the_isr_while_others_register(store: MemoryStore) -> None:
    write_states(store, {T0: structs.replace(FIRST, isr=(1,))}, 0)
    let_count(store, b2=7)
    write, store.multi = store.multi, None

    def another_first(operations: object) -> None:
        store.multi = write
        let_count(store, b2=7, b3=9)
        store.multi(operations)

    store.multi = another_first
    assert alter_isr(store, change((1, 2), b2=7)).isr == (1, 2)


def test_a_retry_after_a_lost_answer_returns_the_written_isr(store: MemoryStore) -> None:
    write_states(store, {T0: FIRST}, 0)
    store.lose_next_answer()
    with pytest.raises(ConnectionLoss):
        alter_isr(store, change((1, 3)))
    assert alter_isr(store, change((1, 3))) == AlterIsrResult(isr=(1, 3), partition_epoch=1)


def test_a_former_leader_changes_no_isr(store: MemoryStore) -> None:
    state = write_states(store, {T0: FIRST}, 0)[T0]
    write_states(store, {T0: structs.replace(state, leader=2, leader_epoch=1)}, 0)
    with pytest.raises(BadVersion):
        alter_isr(store, change((1,)))
    assert read_states(store, [T0])[T0].leader == 2


def make_again(store: MemoryStore, topic_id: UUID) -> None:
    """Delete the topic, and make another of its name."""
    store.multi(map(Delete, (*subtree(store, "/brokers/topics/t"), "/config/topics/t")))
    TopicStore(store, TopicConfig()).add("t", topic_id, [(1, 2, 3)] * 2, {})
    write_states(store, {T0: structs.replace(FIRST, isr=(1,))}, 0)


def test_a_late_change_does_not_hit_a_newer_topic_of_the_name(store: MemoryStore) -> None:
    write_states(store, {T0: structs.replace(FIRST, isr=(1,))}, 0)
    make_again(store, UUID(int=2))
    for late in ([change((1, 2))], [change((1, 2)), change((1, 2))]):
        assert [type(each) for each in alter_isrs(store, late)] == [NoNode] * len(late)
    assert read_states(store, [T0])[T0].isr == (1,)
    assert store.exists("/isr_change_notification") is False


def test_isrs_are_changed_together_while_their_topic_changes(store: MemoryStore) -> None:
    write_states(store, dict.fromkeys([T0, T1], structs.replace(FIRST, isr=(1,))), 0)
    topics, transactions = TopicStore(store, TopicConfig()), []
    write, store.multi = store.multi, None

    def grow_first(operations: Iterable[Operation]) -> None:
        store.multi = count
        topics.set_assignment("t", topics.load_assignment("t"))
        store.multi(operations)

    def count(operations: Iterable[Operation]) -> None:
        transactions.append(operations)
        write(operations)

    store.multi = grow_first
    changes = [structs.replace(change((1, 2)), name=name) for name in (T0, T1)]
    assert alter_isrs(store, changes) == [AlterIsrResult(isr=(1, 2), partition_epoch=1)] * 2
    assert len(transactions) < 6
