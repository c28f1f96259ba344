"""A producer of transactions over a bare connection, and what it asks, in any version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafka.protocol.admin.transactions import DescribeTransactionsResponse
from kio.schema.errors import ErrorCode

from sparklog.base.ids import TopicPartition
from support.kafka.connection import Wire
from support.kafka.topic import Topic, make_batch
from support.patience import wait_until

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 27, 28
OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 9, 10, 61, 65, 66
TRANSACTIONAL = 0x10
TIMEOUT_MS = 60_000
OF_PROTOCOL_1, OF_PROTOCOL_2 = 11, 12
"""Versions of Produce."""


class Transactional(NamedTuple):
    """A producer with a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def begin(wire: Wire, transactional_id: str) -> Transactional:
    found = init(wire, 5, transactional_id)
    assert found.error_code is ErrorCode.none
    return Transactional(transactional_id, found.producer_id, found.producer_epoch)


def init(wire: Wire, version: int, transactional_id: str, **fields: Any) -> Any:
    """The first answer that is not that the former transaction is about to end."""
    asked = {"transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1} | fields
    return settled(
        lambda: wire.send(INIT_PRODUCER_ID, version, transactional_id=transactional_id, **asked),
        lambda response: response.error_code,
    )


def settled(ask: Callable[[], Any], code: Callable[[Any], ErrorCode]) -> Any:
    """Clients repeat a request while the former transaction's markers are being written."""

    def attempt() -> tuple[Any] | None:
        answer = ask()
        return None if code(answer) is ErrorCode.concurrent_transactions else (answer,)

    return wait_until(attempt, "the former transaction has ended")[0]


def add(wire: Wire, version: int, producer: Transactional, *names: TopicPartition, verify: bool = False) -> Any:
    """The error of each partition."""
    topics = [{"name": name.topic, "partitions": [name.partition]} for name in names]

    def ask() -> Any:
        if version < 4:
            return wire.send(
                ADD_PARTITIONS,
                version,
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=topics,
            ).results_by_topic_v3_and_below
        asked = {**producer._asdict(), "verify_only": verify, "topics": topics}
        response = wire.send(ADD_PARTITIONS, version, transactions=[asked])
        assert response.error_code is ErrorCode.none
        (result,) = response.results_by_transaction
        assert result.transactional_id == producer.transactional_id
        return result.topic_results

    def errors(results: Any) -> dict[TopicPartition, ErrorCode]:
        return {
            TopicPartition(each.name, part.partition_index): part.partition_error_code
            for each in results
            for part in each.results_by_partition
        }

    return errors(settled(ask, lambda results: next(iter(errors(results).values()))))


def end(wire: Wire, version: int, producer: Transactional, *, commit: bool) -> Any:
    return settled(
        lambda: wire.send(END_TXN, version, **producer._asdict(), committed=commit),
        lambda response: response.error_code,
    )


def produce(topic: Topic, version: int, producer: Transactional, *values: bytes, sequence: int = 0) -> ErrorCode:
    batch = make_batch(
        *values,
        attributes=TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
    )
    return settled(
        lambda: topic.produce(version, batch, transactional_id=producer.transactional_id),
        lambda produced: produced.error_code,
    ).error_code


def describe(wire: Wire, *transactional_ids: str) -> Any:
    """kafka-python reads the response: kio has no value for the start of a transaction that is not there."""
    wire.write(DESCRIBE_TRANSACTIONS, 0, transactional_ids=transactional_ids)
    response = DescribeTransactionsResponse.decode(wire.read_frame(), version=0, header=True)
    return response.transaction_states


def wait_for_state(wire: Wire, transactional_id: str, state: str) -> None:
    wait_until(lambda: describe(wire, transactional_id)[0].transaction_state == state, f"it is {state}")


def stable_offset(topic: Topic) -> int:
    part = topic.fetch(11, 0, isolation_level=1).responses[0].partitions[0]
    return int(part.last_stable_offset)


def commit_offset(
    wire: Wire, version: int, producer: Transactional, group: str, *names: TopicPartition, **member: Any
) -> dict[TopicPartition, ErrorCode]:
    """The error of each partition."""
    part = {"committed_offset": 5, "committed_leader_epoch": 3, "committed_metadata": "note"}
    fields = {
        "group_id": group, "generation_id": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": each.topic, "partitions": [{"partition_index": each.partition} | part]} for each in names],
    }  # fmt: skip

    def ask() -> dict[TopicPartition, ErrorCode]:
        response = wire.send(TXN_OFFSET_COMMIT, version, **producer._asdict(), **fields | member)
        return {
            TopicPartition(each.name, part.partition_index): part.error_code
            for each in response.topics
            for part in each.partitions
        }

    return settled(ask, lambda errors: next(iter(errors.values())))  # type: ignore[no-any-return]


def committed(wire: Wire, group: str, *, stable: bool = True) -> tuple[int, ErrorCode]:
    (found,) = wire.send(OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": None}], require_stable=stable).groups
    parts = [part for each in found.topics for part in each.partitions]
    return (parts[0].committed_offset, parts[0].error_code) if parts else (-1, ErrorCode.none)


def add_offsets(wire: Wire, version: int, producer: Transactional, group: str) -> ErrorCode:
    response = settled(
        lambda: wire.send(ADD_OFFSETS, version, **producer._asdict(), group_id=group),
        lambda response: response.error_code,
    )
    return response.error_code  # type: ignore[no-any-return]


def write_marker(wire: Wire, version: int, producer: Transactional, name: TopicPartition, **fields: Any) -> ErrorCode:
    marker = {
        "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "transaction_result": False,
        "coordinator_epoch": 0, "transaction_version": 0,
        "topics": [{"name": name.topic, "partition_indexes": [name.partition]}],
    }  # fmt: skip
    (written,) = wire.send(WRITE_TXN_MARKERS, version, markers=[marker | fields]).markers
    assert written.producer_id == producer.producer_id
    return written.topics[0].partitions[0].error_code  # type: ignore[no-any-return]
