"""WriteTxnMarkers: end a producer's transaction in partitions that this broker leads (key 27, versions 1 to 2).

- The transaction coordinator sends it once the outcome is decided; an operator's tool sends it to abort a transaction
  whose coordinator has lost it.
- Each partition gets a control batch, with acks=all. A marker of `__consumer_offsets` also commits or drops the offsets
  that the transaction holds.
- A marker that was written already changes nothing, and is answered without an error (KAFKA-19999). An older
  coordinator gets TRANSACTION_COORDINATOR_FENCED, an older producer epoch INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import OneOf, on_cluster
from sparklog.coordinator.transaction_messages import (
    MarkerResult,
    TransactionMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResponse,
)
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from sparklog.records.markers import EndTransactionMarker
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices

TIMEOUT_MS = 30_000
"""How long replicas may take to have a marker."""


class MarkerWriter(Struct, frozen=True, kw_only=True, eq=False):
    """Appends markers to the replicas that this broker leads, and waits for the other brokers."""

    groups: GroupCoordinator
    replicas: ReplicaManager
    slices: Slices
    waiting: Purgatory[TopicPartition]

    async def __call__(self, request: WriteTxnMarkers) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(markers=await self.slices.each(request.markers, self._write))

    async def _write(self, marker: TransactionMarker) -> MarkerResult:
        errors: dict[TopicPartition, KafkaError | None] = {}
        pending: dict[TopicPartition, asyncio.Future[None]] = {}

        async def append(name: TopicPartition) -> None:
            try:
                settled = self._append(name, marker)
            except KafkaError as error:
                errors[name] = error.with_traceback(None)  # as in fetch.py
            else:
                errors[name] = None
                if settled is not None:
                    pending[name] = asyncio.ensure_future(settled)

        async def collect(name: TopicPartition) -> None:
            try:
                await pending[name]
            except KafkaError as error:
                errors[name] = error.with_traceback(None)

        await self.slices.each(dict.fromkeys(marker.partitions), append)
        await self.slices.each(pending, collect)
        return MarkerResult(producer_id=marker.producer_id, errors=errors)

    def _append(self, name: TopicPartition, marker: TransactionMarker) -> Awaitable[None] | None:
        """Append a marker. Return what waits until it is committed, or None if it is. Raises KafkaError."""
        replica = self.replicas.get_leader(name)
        ends = EndTransactionMarker(marker.is_commit, marker.coordinator_epoch)
        if name.topic == OFFSETS_TOPIC:
            return self.groups.end_transaction(name.partition, marker)
        appended = self.replicas.append_marker(
            replica,
            ends,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_strict=marker.is_strict,
        )
        led_since = replica.partition.led_since
        if not appended.must_flush and replica.is_replicated(appended.last_offset, led_since):
            return None
        return self._committed(name, led_since, appended.last_offset, must_flush=appended.must_flush)

    async def _committed(self, name: TopicPartition, led_since: int, last_offset: int, *, must_flush: bool) -> None:
        if must_flush:
            await self.replicas.flush(self.replicas.get(name))

        def attempt() -> bool | None:
            return self.replicas.get(name).is_replicated(last_offset, led_since) or None

        if await self.waiting.wait([name], attempt, TIMEOUT_MS) is None:
            raise RequestTimedOut(f"{name}: the in-sync replicas took longer than {TIMEOUT_MS} ms")


API = Api(
    name="WriteTxnMarkers",
    handle=MarkerWriter,
    rights=(OneOf((on_cluster(AclOperation.ALTER),), on_cluster(AclOperation.CLUSTER_ACTION)),),
    key=27,
    versions=(1, 2),
)
