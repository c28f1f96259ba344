"""Apache Kafka's own tools on groups that sparklog coordinates: a Java consumer in one, a dump of what is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner
from confluent_kafka import Producer

from sparklog.cli.dump import command
from sparklog.group.coordinator import OFFSETS_TOPIC
from sparklog.testing import start_broker
from support.patience import PATIENCE_MS, PATIENCE_S

TOOLS = "org.apache.kafka.tools"
GROUP = "java"


def test_kafka_s_consumer_commits_and_kafka_s_dump_reads_what_the_coordinator_wrote(
    tmp_path: Path, kafka_tool: Callable[..., str]
) -> None:
    with start_broker(
        tmp_path, listeners=("PLAINTEXT://127.0.0.1:0",), num_partitions=2, group_initial_rebalance_delay_ms=0
    ) as broker:
        address = str(broker.node.kafka_addresses["PLAINTEXT"])
        producer = Producer({"bootstrap.servers": address})
        for number in range(20):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0

        read = kafka_tool(
            f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", address, "--topic", "t", "--group", GROUP,
            "--from-beginning", "--max-messages", "20", "--timeout-ms", str(PATIENCE_MS),
        )  # fmt: skip
        described = kafka_tool(
            f"{TOOLS}.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            address,
            "--describe",
            "--group",
            GROUP,
        )
        partition = broker.node.broker.services.groups.partition_for(GROUP)

    assert {str(number) for number in range(20)} <= set(read.split())
    rows = [line.split() for line in described.splitlines() if line.startswith(GROUP)]
    assert sorted(row[1:6] for row in rows) == [["t", "0", "10", "10", "0"], ["t", "1", "10", "10", "0"]]
    log = tmp_path / f"{OFFSETS_TOPIC}-{partition}" / "00000000000000000000.log"
    theirs = kafka_tool(f"{TOOLS}.DumpLogSegments", "--offsets-decoder", "--files", str(log))
    ours = CliRunner().invoke(command, [str(log), "--offsets-decoder", "--print-data-log"])
    assert ours.stdout == theirs
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in theirs
