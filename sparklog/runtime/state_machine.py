"""State machines whose state is kept in a log: the machine decides, and a shell carries out the decisions.

    decide    a method for each request: `decide(request, now) -> Decision`. It reads the state and returns the records
              to write, the replies to send and the timers to set. It never waits and does no I/O.
    replay    only `replay(record)` changes the state that the log keeps. The shell replays each record after the
              append; loading the log after a failover is the same replay.

Other state (waiting requests, running timers) changes while the machine decides. It is lost with the machine, and
clients retry.

The shell carries out a Decision in this order, steps 1 to 3 before the next decision:

    1. append the records as one batch: all or none
    2. replay them
    3. set and cancel timers, in order, unless the append failed
    4. once the records are committed or have failed: send the replies, call `written` if `then` is set, and answer the
       request with the response or the error. Without records, once all earlier records are committed or have failed.
       Effects begin once the records are committed; they are dropped if the records have failed

So the reply to a waiting request must not depend on the records of the same Decision. Send such a reply when `written`
reports that they are committed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from sparklog.base.errors import KafkaError

Response = TypeVar("Response")
Record = TypeVar("Record")


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to a waiting request, identified by its ticket."""

    ticket: Hashable
    response: Any


class SetTimer(Struct, frozen=True, kw_only=True):
    """Call `timer_fired(key)` after `delay_ms`; replaces a running timer with that key."""

    key: Hashable
    delay_ms: int


class CancelTimer(Struct, frozen=True, kw_only=True):
    """Cancel the timer with that key, if it runs."""

    key: Hashable


Timer = SetTimer | CancelTimer


class ProducerIdAndEpoch(NamedTuple):
    """A producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Decision(Struct, Generic[Record, Response], frozen=True, kw_only=True):
    """The actions of the shell for one request or event."""

    response: Response | None = None
    """None: the request waits, and a later `Reply` to its ticket answers it."""
    records: Sequence[Record] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[Timer] = ()
    effects: Sequence[Any] = ()
    """Work outside the log that begins once the records are committed, such as requests to other brokers."""
    then: Any = None
    """Event to pass to `written` when the records are committed or have failed; None: no call."""
    producer: ProducerIdAndEpoch | None = None
    """The producer in whose transaction the records are written; None: in no transaction."""
    verification: Any = None
    """With `producer`: the verification that the log needs to begin a transaction (log/producers/verifications.py)."""


class DecisionBuilder(Generic[Record]):
    """Collects the records, replies, timers and effects of one Decision from the parts of a machine."""

    __slots__ = ("effects", "records", "replies", "then", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.timers: list[Timer] = []
        self.effects: list[Any] = []
        self.then: Any = None

    def write(self, *records: Record) -> None:
        """Add records, after those that were added before."""
        self.records.extend(records)

    def once_written(self, event: Any) -> None:
        """Have `StateMachine.written` called with `event` once the records are committed or have failed."""
        self.then = event

    def reply(self, ticket: Hashable, response: Any) -> None:
        """Add the answer to a request that waits under this ticket."""
        self.replies.append(Reply(ticket=ticket, response=response))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        """Have `timer_fired(key)` called after `delay_ms`; replaces a running timer with that key."""
        self.timers.append(SetTimer(key=key, delay_ms=delay_ms))

    def cancel_timer(self, key: Hashable) -> None:
        """Cancel the timer with that key, if it runs."""
        self.timers.append(CancelTimer(key=key))

    def once_committed(self, effect: Any) -> None:
        """Have the shell begin an effect once the records are committed."""
        self.effects.append(effect)

    def decide(self, response: Response | None = None) -> Decision[Record, Response]:
        """Return the collected Decision. response: of the request; None: the request waits"""
        return Decision(
            response=response,
            records=self.records,
            replies=self.replies,
            timers=self.timers,
            effects=self.effects,
            then=self.then,
        )


class StateMachine(Protocol[Record]):
    """The methods of a machine that a shell calls, besides those for requests."""

    def replay(self, record: Record) -> None:
        """Apply a record of the log to the state."""
        ...

    def timer_fired(self, key: Any, now_ms: int) -> Decision[Record, Any]:
        """Decide after a timer has run out."""
        ...

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[Record, Any]:
        """Decide after a Decision's records are committed (`error`: None) or have failed. event: its `then`"""
        ...
