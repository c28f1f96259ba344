"""Topics are deleted on every broker that has some of them: with brokers down, and controllers that fail meanwhile."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.topics import DELETIONS
from sparklog.controller import deletion
from support.controller.scripted_cluster import Failure, ScriptedCluster, simulated

T0 = TopicPartition("t", 0)
MAX_WRITES = 60


async def cluster_of(brokers: int, *replicas: tuple[int, ...]) -> ScriptedCluster:
    """Return a cluster with the topic t."""
    cluster = ScriptedCluster()
    await cluster.start(*range(1, brokers + 1))
    await cluster.create("t", *(replicas or ((1, 2, 3), (2, 3, 1))), overrides={"retention.ms": "1000"})
    return cluster


def assert_gone(cluster: ScriptedCluster) -> None:
    for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
        assert not cluster.store.exists(path)
    assert cluster.logs(T0) == []
    for broker in cluster.brokers.values():
        assert "t" not in broker.metadata


def test_a_topic_is_deleted_on_all_brokers_and_in_the_store() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        assert cluster.logs(T0) == [1, 2, 3]
        await cluster.delete("t")
        assert_gone(cluster)

        await cluster.create("t", (1, 2))
        assert cluster.logs(T0) == [1, 2]
        assert cluster.state(T0).leader == 1

    simulated(test)


def test_a_large_topic_is_deleted_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "NODES_AT_ONCE", 3)

    async def test() -> None:
        cluster = await cluster_of(3)
        await cluster.delete("t")
        assert_gone(cluster)

    simulated(test)


def test_a_dead_broker_is_waited_for() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        cluster.kill(3)
        await cluster.delete("t")
        assert cluster.store.exists("/admin/delete_topics/t")
        assert cluster.logs(T0) == [3]
        for broker in cluster.brokers.values():
            assert "t" not in broker.metadata

        await cluster.start(3)
        await cluster.settle()
        assert_gone(cluster)

    simulated(test)


def test_a_broker_that_dies_in_the_middle_is_waited_for() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        cluster.brokers[3].told = lambda _: cluster.kill(3)  # before it has done anything
        await cluster.delete("t")
        assert cluster.logs(T0) == [3]
        await cluster.start(3)
        await cluster.settle()
        assert_gone(cluster)

    simulated(test)


def test_a_disk_that_fails_to_delete_is_tried_again_when_its_broker_has_restarted() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        cluster.brokers[2].refuses_to_delete = True
        await cluster.delete("t")
        assert cluster.logs(T0) == [2]
        assert cluster.store.exists("/admin/delete_topics/t")

        cluster.kill(2)
        await cluster.start(2)
        await cluster.settle()
        assert_gone(cluster)

    simulated(test)


def test_the_next_controller_goes_on_with_a_deletion_that_waits() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        waited_for = next(each for each in (1, 2, 3) if each != cluster.controller())
        cluster.kill(waited_for)
        await cluster.delete("t")
        old = cluster.controller()
        cluster.kill(old)
        await cluster.settle()
        assert cluster.controller() != old
        assert cluster.store.exists("/brokers/topics/t")
        await cluster.start(old)
        await cluster.start(waited_for)
        await cluster.settle()
        assert_gone(cluster)

    simulated(test)


def test_a_topic_on_the_move_is_deleted_once_it_has_arrived() -> None:
    async def test() -> None:
        cluster = await cluster_of(4, (1, 2))
        cluster.held_back.add(4)
        await cluster.reassign({T0: (1, 4)})
        await cluster.delete("t")
        assert "t" in cluster.brokers[2].metadata
        assert cluster.state(T0).leader == 1
        refused = await cluster.reassign({T0: (3,)})
        assert isinstance(refused[T0], KafkaError)

        cluster.held_back.clear()
        cluster.catch_up(T0)
        await cluster.settle()
        assert_gone(cluster)

    simulated(test)


def test_a_topic_on_the_move_is_deleted_once_that_is_cancelled() -> None:
    """Also by a new controller, which learns of both from the store."""

    async def test() -> None:
        cluster = await cluster_of(4, (1, 2))
        cluster.held_back.add(4)
        await cluster.reassign({T0: (1, 4)})
        await cluster.delete("t")
        old = cluster.controller()
        cluster.kill(old)
        await cluster.start(old)
        await cluster.settle()
        assert cluster.store.exists("/brokers/topics/t")
        await cluster.reassign({T0: None})
        await cluster.settle()
        assert_gone(cluster)

    simulated(test)


def test_marks_without_a_topic_are_removed() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        cluster.store.create(f"{DELETIONS}/nope")
        await cluster.settle()
        assert cluster.topics.marked_deleted() == []

    simulated(test)


def test_where_deletion_is_disabled_nothing_is_deleted() -> None:
    async def test() -> None:
        cluster = ScriptedCluster(delete_topic_enable=False)
        await cluster.start(1)
        await cluster.create("t", (1,))
        await cluster.delete("t")
        assert cluster.topics.marked_deleted() == []
        assert cluster.logs(T0) == [1]
        cluster.store.create(f"{DELETIONS}/t")
        cluster.kill(1)
        await cluster.start(1)
        assert cluster.topics.marked_deleted() == []
        assert (cluster.logs(T0), cluster.state(T0).leader) == ([1], 1)

    simulated(test)


def test_a_topic_that_is_created_and_deleted_at_once_leaves_nothing() -> None:
    async def test() -> None:
        cluster = await cluster_of(3)
        cluster.topics.add("u", UUID(int=99), [(1, 2)], {})
        await cluster.delete("u")
        await cluster.delete("t")
        assert cluster.topics.names() == []
        assert all(not logs for logs in cluster.disks.values())

    simulated(test)


@pytest.mark.slow
@pytest.mark.parametrize("failure", Failure)
def test_whichever_write_fails_the_topic_is_deleted(failure: Failure, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same controller, elected anew, or by another: each write of the deletion fails once, one run for each."""
    monkeypatch.setattr(deletion, "NODES_AT_ONCE", 2)

    async def run(number: int) -> int:
        cluster = await cluster_of(4, (1, 2), (2, 3))
        controller = cluster.controller()
        cluster.fail_write(number, failure)
        await cluster.delete("t")
        for _ in range(3):
            await cluster.settle()
        writes = cluster.writes
        if controller not in cluster.brokers:
            await cluster.start(controller)
            await cluster.settle()
        assert_gone(cluster)
        return writes

    for number in itertools.count(1):
        assert number < MAX_WRITES
        ended: list[int] = []

        async def test(number: int = number, ended: list[int] = ended) -> None:
            ended.append(await run(number))

        simulated(test)
        if ended[0] < number:
            assert number > 3
            return
