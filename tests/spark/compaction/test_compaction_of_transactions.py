"""Passes of compaction over logs with transactions: readers of committed records see no difference but older values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.records.markers import EndTransactionMarker
from sparklog.spark.compaction import task
from sparklog.spark.compaction.shuffle import rewrite_sorted, segment_rows
from sparklog.spark.compaction.work import CompactionOutcome, PartitionWork
from support.jobs.compactions import settings_of
from support.logs.transactional_log import Row, TransactionalLog, committed, write_randomly
from support.runs.seeds import examples

pytestmark = pytest.mark.slow

NOW_MS, RETENTION_MS = 1_800_000_000_000, 1_000


@pytest.fixture
def log(tmp_path: Path) -> TransactionalLog:
    return TransactionalLog(tmp_path, delete_retention_ms=RETENTION_MS)


def by_task(log: TransactionalLog, work: PartitionWork, now_ms: int) -> CompactionOutcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "Maintenance", lambda **_: log)
        ((_, outcome),) = task.compact_in_task([work], settings_of("", now_ms=now_ms))
    return outcome


def by_shuffle(log: TransactionalLog, work: PartitionWork, now_ms: int) -> CompactionOutcome:
    """Compact as Spark's shuffle does: the newest offset of each key, from the rows of all segments."""
    newest: dict[tuple[int, int], int] = {}
    for index in range(len(work.plan.segments)):
        for rows in segment_rows([work], 0, index, settings_of("", now_ms=now_ms)):
            for row in rows.to_pylist():
                key = (row["high"], row["low"]) if row["offset"] >= 0 else (row["offset"], 0)
                newest[key] = max(newest.get(key, row["offset"]), row["offset"])
    offsets = np.array(sorted(newest.values()), np.int64)
    return rewrite_sorted(work, settings_of("", now_ms=now_ms), log, iter([offsets]))  # type: ignore[arg-type]


def compact(
    log: TransactionalLog, now_ms: int = NOW_MS, how=by_task, last_stable_offset: int | None = None
) -> CompactionOutcome:
    work = log.work(log.describe(log.offset if last_stable_offset is None else last_stable_offset), now_ms)
    assert work
    outcome: CompactionOutcome = how(log, work, now_ms)
    assert outcome.outcome in {"compacted", "unchanged"}, outcome.reason
    return outcome


def newest_of(log: TransactionalLog) -> dict[bytes, tuple[int, bytes]]:
    """Of each key the newest committed value and its offset, unless that is a tombstone."""
    newest = {key: (offset, value) for offset, (key, value) in committed(log)}
    return {key: (offset, value) for key, (offset, value) in newest.items() if value is not None}


def markers(log: TransactionalLog) -> list[int]:
    return [each.offset for each in log.read() if isinstance(each.what, EndTransactionMarker)]


def rows(log: TransactionalLog) -> list[tuple[int, Row]]:
    return [(each.offset, each.what) for each in log.read() if not isinstance(each.what, EndTransactionMarker)]


