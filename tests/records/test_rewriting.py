"""Batches rewritten by compaction equal those of Kafka's cleaner, and those that a plain reader would write."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.base.errors import CorruptRecord
from sparklog.records.arrow import decode
from sparklog.records.batch import (
    DELETE_HORIZON_BIT,
    BatchHeader,
    Codec,
    TimestampType,
    check_batch,
    iterate_headers,
    read_header,
)
from sparklog.records.key_map import KeyMap
from sparklog.records.legacy import convert_messages
from sparklog.records.records import Record, read_records, write_records
from sparklog.records.rewriting import Rewriter
from support.record_values import GOLDEN, LOGS, batch_of, records

NOW_MS, RETENTION_MS = 2_000_000_000_000, 86_400_000
HORIZON_MS = NOW_MS + RETENTION_MS
RULES: dict[str, Any] = {"now_ms": NOW_MS, "delete_retention_ms": RETENTION_MS}


@dataclass(frozen=True)
class Case:
    """A range of a log, and the options of its rewriting."""

    batches: list[bytes]
    kept: set[int]
    keep_empty: set[int]
    rules: dict[str, Any] = field(default_factory=lambda: RULES)

    @property
    def last_offset(self) -> int:
        return read_header(self.batches[-1]).last_offset

    def rewriter(self, **options: int) -> Rewriter:
        return Rewriter(**self.rules, keep_empty=self.keep_empty, last_offset=self.last_offset, **options)

    def rewrite(self, data: bytes, **options: int) -> bytes:
        return self.rewriter(**options).rewrite(data, np.array(sorted(self.kept), np.int64))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    next_offset = 0
    batches, kept = [], set()
    for _ in range(draw(st.integers(1, 4))):
        values = draw(records(6))
        shift = next_offset - values[0].offset
        values = [replace(value, offset=value.offset + shift, sequence=draw(st.integers(-1, 5))) for value in values]
        last_offset = values[-1].offset + draw(st.integers(0, 3))
        next_offset = last_offset + 1 + draw(st.integers(0, 3))
        batches.append(
            bytes(
                write_records(
                    values,
                    codec=draw(st.sampled_from(Codec)),
                    leader_epoch=draw(st.integers(0, 9)),
                    producer_id=draw(st.integers(-1, 2**40)),
                    producer_epoch=draw(st.integers(-1, 9)),
                    delete_horizon_ms=draw(st.sampled_from([None, None, NOW_MS, NOW_MS + 1, HORIZON_MS + 5])),
                    last_offset=last_offset,
                )
            )
        )
        share = draw(st.sampled_from([0, 1, 2, 4]))  # a quarter, or half of them, or all, or none
        kept |= {value.offset for value in values if draw(st.integers(0, 3)) < share}
    bases = [read_header(batch).base_offset for batch in batches]
    return Case(batches, kept, {base for base in bases if draw(st.booleans())})


def kept_plainly(case: Case, batch: bytes) -> tuple[BatchHeader, list[Record]] | None:
    """The expected header and records of a batch; None if the batch is removed."""
    header = read_header(batch)
    horizon = header.delete_horizon_ms
    values = [
        value
        for value in read_records(batch)
        if value.offset in case.kept and not (value.value is None and horizon is not None and horizon <= NOW_MS)
    ]
    if not values:
        if header.base_offset not in case.keep_empty and header.last_offset != case.last_offset:
            return None
        bits = header.attributes & 8
        return header._replace(batch_length=49, attributes=bits, base_timestamp=-1, record_count=0), []
    gets_horizon = horizon is None and any(value.value is None for value in values)
    if len(values) == header.record_count and not gets_horizon:
        return header, values
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    changed = header._replace(
        attributes=header.attributes | (DELETE_HORIZON_BIT if gets_horizon else 0),
        base_timestamp=HORIZON_MS if gets_horizon else values[0].timestamp_ms if horizon is None else horizon,
        max_timestamp=header.max_timestamp if append_time else max(-1, *(value.timestamp_ms for value in values)),
        record_count=len(values),
    )
    return changed, values


@pytest.mark.slow
@settings(max_examples=30)
@given(cases())
def test_the_output_has_the_records_that_a_plain_reader_keeps(case: Case) -> None:
    data = b"".join(case.batches)
    rewriter = case.rewriter()
    output = rewriter.rewrite(data, np.array(sorted(case.kept), np.int64))

    expected = [(batch, plain) for batch in case.batches if (plain := kept_plainly(case, batch))]
    found = list(iterate_headers(output))
    assert sum(header.size for _, header in found) == len(output)
    for (position, header), (batch, (plain_header, plain_records)) in zip(found, expected, strict=True):
        check_batch(output, position)
        unsized = plain_header._replace(batch_length=header.batch_length, crc=header.crc)
        assert header == unsized
        assert read_records(output, position) == plain_records
        if plain_header == read_header(batch):
            assert output[position : position + header.size] == batch

    result = rewriter.result
    assert (result.batches_read, result.bytes_read, result.bytes_written) == (len(case.batches), len(data), len(output))
    assert result.records_read == sum(read_header(batch).record_count for batch in case.batches)
    assert result.records_kept == sum(len(values) for _, (_, values) in expected)
    assert result.is_changed == (output != data)
    assert case.rewrite(output) == output
    one_by_one = case.rewriter()
    kept = np.array(sorted(case.kept), np.int64)
    assert b"".join(one_by_one.rewrite(batch, kept) for batch in case.batches) == output
    assert one_by_one.result == result
    assert case.rewrite(data, group_bytes=1) == output


def pruned(values: list[Record], **options: Any) -> bytes:
    return bytes(write_records(values, **options))


def rewritten(batch: bytes, kept: list[int], **options: Any) -> tuple[bytes, Rewriter]:
    rewriter = Rewriter(**RULES | options)
    return rewriter.rewrite(batch, np.array(kept, np.int64)), rewriter


def test_a_compacted_log_of_kafka_has_the_same_bytes_here() -> None:
    """The output of Kafka's cleaner for five closed segments; it keeps emptied segments as empty files."""
    logs = sorted((GOLDEN / "compacted-before-0").glob("*.log"))[:-1]
    key_map = KeyMap(1 << 20, bytes(16))
    for log in logs:
        rows = decode(log.read_bytes(), columns=["key", "offset"])
        assert key_map.put(rows["key"], rows["offset"].to_numpy())
    kafka = {path.name: path.read_bytes() for path in (GOLDEN / "compacted-0").glob("*.log")}
    horizon = next(header.delete_horizon_ms for _, header in iterate_headers(kafka["00000000000000001480.log"]))
    assert horizon is not None

    rewriter = Rewriter(now_ms=horizon - 5, delete_retention_ms=5, last_offset=1799)
    for log in logs:
        assert rewriter.rewrite(log.read_bytes(), key_map.newest_offsets()) == kafka.get(log.name, b"")
    assert rewriter.result.next_delete_horizon_ms == horizon
    assert rewriter.result.records_kept == len(key_map) == 60


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem[-4:]}")
def test_rewriting_can_keep_all_of_a_log_that_kafka_wrote(path: Path) -> None:
    data = path.read_bytes()
    before = decode(data)
    offsets = before["offset"].to_pylist()
    output, rewriter = rewritten(data, offsets, now_ms=0)
    assert decode(output).equals(before)
    assert rewriter.result.records_kept == rewriter.result.records_read
    assert (output == data) == (not rewriter.result.is_changed)
    if not before["value"].null_count:
        assert output == data


