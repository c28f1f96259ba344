"""Pipelines in transactions, over brokers and clients that are killed: each record of the source is in the target once.

Readers of committed records see that throughout; a pipeline that dies is started again with the same transactional id.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from sparklog.base.ids import TopicPartition as PartitionName
from sparklog.base.java_hash import partition_for
from sparklog.client import Admin, Producer
from support.patience import PATIENCE_S, wait_until
from support.processes.cluster import ClusterProcesses
from support.processes.java import kafka_command
from support.runs.seeds import seeds

pytestmark = [pytest.mark.slow, pytest.mark.soak]
SOURCE, TARGET, GROUP, TRANSACTIONAL_ID = "source", "target", "pipeline", "pipeline-1"
PARTITIONS, RECORDS, STATE_PARTITIONS = 3, 3_000, 3
TESTS = Path(__file__).parents[1]


class Pipeline:
    """The program, started again whenever it ends."""

    def __init__(self, command: list[str], bootstrap: str) -> None:
        self.copied = 0
        """Lines printed: transactions that were committed, by all its lives."""
        self._command = [*command, bootstrap, SOURCE, TARGET, GROUP, TRANSACTIONAL_ID]
        self._is_over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pipeline:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.kill()
        self._thread.join(PATIENCE_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=TESTS)
            if self._is_over.is_set():
                self._process.kill()
            assert self._process.stdout is not None
            for _ in self._process.stdout:
                self.copied += 1
            self._process.wait()


class CommittedReader:
    """Reads the target from its beginning, as a reader of committed records, and counts each value."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: Counter[int] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 200,
                "error_cb": lambda _: None,
            }
        )
        self._consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])

    def read(self) -> int:
        """Read what there is, and return how many values it has seen."""
        for message in self._consumer.consume(500, timeout=0.5):
            if message.error() is None:
                self.seen[int(message.value())] += 1
        twice = [value for value, count in self.seen.items() if count > 1]
        assert not twice, f"seen twice: {twice[:10]}"
        return len(self.seen)

    def close(self) -> None:
        self._consumer.close()


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


def feed(bootstrap: str) -> None:
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


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
    program = {"librdkafka": "exactly_once", "sparklog": "exactly_once_python"}[client]
    return [sys.executable, "-m", f"support.clients.{program}"]


@pytest.mark.parametrize("client", ["librdkafka", "sparklog", pytest.param("java", marks=pytest.mark.jvm)])
@pytest.mark.parametrize("seed", seeds(1, soak=20))
def test_a_pipeline_copies_each_record_once_though_brokers_and_it_are_killed(
    cluster: ClusterProcesses, seed: int, client: str
) -> None:
    chance = Random(seed)
    feed(cluster.kafka)
    reader = CommittedReader(cluster.kafka)
    victims = ["leader", "transaction coordinator", "group coordinator", "pipeline"]
    chance.shuffle(victims)
    with Pipeline(command_of(client), cluster.grpc if client == "sparklog" else cluster.kafka) as pipeline:

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

    again = CommittedReader(cluster.kafka)
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

    reader = CommittedReader(cluster.kafka)
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
