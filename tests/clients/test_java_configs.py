"""kafka-configs.sh changes keys of brokers and topics, and Kafka's own tool reads what the broker has compressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_S
from support.processes.java import KafkaTools

CONFIGS = "kafka.admin.ConfigCommand"
pytestmark = pytest.mark.jvm


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with start_broker(data_dir=tmp_path, kafka=True) as broker:
        yield broker


@pytest.fixture
def tool(broker: RunningBroker, kafka_tools: KafkaTools) -> Callable[..., str]:
    def configs(*arguments: str) -> str:
        result = kafka_tools.run(CONFIGS, "--bootstrap-server", broker.kafka, *arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return configs


def test_kafkas_tool_sets_describes_and_removes_keys_of_brokers(
    broker: RunningBroker, tool: Callable[..., str], kafka_tools: KafkaTools
) -> None:
    all_brokers, own = (
        ("--entity-type", "brokers", "--entity-default"),
        ("--entity-type", "brokers", "--entity-name", "0"),
    )
    tool("--alter", "--add-config", "log.retention.ms=5000,min.insync.replicas=2", *all_brokers)
    tool("--alter", "--add-config", "log.retention.ms=7000", *own)
    current = broker.node.broker.dynamic.current.topic_defaults
    assert (current.retention_ms, current.min_insync_replicas) == (7_000, 2)

    assert "log.retention.ms=5000" in tool("--describe", *all_brokers)
    described = tool("--describe", *own)
    assert (
        "log.retention.ms=7000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=7000, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5000, DEFAULT_CONFIG:log.retention.ms=604800000}"
    ) in described
    assert "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=2, " in tool("--describe", "--all", *own)

    tool("--alter", "--delete-config", "log.retention.ms", *own)
    tool("--alter", "--delete-config", "log.retention.ms,min.insync.replicas", *all_brokers)
    assert "log.retention.ms" not in tool("--describe", *all_brokers)
    assert broker.node.broker.dynamic.current == broker.node.broker.config
    refused = kafka_tools.run(
        CONFIGS, "--bootstrap-server", broker.kafka, "--alter", "--add-config", "num.partitions=3", *all_brokers
    )
    assert "change the broker's file and start it again" in refused.stdout + refused.stderr


def test_kafkas_tool_sets_a_codec_and_dumps_the_batches(
    broker: RunningBroker, tool: Callable[..., str], kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "compression.type": "lz4", "linger.ms": 0})
    expected = []
    for name in ("producer", "gzip", "snappy", "zstd", "uncompressed"):
        if expected:
            tool("--alter", "--add-config", f"compression.type={name}", "--entity-type", "topics", "--entity-name", "t")
        producer.produce("t", b"v" * 1_000)
        assert producer.flush(PATIENCE_S) == 0
        expected.append({"producer": "lz4", "uncompressed": "none"}.get(name, name))
    [log] = tmp_path.glob("t-0/*.log")
    dumped = kafka_tools.run("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(log)).stdout
    found = [line.split("compresscodec: ")[1].split()[0] for line in dumped.splitlines() if "compresscodec: " in line]
    assert found == expected
    assert dumped.count("isvalid: true") == len(expected)
