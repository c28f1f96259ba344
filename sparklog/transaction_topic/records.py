"""The records of `__transaction_state` as values, and their encoding and decoding.

The key is a transactional id, the value its whole state. A record without a value is a tombstone: the id no longer
exists. Values are written in version 1, as by Kafka 4 with transaction.version 1 or higher; version 0 can be read. Keys
of other types and values of newer versions are skipped, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.base.errors import CorruptRecord
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import read_key, read_value, write_key, write_value
from sparklog.transaction_topic.schemas import TRANSACTION_LOG, TRANSACTION_TOPIC
from sparklog.transaction_topic.sinks import SinkValue, sink_fields, sink_value

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
_VERSION = 1
_NAMES = {
    "producer_id": "producerId",
    "previous_producer_id": "previousProducerId",
    "next_producer_id": "nextProducerId",
    "producer_epoch": "producerEpoch",
    "next_producer_epoch": "nextProducerEpoch",
    "timeout_ms": "transactionTimeoutMs",
    "status": "transactionStatus",
    "last_update_ms": "transactionLastUpdateTimestampMs",
    "start_ms": "transactionStartTimestampMs",
    "client_transaction_version": "clientTransactionVersion",
    "last_producer_epoch": "lastProducerEpoch",
}
"""Each field's name in Kafka's schema; `partitions` is written apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionKey:
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """A transactional id: its producer, and its transaction."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the change that this record describes; most changes keep it."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the end of the transaction, if the epochs of the present one are exhausted."""
    producer_epoch: int
    next_producer_epoch: int = NO_EPOCH
    """For two-phase commit (KIP-939), which is not supported."""
    timeout_ms: int
    status: int
    """A state's number (transaction/states.py): 0 to 7."""
    partitions: Sequence[TopicPartition] | None = None
    """The partitions of the transaction, those of a topic together; None in the state Empty."""
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    """The time at which the transaction began."""
    client_transaction_version: int = 0
    """2 if the change came from a client that has a new epoch for each transaction (KIP-890), otherwise 0."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch with which the producer may request the present epoch again; -1: none. Not in Kafka's records."""
    sink: SinkValue | None = None
    """Set for a sink, whose batches have many producers; `producer_id` is the first of them. Not in Kafka's records."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A record; a `value` of None is a tombstone."""

    key: TransactionKey
    value: TransactionValue | None = None


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of a record, as Kafka writes them. Raises InvalidRequest if the id is too long."""
    key = write_key(TRANSACTION_LOG, {"transactionalId": record.key.transactional_id}, TRANSACTION_TOPIC)
    if record.value is None:
        return key, None
    fields: dict[str, Any] = {name: getattr(record.value, ours) for ours, name in _NAMES.items()}
    fields["transactionPartitions"] = _by_topic(record.value.partitions)
    fields["sink"] = sink_fields(record.value.sink)
    return key, write_value(_VERSION, fields, TRANSACTION_TOPIC[TRANSACTION_LOG][1])


def decode(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Return the record in these bytes, written by Kafka or sparklog; None if its type or version is not known.

    Raises CorruptRecord if the bytes do not match their type and version.
    """
    if key is None:
        raise CorruptRecord("a record of the transaction topic has no key")
    try:
        _, fields = read_key(key, TRANSACTION_TOPIC)
        if fields is None:
            return None
        found = TransactionKey(transactional_id=fields["transactionalId"])
        if value is None:
            return TransactionRecord(found)
        if int.from_bytes(value[:2], "big", signed=True) > _VERSION:
            return None
        _, fields = read_value(value, TRANSACTION_TOPIC[TRANSACTION_LOG][1])
        return TransactionRecord(found, _value(fields))
    except (ValueError, struct.error) as error:
        raise CorruptRecord(f"a record of the transaction topic cannot be read: {error}") from error


def _value(fields: dict[str, Any]) -> TransactionValue:
    if not 0 <= (status := fields["transactionStatus"]) <= 7:
        raise ValueError(f"{status} is no state of a transaction")
    topics = fields["transactionPartitions"]
    partitions = None
    if topics is not None:
        partitions = tuple(
            TopicPartition(item["topic"], number) for item in topics for number in item["partitionIds"] or ()
        )
    known = {ours: fields[name] for ours, name in _NAMES.items() if name in fields}
    sink = sink_value(fields.get("sink"), len(partitions or ()))
    return TransactionValue(partitions=partitions, sink=sink, **known)


def _by_topic(partitions: Sequence[TopicPartition] | None) -> list[dict[str, Any]] | None:
    if partitions is None:
        return None
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitionIds": found} for topic, found in numbers.items()]
