"""The client of sinks: joins, commits and aborts batches, describes and resets sinks.

`AsyncSinkClient` is the implementation, `SinkClient` (sync.py) the same for use without an event loop. A sink is a
transactional id, so the coordinator of that id is the sink's coordinator. A call is retried for
`default_api_timeout_ms` after a retriable error, such as a previous batch that has not ended yet. Every call can be
repeated after a lost answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Unpack

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import ConcurrentTransactions
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import to_value
from sparklog.client.base import AsyncClient
from sparklog.client.cluster import Cluster
from sparklog.client.config import AdminConfig
from sparklog.client.connection import Connection, OpenChannel, open_channel, raise_error_of
from sparklog.client.coordinator import Coordinator
from sparklog.client.options import AdminOptions
from sparklog.client.retry import Backoff, retrying
from sparklog.v1 import sinks_pb2

FIRST_LOOK_MS = 5
"""Pause after the first check for markers: brokers write them within a few milliseconds."""


class SinkBatchId(NamedTuple):
    """The id of one batch of a sink, and of the run that writes it."""

    sink_id: str
    run_id: str
    batch_id: int


class BatchProducer(NamedTuple):
    """The producer id and epoch of a writer."""

    producer_id: int
    producer_epoch: int


class BatchWinner(NamedTuple):
    """A writer whose records are committed, and all partitions of its records, by topic."""

    producer: BatchProducer
    topics: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkListing:
    """A sink in a list; `state` has Kafka's names (Ongoing, CompleteCommit, …), `coordinator` is a broker id."""

    sink_id: str
    coordinator: int
    state: str
    committed_batch_id: int
    """-1: none yet."""
    last_update_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDescription:
    """A sink and its batches; -1 for no batch."""

    sink_id: str
    state: str
    run_id: str
    """The last run that has written."""
    batch_id: int
    """The open or ending batch; without one, the last batch."""
    committed_batch_id: int
    committed_run_id: str
    last_update_ms: int
    timeout_ms: int
    producers: int
    """Number of writers of the open or ending batch."""
    partitions: tuple[TopicPartition, ...]
    """Partitions of that batch."""


class AsyncSinkClient(AsyncClient):
    """Client of sinks, for use on an event loop. Options are those of AdminConfig."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        open_channel: OpenChannel = open_channel,
        **options: Unpack[AdminOptions],
    ) -> None:
        self.config = AdminConfig.parse(options)
        self._random = random or Random()
        self._cluster = Cluster(self.config, clock or SystemClock(), self._random, open_channel=open_channel)
        self._coordinators: dict[str, Coordinator] = {}

    async def join(self, batch: SinkBatchId, *, timeout_ms: int, is_one_off: bool = False) -> BatchProducer | None:
        """Join a batch; return the writer's producer id and epoch, or None if another run has committed the batch.

        timeout_ms: time until the batch is aborted, without a renewal. is_one_off: the sink has this batch only.
        Raises ProducerFenced if a newer run has replaced this one, InvalidTxnState if this run has committed the batch.
        """
        request = sinks_pb2.JoinBatchRequest(**batch._asdict(), timeout_ms=timeout_ms, one_off=is_one_off)
        answer = await self._ask(batch.sink_id, "JoinBatch", request)
        return None if answer.committed else BatchProducer(answer.producer_id, answer.producer_epoch)

    async def renew(self, batch: SinkBatchId, producer: BatchProducer, *, timeout_ms: int) -> None:
        """Keep the batch open for another `timeout_ms`. Raises ProducerFenced or InvalidTxnState if it has ended."""
        request = sinks_pb2.JoinBatchRequest(**batch._asdict(), **producer._asdict(), timeout_ms=timeout_ms)
        await self._ask(batch.sink_id, "JoinBatch", request)

    async def commit(self, batch: SinkBatchId, winners: Iterable[BatchWinner]) -> None:
        """Commit a batch. May be repeated. Its records become readable shortly after, partition by partition.

        Raises InvalidTxnState if the batch was aborted or has timed out, ProducerFenced if a newer run has replaced
        this one. After any other error the outcome is unknown.
        """
        named = [
            sinks_pb2.BatchWinner(
                **each.producer._asdict(),
                topics=[
                    sinks_pb2.PartitionsOfTopic(topic=topic, partitions=each.topics[topic]) for topic in each.topics
                ],
            )
            for each in winners
        ]
        await self._ask(batch.sink_id, "CommitBatch", sinks_pb2.CommitBatchRequest(**batch._asdict(), winners=named))

    async def await_readable(self, batch: SinkBatchId) -> None:
        """Wait until all records of a committed batch are readable.

        Raises ConcurrentTransactions after `default_api_timeout_ms`. The batch is committed in any case.
        """

        async def look() -> None:
            if (await self.describe(batch.sink_id)).committed_batch_id < batch.batch_id:
                raise ConcurrentTransactions(f"batch {batch.batch_id} of {batch.sink_id!r} lacks some of its markers")

        await retrying(
            look,
            timeout_ms=self.config.default_api_timeout_ms,
            backoff=Backoff(FIRST_LOOK_MS, self.config.retry_backoff_max_ms, self._random),
            clock=self._cluster.clock,
        )

    async def abort(self, batch: SinkBatchId) -> None:
        """Abort a batch, which this run can then no longer write. May be repeated.

        Raises InvalidTxnState if the batch is committed.
        """
        await self._ask(batch.sink_id, "AbortBatch", sinks_pb2.AbortBatchRequest(**batch._asdict()))

    async def list(self) -> list[SinkListing]:
        """Return the sinks of all brokers, sorted."""

        async def ask(broker_id: int, broker: Connection) -> list[SinkListing]:
            answer = await broker.call(
                broker.sinks.ListSinks, sinks_pb2.ListSinksRequest(), self.config.request_timeout_ms
            )
            raise_error_of(answer)
            return [to_value(found, SinkListing, coordinator=broker_id) for found in answer.sinks]

        listed = await retrying(
            lambda: self._cluster.ask_brokers(ask),
            timeout_ms=self.config.default_api_timeout_ms,
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )
        return sorted(listed, key=lambda found: found.sink_id)

    async def describe(self, sink_id: str) -> SinkDescription:
        """Return a sink and its batches. Raises TransactionalIdNotFound."""
        [found] = (await self._ask(sink_id, "DescribeSinks", sinks_pb2.DescribeSinksRequest(sink_ids=[sink_id]))).sinks
        partitions = tuple(sorted(TopicPartition(item.topic, item.partition) for item in found.partitions))
        described: SinkDescription = to_value(found, SinkDescription, partitions=partitions)
        return described

    async def reset(self, sink_id: str) -> None:
        """Forget a sink, and abort its open batch. A writer that repeats a committed batch then writes it again.

        Raises TransactionalIdNotFound.
        """
        await self._ask(sink_id, "ResetSink", sinks_pb2.ResetSinkRequest(sink_id=sink_id))

    async def close(self) -> None:
        await self._cluster.close()

    async def _ask(self, sink_id: str, method: str, request: Any) -> Any:
        """Return the coordinator's answer. Raises the error of the answer or of the sink in it."""
        coordinator = self._coordinators.get(sink_id)
        if coordinator is None:
            coordinator = self._coordinators[sink_id] = Coordinator(self._cluster, sink_id, is_transactional=True)
        return await coordinator.ask_until(method, request, self.config.default_api_timeout_ms, service="sinks")
