"""Finds anomalies in the clients' history and in the final logs of a simulated cluster.

    lost write             An acknowledged record (acks=all) is not in the final log.
    duplicate              The final log has a value twice, though its producer is idempotent or tried only once.
    inconsistent offset    Two observers saw different values at one offset, or the final log lacks a record that was
                           seen. Observers are consumers, acknowledged producers and the final log.
    aborted read           A value was read, or is in the final log, though its producer was told that the send failed.
    phantom                A value was read, or is in the final log, that no producer sent.
    non-monotonic send     A producer's later acknowledged record has a lower offset than an earlier one.
    non-monotonic poll     A consumer got an offset that is not greater than the one before.
    poll skip              A consumer's position passed a record of the final log that the consumer did not get.
    unseen                 A consumer read to the end, and did not get a record of the final log. It may miss records
                           below a log start in a broker's answer, if DeleteRecords or retention had deleted them.
                           The records may be back: an unacknowledged log start may be lost with its leader.
    above high watermark   A consumer got a record above the high watermark, or below the log start, of the same answer.
    lost commit            A group's committed offset is older than one that was acknowledged before, or no client
                           committed it. As in Apache Kafka, a replaced coordinator may answer with an older offset
                           until it learns of its successor.
    vanished commit        The current coordinator has an older committed offset than one that was shown before.
    wrong lookup           The answer to a lookup by time is not the first record of that time or later. The answer
                           "none" is wrong only if the client itself had got such a record: a replaced leader may not
                           know the records of its successor.
    wrong epoch            An answer of ListOffsets has another leader epoch than the record at its offset.
    log start moved back   The final log starts below the log start of an acknowledged DeleteRecords, though no fault
                           could undo it (FinalLog.keeps_start).

After an unclean election, records that the new leader lacked may be gone or replaced, and the log start may be lower.

The names are those of Jepsen's queue workload where it has one. The checks are pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.history import (
    ClientOperation,
    Commit,
    EpochLookup,
    Final,
    History,
    LogStartLookup,
    OffsetLookup,
    OperationOutcome,
    Poll,
    PollResult,
    ReadCommit,
    Send,
    Trim,
)

Place = tuple[TopicPartition, int]


class Anomaly(NamedTuple):
    """A broken invariant: its kind, as listed above, and the observation."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(
    history: History, final: Final, *, drained: frozenset[tuple[str, TopicPartition]] = frozenset()
) -> list[Anomaly]:
    """Return all anomalies.

    drained: the consumers that read a partition to its end, each with the partition.
    """
    found = [anomaly for look in _LOOKS for anomaly in look(history, final)]
    return [*found, *_unseen(history, final, drained)]


def _lost_writes(history: History, final: Final) -> Iterator[Anomaly]:
    for operation, place, value in _acknowledged(history):
        log = final.get(place[0])
        if log and place[1] >= log.log_start_offset and log.records.get(place[1]) != value:
            if log.may_be_lost(place[1], operation.leader_epoch):
                continue
            instead = log.records.get(place[1])
            yield Anomaly(
                "lost write",
                f"{_name(place)} = {value!r}, acknowledged to {operation.client} at {operation.ended_at:.3f} s, "
                + (f"is {instead!r} at the end" if instead is not None else "is not there at the end"),
            )


def _duplicates(history: History, final: Final) -> Iterator[Anomaly]:
    may_be_twice = {
        value
        for operation, send in history.of(Send)
        for value in send.values
        if not send.is_idempotent and operation.tries > 1
    }
    for partition, log in final.items():
        first: dict[str, int] = {}
        for offset, value in log.records.items():
            if value in first and value not in may_be_twice:
                yield Anomaly("duplicate", f"{value!r} is at {first[value]} and at {offset} of {partition}")
            first.setdefault(value, offset)


