"""Kafka's own idempotent producer, and what its tools then find of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from sparklog.testing import RunningBroker, start_broker
from support.names import unique

pytestmark = pytest.mark.jvm
TOOLS = "org.apache.kafka.tools"
RECORDS = 5_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as running:
        yield running


def test_a_java_producer_is_found_among_the_producers_of_its_partition(
    kafka_tool: Callable[..., str], broker: RunningBroker
) -> None:
    topic = unique("t")
    sent = kafka_tool(
        f"{TOOLS}.ProducerPerformance", "--bootstrap-server", broker.kafka, "--topic", topic,
        "--num-records", str(RECORDS), "--throughput", "-1", "--record-size", "100",
        "--command-property", "acks=all", "enable.idempotence=true",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in sent
    command = (f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.kafka)
    found = kafka_tool(*command, "describe-producers", "--topic", topic, "--partition", "0")
    head, row = (re.split(r"\s+", line.strip()) for line in found.strip().splitlines())
    assert head[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]
    assert (row[1], row[3], row[5]) == ("0", str(RECORDS - 1), "None")
