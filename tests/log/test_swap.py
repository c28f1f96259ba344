"""Replacing several segments by one."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord, KafkaStorageError
from sparklog.base.ids import TopicPartition
from sparklog.log.log import Log
from sparklog.log.segment.cache import SegmentCache
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import START_MS, batch, check_indexes, offsets_in, open_log, read_all, topic_config
from support.logs.replacements import (
    FOLDER,
    clean,
    cleaned,
    content_of,
    emptied,
    even,
    marked,
    records_in,
    replace,
    stage,
    stop_halfway,
    written,
)
from support.patience import PATIENCE_S

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


class TestReplacement:
    def test_the_new_segment_is_read_in_place_of_the_old_ones(self, fs: MemoryFs, log: Log) -> None:
        new = clean(fs, log, 0, 3)
        assert records_in(read_all(log)) == [*SURVIVING, *range(27, 48)]
        assert [segment.base_offset for segment in log.segments] == [0, 27, 36, 45]
        assert log.replacer.describe()[0] == new
        assert (new.base_offset, new.next_offset, new.largest_timestamp_ms) == (0, 27, START_MS + 8002)
        assert new.first_timestamp_ms == START_MS + 2
        check_indexes(log)
        assert not marked(fs)
        assert log.log_end_offset == 48

    def test_a_replaced_log_is_the_same_after_a_restart(self, fs: MemoryFs, log: Log) -> None:
        clean(fs, log, 0, 3)
        before, epochs = read_all(log), log.epochs
        log.close()
        again = open_log(fs)
        assert read_all(again) == before
        assert again.epochs == epochs
        check_indexes(again)
        assert again.replacer.describe()[0].largest_timestamp_ms == START_MS + 8002

    def test_one_segment_may_replace_itself(self, fs: MemoryFs, log: Log) -> None:
        before = log.replacer.describe()[1]
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

    def test_a_folder_is_not_renamed_while_its_files_are_removed(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clean(fs, log, 0, 3)
        has_begun, may_go_on = threading.Event(), threading.Event()

        def slow_remove(path: str) -> None:
            has_begun.set()
            assert may_go_on.wait(PATIENCE_S)
            MemoryFs.remove(fs, path)

        monkeypatch.setattr(fs, "remove", slow_remove)
        with ThreadPoolExecutor(2) as threads:
            removing = threads.submit(log.delete_expired, 10**9)
            assert has_begun.wait(PATIENCE_S)
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
        sources = log.replacer.describe()[:2]
        data = b"".join(emptied(header) for _, header in iterate_headers(content_of(fs, sources)))
        replace(fs, log, sources, data)
        for again in (log, open_log(fs, clean=False)):
            assert {each: state.batches[-1].last_offset for each, state in again.producers.items()} == last

    def test_records_below_the_cleaned_offset_are_flushed_and_checkpointed_first(self, fs: MemoryFs) -> None:
        remembered: list[int] = []
        log = written(fs, write_checkpoints=lambda: remembered.append(log.recovery_point))
        clean(fs, log, 0, 3)
        assert remembered == [27]
        assert log.recovery_point == 27

    def test_appends_go_on_while_a_segment_is_verified_and_flushed(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
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
        sources = log.replacer.describe()[:1]
        assert replace(fs, log, sources, content_of(fs, sources)).next_offset == 3
        data = bytearray(content_of(fs, sources))
        data[3 << 20] ^= 1
        with pytest.raises(CorruptRecord):
            replace(fs, log, log.replacer.describe()[:1], bytes(data))

    @settings(max_examples=8)
    @given(data=st.data())
    def test_remaining_records_are_read_from_every_offset(self, data: st.DataObject) -> None:
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

    def test_a_held_segment_keeps_its_former_content(self, fs: MemoryFs, log: Log) -> None:
        held = log.segments[0]
        latest = held.largest
        clean(fs, log, 0, 3)
        held.release()
        assert offsets_in(held.file.read_at(0, held.size_bytes)) == list(range(9))
        assert held.find(7, held.size_bytes)
        assert held.largest == latest

    def test_a_replaced_file_is_closed_by_its_last_reader(self, fs: MemoryFs) -> None:
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


class TestDiskFailures:
    def test_a_disk_that_fails_at_any_step_takes_the_log_offline_and_leaves_old_or_new(self) -> None:
        outcomes = set()
        for step in range(200):
            fs = MemoryFs()
            failures: list[OSError] = []
            log = written(fs, on_error=lambda error, told=failures: told.append(error))
            log.flush()
            sources = log.replacer.describe()[:3]
            old = read_all(log)
            data = cleaned(content_of(fs, sources))
            stage(fs, log, 0, data)
            fs.fail_under(FOLDER, errno.EIO, after=step)
            try:
                log.replacer.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)
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
        log = written(fs, on_error=failures.append)
        sources = log.replacer.describe()[:3]
        stop_halfway(fs, log, sources)
        with pytest.raises(KafkaStorageError, match="halfway"):
            log.append(batch(1), leader_epoch=3)
        assert not failures
        assert records_in(read_all(open_log(fs, clean=False))) == [*SURVIVING, *range(27, 48)]
