"""Reassignments: their steps, refusals, cancellation, and controllers that fail meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from sparklog.base.errors import KafkaError, NoReassignmentInProgress, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.cluster.model import ReplicaAssignment
from sparklog.cluster.partition_states import encode_state
from sparklog.cluster.topics import state_path
from sparklog.controller import reassignment
from sparklog.controller.reassignment import encode_request
from support.controller.scripted_cluster import Failure, ScriptedCluster, simulated

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MAX_WRITES = 60


async def cluster_of(brokers: int, *replicas: tuple[int, ...]) -> ScriptedCluster:
    """Return a cluster with the topic t."""
    cluster = ScriptedCluster()
    await cluster.start(*range(1, brokers + 1))
    await cluster.create("t", *(replicas or ((1, 2, 3),)))
    return cluster


def names_of(errors: dict[TopicPartition, KafkaError | None]) -> dict[TopicPartition, str | None]:
    return {name: error and error.name for name, error in errors.items()}


def test_a_partition_moves_to_other_brokers() -> None:
    async def test() -> None:
        cluster = await cluster_of(6)
        assert await cluster.reassign({T0: (4, 5, 6)}) == {T0: None}
        assert cluster.json("/brokers/topics/t")["adding_replicas"] == {"0": [4, 5, 6]}
        assert cluster.json("/brokers/topics/t")["removing_replicas"] == {"0": [1, 2, 3]}
        assert cluster.assignment(T0).replicas == (4, 5, 6, 1, 2, 3)
        await cluster.settle()

        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(4, 5, 6))
        state = cluster.state(T0)
        assert (state.leader, sorted(state.isr)) == (4, [4, 5, 6])
        assert cluster.logs(T0) == [4, 5, 6]
        for broker in cluster.brokers.values():
            [info] = broker.metadata.get("t").partitions
            assert (info.leader, info.replicas, info.adding, info.removing) == (4, (4, 5, 6), (), ())

    simulated(test)


def test_many_partitions_of_a_topic_move_with_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        count = 40
        cluster = await cluster_of(4, *[(1, 2)] * count)
        names = [TopicPartition("t", number) for number in range(count)]
        await cluster.settle()
        told: list[object] = []
        tell = cluster.brokers[2].told

        def listen(request: object) -> object:
            told.append(request)
            return tell(request)

        monkeypatch.setattr(cluster.brokers[2], "told", listen)
        assert set((await cluster.reassign(dict.fromkeys(names, (3, 4)))).values()) == {None}
        await cluster.settle()
        assert {cluster.assignment(name) for name in names} == {ReplicaAssignment(replicas=(3, 4))}
        assert {tuple(cluster.logs(name)) for name in names} == {(3, 4)}
        assert len(told) < count

    simulated(test)


def test_old_and_new_replicas_stay_until_the_target_is_in_sync() -> None:
    async def test() -> None:
        cluster = await cluster_of(4)
        cluster.held_back.add(4)
        await cluster.reassign({T0: (1, 4)})
        await cluster.settle()

        assert cluster.logs(T0) == [1, 2, 3, 4]
        [info] = cluster.brokers[2].metadata.get("t").partitions
        assert (info.leader, info.replicas, info.adding, info.removing) == (1, (1, 4, 2, 3), (4,), (2, 3))

        cluster.held_back.clear()
        cluster.catch_up(T0)
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(1, 4))
        assert cluster.logs(T0) == [1, 4]

    simulated(test)


def test_an_order_of_preference_changes_at_once_and_no_log_moves() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        await cluster.reassign({T0: (3, 1, 2)})
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(3, 1, 2))
        assert (cluster.state(T0).leader, cluster.logs(T0)) == (1, [1, 2, 3])

    simulated(test)


def test_a_cancelled_move_leaves_no_trace() -> None:
    async def test() -> None:
        cluster = await cluster_of(4)
        cluster.held_back.add(4)
        await cluster.reassign({T0: (4, 2)})
        await cluster.settle()
        assert names_of(await cluster.reassign({T0: None})) == {T0: None}
        await cluster.settle()

        assert sorted(cluster.assignment(T0).replicas) == [1, 2, 3]
        assert not cluster.assignment(T0).is_reassigning
        assert cluster.logs(T0) == [1, 2, 3]
        assert cluster.state(T0).leader == 1
        assert names_of(await cluster.reassign({T0: None})) == {T0: "NO_REASSIGNMENT_IN_PROGRESS"}

    simulated(test)


def test_a_move_can_be_sent_elsewhere_on_its_way() -> None:
    async def test() -> None:
        cluster = await cluster_of(5)
        cluster.held_back |= {4, 5}
        await cluster.reassign({T0: (1, 4)})
        await cluster.settle()
        await cluster.reassign({T0: (1, 5)})
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(1, 5, 2, 3), adding=(5,), removing=(2, 3))
        assert cluster.logs(T0) == [1, 2, 3, 5]

        cluster.held_back.clear()
        cluster.catch_up(T0)
        await cluster.settle()
        assert cluster.logs(T0) == [1, 5]

    simulated(test)


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    """All other replicas died and left the ISR: a cancellation would lose records acknowledged since."""

    async def test() -> None:
        cluster = await cluster_of(5, (1, 2))
        cluster.held_back.add(4)
        await cluster.reassign({T0: (3, 4)})
        await cluster.settle()
        cluster.kill(1)
        cluster.kill(2)
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (3, (3,))

        assert names_of(await cluster.reassign({T0: None})) == {T0: "INVALID_REPLICA_ASSIGNMENT"}
        assert names_of(await cluster.reassign({T0: (5,)})) == {T0: "INVALID_REPLICA_ASSIGNMENT"}
        assert 3 in cluster.logs(T0)
        cluster.held_back.clear()
        cluster.catch_up(T0)
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(3, 4))

    simulated(test)


def test_the_only_in_sync_replica_keeps_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last original replica leaves the ISR during the cancellation."""

    async def test() -> None:
        cluster = await cluster_of(5, (1, 2))
        cluster.held_back |= {2, 5}
        await cluster.reassign({T0: (1, 4, 5)})
        await cluster.settle()
        cluster.kill(1)
        await cluster.settle()
        state = cluster.state(T0)
        assert (state.leader, sorted(state.isr)) == (4, [2, 4])

        def shrink_before_the_first_write() -> None:
            monkeypatch.undo()
            shrunk = structs.replace(state, isr=(4,))
            cluster.store.set(state_path(*T0), encode_state(shrunk), state.version)

        monkeypatch.setattr(cluster, "count_write", shrink_before_the_first_write)
        await cluster.reassign({T0: None})
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (-1, (4,))
        assert 4 in cluster.logs(T0)

        assert await cluster.reassign({T0: (4,)}) == {T0: None}
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (4, (4,))
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(4,))

    simulated(test)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((), "INVALID_REPLICA_ASSIGNMENT"),
        ((1, 1), "INVALID_REPLICA_ASSIGNMENT"),
        ((1, 9), "INVALID_REPLICA_ASSIGNMENT"),
        ((1, 2), "INVALID_REPLICATION_FACTOR"),
        ((1, 2, 3), None),
    ],
)
def test_invalid_targets_are_refused(target: tuple[int, ...], error: str | None) -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        assert names_of(await cluster.reassign({T0: target}, may_resize=False)) == {T0: error}
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(1, 2, 3))

    simulated(test)


