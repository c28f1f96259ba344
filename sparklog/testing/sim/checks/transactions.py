"""Transactions of producers, answers to readers, and the invariants of both.

    open transaction     A transaction has not ended in the final log.
    phantom              A record is committed that no producer sent to this partition.
    aborted read         A record is committed, or was shown to a reader of committed records, though its producer never
                         asked for a commit, or was refused.
    early read           A record was shown to a reader of committed records before its producer asked for the commit.
    lost write           The commit of a transaction was acknowledged, and one of its records is not committed.
    torn transaction     Only some records of a transaction are committed.
    duplicate            A record is committed twice.
    mixed transaction    Records that were sent in different transactions ended together.
    reordered write      Committed records of a producer are not in the order in which it sent them.
    poll skip            A reader was not shown a record that it had to be shown.
    inconsistent offset  A reader was shown something else than the final log has.
    unstable read        A reader passed the last stable offset of the same answer, or, if it reads everything, the high
                         watermark. (It may begin above those of a new leader, which does not know yet how much is
                         committed.)
    lost copy            A group's committed offset is behind a record that was not copied.
    doubled copy         A record was copied twice.
    doubled batch        A batch of a sink is committed twice.
    lost batch           The sink has answered that a batch is committed, and none of its records is.
    unread copy          There is a copy of a record that was not committed, or is not below the group's offset.

The final log is the judge: its markers say which records are committed. So the checks do not depend on the brokers'
indexes of aborted transactions. They are pure functions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sparklog.base.ids import TopicPartition
from sparklog.records.batch import read_header
from sparklog.records.markers import read_marker
from sparklog.records.records import read_records
from sparklog.testing.sim.checks.checker import Anomaly

Entries = Sequence[tuple[int, str]]
"""Offsets and values, in ascending order."""


class TransactionEnd(Enum):
    """A producer's knowledge of the end of its transaction."""

    ABORTED = "it never asked for a commit, or was refused"
    DOUBTFUL = "it asked for a commit, and nobody knows what became of it"
    COMMITTED = "its commit was acknowledged"


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    """One transaction of a producer."""

    name: str
    """The producer, a slash, and the number of the transaction."""
    end: TransactionEnd = TransactionEnd.ABORTED
    values: dict[str, TopicPartition] = field(default_factory=dict)
    shown_before: int | None = None
    """Number of answers to readers before the producer asked for the commit; None if it never did."""

    has_one_producer: bool = True

    @property
    def producer(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]

    def send(self, value: str, partition: TopicPartition) -> None:
        """Record that `value` is sent. No other transaction sends the same one."""
        self.values[value] = partition

    def be_committed(self) -> None:
        """Record that the commit was acknowledged."""
        self.end = TransactionEnd.COMMITTED

    def be_refused(self) -> None:
        """Record that the commit was refused: nothing may be committed."""
        self.end = TransactionEnd.ABORTED


class FetchAnswer(NamedTuple):
    """The answer to one fetch, as a client returns it to its user."""

    reader: str
    is_committed_only: bool
    partition: TopicPartition
    position: int
    next_offset: int
    """Where the reader continues."""
    records: tuple[tuple[int, str], ...]
    last_stable_offset: int
    high_watermark: int


@dataclass(slots=True)
class Ledger:
    """All transactions of a run, and all answers to its readers."""

    transactions: list[Transaction] = field(default_factory=list)
    shown: list[FetchAnswer] = field(default_factory=list)

    def begin(self, name: str) -> Transaction:
        """Add a transaction and return it. It counts as aborted until `ask_for_commit`."""
        transaction = Transaction(name=name)
        self.transactions.append(transaction)
        return transaction

    def join(self, name: str, transactions: Sequence[Transaction]) -> Transaction:
        """Replace several transactions, each of a producer of its own, by one that ends as a whole; return it."""
        joined = self.begin(name)
        joined.has_one_producer = False
        for each in transactions:
            joined.values |= each.values
            self.transactions.remove(each)
        return joined

    def ask_for_commit(self, transaction: Transaction) -> None:
        """Record that its producer is about to ask for the commit."""
        transaction.end = TransactionEnd.DOUBTFUL
        transaction.shown_before = len(self.shown)


