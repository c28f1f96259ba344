"""The producer: takes records, returns deliveries.

`AsyncProducer` is the implementation. Its `try_send` does not wait, and any thread may call it. So the synchronous
`Producer` (sync.py) uses the event loop only when it must wait: for a topic's metadata, or for room in the buffer.

    send ─▶ interceptors ─▶ serializers ─▶ partitioner ─▶ accumulator ─▶ sender ─▶ broker
                                                              ▲ waits here while buffer_memory is used up
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Self, Unpack

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import (
    BufferExhausted,
    ClosedError,
    DeliveryTimeout,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    KafkaError,
    MessageTooLarge,
    SparklogError,
)
from sparklog.base.tracing import TRACEPARENT, load_current_traceparent
from sparklog.client.base import AsyncClient
from sparklog.client.cluster import Cluster
from sparklog.client.commits import GroupMetadata, Offsets
from sparklog.client.config import ProducerConfig
from sparklog.client.connection import OpenChannel, open_channel
from sparklog.client.interceptors import ProducerInterceptors, ProducerRecord
from sparklog.client.loop_thread import background
from sparklog.client.options import ProducerOptions
from sparklog.client.producer.accumulator import Accumulator, TopicQueues
from sparklog.client.producer.batches import RECORD_OVERHEAD, Headers, ProducerIdentity, headers_size
from sparklog.client.producer.delivery import (
    BatchDelivery,
    Delivery,
    OnDelivery,
    RecordMetadata,
    TableDelivery,
    Unacknowledged,
    settled,
)
from sparklog.client.producer.partitioner import STICKY, checked, remembered_partition
from sparklog.client.producer.sender import Sender
from sparklog.client.producer.tables import batches_of, checked_table, pieces
from sparklog.client.producer.transactions import TransactionManager

logger = logging.getLogger(__name__)


class AsyncProducer(AsyncClient):
    """Producer that writes records to topics, for use on an event loop.

        async with AsyncProducer(bootstrap_servers="127.0.0.1:9094") as producer:
            delivery = await producer.send("orders", b"3 apples", key=b"customer-7")
            metadata = await delivery

    Options are those of ProducerConfig; raises ConfigError for an invalid one. With `enable_idempotence` each record is
    written once, also if it is sent again after a lost acknowledgement; without it, at least once. A record that failed
    may have been written nevertheless. Within a partition, records keep the order in which they were sent.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        open_channel: OpenChannel = open_channel,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.config = ProducerConfig.parse(options)
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._open_channel = open_channel
        self._interceptors = ProducerInterceptors(self.config.interceptors) if self.config.interceptors else None
        self._accumulator = Accumulator(
            batch_size=min(self.config.batch_size, self.config.max_request_size),
            linger_ms=self.config.linger_ms,
            buffer_memory=self.config.buffer_memory,
            delivery_timeout_ms=self.config.delivery_timeout_ms,
            monotonic_ms=self._clock.monotonic_ms,
            random=self._random,
            wake=self._wake,
        )
        self._current_traceparent = load_current_traceparent() if self.config.tracing else None
        config = self.config
        self.transforms = bool(
            config.interceptors or config.key_serializer or config.value_serializer or self._current_traceparent
        )
        self._max_record_bytes = min(self.config.max_request_size, self.config.buffer_memory)
        self._partitioner = self.config.partitioner
        self._topics = self._accumulator.topics  # bound here for speed in `try_send`, as are the next two
        self._append = self._accumulator.append
        self._time_ms = self._clock.time_ms
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transactions: TransactionManager | None = None
        self._cluster: Cluster
        self._sender: Sender
        self._sending: asyncio.Task[None]

    async def start(self) -> Self:
        """Start sending, on the running event loop, and return the producer. Raises ClosedError.

        The first `send` does the same.
        """
        if self._closed:
            raise ClosedError("the producer is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cluster = Cluster(
                self.config, self._clock, self._random, open_channel=self._open_channel, create_topics=True
            )
            if self.config.transactional_id is not None:
                self._transactions = TransactionManager(self._cluster, self.config, self._accumulator)
            self._sender = Sender(self._accumulator, self._cluster, self.config, self._transactions)
            self._sending = background(self._sender.run(), "sparklog producer")
        return self

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Take a record to be sent, and return its Delivery without waiting for the acknowledgement.

        `value` and `key` are bytes, text (encoded as UTF-8) or None, or of the types that the serializers accept.
        `timestamp_ms` defaults to now. `on_delivery(metadata, error)` is called on the event loop; one of the two is
        None.

        Waits up to `max_block_ms` for the topic's metadata and for room in the buffer. Raises BufferExhausted if there
        is no room by then; UnknownTopicOrPartition, InvalidTopic or InvalidPartitions if there is no such topic or
        partition; MessageTooLarge, InvalidRecord or InvalidTimestamp for a record that no retry could write;
        ClosedError after `close`.
        """
        if self.transforms:
            record = ProducerRecord(topic, value, key, headers, timestamp_ms, partition)
            topic, value, key, headers, timestamp_ms, partition = self.transform(record)
            on_delivery = self.with_acknowledgement(on_delivery)
        taken = self.try_send(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        if taken is None:
            return await self.send_when_possible(topic, value, key, headers, timestamp_ms, partition, on_delivery)
        if self._accumulator.is_sender_awaited:
            await asyncio.sleep(0)  # a loop of sends would otherwise starve the sender
        return taken

    async def send_table(self, topic: str, table: Any, *, partition: int | None = None) -> TableDelivery:
        """Take every row of an Arrow table or record batch to be sent, in order, and return a TableDelivery.

        Columns are `key`, `value` (binary or string), `headers` (list of struct<key, value>) and `timestamp` (a
        timestamp, or int64 in ms), in any order. Missing columns are null; missing timestamps are now. Raises as `send`
        does, and InvalidRecord for other columns. Serializers and interceptors are not applied: the columns are written
        as they are.
        """
        rows = checked_table(table, self._clock.time_ms())
        queues = await self._topic(topic, self._clock.monotonic_ms() + self.config.max_block_ms)
        if partition is not None:
            checked(partition, topic, len(queues.leaders))
        outcomes: list[BatchDelivery] = []
        for piece in pieces(rows, queues, self.config):
            deadline_ms = self._clock.monotonic_ms() + self.config.max_block_ms
            batches = batches_of(
                piece,
                queues,
                self.config,
                partition=partition,
                random=self._random,
                now_ms=self._clock.monotonic_ms(),
            )
            while not self._accumulator.append_batches(queues, batches):
                await self._wait_for_room(deadline_ms)
            outcomes += [batch.outcome for batch in batches]
        return TableDelivery(topic, outcomes)

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until every record sent before is acknowledged or has failed; its Delivery says which.

        Raises DeliveryTimeout if that takes longer than `timeout_ms`.
        """
        outcomes = [batch.outcome for batch in self._accumulator.incomplete()]
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await settled(outcomes)
        except TimeoutError:
            why = self.unacknowledged().why
            raise DeliveryTimeout(f"flush: not everything was acknowledged within {timeout_ms} ms: {why}") from None

    # Transactions, with `transactional_id`.

    async def begin(self) -> None:
        """Begin a transaction. Readers get all records sent until `commit` or `abort`, or none of them.

        The first call fences earlier producers with the same `transactional_id`, and aborts their open transaction; it
        takes up to `default_api_timeout_ms`. Raises InvalidTxnState without a `transactional_id` or with an open
        transaction, ProducerFenced if a newer producer has the id.
        """
        await self.start()
        await self._checked_transactions().begin()

    async def enlist(self, producer_id: int, producer_epoch: int) -> None:
        """Send the records that follow in a transaction of another process, which begins and ends it: a sink's batch.

        `transactional_id` is the sink's id. Raises InvalidTxnState without one, or with an open transaction.
        """
        await self.start()
        self._checked_transactions().enlist(ProducerIdentity(producer_id, producer_epoch, True))

    async def send_offsets(self, offsets: Offsets, group: str | GroupMetadata) -> None:
        """Commit offsets of a consumer group in the open transaction: valid once the transaction is committed.

        `group` is a group's id, or `Consumer.group_metadata()`: then the commit is refused if the consumer is no longer
        in its group (KIP-447). Raises InvalidTxnState without a transaction; after any other KafkaError the transaction
        can only be aborted.
        """
        metadata = group if isinstance(group, GroupMetadata) else GroupMetadata(group)
        await self._checked_transactions().send_offsets(offsets, metadata)

    async def commit(self) -> None:
        """Wait for all records of the transaction, and commit it.

        Raises TransactionAbortable if a record could not be written, or if the transaction was open for too long: call
        `abort`. Raises ProducerFenced if a newer producer has the id, InvalidTxnState without a transaction, and
        RequestTimedOut if the outcome is unknown after `default_api_timeout_ms`: call `commit` again.
        """
        await self._checked_transactions().commit(self.flush)

    async def abort(self) -> None:
        """Abort the transaction, and drop its unsent records.

        Raises ProducerFenced, InvalidTxnState and RequestTimedOut as `commit` does.
        """
        await self._checked_transactions().abort(self._sender.drop)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction for an ``async with`` block, and commit it at its end, or abort it after an exception.

        If it cannot be committed it is aborted, and the error of `commit` is raised. The block may end the transaction
        itself.
        """
        await self.begin()
        try:
            yield self
        except BaseException:
            await self.end_block(is_commit=False)
            raise
        await self.end_block(is_commit=True)

    async def end_block(self, *, is_commit: bool) -> None:
        """Commit or abort the transaction that a block of `transaction` has left open."""
        transactions = self._checked_transactions()
        if not transactions.is_to_be_ended:
            return
        if not is_commit:
            await self._abort_failed(transactions)
            return
        try:
            await self.commit()
        except BaseException:
            if transactions.is_to_be_ended:
                await self._abort_failed(transactions)
            raise

    async def _abort_failed(self, transactions: TransactionManager) -> None:
        """Abort, and log an error of the abort: the caller raises the error that caused it."""
        try:
            await transactions.abort(self._sender.drop)
        except KafkaError as error:
            logger.warning("the transaction of %r was not aborted: %s", transactions.transactional_id, error)

    def _checked_transactions(self) -> TransactionManager:
        if self._transactions is None:
            raise InvalidTxnState("the producer has no transactions: give it a transactional_id")
        return self._transactions

    async def close(self, timeout_ms: int | None = None) -> None:
        """Send the remaining records, for at most `timeout_ms`, and release all resources. May be called again.

        Records that are not acknowledged by then fail with ClosedError. A transaction that is open is aborted.
        """
        if self._closed:
            return
        self._closed = True
        if self._loop is None:
            return
        try:
            if self._transactions is not None:
                await self._transactions.close(self._sender.drop, timeout_ms)
            await self.flush(timeout_ms)
        except DeliveryTimeout:
            pass  # the remaining records fail below, each with ClosedError
        finally:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            await self._sender.stop()
            await self._cluster.close()

    def unacknowledged(self) -> Unacknowledged:
        """Return the number of records that are neither acknowledged nor failed yet, and why they wait."""
        batches = self._accumulator.unacknowledged()
        silent, silent_ms = self._sender.silent() if self._loop is not None else ("", 0)
        return Unacknowledged(
            records=sum(batch.count for batch in batches),
            waiting_ms=max((self._clock.monotonic_ms() - batch.created_ms for batch in batches), default=0),
            error=next((batch.last_error for batch in batches if batch.last_error), ""),
            silent=silent,
            silent_ms=silent_ms,
        )

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of the topic's partitions; raises as `send` does."""
        queues = await self._topic(topic, self._clock.monotonic_ms() + self.config.max_block_ms)
        return list(range(len(queues.leaders)))

    async def __aenter__(self) -> Self:
        return await self.start()

    # The parts of `send`, also used by the synchronous client.

    def transform(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record after interceptors and serializers; `send` raises a serializer's exceptions."""
        if self._interceptors is not None:
            record = self._interceptors.on_send(record)
        key, value = record.key, record.value
        if self.config.key_serializer is not None and key is not None:
            key = self.config.key_serializer(key)
        if self.config.value_serializer is not None and value is not None:
            value = self.config.value_serializer(value)
        if self._current_traceparent is not None and (traceparent := self._current_traceparent()):
            record = record._replace(headers=_with_traceparent(record.headers, traceparent))
        return record._replace(key=key, value=value)

    def with_acknowledgement(self, on_delivery: OnDelivery | None) -> OnDelivery | None:
        """Return `on_delivery` with a call of the interceptors' on_acknowledgement before it."""
        if self._interceptors is None or not self._interceptors.acknowledge:
            return on_delivery
        interceptors = self._interceptors

        def acknowledged(metadata: RecordMetadata | None, error: SparklogError | None) -> None:
            interceptors.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return acknowledged

    def try_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        """Take a record that needs no transformation, from any thread, and return its delivery.

        None if `send_when_possible` is needed. Raises ClosedError, and as `send` does for a record that cannot be sent.
        Performance: called for every record.
        """
        if self._closed:
            raise ClosedError("the producer is closed")
        queues = self._topics.get(topic)
        if queues is None or (partition is not None and partition >= len(queues.leaders)):
            return None  # a lookup is needed: the topic is unknown or may have grown
        size = RECORD_OVERHEAD
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes(key, "key")
            size += len(key)
        if value is not None:
            if type(value) is not bytes:
                value = as_bytes(value, "value")
            size += len(value)
        if headers:
            headers, headers_bytes = checked_headers(headers)
            size += headers_bytes
        if size > self._max_record_bytes:
            raise MessageTooLarge(
                f"a record of {size} bytes: max_request_size is {self.config.max_request_size}, "
                f"buffer_memory {self.config.buffer_memory}"
            )
        count = len(queues.leaders)
        partition = self._choose_partition(topic, key, count) if partition is None else checked(partition, topic, count)
        if timestamp_ms is None:
            timestamp_ms = self._time_ms()
        elif not (isinstance(timestamp_ms, int) and 0 <= timestamp_ms <= MAX_LONG):
            raise InvalidTimestamp(f"timestamp_ms = {timestamp_ms!r}: it must be whole milliseconds since 1970")
        return self._append(queues, partition, key, value, timestamp_ms, headers, size, on_delivery)

    def _choose_partition(self, topic: str, key: bytes | None, partitions: int) -> int:
        """Return the partition for a record that was sent without one."""
        if self._partitioner is not None:
            chosen = self._partitioner(topic, key, partitions)
            return STICKY if chosen is None else checked(chosen, topic, partitions)
        return STICKY if key is None else remembered_partition(key, partitions)

    async def send_when_possible(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """Take a record as `try_send` does, but wait for metadata and room; raises as `send` does.

        Return its delivery.
        """
        deadline_ms = self._clock.monotonic_ms() + self.config.max_block_ms
        queues = await self._topic(topic, deadline_ms)
        if partition is not None and partition >= len(queues.leaders):
            self._cluster.outdated(topic)
            queues = await self._topic(topic, deadline_ms, known=False)
            checked(partition, topic, len(queues.leaders))
        while True:
            taken = self.try_send(topic, value, key, headers, timestamp_ms, partition, on_delivery)
            if taken is not None:
                return taken
            await self._wait_for_room(deadline_ms)

    async def _topic(self, name: str, deadline_ms: int, *, known: bool = True) -> TopicQueues:
        """Return the topic's queues; looks the topic up if there are none, or if not `known`."""
        if self._closed:
            raise ClosedError("the producer is closed")
        await self.start()
        self._accumulator.check_accepting()
        if known and (found := self._topics.get(name)):
            return found
        metadata = await self._cluster.topic(name, max(deadline_ms - self._clock.monotonic_ms(), 0))
        return self._accumulator.add_topic(name, metadata.leaders)

    async def _wait_for_room(self, deadline_ms: int) -> None:
        """Wait until memory is freed; raises BufferExhausted at the deadline."""
        began_ms = self._clock.monotonic_ms()
        self._accumulator.hurry()
        try:
            async with asyncio.timeout(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000):
                await self._sender.freed()
        except TimeoutError:
            waiting = self.unacknowledged()
            is_stuck = waiting.error or waiting.silent_ms >= self._clock.monotonic_ms() - began_ms
            why = waiting.why if is_stuck else "records come faster than they are acknowledged"
            raise BufferExhausted(
                f"buffer_memory = {self.config.buffer_memory} stayed used up for max_block_ms = "
                f"{self.config.max_block_ms}: {why}"
            ) from None
        finally:
            self._accumulator.unhurry()

    def _wake(self) -> None:
        """Wake the sender, from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._sender.wake)


def _with_traceparent(headers: Any, traceparent: str) -> list[tuple[str, Any]]:
    """Return the headers with the trace context, unless they have one."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not any(name == TRACEPARENT for name, _ in pairs):
        pairs.append((TRACEPARENT, traceparent.encode()))
    return pairs


def as_bytes(value: Any, what: str) -> bytes:
    """Return a key or value as bytes; raises InvalidRecord if it is neither bytes nor Unicode text."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"a {what} is not Unicode text: {error}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidRecord(
        f"a {what} of type {type(value).__name__}: bytes, text or None is needed; give the producer a {what}_serializer"
    )


def checked_headers(headers: Any) -> tuple[Headers, int]:
    """Return headers as pairs of name and bytes, and the most bytes they can take; raises InvalidRecord if invalid."""
    pairs = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(name, str):
            raise InvalidRecord(f"a header whose name is {name!r}: names are text")
        if not name.isascii():
            as_bytes(name, "header name")
        pairs.append((name, value if value is None or type(value) is bytes else as_bytes(value, "header value")))
    return pairs, headers_size(pairs)
