"""Reading a folder beside its writer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs as pafs

from sparklog.arrow.filesystems import ArrowFs
from sparklog.base.errors import CorruptRecord, OffsetOutOfRange
from sparklog.base.fs import LocalFs, ReadFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import OffsetCheckpoint
from sparklog.log.log import Log
from sparklog.log.reader import LogReader, SegmentInfo
from sparklog.log.segment.ranges import ReadRange
from sparklog.records.batch import iterate_headers
from sparklog.records.records import Record, read_records, write_records
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support import GOLDEN
from support.logs.builders import START_MS, batch, file_content, offsets_in, open_log, read_all, topic_config
from support.patience import PATIENCE_S

FOLDER = "/logs/orders-0"


def written(fs: MemoryFs, batches: int = 30, **config: object) -> Log:
    """Batches of 3 records, a second apart, 3 to a segment."""
    log = open_log(fs, config=topic_config(**({"file_delete_delay_ms": 1000} | config)))
    for number in range(batches):
        log.append(batch(3, timestamp_ms=START_MS + number * 1000, value=b"x" * 60), leader_epoch=0)
    return log


def read_offsets(reader: LogReader, ranges: list[ReadRange], chunk_bytes: int = 1 << 20) -> list[int]:
    """The offsets that lie in the ranges."""
    return [
        offset
        for each in ranges
        for chunk in reader.read(each, chunk_bytes)
        for offset in offsets_in(chunk)
        if each.offset_from <= offset < each.offset_to
    ]


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


class TestKafkasFolders:
    @pytest.mark.parametrize(
        "folder", sorted(path.parent for path in GOLDEN.glob("*/expected.jsonl")), ids=lambda p: p.name
    )
    @pytest.mark.parametrize("read_fs", [LocalFs(), ArrowFs(pafs.LocalFileSystem())], ids=["local", "arrow"])
    @pytest.mark.parametrize("pieces", [1, 4, 60])
    def test_every_record_is_read_once(self, read_fs: ReadFs, folder: Path, pieces: int) -> None:
        reader = LogReader(read_fs, str(folder))
        expected = [json.loads(line)["offset"] for line in (folder / "expected.jsonl").read_text().splitlines()]
        found = []
        for each in reader.cut(reader.log_start_offset, reader.end_offset(), pieces):
            for chunk in reader.read(each, 2000):
                for position, header in iterate_headers(chunk):
                    if not header.is_control:
                        records = read_records(chunk, position)
                        found += [r.offset for r in records if each.offset_from <= r.offset < each.offset_to]
        assert found == expected

    def test_segments_tell_their_greatest_timestamp(self) -> None:
        infos = LogReader(LocalFs(), str(GOLDEN / "segments-0")).segments()
        assert infos[0] == SegmentInfo(0, 240, 14768, 1700000002390)
        assert infos[-1] == SegmentInfo(1400, 1500, 6836, None)
        emptied = LogReader(LocalFs(), str(GOLDEN / "compacted-0")).segments()
        assert emptied[0] == SegmentInfo(0, 1160, 0, None)


class TestPlanning:
    @pytest.mark.slow
    @given(batches=st.integers(1, 40), pieces=st.integers(1, 30), data=st.data())
    def test_pieces_cover_each_offset_once_between_batches(
        self, batches: int, pieces: int, data: st.DataObject
    ) -> None:
        fs = MemoryFs()
        written(fs, batches)
        start = data.draw(st.integers(0, 3 * batches - 1))
        end = data.draw(st.integers(start + 1, 3 * batches))
        reader = LogReader(fs, FOLDER)

        ranges = reader.cut(start, end, pieces)

        assert ranges[0].offset_from == start
        assert ranges[-1].offset_to == end
        for first, second in pairwise(ranges):
            assert first.offset_to == second.offset_from
            assert second.offset_from % 3 == 0
        assert read_offsets(reader, ranges, 300) == list(range(start, end))
        for each in ranges:
            content = file_content(fs, f"{FOLDER}/{each.segment_base:020d}.log")
            held = offsets_in(content[each.position : each.position + each.size])
            assert set(range(each.offset_from, each.offset_to)) <= set(held)

    def test_pieces_are_about_equal(self, fs: MemoryFs) -> None:
        written(fs, 400, internal_segment_bytes=1 << 30)
        sizes = [each.size for each in LogReader(fs, FOLDER).cut(0, 1200, 8)]
        assert len(sizes) == 8
        assert max(sizes) < 1.2 * min(sizes)

    def test_below_the_first_segment_is_out_of_range(self, fs: MemoryFs) -> None:
        log = written(fs, retention_bytes=300)
        log.delete_old_segments(START_MS)
        with pytest.raises(OffsetOutOfRange):
            LogReader(fs, FOLDER).cut(0, 90, 1)

    def test_bounds_are_those_of_the_log_directory(self, fs: MemoryFs) -> None:
        written(fs)
        reader = LogReader(fs, FOLDER)
        assert (reader.log_start_offset, reader.end_offset(), reader.high_watermark()) == (0, 90, None)
        OffsetCheckpoint(fs, "/logs/log-start-offset-checkpoint").write({TopicPartition("orders", 0): 7})
        OffsetCheckpoint(fs, "/logs/replication-offset-checkpoint").write({TopicPartition("orders", 0): 80})
        assert (reader.log_start_offset, reader.high_watermark()) == (7, 80)
        OffsetCheckpoint(fs, "/logs/replication-offset-checkpoint").write({TopicPartition("orders", 1): 80})
        assert reader.high_watermark() == 0

    @pytest.mark.parametrize("tail", [b"", b"\0" * 100, b"\0\0\0\0\0\0\0\x5a\0\0\1\0", bytes(batch(3))[:-1]])
    def test_the_end_is_behind_the_last_whole_batch(self, fs: MemoryFs, tail: bytes) -> None:
        log = written(fs)
        fs.open(f"{FOLDER}/{log.segments[-1].base_offset:020d}.log").append(tail)
        assert LogReader(fs, FOLDER).end_offset() == 90

    @pytest.mark.slow
    @given(asked=st.integers(-5, 35), lags=st.lists(st.integers(0, 9), min_size=1, max_size=30))
    def test_the_first_record_that_is_late_enough_is_found(self, asked: int, lags: list[int]) -> None:
        fs = MemoryFs()
        log = open_log(fs, config=topic_config(internal_segment_bytes=400))
        times = [START_MS + number - lag for number, lag in enumerate(lags)]
        for timestamp in times:
            log.append(write_records([Record(offset=0, timestamp_ms=timestamp)]), leader_epoch=0)
        expected = next((offset for offset, timestamp in enumerate(times) if timestamp >= START_MS + asked), None)
        assert LogReader(fs, FOLDER).offset_for_timestamp(START_MS + asked) == expected

    def test_a_time_index_that_was_not_flushed_is_not_trusted(self, fs: MemoryFs) -> None:
        log = written(fs, 6)
        OffsetCheckpoint(fs, "/logs/recovery-point-offset-checkpoint").write({log.partition: 0})
        path = f"{FOLDER}/00000000000000000000.timeindex"
        fs.open(path).truncate(0)
        reader = LogReader(fs, FOLDER)
        assert reader.segments()[0].max_timestamp_ms == START_MS + 2002
        assert reader.offset_for_timestamp(START_MS + 2000) == 6


class TestWhileOthersWrite:
    def test_a_deleted_segment_is_read_while_its_files_are_there(self, fs: MemoryFs) -> None:
        log = written(fs, retention_bytes=300)
        reader = LogReader(fs, FOLDER)
        ranges = reader.cut(0, 90, 1)
        log.delete_old_segments(START_MS)
        assert read_offsets(reader, ranges) == list(range(90))
        log.delete_expired(10**9)
        with pytest.raises(OffsetOutOfRange):
            read_offsets(reader, ranges)

    def test_a_segment_that_is_being_read_may_go(self, fs: MemoryFs) -> None:
        log = written(fs, retention_bytes=300)
        reader = LogReader(fs, FOLDER)
        [first, *_] = reader.cut(0, 90, 1)
        chunks = reader.read(first, 100)
        found = offsets_in(next(chunks))
        log.delete_old_segments(START_MS)
        log.delete_expired(10**9)
        for chunk in chunks:
            found += offsets_in(chunk)
        assert found == list(range(first.offset_to))

    def test_a_compacted_segment_is_searched_again(self, fs: MemoryFs) -> None:
        log = written(fs, 12, internal_segment_bytes=1 << 20)
        reader = LogReader(fs, FOLDER)
        ranges = reader.cut(0, 36, 6)
        assert len(ranges) == 6
        data = read_all(log)
        size = len(data) // 12
        kept = [1, 2, 5, 9, 11]
        replacement = b"".join(data[number * size : (number + 1) * size] for number in kept)
        for name, content in ((".log", replacement), (".index", b""), (".timeindex", b"")):
            file = fs.open(f"{FOLDER}/new", create=True)
            file.append(content)
            fs.rename(f"{FOLDER}/new", f"{FOLDER}/{0:020d}{name}")
        assert read_offsets(reader, ranges, 300) == [3 * number + i for number in kept for i in range(3)]

    def test_segments_that_were_merged_are_searched_again(self, fs: MemoryFs) -> None:
        log = written(fs, 12)
        reader = LogReader(fs, FOLDER)
        ranges = reader.cut(0, 36, 1)
        bases = [segment.base_offset for segment in log.segments]
        assert len(bases) > 3
        merged = b"".join(file_content(fs, f"{FOLDER}/{base:020d}.log") for base in bases[:3])
        for base in bases[1:3]:
            fs.remove(f"{FOLDER}/{base:020d}.log")
        file = fs.open(f"{FOLDER}/new", create=True)
        file.append(merged)
        fs.rename(f"{FOLDER}/new", f"{FOLDER}/{0:020d}.log")
        assert sorted(set(read_offsets(reader, ranges))) == list(range(36))
        assert read_offsets(reader, reader.cut(0, 36, 1)) == list(range(36))

    def test_a_log_that_ends_too_early_is_reported(self, fs: MemoryFs) -> None:
        log = written(fs)
        reader = LogReader(fs, FOLDER)
        ranges = reader.cut(0, 90, 1)
        log.truncate_to(60)
        with pytest.raises(OffsetOutOfRange):
            read_offsets(reader, ranges)

    def test_a_folder_that_is_gone_is_reported(self, fs: MemoryFs) -> None:
        log = written(fs)
        reader = LogReader(fs, FOLDER)
        ranges = reader.cut(0, 90, 1)
        log.rename_for_delete()
        with pytest.raises(OffsetOutOfRange):
            read_offsets(reader, ranges)
        with pytest.raises(OffsetOutOfRange):
            reader.end_offset()

    def test_bytes_that_are_no_batch_are_reported(self, fs: MemoryFs) -> None:
        written(fs, 3)
        reader = LogReader(fs, FOLDER)
        ranges = reader.cut(0, 9, 1)
        path = f"{FOLDER}/{0:020d}.log"
        content = bytearray(file_content(fs, path))
        content[len(content) // 3 + 16] = 9
        file = fs.open(path)
        file.truncate(0)
        file.append(content)
        with pytest.raises(CorruptRecord):
            read_offsets(reader, ranges)

    def test_a_batch_larger_than_a_chunk_is_read_whole(self, fs: MemoryFs) -> None:
        log = open_log(fs, config=topic_config(internal_segment_bytes=1 << 20))
        for size in (10, 5000, 10):
            log.append(batch(value=b"x" * size), leader_epoch=0)
        reader = LogReader(fs, FOLDER)
        [whole] = reader.cut(0, 3, 1)
        assert [offsets_in(chunk) for chunk in reader.read(whole, 100)] == [[0], [1], [2]]

    def test_reads_are_right_beside_appends_rolls_deletions_and_truncations(self, tmp_path: Path) -> None:
        """Records between the log start and the high watermark are read completely, or reported as gone."""
        clock = SimClock(START_MS)
        folder = f"{tmp_path}/orders-0"
        config = topic_config(retention_bytes=4000, file_delete_delay_ms=0)
        log = open_log(LocalFs(), folder, clock=clock, config=config)
        log.append(batch(3, value=b"x" * 60), leader_epoch=0)
        committed = [3]
        stopping = threading.Event()

        def write() -> None:
            while not stopping.is_set():
                for _ in range(5):
                    log.append(batch(3, value=b"x" * 60), leader_epoch=0)
                log.truncate_to(log.log_end_offset - 6)  # above the high watermark
                committed[0] = log.log_end_offset
                log.delete_old_segments(START_MS, high_watermark=committed[0])
                log.delete_expired(10**9)

        writer = threading.Thread(target=write)
        writer.start()
        whole = gone = 0
        try:
            while whole < 60 or gone < 3:
                reader = LogReader(LocalFs(), folder)
                end = committed[0]
                start = max(reader.log_start_offset, end - 200 if whole % 2 else 0)
                try:
                    found = read_offsets(reader, reader.cut(start, end, 5), 700)
                except OffsetOutOfRange:
                    gone += 1
                    continue
                assert found == list(range(start, end))
                whole += 1
        finally:
            stopping.set()
            writer.join()
        log.close()


@pytest.mark.slow
def test_a_reader_loads_no_more_than_it_needs() -> None:
    """Spark's workers fork for every task."""
    unwanted = ["numba", "pyarrow", "grpc", "asyncio", "pyspark"]
    code = f"import sys, sparklog.log.reader; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == "[]\n"