def test_one_partition_that_is_refused_holds_up_no_other() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1,))
        unknown = TopicPartition("u", 0)
        errors = await cluster.reassign({T1: (2,), unknown: (2,), T0: (2,)})
        await cluster.settle()
        assert isinstance(errors[T1], UnknownTopicOrPartition)
        assert isinstance(errors[unknown], UnknownTopicOrPartition)
        assert cluster.logs(T0) == [2]

    simulated(test)


def test_partitions_that_are_added_meanwhile_are_not_overwritten() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1,))
        await cluster.reassign({T0: (2,)})
        topic = cluster.topics.load_assignment("t")
        grown = type(topic)(
            topic_id=topic.topic_id,
            partitions=(*topic.partitions, ReplicaAssignment(replicas=(3,))),
            version=topic.version,
        )
        cluster.topics.set_assignment("t", grown)
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(2,))
        assert (cluster.assignment(T1).replicas, cluster.logs(T1)) == ((3,), [3])

    simulated(test)


def test_a_broker_of_the_target_that_was_down_is_waited_for() -> None:
    async def test() -> None:
        cluster = await cluster_of(4)
        cluster.held_back.add(4)
        await cluster.reassign({T0: (1, 4)})
        cluster.kill(4)
        cluster.held_back.clear()
        await cluster.settle()
        assert cluster.assignment(T0).is_reassigning

        await cluster.start(4)
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(1, 4))
        assert cluster.logs(T0) == [1, 4]

    simulated(test)