def _inconsistent_offsets(history: History, final: Final) -> Iterator[Anomaly]:
    known: dict[Place, tuple[str, str]] = {}
    for place, value, who in observations(history, final):
        if (log := final.get(place[0])) and log.may_be_lost(place[1]):
            continue
        if place not in known:
            known[place] = value, who
        elif known[place][0] != value:
            before, whom = known[place]
            yield Anomaly("inconsistent offset", f"{_name(place)} is {before!r} to {whom}, {value!r} to {who}")
    for (partition, offset), (value, who) in known.items():
        log = final.get(partition)
        if log and offset >= log.log_start_offset and offset not in log.records:
            yield Anomaly("inconsistent offset", f"{_name((partition, offset))} is {value!r} to {who}, gone at the end")


def _aborted_reads(history: History, final: Final) -> Iterator[Anomaly]:
    outcomes = {value: operation.outcome for operation, send in history.of(Send) for value in send.values}
    told: set[str] = set()
    for place, value, who in observations(history, final):
        if value in told or place[0] not in final:
            continue
        if value not in outcomes:
            told.add(value)
            yield Anomaly("phantom", f"{_name(place)} is {value!r} to {who}, and nobody sent it")
        elif outcomes[value] is OperationOutcome.FAIL:
            told.add(value)
            yield Anomaly("aborted read", f"{_name(place)} is {value!r} to {who}, and its producer was refused")


def _non_monotonic_sends(history: History, final: Final) -> Iterator[Anomaly]:
    offsets = {
        (partition, value): offset
        for partition, log in final.items()
        for offset, value in reversed(list(log.records.items()))  # of duplicates, keep the first
    }
    last: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
    for operation, send in history.of(Send):
        if not send.is_idempotent and operation.tries > 1:
            continue  # retries may duplicate it, and trimming may remove part of the first copy
        for value in send.values:
            offset = offsets.get((send.partition, value))
            if offset is None or not operation.is_ok:
                continue  # the broker may write an unacknowledged request much later
            before = last.get((operation.client, send.partition))
            if before and before[0] > offset:
                yield Anomaly(
                    "non-monotonic send",
                    f"{operation.client} sent {before[1]!r} before {value!r}; "
                    f"in {send.partition} they are at {before[0]} and {offset}",
                )
            last[operation.client, send.partition] = offset, value


def _non_monotonic_polls(history: History, final: Final) -> Iterator[Anomaly]:
    for (client, partition), polls in _reading(history).items():
        last, told = -1, 0
        for poll, polled in polls:
            if poll.position != told:
                last = -1  # the consumer has reset its position itself
            told = polled.next_offset
            for offset, _ in polled.records:
                if offset <= last or offset < poll.position:
                    yield Anomaly("non-monotonic poll", f"{client} was shown {offset} of {partition} after {last}")
                last = max(last, offset)


def _poll_skips(history: History, final: Final) -> Iterator[Anomaly]:
    for (client, partition), polls in _reading(history).items():
        log = final.get(partition)
        if not log:
            continue
        for poll, polled in polls:
            shown = {offset for offset, _ in polled.records}
            for offset in range(poll.position, polled.next_offset):
                if offset in log.records and offset not in shown and not log.may_be_lost(offset):
                    yield Anomaly("poll skip", f"{client} asked for {poll.position} of {partition} and passed {offset}")


def _shown_too_early(history: History, final: Final) -> Iterator[Anomaly]:
    for operation, poll in history.of(Poll):
        if not operation.is_ok:
            continue
        polled: PollResult = operation.result
        for offset, _ in polled.records:
            if not polled.log_start_offset <= offset < polled.high_watermark:
                yield Anomaly(
                    "above high watermark",
                    f"{operation.client} was shown {offset} of {poll.partition}; the log start is "
                    f"{polled.log_start_offset}, the high watermark {polled.high_watermark}",
                )


