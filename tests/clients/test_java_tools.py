"""Apache Kafka's own command line tools that produce and consume: the console, performance and verifiable ones."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.client import Admin
from support.names import unique
from support.patience import PATIENCE_MS
from support.processes import output
from support.processes.broker import BrokerProcess
from support.processes.java import KafkaTools, kafka_command

TOOLS = "org.apache.kafka.tools"
Tool = Callable[..., str]
pytestmark = pytest.mark.jvm


@pytest.fixture
def tool(broker: BrokerProcess, kafka_tools: KafkaTools) -> Tool:
    """Run a class of org.apache.kafka.tools with these arguments; what it printed. Fails where the tool fails."""

    def run(name: str, *arguments: str, given: str = "") -> str:
        return output_of(broker, kafka_tools.run(f"{TOOLS}.{name}", *arguments, given=given))

    return run


def verifiable(broker: BrokerProcess, name: str, *arguments: str) -> list[dict[str, Any]]:
    """What a tool that ends with its JVM has said."""
    done = output.run(kafka_command(f"{TOOLS}.{name}", *arguments))
    return [json.loads(line) for line in output_of(broker, done).splitlines()]


def output_of(broker: BrokerProcess, done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{broker.log[-5_000:]}"
    return done.stdout


def test_the_console_producer_and_consumer(tool: Tool, broker: BrokerProcess, admin: Admin) -> None:
    topic = unique("console")
    admin.create_topic(topic, partitions=1)
    connect = ("--bootstrap-server", broker.kafka, "--topic", topic)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("ConsoleProducer", *connect, *keyed, given="a:1\nb:2\na:3\n")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    read = ("--from-beginning", "--max-messages", "3", "--timeout-ms", str(PATIENCE_MS))
    assert tool("consumer.ConsoleConsumer", *connect, *shown, *read).splitlines() == [
        "Offset:0\ta\t1", "Offset:1\tb\t2", "Offset:2\ta\t3",
    ]  # fmt: skip


def test_the_performance_tools_count_every_record(tool: Tool, broker: BrokerProcess, admin: Admin) -> None:
    topic = unique("perf")
    admin.create_topic(topic, partitions=4)
    sent = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", "50000", "--record-size", "100",
        "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={broker.kafka}", "compression.type=lz4",
    )  # fmt: skip
    assert re.search(r"^50000 records sent", sent, re.MULTILINE)
    read = tool(
        "ConsumerPerformance", "--bootstrap-server", broker.kafka, "--topic", topic, "--messages", "50000",
        "--timeout", str(PATIENCE_MS),
    )  # fmt: skip
    [figures] = [line.split(", ") for line in read.splitlines() if line.startswith("20")]
    assert int(float(figures[4])) == 50_000
    assert sum(end for _, end in offsets(admin, topic)) == 50_000


def test_the_verifiable_tools_agree(broker: BrokerProcess, admin: Admin) -> None:
    topic = unique("verifiable")
    admin.create_topic(topic, partitions=3)
    connect = ("--bootstrap-server", broker.kafka, "--topic", topic, "--max-messages", "2000")
    sent = verifiable(broker, "VerifiableProducer", *connect, "--acks", "-1")
    acknowledged = {(each["partition"], each["offset"]) for each in sent if each["name"] == "producer_send_success"}
    assert len(acknowledged) == 2000
    group = ("--group-id", topic, "--group-protocol", "classic", "--reset-policy", "earliest", "--verbose")
    read = verifiable(broker, "VerifiableConsumer", *connect, *group)
    consumed = {(each["partition"], each["offset"]) for each in read if each["name"] == "record_data"}
    assert consumed == acknowledged
    committed = [each for each in read if each["name"] == "offsets_committed"]
    assert committed
    assert all(each["success"] for each in committed)


def test_records_go_from_end_to_end(tool: Tool, broker: BrokerProcess, admin: Admin) -> None:
    topic = unique("end-to-end")
    admin.create_topic(topic, partitions=1)
    measured = tool(
        "EndToEndLatency", "--bootstrap-server", broker.kafka, "--topic", topic, "--num-records", "200",
        "--producer-acks", "all", "--record-size", "100",
    )  # fmt: skip
    assert "Percentiles: 50th" in measured


def offsets(admin: Admin, topic: str) -> list[tuple[int, int]]:
    """Log start and high watermark of each partition."""
    [described] = admin.describe_topics([topic])
    return [(each.log_start_offset, each.high_watermark) for each in described.partitions]
