"""Putting one segment in the place of others."""

from __future__ import annotations

import pytest
from log_values import START_MS, check_indexes, offsets_in, open_log, read_all
from swap_values import FOLDER, clean, even, written

from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs

SURVIVING = [offset for base in range(0, 27, 3) if even(base) for offset in range(base, base + 3)]
"""Of segments 0, 9 and 18, as `clean` leaves them."""


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def log(fs: MemoryFs) -> Log:
    """Segments 0, 9, … 45, the last of them written."""
    return written(fs)


def marked(fs: MemoryFs) -> list[str]:
    return [name for name in fs.list(FOLDER) if name.endswith((".cleaned", ".swap"))]


def records_in(data: bytes) -> list[int]:
    """The offset of each record; what is but a header has none."""
    return [
        offset
        for position, header in iterate_headers(data)
        if header.record_count
        for offset in offsets_in(data[position : position + header.size])
    ]


class TestReplacement:
    def test_the_new_segment_is_read_in_place_of_the_old_ones(self, fs: MemoryFs, log: Log) -> None:
        new = clean(fs, log, 0, 3)
        assert records_in(read_all(log)) == [*SURVIVING, *range(27, 48)]
        assert [segment.base_offset for segment in log.segments] == [0, 27, 36, 45]
        assert log.describe()[0] == new
        assert (new.base_offset, new.next_offset, new.largest_timestamp_ms) == (0, 27, START_MS + 8002)
        assert new.first_timestamp_ms == START_MS + 2
        check_indexes(log)
        assert not marked(fs)
        assert log.log_end_offset == 48

    def test_it_is_there_after_a_restart(self, fs: MemoryFs, log: Log) -> None:
        clean(fs, log, 0, 3)
        before = read_all(log)
        log.close()
        again = open_log(fs)
        assert read_all(again) == before
        check_indexes(again)
        assert again.describe()[0].largest_timestamp_ms == START_MS + 8002
