"""Kafka's own Java producer and consumer against our broker, in every codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import PATIENCE_MS

pytestmark = pytest.mark.jvm
TOOLS = "org.apache.kafka.tools"
RECORDS = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=5) as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_java_producer_sends_a_java_consumer_reads(
    kafka_tool: Callable[..., str], broker: RunningBroker, codec: str
) -> None:
    common = ("--bootstrap-server", broker.kafka, "--topic", unique(codec), "--num-records", str(RECORDS))
    sent = kafka_tool(
        f"{TOOLS}.ProducerPerformance", *common, "--throughput", "-1", "--record-size", "100",
        "--command-property", "acks=all", f"compression.type={codec}",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in sent
    read = kafka_tool(f"{TOOLS}.ConsumerPerformance", *common, "--hide-header", "--timeout", str(PATIENCE_MS))
    assert int(read.strip().splitlines()[-1].split(",")[4]) >= RECORDS


def test_offsets_that_a_java_tool_sees(kafka_tool: Callable[..., str], broker: RunningBroker) -> None:
    name = unique("offsets")
    broker.run(broker.node.broker.services.topics.create(name, partitions=2))
    shell = (f"{TOOLS}.GetOffsetShell", "--bootstrap-server", broker.kafka, "--topic", name)
    kafka_tool(f"{TOOLS}.ConsoleProducer", "--bootstrap-server", broker.kafka, "--topic", name, stdin="a\nb\nc\n")
    ends = [int(line.rpartition(":")[2]) for line in kafka_tool(*shell).split()]
    assert (len(ends), sum(ends)) == (2, 3)
    starts = kafka_tool(*shell, "--time", "earliest").split()
    assert sorted(starts) == [f"{name}:0:0", f"{name}:1:0"]
