"""The producer's sender: takes batches from the accumulator, sends them to brokers, and handles the answers.

One task, `run`, selects queues with batches to send, groups them by the leader of their partition, and starts a request
for each group while that broker has fewer than `max_in_flight_requests_per_connection`. Effects of an answer on a
partition's batches:

    no error                               acknowledged
    duplicate sequence number              acknowledged at an unknown offset: an earlier attempt has written it
    too large, several batches             sent again one by one
    too large, one batch of many records   split in halves (KIP-126), and later batches of the topic are closed earlier
    retriable (base/errors.py)             put back at the front, with a pause and a lookup of the leader; the topic's
                                           other partitions continue
    out-of-order sequence number           the same, for BEHIND_MS: the broker lacks batches acknowledged before, such
                                           as a leader that was replaced while it was hung. The batch keeps its numbers:
                                           with new ones it might be written twice. After BEHIND_MS it fails, because
                                           the earlier records are lost. Several batches go one by one: the new leader
                                           may have copied only the first
    any other error, or a time-out         failed; an idempotent producer's partition continues with the next epoch

Calls are unary: with requests of a megabyte a stream gains only about a tenth, and each call has its own deadline.

A request whose answer was lost is sent again. With `enable_idempotence` its batches are numbered, and a broker that has
written them repeats its answer; so each record is written once, unless its batch is given up. Without it, a record may
be written twice. Records are written in order, because no other request of their partition is in flight. The first
batch to send requests the producer id. A transactional producer has its id from `begin` on (transactions.py); after a
failure of its transaction, no more batches of the transaction are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from dataclasses import replace
from itertools import islice

from sparklog.base.errors import (
    ClosedError,
    ConcurrentTransactions,
    DeliveryTimeout,
    DuplicateSequenceNumber,
    InvalidRecord,
    KafkaError,
    LeaderNotAvailable,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    SparklogError,
    TransactionAbortable,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error
from sparklog.base.tracing import TRACEPARENT
from sparklog.client.cluster import LEARNING_TIMEOUT_MS, Cluster
from sparklog.client.config import ProducerConfig
from sparklog.client.connection import Connection, Metadata, raise_error_of
from sparklog.client.loop_thread import background
from sparklog.client.producer.accumulator import NEVER_MS, Accumulator, PartitionQueue, TopicQueues
from sparklog.client.producer.batches import NO_IDENTITY, ProducerBatch, ProducerIdentity
from sparklog.client.producer.delivery import NO_OFFSET, NO_TIMESTAMP
from sparklog.client.producer.transactions import TransactionManager
from sparklog.records.batch import Codec
from sparklog.v1 import log_pb2

logger = logging.getLogger(__name__)

_ACKS = {"all": log_pb2.ALL, "1": log_pb2.LEADER, "0": log_pb2.NO_ACKS}

_CLOSED = ClosedError("the producer was closed before the record was acknowledged")

CONCURRENT_MS = 20
"""First pause while the markers of the last transaction are written (ADD_PARTITIONS_RETRY_BACKOFF_MS)."""
BEHIND_MS = 10_000
"""Retry time of a batch if leaders lack the one before: a replaced leader learns of that within seconds."""

RequestBatches = dict[PartitionQueue, list[ProducerBatch]]
PartitionResults = dict[TopicPartition, KafkaError | tuple[int, int]]
"""Base offset and log append time of a partition's first batch, or its error."""