@dataclass(slots=True)
class BatchCommits:
    """The runs that have asked for the commit of one batch of a sink."""

    transactions: list[Transaction] = field(default_factory=list)
    is_over: bool = False
    """Whether the sink has answered that the batch is committed."""

    def be_over(self) -> None:
        """Record that the sink has answered that the batch is committed."""
        self.is_over = True


class TransactionRecords(NamedTuple):
    """The records of a producer between two of its markers in a partition."""

    producer_id: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The transactions in the final log of a partition."""

    all: Entries
    committed: Entries
    ended: Sequence[TransactionRecords]
    open: Sequence[TransactionRecords]


Views = Mapping[TopicPartition, PartitionView]


def view_of(data: bytes) -> PartitionView:
    """Return the transactions in a log, whose batches begin at offset 0."""
    everything: list[tuple[int, str]] = []
    committed: list[tuple[int, str]] = []
    ended: list[TransactionRecords] = []
    under_way: dict[int, list[tuple[int, str]]] = {}
    at = 0
    while at < len(data):
        header = read_header(data, at)
        records = read_records(data, at)
        at += header.size
        if header.is_control:
            marker = read_marker(records[0]) if records else None
            found = under_way.pop(header.producer_id, []) if marker else []
            if found:
                ended.append(TransactionRecords(header.producer_id, tuple(value for _, value in found)))
            if marker and marker.is_commit:
                committed += found
            continue
        entries = [(record.offset, (record.value or b"").decode()) for record in records]
        everything += entries
        if header.is_transactional:
            under_way.setdefault(header.producer_id, []).extend(entries)
        else:
            committed += entries
    still_open = [
        TransactionRecords(producer_id, tuple(value for _, value in each)) for producer_id, each in under_way.items()
    ]
    return PartitionView(everything, sorted(committed), ended, still_open)


def check_transactions(ledger: Ledger, views: Views) -> list[Anomaly]:
    """Return all anomalies but those of copies. views: the final logs of all partitions that transactions wrote."""
    owners = {value: each for each in ledger.transactions for value in each.values}
    return [
        *_still_open(views),
        *_wrongly_committed(owners, views),
        *_incomplete(ledger.transactions, views),
        *_mixed(owners, views),
        *_reordered(owners, views),
        *_wrongly_shown(ledger.shown, views),
        *_shown_early(owners, ledger.shown),
    ]


def _still_open(views: Views) -> Iterator[Anomaly]:
    for partition, view in views.items():
        for each in view.open:
            yield Anomaly("open transaction", f"{partition}: producer {each.producer_id} with {each.values}")


def _wrongly_committed(owners: Mapping[str, Transaction], views: Views) -> Iterator[Anomaly]:
    for partition, view in views.items():
        for offset, value in view.committed:
            owner = owners.get(value)
            if owner is None or owner.values[value] != partition:
                yield Anomaly("phantom", f"{partition}@{offset} is {value!r}, and nobody sent it there")
            elif owner.end is TransactionEnd.ABORTED:
                yield Anomaly("aborted read", f"{partition}@{offset}: {value!r} of {owner.name} is committed")


def _incomplete(transactions: Iterable[Transaction], views: Views) -> Iterator[Anomaly]:
    committed = Counter((partition, value) for partition, view in views.items() for _, value in view.committed)
    for each in transactions:
        missing = [value for value, partition in each.values.items() if not committed[partition, value]]
        if each.end is TransactionEnd.COMMITTED and missing:
            yield Anomaly("lost write", f"{each.name} was committed, but not {missing} of {each.values}")
        elif each.end is TransactionEnd.DOUBTFUL and 0 < len(missing) < len(each.values):
            yield Anomaly("torn transaction", f"{each.name}: not committed are {missing} of {each.values}")
        for value, partition in each.values.items():
            if committed[partition, value] > 1:
                yield Anomaly("duplicate", f"{value!r} of {each.name} is committed twice in {partition}")


def _mixed(owners: Mapping[str, Transaction], views: Views) -> Iterator[Anomaly]:
    for partition, view in views.items():
        for each in (*view.ended, *view.open):
            names = {owners[value].name for value in each.values if value in owners}
            if len(names) > 1:
                yield Anomaly("mixed transaction", f"{partition}: {sorted(names)} ended together: {each}")


def _reordered(owners: Mapping[str, Transaction], views: Views) -> Iterator[Anomaly]:
    order = {value: number for number, value in enumerate(owners)}
    for partition, view in views.items():
        last: dict[str, str] = {}
        for offset, value in view.committed:
            if (owner := owners.get(value)) and owner.has_one_producer:
                before = last.get(owner.producer, value)
                if order[before] > order[value]:
                    yield Anomaly("reordered write", f"{partition}@{offset} is {value!r}, behind {before!r}")
                last[owner.producer] = value


def _wrongly_shown(shown: Iterable[FetchAnswer], views: Views) -> Iterator[Anomaly]:
    for each in shown:
        view = views.get(each.partition)
        if view is None:
            continue
        end = each.last_stable_offset if each.is_committed_only else each.high_watermark
        if each.last_stable_offset > each.high_watermark or each.position < each.next_offset > end:
            yield Anomaly("unstable read", f"{each}")
        right = view.committed if each.is_committed_only else view.all
        due = set(right[bisect_left(right, (each.position, "")) : bisect_left(right, (each.next_offset, ""))])
        for record in each.records:
            if record not in due:
                kind = "aborted read" if each.is_committed_only and record in view.all else "inconsistent offset"
                yield Anomaly(kind, f"{each.partition}: {each.reader} was shown {record}")
        for record in sorted(due.difference(each.records)):
            text = f"{each.partition}: {each.reader} went from {each.position} to {each.next_offset} without {record}"
            yield Anomaly("poll skip", text)


def _shown_early(owners: Mapping[str, Transaction], shown: Sequence[FetchAnswer]) -> Iterator[Anomaly]:
    for number, each in enumerate(shown):
        for offset, value in each.records if each.is_committed_only else ():
            owner = owners.get(value)
            if owner and owner.shown_before is not None and number < owner.shown_before:
                text = f"{each.reader} was shown {value!r}, before {owner.name} was to be committed"
                yield Anomaly("early read", f"{each.partition}@{offset}: {text}")


def check_batches(asked: Mapping[int, BatchCommits], views: Views) -> Iterator[Anomaly]:
    """Yield the batches of a sink, by number, that are lost or there twice."""
    there = {value for view in views.values() for _, value in view.committed}
    for number, batch in asked.items():
        committed = [each.name for each in batch.transactions if there & each.values.keys()]
        if len(committed) > 1:
            yield Anomaly("doubled batch", f"batch {number} is committed by {committed}")
        if batch.is_over and not committed:
            yield Anomaly("lost batch", f"batch {number}, of which the sink has said that it is committed")


def copy_of(source: TopicPartition, offset: int, value: str, by: str) -> str:
    """Return the value of a copy. by: distinguishes the copies of one record."""
    return f"{_origin(source, offset, value)}#{by}"


def _origin(source: TopicPartition, offset: int, value: str) -> str:
    return f"{source}@{offset}={value}"


def check_copies(sources: Views, targets: Views, committed: Mapping[TopicPartition, int]) -> Iterator[Anomaly]:
    """Yield the anomalies of copies. committed: the final committed offsets of the group that copied."""
    due = {
        _origin(source, offset, value)
        for source, end in committed.items()
        for offset, value in sources[source].committed
        if offset < end
    }
    copies = Counter(value.rpartition("#")[0] for view in targets.values() for _, value in view.committed)
    for origin in sorted(due - copies.keys()):
        yield Anomaly("lost copy", origin)
    for origin, count in sorted(copies.items()):
        if count > 1:
            yield Anomaly("doubled copy", f"{origin}: {count} times")
        if origin not in due:
            yield Anomaly("unread copy", origin)
