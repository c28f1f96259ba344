"""Kafka's own transactional producer (protocol 2), its tools for transactions, and its dump of what sparklog wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from sparklog.testing import RunningBroker, start_broker
from support.names import unique
from support.patience import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.jvm
TOOLS = "org.apache.kafka.tools"
RECORDS = 5_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, transaction_state_log_num_partitions=3) as running:
        yield running


def test_a_java_producer_commits_many_transactions(
    kafka_tool: Callable[..., str], dump_log_segments: Callable[..., str], broker: RunningBroker
) -> None:
    topic, transactional_id = unique("t"), unique("id")
    sent = kafka_tool(
        f"{TOOLS}.ProducerPerformance", "--bootstrap-server", broker.kafka, "--topic", topic,
        "--num-records", str(RECORDS), "--throughput", "20000", "--record-size", "100",
        "--transactional-id", transactional_id, "--transaction-duration-ms", "20",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in sent

    read = kafka_tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", broker.kafka, "--topic", topic, "--from-beginning",
        "--isolation-level", "read_committed", "--max-messages", str(RECORDS), "--timeout-ms", str(PATIENCE_MS),
    )  # fmt: skip
    assert f"Processed a total of {RECORDS} messages" in read

    command = (f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.kafka)
    listed = kafka_tool(*command, "list")
    assert re.search(rf"^{transactional_id}\s+\d+\s+\d+\s+CompleteCommit", listed, re.MULTILINE), listed
    described = kafka_tool(*command, "describe", "--transactional-id", transactional_id)
    assert "CompleteCommit" in described

    folder = broker.data_dir
    dumped = dump_log_segments(folder / f"{topic}-0" / "00000000000000000000.log", options=("--deep-iteration",))
    commits = dumped.count("endTxnMarker: COMMIT")
    assert commits > 1
    assert "endTxnMarker: ABORT" not in dumped
    epochs = {int(epoch) for epoch in re.findall(r"producerEpoch: (\d+)", dumped)}
    assert len(epochs) >= commits, "protocol 2 raises the epoch with each transaction"

    states = "".join(
        dump_log_segments(file, options=("--deep-iteration", "--transaction-log-decoder"))
        for file in sorted(folder.glob("__transaction_state-*/*.log"))
    )
    assert f"transactional_id:{transactional_id}" in states.replace(" ", "") or transactional_id in states
    assert "CompleteCommit" in states or '"transactionStatus":4' in states, states[-2_000:]


def test_a_hanging_transaction_is_found_and_aborted(kafka_tool: Callable[..., str], broker: RunningBroker) -> None:
    topic, transactional_id = unique("t"), unique("id")
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0

    command = (f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.kafka)
    described = kafka_tool(*command, "describe", "--transactional-id", transactional_id)
    assert "Ongoing" in described
    assert f"{topic}-0" in described
    producers = kafka_tool(*command, "describe-producers", "--topic", topic, "--partition", "0")
    row = re.split(r"\s+", producers.strip().splitlines()[1].strip())
    assert row[5] == "0", producers  # CurrentTransactionStartOffset

    kafka_tool(*command, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    producers = kafka_tool(*command, "describe-producers", "--topic", topic, "--partition", "0")
    row = re.split(r"\s+", producers.strip().splitlines()[1].strip())
    assert row[5] == "None", producers


def test_the_broker_says_that_it_has_transactions(kafka_tool: Callable[..., str], broker: RunningBroker) -> None:
    features = kafka_tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", broker.kafka, "describe")
    assert re.search(r"transaction\.version\s.*FinalizedVersionLevel: 2", features), features
