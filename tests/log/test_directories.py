"""Failing log directories: their logs go offline and stay so, and no record is lost."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import random
from uuid import uuid4

import pytest

from sparklog.base.errors import KafkaStorageError
from sparklog.base.ids import TopicPartition
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, check_indexes, offsets_in, read_all, topic_config
from support.logs.managers import ORDERS, fill, start
from support.logs.replacements import even, records_in, stop_halfway

pytestmark = pytest.mark.slow
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START_MS)


class TestFailingDisks:
    def test_a_failed_directory_takes_only_its_own_partitions_offline(self, fs: MemoryFs, clock: SimClock) -> None:
        told: list[tuple[str, int | None]] = []
        manager = start(fs, clock, on_dir_failure=lambda path, error: told.append((path, error.errno)))
        fill(manager, *ORDERS)
        [on_a, also_on_a], [on_b, _] = (
            [log.partition for log in manager if log.folder.startswith(path)] for path in ("/a", "/b")
        )
        log, other = manager.get(on_a), manager.get(also_on_a)
        before = log.log_end_offset
        fs.fail_under("/a", errno.EIO)

        with pytest.raises(KafkaStorageError):
            log.append(batch(), leader_epoch=0)

        assert told == [("/a", errno.EIO)]
        assert list(manager.failed_dirs) == ["/a"]
        assert manager.dirs == ("/b",)
        for name in (on_a, also_on_a):
            with pytest.raises(KafkaStorageError, match="/a has failed"):
                manager.get(name)
        with pytest.raises(KafkaStorageError):
            other.read(0, 100)
        fill(manager, on_b)
        assert log.log_end_offset == before
        manager.tasks.flush_due(clock.monotonic_ms())
        manager.tasks.checkpoint_recovery_points()
        manager.tasks.apply_retention(clock.time_ms())
        assert manager.create(TopicPartition("new", 0), topic_config()).folder == "/b/new-0"
        with pytest.raises(KafkaStorageError, match="failed directory"):
            manager.create(TopicPartition("old", 0), topic_config(), is_new=False)
        manager.close()

        fs.repair("/a")
        again = start(fs, clock)
        assert again.get(on_a).log_end_offset == before
        assert offsets_in(read_all(again.get(on_a))) == list(range(before))
        assert again.get(on_b).log_end_offset == 30

    def test_a_log_that_stops_alone_is_told_of_and_whole_after_a_restart(self, fs: MemoryFs, clock: SimClock) -> None:
        told: list[TopicPartition] = []
        manager = start(fs, clock, on_log_failure=lambda name, _: told.append(name))
        fill(manager, *ORDERS[:3], batches=20)
        log = manager.get(ORDERS[0])
        sources = log.replacer.describe()[:3]
        stop_halfway(fs, log, sources)
        assert told == [ORDERS[0]]
        for find in (manager.get, lambda name: manager.create(name, topic_config())):
            with pytest.raises(KafkaStorageError, match="halfway"):
                find(ORDERS[0])
        fill(manager, *ORDERS[1:3])
        manager.tasks.checkpoint_recovery_points()
        manager.close()
        end = sources[-1].next_offset
        survivors = [offset for base in range(0, end, 3) if even(base) for offset in range(base, base + 3)]
        assert records_in(read_all(start(fs, clock).get(ORDERS[0]))) == [*survivors, *range(end, 60)]

    def test_a_partition_that_may_lie_in_a_failed_directory_is_not_deleted(self, fs: MemoryFs, clock: SimClock) -> None:
        told: list[str] = []
        manager = start(fs, clock, on_dir_failure=lambda path, _: told.append(path))
        fill(manager, *ORDERS)
        on_a = next(log.partition for log in manager if log.folder.startswith("/a"))
        fs.fail_under("/a", errno.EIO)
        for _ in range(2):
            with pytest.raises(KafkaStorageError):
                manager.delete(on_a)
        with pytest.raises(KafkaStorageError, match="failed directory"):
            manager.delete(TopicPartition("old", 0))
        assert told == ["/a"]
        manager.close()

    def test_a_partition_in_a_failed_directory_is_not_made_anew_in_another(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS)
        on_a = next(log.partition for log in manager if log.folder.startswith("/a"))
        fs.fail_under("/a", errno.EIO)
        with pytest.raises(KafkaStorageError):
            manager.delete(on_a)
        with pytest.raises(KafkaStorageError, match="/a has failed"):
            manager.create(on_a, topic_config(), is_new=True)
        manager.close()
        fs.repair("/a")
        assert start(fs, clock).get(on_a).log_end_offset == 15

    def test_a_log_that_is_made_while_its_directory_fails_is_offline_too(
        self, fs: MemoryFs, clock: SimClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS)
        on_a = next(log for log in manager if log.folder.startswith("/a"))
        make_dir = fs.make_dir

        def fail_meanwhile(path: str) -> None:
            make_dir(path)
            fs.fail_under(on_a.folder, errno.EIO)
            with pytest.raises(KafkaStorageError):
                on_a.append(batch(), leader_epoch=0)

        monkeypatch.setattr(fs, "make_dir", fail_meanwhile)
        name = TopicPartition("t", 0)
        for _ in range(2):
            with pytest.raises(KafkaStorageError, match="/a has failed"):
                manager.create(name, topic_config())
        assert not fs.exists("/b/t-0")
        assert name not in [log.partition for log in manager]

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
    @pytest.mark.parametrize("is_there", [False, True])
    def test_no_disk_failure_gives_a_partition_a_second_folder(
        self, clock: SimClock, number: int, *, is_there: bool
    ) -> None:
        """The disk fails while a partition is created or deleted; both are retried, and then the power fails."""
        name, after, has_failed = TopicPartition("t", 0), 0, True
        while has_failed:
            fs = MemoryFs()
            manager = start(fs, clock)
            if is_there:
                fill(manager, name, batches=2)
                manager.tasks.flush_due(clock.monotonic_ms())
            fs.fail_under("/a", number, after=after)
            has_failed = False
            for number_of_try in range(4):
                try:
                    if number_of_try % 2:
                        manager.create(name, topic_config())
                    else:
                        manager.delete(name)
                except KafkaStorageError:
                    has_failed = True
            for seed in range(4):
                left = fs.crash(random.Random(seed))
                assert not (left.exists("/a/t-0") and left.exists("/b/t-0"))
            after += 1
        assert after > 5

    def test_no_disk_failure_loses_appended_records(self, clock: SimClock) -> None:
        after = 0
        while True:
            fs = MemoryFs()
            manager = start(fs, clock, config=topic_config(retention_bytes=2500))
            fill(manager, *ORDERS[:2], batches=1)
            fs.fail_under("/a", errno.EIO, after=after)
            appended = dict.fromkeys(ORDERS[:2], 3)
            for _ in range(14):
                for name in ORDERS[:2]:
                    with contextlib.suppress(KafkaStorageError):
                        fill(manager, name, batches=1)
                        appended[name] += 3
                manager.tasks.flush_due(clock.monotonic_ms())
                manager.tasks.checkpoint_recovery_points()
                manager.tasks.apply_retention(clock.time_ms())
            has_failed = bool(manager.failed_dirs)
            assert set(manager.failed_dirs) <= {"/a"}
            manager.close()
            fs.repair("/a")
            again = start(fs, clock)
            for name in ORDERS[:2]:
                log = again.get(name)
                assert log.log_end_offset == appended[name]
                found = offsets_in(read_all(log))
                assert found == list(range(found[0], appended[name]))
            assert appended[ORDERS[1]] == 45
            if not has_failed:
                break
            after += 5
        assert after > 50

    @pytest.mark.parametrize("work", ["flush", "checkpoint", "read", "retention", "roll"])
    def test_any_operation_may_detect_the_failure_first(self, fs: MemoryFs, clock: SimClock, work: str) -> None:
        manager = start(fs, clock, config=topic_config(retention_bytes=0))
        fill(manager, *ORDERS)
        log = manager.get(ORDERS[0])
        path = log.folder.rpartition("/")[0]
        fs.fail_under(path, errno.EIO)
        if work == "checkpoint":
            manager.tasks.checkpoint_recovery_points()
        elif work == "retention":
            manager.tasks.apply_retention(clock.time_ms())
            manager.tasks.checkpoint_recovery_points()
        else:
            with pytest.raises(KafkaStorageError):
                {"flush": log.flush, "read": lambda: log.read(0, 100).read(), "roll": log.roll}[work]()
        assert list(manager.failed_dirs) == [path]
        assert len(list(manager)) == 2

    def test_a_directory_that_fails_at_the_start_is_left_out(self, fs: MemoryFs, clock: SimClock) -> None:
        start(fs, clock).close()
        fs.fail_under("/a", errno.EIO)
        manager = start(fs, clock)
        assert manager.dirs == ("/b",)
        manager.close()

    def test_no_directory_that_works_is_an_error(self, fs: MemoryFs, clock: SimClock) -> None:
        fs.fail_under("/a", errno.EIO)
        with pytest.raises(KafkaStorageError):
            start(fs, clock, "/a")

    def test_the_last_directory_that_fails_while_logs_are_opened_is_an_error(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        folder = manager.get(ORDERS[0]).folder
        left = fs.kill()
        left.fail_under(folder, errno.EIO)
        with pytest.raises(KafkaStorageError, match="no log directory works"):
            start(left, clock, "/a")

    def test_too_many_open_files_are_not_the_disks_fault(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0])
        log = manager.get(ORDERS[0])
        fs.fail_under(log.folder, errno.EMFILE)
        for work in (log.roll, log.flush):
            with pytest.raises(KafkaStorageError):
                work()
        fs.repair(log.folder)
        assert not manager.failed_dirs
        log.append(batch(), leader_epoch=0)
        assert offsets_in(read_all(log)) == list(range(16))

    def test_appends_go_on_without_file_descriptors_and_their_index_entries_are_written_later(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        manager = start(fs, clock)
        log = manager.create(ORDERS[0], topic_config(index_interval_bytes=0, internal_segment_bytes=1 << 20))
        fs.fail_under(log.folder, errno.EMFILE)
        for _ in range(200):  # more index entries than are kept in memory
            log.append(batch(), leader_epoch=0)
        fs.repair(log.folder)
        log.append(batch(), leader_epoch=0)
        ends = log.log_end_offset
        assert offsets_in(read_all(log)) == list(range(ends))
        manager.close()
        again = start(fs, clock).get(ORDERS[0])
        assert offsets_in(read_all(again)) == list(range(ends))
        check_indexes(again)

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
    def test_a_deletion_that_failed_for_a_moment_is_durable_when_it_has_succeeded(
        self, fs: MemoryFs, clock: SimClock, number: int
    ) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0])
        home = posixpath.dirname(manager.get(ORDERS[0]).folder)
        fs.fail_under(home, number)
        assert list(manager.delete_all([ORDERS[0]])) == [ORDERS[0]]
        assert not manager.needs_restart(ORDERS[0])
        fs.repair(home)
        assert manager.delete_all([ORDERS[0]]) == {}
        for seed in range(10):
            left = fs.crash(random.Random(seed))
            assert ORDERS[0] not in start(left, clock).partitions

    def test_a_partition_that_was_created_halfway_is_deleted(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        for home in manager.dirs:
            fs.fail_under(f"{home}/{ORDERS[0]}", errno.EMFILE)
        with pytest.raises(KafkaStorageError):
            manager.create(ORDERS[0], topic_config())
        assert [home for home in manager.dirs if str(ORDERS[0]) in fs.list(home)]
        for home in manager.dirs:
            fs.repair(f"{home}/{ORDERS[0]}")
        assert manager.delete_all([ORDERS[0]]) == {}
        assert not [home for home in manager.dirs if str(ORDERS[0]) in fs.list(home)]
        manager.create(ORDERS[0], topic_config()).append(batch(), leader_epoch=0)

    def test_a_partition_that_was_set_aside_is_deleted_at_the_second_attempt(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0])
        home = posixpath.dirname(manager.get(ORDERS[0]).folder)
        manager.create(ORDERS[0], topic_config(), topic_id=uuid4())
        with pytest.raises(KafkaStorageError, match="INCONSISTENT_TOPIC_ID"):
            manager.create(ORDERS[0], topic_config(), topic_id=uuid4())
        fs.fail_under(home, errno.EMFILE)
        assert list(manager.delete_all([ORDERS[0]])) == [ORDERS[0]]
        fs.repair(home)
        assert manager.delete_all([ORDERS[0]]) == {}
        assert str(ORDERS[0]) not in fs.list(home)

    def test_a_stop_without_file_descriptors_is_not_clean_and_loses_nothing(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS[:3])
        homes = {posixpath.dirname(manager.get(name).folder) for name in ORDERS[:3]}
        ends = {name: manager.get(name).log_end_offset for name in ORDERS[:3]}
        failing = min(homes)
        fs.fail_under(failing, errno.EMFILE)
        manager.close()
        fs.repair(failing)
        assert {home for home in homes if MARKER not in fs.list(home)} == {failing}
        again = start(fs, clock)
        assert {name: again.get(name).log_end_offset for name in ORDERS[:3]} == ends
