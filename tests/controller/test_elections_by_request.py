"""Preferred and unclean elections by request, balanced leaderships, and controlled shutdowns."""

from __future__ import annotations

import json

import pytest

from sparklog.base.errors import BrokerNotAvailable, StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.cluster.model import ReplicaAssignment
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.context import ControllerContext
from sparklog.controller.leader_elections import imbalanced
from support.controller.scripted_cluster import ScriptedCluster, simulated

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


async def cluster_of(brokers: int, *replicas: tuple[int, ...], **settings: object) -> ScriptedCluster:
    """Return a cluster with the topic t."""
    cluster = ScriptedCluster(**settings)
    await cluster.start(*range(1, brokers + 1))
    await cluster.create("t", *replicas)
    return cluster


async def restart(cluster: ScriptedCluster, broker_id: int) -> None:
    cluster.kill(broker_id)
    await cluster.settle()
    await cluster.start(broker_id)
    await cluster.settle()


def test_the_preferred_leader_is_elected_where_it_does_not_lead() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3), (2, 3, 1))
        await restart(cluster, 1)
        assert cluster.state(T0).leader == 2

        unknown = TopicPartition("t", 7)
        assert await cluster.elect([T0, T1, unknown]) == {
            T0: 1,
            T1: "ELECTION_NOT_NEEDED",
            unknown: "UNKNOWN_TOPIC_OR_PARTITION",
        }
        assert cluster.state(T0).leader == 1
        assert await cluster.elect(None) == {T0: "ELECTION_NOT_NEEDED", T1: "ELECTION_NOT_NEEDED"}

    simulated(test)


def test_a_preferred_leader_that_is_behind_or_gone_is_not_elected() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3))
        cluster.kill(1)
        await cluster.settle()
        assert await cluster.elect([T0]) == {T0: "PREFERRED_LEADER_NOT_AVAILABLE"}
        cluster.held_back.add(1)
        await cluster.start(1)
        assert await cluster.elect([T0]) == {T0: "PREFERRED_LEADER_NOT_AVAILABLE"}
        assert cluster.state(T0).leader == 2

    simulated(test)


def test_an_unclean_election_elects_a_replica_that_is_left() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2), (3,))
        cluster.held_back.add(2)
        await restart(cluster, 2)
        cluster.kill(1)
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (-1, (1,))

        assert await cluster.elect([T0]) == {T0: "PREFERRED_LEADER_NOT_AVAILABLE"}
        assert await cluster.elect([T0, T1], is_unclean=True) == {T0: 2, T1: "ELECTION_NOT_NEEDED"}
        assert cluster.state(T0).isr == (2,)
        cluster.kill(3)
        await cluster.settle()
        assert await cluster.elect([T1], is_unclean=True) == {T1: "ELIGIBLE_LEADERS_NOT_AVAILABLE"}

    simulated(test)


def test_no_leader_is_elected_for_a_topic_in_deletion() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2))
        cluster.kill(2)
        await cluster.delete("t")
        assert await cluster.elect([T0]) == {T0: "INVALID_TOPIC_EXCEPTION"}
        assert await cluster.elect(None) == {T0: "INVALID_TOPIC_EXCEPTION"}

    simulated(test)


def test_the_node_of_older_tools_is_taken_up_and_deleted() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3))
        for _ in range(2):  # the watch is set again
            await restart(cluster, 1)
            partitions = [{"topic": "t", "partition": 0}, {"topic": "nope", "partition": 0}]
            asked = json.dumps({"version": 1, "partitions": partitions}).encode()
            cluster.store.create("/admin/preferred_replica_election", asked)
            await cluster.settle()
            assert cluster.state(T0).leader == 1
            assert not cluster.store.exists("/admin/preferred_replica_election")
        cluster.store.create("/admin/preferred_replica_election", b"[]")
        await cluster.settle()
        assert not cluster.store.exists("/admin/preferred_replica_election")

    simulated(test)


def led_by(leader: int) -> Leadership:
    return Leadership(leader=leader, leader_epoch=0, isr=(leader,), controller_epoch=0)


def test_imbalance_counts_preferred_partitions_with_another_leader() -> None:
    context = ControllerContext(epoch=1, epoch_version=1)
    names = [TopicPartition("t", number) for number in range(10)]
    for number, name in enumerate(names):
        context.set_assignment(name, ReplicaAssignment(replicas=(1, 2)))
        context.leadership[name] = led_by(2 if number < 2 else 1)

    assert imbalanced(context, 10) == {1: names[:2]}
    assert imbalanced(context, 20) == {}
    assert imbalanced(context, 0) == {1: names[:2]}


