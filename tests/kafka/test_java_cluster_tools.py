"""Apache Kafka's own tools move partitions between brokers and elect leaders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.client import Admin, Producer
from sparklog.testing import RunningCluster, start_cluster
from support.names import unique
from support.patience import wait_until

TOOLS = "org.apache.kafka.tools"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT = f"{TOOLS}.LeaderElectionCommand"
TOPICS = f"{TOOLS}.TopicCommand"

Tool = Callable[..., str]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(3, kafka=True, controlled_shutdown_retry_backoff_ms=100) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: RunningCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def tool(kafka_tool: Callable[..., str], cluster: RunningCluster) -> Tool:
    return lambda name, *arguments: kafka_tool(name, *arguments, "--bootstrap-server", cluster.kafka)


def create(admin: Admin, cluster: RunningCluster, topic: str, replicas: int) -> tuple[str, tuple[int, ...]]:
    """A topic of one partition with records: its name and its replicas."""
    topic = unique(topic)
    admin.create_topic(topic, partitions=1, replication_factor=replicas)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number)
    return topic, admin.describe_topics([topic])[0].partitions[0].replicas


def test_a_partition_is_moved_with_a_throttle_and_verified(
    tool: Tool, admin: Admin, cluster: RunningCluster, tmp_path: Path
) -> None:
    topic, before = create(admin, cluster, "moved", replicas=2)
    [free] = {1, 2, 3} - {*before}
    target = [free, before[1]]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": target}]}))
    file = ("--reassignment-json-file", str(plan))

    executed = tool(REASSIGN, "--execute", *file, "--throttle", "50000000")
    assert "The inter-broker throttle limit was set to 50000000 B/s" in executed
    assert f"Successfully started partition reassignment for {topic}-0" in executed
    verified = ""

    def is_completed() -> bool:
        nonlocal verified
        verified = tool(REASSIGN, "--verify", *file)
        return "is completed" in verified

    wait_until(is_completed, "the partition has moved", tell=lambda: verified)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    assert "No partition reassignments found." in tool(REASSIGN, "--list")

    def is_known() -> bool:
        throttles = [
            admin.describe_configs(topic=topic)["leader.replication.throttled.replicas"],
            admin.describe_configs(broker=free)["follower.replication.throttled.rate"],
        ]
        [partition] = admin.describe_topics([topic])[0].partitions
        moved = (partition.replicas, partition.high_watermark) == (tuple(target), 1000)
        return moved and {each.source for each in throttles} == {"default"}

    wait_until(is_known, "all brokers know that it has moved and is not throttled")
    assert "is not moving" not in tool(REASSIGN, "--cancel", *file)


def test_plans_are_generated_from_what_brokers_say(
    tool: Tool, admin: Admin, cluster: RunningCluster, tmp_path: Path
) -> None:
    topic, _ = create(admin, cluster, "planned", replicas=2)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = tool(REASSIGN, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    proposed = json.loads(generated.splitlines()[-1])
    assert [sorted(part["replicas"]) for part in proposed["partitions"]] == [[2, 3]]


def test_the_preferred_leader_is_elected_once_it_is_back(tool: Tool, admin: Admin, cluster: RunningCluster) -> None:
    topic, [preferred, *_] = create(admin, cluster, "led", replicas=3)
    named = ("--topic", topic, "--partition", "0", "--election-type", "preferred")
    assert f"Valid replica already elected for partitions {topic}-0" in tool(ELECT, *named)
    under_replicated = ("--describe", "--under-replicated-partitions")
    cluster.stop_broker(preferred)
    try:
        assert f"Topic: {topic}" in tool(TOPICS, *under_replicated)
    finally:
        cluster.start_broker(preferred)
    assert admin.describe_topics([topic])[0].partitions[0].leader != preferred
    wait_until(lambda: not tool(TOPICS, *under_replicated), "the broker is in sync again")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in tool(ELECT, *named)
    what = "each broker has heard of the leader"
    wait_until(lambda: admin.describe_topics([topic])[0].partitions[0].leader == preferred, what)