def _lost_commits(history: History, final: Final) -> Iterator[Anomaly]:
    commits: dict[tuple[str, TopicPartition], list[tuple[ClientOperation, int]]] = {}
    for operation, commit in history.of(Commit):
        commits.setdefault((commit.group, commit.partition), []).append((operation, commit.offset))
    for operation, read in history.of(ReadCommit):
        if not operation.is_ok:
            continue
        made = commits.get((read.group, read.partition), [])
        before = [each for each, _ in made if each.is_ok and each.ended_at <= operation.invoked_at]
        newest = max((each.invoked_at for each in before), default=-1.0) if read.is_current else -1.0
        known = {offset for each, offset in made if each.is_ok and each.ended_at >= newest}
        late = {
            offset for each, offset in made if each.outcome is OperationOutcome.INFO
        }  # the coordinator may apply an unanswered commit at any later time
        if operation.result not in late | known | ({-1} if newest < 0 else set()):
            last = max((each.action.offset for each in before), default=-1)
            yield Anomaly(
                "lost commit",
                f"{operation.client}: {read.group} has {operation.result} for {read.partition} at "
                f"{operation.ended_at:.3f} s, and {last} was acknowledged before",
            )


def _vanished_commits(history: History, final: Final) -> Iterator[Anomaly]:
    late: dict[tuple[str, TopicPartition], set[int]] = {}
    for operation, commit in history.of(Commit):
        if operation.outcome is OperationOutcome.INFO:  # it may be applied after newer ones
            late.setdefault((commit.group, commit.partition), set()).add(commit.offset)
    shown: dict[tuple[str, TopicPartition], tuple[int, ClientOperation]] = {}
    reads = [(operation, read) for operation, read in history.of(ReadCommit) if operation.is_ok]
    for operation, read in sorted(reads, key=lambda each: each[0].ended_at):
        place = read.group, read.partition
        newest, when = shown.get(place, (-1, operation))
        if (
            read.is_current
            and operation.result < newest
            and when.ended_at < operation.invoked_at
            and operation.result not in late.get(place, ())
        ):
            yield Anomaly(
                "vanished commit",
                f"{read.group} has {operation.result} for {read.partition} at {operation.ended_at:.3f} s; "
                f"{when.client} was told {newest} at {when.ended_at:.3f} s",
            )
        shown[place] = max(shown.get(place, (-1, operation)), (operation.result, operation), key=lambda each: each[0])


def _moved_starts(history: History, final: Final) -> Iterator[Anomaly]:
    for operation, trim in history.of(Trim):
        log = final.get(trim.partition)
        if not operation.is_ok or log is None or log.unclean:  # an out-of-sync leader may not know it
            continue
        if log.keeps_start and log.log_start_offset < operation.result:
            yield Anomaly(
                "log start moved back",
                f"{trim.partition} begins at {log.log_start_offset}, though DeleteRecords was told {operation.result} "
                f"at {operation.ended_at:.3f} s",
            )


def _wrong_lookups(history: History, final: Final) -> Iterator[Anomaly]:
    shown: dict[tuple[str, TopicPartition], list[tuple[float, int]]] = {}
    for operation, poll in history.of(Poll):
        if operation.is_ok and operation.result.records:
            at = operation.ended_at, operation.result.records[-1][0]
            shown.setdefault((operation.client, poll.partition), []).append(at)
    for operation, lookup in history.of(OffsetLookup):
        log = final.get(lookup.partition)
        if not operation.is_ok or log is None or log.unclean or log.expires or any(True for _ in history.of(Trim)):
            continue
        offset, _ = operation.result
        late = [each for each, time in log.times.items() if time >= lookup.timestamp_ms]
        if offset >= 0:
            wrong = [each for each in late if each < offset] or [offset] * (offset not in late)
        else:
            polls = shown.get((operation.client, lookup.partition), ())
            known = max((each for ended_at, each in polls if ended_at <= operation.invoked_at), default=-1)
            wrong = [each for each in late if each <= known]
        if wrong:
            yield Anomaly(
                "wrong lookup",
                f"{operation.client} was told {offset} for {lookup.timestamp_ms} of {lookup.partition} at "
                f"{operation.ended_at:.3f} s; offset {wrong[0]} has timestamp {log.times.get(wrong[0])}",
            )