def test_tombstones_wait_for_the_horizon_that_the_first_pass_gives_them() -> None:
    values = [
        Record(offset=0, key=b"a", value=b"1", timestamp_ms=500),
        Record(offset=1, key=b"b", value=None, timestamp_ms=501),
    ]
    for codec in Codec:
        first, rewriter = rewritten(pruned(values, codec=codec), [0, 1])
        assert read_header(first).delete_horizon_ms == HORIZON_MS == rewriter.result.next_delete_horizon_ms
        assert read_records(first) == values
        assert rewriter.result.is_changed
        again, rewriter = rewritten(first, [0, 1], now_ms=HORIZON_MS - 1)
        assert again == first
        assert not rewriter.result.is_changed
        assert rewriter.result.next_delete_horizon_ms == HORIZON_MS
        after, rewriter = rewritten(first, [0, 1], now_ms=HORIZON_MS)
        assert read_records(after) == values[:1]
        assert rewriter.result.next_delete_horizon_ms is None
        assert rewritten(after, [0], now_ms=HORIZON_MS)[0] == after


def test_a_tombstone_alone_in_its_batch_goes_with_the_batch_or_leaves_its_header() -> None:
    batch = pruned([Record(offset=7, key=b"a", timestamp_ms=1, sequence=3)], producer_id=5, delete_horizon_ms=NOW_MS)
    assert rewritten(batch, [7])[0] == b""
    for options in ({"last_offset": 7}, {"keep_empty": {7}}):
        left, rewriter = rewritten(batch, [7], **options)
        header = check_batch(left)
        assert (header.size, header.record_count, header.producer_id, header.base_sequence) == (61, 0, 5, 3)
        assert (header.base_timestamp, header.max_timestamp, header.attributes) == (-1, 1, 0)
        assert rewritten(left, [], **options)[0] == left
        assert rewriter.result.records_kept == 0


