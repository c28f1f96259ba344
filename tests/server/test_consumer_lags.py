"""The lag of groups in partitions of other brokers, and its cost for many groups."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.group.requests import OffsetCommit, OffsetToCommit
from sparklog.runtime.slices import SLICE_S
from sparklog.server.broker_collector import BrokerCollector
from sparklog.testing import RunningBroker, RunningCluster, start_broker, start_cluster
from support.metrics import Scrape
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TOPIC, GROUP, PARTITIONS = "t", "g", 6
LAG, OFFSET = "sparklog_consumergroup_lag", "sparklog_consumergroup_current_offset"
AGE = "sparklog_consumergroup_lag_seconds"
OF_GROUP = {"consumergroup": GROUP, "topic": TOPIC}


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(2, metrics_listener="127.0.0.1:0", cluster_store_session_timeout_ms=6_000) as running:
        yield running


def prepare(cluster: RunningCluster) -> int:
    """Create a topic of one replica, and a group whose lag is the partition's number; returns its coordinator."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for partition in range(PARTITIONS):
                for _ in range(2 + partition):
                    producer.send(TOPIC, b"v", partition=partition, timestamp_ms=int(time.time() * 1000) - 60_000)
            producer.flush(PATIENCE_MS)
        admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, number): 2 for number in range(PARTITIONS)})
    [coordinator] = [
        broker_id for broker_id, node in cluster.nodes.items() if Scrape.of(node.metrics_address).by_partition(OFFSET)
    ]
    return coordinator


def test_the_coordinator_asks_the_leaders_of_partitions_that_it_has_no_replica_of(cluster: RunningCluster) -> None:
    coordinator = prepare(cluster)
    led_elsewhere = [n for n in range(PARTITIONS) if cluster.leader_of(TOPIC, n) != coordinator]
    assert led_elsewhere

    found = Scrape.of(cluster.nodes[coordinator].metrics_address)

    assert found.by_partition(LAG, **OF_GROUP) == {number: number for number in range(PARTITIONS)}
    ages = found.by_partition(AGE, **OF_GROUP)
    assert ages.pop(0) == 0
    assert all(60 <= age < 60 + PATIENCE_S for age in ages.values())
    other = Scrape.of(cluster.nodes[3 - coordinator].metrics_address)
    assert (other.get("sparklog_requests_total", api="DescribePositions") or 0) > 0
    assert other.by_partition(OFFSET, consumergroup=GROUP) == {}


def test_a_leader_that_is_gone_leaves_the_lag_of_its_partitions_out(cluster: RunningCluster) -> None:
    coordinator = prepare(cluster)
    led_here = {n for n in range(PARTITIONS) if cluster.leader_of(TOPIC, n) == coordinator}
    assert len(led_here) < PARTITIONS
    cluster.stop_broker(3 - coordinator)

    found = Scrape.of(cluster.nodes[coordinator].metrics_address)

    assert set(found.by_partition(OFFSET, **OF_GROUP)) == set(range(PARTITIONS))
    assert found.by_partition(LAG, **OF_GROUP) == {number: number for number in led_here}


def test_a_follower_in_sync_is_asked_instead_of_the_leader() -> None:
    with start_cluster(2, metrics_listener="127.0.0.1:0") as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=2)
            with Producer(bootstrap_servers=cluster.bootstrap) as producer:
                for number in range(PARTITIONS):
                    producer.send(TOPIC, b"v", partition=number)
                producer.flush(PATIENCE_MS)
            admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)})

        def lags() -> list[dict[int, float]]:
            scrapes = [Scrape.of(node.metrics_address) for node in cluster.nodes.values()]
            assert all(not each.get("sparklog_requests_total", api="DescribePositions") for each in scrapes)
            return [each.by_partition(LAG, **OF_GROUP) for each in scrapes if each.by_partition(OFFSET, **OF_GROUP)]

        wait_until(lambda: lags() == [dict.fromkeys(range(PARTITIONS), 1.0)], "followers know what is committed")


GROUPS, EACH = 100, 100


@pytest.fixture
def busy() -> Iterator[RunningBroker]:
    """A broker with 10,000 partitions of groups, each with a lag."""
    with start_broker(offsets_topic_num_partitions=1) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=EACH)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(EACH):
                producer.send(TOPIC, b"v", partition=number)
            producer.flush(PATIENCE_MS)
        offsets = [OffsetToCommit(partition=TopicPartition(TOPIC, number), offset=0) for number in range(EACH)]

        async def commit() -> None:
            groups = broker.node.broker.services.groups
            for number in range(GROUPS):
                response = await groups.commit(OffsetCommit(group_id=f"g-{number}", offsets=offsets))
                assert not any(response.errors.values())

        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.alter_group_offsets("first", {TopicPartition(TOPIC, 0): 1})  # the offsets topic is there afterwards
        broker.run(commit())
        gc.collect()
        gc.freeze()  # as a broker that is a process of its own: a full collection would look at all of pytest
        yield broker
        gc.unfreeze()


def test_the_event_loop_turns_while_the_lag_of_many_partitions_is_read(busy: RunningBroker) -> None:
    """Measured in CPU time of the event loop's thread: other processes do not count."""
    has_ended = threading.Event()

    async def longest_turn() -> float:
        longest, before = 0.0, time.thread_time()
        while not has_ended.is_set():
            await asyncio.sleep(0)
            longest, before = max(longest, time.thread_time() - before), time.thread_time()
        return longest

    turning = asyncio.run_coroutine_threadsafe(longest_turn(), busy.node.broker.loop)
    try:
        found = Scrape.from_collector(BrokerCollector(busy.node.broker))
    finally:
        has_ended.set()
    assert len(found.samples[LAG]) == len(found.samples[AGE]) == GROUPS * EACH + 1
    assert sum(found.samples[LAG].values()) == GROUPS * EACH
    assert turning.result(PATIENCE_S) < 5 * SLICE_S
