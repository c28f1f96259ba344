"""The shell around one shard: carries out the shard's decisions (runtime/state_machine.py) on the event loop.

The records of a decision go to the log as one batch, and the client is answered once they are committed. A decision
without records waits, too: the state that it read may come from earlier records that are not committed yet. Waiting
requests (joins, syncs) are futures by ticket. If a client disconnects, its future is removed, and a reply to it is
dropped.

If the log refuses a timer's records, the timer runs again after `RETRY_MS`. Otherwise a member that is to be removed
would stay for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, TypeVar

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
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse
from sparklog.group.shard import Shard
from sparklog.offsets_topic.records import CoordinatorRecord
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.runtime.state_machine import Decision, SetTimer, Timer

RETRY_MS = 500
NOTHING = -1
LARGEST_BATCH = 1_000  # records that need not be written together; a tombstone has less than 1,000 bytes
Response = TypeVar("Response")
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
"""The error that a client gets if an append fails with one of these errors; as in Apache Kafka."""


class ShardLog(Protocol):
    """The partition of the offsets topic that holds a shard's records."""

    def append(self, records: Sequence[CoordinatorRecord], now_ms: int) -> int:
        """Append the records and return the last one's offset. Raises KafkaError with nothing written."""
        ...

    def is_committed(self, offset: int) -> bool: ...

    async def wait_committed(self, offset: int) -> None:
        """Wait until the offset is committed. Raises KafkaError if that fails or times out."""
        ...


class Handle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[..., Handle]
"""`call_later(seconds, function, *arguments)`, of an event loop or of a simulation."""


class CoordinatorRuntime:
    """Runs one shard until `close`."""

    def __init__(
        self,
        shard: Shard,
        log: ShardLog,
        clock: Clock,
        call_later: CallLater,
        on_records: Callable[[Sequence[CoordinatorRecord]], None] = lambda _: None,
    ) -> None:
        """Take the dependencies. `on_records` is called with a decision's records once they are committed."""
        self.shard = shard
        self._log = log
        self._clock = clock
        self._call_later = call_later
        self._on_records = on_records
        self._tickets = count(1)
        self._waiting: dict[Hashable, asyncio.Future[Any]] = {}
        self._timers: dict[Hashable, Handle] = {}
        self._finishing: set[Finishing] = set()
        self._written = NOTHING
        """Last offset appended by this runtime; NOTHING if none."""
        self._closed: KafkaError | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    @property
    def waiting(self) -> int:
        """Number of requests not answered yet."""
        return len(self._waiting)

    def begin(self, group_ids: Sequence[str] | None = None) -> None:
        """Start all or some groups of the shard, which has been loaded. Without effect once it is closed."""
        if self._closed is None:
            self._decide_more(self.shard.loaded(self._clock.time_ms(), group_ids))
            self._decide_more(self.shard.delete_of_others(group_ids))

    async def ask(self, decide: Callable[[Hashable, int], Decision[CoordinatorRecord, Response]]) -> Response:
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
            await _finished(finishing)
            return decision.response
        finally:
            del self._waiting[ticket]

    async def do(self, decision: Decision[CoordinatorRecord, None]) -> None:
        """Carry out a decision that answers no request. Raises KafkaError if the records cannot be written.

        More than LARGEST_BATCH records are split into several batches: they need not be written together.
        """
        parts = [decision]
        if len(decision.records) > LARGEST_BATCH:
            parts = [replace(decision, records=part) for part in _batched(decision.records)]
        # Append all batches before another decision changes the state: the records describe the state as it is now.
        for finishing in [self._carry_out(part) for part in parts]:
            await _finished(finishing)

    async def committed(self) -> None:
        """Wait until the shard's present state is committed, so that no answer shows a state that may be lost.

        Raises KafkaError if that takes too long, and NotCoordinator if the shard was closed meanwhile.
        """
        if not self._is_committed():
            try:
                await self._log.wait_committed(self._written)
            except KafkaError as error:
                raise self._closed or _answer_for(error) from error
        if self._closed is not None:
            raise self._closed

    def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResponse:
        """Return the group's offsets as far as they are committed in the log. Raises KafkaError."""
        self.shard.offsets.settle(self._log.is_committed)
        return self.shard.fetch_offsets(request)

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

    def _carry_out(self, decision: Decision[CoordinatorRecord, Any]) -> Finishing | None:
        """Carry out a decision; return the task that ends once it is committed, or None if nothing is left to do.

        Raises KafkaError if the records cannot be written.
        """
        if self._closed is not None:
            raise self._closed
        error: KafkaError | None = None
        if decision.records:
            try:
                self._written = self._log.append(decision.records, self._clock.time_ms())
            except KafkaError as refused:
                error = _answer_for(refused)
            else:
                log_offset = None if self._is_committed() else self._written
                for record in decision.records:
                    self.shard.replay(record, log_offset)
        if error is None:
            for timer in decision.timers:
                self._set(timer)
        says_something = decision.records or decision.replies or decision.response is not None
        if error is None and says_something and not self._is_committed():
            task = asyncio.get_running_loop().create_task(self._finish_when_committed(decision, self._written))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
            return task
        self._finish(decision, error)
        if error is not None:
            raise error
        return None

    async def _finish_when_committed(
        self, decision: Decision[CoordinatorRecord, Any], offset: int
    ) -> KafkaError | None:
        error: KafkaError | None = None
        try:
            await self._log.wait_committed(offset)
        except KafkaError as refused:
            error = _answer_for(refused)
        error = self._closed or error
        self.shard.offsets.settle(self._log.is_committed)
        self._finish(decision, error)
        return error

    def _finish(self, decision: Decision[CoordinatorRecord, Any], error: KafkaError | None) -> None:
        if error is None and decision.records:
            self._on_records(decision.records)
        for reply in decision.replies:
            answer = self._waiting.get(reply.ticket)
            if answer is not None and not answer.done():
                answer.set_result(reply.response)
        if decision.then is not None and self._closed is None:
            self._decide_more(self.shard.written(decision.then, error, self._clock.time_ms()))

    def _set(self, timer: Timer) -> None:
        if running := self._timers.pop(timer.key, None):
            running.cancel()
        if isinstance(timer, SetTimer):
            self._timers[timer.key] = self._call_later(timer.delay_ms / 1000, self._fire, timer.key)

    def _fire(self, key: Hashable) -> None:
        del self._timers[key]
        is_done = self._decide_more(self.shard.timer_fired(key, self._clock.time_ms()))
        if not is_done and key not in self._timers:
            self._set(SetTimer(key=key, delay_ms=RETRY_MS))

    def _decide_more(self, decision: Decision[CoordinatorRecord, None]) -> bool:
        """Carry out a decision that answers no request; return whether its records could be written."""
        try:
            self._carry_out(decision)
        except KafkaError as error:
            logger.error("groups could not be written: %s", error)
            return False
        return True


def _batched(records: Sequence[CoordinatorRecord]) -> Iterator[Sequence[CoordinatorRecord]]:
    for start in range(0, len(records), LARGEST_BATCH):
        yield records[start : start + LARGEST_BATCH]


async def _finished(finishing: Finishing | None) -> None:
    """Wait for the commit and raise its error, if any. Shielded: a cancelled request must not cancel the task."""
    error = await asyncio.shield(finishing) if finishing is not None else None
    if error is not None:
        raise error


def _answer_for(error: KafkaError) -> KafkaError:
    for kinds, answer in _ANSWERS:
        if isinstance(error, kinds):
            return answer(str(error))
    return error
