"""The shell around one shard of a coordinator: carries out its decisions (runtime/state_machine.py) on the event loop.

The records of a decision go to the log as one batch, and the client is answered once they are committed. A decision
without records waits, too: the state that it read may come from earlier records that are not committed yet. Waiting
requests (joins, syncs) are futures by ticket. If a client disconnects, its future is removed, and a reply to it is
dropped.

If the append of a timer's records fails, the timer fires again after `RETRY_MS`. Otherwise an expired member would stay
for ever.

As org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from sparklog.base.clock import Clock
from sparklog.base.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from sparklog.records.markers import EndTransactionMarker
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.runtime.state_machine import Decision, ProducerIdAndEpoch, SetTimer, Timer

RETRY_MS = 500
NOTHING = -1
LARGEST_BATCH = 1_000  # records that need not be written together; a tombstone has less than 1,000 bytes
Response = TypeVar("Response")
Record = TypeVar("Record")
Record_contra = TypeVar("Record_contra", contravariant=True)
AnyShard = TypeVar("AnyShard", bound="CoordinatorShard[Any]")
Finishing = asyncio.Task[KafkaError | None]
"""Waits for the commit of a decision's records; its result is the error, or None."""
logger = logging.getLogger(__name__)
_ANSWERS: tuple[tuple[tuple[type[KafkaError], ...], type[KafkaError]], ...] = (
    (
        (UnknownTopicOrPartition, NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut),
        CoordinatorNotAvailable,
    ),
    ((NotLeaderOrFollower, KafkaStorageError), NotCoordinator),
    ((MessageTooLarge, RecordListTooLarge), UnknownServerError),
)
"""Errors of an append or its preparation, and the error that a client then gets, as in Apache Kafka."""


class CoordinatorShard(Protocol[Record]):
    """The state machine of one partition of a coordinator's topic (CoordinatorShard)."""

    def replay(self, record: Record, log_offset: int | None = None, producer: ProducerIdAndEpoch | None = None) -> None:
        """Apply a record to the state.

        log_offset: the record's offset if it may not be committed yet, otherwise None. producer: the producer in whose
        transaction it was written; None: in no transaction.
        """
        ...

    def settle(self, is_committed: Callable[[int], bool]) -> None:
        """Drop the state that is kept only until records are committed. `is_committed` takes an offset in the log."""
        ...

    def timer_fired(self, key: Any, now_ms: int) -> Decision[Record, None]:
        """As `StateMachine.timer_fired`."""
        ...

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[Record, None]:
        """As `StateMachine.written`."""
        ...


class ShardLog(Protocol[Record_contra]):
    """The partition of the coordinator's topic that holds a shard's records."""

    def append(
        self,
        records: Sequence[Record_contra],
        now_ms: int,
        producer: ProducerIdAndEpoch | None = None,
        verification: Any = None,
    ) -> int:
        """Append the records and return the last one's offset. Raises KafkaError with nothing written.

        producer, verification: as in `Decision`.
        """
        ...

    def append_marker(self, producer: ProducerIdAndEpoch, marker: EndTransactionMarker, *, is_strict: bool) -> int:
        """End a producer's transaction, and return the marker's offset. Raises KafkaError with nothing written."""
        ...

    def is_committed(self, offset: int) -> bool:
        """Return whether the record is committed; False also if this broker can no longer tell."""
        ...

    async def wait_committed(self, offset: int, *, is_new: bool) -> None:
        """Wait until the offset is committed. Raises KafkaError if that fails or times out.

        is_new: whether this acknowledges the record, which also needs min.insync.replicas in sync.
        """
        ...


class TimerHandle(Protocol):
    def cancel(self) -> None:
        """Cancel the call, if it has not been made."""
        ...


CallLater = Callable[..., TimerHandle]
"""`call_later(seconds, function, *arguments)`, of an event loop or of a simulation."""


