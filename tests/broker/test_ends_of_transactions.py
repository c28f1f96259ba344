"""Transactions that their clients do not end, or that end while the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from sparklog.base.ids import TopicPartition
from sparklog.testing import RunningBroker, start_broker
from sparklog.transaction.marker_sender import MarkerSender
from sparklog.transaction.requests import DescribedTransaction, DescribeTransactions
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow
TOPIC, ID = "t", "payments"


def new_producer(broker: RunningBroker, **options: Any) -> Producer:
    settings = {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer(
        {"bootstrap.servers": broker.kafka, "transactional.id": ID, "error_cb": lambda _: None, **settings}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def begin(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def describe(broker: RunningBroker) -> DescribedTransaction:
    request = DescribeTransactions(transactional_ids=[ID])
    return broker.run(broker.node.broker.services.transactions.describe(request)).transactions[0]


def is_stable(broker: RunningBroker) -> bool:
    """Return whether no transaction is open in the partition."""
    replica = broker.node.broker.services.replicas.get(TopicPartition(TOPIC, 0))
    return replica.last_stable_offset == replica.partition.high_watermark


def waiting_for(broker: RunningBroker, state: str) -> Callable[[], bool]:
    return lambda: describe(broker).state == state


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_cannot_commit_it() -> None:
    with start_broker(kafka=True, transaction_abort_timed_out_transaction_cleanup_interval_ms=100) as broker:
        producer = new_producer(broker, transaction_timeout_ms=1_000)
        begin(producer, b"late")
        assert not is_stable(broker)

        wait_until(waiting_for(broker, "CompleteAbort"), "the transaction is aborted")

        assert is_stable(broker)
        with pytest.raises(KafkaException):
            producer.commit_transaction(PATIENCE_S)


def test_a_decided_end_is_carried_out_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, start_broker(tmp_path, kafka=True) as broker:
        producer = new_producer(broker)
        begin(producer, b"decided")

        async def hang(*_: Any) -> bool:
            await asyncio.Event().wait()
            return False

        patched.setattr(MarkerSender, "send", hang)
        producer.commit_transaction(PATIENCE_S)  # answered once it is decided
        assert describe(broker).state == "PrepareCommit"
        assert not is_stable(broker)

    with start_broker(tmp_path, kafka=True) as broker:
        wait_until(lambda: describe(broker).state in ("CompleteCommit", ""), "the coordinator has loaded its log")
        wait_until(waiting_for(broker, "CompleteCommit"), "the markers are written")
        assert is_stable(broker)


def test_an_unused_transactional_id_expires() -> None:
    with start_broker(
        kafka=True,
        transactional_id_expiration_ms=500,
        transaction_remove_expired_transaction_cleanup_interval_ms=100,
    ) as broker:
        producer = new_producer(broker)
        begin(producer, b"x")
        producer.commit_transaction(PATIENCE_S)

        wait_until(lambda: describe(broker).error is not None, "the id is forgotten")

        assert describe(broker).error.name == "TRANSACTIONAL_ID_NOT_FOUND"
        new_producer(broker)
        assert describe(broker).error is None


def test_a_transaction_with_a_deleted_topic_ends_without_it() -> None:
    with start_broker(kafka=True) as broker:
        producer = new_producer(broker)
        begin(producer, b"x")
        producer.produce("gone", b"x", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        broker.run(broker.node.broker.services.topics.delete("gone", 5_000))

        producer.commit_transaction(PATIENCE_S)

        wait_until(waiting_for(broker, "CompleteCommit"), "the transaction is complete")
        assert is_stable(broker)
