"""Batches of aborted transactions are skipped, whatever the transactions and however the data is cut."""

from __future__ import annotations

import pickle
import struct
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.records import arrow
from sparklog.records.aborted import AbortedRanges, SeenTransactions
from sparklog.records.batch import Codec, assign
from sparklog.records.markers import EndTransactionMarker, write_marker
from sparklog.records.records import Record, write_records

NOBODY = -1


class Step(NamedTuple):
    """A batch of two records of a producer, or the end of its transaction."""

    producer_id: int
    ends: bool | None = None
    """Whether it commits; None: a batch."""


steps = st.lists(
    st.builds(Step, st.integers(NOBODY, 3), st.none())
    | st.builds(Step, st.integers(0, 3) | st.just(2**62), st.none() | st.booleans()),
    max_size=25,
)


def log_of(history: list[Step], codec: Codec = Codec.NONE) -> tuple[bytes, list[tuple[int, int, int]], list[int]]:
    """The bytes, the aborted transactions, and the offsets of records that were not aborted."""
    data, offset = bytearray(), 0
    begun: dict[int, list[int]] = {}
    aborted, kept = [], []
    for producer_id, ends in history:
        if ends is None:
            offsets = [offset, offset + 1]
            batch = write_records(
                [Record(offset=each, key=b"k", value=b"v") for each in offsets],
                producer_id=producer_id, transactional=producer_id != NOBODY, codec=codec,
            )  # fmt: skip
            if producer_id == NOBODY:
                kept += offsets
            else:
                begun.setdefault(producer_id, []).extend(offsets)
        else:
            offsets = [offset]
            batch = write_marker(
                EndTransactionMarker(ends, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0
            )
            if mine := begun.pop(producer_id, []):
                if ends:
                    kept += mine
                else:
                    aborted.append((producer_id, mine[0], offset))
        assign(batch, 0, base_offset=offset, leader_epoch=0)
        data += batch
        offset += len(offsets)
    return bytes(data), aborted, sorted(kept + [each for mine in begun.values() for each in mine])


@pytest.mark.slow
@given(steps, st.sampled_from([Codec.NONE, Codec.LZ4]), st.randoms(use_true_random=False))
def test_counts_agree_with_a_reader_of_single_records(history, codec, random):
    data, aborted, kept = log_of(history, codec)
    random.shuffle(aborted)
    ranges = AbortedRanges(aborted)
    for columns in [("offset",), ("offset", "value")]:
        assert arrow.decode(data, columns=columns, aborted=ranges)["offset"].to_pylist() == kept
    groups = [rows["offset"].to_pylist() for rows in arrow.decode_batches(data, aborted=ranges, group_bytes=100)]
    assert [offset for group in groups for offset in group] == kept


@pytest.mark.slow
@given(steps, st.integers(0, 40), st.integers(0, 40))
def test_the_transactions_within_a_range_are_enough_for_it(history, offset_from, size):
    data, aborted, kept = log_of(history)
    offset_to = offset_from + size
    narrow = AbortedRanges(aborted).within(offset_from, offset_to)
    decoded = arrow.decode(data, aborted=narrow, offset_from=offset_from, offset_to=offset_to)
    assert decoded["offset"].to_pylist() == [each for each in kept if offset_from <= each < offset_to]
    assert narrow == AbortedRanges(each for each in aborted if each[1] < offset_to and each[2] >= offset_from)


def test_ranges_reach_a_task_as_they_are():
    ranges = AbortedRanges([(7, 10, 20), (7, 3, 8), (1, 0, 4)])
    again = pickle.loads(pickle.dumps(ranges))
    assert again == ranges
    assert hash(again) == hash(ranges)
    assert again.contain(np.array([7, 7, 7, 2]), np.array([9, 10, 3, 3])).tolist() == [False, True, True, False]


@pytest.mark.parametrize("is_transactional", [True, False])
def test_only_transactional_batches_are_skipped(is_transactional):
    batch = write_records([Record(offset=0, value=b"v")], producer_id=5, transactional=is_transactional)
    assert arrow.decode(batch, aborted=AbortedRanges([(5, 0, 9)])).num_rows == (not is_transactional)


@pytest.mark.slow
@given(steps)
def test_markers_of_aborts_are_told(history):
    data, aborted, _ = log_of(history)
    seen = SeenTransactions()
    for _ in arrow.decode_batches(data, group_bytes=100, seen=seen):
        pass
    offsets, still_open, offset = [], {}, 0
    for producer_id, ends in history:
        if ends is False:
            offsets.append((producer_id, offset))
        if ends is None and producer_id != NOBODY:
            still_open[producer_id] = offset
        else:
            still_open.pop(producer_id, None)
        offset += 2 if ends is None else 1
    assert seen.aborts == offsets
    assert seen.open == still_open
    without = AbortedRanges(aborted).unlisted(seen.aborts)
    assert without == {*offsets} - {(producer_id, last) for producer_id, _, last in aborted}


def test_markers_that_a_cleaner_has_rewritten_are_told():
    key, value = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 3)
    record = Record(offset=7, timestamp_ms=1_700_000_000_000, key=key, value=value)
    batch = write_records(
        [record], producer_id=5, transactional=True, control=True, delete_horizon_ms=1_600_000_000_000
    )
    seen = SeenTransactions()
    assert list(arrow.decode_batches(batch, seen=seen)) == []
    assert seen.aborts == [(5, 7)]
