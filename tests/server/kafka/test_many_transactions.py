"""Thousands of open transactions: bounded memory, correct reads, and an end for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.topic import Topic
from support.kafka.transactions import (
    LIST_TRANSACTIONS,
    OF_PROTOCOL_2,
    Transactional,
    init,
    produce,
    stable_offset,
)
from support.patience import wait_until
from support.runs.seeds import SEED

HELD = TopicPartition("held", 0)
OPEN, CONNECTIONS = (1_000 if SEED is None else 10_000), 8
LONG_MS = 900_000
"""Nothing times out before it is ended."""
MOST_BYTES = (20 << 20) + OPEN * 13_000
"""What their producers take in the partition is included."""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, transaction_state_log_num_partitions=3) as running:
        yield running


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.soak
def test_thousands_of_open_transactions_fill_no_memory_and_can_all_be_ended(broker: RunningBroker) -> None:
    address = broker.node.kafka_addresses["PLAINTEXT"]
    names = [f"tx-{number}" for number in range(OPEN)]
    parts = [names[first::CONNECTIONS] for first in range(CONNECTIONS)]
    with Wire(address) as wire:
        topic = Topic(wire, HELD.topic)
    before = resident_bytes()

    def open_some(part: Sequence[str]) -> None:
        with Wire(address) as wire:
            mine = Topic(wire, topic.name)
            for name in part:
                given = init(wire, 5, name, transaction_timeout=LONG_MS)
                producer = Transactional(name, given.producer_id, given.producer_epoch)
                assert produce(mine, OF_PROTOCOL_2, producer, b"v") is ErrorCode.none

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(open_some, parts))
    assert resident_bytes() - before < MOST_BYTES

    with Wire(address) as wire, Admin(bootstrap_servers=broker.bootstrap) as admin:
        topic = Topic(wire, topic.name)
        ongoing = wire.send(
            LIST_TRANSACTIONS, 1, state_filters=["Ongoing"], producer_id_filters=(), duration_filter=-1
        ).transaction_states
        assert {each.transactional_id for each in ongoing} == {*names}
        assert stable_offset(topic) == 0
        assert sum(each.has_transaction for each in admin.describe_producers([HELD])[HELD]) == OPEN

    def end_some(part: Sequence[str]) -> set[ErrorCode]:
        """End transactions as a restarted client does."""
        with Wire(address) as wire:
            return {init(wire, 5, name).error_code for name in part}

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        assert set().union(*pool.map(end_some, parts)) == {ErrorCode.none}
    with Wire(address) as wire:
        topic = Topic(wire, topic.name)
        wait_until(lambda: stable_offset(topic) == 2 * OPEN, "each record has its marker")