def test_records_of_an_append_time_batch_keep_the_brokers_time() -> None:
    values = [
        Record(offset=i, key=b"k", value=b"v", timestamp_ms=900, timestamp_type=TimestampType.LOG_APPEND_TIME)
        for i in range(3)
    ]
    left, _ = rewritten(pruned(values), [1, 2])
    assert read_records(left) == values[1:]
    assert read_header(left).max_timestamp == 900


def test_bytes_that_are_no_whole_batches_are_refused() -> None:
    batch = pruned([Record(offset=0, key=b"k", value=b"v")])
    flipped = bytearray(batch)
    flipped[-1] ^= 1
    for damaged, reason in (
        (batch[:-1], "cut off"),
        (batch + b"\0", "cut off"),
        (bytes(flipped), "CRC"),
        (batch[:16] + b"\7" + batch[17:], "magic 7"),
        (batch_of(b"\0", count=1), "length"),
        (batch + batch_of(b"", count=1, attributes=7), "no codec 7"),
    ):
        with pytest.raises(CorruptRecord, match=reason):
            rewritten(damaged, [0])


def message(offset: int, key: bytes, value: bytes | None, timestamp_ms: int) -> bytes:
    """A message of format v1."""
    sized = (struct.pack(">i", len(key)) + key, struct.pack(">i", -1) if value is None else b"\0\0\0\1" + value)
    body = struct.pack(">BBq", 1, 0, timestamp_ms) + b"".join(sized)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_message_sets_of_old_formats_become_batches() -> None:
    old = message(0, b"a", b"1", 10) + message(1, b"b", None, 11) + message(3, b"a", b"2", 12)
    batch = pruned([Record(offset=4, key=b"c", value=b"3", timestamp_ms=13)])
    output, rewriter = rewritten(old + batch, [1, 3, 4])
    expected = [
        Record(offset=1, key=b"b", timestamp_ms=11),
        Record(offset=3, key=b"a", value=b"2", timestamp_ms=12),
        Record(offset=4, key=b"c", value=b"3", timestamp_ms=13),
    ]
    headers = list(iterate_headers(output))
    assert [value for position, _ in headers for value in read_records(output, position)] == expected
    assert headers[0][1].delete_horizon_ms == HORIZON_MS
    assert rewriter.result.is_changed
    assert rewriter.result.bytes_read == len(old + batch)
    with pytest.raises(CorruptRecord, match="cut off"):
        rewritten(old[:-1], [0])


def test_old_messages_of_which_everything_stays_are_changed_all_the_same() -> None:
    old = message(0, b"a", b"1", 10) + message(1, b"b", b"2", 11)
    output, rewriter = rewritten(old, [0, 1])
    assert output == bytes(convert_messages(old)[0])
    assert rewriter.result.is_changed


def test_offsets_of_a_log_stay_in_order() -> None:
    data = b"".join(path.read_bytes() for path in sorted((GOLDEN / "segments-0").glob("*.log")))
    offsets = decode(data, columns=["offset"])["offset"].to_numpy()
    output, _ = rewritten(data, offsets[::3].tolist(), last_offset=int(offsets[-1]))
    assert decode(output, columns=["offset"])["offset"].to_pylist() == offsets[::3].tolist()
    assert all(a.last_offset < b.base_offset for (_, a), (_, b) in pairwise(iterate_headers(output)))
    assert decode(output)["value"].to_pylist() == decode(data)["value"].to_pylist()[::3]