def _wrong_epochs(history: History, final: Final) -> Iterator[Anomaly]:
    for operation, lookup in history.of(EpochLookup):
        log = final.get(lookup.partition)
        if not operation.is_ok or log is None or log.unclean:
            continue
        offset, epoch = operation.result
        if log.epochs.get(offset, epoch) != epoch:
            yield Anomaly(
                "wrong epoch",
                f"{operation.client} was told epoch {epoch} for {_name((lookup.partition, offset))} at "
                f"{operation.ended_at:.3f} s; the record there is of epoch {log.epochs[offset]}",
            )


def _unseen(history: History, final: Final, drained: frozenset[tuple[str, TopicPartition]]) -> Iterator[Anomaly]:
    reading = _reading(history)
    for client, partition in sorted(drained):
        log = final.get(partition)
        polls = reading.get((client, partition), [])
        if not log:
            continue
        shown = {offset for _, polled in polls for offset, _ in polled.records}
        first = min((poll.position for poll, _ in polls), default=0)
        deleted_to = _said_to_begin_at(history, client, partition, may_expire=log.expires)
        for offset in log.records:
            if offset >= max(first, deleted_to) and offset not in shown and not log.may_be_lost(offset):
                yield Anomaly("unseen", f"{client} never saw {_name((partition, offset))} = {log.records[offset]!r}")


def _said_to_begin_at(history: History, client: str, partition: TopicPartition, *, may_expire: bool) -> int:
    told = [
        int(operation.result)
        for operation, find in history.of(LogStartLookup)
        if operation.is_ok and (operation.client, find.partition) == (client, partition)
    ]
    asked = [trim.before_offset for _, trim in history.of(Trim) if trim.partition == partition]
    start = max(told, default=0)
    return start if may_expire else min(start, max(asked, default=0))


_LOOKS: tuple[Callable[[History, Final], Iterator[Anomaly]], ...] = (
    _lost_writes,
    _duplicates,
    _inconsistent_offsets,
    _aborted_reads,
    _non_monotonic_sends,
    _non_monotonic_polls,
    _poll_skips,
    _shown_too_early,
    _lost_commits,
    _vanished_commits,
    _moved_starts,
    _wrong_lookups,
    _wrong_epochs,
)


def _acknowledged(history: History) -> Iterator[tuple[ClientOperation, Place, str]]:
    for operation, send in history.of(Send):
        if operation.is_ok:
            for number, value in enumerate(send.values):
                yield operation, (send.partition, operation.result + number), value


def observations(history: History, final: Final) -> Iterator[tuple[Place, str, str]]:
    """Yield each observation of a value at an offset, with the observer's name. An acknowledgement counts as one."""
    for partition, log in final.items():
        for offset, value in log.records.items():
            yield (partition, offset), value, "the log at the end"
    for operation, poll in history.of(Poll):
        if operation.is_ok:
            for offset, value in operation.result.records:
                yield (poll.partition, offset), value, f"{operation.client} at {operation.ended_at:.3f} s"
    for operation, place, value in _acknowledged(history):
        yield place, value, f"{operation.client}, its producer"


def _reading(history: History) -> dict[tuple[str, TopicPartition], list[tuple[Poll, PollResult]]]:
    found: dict[tuple[str, TopicPartition], list[tuple[Poll, PollResult]]] = {}
    for operation, poll in history.of(Poll):
        if operation.is_ok:
            found.setdefault((operation.client, poll.partition), []).append((poll, operation.result))
    return found


def _name(place: Place) -> str:
    return f"{place[0]}@{place[1]}"
