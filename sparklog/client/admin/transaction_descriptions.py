"""Results of the admin client about transactions: frozen values, made from the messages of the Transactions service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import to_value

NOTHING = -1
"""Stands for a number that does not exist, as in Kafka's messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id; `state` as Kafka prints it (Empty, Ongoing, …), `coordinator` is a broker's id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id and its open transaction."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """When the open transaction began, in ms since the epoch; -1 if none is open."""
    partitions: tuple[TopicPartition, ...]
    """Partitions of the open transaction; while it ends, those that do not have its marker yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """A producer that a partition remembers, as it last wrote there. -1: there is no value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """Epoch of the coordinator that ended the producer's last transaction in this partition."""
    transaction_first_offset: int
    """The first offset of the producer's open transaction in this partition."""

    @property
    def has_transaction(self) -> bool:
        """Whether the producer has an open transaction in the partition."""
        return self.transaction_first_offset != NOTHING


def to_transaction_listing(found: Any, coordinator: int) -> TransactionListing:
    """Return the value of a ListedTransaction message. coordinator: the broker that sent it"""
    return to_value(found, TransactionListing, coordinator=coordinator)


def to_transaction(found: Any, coordinator: int) -> TransactionDescription:
    """Return the value of a DescribedTransaction message without an error. coordinator: the broker that sent it"""
    return TransactionDescription(
        transactional_id=found.transactional_id,
        coordinator=coordinator,
        state=found.state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.timeout_ms,
        start_ms=found.start_ms,
        partitions=tuple(sorted(TopicPartition(item.topic, item.partition) for item in found.partitions)),
    )


def to_producers(found: Any) -> tuple[ProducerDescription, ...]:
    """Return the producers in a PartitionProducers message without an error."""
    return tuple(to_value(producer, ProducerDescription) for producer in found.producers)
