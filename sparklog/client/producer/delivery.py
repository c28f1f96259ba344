"""Deliveries: the future results of records that are sent.

A batch is acknowledged as a whole, so one `BatchDelivery` serves all its records. A `Delivery` is a reference to it and
the record's index in the batch, as Kafka's FutureRecordMetadata. A batch that is too large for the broker is split: its
result is then a `SplitBatch` with the deliveries of the parts, which waiting deliveries follow.

Results are set on the producer's event loop; any thread or event loop may wait for them.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition

logger = logging.getLogger(__name__)

NO_OFFSET = -1
NO_TIMESTAMP = -1


class RecordMetadata(NamedTuple):
    """Where a record was written.

    `offset` is -1 if the broker did not report it: with acks=0, and for a batch that was written by an earlier attempt
    and is too old for the broker to remember its offset (DUPLICATE_SEQUENCE_NUMBER).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OffsetRange(NamedTuple):
    """Consecutive records of one partition, from `first_offset` to `last_offset`; both -1 as in RecordMetadata."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


class TableMetadata(NamedTuple):
    """Where the rows of a table were written: one range for each batch, in write order within a partition."""

    topic: str
    records: int
    ranges: tuple[OffsetRange, ...]


class Unacknowledged(NamedTuple):
    """Records that are neither acknowledged nor failed yet.

    waiting_ms: age of the oldest record. error: the last error that delays some of them; empty if there was none.
    silent: the broker with the oldest unanswered request, as HOST:PORT; silent_ms: the age of that request.
    """

    records: int
    waiting_ms: int
    error: str
    silent: str
    silent_ms: int

    @property
    def why(self) -> str:
        """The known reasons why they wait."""
        if self.error or not self.silent:
            return self.error or "there was no chance to send them"
        return f"{self.silent} has not answered for {self.silent_ms / 1000:.1f} s"


OnDelivery = Callable[[RecordMetadata | None, SparklogError | None], None]


class AcknowledgedBatch(NamedTuple):
    """Result of a batch that was acknowledged."""

    base_offset: int
    log_append_time_ms: int
    timestamps_ms: Sequence[int]


class SplitBatch(NamedTuple):
    """Result of a batch that was split: `starts[i]` is the index of the first record of `parts[i]`."""

    starts: tuple[int, ...]
    parts: tuple[BatchDelivery, ...]


class BatchDelivery:
    """Future result of one batch."""

    __slots__ = ("_callbacks", "_future", "count", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.count = 0
        self._callbacks: list[tuple[int, OnDelivery]] = []
        self._future: Future[AcknowledgedBatch | SplitBatch] = Future()
        self._future.set_running_or_notify_cancel()  # a cancelled waiter must not cancel the others

    @property
    def done(self) -> bool:
        """Whether the result is known, or the batch was split."""
        return self._future.done()

    def set_count(self, count: int) -> None:
        """Set the number of the batch's records, once the batch is closed."""
        self.count = count

    def call_when_done(self, index: int, callback: OnDelivery) -> None:
        """Call `callback` when record `index` is acknowledged or has failed; only allowed before that."""
        self._callbacks.append((index, callback))

    def written(self, written: AcknowledgedBatch) -> None:
        """Complete the batch as acknowledged, and call its records' callbacks."""
        self._future.set_result(written)
        for index, callback in self._callbacks:
            _call_logged(callback, self.metadata_of(written, index), None)
        self._callbacks = []

    def failed(self, error: SparklogError) -> None:
        """Complete the batch as failed, and call its records' callbacks. The batch may have been written."""
        self._future.set_exception(error)
        for _, callback in self._callbacks:
            _call_logged(callback, None, error)
        self._callbacks = []

    def split(self, split: SplitBatch) -> None:
        """Complete the batch as split; its callbacks move to the parts."""
        for index, callback in self._callbacks:
            part = bisect.bisect_right(split.starts, index) - 1
            split.parts[part].call_when_done(index - split.starts[part], callback)
        self._callbacks = []
        self._future.set_result(split)

    def wait(self, timeout: float | None) -> AcknowledgedBatch | SplitBatch:
        """Return the result, within `timeout` seconds; raises TimeoutError or the batch's error. Blocks."""
        return self._future.result(timeout)

    async def known(self) -> AcknowledgedBatch | SplitBatch:
        """Return the result, waiting on the running event loop; raises the batch's error."""
        return await asyncio.wrap_future(self._future)

    def metadata_of(self, written: AcknowledgedBatch, index: int) -> RecordMetadata:
        """Return where record `index` was written."""
        offset = written.base_offset + index if written.base_offset >= 0 else NO_OFFSET
        timestamp_ms = written.log_append_time_ms
        if timestamp_ms == NO_TIMESTAMP:
            timestamp_ms = written.timestamps_ms[index]
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp_ms)

    def range_of(self, written: AcknowledgedBatch) -> OffsetRange:
        """Return where all its records were written."""
        first = written.base_offset
        last = first + self.count - 1 if first >= 0 else NO_OFFSET
        return OffsetRange(self.partition.topic, self.partition.partition, first, last)


