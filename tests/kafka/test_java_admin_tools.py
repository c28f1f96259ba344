"""Apache Kafka's own command line tools administer a broker: topics, configurations, records, groups, disks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import PATIENCE_MS

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
RECORDS = 20

Tool = Callable[..., str]
"""A tool's class and its arguments, to what it prints; it knows where the broker is."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=5) as broker:
        yield broker


@pytest.fixture(scope="module")
def tool(kafka_tool: Callable[..., str], broker: RunningBroker) -> Tool:
    bootstrap = broker.kafka
    return lambda name, *arguments, stdin="": kafka_tool(name, *arguments, "--bootstrap-server", bootstrap, stdin=stdin)


@pytest.fixture
def topic(tool: Tool) -> str:
    """A topic of three partitions, with records in it."""
    name = unique("orders")
    config = ("--config", "retention.ms=3600000")
    made = tool(TOPICS, "--create", "--topic", name, "--partitions", "2", "--replication-factor", "1", *config)
    assert f"Created topic {name}." in made
    tool(TOPICS, "--alter", "--topic", name, "--partitions", "3")
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = "".join(f"key-{number}:value-{number}\n" for number in range(RECORDS))
    tool(f"{TOOLS}.ConsoleProducer", "--topic", name, *keyed, stdin=lines)
    return name


@pytest.fixture
def group(tool: Tool, topic: str) -> str:
    """A group that has read them all."""
    name = unique("shop")
    read = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", str(PATIENCE_MS))
    printed = tool(f"{TOOLS}.consumer.ConsoleConsumer", "--topic", topic, "--group", name, *read)
    assert sorted(re.findall(r"^value-(\d+)$", printed, re.MULTILINE), key=int) == [str(n) for n in range(RECORDS)]
    return name


def test_a_topic_is_described(tool: Tool, topic: str) -> None:
    described = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=3600000" in described
    assert re.findall(r"Partition: (\d)\tLeader: 0\tReplicas: 0\tIsr: 0", described) == ["0", "1", "2"]


def test_a_configuration_is_altered_and_described(tool: Tool, topic: str) -> None:
    named = ("--entity-type", "topics", "--entity-name", topic)
    change = ("--add-config", "cleanup.policy=[compact,delete],segment.ms=1000", "--delete-config", "retention.ms")
    assert f"Completed updating config for topic {topic}." in tool(CONFIGS, "--alter", *named, *change)
    described = tool(CONFIGS, "--describe", *named)
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in described
    assert "segment.ms=1000" in described
    assert "retention.ms" not in described


def test_a_groups_offsets_are_described_reset_and_deleted(tool: Tool, topic: str, group: str) -> None:
    described = tool(GROUPS, "--describe", "--group", group)
    rows = re.findall(rf"^{group} +{topic} +(\d) +(\d+) +(\d+) +0 ", described, re.MULTILINE)
    assert sorted(number for number, _, _ in rows) == ["0", "1", "2"]
    assert sum(int(current) for _, current, _ in rows) == sum(int(end) for _, _, end in rows) == RECORDS
    reset = tool(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert sorted(re.findall(rf"^{group} +{topic} +(\d) +(\d)\s*$", reset, re.MULTILINE)) == [
        ("0", "0"),
        ("1", "0"),
        ("2", "0"),
    ]
    assert re.search(rf"^{group} +Classic +consumer\s*$", tool(f"{TOOLS}.GroupsCommand", "--list"), re.MULTILINE)
    assert f"('{group}') was successful" in tool(GROUPS, "--delete", "--group", group)


def test_offsets_are_shown_and_records_deleted(tool: Tool, topic: str, tmp_path: Path) -> None:
    ends = re.findall(rf"^{topic}:(\d):(\d+)$", tool(f"{TOOLS}.GetOffsetShell", "--topic", topic), re.MULTILINE)
    assert sum(int(end) for _, end in ends) == RECORDS
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 1}]}))
    deleted = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {topic}-0\tlow_watermark: 1" in deleted


def test_disks_and_cluster_are_described(tool: Tool, topic: str, broker: RunningBroker) -> None:
    printed = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    (log_dir,) = json.loads(printed.splitlines()[-1])["brokers"][0]["logDirs"]
    assert (log_dir["logDir"], log_dir["error"]) == (str(broker.data_dir), None)
    assert {part["partition"] for part in log_dir["partitions"]} == {f"{topic}-{number}" for number in range(3)}
    cluster_id = broker.node.broker.services.cluster_id
    assert f"Cluster ID: {cluster_id}" in tool(f"{TOOLS}.ClusterTool", "cluster-id")


def test_a_topic_is_deleted(tool: Tool, broker: RunningBroker, topic: str, group: str) -> None:
    tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in broker.node.broker.services.metadata
