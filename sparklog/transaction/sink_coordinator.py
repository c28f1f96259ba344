"""The requests of sinks to a transaction coordinator, and the markers of their batches.

The markers of a batch are sent in parallel, for MARKERS_AT_ONCE producers at a time. Methods for requests are one API
each. The error of a request is in its response; no KafkaError is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sparklog.base.errors import CoordinatorLoadInProgress, KafkaError
from sparklog.coordinator.partitions import CoordinatorPartitions
from sparklog.coordinator.runtime import CoordinatorRuntime
from sparklog.coordinator.transaction_messages import TransactionMarker
from sparklog.runtime.slices import Slices, of_many
from sparklog.transaction.events import SendSinkMarkers
from sparklog.transaction.listing import describe_sink, list_sink
from sparklog.transaction.marker_sender import MarkerSender
from sparklog.transaction.requests import TV2
from sparklog.transaction.shard import TransactionShard
from sparklog.transaction.sink_changes import SinkMarkers
from sparklog.transaction.sink_requests import (
    AbortBatch,
    AbortBatchResponse,
    CommitBatch,
    CommitBatchResponse,
    DescribedSink,
    DescribeSinks,
    DescribeSinksResponse,
    JoinBatch,
    JoinBatchResponse,
    ListedSink,
    ListSinks,
    ListSinksResponse,
    ResetSink,
    ResetSinkResponse,
)
from sparklog.transaction_topic.records import NO_PRODUCER_ID

MARKERS_AT_ONCE = 16
SLICE_SIZE = 1_000
"""Sinks that are handled in one slice: a few milliseconds of work."""
Runtime = CoordinatorRuntime[TransactionShard]
logger = logging.getLogger(__name__)


class ShardCall(Protocol):
    """Calls a function with the runtime of a transactional id (TransactionCoordinator.answer)."""

    async def __call__(
        self, transactional_id: str, request: Any, ask: Callable[[Runtime], Awaitable[Any]], /
    ) -> Any: ...


class SinkCoordinator:
    """The part of a transaction coordinator that serves sinks."""

    def __init__(
        self,
        *,
        answer: ShardCall,
        partitions: CoordinatorPartitions[TransactionShard],
        markers: MarkerSender,
        new_producer_id: Callable[[], Awaitable[int]],
        slices: Slices,
    ) -> None:
        self._answer = answer
        self._partitions = partitions
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._slices = slices

    async def join_batch(self, request: JoinBatch) -> JoinBatchResponse:
        """Return the attempt's producer id and epoch, or whether another run has committed the batch."""

        async def ask(runtime: Runtime) -> JoinBatchResponse:
            count = 0
            if request.producer_id == NO_PRODUCER_ID:
                count = runtime.shard.sinks.needed_producer_ids(request.sink_id)
            fresh = [await self._new_producer_id() for _ in range(count)]
            return await runtime.ask(lambda _, now_ms: runtime.shard.join_batch(request, fresh, now_ms))

        answer: JoinBatchResponse = await self._answer(request.sink_id, request, ask)
        return answer

    async def commit_batch(self, request: CommitBatch) -> CommitBatchResponse:
        """Answer once the commit is in the log. A repeated request with the same attempts gets the same answer."""

        async def ask(runtime: Runtime) -> CommitBatchResponse:
            return await runtime.ask(lambda _, now_ms: runtime.shard.sinks.commit_batch(request, now_ms))

        answer: CommitBatchResponse = await self._answer(request.sink_id, request, ask)
        return answer

    async def abort_batch(self, request: AbortBatch) -> AbortBatchResponse:
        """Answer once the abort is in the log, or at once if no batch is open."""

        async def ask(runtime: Runtime) -> AbortBatchResponse:
            return await runtime.ask(lambda _, now_ms: runtime.shard.sinks.abort_batch(request, now_ms))

        answer: AbortBatchResponse = await self._answer(request.sink_id, request, ask)
        return answer

    async def reset(self, request: ResetSink) -> ResetSinkResponse:
        """Answer once the deletion is in the log; with ConcurrentTransactions while an open batch is being aborted."""

        async def ask(runtime: Runtime) -> ResetSinkResponse:
            return await runtime.ask(lambda _, now_ms: runtime.shard.sinks.reset(request, now_ms))

        answer: ResetSinkResponse = await self._answer(request.sink_id, request, ask)
        return answer

    async def describe(self, request: DescribeSinks) -> DescribeSinksResponse:
        """Return a description of each sink, in their order, from state that is committed in the log."""

        async def describe(sink_id: str) -> DescribedSink:
            async def ask(runtime: Runtime) -> DescribeSinksResponse:
                await runtime.committed()
                sinks = runtime.shard.sinks
                found = describe_sink(sink_id, sinks.find(sink_id), sinks.writers(sink_id))
                return DescribeSinksResponse(sinks=[found])

            answer: DescribeSinksResponse = await self._answer(sink_id, DescribeSinks(sink_ids=[sink_id]), ask)
            return answer.sinks[0]

        return DescribeSinksResponse(sinks=await self._slices.each(request.sink_ids, describe))

    async def list(self, request: ListSinks) -> ListSinksResponse:
        """Return the sinks of all loaded partitions, and an error if others are not loaded yet."""
        listed: list[ListedSink] = []
        runtimes, failed = await self._partitions.committed()

        async def list_some(part: tuple[TransactionShard, Sequence[str]]) -> None:
            shard, ids = part
            found = ((sink_id, shard.sinks.find(sink_id)) for sink_id in ids)
            listed.extend(list_sink(sink_id, value) for sink_id, value in found if value is not None)

        shards = [runtime.shard for runtime in runtimes]
        parts = ((shard, ids) for shard in shards for ids in of_many(tuple(shard.sinks.sink_ids), SLICE_SIZE))
        await self._slices.each(parts, list_some)
        loading = CoordinatorLoadInProgress("not all sinks have been read yet")
        return ListSinksResponse(error=loading if self._partitions.is_loading else failed, sinks=listed)

    # Markers

    async def write_markers(self, runtime: Runtime, coordinator_epoch: int, effect: SendSinkMarkers) -> bool:
        """Return True once all markers of a batch are written, False if the runtime is closed.

        Raises MarkerFenced, after the other markers are written or have failed.
        """
        limit = asyncio.Semaphore(MARKERS_AT_ONCE)

        async def send(markers: SinkMarkers) -> bool:
            async with limit:
                return await self._markers.send(
                    TransactionMarker(
                        producer_id=markers.producer_id,
                        producer_epoch=markers.producer_epoch,
                        is_commit=markers.is_commit,
                        coordinator_epoch=coordinator_epoch,
                        transaction_version=TV2,
                        partitions=markers.partitions,
                    ),
                    lambda: not runtime.is_closed,
                )

        outcomes = await asyncio.gather(*map(send, effect.markers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(outcomes)

    # The clock

    async def abort_timed_out(self, runtime: Runtime, now_ms: int, ids: Sequence[str]) -> None:
        """Abort the batches among the ids that have been open for longer than their timeout."""
        sinks = runtime.shard.sinks
        for name in sinks.timed_out(now_ms, ids):
            try:
                await runtime.write(sinks.abort_timed_out(name, now_ms))
            except KafkaError as error:
                logger.warning("the batch of sink %r is past its timeout, and could not be aborted: %s", name, error)
            else:
                logger.info("the batch of sink %r is past its timeout, and is being aborted", name)