def test_leaderships_go_back_by_themselves() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3), (2, 3, 1), leader_imbalance_check_interval_seconds=60)
        await restart(cluster, 1)
        assert cluster.state(T0).leader == 2
        for _ in range(15):
            await cluster.settle()
        assert cluster.state(T0).leader == 1

    simulated(test)


def test_leaderships_stay_where_that_is_disabled() -> None:
    async def test() -> None:
        cluster = await cluster_of(
            3, (1, 2, 3), leader_imbalance_check_interval_seconds=60, auto_leader_rebalance_enable=False
        )
        await restart(cluster, 1)
        for _ in range(15):
            await cluster.settle()
        assert cluster.state(T0).leader == 2

    simulated(test)


async def shut_down(cluster: ScriptedCluster, broker_id: int) -> tuple[TopicPartition, ...]:
    """Ask, as a stopping broker does, until others have answered the controller; return what remains."""
    epoch = cluster.brokers[broker_id].epoch
    remaining: tuple[TopicPartition, ...] = ()
    for _ in range(2):
        remaining = await cluster.ask(lambda active: active.operations.shut_down(broker_id, epoch))
        await cluster.settle()
    return remaining


def test_a_controlled_shutdown_moves_leaderships_and_leaves_the_isrs() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3), (2, 3, 1), (1,))
        assert await shut_down(cluster, 1) == ()
        assert (cluster.state(T0).leader, sorted(cluster.state(T0).isr)) == (2, [2, 3])
        assert (cluster.state(T1).leader, sorted(cluster.state(T1).isr)) == (2, [2, 3])
        assert cluster.logs(T0) == [1, 2, 3]
        assert await shut_down(cluster, 1) == ()

        await restart(cluster, 1)
        assert sorted(cluster.state(T0).isr) == [1, 2, 3]

    simulated(test)


def test_partitions_without_a_successor_remain() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2))
        cluster.held_back.add(2)
        await restart(cluster, 2)
        assert await shut_down(cluster, 1) == (T0,)
        assert cluster.state(T0).leader == 1
        cluster.held_back.clear()
        cluster.catch_up(T0)
        await cluster.settle()
        assert await shut_down(cluster, 1) == ()
        assert cluster.state(T0).leader == 2

    simulated(test)


def test_two_brokers_that_leave_are_not_elected_for_one_another() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3))
        assert await shut_down(cluster, 2) == ()
        assert await shut_down(cluster, 1) == ()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (3, (3,))
        assert await shut_down(cluster, 3) == (T0,)

    simulated(test)


def test_only_the_present_broker_epoch_can_shut_down() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2))
        with pytest.raises(BrokerNotAvailable):
            await cluster.ask(lambda active: active.operations.shut_down(9, 0))
        with pytest.raises(StaleBrokerEpoch):
            await cluster.ask(lambda active: active.operations.shut_down(1, 0))
        assert cluster.state(T0).leader == 1

    simulated(test)


def test_a_stopping_leader_stays_in_sync_while_the_others_are_silent() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2), (2, 1), (1, 2, 3))
        cluster.silent.add(2)
        await cluster.ask(lambda active: active.operations.shut_down(1, cluster.brokers[1].epoch))
        await cluster.settle()
        assert [(cluster.state(each).leader, cluster.state(each).isr) for each in (T0, T1, T2)] == [
            (1, (1, 2)), (2, (2, 1)), (1, (1, 2, 3)),
        ]  # fmt: skip
        assert await shut_down(cluster, 1) == (T0, T1)
        assert (cluster.state(T2).leader, cluster.state(T2).isr) == (3, (2, 3))

        cluster.silent.clear()
        await cluster.settle()
        assert [(cluster.state(each).leader, cluster.state(each).isr) for each in (T0, T1)] == [(2, (2,)), (2, (2,))]
        assert await shut_down(cluster, 1) == ()

    simulated(test)


def test_a_silent_broker_leaves_the_isr_before_a_stopping_one() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2), (2, 1))
        cluster.silent.add(2)
        assert await shut_down(cluster, 1) == (T0, T1)
        cluster.kill(2)
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1,))
        assert cluster.state(T1).isr == (1,)

    simulated(test)


def test_a_stopping_replica_stays_in_sync_when_a_silent_one_is_elected() -> None:
    async def test() -> None:
        cluster = await cluster_of(3, (1, 2, 3))
        cluster.silent |= {1, 2}
        assert await shut_down(cluster, 3) == (T0,)
        cluster.kill(1)
        await cluster.settle()
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (2, (2, 3))

        cluster.kill(2)
        await cluster.settle()
        assert cluster.state(T0).isr == (3,)

    simulated(test)
