"""Effects, events and timers of the transaction and sink machines.

An effect is work for the coordinator: it writes markers. An event tells a machine that a record was committed or has
failed. A timer is the key under which a machine wants to be called again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.ids import TopicPartition
from sparklog.transaction.changes import state_of
from sparklog.transaction.sink_changes import SinkMarkers
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


class TransactionChange(Struct, frozen=True, kw_only=True):
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


class SendSinkMarkers(Struct, frozen=True, kw_only=True):
    """Effect: write all markers, and report them to `markers_written`."""

    sink_id: str
    markers: Sequence[SinkMarkers]

    @property
    def transactional_id(self) -> str:
        """The sink's id, under the name that effects of producers have for theirs."""
        return self.sink_id


class SinkChange(Struct, frozen=True, kw_only=True):
    """Event: the record of a change is committed, or has failed."""

    sink_ids: Sequence[str]
    is_extension: bool = False
    """A task attempt or a partition joined the batch."""


class SinkTimer(Struct, frozen=True, kw_only=True):
    """Timer: look whether a prepared batch has to be written again."""

    sink_id: str
