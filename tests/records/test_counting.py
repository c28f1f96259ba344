"""Counting by headers gives the numbers that decoding gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from sparklog.records.aborted import AbortedRanges, SeenTransactions
from sparklog.records.arrow import decode_batches
from sparklog.records.batch import Codec
from sparklog.records.counting import count_records
from sparklog.records.markers import EndTransactionMarker, write_marker
from sparklog.records.records import Record, write_records
from support.runs.seeds import examples

pytestmark = pytest.mark.slow


@st.composite
def logs(draw) -> bytes:
    """Batches with and without gaps, of every codec, in transactions or not, with markers and old messages between."""
    data, offset = bytearray(), draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["records", "transaction", "marker", "messages"]))
        if kind == "marker":
            marker = write_marker(
                EndTransactionMarker(draw(st.booleans()), 0), producer_id=1, producer_epoch=0, timestamp_ms=0
            )
            marker[:8] = offset.to_bytes(8, "big")
            data += marker
            offset += 1
            continue
        offsets = sorted(draw(st.sets(st.integers(offset, offset + 6), min_size=1)))
        records = [Record(offset=each, timestamp_ms=each, value=b"v" * 20) for each in offsets]
        if kind == "messages":
            builder = LegacyRecordBatchBuilder(draw(st.sampled_from([0, 1])), 0, 1 << 20)
            for record in records:
                builder.append(record.offset, record.timestamp_ms, None, record.value)
            data += builder.build()
            offset = offsets[-1] + 1
            continue
        codec = draw(st.sampled_from(list(Codec)))
        last = draw(st.integers(offsets[-1], offsets[-1] + 2))
        is_in_transaction = kind == "transaction"
        producer = {"producer_id": draw(st.integers(1, 2)), "producer_epoch": 0} if is_in_transaction else {}
        data += write_records(records, codec=codec, transactional=is_in_transaction, last_offset=last, **producer)
        offset = last + 1 + draw(st.integers(0, 2))
    return bytes(data)


@settings(max_examples=examples(300), deadline=None)
@given(logs(), st.integers(0, 60), st.integers(0, 60), st.tuples(st.integers(0, 30), st.integers(0, 30)), st.data())
def test_counts_are_those_of_decoding(data, offset_from, offset_to, range_, cut):
    aborted = AbortedRanges([(1, min(range_), max(range_))])
    data = data[: len(data) - cut.draw(st.integers(0, 30))]  # the last batch may be cut off
    expected_seen, found_seen = SeenTransactions(), SeenTransactions()
    bounds = {"offset_from": offset_from, "offset_to": offset_to, "aborted": aborted}
    expected = sum(rows.num_rows for rows in decode_batches(data, seen=expected_seen, **bounds))
    assert count_records(data, seen=found_seen, **bounds) == expected
    assert (found_seen.aborts, found_seen.open) == (expected_seen.aborts, expected_seen.open)