@settings(max_examples=examples(25), deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["offset", "timestamp"]), st.data())
def test_readers_of_committed_records_see_the_same_newest_values_after_any_passes(
    rng: random.Random, strategy: str, data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        log = TransactionalLog(Path(directory), delete_retention_ms=RETENTION_MS, compaction_strategy=strategy)
        producers = [0] * 4
        for number in range(data.draw(st.integers(1, 4), "passes")):
            write_randomly([log], rng, data.draw(st.integers(0, 40), "batches"), producers)
            before, seen = newest_of(log), set(committed(log))
            how = data.draw(st.sampled_from([by_task, by_shuffle]), "how")
            compact(log, NOW_MS + number * data.draw(st.sampled_from([0, RETENTION_MS // 2, RETENTION_MS])), how)
            assert newest_of(log) == before
            assert set(committed(log)) <= seen  # offsets included: none is changed, and nothing aborted appears
            assert {row for row in rows(log) if row[0] < log.cleaned_offset} <= set(committed(log))
            check_markers(log)


def check_markers(log: TransactionalLog) -> None:
    """Check that every batch of a transaction, even a bare header, has the marker of its transaction."""
    for _, header in log.batches:
        if (end := log.ends.get(header.base_offset)) is not None:
            assert end in markers(log), f"the batch at {header.base_offset} has lost its marker at {end}"


def test_aborted_records_go_and_do_not_supersede_committed_ones(log: TransactionalLog) -> None:
    log.send([(b"a", b"1"), (b"b", b"1")], 1)
    log.end(1, commit=True)
    log.send([(b"a", b"2"), (b"b", None)], 2)
    log.roll()
    log.send([(b"c", b"3")], 2)
    log.end(2, commit=False)
    log.roll()
    log.send([(b"d", b"4")])
    compact(log)
    assert rows(log) == [(0, (b"a", b"1")), (1, (b"b", b"1")), (7, (b"d", b"4"))]
    assert markers(log) == [2, 6]


def test_records_of_committed_transactions_supersede_and_their_tombstones_wait(log: TransactionalLog) -> None:
    log.send([(b"a", b"1"), (b"b", b"1")])
    log.send([(b"a", b"2"), (b"b", None)], 1)
    log.end(1, commit=True)
    log.roll()
    log.send([(b"d", b"4")])
    outcome = compact(log)
    assert rows(log) == [(2, (b"a", b"2")), (3, (b"b", None)), (5, (b"d", b"4"))]
    assert outcome.next_delete_horizon_ms == NOW_MS + RETENTION_MS
    compact(log, NOW_MS + RETENTION_MS)
    assert rows(log) == [(2, (b"a", b"2")), (5, (b"d", b"4"))]


@pytest.mark.parametrize("how", [by_task, by_shuffle])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_transaction_is_looked_for_behind_the_segments_that_are_compacted(
    log: TransactionalLog, how, is_commit: bool
) -> None:
    log.send([(b"a", b"1")])
    log.send([(b"a", b"2")], 1)
    log.roll()
    log.send([(b"b", b"3")])
    log.send([(b"c", b"4")], 2)  # open
    log.end(1, commit=is_commit)
    log.send([(b"c", b"4")], 1)  # another transaction of the same producer, open
    compact(log, how=how, last_stable_offset=5)
    assert rows(log)[0] == ((1, (b"a", b"2")) if is_commit else (0, (b"a", b"1")))


def test_a_transaction_that_does_not_end_below_the_last_stable_offset_is_a_finding(log: TransactionalLog) -> None:
    log.send([(b"a", b"1")], 5)
    log.roll()
    log.send([(b"a", b"2")])
    before = log.content
    work = log.work(log.describe(last_stable_offset=2), NOW_MS)
    assert work
    outcome = by_task(log, work, NOW_MS)
    assert outcome.outcome == "quarantined"
    assert "producer 5 that began at offset 0 has not ended" in outcome.reason
    assert log.content == before


def test_nothing_above_the_last_stable_offset_is_touched(log: TransactionalLog) -> None:
    log.send([(b"a", b"1")])
    log.send([(b"a", b"2")])
    log.roll()
    log.send([(b"a", b"3")], 1)
    log.roll()
    log.send([(b"a", b"4")])
    compact(log, last_stable_offset=2)
    assert rows(log) == [(1, (b"a", b"2")), (2, (b"a", b"3")), (3, (b"a", b"4"))]


def passes(log: TransactionalLog) -> Iterator[list[int]]:
    """The markers after each of some passes, a retention time apart, without more being written."""
    for number in range(5):
        compact(log, NOW_MS + number * RETENTION_MS)
        yield markers(log)


def test_a_marker_goes_a_retention_time_after_the_pass_that_found_it_bare(log: TransactionalLog) -> None:
    for producer_id, is_commit in ((1, True), (2, False)):
        log.send([(b"a", b"1")], producer_id)
        log.end(producer_id, commit=is_commit)
    log.send([(b"a", b"2")])
    for producer_id in (1, 2):
        log.send([(b"b", b"3")], producer_id, transactional=False)
    log.roll()
    log.send([(b"c", b"3")])
    # Removes the batches; finds the markers bare, and dates them; removes them.
    assert list(passes(log)) == [[1, 3], [1, 3], [], [], []]


def test_a_marker_stays_while_the_last_batch_of_its_producer_is_there_as_a_header(log: TransactionalLog) -> None:
    log.send([(b"a", b"1")], 1)
    log.end(1, commit=False)
    log.send([(b"a", b"2")], 3)
    log.end(3, epoch=1, commit=False)  # bumps the epoch: this marker is what is known of the producer
    log.send([(b"a", b"3")])
    log.roll()
    log.send([(b"c", b"3")])
    *_, last = passes(log)
    assert last == [1]
    kept = [(header.base_offset, header.producer_epoch, header.record_count) for _, header in log.batches[:3]]
    assert kept == [(0, 0, 0), (1, 0, 1), (3, 1, 0)]
    assert all(header.is_transactional for _, header in log.batches[:3])


def test_a_flipped_bit_in_a_marker_costs_no_records(log: TransactionalLog) -> None:
    log.send([(b"a", b"1")], 1)
    log.roll()
    log.end(1, commit=True)
    log.roll()
    log.send([(b"a", b"2")])
    path = log.folder / f"{1:020}.log"
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"\0\0\0\1", 61) + 3] = 0  # an abort marker, by its type
    path.write_bytes(damaged)
    before = log.content
    work = log.work(log.describe(last_stable_offset=2), NOW_MS)
    assert work
    outcome = by_task(log, work, NOW_MS)
    assert outcome.outcome == "quarantined"
    assert "CRC" in outcome.reason
    assert log.content == before
