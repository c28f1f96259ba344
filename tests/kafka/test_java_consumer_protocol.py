"""Java's own consumer with group.protocol=consumer against sparklog."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from sparklog.testing import start_broker
from support.patience import PATIENCE_MS, PATIENCE_S


def test_the_console_consumer_joins_reads_commits_and_leaves(kafka_tool: Callable[..., str]) -> None:
    with start_broker(kafka=True, num_partitions=3, group_consumer_heartbeat_interval_ms=200) as broker:
        producer = Producer({"bootstrap.servers": broker.kafka})
        for number in range(30):
            producer.produce("orders", f"{number}")
        assert producer.flush(PATIENCE_S) == 0
        printed = kafka_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.kafka, "--topic", "orders",
            "--group", "java", "--from-beginning", "--command-property", "group.protocol=consumer",
            "--max-messages", "30", "--timeout-ms", str(PATIENCE_MS),
        )  # fmt: skip
        assert {*map(str, range(30))} <= {*printed.split()}
        groups = broker.node.broker.services.groups
        shard = groups.partitions.runtime_of(groups.partition_for("java")).shard
        assert (shard.groups["java"].group_type, shard.groups["java"].state_name) == ("consumer", "Empty")
        assert sum(value.offset for value in shard.offsets.of("java").values()) == 30
