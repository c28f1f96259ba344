"""Kafka's own tool manages subscriptions to client metrics, and Java's clients push (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import wait_until
from support.processes import output
from support.processes.java import KafkaTools, kafka_command

TOOL, PERFORMANCE = "org.apache.kafka.tools.ClientMetricsCommand", "org.apache.kafka.tools.ProducerPerformance"
pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as broker:
        yield broker


def test_kafkas_tool_makes_describes_lists_and_deletes_subscriptions(
    broker: RunningBroker, kafka_tools: KafkaTools
) -> None:
    def tool(*arguments: str) -> str:
        done = kafka_tools.run(TOOL, "--bootstrap-server", broker.kafka, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tool(
        "--alter", "--name", "basic", "--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.",
        "--interval", "60000", "--match", "client_software_name=apache-kafka-java,client_id=app.*",
    )  # fmt: skip
    telemetry = broker.node.broker.services.client_telemetry
    (known,) = wait_until(lambda: telemetry.subscriptions, "the broker knows the subscription")
    assert known.interval_ms == 60_000

    assert tool("--list").split() == ["basic"]
    described = tool("--describe", "--name", "basic")
    assert "interval.ms=60000" in described
    assert "match=client_software_name=apache-kafka-java,client_id=app.*" in described
    assert "metrics=org.apache.kafka.producer.,org.apache.kafka.consumer." in described

    tool("--alter", "--name", "basic", "--interval", "")
    assert "interval.ms=300000" in tool("--describe", "--name", "basic")
    tool("--delete", "--name", "basic")
    assert tool("--list").split() == []
    wait_until(lambda: not telemetry.subscriptions, "the broker knows that it is gone")


def test_a_java_producer_pushes(broker: RunningBroker, kafka_tools: KafkaTools) -> None:
    client_id = unique("java")
    made = kafka_tools.run(
        TOOL, "--bootstrap-server", broker.kafka, "--alter", "--name", client_id, "--metrics", "*",
        "--interval", "100", "--match", f"client_id={client_id}",
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    telemetry = broker.node.broker.services.client_telemetry
    wait_until(lambda: telemetry.subscriptions, "the broker knows the subscription")

    done = output.run(
        kafka_command(
            PERFORMANCE, "--bootstrap-server", broker.kafka, "--topic", unique("java"), "--throughput", "200",
            "--num-records", "600", "--record-size", "10", "--command-property", f"client.id={client_id}",
        )
    )  # fmt: skip
    assert "600 records sent" in done.stdout, done.stdout + done.stderr

    (pushed,) = [each for each in broker.node.broker.pushed_metrics() if each.client.client_id == client_id]
    assert pushed.client.software_name == "apache-kafka-java"
    values = {name: point.value for (name, _), point in pushed.points.items()}
    assert values["org.apache.kafka.producer.connection.creation.total"] >= 1
    assert 0 < values["org.apache.kafka.producer.record.send.total"] <= 600
