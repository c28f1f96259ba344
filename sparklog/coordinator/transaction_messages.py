"""Requests and values about transactions that coordinators and partition leaders share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition

FIRST_WITH_STRICT_EPOCHS = 2
"""The first transaction version in which a marker's epoch is greater than the transaction's (KIP-890)."""


class TransactionProtocol(NamedTuple):
    """The transaction protocol of a client's request."""

    enrols: bool = False
    """Whether the request enrols its partitions in the transaction (protocol 2; KIP-890)."""
    knows_abortable: bool = False
    """Whether the client knows TRANSACTION_ABORTABLE."""


PROTOCOL_1 = TransactionProtocol()
PROTOCOL_2 = TransactionProtocol(enrols=True, knows_abortable=True)


class TransactionMarker(Struct, frozen=True, kw_only=True):
    """The end of one producer's transaction in partitions."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    """The leader epoch of the coordinator's partition of `__transaction_state`."""
    transaction_version: int = 0
    partitions: Sequence[TopicPartition]

    @property
    def is_strict(self) -> bool:
        """Whether the marker's epoch must be greater than that of the transaction's batches (KIP-1228)."""
        return self.transaction_version >= FIRST_WITH_STRICT_EPOCHS


class WriteTxnMarkers(Struct, frozen=True, kw_only=True):
    """Coordinator → leaders of partitions."""

    markers: Sequence[TransactionMarker]


class MarkerResult(Struct, frozen=True, kw_only=True):
    """The outcome of a marker in each of its partitions: None once all in-sync replicas have it."""

    producer_id: int
    errors: Mapping[TopicPartition, KafkaError | None]


class WriteTxnMarkersResponse(Struct, frozen=True, kw_only=True):
    markers: Sequence[MarkerResult]
    """In the order of the request."""
