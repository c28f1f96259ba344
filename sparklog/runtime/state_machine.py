"""The shape of a state machine whose state is kept in a log: it decides, a shell does.

    decide    a method for each request: `decide(request, now) -> Decision`. It reads the state, and says what is to be
              written, what is to be answered, and which timers are to run. It waits for nothing and does no I/O.
    replay    `replay(record)` is the only thing that changes the state that the log keeps. The shell replays each
              record once it is appended; loading the log after a failover is the same replay.

What the log does not keep (who waits for an answer, whose timer runs) a machine changes as it decides; it is lost with
the machine, and clients come again.

The shell does what a Decision says in this order, the first three before anything else is decided:

    1. append the records, as one batch: all or none
    2. replay them
    3. set and cancel timers, in their order; not where the append failed: the members that it was about are still there
    4. once the records are committed, or have failed: send the replies, call `written` where there is a `then`, and
       answer who asked: with the response, or with what went wrong. Where there are none, once those before them are

So a reply to somebody who waits must not promise what the records of the same Decision say; what depends on them is
said when `written` tells that they are there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sparklog.base.errors import KafkaError

Response = TypeVar("Response")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request that waits, known by its ticket."""

    ticket: Hashable
    response: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Call `timer_fired(key)` after `delay_ms`; a timer of that key that runs is replaced."""

    key: Hashable
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Nothing, where no timer of that key runs."""

    key: Hashable


Timer = SetTimer | CancelTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[Record, Response]):
    """What is to be done."""

    response: Response | None = None
    """None: the request waits, its answer comes in a `Reply` to its ticket."""
    records: Sequence[Record] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[Timer] = ()
    then: Any = None
    """What the machine wants to be told of, by `written`, when the records are committed or have failed."""


class Draft(Generic[Record]):
    """A Decision in the making: the parts of a machine add what each wants done."""

    __slots__ = ("records", "replies", "then", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.then: Any = None

    def reply(self, ticket: Hashable, response: Any) -> None:
        self.replies.append(Reply(ticket=ticket, response=response))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        self.timers.append(SetTimer(key=key, delay_ms=delay_ms))

    def cancel_timer(self, key: Hashable) -> None:
        self.timers.append(CancelTimer(key=key))

    def decide(self, response: Response | None = None) -> Decision[Record, Response]:
        return Decision(
            response=response, records=self.records, replies=self.replies, timers=self.timers, then=self.then
        )


class Machine(Protocol[Record]):
    """What a shell needs of a machine beside its methods for requests."""

    def replay(self, record: Record) -> None:
        """Take up a record that is in the log."""
        ...

    def timer_fired(self, key: Any, now_ms: int) -> Decision[Record, Any]:
        """The time that a `SetTimer` asked for has passed."""
        ...

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[Record, Any]:
        """The records of a Decision with `then` are committed; or they are not, and why."""
        ...