def complete_isr_unnoticed(cluster: ScriptedCluster, isr: tuple[int, ...]) -> None:
    """Write the ISR as a leader that loses the store's answer and then its leadership: without a notice."""
    state = cluster.state(T0)
    cluster.store.set(state_path(*T0), encode_state(structs.replace(state, isr=isr)), state.version)


def test_an_election_finds_the_isr_complete_of_which_no_leader_gave_notice() -> None:
    async def test() -> None:
        cluster = await cluster_of(4, (2, 1, 3))
        cluster.held_back.add(4)
        await cluster.reassign({T0: (1, 4)})
        await cluster.settle()
        complete_isr_unnoticed(cluster, (2, 1, 3, 4))
        assert await cluster.elect([T0]) == {T0: 1}
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(1, 4))
        assert cluster.logs(T0) == [1, 4]

    simulated(test)


def test_a_move_finds_the_isr_complete_as_it_raises_the_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        cluster = await cluster_of(4)
        cluster.held_back.add(4)
        await cluster.reassign({T0: (1, 4)})
        await cluster.settle()
        read_again = reassignment.read_again

        async def complete_afterwards(*args: Any) -> None:
            await read_again(*args)
            monkeypatch.undo()
            complete_isr_unnoticed(cluster, (1, 2, 3, 4))

        monkeypatch.setattr(reassignment, "read_again", complete_afterwards)
        await cluster.reassign({T0: (1, 4)})
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(1, 4))

    simulated(test)


def test_an_election_that_puts_the_target_in_sync_completes_the_move() -> None:
    """An unclean one: the only replica in sync is gone, and no leader will change the ISR."""

    async def test() -> None:
        cluster = await cluster_of(3, (2,))
        cluster.held_back.add(3)
        await cluster.reassign({T0: (3,)})
        cluster.kill(2)
        await cluster.settle()
        assert await cluster.elect([T0], is_unclean=True) == {T0: 3}
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(3,))

    simulated(test)


def test_the_leader_of_the_target_dies_as_the_move_is_to_be_completed() -> None:
    async def test() -> None:
        cluster = await cluster_of(5, (1, 2))
        cluster.held_back.add(5)
        await cluster.reassign({T0: (4, 5)})
        await cluster.settle()
        cluster.kill(4)
        cluster.held_back.clear()
        cluster.catch_up(T0)
        await cluster.settle()
        assert cluster.assignment(T0).is_reassigning
        await cluster.start(4)
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(4, 5))
        assert cluster.state(T0).leader in (4, 5)

    simulated(test)


REQUEST = encode_request({T0: (3,), TopicPartition("nope", 0): (3,)})


def test_the_node_of_older_tools_is_taken_up_and_emptied_as_its_moves_are_done() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1,))
        for _ in range(2):  # the watch is set again
            cluster.held_back = {2, 3}
            cluster.store.create("/admin/reassign_partitions", REQUEST)
            await cluster.settle()
            [left] = cluster.json("/admin/reassign_partitions")["partitions"]
            assert left == {"topic": "t", "partition": 0, "replicas": [3]}

            cluster.held_back.clear()
            cluster.catch_up(T0)
            await cluster.settle()
            assert not cluster.store.exists("/admin/reassign_partitions")
            assert cluster.logs(T0) == [3]
            await cluster.reassign({T0: (1,)})
            await cluster.settle()

    simulated(test)


def test_an_invalid_node_is_deleted() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1,))
        cluster.store.create("/admin/reassign_partitions", b'{"partitions": 7}')
        await cluster.settle()
        assert not cluster.store.exists("/admin/reassign_partitions")
        assert cluster.logs(T0) == [1]

    simulated(test)


