"""Java's own consumer with group.protocol=consumer against sparklog."""

from __future__ import annotations

from confluent_kafka import Producer

from sparklog.testing import start_broker
from support.patience import PATIENCE_MS, PATIENCE_S
from support.processes.java import kafka_command
from support.processes.output import run


def test_the_console_consumer_joins_reads_commits_and_leaves() -> None:
    with start_broker(kafka=True, num_partitions=3, group_consumer_heartbeat_interval_ms=200) as broker:
        producer = Producer({"bootstrap.servers": broker.kafka})
        for number in range(30):
            producer.produce("orders", f"{number}")
        assert producer.flush(PATIENCE_S) == 0
        command = kafka_command("org.apache.kafka.tools.consumer.ConsoleConsumer")
        command += ["--bootstrap-server", broker.kafka, "--topic", "orders", "--group", "java", "--from-beginning"]
        command += [
            "--command-property",
            "group.protocol=consumer",
            "--max-messages",
            "30",
            "--timeout-ms",
            str(PATIENCE_MS),
        ]
        done = run(command)
        assert sorted(done.stdout.split()) == sorted(str(number) for number in range(30)), done.stderr
        groups = broker.node.broker.services.groups
        shard = groups._host_of(groups.partition_for("java")).shard
        assert (shard.groups["java"].group_type, shard.groups["java"].state_name) == ("consumer", "Empty")
        assert sum(value.offset for value in shard.offsets.of("java").values()) == 30
