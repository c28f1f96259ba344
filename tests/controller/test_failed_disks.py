"""Replicas that a broker cannot open or delete for a moment: it asks the controller again."""

from __future__ import annotations

from sparklog.base.ids import TopicPartition
from sparklog.cluster.brokers import report_failed_disk
from sparklog.replica.messages import NO_LEADER
from support.controller.scripted_cluster import ScriptedCluster, simulated

T0, ALONE = TopicPartition("t", 0), TopicPartition("alone", 0)


async def cluster_that_opens_nothing_on(broker_id: int) -> ScriptedCluster:
    """Return a cluster of three, with a topic on all brokers and one on this broker only."""
    cluster = ScriptedCluster()
    await cluster.start(1, 2, 3)
    cluster.brokers[broker_id].refuses_to_open = True
    await cluster.create("t", (2, 1, 3))
    await cluster.create("alone", (broker_id,))
    return cluster


async def ask_again(cluster: ScriptedCluster, broker_id: int) -> None:
    report_failed_disk(cluster.store, broker_id)
    await cluster.settle()


def test_a_replica_that_its_broker_opens_at_last_is_in_sync_again_and_may_lead() -> None:
    async def test() -> None:
        cluster = await cluster_that_opens_nothing_on(2)
        assert (cluster.state(T0).leader, cluster.state(T0).isr) == (1, (1, 3))
        assert (cluster.state(ALONE).leader, cluster.state(ALONE).isr) == (NO_LEADER, (2,))
        await ask_again(cluster, 2)
        assert cluster.state(ALONE).leader == NO_LEADER

        cluster.brokers[2].refuses_to_open = False
        await ask_again(cluster, 2)
        assert cluster.state(ALONE).leader == 2
        assert sorted(cluster.state(T0).isr) == [1, 2, 3]
        cluster.kill(1)
        await cluster.settle()
        assert cluster.state(T0).leader == 2

    simulated(test)


def test_a_topic_that_its_broker_could_not_delete_is_deleted_once_it_can() -> None:
    async def test() -> None:
        cluster = await cluster_that_opens_nothing_on(2)
        broker = cluster.brokers[2]
        broker.refuses_to_open, broker.refuses_to_delete = False, True
        await ask_again(cluster, 2)
        await cluster.delete("t")
        await ask_again(cluster, 2)
        assert cluster.logs(T0) == [2]
        assert cluster.store.exists("/brokers/topics/t")

        broker.refuses_to_delete = False
        await ask_again(cluster, 2)
        assert cluster.logs(T0) == []
        assert not cluster.store.exists("/brokers/topics/t")

    simulated(test)


def test_a_topic_that_its_broker_could_not_open_is_deleted_when_it_asks() -> None:
    async def test() -> None:
        cluster = await cluster_that_opens_nothing_on(2)
        await cluster.delete("t")
        await cluster.delete("alone")
        await ask_again(cluster, 2)
        for topic in ("t", "alone"):
            assert not cluster.store.exists(f"/brokers/topics/{topic}")
            assert not cluster.store.exists(f"/admin/delete_topics/{topic}")

    simulated(test)
