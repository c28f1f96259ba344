"""Delivery of transaction markers to the leaders of their partitions, until all are written.

    partition with a leader     send WriteTxnMarkers to it
    partition without a leader  retry
    missing partition           done after `MISSING_MS`: the partition was deleted. Before that, retry: this broker may
                                learn of a new topic a moment later than others
    temporary error             retry, with the leader that is known by then
    fenced                      stop: a newer coordinator or a newer epoch of the producer ends the transaction, unless
                                this broker is elected again (coordinator.py)

As kafka.coordinator.transaction.TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from sparklog.base.errors import (
    InvalidProducerEpoch,
    KafkaError,
    RetriableError,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.coordinator.transaction_messages import TransactionMarker, WriteTxnMarkers, WriteTxnMarkersResponse

RETRY_MS, RETRY_MAX_MS = 20, 1_000
TIMEOUT_MS = 30_000
MISSING_MS = 5_000
logger = logging.getLogger(__name__)


class Leaders(Protocol):
    """The leaders of partitions, and calls to them."""

    def exists(self, name: TopicPartition) -> bool:
        """Return whether this broker knows the partition."""
        ...

    def leader_of(self, name: TopicPartition) -> int | None:
        """Return the id of the leading broker; None if there is none."""
        ...

    async def write(self, broker_id: int, request: WriteTxnMarkers, *, timeout_ms: int) -> WriteTxnMarkersResponse:
        """Send markers to a broker and return its answer.

        Raises KafkaError if the broker cannot be reached or does not answer in time.
        """
        ...


class MarkerFenced(Exception):
    """A newer producer or coordinator has taken the transaction over."""


class MarkerSender:
    """Sends the markers of transactions."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

    async def send(self, marker: TransactionMarker, is_wanted: Callable[[], bool]) -> bool:
        """Return True once all partitions have the marker, False if `is_wanted()` has become false.

        Raises MarkerFenced.
        """
        left = set(marker.partitions)
        backoff_ms, waited_ms = RETRY_MS, 0
        while is_wanted():
            written = await asyncio.gather(*(self._ask(*each, marker) for each in self._by_leader(left)))
            left.difference_update(*written)
            if waited_ms >= MISSING_MS:
                left = {name for name in left if self._leaders.exists(name)}
            if not left:
                return True
            await asyncio.sleep(backoff_ms / 1000)
            waited_ms += backoff_ms
            backoff_ms = min(2 * backoff_ms, RETRY_MAX_MS)
        return False

    def _by_leader(self, names: Iterable[TopicPartition]) -> Iterable[tuple[int, list[TopicPartition]]]:
        found: dict[int, list[TopicPartition]] = {}
        for name in sorted(names):
            leader = self._leaders.leader_of(name)
            if leader is not None:
                found.setdefault(leader, []).append(name)
        return found.items()

    async def _ask(
        self, broker_id: int, names: Sequence[TopicPartition], marker: TransactionMarker
    ) -> set[TopicPartition]:
        """Return the partitions that have the marker. Raises MarkerFenced."""
        request = WriteTxnMarkers(markers=[replace(marker, partitions=names)])
        try:
            answer = await self._leaders.write(broker_id, request, timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            logger.info(
                "broker %d has not written the markers of producer %d: %s", broker_id, marker.producer_id, error
            )
            return set()
        [written] = answer.markers
        return {name for name in names if self._is_done(name, written.errors.get(name), marker)}

    def _is_done(self, name: TopicPartition, error: KafkaError | None, marker: TransactionMarker) -> bool:
        if error is None:
            return True
        if isinstance(error, InvalidProducerEpoch | TransactionCoordinatorFenced):
            raise MarkerFenced(f"{name}: {error}")
        if not isinstance(error, RetriableError | UnknownTopicOrPartition):
            logger.error(
                "%s has not taken the marker of producer %d, and will be asked again: %s",
                name,
                marker.producer_id,
                error,
            )
        return False
