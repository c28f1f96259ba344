"""Putting one segment in the place of others."""

from __future__ import annotations

import errno
import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from log_values import START_MS, batch, check_indexes, file_content, offsets_in, open_log, read_all, topic_config
from swap_values import FOLDER, clean, cleaned, content_of, emptied, even, records_in, replace, stage, written

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    ResourceNotFound,
)
from sparklog.base.ids import TopicPartition
from sparklog.log.cache import SegmentCache
from sparklog.log.checkpoints import read_offsets
from sparklog.log.log import Log
from sparklog.log.manager import LogManager
from sparklog.records.batch import assign, iterate_headers
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim_clock import SimClock

SURVIVING = [offset for base in range(0, 27, 3) if even(base) for offset in range(base, base + 3)]
"""Of segments 0, 9 and 18, as `clean` leaves them."""
NAME = TopicPartition("orders", 0)


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def log(fs: MemoryFs) -> Log:
    """Segments 0, 9, … 45, the last of them written."""
    return written(fs)


def marked(fs: MemoryFs) -> list[str]:
    return [name for name in fs.list(FOLDER) if name.endswith((".cleaned", ".swap"))]


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
        before, epochs = read_all(log), log.epochs
        log.close()
        again = open_log(fs)
        assert read_all(again) == before
        assert again.epochs == epochs
        check_indexes(again)
        assert again.describe()[0].largest_timestamp_ms == START_MS + 8002

    def test_one_segment_may_replace_itself(self, fs: MemoryFs, log: Log) -> None:
        before = log.describe()[1]
        new = clean(fs, log, 1, 1)
        assert [segment.base_offset for segment in log.segments] == [0, 9, 18, 27, 36, 45]
        assert new.identity != before.identity
        assert new.size_bytes < before.size_bytes

    def test_all_closed_segments_may_become_one_header(self, fs: MemoryFs, log: Log) -> None:
        new = clean(fs, log, 0, 5, lambda _: False)
        assert records_in(read_all(log)) == [45, 46, 47]
        assert (new.size_bytes, new.largest_timestamp_ms) == (61, -1)
        log.close()
        assert records_in(read_all(open_log(fs))) == [45, 46, 47]

    def test_a_replaced_segment_can_be_replaced_again(self, fs: MemoryFs, log: Log) -> None:
        clean(fs, log, 0, 2)
        clean(fs, log, 0, 3, lambda base: base == 24)
        assert records_in(read_all(log)) == [24, 25, 26, *range(36, 48)]
        check_indexes(log)

    def test_records_are_found_by_their_timestamps(self, fs: MemoryFs, log: Log) -> None:
        clean(fs, log, 0, 3)
        found = log.offset_for_timestamp(START_MS + 1000)
        assert found
        assert found.offset == 6

    def test_the_others_files_go_after_a_while(self, fs: MemoryFs, log: Log) -> None:
        clean(fs, log, 0, 3)
        deleted = [name for name in fs.list(FOLDER) if name.endswith(".log.deleted")]
        assert deleted == [f"{base:020d}.log.deleted" for base in (9, 18)]
        log.delete_expired(10**9)
        assert not [name for name in fs.list(FOLDER) if name.endswith(".deleted")]
        assert fs.exists(f"{FOLDER}/{0:020d}.log")

    def test_a_folder_is_not_renamed_under_who_removes_them(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clean(fs, log, 0, 3)
        has_begun, may_go_on = threading.Event(), threading.Event()

        def slow_remove(path: str) -> None:
            has_begun.set()
            assert may_go_on.wait(10)
            MemoryFs.remove(fs, path)

        monkeypatch.setattr(fs, "remove", slow_remove)
        with ThreadPoolExecutor(2) as threads:
            removing = threads.submit(log.delete_expired, 10**9)
            assert has_begun.wait(10)
            renaming = threads.submit(log.rename_for_delete)
            wait([renaming], 0.1)
            may_go_on.set()
            assert removing.result() == 2
            assert not [name for name in fs.list(renaming.result()) if name.endswith(".deleted")]

    def test_snapshots_of_merged_segments_go(self, fs: MemoryFs, log: Log) -> None:
        clean(fs, log, 0, 3)
        snapshots = [name for name in fs.list(FOLDER) if name.endswith(".snapshot")]
        assert snapshots == [f"{base:020d}.snapshot" for base in (27, 36, 45)]

    def test_producers_are_remembered_by_the_batches_that_stay(self, fs: MemoryFs) -> None:
        log = open_log(fs, config=topic_config(file_delete_delay_ms=1000))
        for number in range(12):
            log.append(batch(3, value=b"x" * 60, producer_id=number % 2, sequence=number // 2 * 3), leader_epoch=0)
        last = {each.producer_id: each.last_offset for _, each in iterate_headers(read_all(log))}
        sources = log.describe()[:2]
        data = b"".join(emptied(header) for _, header in iterate_headers(content_of(fs, sources)))
        replace(fs, log, sources, data)
        for again in (log, open_log(fs, clean=False)):
            assert {each: state.batches[-1].last_offset for each, state in again.producers.items()} == last

    def test_what_is_below_is_flushed_and_remembered_first(self, fs: MemoryFs) -> None:
        remembered: list[int] = []
        log = written(fs, remember=lambda log: remembered.append(log.recovery_point))
        clean(fs, log, 0, 3)
        assert remembered == [27]
        assert log.recovery_point == 27

    def test_appends_go_on_while_a_segment_is_verified_and_flushed(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        writer = threading.Thread(target=lambda: [log.append(batch(3), leader_epoch=3) for _ in range(20)])
        writer.start()
        replace(fs, log, sources, cleaned(content_of(fs, sources)))
        writer.join()
        assert records_in(read_all(log)) == [*SURVIVING, *range(27, 108)]

    def test_a_batch_larger_than_what_is_read_at_once_is_verified(self, fs: MemoryFs) -> None:
        log = open_log(fs, config=topic_config(internal_segment_bytes=8 << 20, max_message_bytes=8 << 20))
        for size in (10, 5 << 20, 10):
            log.append(batch(value=b"x" * size), leader_epoch=0)
        log.roll()
        sources = log.describe()[:1]
        assert replace(fs, log, sources, content_of(fs, sources)).next_offset == 3
        data = bytearray(content_of(fs, sources))
        data[3 << 20] ^= 1
        with pytest.raises(CorruptRecord):
            replace(fs, log, log.describe()[:1], bytes(data))

    @settings(max_examples=8)
    @given(data=st.data())
    def test_whatever_stays_is_read_from_every_offset(self, data: st.DataObject) -> None:
        fs = MemoryFs()
        log = written(fs, 12)
        left = set(range(0, 36, 3))
        for _ in range(data.draw(st.integers(1, 3))):
            count = len(log.segments) - 1
            first = data.draw(st.integers(0, count - 1))
            size = data.draw(st.integers(1, count - first))
            low, high = log.segments[first].base_offset, log.segments[first + size].base_offset
            kept = data.draw(st.sets(st.sampled_from(range(low, high, 3))))
            clean(fs, log, first, size, kept.__contains__)
            left = {base for base in left if not low <= base < high or base in kept}
        for again in (log, open_log(fs, clean=False)):
            for offset in range(36):
                expected = [base + i for base in sorted(left) if base + 2 >= offset for i in range(3)]
                assert records_in(read_all(again, offset, max_bytes=300)) == expected
            check_indexes(again)


class TestReadersInFlight:
    def test_a_slice_stays_what_it_was(self, fs: MemoryFs, log: Log) -> None:
        first, second = log.read(0, 1 << 20), log.read(9, 1 << 20)
        clean(fs, log, 0, 3)
        log.delete_expired(10**9)
        assert offsets_in(first.read() + second.read()) == list(range(18))

    def test_who_holds_a_segment_finds_in_it_what_was_there(self, fs: MemoryFs, log: Log) -> None:
        held = log.segments[0]
        latest = held.largest
        clean(fs, log, 0, 3)
        held.release()
        assert offsets_in(held.file.read_at(0, held.size_bytes)) == list(range(9))
        assert held.find(7, held.size_bytes)
        assert held.largest == latest

    def test_what_was_replaced_goes_with_its_last_reader(self, fs: MemoryFs) -> None:
        cache = SegmentCache()
        log = written(fs, cache=cache)
        held = log.segments[0]
        clean(fs, log, 0, 3)
        kept = len(cache)
        assert kept
        assert held.find(7, held.size_bytes)
        assert len(cache) == kept

    def test_a_fetch_goes_on_behind_what_it_has_read(self, fs: MemoryFs, log: Log) -> None:
        piece = log.read(9, 250)
        assert piece.next_offset == 12
        clean(fs, log, 0, 3)
        log.delete_expired(10**9)
        assert records_in(read_all(log, piece.next_offset)) == [12, 13, 14, 18, 19, 20, 24, 25, 26, *range(27, 48)]


class TestRefusals:
    @pytest.fixture(autouse=True)
    def nothing_is_left_behind(self, fs: MemoryFs, log: Log) -> object:
        before = read_all(log)
        yield
        assert read_all(log) == before
        assert not marked(fs)
        log.roll()
        sources = log.describe()[:2]
        replace(fs, log, sources, content_of(fs, sources))  # and the log takes the next one

    def test_a_segment_that_is_written(self, fs: MemoryFs, log: Log) -> None:
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, log.describe()[4:], b"")

    def test_no_segments(self, log: Log) -> None:
        with pytest.raises(InvalidRequest):
            log.replace((), size_bytes=0, crc32c=0, high_watermark=48)
        with pytest.raises(InvalidRequest):
            log.check_sources(())

    def test_segments_that_are_no_neighbours(self, fs: MemoryFs, log: Log) -> None:
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, log.describe()[0:4:2], b"")

    def test_records_above_the_high_watermark(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        with pytest.raises(InvalidUpdateVersion, match="high watermark 26"):
            replace(fs, log, sources, cleaned(content_of(fs, sources)), high_watermark=26)

    def test_nothing_staged(self, log: Log) -> None:
        with pytest.raises(ResourceNotFound):
            log.replace(log.describe()[:3], size_bytes=0, crc32c=0, high_watermark=48)

    def test_another_size_or_checksum(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        data = cleaned(content_of(fs, sources))
        for size, crc in ((len(data) - 1, crc32c(data)), (len(data), crc32c(data) ^ 1)):
            stage(fs, log, 0, data)
            with pytest.raises(CorruptRecord):
                log.replace(sources, size_bytes=size, crc32c=crc, high_watermark=48)
            assert not marked(fs)

    def test_a_flipped_bit(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        data = bytearray(cleaned(content_of(fs, sources)))
        data[len(data) // 2] ^= 1
        with pytest.raises(CorruptRecord):
            replace(fs, log, sources, bytes(data))

    def test_a_batch_that_is_cut_off(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        with pytest.raises(CorruptRecord):
            replace(fs, log, sources, cleaned(content_of(fs, sources))[:-1])

    def test_offsets_that_do_not_increase(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        data = content_of(fs, sources)
        with pytest.raises(CorruptRecord):
            replace(fs, log, sources, data[: len(data) // 3] + data)

    @pytest.mark.parametrize(("first", "count"), [(0, 2), (0, 4)])
    def test_an_end_that_is_not_the_sources(self, fs: MemoryFs, log: Log, first: int, count: int) -> None:
        segments = log.describe()
        with pytest.raises(InvalidRecord):
            replace(fs, log, segments[:3], content_of(fs, segments[first:count]))

    def test_offsets_below_the_sources(self, fs: MemoryFs, log: Log) -> None:
        segments = log.describe()
        with pytest.raises(CorruptRecord):
            replace(fs, log, segments[1:3], content_of(fs, segments[:3]))

    def test_a_leader_epoch_that_never_was(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:1]
        data = bytearray(content_of(fs, sources))
        assign(data, 0, base_offset=0, leader_epoch=9)
        with pytest.raises(InvalidRecord, match="leader epoch"):
            replace(fs, log, sources, bytes(data))

    def test_an_empty_file_for_segments_with_records(self, fs: MemoryFs, log: Log) -> None:
        with pytest.raises(InvalidRecord):
            replace(fs, log, log.describe()[:2], b"")

    def test_a_file_that_the_broker_may_not_open(self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        """Written by a job that runs as another user."""
        open_any = fs.open

        def refuse(path: str, *, create: bool = False) -> object:
            if path.endswith(".log.cleaned") and not create:
                raise PermissionError(errno.EACCES, "not yours", path)
            return open_any(path, create=create)

        sources = log.describe()[:3]
        stage(fs, log, 0, content_of(fs, sources))
        monkeypatch.setattr(fs, "open", refuse)
        with pytest.raises(KafkaStorageError, match="may not be read"):
            log.replace(sources, size_bytes=0, crc32c=0, high_watermark=48)
        monkeypatch.undo()

    def test_a_disk_without_room(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        data = cleaned(content_of(fs, sources))
        log.flush()
        stage(fs, log, 0, data)
        fs.fail_under(FOLDER, errno.ENOSPC)
        with pytest.raises(KafkaStorageError, match="no room"):
            log.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)
        fs.repair(FOLDER)


class TestStalePlans:
    """Each leaves the log as it is, and nothing of what was staged."""

    def refused(self, fs: MemoryFs, log: Log, sources: object, error: type[KafkaError] = InvalidUpdateVersion) -> None:
        with pytest.raises(error):
            replace(fs, log, sources, b"whatever")  # type: ignore[arg-type]
        with pytest.raises(error):
            log.check_sources(sources)  # type: ignore[arg-type]
        assert not marked(fs)

    def test_replaced_meanwhile(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        clean(fs, log, 0, 3)
        self.refused(fs, log, sources)

    def test_truncated_meanwhile_and_written_again_to_the_same_size(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        end = log.log_end_offset
        log.truncate_to(24)
        log.append(batch(3, timestamp_ms=START_MS, value=b"y" * 60), leader_epoch=9)
        log.roll()
        log.append(batch(3, value=b"x" * 60), leader_epoch=9)
        same = [(each.base_offset, each.next_offset, each.size_bytes) for each in log.describe()[:3]]
        assert same == [(each.base_offset, each.next_offset, each.size_bytes) for each in sources]
        assert end > log.log_end_offset
        self.refused(fs, log, sources)

    def test_removed_by_retention_meanwhile(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        log.advance_log_start(10)
        log.delete_old_segments(START_MS)
        self.refused(fs, log, sources)

    def test_removed_by_retention_while_their_end_is_looked_for(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sources = log.describe()[:2]
        exists = fs.exists

        def retain_first(path: str) -> bool:
            if path.endswith(".txnindex") and log.log_start_offset == 0:
                log.advance_log_start(27)
                log.delete_old_segments(START_MS)
                log.delete_expired(10**9)
            return exists(path)

        for segment in log.segments:
            segment.release()
        monkeypatch.setattr(fs, "exists", retain_first)
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, sources, content_of(fs, sources))
        assert log.log_start_offset == 27
        assert not marked(fs)

    def test_started_anew(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        log.close()
        self.refused(fs, open_log(fs), sources)

    def test_cut_between_verifying_and_swapping(self, fs: MemoryFs) -> None:
        """The last moment at which anything can change: when the recovery point is written down."""
        log = written(fs)
        sources = log.describe()[:3]
        flush = log.flush

        def cut_once_flushed(up_to: int | None = None) -> None:
            flush(up_to)
            log.truncate_to(21)

        log.flush = cut_once_flushed  # type: ignore[method-assign]
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, sources, cleaned(content_of(fs, sources)))
        assert not marked(fs)
        assert offsets_in(read_all(log)) == list(range(21))

    def test_a_log_that_was_deleted_meanwhile(self, fs: MemoryFs, log: Log) -> None:
        sources = log.describe()[:3]
        data = cleaned(content_of(fs, sources))
        stage(fs, log, 0, data)
        log.rename_for_delete()
        with pytest.raises(KafkaStorageError, match="deleted"):
            log.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)

    def test_a_log_that_is_deleted_once_the_file_is_verified(self, fs: MemoryFs) -> None:
        failures: list[OSError] = []
        log = written(fs, on_error=lambda _, error: failures.append(error))
        sources = log.describe()[:3]
        flush = log.flush

        def delete_once_flushed(up_to: int | None = None) -> None:
            flush(up_to)
            log.rename_for_delete()

        log.flush = delete_once_flushed  # type: ignore[method-assign]
        with pytest.raises(KafkaStorageError, match="deleted"):
            replace(fs, log, sources, cleaned(content_of(fs, sources)))
        assert not failures

    def test_given_up(self, fs: MemoryFs, log: Log) -> None:
        stage(fs, log, 9, b"whatever")
        log.discard_staged(9)
        log.discard_staged(18)
        assert not marked(fs)

    def test_what_others_have_left_staged_goes_with_the_next(self, fs: MemoryFs, log: Log) -> None:
        stage(fs, log, 0, b"left by a task that is gone")
        clean(fs, log, 1, 2)
        assert not marked(fs)


class TestDiskFailures:
    def test_a_disk_that_fails_at_any_step_takes_the_log_offline_and_leaves_old_or_new(self) -> None:
        outcomes = set()
        for step in range(200):
            fs = MemoryFs()
            failures: list[OSError] = []
            log = written(fs, on_error=lambda _, error, told=failures: told.append(error))
            log.flush()
            sources = log.describe()[:3]
            old = read_all(log)
            data = cleaned(content_of(fs, sources))
            stage(fs, log, 0, data)
            fs.fail_under(FOLDER, errno.EIO, after=step)
            try:
                log.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)
            except KafkaStorageError:
                assert len(failures) == 1
                fs.repair(FOLDER)
                again = open_log(fs, clean=False)
                is_new = read_all(again) != old
                assert records_in(read_all(again)) == ([*SURVIVING, *range(27, 48)] if is_new else list(range(48)))
                outcomes.add(is_new)
                continue
            break
        assert step > 10
        assert outcomes == {True, False}

    def test_no_descriptor_halfway_stops_this_log_alone(self, fs: MemoryFs) -> None:
        failures: list[OSError] = []
        log = written(fs, on_error=lambda _, error: failures.append(error))
        sources = log.describe()[:3]
        rename = fs.rename

        def run_out_of_descriptors(source: str, target: str) -> None:
            if target.endswith(".log"):
                raise OSError(errno.EMFILE, "too many open files")
            rename(source, target)

        fs.rename = run_out_of_descriptors  # type: ignore[method-assign]
        with pytest.raises(KafkaStorageError):
            replace(fs, log, sources, cleaned(content_of(fs, sources)))
        fs.rename = rename  # type: ignore[method-assign]
        with pytest.raises(KafkaStorageError, match="halfway"):
            log.append(batch(1), leader_epoch=3)
        assert not failures
        assert records_in(read_all(open_log(fs, clean=False))) == [*SURVIVING, *range(27, 48)]


class TestCleanedOffset:
    CHECKPOINT = "/logs/cleaner-offset-checkpoint"

    @pytest.fixture
    def manager(self, fs: MemoryFs) -> LogManager:
        return self.start(fs)

    @pytest.fixture
    def log(self, manager: LogManager) -> Log:
        log = manager.create(NAME, topic_config())
        for number in range(16):
            log.append(batch(3, timestamp_ms=START_MS + number, value=b"x" * 60), leader_epoch=0)
        return log

    def start(self, fs: MemoryFs) -> LogManager:
        manager = LogManager(fs, ("/logs",), BrokerConfig(topic_defaults=topic_config()), SimClock(START_MS))
        manager.load()
        return manager

    def test_it_is_on_the_disk_and_remembered(self, fs: MemoryFs, log: Log, manager: LogManager) -> None:
        assert log.cleaned_offset == 0
        log.set_cleaned_offset(27, log.describe()[:3])
        assert log.cleaned_offset == 27
        assert read_offsets(fs, self.CHECKPOINT) == {NAME: 27}
        manager.close()
        again = self.start(fs).get(NAME)
        assert again
        assert again.cleaned_offset == 27

    def test_segments_that_are_others_by_now_are_refused(self, fs: MemoryFs, log: Log) -> None:
        segments = log.describe()[:3]
        clean(fs, log, 0, 3)
        with pytest.raises(InvalidUpdateVersion):
            log.set_cleaned_offset(27, segments)
        assert log.cleaned_offset == 0
        log.set_cleaned_offset(27, log.describe()[:1])
        with pytest.raises(OffsetOutOfRange):
            log.set_cleaned_offset(49, ())

    def test_segments_that_retention_took_are_clean(self, log: Log) -> None:
        segments = log.describe()[:3]
        log.advance_log_start(10)
        log.delete_old_segments(START_MS)
        assert log.cleaned_offset == 10
        log.set_cleaned_offset(27, segments)
        assert log.cleaned_offset == 27

    def test_a_truncation_lowers_it_before_it_cuts(self, fs: MemoryFs, log: Log) -> None:
        log.set_cleaned_offset(27, log.describe()[:3])
        fs.fail_under(FOLDER, errno.EIO)
        with pytest.raises(KafkaStorageError):
            log.truncate_to(20)
        fs.repair(FOLDER)
        assert read_offsets(fs, self.CHECKPOINT) == {NAME: 20}

    def test_a_log_that_begins_anew_has_nothing_compacted(self, fs: MemoryFs, log: Log) -> None:
        log.set_cleaned_offset(27, log.describe()[:3])
        log.truncate_fully_and_start_at(100)
        assert log.cleaned_offset == 100
        assert read_offsets(fs, self.CHECKPOINT) == {}

    def test_it_goes_with_a_deleted_partition(self, fs: MemoryFs, log: Log, manager: LogManager) -> None:
        log.set_cleaned_offset(27, log.describe()[:3])
        manager.delete(NAME)
        assert read_offsets(fs, self.CHECKPOINT) == {}
        assert manager.create(NAME, topic_config()).cleaned_offset == 0

    def test_that_of_a_partition_that_cannot_be_opened_is_kept(self, fs: MemoryFs, log: Log) -> None:
        log.set_cleaned_offset(27, log.describe()[:3])
        crashed = fs.crash(random.Random(1))
        damaged = crashed.open(f"{FOLDER}/{18:020d}.log")
        damaged.truncate(0)
        damaged.append(b"\xff" * 100)
        again = self.start(crashed)
        with pytest.raises(KafkaStorageError):
            again.get(NAME)
        again.close()
        assert read_offsets(crashed, self.CHECKPOINT) == {NAME: 27}

    def test_a_hole_that_a_crash_tears_does_not_pass_for_the_cleaners(self, log: Log) -> None:
        log.set_cleaned_offset(48, ())
        assert log.recovery_point == 48


def test_segments_are_described(fs: MemoryFs, log: Log) -> None:
    described = log.describe()
    assert [(each.base_offset, each.next_offset) for each in described] == [
        (0, 9), (9, 18), (18, 27), (27, 36), (36, 45), (45, 48),
    ]  # fmt: skip
    assert sum(each.size_bytes for each in described) == log.size_bytes
    assert [each.largest_timestamp_ms - START_MS for each in described] == [2002, 5002, 8002, 11002, 14002, 15002]
    assert [each.first_timestamp_ms - START_MS for each in described] == [2, 3002, 6002, 9002, 12002, 15002]
    assert len({each.identity for each in described}) == 6
    assert log.describe() == described
    assert log.segments[:2] == log.check_sources(described[:2])
    assert file_content(fs, f"{FOLDER}/{0:020d}.log") == content_of(fs, described[:1])


class TestSums:
    def test_equal_files_have_equal_sums_and_a_replaced_one_another(self, fs: MemoryFs, log: Log) -> None:
        before = log.sums(0, 48, read_bytes=1 << 20)
        assert [(each.base_offset, each.next_offset) for each in before] == [(n, n + 9) for n in range(0, 45, 9)]
        contents = [file_content(fs, f"{FOLDER}/{each.base_offset:020d}.log") for each in before]
        assert [each.crc32c for each in before] == [crc32c(content) for content in contents]
        generation = log.generation
        clean(fs, log, 1, 1)
        after = log.sums(0, 48, read_bytes=1 << 20)
        assert [one.is_as(two) for one, two in zip(before, after, strict=True)] == [True, False, True, True, True]
        assert log.generation > generation

    def test_some_at_a_time_below_an_offset(self, log: Log) -> None:
        found = log.sums(9, 36, read_bytes=1)
        assert [each.base_offset for each in found] == [9]
        assert [each.base_offset for each in log.sums(9, 36, read_bytes=1)] == [9, 18]  # the first is known by now
        assert [(each.base_offset, each.crc32c) for each in log.sums(0, 20, read_bytes=0)] == [(0, -1), (9, -1)]

    def test_a_segment_that_was_cut_and_closed_again_is_read_anew(self, fs: MemoryFs, log: Log) -> None:
        log.sums(0, 48, read_bytes=1 << 20)
        log.truncate_to(12)
        log.append(batch(1, value=b"y"), leader_epoch=9)
        log.roll()
        content = file_content(fs, f"{FOLDER}/{9:020d}.log")
        assert log.sums(9, 48, read_bytes=1 << 20)[0].crc32c == crc32c(content)
