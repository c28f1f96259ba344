"""The history of a simulated cluster's clients: their operations, the times, and the results.

An operation ends in one of three ways. OK: it was done, and has a result. FAIL: it was not done and never will be.
INFO: it is unknown whether it was done or still will be. An operation that never ends counts as INFO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from sparklog.base.ids import TopicPartition

Action = TypeVar("Action")


class OperationOutcome(Enum):
    """How an operation ended: done, not done, or unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A producer sends a batch with acks=all. The result is the offset of its first record."""

    partition: TopicPartition
    values: tuple[str, ...]
    """The records' values. Each value belongs to one Send of the history, which may try several times."""
    is_idempotent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """A consumer fetches records. The result is a PollResult."""

    partition: TopicPartition
    position: int
    """The offset from which the consumer reads."""


class PollResult(NamedTuple):
    """The result of a Poll."""

    records: tuple[tuple[int, str], ...]
    """Offsets and values, from the consumer's position on."""
    high_watermark: int
    log_start_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A group commits an offset, which is greater than all that the group committed for the partition before.

    If a member commits, the result is the address of the broker that accepted the commit.
    """

    group: str
    partition: TopicPartition
    offset: int
    member_id: str = ""
    """The member that commits, if a member does. The fields below are of this member."""
    instance_id: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCommit:
    """A client reads a group's committed offset. The result is the offset, or -1 if there is none."""

    group: str
    partition: TopicPartition
    is_current: bool = False
    """Whether the answer surely came from the group's current coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """DeleteRecords moves the log start offset up to `before_offset`. The result is the new log start offset."""

    partition: TopicPartition
    before_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartMove:
    """Retention moves a log start up. The result is the new log start offset."""

    partition: TopicPartition
    latest_ms: int
    """The latest wall time that a broker's clock has shown until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartLookup:
    """A consumer asks for the log start offset, to continue there. The result is the answered offset."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLookup:
    """A client asks for the first record of this time or later. The result is its offset and timestamp, -1 for none."""

    partition: TopicPartition
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLookup:
    """A client asks for an offset and its leader epoch. The result is both."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """An idempotent producer sends a key's value, or None as a tombstone, with acks=all. The result is the offset."""

    partition: TopicPartition
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOperation:
    """Any other request to the cluster, in words."""

    text: str
    deletes: str | None = None
    """The name of the topic that it deletes."""


@dataclass(slots=True, kw_only=True)
class ClientOperation:
    """An action of a client, with its times in seconds and its outcome."""

    client: str
    action: Any
    invoked_at: float
    ended_at: float = float("inf")
    outcome: OperationOutcome = OperationOutcome.INFO
    result: Any = None
    tries: int = 1
    """The number of its requests. After several, a producer that is not idempotent may have written duplicates."""
    leader_epoch: int | None = None
    """The leader epoch in the request, if it named one."""

    @property
    def is_ok(self) -> bool:
        """Whether the operation was done, and has a result."""
        return self.outcome is OperationOutcome.OK


@dataclass(slots=True)
class History:
    """All operations in the order of their beginning. `now` returns the time in seconds."""

    now: Callable[[], float]
    operations: list[ClientOperation] = field(default_factory=list)

    def begin(self, client: str, action: Any, *, tries: int = 1) -> ClientOperation:
        """Record that a client begins an action. Return its operation, for `end`."""
        operation = ClientOperation(client=client, action=action, invoked_at=self.now(), tries=tries)
        self.operations.append(operation)
        return operation

    def end(
        self,
        operation: ClientOperation,
        outcome: OperationOutcome,
        result: Any = None,
        *,
        tries: int | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """Record the end of an operation, at the present time. tries: the number of its requests, if it has changed."""
        if tries is not None:
            operation.tries = tries
        operation.leader_epoch = leader_epoch
        operation.outcome = outcome
        operation.result = result
        operation.ended_at = self.now()

    def of(self, action: type[Action]) -> Iterator[tuple[ClientOperation, Action]]:
        """Yield all operations whose action has this type, each with its action."""
        for operation in self.operations:
            if isinstance(operation.action, action):
                yield operation, operation.action


class UncleanElection(NamedTuple):
    """The election of a leader that was not in the ISR, at `leader_epoch`.

    Records of earlier epochs may be lost from `from_offset` on.
    """

    from_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """The leader's log of a partition at the end of a run."""

    log_start_offset: int = 0
    records: Mapping[int, str]
    """Values by offset, in ascending order of offsets."""
    times: Mapping[int, int] = field(default_factory=dict)
    """Timestamps, in ms, by offset."""
    epochs: Mapping[int, int] = field(default_factory=dict)
    """Leader epochs by offset, for the offsets that have a record."""
    unclean: Sequence[UncleanElection] = ()
    keeps_start: bool = True
    """Whether an acknowledged log start must last. A restart may undo it, as the disk gets it a little later."""
    expires: bool = False
    """Whether retention may have moved the log start."""

    def may_be_lost(self, offset: int, leader_epoch: int | None = None) -> bool:
        """Return whether an unclean election may have lost the record of this offset.

        leader_epoch: the epoch that wrote the record; None if it is not known.
        """
        return any(
            offset >= each.from_offset and (leader_epoch is None or leader_epoch < each.leader_epoch)
            for each in self.unclean
        )


Final = Mapping[TopicPartition, FinalLog]
"""The final logs by partition. Partitions that are missing here, such as deleted ones, are not checked."""
