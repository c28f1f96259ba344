"""A log: appending, rolling, reading, lookups by timestamp, flushing, truncation and retention."""

from __future__ import annotations

import errno
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from sparklog.base.fs import LocalFs
from sparklog.log.epochs import EpochEnd
from sparklog.log.log import Log, LogAppendInfo, TimestampOffset
from sparklog.log.segment.indexes import TimeEntry, TimeIndex
from sparklog.log.segment.segment_writer import SegmentWriter
from sparklog.records.batch import TimestampType, iterate_headers, read_header
from sparklog.records.records import Record, write_records
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import (
    START_MS,
    batch,
    check_indexes,
    file_content,
    offsets_in,
    open_files,
    open_log,
    read_all,
    topic_config,
)

FOLDER = "/logs/orders-0"


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START_MS)


@pytest.fixture
def log(fs: MemoryFs, clock: SimClock) -> Log:
    return open_log(fs, clock=clock)


def names(fs: MemoryFs, ending: str = "") -> list[str]:
    return [name for name in fs.list(FOLDER) if name.endswith(ending)]


CUTS = 6


def run_out_of_descriptors(*_: object) -> None:
    raise OSError(errno.EMFILE, "too many open files")


@contextmanager
def flushing_before(fs: MemoryFs, work: str, ending: str, log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log is flushed, as by another thread, right before the file system's `work` on the first such file."""
    do = getattr(fs, work)

    def flush_first(path: str, *args: object, **how: object) -> object:
        if path.endswith(ending):
            monkeypatch.setattr(fs, work, do)
            log.flush()
        return do(path, *args, **how)

    monkeypatch.setattr(fs, work, flush_first)
    yield
    assert getattr(fs, work) == do


def offsets_after_power_cuts(fs: MemoryFs, log: Log) -> list[list[int]]:
    """The offsets that are left after each of several power cuts."""
    for folder in ("/", "/logs"):
        fs.flush_dir(folder)
    left = [fs.crash(random.Random(seed)) for seed in range(CUTS)]
    logs = [open_log(each, clean=False, recovery_point=log.recovery_point) for each in left]
    return [offsets_in(read_all(each)) for each in logs]


class TestAppend:
    def test_offsets_and_epoch_are_given_and_told(self, log: Log) -> None:
        log.append(batch(3), leader_epoch=7)
        data = batch(2, timestamp_ms=START_MS + 100) + batch(1, timestamp_ms=START_MS + 50)

        appended = log.append(data, leader_epoch=7)

        assert appended == LogAppendInfo(3, 5, START_MS + 101, 4, -1, 7, len(data))
        assert [(each.base_offset, each.leader_epoch) for _, each in iterate_headers(data)] == [(3, 7), (5, 7)]
        assert log.log_end_offset == 6
        assert offsets_in(read_all(log)) == [0, 1, 2, 3, 4, 5]

    def test_the_broker_stamps_log_append_time(self, fs: MemoryFs, clock: SimClock) -> None:
        log = open_log(fs, clock=clock, config=topic_config(message_timestamp_type="LogAppendTime"))
        clock.advance(5000)

        appended = log.append(batch(2, timestamp_ms=1), leader_epoch=0)

        assert appended.log_append_time_ms == appended.max_timestamp_ms == START_MS + 5000
        header = read_header(read_all(log))
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert log.offset_for_timestamp(START_MS + 5000) == TimestampOffset(START_MS + 5000, 0, 0)

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            (b"", InvalidRecord),
            (batch()[:-1], CorruptRecord),
            (batch(value=b"x" * 700), MessageTooLarge),
            (batch(3, value=b"x" * 400), RecordListTooLarge),
            (batch(timestamp_ms=START_MS + 2000), InvalidTimestamp),
            (batch(timestamp_ms=START_MS - 2000), InvalidTimestamp),
            (batch() + batch(timestamp_ms=START_MS - 2000), InvalidTimestamp),
        ],
    )
    def test_refused_batches_leave_nothing(self, fs: MemoryFs, data: bytes, error: type[KafkaError]) -> None:
        limits = {
            "max_message_bytes": 500,
            "message_timestamp_after_max_ms": 1000,
            "message_timestamp_before_max_ms": 1000,
        }
        log = open_log(fs, config=topic_config(**limits))
        with pytest.raises(error):
            log.append(bytearray(data), leader_epoch=0)
        assert (log.log_end_offset, log.size_bytes) == (0, 0)

    def test_a_producer_cannot_claim_the_brokers_clock(self, log: Log) -> None:
        record = Record(offset=0, timestamp_ms=START_MS, timestamp_type=TimestampType.LOG_APPEND_TIME)
        with pytest.raises(InvalidTimestamp):
            log.append(write_records([record]), leader_epoch=0)

    def test_the_time_of_what_is_appended_while_somebody_asks_for_times_is_known(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read_last = TimeIndex.last

        def append_meanwhile(index: TimeIndex) -> TimeEntry:
            last = read_last.fget(index)  # type: ignore[attr-defined]
            if not log.log_end_offset:
                log.append(batch(), leader_epoch=0)
            return last

        monkeypatch.setattr(TimeIndex, "last", property(append_meanwhile))
        log.max_timestamp()
        if not log.log_end_offset:
            log.append(batch(), leader_epoch=0)
        assert log.offset_for_timestamp(START_MS) == TimestampOffset(START_MS, 0, 0)

    def test_a_timestamp_that_readers_see_has_a_record(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        add, found = SegmentWriter.add, []

        def look(segment: SegmentWriter, position: int, size: int, last_offset: int, timestamp_ms: int) -> None:
            add(segment, position, size, last_offset, timestamp_ms)
            found.append(log.max_timestamp())

        monkeypatch.setattr(SegmentWriter, "add", look)
        log.append(batch(2), leader_epoch=0)
        assert found == [TimestampOffset(START_MS + 1, 1, 0)]

    def test_records_without_timestamps_are_taken(self, log: Log) -> None:
        log.append(write_records([Record(offset=0)]), leader_epoch=0)
        assert log.max_timestamp() is None
        assert log.offset_for_timestamp(0) is None

    def test_a_follower_keeps_offsets_epochs_and_gaps(self, fs: MemoryFs, log: Log) -> None:
        leader = open_log(fs, "/logs/leader-0")
        for epoch in (0, 0, 2):
            leader.append(batch(3), leader_epoch=epoch)
        data = read_all(leader)
        first, second, third = (data[at : at + each.size] for at, each in iterate_headers(data))

        log.as_follower.append(first)
        log.as_follower.append(third)

        assert read_all(log) == first + third
        assert log.epochs.entries == ((0, 0), (2, 6))
        with pytest.raises(InvalidRecord):
            log.as_follower.append(second)
        with pytest.raises(InvalidRecord):
            log.as_follower.append(b"")

    def test_epochs_are_noted_and_answered(self, log: Log) -> None:
        for epoch in (0, 0, 3, 4):
            log.append(batch(2), leader_epoch=epoch)
        assert log.latest_epoch == 4
        assert log.end_offset_for(0) == EpochEnd(0, 4)
        assert log.end_offset_for(2) == EpochEnd(0, 4)
        assert log.end_offset_for(4) == EpochEnd(4, 8)


class TestRoll:
    def test_before_the_segment_would_grow_too_large(self, fs: MemoryFs, log: Log) -> None:
        data = batch(value=b"x" * 230)
        for _ in range(9):
            log.append(bytearray(data), leader_epoch=0)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
        assert all(segment.size_bytes <= 1000 for segment in log.segments)
        assert names(fs, ".snapshot") == ["00000000000000000003.snapshot", "00000000000000000006.snapshot"]
        check_indexes(log)

    def test_when_records_are_later_than_the_first_by_segment_ms(self, fs: MemoryFs) -> None:
        log = open_log(fs, config=topic_config(segment_ms=1000))
        for late in (0, 500, 1000, 1001, 1500, 2500):
            log.append(batch(timestamp_ms=START_MS + late), leader_epoch=0)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 5]

    def test_by_the_clock_where_records_have_no_timestamps(self, fs: MemoryFs, clock: SimClock) -> None:
        log = open_log(fs, clock=clock, config=topic_config(segment_ms=1000))
        for _ in range(4):
            log.append(write_records([Record(offset=0)]), leader_epoch=0)
            clock.advance(600)
        assert [segment.base_offset for segment in log.segments] == [0, 2]

    def test_earlier_by_a_random_jitter(self, fs: MemoryFs) -> None:
        asked: list[int] = []

        def jitter(limit: int) -> int:
            asked.append(limit)
            return 400

        log = open_log(fs, config=topic_config(segment_ms=1000, segment_jitter_ms=500), jitter=jitter)
        for late in (0, 600, 601):
            log.append(batch(timestamp_ms=START_MS + late), leader_epoch=0)
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert asked == [500, 500]

    @pytest.mark.parametrize(("index_bytes", "segments"), [(3 * 12, [0, 3, 6, 9]), (100 * 12, [0])])
    def test_when_an_index_is_full(self, fs: MemoryFs, index_bytes: int, segments: list[int]) -> None:
        config = topic_config(index_interval_bytes=0, internal_segment_bytes=10_000, segment_index_bytes=index_bytes)
        log = open_log(fs, config=config)
        for number in range(10):
            log.append(batch(timestamp_ms=START_MS + number), leader_epoch=0)
        assert [segment.base_offset for segment in log.segments] == segments
        check_indexes(log)

    def test_when_an_offset_is_too_far_from_the_base(self, fs: MemoryFs, log: Log) -> None:
        for offset in (0, 2**31 - 1, 2**31, 2**33):
            log.as_follower.append(write_records([Record(offset=offset, timestamp_ms=START_MS)], leader_epoch=0))
        assert [segment.base_offset for segment in log.segments] == [0, 2**31, 2**33]
        assert offsets_in(read_all(log)) == [0, 2**31 - 1, 2**31, 2**33]

    def test_an_empty_segment_is_not_rolled(self, log: Log) -> None:
        log.roll()
        assert len(log.segments) == 1
        log.append(batch(), leader_epoch=0)
        log.roll()
        log.roll()
        assert [segment.base_offset for segment in log.segments] == [0, 1]

    def test_a_closed_segment_has_its_whole_time_index_before_there_is_a_next_one(self, fs: MemoryFs, log: Log) -> None:
        log.append(batch(3), leader_epoch=0)
        log.roll()
        assert file_content(fs, f"{FOLDER}/00000000000000000000.timeindex")[:8] == (START_MS + 2).to_bytes(8, "big")

    def test_changed_configuration_counts_at_once(self, log: Log) -> None:
        log.append(batch(), leader_epoch=0)
        log.configure(topic_config(internal_segment_bytes=100))
        log.append(batch(), leader_epoch=0)
        assert len(log.segments) == 2


class TestRead:
    @pytest.fixture
    def log(self, fs: MemoryFs) -> Log:
        """20 batches of 3 records, 4 to a segment."""
        log = open_log(fs)
        for _ in range(20):
            log.append(batch(3, value=b"x" * 40), leader_epoch=0)
        return log

    @given(offset=st.integers(0, 59), max_bytes=st.integers(0, 1200), max_offset=st.integers(0, 61))
    def test_whole_batches_up_to_the_limits(self, offset: int, max_bytes: int, max_offset: int) -> None:
        log = _shared_log()
        size = len(read_all(log)) // 20

        found = log.read(offset, max_bytes, max_offset=max_offset)

        offsets = offsets_in(found.read())
        first = offset - offset % 3
        segment_end = next((s.base_offset for s in log.segments if s.base_offset > offset), 60)
        most = max(1, max_bytes // size) * 3
        end = min(first + most, segment_end, max(first, max_offset - max_offset % 3))
        assert offsets == list(range(first, end if offset < max_offset else first))
        if offsets:
            assert found.next_offset == end

    def test_from_any_offset_everything_is_read(self, log: Log) -> None:
        for offset in range(60):
            for max_bytes in (1, 200, 500, 100_000):
                assert offsets_in(read_all(log, offset, max_bytes)) == list(range(offset - offset % 3, 60))

    def test_a_batch_larger_than_the_limit_only_if_it_is_the_first_wanted(self, log: Log) -> None:
        assert log.read(0, 10).size > 10
        assert log.read(0, 10, min_one_batch=False).size == 0

    def test_at_the_end_there_is_nothing(self, log: Log) -> None:
        found = log.read(60, 1000)
        assert (found.size, found.next_offset, found.read()) == (0, 60, b"")

    def test_above_the_high_watermark_there_is_nothing(self, log: Log) -> None:
        assert log.read(30, 1000, max_offset=30).size == 0
        assert log.read(45, 1000, max_offset=30).size == 0

    @pytest.mark.parametrize("offset", [-1, 61, 10**12])
    def test_outside_the_log_is_out_of_range(self, log: Log, offset: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 1000)

    def test_an_index_of_another_file_does_not_mislead_reads(self, fs: MemoryFs, log: Log) -> None:
        log.close()
        for name in names(fs, ".index"):
            file = fs.open(f"{FOLDER}/{name}")
            content = bytearray(file.read_at(0, file.size))
            for at in range(7, len(content), 8):
                content[at] ^= 5
            file.truncate(0)
            file.append(content)
        again = open_log(fs)
        for offset in range(60):
            assert offset in offsets_in(again.read(offset, 1).read())


_SHARED: list[Log] = []


def _shared_log() -> Log:
    """One log for all examples of a property: 20 batches of 3 records."""
    if not _SHARED:
        log = open_log(MemoryFs())
        for _ in range(20):
            log.append(batch(3, value=b"x" * 40), leader_epoch=0)
        _SHARED.append(log)
    return _SHARED[0]


class TestTimestamps:
    @pytest.mark.slow
    @given(
        lags=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=25),
        asked=st.integers(-5, 60),
        start=st.integers(0, 20),
        reopened=st.booleans(),
    )
    def test_the_first_record_that_is_late_enough_is_found(
        self, lags: list[list[int]], asked: int, start: int, reopened: bool
    ) -> None:
        fs = MemoryFs()
        log = open_log(fs, config=topic_config(internal_segment_bytes=400))
        times = [START_MS + number - lag for number, batch_lags in enumerate(lags) for lag in batch_lags]
        for number, batch_lags in enumerate(lags):
            records = [Record(offset=i, timestamp_ms=START_MS + number - lag) for i, lag in enumerate(batch_lags)]
            log.append(write_records(records), leader_epoch=number)
        log.advance_log_start(start := min(start, len(times)))
        if reopened:
            log.close()
            log = open_log(fs, config=log.config, log_start_offset=start)

        found = log.offset_for_timestamp(START_MS + asked)
        latest = log.max_timestamp()

        expected = next((o for o, t in enumerate(times) if t >= START_MS + asked and o >= start), None)
        assert (found.offset if found else None) == expected
        assert found is None or found.timestamp_ms == times[found.offset]
        assert latest is not None
        assert latest.timestamp_ms == times[latest.offset]
        # Opening a log removes the segments below its start; until then lookups include them, as in Kafka.
        assert max(times[start:], default=latest.timestamp_ms) <= latest.timestamp_ms <= max(times)
        assert reopened or latest.timestamp_ms == max(times)


class TestFlush:
    def test_moves_the_recovery_point(self, log: Log) -> None:
        for _ in range(5):
            log.append(batch(2), leader_epoch=0)
        assert log.recovery_point == 0
        log.flush(4)
        assert log.recovery_point == 4
        log.flush(2)
        assert log.recovery_point == 4
        log.flush()
        assert log.recovery_point == 10

    def test_is_due_after_flush_ms(self, fs: MemoryFs, clock: SimClock) -> None:
        log = open_log(fs, clock=clock, config=topic_config(flush_ms=1000))
        log.append(batch(), leader_epoch=0)
        clock.advance(999)
        log.flush_if_due(clock.monotonic_ms())
        assert log.recovery_point == 0
        clock.advance(1)
        log.flush_if_due(clock.monotonic_ms())
        assert log.recovery_point == 1

    def test_is_due_for_closed_segments_only_once_there_are_some(self, log: Log, clock: SimClock) -> None:
        log.append(batch(3), leader_epoch=0)
        assert not log.flush_if_due(clock.monotonic_ms())
        log.roll()
        log.append(batch(3), leader_epoch=0)
        assert log.flush_if_due(clock.monotonic_ms())
        assert log.recovery_point == 3
        assert not log.flush_if_due(clock.monotonic_ms())

    def test_names_that_one_flush_cannot_flush_are_flushed_by_the_next(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.append(batch(3), leader_epoch=0)
        log.flush()
        log.roll()
        log.append(batch(2), leader_epoch=0)
        with monkeypatch.context() as patch:
            patch.setattr(fs, "flush_dir", run_out_of_descriptors)
            with pytest.raises(KafkaStorageError):
                log.flush()
        log.flush()
        assert offsets_after_power_cuts(fs, log) == [[0, 1, 2, 3, 4]] * CUTS

    def test_names_that_change_while_others_are_flushed_are_flushed_too(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.append(batch(3), leader_epoch=0)
        log.flush()
        with flushing_before(fs, "open", "3.log", log, monkeypatch):
            log.roll()
        log.append(batch(2), leader_epoch=0)
        log.flush()
        assert offsets_after_power_cuts(fs, log) == [[0, 1, 2, 3, 4]] * CUTS

    def test_a_removed_segment_does_not_come_back_where_others_names_were_flushed_meanwhile(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.append(batch(3), leader_epoch=0)
        log.roll()
        log.flush()
        with flushing_before(fs, "rename", ".log", log, monkeypatch):
            log.as_follower.follow_segment(0)
        log.append(batch(2), leader_epoch=0)
        log.flush()
        assert offsets_after_power_cuts(fs, log) == [[0, 1, 2, 3, 4]] * CUTS


class TestTruncate:
    @pytest.fixture
    def log(self, fs: MemoryFs, clock: SimClock) -> Log:
        log = open_log(fs, clock=clock)
        for epoch in (0, 0, 0, 1, 1, 2):
            for _ in range(4):
                log.append(batch(3, value=b"x" * 40), leader_epoch=epoch)
        log.flush()
        return log

    @pytest.mark.parametrize("offset", [0, 3, 12, 30, 36, 57, 69])
    def test_removes_everything_from_an_offset_on(self, fs: MemoryFs, log: Log, offset: int) -> None:
        log.truncate_to(offset)
        assert log.log_end_offset == log.recovery_point == offset
        assert offsets_in(read_all(log)) == list(range(offset))
        assert log.epochs.entries == tuple(entry for entry in ((0, 0), (1, 36), (2, 60)) if entry[1] < offset)
        check_indexes(log)
        log.append(batch(3), leader_epoch=5)
        log.close()
        again = open_log(fs)
        assert offsets_in(read_all(again)) == list(range(offset + 3))
        check_indexes(again)

    def test_cuts_between_batches(self, log: Log) -> None:
        log.truncate_to(31)
        assert log.log_end_offset == log.recovery_point == 30

    def test_behind_the_end_changes_nothing(self, log: Log) -> None:
        log.truncate_to(72)
        log.truncate_to(1000)
        assert log.log_end_offset == log.recovery_point == 72

    def test_forgets_the_timestamps_of_what_is_gone(self, log: Log) -> None:
        log.append(batch(timestamp_ms=START_MS + 10_000), leader_epoch=2)
        log.truncate_to(72)
        assert log.max_timestamp() == TimestampOffset(START_MS + 2, 2, 0)
        log.close()

    def test_lowers_the_recovery_point_on_disk_before_anything_else(self, fs: MemoryFs) -> None:
        seen: list[tuple[int, int]] = []
        log = open_log(fs, write_checkpoints=lambda: seen.append((log.recovery_point, log.size_bytes)))
        for _ in range(4):
            log.append(batch(3), leader_epoch=0)
        log.flush()
        size = log.size_bytes
        log.truncate_to(6)
        assert seen == [(6, size)]

    def test_starts_over_at_another_offset(self, fs: MemoryFs, log: Log) -> None:
        log.truncate_fully_and_start_at(500)
        assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (500, 500, -1)
        log.append(batch(2), leader_epoch=3)
        assert offsets_in(read_all(log)) == [500, 501]
        log.truncate_to(100)
        assert (log.log_start_offset, log.log_end_offset) == (100, 100)


class TestTheFront:
    @pytest.fixture
    def log(self, fs: MemoryFs, clock: SimClock) -> Log:
        """15 batches of 3 records, 3 to a segment, a minute apart."""
        log = open_log(fs, clock=clock, config=topic_config(retention_ms=5 * 60_000))
        for number in range(15):
            log.append(batch(3, timestamp_ms=START_MS + number * 60_000, value=b"x" * 60), leader_epoch=number // 5)
        return log

    def test_offsets_below_the_log_start_are_not_served(self, log: Log) -> None:
        log.advance_log_start(10)
        log.advance_log_start(5)
        assert log.log_start_offset == 10
        with pytest.raises(OffsetOutOfRange):
            log.read(9, 1000)
        assert offsets_in(log.read(10, 1).read()) == [9, 10, 11]
        with pytest.raises(OffsetOutOfRange):
            log.advance_log_start(46)

    def test_old_segments_go(self, fs: MemoryFs, log: Log) -> None:
        assert log.delete_old_segments(START_MS + 15 * 60_000) == 3
        assert log.log_start_offset == 27
        assert log.epochs.entries == ((1, 27), (2, 30))
        assert offsets_in(read_all(log)) == list(range(27, 45))
        assert len(names(fs, ".log")) == 2

    def test_nothing_above_the_high_watermark_goes(self, log: Log) -> None:
        assert log.delete_old_segments(START_MS + 10**9, high_watermark=20) == 2
        assert log.delete_old_segments(START_MS + 10**9, high_watermark=0) == 0

    def test_when_all_is_old_an_empty_segment_is_left(self, log: Log) -> None:
        assert log.delete_old_segments(START_MS + 10**9) == 5
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (45, 45, 0)
        log.append(batch(), leader_epoch=9)
        assert offsets_in(read_all(log)) == [45]

    def test_the_log_start_is_remembered_before_files_go(self, fs: MemoryFs, clock: SimClock) -> None:
        seen: list[tuple[int, int]] = []
        log = open_log(
            fs,
            config=topic_config(retention_bytes=0),
            write_checkpoints=lambda: seen.append((log.promised_start_offset, len(names(fs, ".log")))),
        )
        log.append(batch(3), leader_epoch=0)
        log.roll()
        log.delete_old_segments(START_MS)
        assert seen == [(3, 2)]
        assert names(fs, ".log") == ["00000000000000000003.log"]

    def test_slices_in_flight_outlive_their_segment(self, fs: MemoryFs, log: Log, clock: SimClock) -> None:
        piece = log.read(0, 10_000)
        expected = piece.read()
        log.delete_old_segments(START_MS + 15 * 60_000)
        assert names(fs, ".log.deleted")[0] == "00000000000000000000.log.deleted"
        assert piece.read() == expected
        clock.advance(59_999)
        assert log.delete_expired(clock.monotonic_ms()) == 0
        clock.advance(1)
        assert log.delete_expired(clock.monotonic_ms()) == 3
        assert names(fs, ".deleted") == []
        assert piece.read() == expected

    def test_on_a_real_disk_too(self, tmp_path: Path, clock: SimClock) -> None:
        log = open_log(LocalFs(), f"{tmp_path}/orders-0", clock=clock, config=topic_config(retention_bytes=0))
        log.append(batch(3), leader_epoch=0)
        piece = log.read(0, 10_000)
        expected = piece.read()
        assert log.delete_old_segments(START_MS) == 1
        clock.advance(60_000)
        assert log.delete_expired(clock.monotonic_ms()) == 1
        log.close()
        assert piece.read() == expected
        assert [path.name for path in tmp_path.glob("orders-0/*.log*")] == ["00000000000000000003.log"]


class TestTheEnd:
    def test_a_closed_log_opens_as_it_was(self, fs: MemoryFs, log: Log) -> None:
        for _ in range(10):
            log.append(batch(3), leader_epoch=1)
        before = read_all(log)
        log.close()
        again = open_log(fs)
        assert (again.log_end_offset, again.recovery_point, again.latest_epoch) == (30, 30, 1)
        assert read_all(again) == before
        assert names(fs, ".snapshot")[-1] == "00000000000000000030.snapshot"

    @pytest.mark.skipif(sys.platform != "linux", reason="finds open files in /proc")
    def test_a_closed_log_has_files_open_only_for_readers(self, tmp_path: Path) -> None:
        log = open_log(LocalFs(), str(tmp_path / "orders-0"), config=topic_config(internal_segment_bytes=150))
        for _ in range(3):
            log.append(batch(3), leader_epoch=0)
        expected = read_all(log)
        piece = log.read(3, 100)
        log.close()
        assert len(open_files(str(tmp_path))) == 1
        assert piece.read() == expected[len(expected) // 3 : 2 * len(expected) // 3]
        del piece
        assert open_files(str(tmp_path)) == []

    def test_a_closed_log_refuses_everything(self, log: Log) -> None:
        log.append(batch(), leader_epoch=0)
        log.close()
        for use in (
            lambda: log.append(batch(), leader_epoch=0),
            lambda: log.read(0, 100),
            lambda: log.truncate_to(0),
            log.flush,
            log.roll,
        ):
            with pytest.raises(KafkaStorageError):
                use()

    def test_a_deleted_log_gives_its_name_free(self, fs: MemoryFs, log: Log) -> None:
        log.append(batch(), leader_epoch=0)
        piece = log.read(0, 1000)
        folder = log.rename_for_delete()
        assert folder.endswith("-delete")
        assert fs.list("/logs") == [folder.removeprefix("/logs/")]
        assert offsets_in(piece.read()) == [0]
        with pytest.raises(KafkaStorageError):
            log.append(batch(), leader_epoch=0)

    @pytest.mark.skipif(sys.platform != "linux", reason="finds open files in /proc")
    def test_a_deleted_log_closes_its_files_though_it_stays_in_memory(self, tmp_path: Path) -> None:
        log = open_log(LocalFs(), str(tmp_path / "orders-0"), config=topic_config(internal_segment_bytes=100))
        for _ in range(3):
            log.append(batch(), leader_epoch=0)
        assert offsets_in(read_all(log)) == [0, 1, 2]
        assert open_files(str(tmp_path))
        log.rename_for_delete()
        assert open_files(str(tmp_path)) == []
        assert len(log.segments) == 3

    @pytest.mark.slow
    def test_many_segments_keep_little_in_memory(self, fs: MemoryFs) -> None:
        log = open_log(fs, config=topic_config(internal_segment_bytes=100, index_interval_bytes=0))
        for _ in range(1500):
            log.append(batch(), leader_epoch=0)
        for offset in range(0, 1500, 2):
            log.read(offset, 1).read()
        held = [segment for segment in log.segments if segment._file or segment._offsets]
        assert len(log.segments) == 1500
        assert len(held) <= 513
        assert offsets_in(read_all(log)) == list(range(1500))
