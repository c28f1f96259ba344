"""The checks of transactions report each anomaly, and nothing that Kafka allows."""

from __future__ import annotations

import dataclasses

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.records.markers import EndTransactionMarker, write_marker
from sparklog.records.records import Record, write_records
from sparklog.testing.sim.checks.transactions import (
    BatchCommits,
    FetchAnswer,
    Ledger,
    PartitionView,
    check_batches,
    check_copies,
    check_transactions,
    copy_of,
    view_of,
)
from sparklog.testing.sim.command import describe
from sparklog.testing.sim.faults import FaultKind
from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import scenario_of
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def batch(offset: int, value: str, producer_id: int = 7) -> bytes:
    records = [Record(offset=offset, value=value.encode(), sequence=0)]
    return bytes(write_records(records, producer_id=producer_id, producer_epoch=0, transactional=True))


def marker(offset: int, *, is_commit: bool, producer_id: int = 7) -> bytes:
    data = write_marker(EndTransactionMarker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0)
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


COMMITTED = view_of(batch(0, "x") + marker(1, is_commit=True))
ABORTED = view_of(batch(0, "x") + marker(1, is_commit=False))
OPEN = view_of(batch(0, "x"))
NOTHING = view_of(b"")


def kinds(ledger: Ledger, views: dict[TopicPartition, PartitionView]) -> list[str]:
    return [anomaly.kind for anomaly in check_transactions(ledger, views)]


def one(end: str, *values: str) -> Ledger:
    """A transaction of partition A that its producer takes for committed, doubtful or aborted."""
    ledger = Ledger()
    transaction = ledger.begin("p/0")
    for value in values:
        transaction.send(value, A)
    if end != "aborted":
        ledger.ask_for_commit(transaction)
    if end == "committed":
        transaction.be_committed()
    return ledger


def test_a_view_tells_what_markers_commit_whoever_writes_between() -> None:
    view = view_of(
        batch(0, "x", 1) + batch(1, "y", 2) + marker(2, is_commit=False, producer_id=2) + batch(3, "z", 1)
        + marker(4, is_commit=True, producer_id=1)
    )  # fmt: skip
    assert view.committed == [(0, "x"), (3, "z")]
    assert view.all == [(0, "x"), (1, "y"), (3, "z")]
    assert not view.open


@pytest.mark.parametrize(
    ("end", "view"),
    [("committed", COMMITTED), ("doubtful", COMMITTED), ("doubtful", ABORTED), ("aborted", ABORTED)],
)
def test_a_transaction_that_ended_as_its_producer_may_expect(end: str, view: PartitionView) -> None:
    assert kinds(one(end, "x"), {A: view}) == []


@pytest.mark.parametrize(
    ("end", "view", "kind"),
    [
        ("committed", ABORTED, "lost write"),
        ("aborted", COMMITTED, "aborted read"),
        ("aborted", OPEN, "open transaction"),
    ],
)
def test_a_transaction_that_ended_otherwise(end: str, view: PartitionView, kind: str) -> None:
    assert kinds(one(end, "x"), {A: view}) == [kind]


def test_a_torn_transaction_that_nobody_acknowledged() -> None:
    ledger = one("doubtful", "x")
    ledger.transactions[0].send("y", B)
    assert kinds(ledger, {A: COMMITTED, B: NOTHING}) == ["torn transaction"]
    assert kinds(ledger, {A: ABORTED, B: NOTHING}) == []


def test_values_that_nobody_sent_or_that_are_there_twice() -> None:
    twice = view_of(batch(0, "x") + batch(1, "x") + marker(2, is_commit=True))
    assert kinds(Ledger(), {A: COMMITTED}) == ["phantom"]
    assert kinds(one("committed", "x"), {A: twice}) == ["duplicate"]


def test_a_value_in_a_partition_that_it_was_not_sent_to() -> None:
    assert kinds(one("committed", "x"), {A: COMMITTED, B: COMMITTED}) == ["phantom"]


def test_committed_records_that_are_not_in_the_order_of_their_producer() -> None:
    backwards = view_of(batch(0, "y") + batch(1, "x") + marker(2, is_commit=True))
    assert kinds(one("committed", "x", "y"), {A: backwards}) == ["reordered write"]
    of_another = one("committed", "x")
    of_another.begin("q/0").send("y", A)
    of_another.ask_for_commit(of_another.transactions[1])
    apart = view_of(
        batch(0, "y", 8) + marker(1, is_commit=True, producer_id=8) + batch(2, "x") + marker(3, is_commit=True)
    )
    assert kinds(of_another, {A: apart}) == []


def test_a_record_that_a_reader_sees_before_its_producer_asks_for_the_commit() -> None:
    ledger = one("aborted", "x")
    ledger.shown += [SHOWN._replace(is_committed_only=False), SHOWN]
    ledger.ask_for_commit(ledger.transactions[0])
    ledger.shown.append(SHOWN)
    assert kinds(ledger, {A: COMMITTED}) == ["early read"]