class Sender:
    """Sends the batches of an accumulator. Runs on one event loop."""

    def __init__(
        self,
        accumulator: Accumulator,
        cluster: Cluster,
        config: ProducerConfig,
        transactions: TransactionManager | None = None,
    ) -> None:
        """transactions: None for a producer without a transactional id."""
        self._transactions = transactions
        self._accumulator = accumulator
        self._cluster = cluster
        self._config = config
        self._clock = cluster.clock
        self._short_backoff = replace(cluster.backoff, first_ms=min(cluster.backoff.first_ms, CONCURRENT_MS))
        self._woken = asyncio.Event()
        self._in_flight: Counter[Connection] = Counter()
        """Requests without an answer, by broker."""
        self._requests: set[asyncio.Task[None]] = set()
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._identity = NO_IDENTITY
        self._identifying: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()
        self._asked: dict[object, tuple[str, int]] = {}
        """Address and start (monotonic ms) of each request without an answer."""
        self._behind_since_ms: dict[PartitionQueue, int] = {}
        """Time (monotonic ms) from which the leaders of a partition only answer with OutOfOrderSequence."""

    def wake(self) -> None:
        """Make `run` look for work; called on the event loop."""
        self._woken.set()

    async def freed(self) -> None:
        """Wait until memory is freed."""
        await self._freed.wait()

    def silent(self) -> tuple[str, int]:
        """Return the broker with the oldest unanswered request, and its age in ms; an empty name if there is none.

        May be called from any thread.
        """
        address, since_ms = min(list(self._asked.values()), key=lambda asked: asked[1], default=("", 0))
        return (address, self._clock.monotonic_ms() - since_ms) if address else ("", 0)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._woken.clear()
            now_ms = self._clock.monotonic_ms()
            if expired := self._accumulator.expire(now_ms):
                by_partition: dict[TopicPartition, list[ProducerBatch]] = {}
                for batch in expired:
                    by_partition.setdefault(batch.outcome.partition, []).append(batch)
                for partition, batches in by_partition.items():
                    self._report(partition, batches, self._timed_out(batches))
                self._notify_freed()
            if self._transactions is not None and self._transactions.is_dropped:
                self._drop_waiting()
            work = self._accumulator.work(now_ms)
            if work.ready and self._needs_identity():
                self._request_id_in_background()
            else:
                self._dispatch(work.ready)
            timeout = None if work.next_ms == NEVER_MS else max(work.next_ms - now_ms, 1) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._woken.wait()

    async def stop(self) -> None:
        """Cancel requests in flight and fail all remaining batches; `run` must be cancelled before."""
        tasks = [*self._requests, *self._learning.values(), *([self._identifying] if self._identifying else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for batch in self._accumulator.abort():
            self._report(batch.outcome.partition, [batch], _CLOSED)

    async def drop(self) -> None:
        """Fail all waiting batches of an aborted transaction, and wait until none is in flight."""
        while True:
            self._drop_waiting()
            if not self._accumulator.incomplete():
                return
            await self._freed.wait()

    def _drop_waiting(self) -> None:
        dropped = self._accumulator.abort()
        for batch in dropped:
            batch.outcome.failed(TransactionAbortable("the transaction is aborted"))
        if dropped:
            self._notify_freed()

    def _dispatch(self, ready: list[PartitionQueue]) -> None:
        """Start requests for queues whose leaders are known and may have more requests in flight."""
        by_leader: dict[Connection, deque[PartitionQueue]] = {}
        for queue in ready:
            if self._cluster.is_old(queue.partition.topic):
                self._look_up_in_background(queue.partition.topic)
            leader = self._cluster.known_leader(queue.partition)
            if leader is not None:
                by_leader.setdefault(leader, deque()).append(queue)
            else:
                self._look_up_in_background(queue.partition.topic)
        for leader, queues in by_leader.items():
            while queues and self._in_flight[leader] < self._config.max_in_flight_requests_per_connection:
                load = self._take_request_batches(queues)
                self._in_flight[leader] += 1
                task = background(self._send(leader, load), "sparklog produce request")
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)

    def _take_request_batches(self, queues: deque[PartitionQueue]) -> RequestBatches:
        """Take batches for one request from the front of `queues`; removes the queues taken from."""
        load: RequestBatches = {}
        room = self._config.max_request_size
        while queues and (room > 0 or not load):
            queue = queues.popleft()
            batches = load[queue] = self._accumulator.take(queue, room, self._current_identity())
            room -= sum(batch.size for batch in batches)
        return load

    def _current_identity(self) -> ProducerIdentity:
        if self._transactions is None:
            return self._identity
        self._transactions.sent()
        return self._transactions.identity

    async def _send(self, leader: Connection, load: RequestBatches) -> None:
        """Send one request and handle its answer. Every queue of `load` ends its flight, also after an error."""
        try:
            if self._config.codec is Codec.NONE:
                encoded = self._encode(load)
            else:  # compression takes long, and lets other threads run meanwhile
                encoded = await asyncio.to_thread(self._encode, load)
            payloads = {}
            for queue, payload in encoded.items():
                if isinstance(payload, InvalidRecord):
                    self._handle_refusal(queue, load.pop(queue), payload)
                else:
                    payloads[queue] = payload
            if payloads:
                answer = await self._ask(leader, payloads, load)
                for queue in list(payloads):
                    self._handle_result(queue, load.pop(queue), answer[queue.partition])
        except asyncio.CancelledError:
            self._give_up(load, _CLOSED)
            raise
        except Exception as defect:
            self._give_up(load, UnknownServerError(f"the client failed: {defect!r}"))
            raise
        finally:
            self._in_flight[leader] -= 1
            if not self._in_flight[leader]:
                del self._in_flight[leader]
            self.wake()
            self._notify_freed()

    def _trace_metadata(self, load: RequestBatches) -> Metadata:
        """Return the metadata with the trace context of the first record that has one."""
        found = (each for batches in load.values() for batch in batches if (each := batch.traceparent()))
        return tuple((TRACEPARENT, each) for each in islice(found, 1))

    def _encode(self, load: RequestBatches) -> dict[PartitionQueue, bytes | InvalidRecord]:
        """Return each queue's batches as bytes, or the error if they cannot be encoded."""
        encoded: dict[PartitionQueue, bytes | InvalidRecord] = {}
        for queue, batches in load.items():
            try:
                encoded[queue] = b"".join([batch.encode(self._config.codec) for batch in batches])
            except InvalidRecord as error:
                encoded[queue] = error
        return encoded

    async def _ask(
        self, leader: Connection, payloads: dict[PartitionQueue, bytes], load: RequestBatches
    ) -> PartitionResults:
        """Send the request, and return the leader's answer for each partition."""
        request = log_pb2.ProduceRequest(
            acks=_ACKS[self._config.acks],
            timeout_ms=self._config.request_timeout_ms,
            transactional_id=self._config.transactional_id,
            partitions=[
                log_pb2.PartitionProduce(
                    topic=queue.partition.topic, partition=queue.partition.partition, batches=payload
                )
                for queue, payload in payloads.items()
            ],
        )
        expires_ms = min(self._accumulator.expires_ms(load[queue]) for queue in payloads)
        timeout_ms = min(self._config.request_timeout_ms, expires_ms - self._clock.monotonic_ms())
        ticket = object()
        self._asked[ticket] = (leader.address, self._clock.monotonic_ms())
        try:
            traced = self._trace_metadata(load) if self._config.tracing else ()
            response = await leader.call(leader.log.Produce, request, timeout_ms, traced)
        except KafkaError as error:
            return dict.fromkeys((queue.partition for queue in payloads), error)
        finally:
            del self._asked[ticket]
        if self._config.acks == "0":  # the broker acknowledges nothing
            return dict.fromkeys((queue.partition for queue in payloads), (NO_OFFSET, NO_TIMESTAMP))
        answer: PartitionResults = {
            queue.partition: UnknownServerError(f"{leader.address} has not answered for partition {queue.partition}")
            for queue in payloads
        }
        for part in response.partitions:
            place = TopicPartition(part.topic, part.partition)
            refusal = read_error(part)
            if isinstance(refusal, DuplicateSequenceNumber):
                answer[place] = (NO_OFFSET, NO_TIMESTAMP)
            else:
                answer[place] = refusal or (part.base_offset, part.log_append_time_ms)
        return answer

    def _handle_result(
        self, queue: PartitionQueue, batches: list[ProducerBatch], answer: KafkaError | tuple[int, int]
    ) -> None:
        if isinstance(answer, KafkaError):
            self._handle_refusal(queue, batches, answer)
            return
        offset, log_append_time_ms = answer
        for batch in batches:
            batch.written(offset, log_append_time_ms)
            offset += batch.count if offset != NO_OFFSET else 0
        self._behind_since_ms.pop(queue, None)
        self._accumulator.done(queue)

    def _handle_refusal(self, queue: PartitionQueue, batches: list[ProducerBatch], error: KafkaError) -> None:
        now_ms = self._clock.monotonic_ms()
        for batch in batches:
            batch.refused(str(error))
        if isinstance(error, MessageTooLarge | RecordListTooLarge) and (len(batches) > 1 or batches[0].count > 1):
            self._accumulator.divide(queue)
        elif isinstance(error, OutOfOrderSequenceNumber) and len(batches) > 1:
            self._cluster.lost_leader(queue.partition)
            self._accumulator.divide(queue, is_doubtful=True)
        elif not self._may_succeed_later(queue, error, now_ms) or batches[0].attempts > self._config.retries:
            self._fail(queue, batches, _with_explanation(queue, error))
        elif self._accumulator.expires_ms(batches) <= now_ms:
            self._fail(queue, batches, self._timed_out(batches))
        else:
            logger.info("%s: sending again, attempt %d: %s", queue.partition, batches[0].attempts, error)
            backoff = self._cluster.backoff
            if isinstance(error, ConcurrentTransactions):  # the leader waits for the end of the last transaction
                backoff = self._short_backoff
            else:
                self._cluster.lost_leader(queue.partition)
            self._accumulator.put_back(queue, now_ms + backoff.pause_ms(batches[0].attempts))

    def _may_succeed_later(self, queue: PartitionQueue, error: KafkaError, now_ms: int) -> bool:
        """Return whether the same batches may succeed later.

        A partition has one request in flight, so an out-of-order sequence number means that the broker lacks
        acknowledged batches.
        """
        if not isinstance(error, OutOfOrderSequenceNumber):
            self._behind_since_ms.pop(queue, None)
            return error.retriable
        return now_ms - self._behind_since_ms.setdefault(queue, now_ms) < BEHIND_MS

    def _fail(self, queue: PartitionQueue, batches: list[ProducerBatch], error: SparklogError) -> None:
        self._behind_since_ms.pop(queue, None)
        self._report(queue.partition, batches, error)
        if also := self._accumulator.give_up(queue):
            self._report(queue.partition, also, error)

    def _report(self, partition: TopicPartition, batches: list[ProducerBatch], error: SparklogError) -> None:
        records = sum(batch.count for batch in batches)
        logger.warning("%d records for partition %s were not delivered: %s", records, partition, error)
        if self._transactions is not None:
            self._transactions.failed(error)
        for batch in batches:
            batch.outcome.failed(error)

    def _give_up(self, load: RequestBatches, error: SparklogError) -> None:
        for queue, batches in load.items():
            self._fail(queue, batches, error)

    def _timed_out(self, batches: list[ProducerBatch]) -> DeliveryTimeout:
        """Return the error of these batches of one partition."""
        records = sum(batch.count for batch in batches)
        why = next((batch.last_error for batch in batches if batch.last_error), "there was no chance to send them")
        return DeliveryTimeout(
            f"{records} records for partition {batches[0].outcome.partition} were not acknowledged within "
            f"{self._config.delivery_timeout_ms} ms: {why}"
        )

    def _needs_identity(self) -> bool:
        if self._transactions is not None or not self._config.enable_idempotence:
            return False
        return self._identity == NO_IDENTITY or self._accumulator.is_identity_used_up

    def _request_id_in_background(self) -> None:
        """Request a producer id in the background, one request at a time; the batches wait in their queues."""
        if self._identifying is None:
            self._identifying = background(self._request_producer_id(), "sparklog producer id")

    async def _request_producer_id(self) -> None:
        request, timeout_ms = log_pb2.InitProducerIdRequest(), min(self._config.request_timeout_ms, LEARNING_TIMEOUT_MS)
        try:
            given = await self._cluster.any_broker(lambda each: each.call(each.log.InitProducerId, request, timeout_ms))
            raise_error_of(given)
            self._identity = ProducerIdentity(given.producer_id, given.producer_epoch)
            self._accumulator.identity_renewed()
        except KafkaError as error:
            logger.info("asking for a producer id: %s", error)
            self._cluster.doubt()
            for topic in tuple(self._accumulator.topics):
                self._accumulator.note(topic, str(error))
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            self._identifying = None
            self.wake()

    def _look_up_in_background(self, topic: str) -> None:
        """Look up the topic's leaders in the background, one lookup at a time; the batches wait in their queues."""
        if topic not in self._learning:
            self._learning[topic] = background(self._look_up(topic), "sparklog producer leaders")

    async def _look_up(self, topic: str) -> None:
        try:
            metadata = await self._cluster.topic(topic, self._config.request_timeout_ms)
            queues = self._accumulator.add_topic(topic, metadata.leaders)
            self._fail_missing(queues)
            partitions = [queue.partition for queue in queues.queues[: len(metadata.leaders)]]
            without = [partition for partition in partitions if self._cluster.known_leader(partition) is None]
            for partition in without:
                self._cluster.lost_leader(partition)
            if without:
                raise LeaderNotAvailable(f"partition {without[0]} has no leader at the moment")
        except KafkaError as error:
            logger.info("looking up the leaders of topic %s: %s", topic, error)
            self._accumulator.note(topic, str(error))
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        finally:
            del self._learning[topic]  # before `wake`: `run` comes next, and skips topics that are being looked up
            self.wake()

    def _fail_missing(self, topic: TopicQueues) -> None:
        """Fail the batches of partitions that the topic no longer has: it was made again with fewer."""
        missing = self._accumulator.drop_missing(topic)
        for batch in missing:
            partition, count = batch.outcome.partition, len(topic.leaders)
            gone = UnknownTopicOrPartition(f"partition {partition} is gone: the topic has {count} now")
            self._report(partition, [batch], gone)
        if missing:
            self._notify_freed()

    def _notify_freed(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()


def _with_explanation(queue: PartitionQueue, error: KafkaError) -> KafkaError:
    if not isinstance(error, OutOfOrderSequenceNumber):
        return error
    return OutOfOrderSequenceNumber(
        f"partition {queue.partition} does not have all records of this producer that were acknowledged before "
        f"(an unclean election may have lost them), so these records were not written: {error}"
    )