@pytest.mark.slow
@pytest.mark.parametrize("failure", Failure)
def test_whichever_write_fails_the_move_is_completed(failure: Failure) -> None:
    """By the same controller, elected anew, or by another: each write of the move fails once, one run for each."""

    async def run(number: int) -> int:
        cluster = await cluster_of(6, (1, 2), (2, 3))
        controller = cluster.controller()
        cluster.fail_write(number, failure)
        try:
            await cluster.reassign({T0: (3, 4), T1: (5, 2)})
        except KafkaError:
            await cluster.settle()
            await cluster.reassign({T0: (3, 4), T1: (5, 2)})  # as a client does
        for _ in range(3):
            await cluster.settle()
        writes = cluster.writes
        if controller not in cluster.brokers:
            await cluster.start(controller)
            await cluster.settle()
        assert [cluster.assignment(name).replicas for name in (T0, T1)] == [(3, 4), (5, 2)]
        assert not any(cluster.assignment(name).is_reassigning for name in (T0, T1))
        for name in (T0, T1):
            state = cluster.state(name)
            assert sorted(state.isr) == sorted(cluster.assignment(name).replicas)
            assert state.leader in state.isr
            assert cluster.logs(name) == sorted(state.isr)
        return writes

    each_write_fails(run, more_than=8)


@pytest.mark.slow
@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("target", [None, (1, 6)], ids=["cancelled", "sent elsewhere"])
def test_whichever_write_fails_dropped_replicas_leave_the_isr(failure: Failure, target: tuple[int, ...] | None) -> None:
    """A dropped replica's log is deleted: in the ISR, acks=all would wait for it."""

    async def run(number: int) -> int:
        cluster = await cluster_of(6, (1, 2))
        controller = cluster.controller()
        cluster.held_back.add(5)
        await cluster.reassign({T0: (1, 4, 5)})
        await cluster.settle()
        assert sorted(cluster.state(T0).isr) == [1, 2, 4]
        cluster.fail_write(number, failure)
        for _ in range(2):
            try:
                await cluster.reassign({T0: target})
            except NoReassignmentInProgress:
                break
            except KafkaError:
                await cluster.settle()
                assert set(cluster.state(T0).isr) <= set(cluster.assignment(T0).replicas)
        await cluster.settle()
        writes = cluster.writes
        if controller not in cluster.brokers:
            await cluster.start(controller)
            await cluster.settle()
        wanted = [1, 2] if target is None else sorted(target)
        assert sorted(cluster.assignment(T0).replicas) == sorted(cluster.state(T0).isr) == cluster.logs(T0) == wanted
        return writes

    each_write_fails(run, more_than=3)


def each_write_fails(run: Callable[[int], Awaitable[int]], *, more_than: int) -> None:
    """Simulate one run for each write of controllers, by its number from 1 on; a run returns the number of writes."""
    for number in itertools.count(1):
        assert number < MAX_WRITES
        ended = []

        async def test(number: int = number, ended: list[int] = ended) -> None:
            ended.append(await run(number))

        simulated(test)
        if ended[0] < number:
            assert number > more_than
            return


def test_a_move_keeps_the_old_replicas_while_the_target_is_silent() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2))
        cluster.silent.add(2)
        assert await cluster.reassign({T0: (2,)}) == {T0: None}
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr, cluster.logs(T0)) == (1, (1, 2), [1, 2])

        cluster.silent.clear()
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr, cluster.logs(T0)) == (2, (2,), [2])
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(2,))

    simulated(test)


def test_a_move_waits_for_a_target_that_is_lost_while_it_is_silent() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2))
        cluster.silent.add(2)
        await cluster.reassign({T0: (2,)})
        cluster.kill(2)
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr, cluster.logs(T0)) == (1, (1,), [1, 2])

        cluster.silent.clear()
        await cluster.start(2)
        assert (cluster.state(T0).leader, cluster.state(T0).isr, cluster.logs(T0)) == (2, (2,), [2])

    simulated(test)


def test_a_new_controller_asks_the_target_again() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2))
        cluster.silent.add(2)
        await cluster.reassign({T0: (2,)})
        await cluster.settle()
        cluster.kill(cluster.controller())
        await cluster.settle()
        assert set(cluster.state(T0).isr) == ({1, 2} if 1 in cluster.brokers else {2})
        cluster.silent.clear()
        await cluster.settle()
        assert cluster.assignment(T0) == ReplicaAssignment(replicas=(2,))

    simulated(test)