def test_records_of_two_transactions_that_end_together() -> None:
    ledger = one("aborted", "x")
    ledger.begin("p/1").send("y", A)
    together = view_of(batch(0, "x") + batch(1, "y") + marker(2, is_commit=False))
    assert kinds(ledger, {A: together}) == ["mixed transaction"]


SHOWN = FetchAnswer(
    reader="r", is_committed_only=True, partition=A, position=0, next_offset=2, records=((0, "x"),),
    last_stable_offset=2, high_watermark=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("end", "view", "shown", "found"),
    [
        ("committed", COMMITTED, SHOWN, []),
        ("aborted", ABORTED, SHOWN._replace(records=()), []),
        ("aborted", ABORTED, SHOWN._replace(is_committed_only=False), []),
        ("aborted", ABORTED, SHOWN, ["aborted read"]),
        ("committed", COMMITTED, SHOWN._replace(records=()), ["poll skip"]),
        ("committed", COMMITTED, SHOWN._replace(records=((0, "other"),)), ["inconsistent offset", "poll skip"]),
        ("committed", COMMITTED, SHOWN._replace(last_stable_offset=1), ["unstable read"]),
        ("committed", COMMITTED, SHOWN._replace(high_watermark=1), ["unstable read"]),
        ("committed", COMMITTED, SHOWN._replace(is_committed_only=False, last_stable_offset=0), []),
        (
            "committed",
            COMMITTED,
            SHOWN._replace(is_committed_only=False, last_stable_offset=0, high_watermark=1),
            ["unstable read"],
        ),
        ("committed", COMMITTED, SHOWN._replace(position=2, records=(), last_stable_offset=0), []),
    ],
)
def test_what_a_reader_was_shown(end: str, view: PartitionView, shown: FetchAnswer, found: list[str]) -> None:
    ledger = one(end, "x")
    ledger.shown.append(shown)
    assert kinds(ledger, {A: view}) == found


def test_each_input_below_the_committed_offset_is_copied_once() -> None:
    copied, again = copy_of(A, 0, "x", "c/0"), copy_of(A, 0, "x", "c/1")
    once = view_of(batch(0, copied) + marker(1, is_commit=True))
    twice = view_of(batch(0, copied) + batch(1, again) + marker(2, is_commit=True))

    def found(target: PartitionView, end: int) -> list[str]:
        return [anomaly.kind for anomaly in check_copies({A: COMMITTED}, {B: target}, {A: end})]

    assert found(once, 2) == []
    assert found(NOTHING, 0) == []
    assert found(NOTHING, 2) == ["lost copy"]
    assert found(twice, 2) == ["doubled copy"]
    assert found(once, 0) == ["unread copy"]


def test_a_batch_of_a_sink_is_there_once() -> None:
    ledger = Ledger()
    for number in range(2):
        ledger.begin(f"{number}/0").send(f"x{number}", A)
    once, twice = view_of(batch(0, "x0") + marker(1, is_commit=True)), view_of(
        batch(0, "x0") + batch(1, "x1") + marker(2, is_commit=True)
    )  # fmt: skip

    def found(view: PartitionView, *, is_over: bool) -> list[str]:
        return [anomaly.kind for anomaly in check_batches({0: BatchCommits(ledger.transactions, is_over)}, {A: view})]

    assert found(once, is_over=True) == found(NOTHING, is_over=False) == []
    assert found(NOTHING, is_over=True) == ["lost batch"]
    assert found(twice, is_over=True) == ["doubled batch"]


def test_producers_of_one_batch_end_as_a_whole_in_any_order() -> None:
    ledger = Ledger()
    winners = [ledger.begin(f"task-{number}/0") for number in range(2)]
    winners[0].send("x", A)
    winners[1].send("y", A)
    ledger.ask_for_commit(ledger.join("batch/0", winners))
    records, end = batch(0, "y", 8) + batch(1, "x"), marker(2, is_commit=True)
    assert kinds(ledger, {A: view_of(records + end + marker(3, is_commit=True, producer_id=8))}) == []
    assert kinds(ledger, {A: view_of(records + end + marker(3, is_commit=False, producer_id=8))}) == [
        "torn transaction"
    ]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    "kinds", [[FaultKind.RESTART, FaultKind.EXPIRE], [FaultKind.KILL, FaultKind.PAUSE, FaultKind.ISOLATE]], ids=str
)
def test_transactions_are_whole_whatever_fails(kinds: list[FaultKind]) -> None:
    for seed in seeds(2, soak=20):
        verdict = run(dataclasses.replace(scenario_of(seed, kinds=kinds), transacts=True))
        assert verdict.anomalies == [], describe(verdict)
