"""A small read of one piece of the file finds the same batches as a walk by headers."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord
from sparklog.log.files import LOG, OFFSET_INDEX, segment_name
from sparklog.log.segment import read_segment as module
from sparklog.log.segment.indexes import OffsetIndex
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import BatchRange, walk
from sparklog.records.records import Record, write_records
from sparklog.testing.memory_fs import MemoryFs
from support.runs.seeds import examples

BASE = 100
FOLDER = "/logs/orders-0"
sizes = st.sampled_from([1, 50, 400, 3_000, 5_000])
gaps = st.sampled_from([0, 0, 1, 7])


def batch(offset: int, size: int, last_offset: int) -> bytes:
    records = [Record(offset=offset + n, timestamp_ms=1_000, value=b"v" * size) for n in range(2)]
    return bytes(write_records(records, last_offset=last_offset))


two_batches = 2 * len(batch(0, 50, 1))
limits = st.sampled_from([1, 100, two_batches, two_batches, 3_000, 8_192, module.SMALL_BYTES, 40_000])


@st.composite
def segments(draw: st.DrawFn) -> tuple[ReadSegment, int]:
    """A segment, whose index may be wrong and whose end may be torn or garbled, and the offset after it."""
    content, index, offset = bytearray(), OffsetIndex(BASE), BASE
    for size, gap, is_indexed in draw(st.lists(st.tuples(sizes, gaps, st.booleans()), min_size=2, max_size=12)):
        offset += gap
        if is_indexed and offset > BASE:
            index.append(offset + draw(st.sampled_from([0] * 15 + [-2, 1])), len(content))
        last_offset = offset + 1 + draw(gaps)
        content += batch(offset, size, last_offset)
        offset = last_offset + 1
    content += draw(st.sampled_from([b""] * 7 + [b"\0" * 5, b"\0" * 100, b"\xff" * 100]))
    del content[len(content) - draw(st.sampled_from([0] * 7 + [1, 70])) :]
    fs = MemoryFs()
    fs.make_dir(FOLDER)
    for suffix, data in ((LOG, content), (OFFSET_INDEX, index.bytes_from(0))):
        file = fs.open(f"{FOLDER}/{segment_name(BASE, suffix)}", create=True)
        file.append(bytes(data))
    return ReadSegment.whole(fs, FOLDER, BASE, mark=""), offset


def located(segment: ReadSegment, *arguments: int, min_one_batch: bool) -> BatchRange | str | None:
    try:
        return segment.locate(*arguments, min_one_batch=min_one_batch)
    except CorruptRecord as error:
        return str(error)


@pytest.mark.slow
@given(segments(), st.integers(0, 30), limits, st.integers(1, 30), st.booleans())
@settings(max_examples=examples(200))
def test_one_piece_tells_what_a_walk_tells(
    made: tuple[ReadSegment, int], offset: int, max_bytes: int, below: int, min_one_batch: bool
) -> None:
    segment, end = made
    asked = (min(end, BASE + offset), max_bytes, min(end, BASE + offset + below))
    found = located(segment, *asked, min_one_batch=min_one_batch)
    with patch.object(module, "SMALL_BYTES", -1):
        walked = located(segment, *asked, min_one_batch=min_one_batch)
    assert found == (walked._replace(data=found.data) if isinstance(found, BatchRange) else walked)
    if isinstance(found, BatchRange) and found.size:
        assert found.data in (b"", segment.file.read_at(found.position, found.size))
        places = list(walk(segment.file, found.position, found.position + found.size))
        assert places[0].last_offset >= asked[0]
        assert places[-1].last_offset + 1 == found.next_offset <= asked[2]
        assert found.size <= max_bytes or (len(places) == 1 and min_one_batch)
