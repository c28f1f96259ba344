"""Descriptions of a log's segments, and the checksums by which replicas compare them."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from sparklog.log.log import Log
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import START_MS, batch, file_content
from support.logs.replacements import FOLDER, clean, content_of, written


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def log(fs: MemoryFs) -> Log:
    """Segments 0, 9, … 45, the last of them written."""
    return written(fs)


def test_segments_are_described(fs: MemoryFs, log: Log) -> None:
    described = log.replacer.describe()
    assert [(each.base_offset, each.next_offset) for each in described] == [
        (0, 9), (9, 18), (18, 27), (27, 36), (36, 45), (45, 48),
    ]  # fmt: skip
    assert sum(each.size_bytes for each in described) == log.size_bytes
    assert [each.largest_timestamp_ms - START_MS for each in described] == [2002, 5002, 8002, 11002, 14002, 15002]
    assert [each.first_timestamp_ms - START_MS for each in described] == [2, 3002, 6002, 9002, 12002, 15002]
    assert len({each.identity for each in described}) == 6
    assert log.replacer.describe() == described
    assert log.segments[:2] == log.replacer.check_sources(described[:2])
    assert file_content(fs, f"{FOLDER}/{0:020d}.log") == content_of(fs, described[:1])


class TestSums:
    def test_equal_files_have_equal_sums_and_a_replaced_one_another(self, fs: MemoryFs, log: Log) -> None:
        before = log.replacer.sums(0, 48, read_bytes=1 << 20)
        assert [(each.base_offset, each.next_offset) for each in before] == [(n, n + 9) for n in range(0, 45, 9)]
        contents = [file_content(fs, f"{FOLDER}/{each.base_offset:020d}.log") for each in before]
        assert [each.crc32c for each in before] == [crc32c(content) for content in contents]
        generation = log.generation
        clean(fs, log, 1, 1)
        after = log.replacer.sums(0, 48, read_bytes=1 << 20)
        assert [one.is_as(two) for one, two in zip(before, after, strict=True)] == [True, False, True, True, True]
        assert log.generation > generation

    def test_some_at_a_time_below_an_offset(self, log: Log) -> None:
        found = log.replacer.sums(9, 36, read_bytes=1)
        assert [each.base_offset for each in found] == [9]
        assert [each.base_offset for each in log.replacer.sums(9, 36, read_bytes=1)] == [
            9,
            18,
        ]  # the first is known by now
        assert [(each.base_offset, each.crc32c) for each in log.replacer.sums(0, 20, read_bytes=0)] == [
            (0, -1),
            (9, -1),
        ]

    def test_a_segment_that_was_cut_and_closed_again_is_read_anew(self, fs: MemoryFs, log: Log) -> None:
        log.replacer.sums(0, 48, read_bytes=1 << 20)
        log.truncate_to(12)
        log.append(batch(1, value=b"y"), leader_epoch=9)
        log.roll()
        content = file_content(fs, f"{FOLDER}/{9:020d}.log")
        assert log.replacer.sums(9, 48, read_bytes=1 << 20)[0].crc32c == crc32c(content)

    def test_a_segment_that_is_written_and_closed_again_is_read_anew(self, fs: MemoryFs, log: Log) -> None:
        log.replacer.sums(0, 48, read_bytes=1 << 20)
        log.truncate_to(18)
        log.as_follower.follow_segment(9)
        log.append(batch(1, value=b"y"), leader_epoch=9)
        log.roll()
        content = file_content(fs, f"{FOLDER}/{9:020d}.log")
        assert log.replacer.sums(9, 48, read_bytes=1 << 20)[0].crc32c == crc32c(content)