class Delivery:
    """Future result of one record. `result()` waits in any thread; ``await delivery`` waits on an event loop."""

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: BatchDelivery, index: int) -> None:
        self._outcome = outcome
        self._index = index

    def done(self) -> bool:
        """Return whether `result` would return or raise at once."""
        outcome, index = self._outcome, self._index
        while outcome.done:
            try:
                found = outcome.wait(0)
            except SparklogError:
                return True
            if isinstance(found, AcknowledgedBatch):
                return True
            outcome, index = _part_of(found, index)
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement, and return the record's partition and offset.

        Raises TimeoutError if there is no result after `timeout` seconds (the record is still under way), or the
        record's error: DeliveryTimeout, ClosedError, or a KafkaError that is not retriable or came after all `retries`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        outcome, index = self._outcome, self._index
        while True:
            found = outcome.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
            if isinstance(found, AcknowledgedBatch):
                return outcome.metadata_of(found, index)
            outcome, index = _part_of(found, index)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._await_result().__await__()

    async def _await_result(self) -> RecordMetadata:
        outcome, index = self._outcome, self._index
        while isinstance(found := await outcome.known(), SplitBatch):
            outcome, index = _part_of(found, index)
        return outcome.metadata_of(found, index)


class TableDelivery:
    """Future result of a whole table. Wait for it as for a Delivery; the first error of its batches is raised."""

    __slots__ = ("_outcomes", "_topic")

    def __init__(self, topic: str, outcomes: Sequence[BatchDelivery]) -> None:
        self._topic = topic
        self._outcomes = outcomes

    def done(self) -> bool:
        """Return whether every batch is acknowledged or has failed."""
        return all(Delivery(outcome, outcome.count - 1).done() for outcome in self._outcomes)

    def result(self, timeout: float | None = None) -> TableMetadata:
        """Wait for the acknowledgements, and return the rows' offsets; raises as Delivery.result does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        ranges: list[OffsetRange] = []
        waiting = list(reversed(self._outcomes))
        while waiting:
            outcome = waiting.pop()
            found = outcome.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
            if isinstance(found, SplitBatch):
                waiting.extend(reversed(found.parts))
            else:
                ranges.append(outcome.range_of(found))
        return self._metadata(ranges)

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        return self._await_result().__await__()

    async def _await_result(self) -> TableMetadata:
        ranges: list[OffsetRange] = []
        waiting = list(reversed(self._outcomes))
        while waiting:
            outcome = waiting.pop()
            found = await outcome.known()
            if isinstance(found, SplitBatch):
                waiting.extend(reversed(found.parts))
            else:
                ranges.append(outcome.range_of(found))
        return self._metadata(ranges)

    def _metadata(self, ranges: list[OffsetRange]) -> TableMetadata:
        return TableMetadata(self._topic, sum(outcome.count for outcome in self._outcomes), tuple(ranges))


async def settled(outcomes: Sequence[BatchDelivery]) -> None:
    """Wait until every batch, or each part of a split batch, is acknowledged or has failed."""
    waiting = list(outcomes)
    while waiting:
        with contextlib.suppress(SparklogError):
            found = await waiting.pop().known()
            if isinstance(found, SplitBatch):
                waiting.extend(found.parts)


def _part_of(split: SplitBatch, index: int) -> tuple[BatchDelivery, int]:
    part = bisect.bisect_right(split.starts, index) - 1
    return split.parts[part], index - split.starts[part]


def _call_logged(callback: OnDelivery, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
    try:
        callback(metadata, error)
    except Exception:
        logger.exception("an on_delivery callback failed")
