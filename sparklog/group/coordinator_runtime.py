"""The shell around one shard: it does what the shard decides (runtime/state_machine.py), on the event loop.

Records go to the log as one batch; who asked is answered once they are committed, and so is who asks for something
that needs none: the state may be that of records before it. Requests that wait (joins, syncs) are futures by ticket: a
client that goes away takes its future with it, and a reply to it then goes nowhere.

A timer whose records the log refuses runs once more after `RETRY_MS`: a member that was to be put out would otherwise
stay for ever.
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
from sparklog.group.records import CoordinatorRecord
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse
from sparklog.group.shard import Shard
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.runtime.state_machine import Decision, SetTimer, Timer

RETRY_MS = 500
NOTHING = -1
LARGEST_BATCH = 1_000  # records, of those that may be written apart; a tombstone is below 1,000 bytes
Response = TypeVar("Response")
Finishing = asyncio.Task[KafkaError | None]
"""Waits for the commit of what a decision has written; its result is what went wrong."""
logger = logging.getLogger(__name__)
_ANSWERS: tuple[tuple[tuple[type[KafkaError], ...], type[KafkaError]], ...] = (
    (
        (UnknownTopicOrPartition, NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut),
        CoordinatorNotAvailable,
    ),
    ((NotLeaderOrFollower, KafkaStorageError), NotCoordinator),
    ((MessageTooLarge, RecordListTooLarge), UnknownServerError),
)
"""What a client of the coordinator is told of an append that failed; as in Apache Kafka."""


class ShardLog(Protocol):
    """The partition of the offsets topic that a shard is kept in."""

    def append(self, records: Sequence[CoordinatorRecord], now_ms: int) -> int:
        """The last offset; raises KafkaError, with nothing written."""
        ...

    def is_committed(self, offset: int) -> bool: ...

    async def wait_committed(self, offset: int) -> None:
        """Raises KafkaError where it is not within the time that commits may take."""
        ...


class Handle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[..., Handle]
"""`call_later(seconds, function, *arguments)`, of an event loop or of a simulation."""


class CoordinatorRuntime:
    """One shard that serves, until `close`."""

    def __init__(
        self,
        shard: Shard,
        log: ShardLog,
        clock: Clock,
        call_later: CallLater,
        on_records: Callable[[Sequence[CoordinatorRecord]], None] = lambda _: None,
    ) -> None:
        """on_records: told of all that has been committed."""
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
        """The last offset that was appended here."""
        self._closed: KafkaError | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    @property
    def waiting(self) -> int:
        """Number of requests that are not answered yet."""
        return len(self._waiting)

    def begin(self) -> None:
        """The shard has been loaded: its timers run from now on."""
        self._decide_more(self.shard.loaded(self._clock.time_ms()))

    async def ask(self, decide: Callable[[Hashable, int], Decision[CoordinatorRecord, Response]]) -> Response:
        """The answer to a request that is decided by `decide(ticket, now)`; raises KafkaError where it is refused."""
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
        """Carry out what nobody asked for; raises KafkaError where the records cannot be written.

        There may be any number of records, and they go into as many batches as it takes: some may be written alone.
        """
        parts = [decision]
        if len(decision.records) > LARGEST_BATCH:
            parts = [replace(decision, records=part) for part in _batched(decision.records)]
        # All are appended before anything else is decided: they say what is true now.
        for finishing in [self._carry_out(part) for part in parts]:
            await _finished(finishing)

    async def committed(self) -> None:
        """Return once what the shard says now is committed: what could be lost is not to be told.

        Raises KafkaError where that takes too long, and NotCoordinator where the shard has been closed meanwhile.
        """
        if not self._is_committed():
            try:
                await self._log.wait_committed(self._written)
            except KafkaError as error:
                raise self._closed or _answer_for(error) from error
        if self._closed is not None:
            raise self._closed

    def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResponse:
        """Those that are committed. Raises KafkaError."""
        self.shard.offsets.settle(self._log.is_committed)
        return self.shard.fetch_offsets(request)

    def _is_committed(self) -> bool:
        return self._written == NOTHING or self._log.is_committed(self._written)

    def close(self, error: KafkaError) -> None:
        """Answer whoever waits with `error`, and do nothing any more."""
        self._closed = error
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # where nobody awaits it, because its answer only waits for a commit, all is well

    def _carry_out(self, decision: Decision[CoordinatorRecord, Any]) -> Finishing | None:
        """None: all is done. Raises KafkaError where the records cannot be written."""
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
        """Carry out what follows from an event that nobody waits for; tells whether it could be written."""
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
    """Wait, though not so that a client that goes away ends what others wait for too; raises what went wrong."""
    error = await asyncio.shield(finishing) if finishing is not None else None
    if error is not None:
        raise error


def _answer_for(error: KafkaError) -> KafkaError:
    for kinds, answer in _ANSWERS:
        if isinstance(error, kinds):
            return answer(str(error))
    return error
