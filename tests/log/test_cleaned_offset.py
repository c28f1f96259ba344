"""The cleaned offset: on the disk, in memory, and lowered before a truncation."""

from __future__ import annotations

import errno
import random

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidUpdateVersion, KafkaStorageError, OffsetOutOfRange
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import read_offsets
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, offsets_in, read_all, topic_config
from support.logs.replacements import FOLDER, clean

NAME = TopicPartition("orders", 0)


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


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

    def test_the_cleaned_offset_is_on_the_disk_and_in_memory(self, fs: MemoryFs, log: Log, manager: LogManager) -> None:
        assert log.cleaned_offset == 0
        log.replacer.set_cleaned_offset(27, log.replacer.describe()[:3])
        assert log.cleaned_offset == 27
        assert read_offsets(fs, self.CHECKPOINT) == {NAME: 27}
        manager.close()
        again = self.start(fs).get(NAME)
        assert again
        assert again.cleaned_offset == 27

    def test_segments_that_are_others_by_now_are_refused(self, fs: MemoryFs, log: Log) -> None:
        segments = log.replacer.describe()[:3]
        clean(fs, log, 0, 3)
        with pytest.raises(InvalidUpdateVersion):
            log.replacer.set_cleaned_offset(27, segments)
        assert log.cleaned_offset == 0
        log.replacer.set_cleaned_offset(27, log.replacer.describe()[:1])
        with pytest.raises(OffsetOutOfRange):
            log.replacer.set_cleaned_offset(49, ())

    def test_segments_that_retention_took_are_clean(self, log: Log) -> None:
        segments = log.replacer.describe()[:3]
        log.advance_log_start(10)
        log.delete_old_segments(START_MS)
        assert log.cleaned_offset == 10
        log.replacer.set_cleaned_offset(27, segments)
        assert log.cleaned_offset == 27

    def test_a_truncation_lowers_it_before_it_cuts(self, fs: MemoryFs, log: Log) -> None:
        log.replacer.set_cleaned_offset(27, log.replacer.describe()[:3])
        fs.fail_under(FOLDER, errno.EIO)
        with pytest.raises(KafkaStorageError):
            log.truncate_to(20)
        fs.repair(FOLDER)
        assert read_offsets(fs, self.CHECKPOINT) == {NAME: 20}

    def test_a_log_that_begins_anew_has_nothing_compacted(self, fs: MemoryFs, log: Log) -> None:
        log.replacer.set_cleaned_offset(27, log.replacer.describe()[:3])
        log.truncate_fully_and_start_at(100)
        assert log.cleaned_offset == 100
        assert read_offsets(fs, self.CHECKPOINT) == {}

    def test_a_deleted_partition_loses_its_cleaned_offset(self, fs: MemoryFs, log: Log, manager: LogManager) -> None:
        log.replacer.set_cleaned_offset(27, log.replacer.describe()[:3])
        manager.delete(NAME)
        assert read_offsets(fs, self.CHECKPOINT) == {}
        assert manager.create(NAME, topic_config()).cleaned_offset == 0

    def test_the_cleaned_offset_of_an_unreadable_partition_is_kept(self, fs: MemoryFs, log: Log) -> None:
        log.replacer.set_cleaned_offset(27, log.replacer.describe()[:3])
        crashed = fs.crash(random.Random(1))
        damaged = crashed.open(f"{FOLDER}/{18:020d}.log")
        damaged.truncate(0)
        damaged.append(b"\xff" * 100)
        again = self.start(crashed)
        with pytest.raises(KafkaStorageError):
            again.get(NAME)
        again.close()
        assert read_offsets(crashed, self.CHECKPOINT) == {NAME: 27}

    @pytest.mark.parametrize(
        "lost",
        [
            {"recovery-point-offset-checkpoint": None},
            {"recovery-point-offset-checkpoint": b"0\n"},
            {"cleaner-offset-checkpoint": None, "recovery-point-offset-checkpoint": b"0\n1\norders 0 0\n"},
            {"cleaner-offset-checkpoint": b"?", "recovery-point-offset-checkpoint": b"0\n1\norders 0 0\n"},
            {"cleaner-offset-checkpoint": b"", "recovery-point-offset-checkpoint": b"0\n1\norders 0 0\n"},
        ],
        ids=["gone", "cut", "cleaner's gone", "cleaner's unreadable", "cleaner's empty"],
    )
    def test_the_gaps_of_compaction_are_no_holes_after_checkpoints_were_lost(
        self, fs: MemoryFs, log: Log, lost: dict[str, bytes | None]
    ) -> None:
        """At the next start and at later ones: the process is killed each time."""
        sources = log.replacer.describe()[:3]
        clean(fs, log, 0, 3)
        log.replacer.set_cleaned_offset(sources[-1].base_offset, log.replacer.describe()[:1])
        expected = offsets_in(read_all(log))
        assert len(expected) < log.log_end_offset
        for name, content in lost.items():
            fs.damage(f"/logs/{name}", content)
        for _ in range(3):
            fs = fs.kill()
            again = self.start(fs).get(NAME)
            assert again
            assert offsets_in(read_all(again)) == expected

    def test_a_hole_that_a_crash_tears_does_not_pass_for_the_cleaners(self, log: Log) -> None:
        log.replacer.set_cleaned_offset(48, ())
        assert log.recovery_point == 48
