"""The transaction coordinator of one broker: finds the shard of each transactional id and passes requests to it.

The leader of a partition of `__transaction_state` serves the partition's transactional ids (coordinator/partitions.py).
Once the end of a transaction is committed in the log, its markers are sent to the leaders of its partitions
(marker_sender.py); `markers_written` of the shard follows when all are written.

Methods for requests are one API each. The error of a request is in its response; no KafkaError is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import CoordinatorLoadInProgress, InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.coordinator.partition_log import PartitionLog
from sparklog.coordinator.partitions import CoordinatorPartitions, ShardCallbacks, TopicLookup
from sparklog.coordinator.runtime import CallLater, CoordinatorRuntime
from sparklog.coordinator.transaction_messages import TransactionMarker
from sparklog.log.log import Log
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.purgatory import Purgatory
from sparklog.runtime.slices import Slices, of_many
from sparklog.runtime.state_machine import Decision
from sparklog.transaction.events import SendMarkers, SendSinkMarkers
from sparklog.transaction.loader import load
from sparklog.transaction.marker_sender import MarkerFenced, MarkerSender
from sparklog.transaction.requests import (
    AddPartitions,
    AddPartitionsResponse,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
)
from sparklog.transaction.shard import TransactionShard
from sparklog.transaction.sink_coordinator import SinkCoordinator
from sparklog.transaction_topic.records import NO_PRODUCER_ID, TransactionRecord, encode

TRANSACTIONS_TOPIC = "__transaction_state"
TIMEOUT_MS = 5_000
"""Longest wait for the replication of a record."""
MAX_ID_BYTES = (1 << 15) - 1
FENCED_RETRY_S = 1.0
"""Interval at which a fenced coordinator checks whether it has been elected again."""
SLICE_SIZE = 1_000
"""Transactional ids that are handled in one slice: a few milliseconds of work."""
Runtime = CoordinatorRuntime[TransactionShard]
Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)
logger = logging.getLogger(__name__)


class TransactionRequest(Protocol[Response_co]):
    """Any request of `requests.py`."""

    def refused(self, error: KafkaError, /) -> Response_co:
        """Return the response to the request if it is refused as a whole."""
        ...


class TransactionCoordinator:
    """The transaction coordinator. Runs on one event loop, except that logs are loaded in a thread."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        topics: TopicLookup,
        replicas: ReplicaManager,
        waiting: Purgatory[TopicPartition],
        create_topic: Callable[[], Awaitable[None]],
        new_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerSender,
        slices: Slices,
        call_later: CallLater | None = None,
    ) -> None:
        """create_topic: as in `CoordinatorPartitions`. new_producer_id: returns an unused producer id; raises
        CoordinatorLoadInProgress.
        """
        self._config = config
        self._clock = clock
        self._replicas = replicas
        self._waiting = waiting
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._slices = slices
        self._call_later = call_later
        self._sending: set[asyncio.Task[None]] = set()
        self.partitions = CoordinatorPartitions(
            TRANSACTIONS_TOPIC,
            ShardCallbacks(new_shard=self._new_shard, load=self._load, serve=self._serve, begin=self._begin),
            clock=clock,
            topics=topics,
            replicas=replicas,
            waiting=waiting,
            create_topic=create_topic,
            default_partitions=config.transaction_state_log_num_partitions,
        )
        self.sinks = SinkCoordinator(
            answer=self.answer,
            partitions=self.partitions,
            markers=markers,
            new_producer_id=new_producer_id,
            slices=slices,
        )

    def stop(self) -> None:
        """Answer all waiting requests, send no more markers, and refuse further requests."""
        self.partitions.stop()
        for task in self._sending:
            task.cancel()

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that an id belongs to. Raises InvalidRequest for a long id."""
        if len(transactional_id.encode(errors="surrogatepass")) > MAX_ID_BYTES:
            raise InvalidRequest(f"a transactional id of more than {MAX_ID_BYTES} bytes")
        return self.partitions.partition_for(transactional_id)

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self._config)

    def _load(self, log: Log, end_offset: int, is_wanted: Callable[[], bool]) -> tuple[TransactionShard, object]:
        return load(log, end_offset, self._new_shard, is_wanted)

    def _serve(self, name: TopicPartition, led_since: int, shard: TransactionShard) -> Runtime:
        log: PartitionLog[TransactionRecord] = PartitionLog(
            name, led_since, self._replicas, self._waiting, timeout_ms=TIMEOUT_MS, encode=encode
        )
        call_later = self._call_later or asyncio.get_running_loop().call_later

        def carry_out(decision: Decision[TransactionRecord, Any]) -> None:
            for effect in decision.effects:
                self._send(runtime, name, effect)

        runtime = CoordinatorRuntime(shard, log, self._clock, call_later, carry_out)
        return runtime

    async def _begin(self, runtime: Runtime) -> None:
        async def begin_some(ids: Sequence[str]) -> None:
            runtime.decide(lambda now_ms: runtime.shard.loaded(now_ms, ids))

        await self._slices.each(of_many(tuple(runtime.shard.transactional_ids), SLICE_SIZE), begin_some)

    # Markers

    def _send(self, runtime: Runtime, name: TopicPartition, effect: SendMarkers | SendSinkMarkers) -> None:
        task = asyncio.get_running_loop().create_task(self._send_markers(runtime, name, effect))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_markers(
        self, runtime: Runtime, name: TopicPartition, effect: SendMarkers | SendSinkMarkers
    ) -> None:
        """Send markers until all are written, with the present leader epoch of the partition of `__transaction_state`.

        This epoch may be newer than the one in which this broker began to lead. Another broker may have led in between,
        so shortly that this broker was not informed, and its markers have fenced the older epoch. Then this broker
        continues once it is informed of its newer epoch.
        """
        are_written, fenced_epoch = False, -1
        while not are_written and not runtime.is_closed:
            replica = self._replicas.find(name)
            if replica is None:
                return
            epoch = replica.partition.leader_epoch
            if epoch == fenced_epoch:
                await asyncio.sleep(FENCED_RETRY_S)
                continue
            try:
                are_written = await self._write_markers(runtime, epoch, effect)
            except MarkerFenced as reason:
                fenced_epoch = epoch
                logger.warning("%r is left to its newer coordinator: %s", effect.transactional_id, reason)
        if are_written:
            runtime.decide(lambda now_ms: runtime.shard.markers_written(effect, now_ms))

    async def _write_markers(
        self, runtime: Runtime, coordinator_epoch: int, effect: SendMarkers | SendSinkMarkers
    ) -> bool:
        """Return True once all markers are written, False if the runtime is closed. Raises MarkerFenced."""
        if isinstance(effect, SendSinkMarkers):
            return await self.sinks.write_markers(runtime, coordinator_epoch, effect)
        marker = TransactionMarker(
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            is_commit=effect.is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=effect.transaction_version,
            partitions=effect.partitions,
        )
        return await self._markers.send(marker, lambda: not runtime.is_closed)

    # Requests

    async def answer(
        self,
        transactional_id: str,
        request: TransactionRequest[Response],
        ask: Callable[[Runtime], Awaitable[Response]],
    ) -> Response:
        """Return the response of `ask`, called with the runtime of an id; the refusal if that raises a KafkaError."""
        try:
            self.partition_for(transactional_id)
            return await ask(await self.partitions.runtime_for(transactional_id))
        except KafkaError as error:
            return request.refused(error)

    async def _fresh_producer_id(self, runtime: Runtime, transactional_id: str) -> int:
        """Return a fresh producer id if a decision about the transactional id may need one."""
        if runtime.shard.transactions.needs_producer_id(transactional_id):
            return await self._new_producer_id()
        return NO_PRODUCER_ID

    async def init_producer_id(self, request: InitProducerId) -> InitProducerIdResponse:
        """Return a producer id and epoch that fence the former producers of the transactional id.

        The response has ConcurrentTransactions while an open transaction of theirs is being aborted.
        """

        async def ask(runtime: Runtime) -> InitProducerIdResponse:
            fresh = await self._fresh_producer_id(runtime, request.transactional_id)
            return await runtime.ask(lambda _, now_ms: runtime.shard.init_producer_id(request, fresh, now_ms))

        return await self.answer(request.transactional_id, request, ask)

    async def add_partitions(self, request: AddPartitions) -> AddPartitionsResponse:
        """Return an error, or None, for each partition, once the enrolment is committed in the log."""

        async def ask(runtime: Runtime) -> AddPartitionsResponse:
            return await runtime.ask(lambda _, now_ms: runtime.shard.add_partitions(request, now_ms))

        return await self.answer(request.transactional_id, request, ask)

    async def end(self, request: EndTxn) -> EndTxnResponse:
        """Return the next transaction's producer id and epoch, once the Prepare record is committed in the log.

        Markers are sent after that.
        """

        async def ask(runtime: Runtime) -> EndTxnResponse:
            fresh = await self._fresh_producer_id(runtime, request.transactional_id)
            return await runtime.ask(lambda _, now_ms: runtime.shard.end_txn(request, fresh, now_ms))

        return await self.answer(request.transactional_id, request, ask)

    async def describe(self, request: DescribeTransactions) -> DescribeTransactionsResponse:
        """Return the transaction or error of each id, in their order, from state that is committed in the log."""

        async def describe(transactional_id: str) -> DescribedTransaction:
            alone = DescribeTransactions(transactional_ids=[transactional_id])

            async def ask(runtime: Runtime) -> DescribeTransactionsResponse:
                await runtime.committed()
                return runtime.shard.describe(alone)

            [found] = (await self.answer(transactional_id, alone, ask)).transactions
            return found

        return DescribeTransactionsResponse(transactions=await self._slices.each(request.transactional_ids, describe))

    async def list(self, request: ListTransactions) -> ListTransactionsResponse:
        """Return the transactional ids of all loaded partitions, and an error if others are not loaded yet."""
        now_ms = self._clock.time_ms()
        try:
            nothing = self._new_shard().list(request, now_ms)
        except KafkaError as error:
            return request.refused(error)
        listed: list[ListedTransaction] = []
        runtimes, failed = await self.partitions.committed()

        async def list_some(part: tuple[TransactionShard, Sequence[str]]) -> None:
            shard, ids = part
            listed.extend(shard.list(request, now_ms, ids).transactions)

        shards = [runtime.shard for runtime in runtimes]
        parts = ((shard, ids) for shard in shards for ids in of_many(tuple(shard.transactional_ids), SLICE_SIZE))
        await self._slices.each(parts, list_some)
        loading = CoordinatorLoadInProgress("not all transactional ids have been read yet")
        return replace(nothing, error=loading if self.partitions.is_loading else failed, transactions=listed)

    # The clock

    async def abort_timed_out(self) -> None:
        """Abort transactions and batches of sinks that have been open for longer than their timeout."""
        for runtime in self.partitions.runtimes:
            await self._slices.each(
                of_many(tuple(runtime.shard.transactional_ids), SLICE_SIZE), self._aborting(runtime)
            )

    def _aborting(self, runtime: Runtime) -> Callable[[Sequence[str]], Awaitable[None]]:
        async def abort_some(ids: Sequence[str]) -> None:
            await self.sinks.abort_timed_out(runtime, self._clock.time_ms(), ids)
            for name in runtime.shard.transactions.timed_out(self._clock.time_ms(), ids):
                try:
                    fresh = await self._fresh_producer_id(runtime, name)
                    await runtime.write(runtime.shard.transactions.abort_timed_out(name, fresh, self._clock.time_ms()))
                except KafkaError as error:
                    logger.warning(
                        "the transaction of %r is past its timeout, and could not be aborted: %s", name, error
                    )
                else:
                    logger.info("the transaction of %r is past its timeout, and is being aborted", name)

        return abort_some

    async def expire(self) -> None:
        """Delete expired transactional ids and sinks."""
        for runtime in self.partitions.runtimes:
            await self._slices.each(
                of_many(tuple(runtime.shard.transactional_ids), SLICE_SIZE), self._expiring(runtime)
            )

    def _expiring(self, runtime: Runtime) -> Callable[[Sequence[str]], Awaitable[None]]:
        async def expire_some(ids: Sequence[str]) -> None:
            try:
                await runtime.write(runtime.shard.transactions.expire(self._clock.time_ms(), ids))
                await runtime.write(runtime.shard.sinks.expire(self._clock.time_ms(), ids))
            except KafkaError as error:
                logger.error("transactional ids could not be deleted, and will be next time: %s", error)

        return expire_some
