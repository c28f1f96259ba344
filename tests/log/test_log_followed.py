"""A follower's log rolls where its leader's rolled, returns to a former segment, and accepts a cleaner's gaps."""

from __future__ import annotations

import random

import pytest

from sparklog.base.errors import InvalidRecord, OffsetOutOfRange, UnexpectedGap
from sparklog.base.fs import Fs
from sparklog.log.files import LOG
from sparklog.log.log import Log
from sparklog.records.records import Record, write_records
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import START_MS, batch, file_content, offsets_in, open_log, read_all, topic_config

UNLIMITED = topic_config(internal_segment_bytes=1 << 20)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def log_files(fs: Fs, log: Log) -> dict[int, bytes]:
    """The contents of the segments that are not empty, by base offset."""
    found = {segment.base_offset: file_content(fs, segment.path(LOG)) for segment in log.segments}
    return {base: data for base, data in found.items() if data}


def copy(leader: Log, follower: Log, max_bytes: int = 150) -> None:
    """Copy the leader's whole log, as a fetcher does."""
    while follower.log_end_offset < leader.log_end_offset:
        found = leader.read(follower.log_end_offset, max_bytes, for_replica=True)
        follower.as_follower.follow_segment(found.segment_base_offset)
        follower.as_follower.append(found.read(), rolls=False)
    follower.as_follower.follow_segment(leader.segments[-1].base_offset)


def test_a_follower_rolls_where_its_leader_has_and_nowhere_else() -> None:
    fs = MemoryFs()
    leader = open_log(fs, "/leader/t-0", config=topic_config(internal_segment_bytes=300))
    follower = open_log(fs, "/follower/t-0", config=topic_config(internal_segment_bytes=100))
    for number in range(20):
        leader.append(batch(1 + number % 3, value=b"v" * (number * 7 % 40)), leader_epoch=0)
    copy(leader, follower)
    assert len(bases(leader)) > 3
    assert log_files(fs, follower) == log_files(fs, leader)


def test_a_slice_says_which_segment_the_next_batch_is_in() -> None:
    log = open_log(MemoryFs())
    assert log.read(0, 100).segment_base_offset == 0
    log.append(batch(3), leader_epoch=0)
    log.roll()
    log.append(batch(2), leader_epoch=0)
    assert [log.read(offset, 1000).segment_base_offset for offset in (0, 2, 3, 4, 5)] == [0, 0, 3, 3, 3]
    assert log.read(0, 1, min_one_batch=False).segment_base_offset == 0


def test_a_segment_that_a_truncation_emptied_is_left_where_the_leader_has_not_rolled() -> None:
    fs = MemoryFs()
    log = open_log(fs, config=UNLIMITED)
    log.append(batch(3), leader_epoch=0)
    log.roll()
    log.append(batch(2), leader_epoch=0)
    log.truncate_to(3)
    assert (bases(log), log.as_follower.is_at_segment(0), log.as_follower.is_at_segment(3)) == ([0, 3], False, True)
    log.as_follower.follow_segment(0)
    assert (bases(log), log.as_follower.is_at_segment(0)) == ([0], True)
    log.append(batch(4), leader_epoch=1)
    log.flush()
    log.close()
    again = open_log(fs, config=UNLIMITED)
    assert bases(again) == [0]
    assert offsets_in(read_all(again)) == list(range(7))


def test_a_log_that_goes_on_in_a_segment_before_is_whole_after_a_crash() -> None:
    fs = MemoryFs()
    log = open_log(fs, config=UNLIMITED)
    log.append(batch(3), leader_epoch=0)
    log.roll()
    log.append(batch(2), leader_epoch=0)
    log.truncate_to(3)
    log.as_follower.follow_segment(0)
    log.append(batch(4), leader_epoch=1)
    log.flush()
    log.roll()
    log.append(batch(1), leader_epoch=1)
    log.flush()
    for folder in ("/", "/logs"):
        fs.flush_dir(folder)
    fs = fs.crash(random.Random(1))
    again = open_log(fs, config=UNLIMITED, clean=False, recovery_point=log.recovery_point)
    assert (bases(again), offsets_in(read_all(again))) == ([0, 7], list(range(8)))


def test_a_segment_that_is_written_again_during_a_flush_is_flushed_again_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = MemoryFs()
    log = open_log(fs, config=UNLIMITED)
    log.append(batch(3), leader_epoch=0)
    log.roll()
    log.append(batch(2), leader_epoch=0)
    log.truncate_to(3)
    with monkeypatch.context() as patch:
        patch.setattr(fs, "flush_dir", lambda _: log.as_follower.follow_segment(0))
        log.flush()
    log.append(batch(4), leader_epoch=0)
    log.roll()
    log.append(batch(1), leader_epoch=0)
    log.flush()
    for folder in ("/", "/logs", log.folder):
        fs.flush_dir(folder)
    fs = fs.crash(random.Random(1))
    again = open_log(fs, config=UNLIMITED, clean=False, recovery_point=log.recovery_point)
    assert (bases(again), offsets_in(read_all(again))) == ([0, 7], list(range(8)))