class CoordinatorRuntime(Generic[AnyShard]):
    """Runs one shard until `close`."""

    def __init__(
        self,
        shard: AnyShard,
        log: ShardLog[Any],
        clock: Clock,
        call_later: CallLater,
        on_committed: Callable[[Decision[Any, Any]], None] = lambda _: None,
    ) -> None:
        """Take the dependencies. `on_committed` is called with each decision with records or effects, once it is
        committed."""
        self.shard = shard
        self._log = log
        self._clock = clock
        self._call_later = call_later
        self._on_committed = on_committed
        self._tickets = count(1)
        self._waiting: dict[Hashable, asyncio.Future[Any]] = {}
        self._timers: dict[Hashable, TimerHandle] = {}
        self._finishing: set[Finishing] = set()
        self._written = NOTHING
        """Last offset appended by this runtime; NOTHING if none."""
        self._closed: KafkaError | None = None

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: the shard serves no requests any more."""
        return self._closed is not None

    @property
    def waiting(self) -> int:
        """Number of requests not answered yet."""
        return len(self._waiting)

    def decide(self, decide: Callable[[int], Decision[Any, None]]) -> None:
        """Carry out the decision of `decide(now_ms)`, for no request. Has no effect once the runtime is closed."""
        if self._closed is None:
            self._decide_more(decide(self._clock.time_ms()))

    async def ask(self, decide: Callable[[Hashable, int], Decision[Any, Response]]) -> Response:
        """Decide a request by `decide(ticket, now_ms)` and return its answer.

        Raises KafkaError if the request is refused or its records cannot be written.
        """
        ticket = next(self._tickets)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer
        try:
            decision = decide(ticket, self._clock.time_ms())
            finishing = self._carry_out(decision)
            if decision.response is None:
                with waiting_for_others():
                    return await answer
            await _wait_finished(finishing)
            return decision.response
        finally:
            del self._waiting[ticket]

    async def write(self, decision: Decision[Any, None]) -> None:
        """Carry out a decision that answers no request. Raises KafkaError if the records cannot be written.

        More than LARGEST_BATCH records are split into several batches: they need not be written together.
        """
        parts = [decision]
        if len(decision.records) > LARGEST_BATCH:
            parts = [replace(decision, records=part) for part in _split(decision.records)]
        # The records describe the present state, so append all batches before another decision changes it.
        for finishing in [self._carry_out(part) for part in parts]:
            await _wait_finished(finishing)

    def append_marker(self, producer: ProducerIdAndEpoch, marker: EndTransactionMarker, *, is_strict: bool) -> int:
        """End a producer's transaction in the log, and return the marker's offset; `committed` waits for it.

        Raises KafkaError with nothing written.
        """
        if self._closed is not None:
            raise self._closed
        self._written = self._log.append_marker(producer, marker, is_strict=is_strict)
        return self._written

    async def committed(self, *, is_new: bool = False) -> None:
        """Wait until the shard's present state is committed, so that no response shows a state that may be lost.

        is_new: whether this acknowledges the last record. Raises KafkaError if that takes too long or the record has
        too few replicas, and NotCoordinator if the shard was closed meanwhile.
        """
        if not self._is_committed():
            try:
                await self._log.wait_committed(self._written, is_new=is_new)
            except KafkaError as error:
                raise self._closed or answer_for(error) from error
        if self._closed is not None:
            raise self._closed

    def settle(self) -> None:
        """Let the shard drop the state that it keeps only until records are committed."""
        self.shard.settle(self._log.is_committed)

    def _is_committed(self) -> bool:
        return self._written == NOTHING or self._log.is_committed(self._written)

    def close(self, error: KafkaError) -> None:
        """Answer all waiting requests with `error`, cancel all timers, and carry out no more decisions."""
        self._closed = error
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # mark as retrieved: a request that only waits for a commit does not await it

    def _carry_out(self, decision: Decision[Any, Any]) -> Finishing | None:
        """Carry out a decision; return the task that ends once it is committed, or None if it is finished already.

        Raises KafkaError if the records cannot be written.
        """
        if self._closed is not None:
            raise self._closed
        error: KafkaError | None = None
        if decision.records:
            try:
                self._written = self._log.append(
                    decision.records, self._clock.time_ms(), decision.producer, decision.verification
                )
            except KafkaError as refused:
                error = answer_for(refused)
            else:
                log_offset = None if self._is_committed() else self._written
                for record in decision.records:
                    self.shard.replay(record, log_offset, decision.producer)
        if error is None:
            for timer in decision.timers:
                self._set_timer(timer)
        says_something = decision.records or decision.replies or decision.effects or decision.response is not None
        if error is None and says_something and not self._is_committed():
            task = asyncio.get_running_loop().create_task(self._finish_when_committed(decision, self._written))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
            return task
        self._finish(decision, error)
        if error is not None:
            raise error
        return None

    async def _finish_when_committed(self, decision: Decision[Any, Any], offset: int) -> KafkaError | None:
        error: KafkaError | None = None
        try:
            await self._log.wait_committed(offset, is_new=bool(decision.records))
        except KafkaError as refused:
            error = answer_for(refused)
        error = self._closed or error
        self.settle()
        self._finish(decision, error)
        return error

    def _finish(self, decision: Decision[Any, Any], error: KafkaError | None) -> None:
        if error is None and (decision.records or decision.effects):
            self._on_committed(decision)
        for reply in decision.replies:
            answer = self._waiting.get(reply.ticket)
            if answer is not None and not answer.done():
                answer.set_result(reply.response)
        if decision.then is not None and self._closed is None:
            self._decide_more(self.shard.written(decision.then, error, self._clock.time_ms()))

    def _set_timer(self, timer: Timer) -> None:
        if running := self._timers.pop(timer.key, None):
            running.cancel()
        if isinstance(timer, SetTimer):
            self._timers[timer.key] = self._call_later(timer.delay_ms / 1000, self._fire_timer, timer.key)

    def _fire_timer(self, key: Hashable) -> None:
        del self._timers[key]
        is_done = self._decide_more(self.shard.timer_fired(key, self._clock.time_ms()))
        if not is_done and key not in self._timers:
            self._set_timer(SetTimer(key=key, delay_ms=RETRY_MS))

    def _decide_more(self, decision: Decision[Any, None]) -> bool:
        """Carry out a decision that answers no request; return whether its records could be written."""
        try:
            self._carry_out(decision)
        except KafkaError as error:
            logger.error("the coordinator's records could not be written: %s", error)
            return False
        return True


def _split(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    for start in range(0, len(records), LARGEST_BATCH):
        yield records[start : start + LARGEST_BATCH]


async def _wait_finished(finishing: Finishing | None) -> None:
    """Wait for the commit and raise its error, if any. Shielded: a cancelled request must not cancel the task."""
    error = await asyncio.shield(finishing) if finishing is not None else None
    if error is not None:
        raise error


def answer_for(error: KafkaError) -> KafkaError:
    """Return the error that a client gets if an append fails with `error`, as Apache Kafka translates it."""
    for kinds, answer in _ANSWERS:
        if isinstance(error, kinds):
            return answer(str(error))
    return error
