"""Kafka's tools and clients under quotas: kafka-configs.sh sets them, and clients wait as they are told."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_S, wait_until
from support.processes.java import KafkaTools

CONFIGS, PERFORMANCE = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.ProducerPerformance"
THROTTLE = re.compile(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)")
pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: RunningBroker) -> str:
    return str(broker.node.kafka_addresses["PLAINTEXT"])


def test_kafkas_tool_sets_describes_and_removes_quotas(
    broker: RunningBroker, bootstrap: str, kafka_tools: KafkaTools
) -> None:
    def configs(*arguments: str) -> str:
        result = kafka_tools.run(CONFIGS, "--bootstrap-server", bootstrap, *arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    known = broker.node.broker.client_quotas
    alice = ("--entity-type", "users", "--entity-name", "alice")
    configs("--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=50", *alice)
    configs(
        "--alter", "--add-config", "consumer_byte_rate=2048", *alice, "--entity-type", "clients", "--entity-default"
    )
    configs("--alter", "--add-config", "connection_creation_rate=10", "--entity-type", "ips", "--entity-default")
    wait_until(lambda: len(known.quotas) == 3, "the quotas apply")

    described = configs("--describe", *alice)
    assert "Quota configs for user-principal 'alice' are " in described
    assert "producer_byte_rate=1048576.0" in described
    assert "request_percentage=50.0" in described
    assert "consumer_byte_rate=2048.0" in configs("--describe", *alice, "--entity-type", "clients", "--entity-default")
    assert "connection_creation_rate=10.0" in configs("--describe", "--entity-type", "ips", "--entity-default")

    configs("--alter", "--delete-config", "producer_byte_rate,request_percentage", *alice)
    configs("--alter", "--delete-config", "connection_creation_rate", "--entity-type", "ips", "--entity-default")
    assert "producer_byte_rate" not in configs("--describe", *alice)
    refused = kafka_tools.run(
        CONFIGS, "--bootstrap-server", bootstrap, "--alter", "--add-config", "producer_byte_rate=-5", *alice
    )
    assert "it must be above 0" in refused.stdout + refused.stderr


def test_clients_of_java_and_librdkafka_wait_as_they_are_told(
    broker: RunningBroker, bootstrap: str, kafka_tools: KafkaTools
) -> None:
    known = broker.node.broker.client_quotas
    set_quota = (
        "--alter",
        "--add-config",
        "producer_byte_rate=200000",
        "--entity-type",
        "clients",
        "--entity-name",
        "slow",
    )
    assert kafka_tools.run(CONFIGS, "--bootstrap-server", bootstrap, *set_quota).returncode == 0
    wait_until(lambda: known.has_client_quotas, "the quota applies")

    began = time.monotonic()
    sent = kafka_tools.run(
        PERFORMANCE, "--bootstrap-server", bootstrap, "--topic", "java", "--throughput", "-1", "--num-records", "800",
        "--record-size", "1000", "--print-metrics", "--command-property", "client.id=slow",
    )  # fmt: skip
    assert "800 records sent" in sent.stdout, sent.stdout + sent.stderr
    assert time.monotonic() - began > 2  # 800 kB, less a second's worth and the last request
    assert max(map(float, THROTTLE.findall(sent.stdout))) > 0

    told: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "slow", "throttle_cb": told.append})
    for _ in range(800):
        producer.produce("librdkafka", bytes(1000))
    assert producer.flush(PATIENCE_S) == 0
    wait_until(lambda: producer.poll(0) or told, "librdkafka tells of the wait")
    assert told[0].throttle_time > 0