def test_an_empty_follower_can_have_the_whole_of_a_segment_whose_records_lie_partly_below_the_log_start() -> None:
    fs = MemoryFs()
    leader = open_log(fs, "/leader/t-0", config=UNLIMITED)
    for _ in range(3):
        leader.append(batch(4), leader_epoch=0)
        leader.roll()
    leader.advance_log_start(6)
    leader.delete_old_segments(START_MS)
    assert (leader.first_base_offset, leader.log_start_offset) == (4, 6)
    with pytest.raises(OffsetOutOfRange):
        leader.read(4, 1000)
    with pytest.raises(OffsetOutOfRange):
        leader.read(3, 1000, for_replica=True)
    follower = open_log(fs, "/follower/t-0", config=UNLIMITED)
    follower.truncate_fully_and_start_at(leader.first_base_offset)
    copy(leader, follower)
    assert log_files(fs, follower) == log_files(fs, leader)


def gapped(*offsets: int) -> bytes:
    return b"".join(write_records([Record(offset=each, timestamp_ms=START_MS)], leader_epoch=0) for each in offsets)


def test_a_gap_that_is_taken_survives_a_recovery() -> None:
    fs = MemoryFs()
    remembered: list[int] = []
    log = open_log(fs, write_checkpoints=lambda: remembered.append(log.recovery_point))
    log.as_follower.append(gapped(0, 1), rolls=False)
    for unlike in ((2, 5, 6, 9), (3,)):
        with pytest.raises(UnexpectedGap):
            log.as_follower.append(gapped(*unlike), rolls=False, takes_gaps=False)
    assert log.log_end_offset == 2
    log.as_follower.append_with_gaps(gapped(2, 5, 6, 9))
    log.as_follower.append(gapped(10, 11), rolls=False, takes_gaps=False)
    assert remembered == [10]
    again = open_log(fs, clean=False, recovery_point=remembered[-1], compacted_to=0)
    assert offsets_in(read_all(again)) == [0, 1, 2, 5, 6, 9, 10, 11]


def test_a_batch_too_far_from_where_its_segment_begins_is_refused() -> None:
    log = open_log(MemoryFs())
    log.as_follower.append(gapped(0), rolls=False)
    with pytest.raises(InvalidRecord, match="too far"):
        log.as_follower.append(gapped(1 << 33), rolls=False)


def test_retention_of_a_follower_removes_what_lies_below_its_leaders_log_start_and_no_more() -> None:
    log = open_log(MemoryFs(), config=topic_config(internal_segment_bytes=1 << 20, retention_ms=1))
    for _ in range(3):
        log.append(batch(4), leader_epoch=0)
        log.roll()
    log.append(batch(4), leader_epoch=0)
    later = START_MS + 1_000_000
    assert log.delete_old_segments(later, is_led=False) == 0
    log.advance_log_start(9)
    assert log.delete_old_segments(later, is_led=False) == 2
    assert (bases(log), log.log_start_offset) == ([8, 12], 9)
    log.advance_log_start(16)
    assert log.delete_old_segments(later, is_led=False) == 1
    assert bases(log) == [12]


def test_a_log_that_follows_into_a_segment_behind_its_end_ends_where_that_begins() -> None:
    """A cleaner has removed all records in between."""
    fs = MemoryFs()
    remembered: list[int] = []
    log = open_log(fs, write_checkpoints=lambda: remembered.append(log.recovery_point))
    log.as_follower.append(gapped(0), rolls=False)
    assert not log.as_follower.is_at_segment(10)
    log.as_follower.follow_segment(10)
    assert (bases(log), log.log_end_offset, remembered) == ([0, 10], 10, [10])
    again = open_log(fs, clean=False, recovery_point=10, compacted_to=0)
    assert again.log_end_offset == 10
    again.append(batch(2), leader_epoch=1)
    assert offsets_in(read_all(again)) == [0, 10, 11]


@pytest.mark.parametrize("offset", [3, 4, 6])
def test_a_log_that_is_cut_in_a_gap_ends_where_recovery_finds_its_end(offset: int) -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.as_follower.append_with_gaps(gapped(0, 1, 6, 7))
    log.truncate_to(offset)
    log.flush()
    again = open_log(fs.kill(), clean=False, recovery_point=log.recovery_point, compacted_to=0)
    assert log.recovery_point == log.log_end_offset == again.log_end_offset == 2


def test_a_log_that_goes_back_behind_a_gap_ends_where_recovery_finds_its_end() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.as_follower.append(gapped(0, 1), rolls=False)
    log.as_follower.follow_segment(9)
    assert (log.recovery_point, log.log_end_offset) == (9, 9)
    log.as_follower.follow_segment(0)
    log.flush()
    again = open_log(fs.kill(), clean=False, recovery_point=log.recovery_point, compacted_to=0)
    assert log.recovery_point == log.log_end_offset == again.log_end_offset == 2
