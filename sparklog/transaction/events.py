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
    """Effect: write a marker to each partition, then call `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]
    transaction_version: int


class TransactionChange(Struct, frozen=True, kw_only=True):
    """Event: the record of a change of transactional ids is committed, or has failed."""

    transactional_ids: Sequence[str]
    is_extension: bool = False
    """Whether the change adds partitions to a transaction."""


class PreparedTimer(Struct, frozen=True, kw_only=True):
    """Timer: write a prepared transaction again, if its record has failed."""

    transactional_id: str


def markers_of(name: str, value: TransactionValue) -> SendMarkers:
    """Return the effect that writes the markers of a prepared transaction."""
    return SendMarkers(
        transactional_id=name,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        is_commit=state_of(value) is PREPARE_COMMIT,
        partitions=tuple(value.partitions or ()),
        transaction_version=value.client_transaction_version,
    )


class SendSinkMarkers(Struct, frozen=True, kw_only=True):
    """Effect: write all markers of a batch, then call `markers_written`."""

    sink_id: str
    markers: Sequence[SinkMarkers]

    @property
    def transactional_id(self) -> str:
        """The sink's id, named as in SendMarkers."""
        return self.sink_id


class SinkChange(Struct, frozen=True, kw_only=True):
    """Event: the record of a change of sinks is committed, or has failed."""

    sink_ids: Sequence[str]
    is_extension: bool = False
    """Whether the change adds task attempts or partitions to a batch."""


class SinkTimer(Struct, frozen=True, kw_only=True):
    """Timer: write a prepared batch again, if its record has failed."""

    sink_id: str
