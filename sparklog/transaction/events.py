"""What a transaction coordinator asks of its shell, and what it is told later."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.ids import TopicPartition
from sparklog.transaction.changes import state_of
from sparklog.transaction.states import PREPARE_COMMIT
from sparklog.transaction_topic.records import TransactionValue


class SendMarkers(Struct, frozen=True, kw_only=True):
    """Effect: write a marker to each partition, until all have it, and report them to `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]
    transaction_version: int


class Changed(Struct, frozen=True, kw_only=True):
    """Event: the record of a change is committed, or has failed."""

    transactional_ids: Sequence[str]
    is_extension: bool = False
    """Partitions joined a transaction."""


class PreparedTimer(Struct, frozen=True, kw_only=True):
    """Timer: look whether a prepared transaction has to be written again."""

    transactional_id: str


def markers_of(name: str, value: TransactionValue) -> SendMarkers:
    """Return the effect that ends a prepared transaction."""
    return SendMarkers(
        transactional_id=name,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        is_commit=state_of(value) is PREPARE_COMMIT,
        partitions=tuple(value.partitions or ()),
        transaction_version=value.client_transaction_version,
    )
