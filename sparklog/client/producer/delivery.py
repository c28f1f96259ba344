"""What became of a record: an answer that is not there yet.

A batch is acknowledged as a whole, so one `Outcome` serves all its records; a `Delivery` is that outcome and the
record's place in the batch (as Kafka's FutureRecordMetadata), and costs next to nothing. A batch that the broker
finds too large is split: its outcome then points to those of its parts, and deliveries follow the pointer.

Outcomes are completed on the producer's event loop and may be waited for from any thread or event loop.
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
    """Where a record was written. `offset` is -1 with acks=0: nobody said."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OffsetRange(NamedTuple):
    """Consecutive records of one partition, from `first_offset` to `last_offset`; both -1 with acks=0."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


class TableMetadata(NamedTuple):
    """Where the rows of a table were written: one range for each batch, in the order of writing within a partition."""

    topic: str
    records: int
    ranges: tuple[OffsetRange, ...]


OnDelivery = Callable[[RecordMetadata | None, SparklogError | None], None]


class Written(NamedTuple):
    """A batch was acknowledged."""

    base_offset: int
    log_append_time_ms: int
    timestamps_ms: Sequence[int]


class Split(NamedTuple):
    """A batch became several: `starts[i]` is the index of the first record of `parts[i]`."""

    starts: tuple[int, ...]
    parts: tuple[Outcome, ...]


class Outcome:
    """What became of one batch."""

    __slots__ = ("_callbacks", "_future", "count", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.count = 0
        self._callbacks: list[tuple[int, OnDelivery]] = []
        self._future: Future[Written | Split] = Future()
        self._future.set_running_or_notify_cancel()  # cancelling one who waits must not cancel the others

    @property
    def done(self) -> bool:
        return self._future.done()

    def call_when_done(self, index: int, callback: OnDelivery) -> None:
        """Call `callback` when record `index` is acknowledged or has failed. Only before that."""
        self._callbacks.append((index, callback))

    def written(self, written: Written) -> None:
        """The batch was acknowledged; calls back for its records."""
        self._future.set_result(written)
        for index, callback in self._callbacks:
            _call(callback, self.metadata_of(written, index), None)
        self._callbacks = []

    def failed(self, error: SparklogError) -> None:
        """The batch will not be written any more, as far as anybody knows; calls back for its records."""
        self._future.set_exception(error)
        for _, callback in self._callbacks:
            _call(callback, None, error)
        self._callbacks = []

    def split(self, split: Split) -> None:
        """The batch goes on as several; its callbacks move to them."""
        for index, callback in self._callbacks:
            part = bisect.bisect_right(split.starts, index) - 1
            split.parts[part].call_when_done(index - split.starts[part], callback)
        self._callbacks = []
        self._future.set_result(split)

    def wait(self, timeout: float | None) -> Written | Split:
        """Block until it is known; raises TimeoutError, or the error that the batch failed with."""
        return self._future.result(timeout)

    async def known(self) -> Written | Split:
        """Wait on the running event loop."""
        return await asyncio.wrap_future(self._future)

    def metadata_of(self, written: Written, index: int) -> RecordMetadata:
        """Where record `index` was written."""
        offset = written.base_offset + index if written.base_offset >= 0 else NO_OFFSET
        timestamp_ms = written.log_append_time_ms
        if timestamp_ms == NO_TIMESTAMP:
            timestamp_ms = written.timestamps_ms[index]
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp_ms)

    def range_of(self, written: Written) -> OffsetRange:
        """Where all its records were written."""
        first = written.base_offset
        last = first + self.count - 1 if first >= 0 else NO_OFFSET
        return OffsetRange(self.partition.topic, self.partition.partition, first, last)


class Delivery:
    """What became of one record. `result()` waits in any thread; ``await delivery`` waits on an event loop."""

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: Outcome, index: int) -> None:
        self._outcome = outcome
        self._index = index

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        outcome, index = self._outcome, self._index
        while outcome.done:
            try:
                found = outcome.wait(0)
            except SparklogError:
                return True
            if isinstance(found, Written):
                return True
            outcome, index = _part(found, index)
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record was written, once that is known.

        Raises TimeoutError if it is not known after `timeout` seconds (the record is still on its way), or the error
        that the record failed with: DeliveryTimeout, or a KafkaError that is of no use to try again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        outcome, index = self._outcome, self._index
        while True:
            found = outcome.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
            if isinstance(found, Written):
                return outcome.metadata_of(found, index)
            outcome, index = _part(found, index)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._known().__await__()

    async def _known(self) -> RecordMetadata:
        outcome, index = self._outcome, self._index
        while isinstance(found := await outcome.known(), Split):
            outcome, index = _part(found, index)
        return outcome.metadata_of(found, index)


class TableDelivery:
    """What became of a whole table. Waited for as a Delivery is; the first error of any of its batches is raised."""

    __slots__ = ("_outcomes", "_topic")

    def __init__(self, topic: str, outcomes: Sequence[Outcome]) -> None:
        self._topic = topic
        self._outcomes = outcomes

    def done(self) -> bool:
        """Whether every batch is acknowledged or has failed."""
        return all(Delivery(outcome, outcome.count - 1).done() for outcome in self._outcomes)

    def result(self, timeout: float | None = None) -> TableMetadata:
        """Where the rows were written; raises as Delivery.result does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        ranges: list[OffsetRange] = []
        waiting = list(reversed(self._outcomes))
        while waiting:
            outcome = waiting.pop()
            found = outcome.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
            if isinstance(found, Split):
                waiting.extend(reversed(found.parts))
            else:
                ranges.append(outcome.range_of(found))
        return self._metadata(ranges)

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        return self._known().__await__()

    async def _known(self) -> TableMetadata:
        ranges: list[OffsetRange] = []
        waiting = list(reversed(self._outcomes))
        while waiting:
            outcome = waiting.pop()
            found = await outcome.known()
            if isinstance(found, Split):
                waiting.extend(reversed(found.parts))
            else:
                ranges.append(outcome.range_of(found))
        return self._metadata(ranges)

    def _metadata(self, ranges: list[OffsetRange]) -> TableMetadata:
        return TableMetadata(self._topic, sum(outcome.count for outcome in self._outcomes), tuple(ranges))


async def settled(outcomes: Sequence[Outcome]) -> None:
    """Return when each of the batches, and what it was split into, is acknowledged or has failed."""
    waiting = list(outcomes)
    while waiting:
        with contextlib.suppress(SparklogError):
            found = await waiting.pop().known()
            if isinstance(found, Split):
                waiting.extend(found.parts)


def _part(split: Split, index: int) -> tuple[Outcome, int]:
    part = bisect.bisect_right(split.starts, index) - 1
    return split.parts[part], index - split.starts[part]


def _call(callback: OnDelivery, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
    try:
        callback(metadata, error)
    except Exception:
        logger.exception("an on_delivery callback failed")
