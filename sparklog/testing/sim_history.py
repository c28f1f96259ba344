"""What clients of a simulated cluster asked for, when, and what they were told.

An operation is invoked, and ends in one of three ways: OK, with a result; FAIL: it has not been done, and never will
be; INFO: nobody knows whether it was done, or still will be. One that never ends is INFO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from sparklog.base.ids import TopicPartition

Action = TypeVar("Action")


class OperationOutcome(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A batch of a producer's, acks=all. Its result is the offset of its first record."""

    partition: TopicPartition
    values: tuple[str, ...]
    """Each of them is sent once in the whole history, by whatever number of tries."""
    is_idempotent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """A fetch by a consumer. Its result is a Polled."""

    partition: TopicPartition
    position: int
    """The offset to read from."""


class Polled(NamedTuple):
    records: tuple[tuple[int, str], ...]
    """Offsets and values; only those from the position on."""
    high_watermark: int
    log_start_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Of a group's offset. What is committed later is greater, and nobody else has committed it."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommit:
    """Its result is the group's offset; -1: none."""

    group: str
    partition: TopicPartition
    is_current: bool = False
    """Whether only who coordinates the group now can have answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Of the log's start, by DeleteRecords. Its result is where the log begins at least."""

    partition: TopicPartition
    before_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindStart:
    """A consumer asks where the log begins, to go on there. Its result is what it was told."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLookup:
    """Which record is the first of this time or later. Its result is the record's offset and time, -1 without one."""

    partition: TopicPartition
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Of a key's value, None: a tombstone, by an idempotent producer with acks=all. Its result is the offset."""

    partition: TopicPartition
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOperation:
    """Anything else that was asked of the cluster."""

    text: str


@dataclass(slots=True, kw_only=True)
class Operation:
    client: str
    action: Any
    invoked_at: float
    ended_at: float = float("inf")
    outcome: OperationOutcome = OperationOutcome.INFO
    result: Any = None
    tries: int = 1
    """How often it was asked for; more than once, and a record may be written more than once without idempotence."""
    leader_epoch: int | None = None
    """Of the leader that has done it, where the request named one."""

    @property
    def is_ok(self) -> bool:
        return self.outcome is OperationOutcome.OK


@dataclass(slots=True)
class History:
    now: Callable[[], float]
    operations: list[Operation] = field(default_factory=list)

    def begin(self, client: str, action: Any) -> Operation:
        operation = Operation(client=client, action=action, invoked_at=self.now())
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: OperationOutcome, result: Any = None) -> None:
        operation.outcome = outcome
        operation.result = result
        operation.ended_at = self.now()

    def of(self, action: type[Action]) -> Iterator[tuple[Operation, Action]]:
        for operation in self.operations:
            if isinstance(operation.action, action):
                yield operation, operation.action


class UncleanElection(NamedTuple):
    """Of a leader that was not in sync: what others had from `from_offset` on, of earlier epochs, may be gone."""

    from_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """A partition after all is over, as its leader has it up to its high watermark."""

    log_start_offset: int = 0
    records: Mapping[int, str]
    """Values by their offsets, in their order."""
    times: Mapping[int, int] = field(default_factory=dict)
    """Timestamps by offset."""
    unclean: Sequence[UncleanElection] = ()
    keeps_start: bool = True
    """Whether a log start that was acknowledged must last: it is on disk only a little later."""
    expires: bool = False
    """Retention may have moved its start."""

    def may_be_lost(self, offset: int, leader_epoch: int | None = None) -> bool:
        """Whether what an epoch has written at an offset may be gone; None: any epoch."""
        return any(
            offset >= each.from_offset and (leader_epoch is None or leader_epoch < each.leader_epoch)
            for each in self.unclean
        )


Final = Mapping[TopicPartition, FinalLog]
"""Of the partitions that were never deleted; nothing is checked of others."""
