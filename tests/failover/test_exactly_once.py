"""Pipelines in transactions, over brokers and clients that are killed: each record of the source is in the target once.

Readers of committed records see that throughout; a pipeline that dies is started again with the same transactional id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from sparklog.base.ids import TopicPartition as PartitionName
from sparklog.base.java_hash import partition_for
from sparklog.client import Admin, Producer
from support.clients.pipelines import TESTS, CommittedReader, Pipeline, feed, python_program
from support.patience import wait_until
from support.processes.cluster import ClusterProcesses
from support.processes.java import kafka_command
from support.runs.seeds import seeds

pytestmark = [pytest.mark.slow, pytest.mark.soak]
SOURCE, TARGET, GROUP, TRANSACTIONAL_ID = "source", "target", "pipeline", "pipeline-1"
PARTITIONS, RECORDS, STATE_PARTITIONS = 3, 3_000, 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(
        tmp_path, transaction_state_log_num_partitions=STATE_PARTITIONS, transaction_state_log_replication_factor=3,
        transaction_state_log_min_isr=2, transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
        group_initial_rebalance_delay_ms=0,
    ) as running:  # fmt: skip
        with Admin(bootstrap_servers=running.grpc) as admin:
            admin.create_topic(SOURCE, partitions=PARTITIONS)
            admin.create_topic(TARGET, partitions=PARTITIONS)
        running.wait_for_isr(3, SOURCE, TARGET)
        yield running


def transactions_in(cluster: ClusterProcesses) -> str:
    """The state of the pipeline's transaction, and where readers of its topics and of its offsets stand."""
    names = [PartitionName(topic, number) for topic in (TARGET, "__consumer_offsets") for number in range(PARTITIONS)]
    with Admin(bootstrap_servers=cluster.grpc) as admin:
        ends = [
            admin.list_offsets(dict.fromkeys(names, "latest"), isolation_level=level)
            for level in ("read_committed", "read_uncommitted")
        ]
        return f"{admin.describe_transactions([TRANSACTIONAL_ID])}\n{ends}"


def command_of(client: str) -> list[str]:
    """How the program starts that is made with this client. Java speaks protocol 2 of transactions, librdkafka 1."""
    if client == "java":
        return kafka_command(str(TESTS / "support/clients/ExactlyOnce.java"))
    return python_program({"librdkafka": "exactly_once", "sparklog": "exactly_once_python"}[client])


@pytest.mark.parametrize("client", ["librdkafka", "sparklog", pytest.param("java", marks=pytest.mark.jvm)])
@pytest.mark.parametrize("seed", seeds(1, soak=20))
def test_a_pipeline_copies_each_record_once_though_brokers_and_it_are_killed(
    cluster: ClusterProcesses, seed: int, client: str
) -> None:
    chance = Random(seed)
    feed(cluster.kafka, SOURCE, PARTITIONS, range(RECORDS))
    reader = CommittedReader(cluster.kafka, TARGET, PARTITIONS)
    victims = ["leader", "transaction coordinator", "group coordinator", "pipeline"]
    chance.shuffle(victims)
    bootstrap = cluster.grpc if client == "sparklog" else cluster.kafka
    with Pipeline([*command_of(client), bootstrap, SOURCE, TARGET, GROUP, TRANSACTIONAL_ID]) as pipeline:

        def wait_for_progress() -> None:
            before = pipeline.copied
            wait_until(
                lambda: pipeline.copied > before + 1 or reader.read() == RECORDS,
                "the pipeline goes on",
                tell=lambda: f"{len(reader.seen)} records were read. {transactions_in(cluster)}\n{cluster.logs}",
            )

        for victim in victims:
            wait_for_progress()
            if victim == "pipeline":
                pipeline.kill()
                continue
            broker = cluster.brokers[_broker(cluster, victim)]
            broker.kill()
            wait_for_progress()
            broker.start()
            cluster.wait_for_isr(3, SOURCE, TARGET)
        wait_until(lambda: reader.read() == RECORDS, "everything is copied")
    reader.close()

    again = CommittedReader(cluster.kafka, TARGET, PARTITIONS)
    wait_until(lambda: again.read() == RECORDS, "everything is read again")
    assert again.seen == Counter(range(RECORDS))
    again.close()


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_ends_though_its_coordinator_is_killed_before_that(
    cluster: ClusterProcesses, is_commit: bool
) -> None:
    with Producer(bootstrap_servers=cluster.grpc, transactional_id=TRANSACTIONAL_ID, request_timeout_ms=5_000) as ours:
        ours.begin()
        for number in range(PARTITIONS):
            ours.send(TARGET, b"%d" % number, partition=number)
        ours.flush()
        cluster.brokers[_broker(cluster, "transaction coordinator")].kill()
        if is_commit:
            ours.commit()
        else:
            ours.abort()
        with ours.transaction():
            ours.send(TARGET, b"%d" % PARTITIONS, partition=0)

    reader = CommittedReader(cluster.kafka, TARGET, PARTITIONS)
    expected = set(range(0 if is_commit else PARTITIONS, PARTITIONS + 1))
    wait_until(lambda: reader.read() == len(expected), "the transactions are read")
    assert set(reader.seen) == expected
    reader.close()


def _broker(cluster: ClusterProcesses, victim: str) -> int:
    if victim == "leader":
        return cluster.leader(TARGET, 0)
    if victim == "group coordinator":
        return cluster.coordinator(GROUP)
    return cluster.leader("__transaction_state", partition_for(TRANSACTIONAL_ID, STATE_PARTITIONS))
