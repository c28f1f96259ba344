"""Invalid replacements and stale plans are refused, and leave the log unchanged."""

from __future__ import annotations

import errno

import pytest
from crc32c import crc32c

from sparklog.base.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    ResourceNotFound,
)
from sparklog.base.ids import TopicPartition
from sparklog.log.flush import Flusher
from sparklog.log.log import Log
from sparklog.records.batch import assign
from sparklog.testing.memory_fs import MemoryFile, MemoryFs
from support.logs.builders import START_MS, batch, offsets_in, open_log, read_all
from support.logs.replacements import FOLDER, clean, cleaned, content_of, marked, replace, stage, written

NAME = TopicPartition("orders", 0)


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def log(fs: MemoryFs) -> Log:
    """Segments 0, 9, … 45, the last of them written."""
    return written(fs)


class TestRefusals:
    @pytest.fixture(autouse=True)
    def nothing_is_left_behind(self, fs: MemoryFs, log: Log) -> object:
        before = read_all(log)
        yield
        assert read_all(log) == before
        assert not marked(fs)
        log.roll()
        sources = log.replacer.describe()[:2]
        replace(fs, log, sources, content_of(fs, sources))  # and the log takes the next one

    def test_a_segment_that_is_written(self, fs: MemoryFs, log: Log) -> None:
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, log.replacer.describe()[4:], b"")

    def test_no_segments(self, log: Log) -> None:
        with pytest.raises(InvalidRequest):
            log.replacer.replace((), size_bytes=0, crc32c=0, high_watermark=48)
        with pytest.raises(InvalidRequest):
            log.replacer.check_sources(())

    def test_segments_that_are_no_neighbours(self, fs: MemoryFs, log: Log) -> None:
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, log.replacer.describe()[0:4:2], b"")

    def test_records_above_the_high_watermark(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        with pytest.raises(InvalidUpdateVersion, match="high watermark 26"):
            replace(fs, log, sources, cleaned(content_of(fs, sources)), high_watermark=26)

    def test_nothing_staged(self, log: Log) -> None:
        with pytest.raises(ResourceNotFound):
            log.replacer.replace(log.replacer.describe()[:3], size_bytes=0, crc32c=0, high_watermark=48)

    def test_another_size_or_checksum(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        data = cleaned(content_of(fs, sources))
        for size, crc in ((len(data) - 1, crc32c(data)), (len(data), crc32c(data) ^ 1)):
            stage(fs, log, 0, data)
            with pytest.raises(CorruptRecord):
                log.replacer.replace(sources, size_bytes=size, crc32c=crc, high_watermark=48)
            assert not marked(fs)

    def test_a_flipped_bit(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        data = bytearray(cleaned(content_of(fs, sources)))
        data[len(data) // 2] ^= 1
        with pytest.raises(CorruptRecord):
            replace(fs, log, sources, bytes(data))

    def test_a_batch_that_is_cut_off(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        with pytest.raises(CorruptRecord):
            replace(fs, log, sources, cleaned(content_of(fs, sources))[:-1])

    def test_offsets_that_do_not_increase(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        data = content_of(fs, sources)
        with pytest.raises(CorruptRecord):
            replace(fs, log, sources, data[: len(data) // 3] + data)

    @pytest.mark.parametrize(("first", "count"), [(0, 2), (0, 4)])
    def test_an_end_that_is_not_the_sources(self, fs: MemoryFs, log: Log, first: int, count: int) -> None:
        segments = log.replacer.describe()
        with pytest.raises(InvalidRecord):
            replace(fs, log, segments[:3], content_of(fs, segments[first:count]))

    def test_offsets_below_the_sources(self, fs: MemoryFs, log: Log) -> None:
        segments = log.replacer.describe()
        with pytest.raises(CorruptRecord):
            replace(fs, log, segments[1:3], content_of(fs, segments[:3]))

    def test_a_leader_epoch_that_never_was(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:1]
        data = bytearray(content_of(fs, sources))
        assign(data, 0, base_offset=0, leader_epoch=9)
        with pytest.raises(InvalidRecord, match="leader epoch"):
            replace(fs, log, sources, bytes(data))

    def test_an_empty_file_for_segments_with_records(self, fs: MemoryFs, log: Log) -> None:
        with pytest.raises(InvalidRecord):
            replace(fs, log, log.replacer.describe()[:2], b"")

    def test_a_file_that_the_broker_may_not_open(self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        """Written by a job that runs as another user."""
        open_any = fs.open

        def refuse(path: str, *, create: bool = False) -> object:
            if path.endswith(".log.cleaned") and not create:
                raise PermissionError(errno.EACCES, "not yours", path)
            return open_any(path, create=create)

        sources = log.replacer.describe()[:3]
        stage(fs, log, 0, content_of(fs, sources))
        monkeypatch.setattr(fs, "open", refuse)
        with pytest.raises(KafkaStorageError, match="may not be read"):
            log.replacer.replace(sources, size_bytes=0, crc32c=0, high_watermark=48)
        monkeypatch.undo()

    def test_a_disk_without_room(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        data = cleaned(content_of(fs, sources))
        log.flush()
        stage(fs, log, 0, data)
        fs.fail_under(FOLDER, errno.ENOSPC)
        with pytest.raises(KafkaStorageError, match="no room"):
            log.replacer.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)
        fs.repair(FOLDER)


class TestStalePlans:
    """Each leaves the log unchanged, and removes the staged files."""

    def refused(self, fs: MemoryFs, log: Log, sources: object, error: type[KafkaError] = InvalidUpdateVersion) -> None:
        with pytest.raises(error):
            replace(fs, log, sources, b"whatever")  # type: ignore[arg-type]
        with pytest.raises(error):
            log.replacer.check_sources(sources)  # type: ignore[arg-type]
        assert not marked(fs)

    def test_replaced_meanwhile(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        clean(fs, log, 0, 3)
        self.refused(fs, log, sources)

    def test_truncated_meanwhile_and_written_again_to_the_same_size(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        end = log.log_end_offset
        log.truncate_to(24)
        log.append(batch(3, timestamp_ms=START_MS, value=b"y" * 60), leader_epoch=9)
        log.roll()
        log.append(batch(3, value=b"x" * 60), leader_epoch=9)
        same = [(each.base_offset, each.next_offset, each.size_bytes) for each in log.replacer.describe()[:3]]
        assert same == [(each.base_offset, each.next_offset, each.size_bytes) for each in sources]
        assert end > log.log_end_offset
        self.refused(fs, log, sources)

    def test_removed_by_retention_meanwhile(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        log.advance_log_start(10)
        log.delete_old_segments(START_MS)
        self.refused(fs, log, sources)

    def test_removed_by_retention_while_their_end_is_looked_for(
        self, fs: MemoryFs, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sources = log.replacer.describe()[:2]
        open_read = fs.open_read

        def retain_first(path: str) -> MemoryFile:
            if path.endswith(".index") and log.log_start_offset == 0:
                log.advance_log_start(27)
                log.delete_old_segments(START_MS)
                log.delete_expired(10**9)
            return open_read(path)

        for segment in log.segments:
            segment.release()
        monkeypatch.setattr(fs, "open_read", retain_first)
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, sources, content_of(fs, sources))
        assert log.log_start_offset == 27
        assert not marked(fs)

    def test_started_anew(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        log.close()
        self.refused(fs, open_log(fs), sources)

    def test_cut_between_verifying_and_swapping(self, fs: MemoryFs, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last moment at which the log can change: when the recovery point is written."""
        log = written(fs)
        sources = log.replacer.describe()[:3]
        flush = Flusher.flush

        def cut_once_flushed(self: Flusher, up_to: int | None = None) -> None:
            flush(self, up_to)
            log.truncate_to(21)

        monkeypatch.setattr(Flusher, "flush", cut_once_flushed)
        with pytest.raises(InvalidUpdateVersion):
            replace(fs, log, sources, cleaned(content_of(fs, sources)))
        assert not marked(fs)
        assert offsets_in(read_all(log)) == list(range(21))

    def test_a_log_that_was_deleted_meanwhile(self, fs: MemoryFs, log: Log) -> None:
        sources = log.replacer.describe()[:3]
        data = cleaned(content_of(fs, sources))
        stage(fs, log, 0, data)
        log.rename_for_delete()
        with pytest.raises(KafkaStorageError, match="deleted"):
            log.replacer.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)

    def test_a_log_that_is_deleted_once_the_file_is_verified(
        self, fs: MemoryFs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failures: list[OSError] = []
        log = written(fs, on_error=failures.append)
        sources = log.replacer.describe()[:3]
        flush = Flusher.flush

        def delete_once_flushed(self: Flusher, up_to: int | None = None) -> None:
            flush(self, up_to)
            log.rename_for_delete()

        monkeypatch.setattr(Flusher, "flush", delete_once_flushed)
        with pytest.raises(KafkaStorageError, match="deleted"):
            replace(fs, log, sources, cleaned(content_of(fs, sources)))
        assert not failures

    def test_given_up(self, fs: MemoryFs, log: Log) -> None:
        stage(fs, log, 9, b"whatever")
        log.replacer.discard_staged(9)
        log.replacer.discard_staged(18)
        assert not marked(fs)

    def test_stale_staged_files_are_removed_by_the_next_replacement(self, fs: MemoryFs, log: Log) -> None:
        stage(fs, log, 0, b"left by a task that is gone")
        clean(fs, log, 1, 2)
        assert not marked(fs)
