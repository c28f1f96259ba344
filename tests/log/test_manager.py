"""All logs of a broker: found, opened, looked after, closed; and directories that fail."""

from __future__ import annotations

import contextlib
import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from log_values import START_MS, batch, file_content, offsets_in, read_all, topic_config

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError, KafkaStorageError, OffsetOutOfRange, SparklogError
from sparklog.base.fs import Fs, LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log import manager as manager_module
from sparklog.log.cache import SegmentCache
from sparklog.log.manager import LogManager
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim_clock import SimClock

ORDERS = [TopicPartition("orders", number) for number in range(4)]


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START_MS)


class MakingTogether(MemoryFs):
    """No partition's folder is made before `parties` are being made."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self._all_there = threading.Barrier(parties)

    def make_dir(self, path: str) -> None:
        if path.count("/") > 1:
            self._all_there.wait(10)
        super().make_dir(path)


def start(
    fs: Fs,
    clock: SimClock,
    *dirs: str,
    config: TopicConfig | None = None,
    num_recovery_threads_per_data_dir: int = 1,
    **how: object,
) -> LogManager:
    broker = BrokerConfig(
        topic_defaults=config or topic_config(), num_recovery_threads_per_data_dir=num_recovery_threads_per_data_dir
    )
    manager = LogManager(fs, dirs or ("/a", "/b"), broker, clock, **how)  # type: ignore[arg-type]
    manager.load()
    return manager


def fill(manager: LogManager, *names: TopicPartition, batches: int = 5) -> None:
    for name in names:
        log = manager.get(name) or manager.create(name, topic_config())
        for _ in range(batches):
            log.append(batch(3, value=b"x" * 60), leader_epoch=0)


def crash(fs: MemoryFs, clock: SimClock, *dirs: str) -> LogManager:
    """The broker's process is gone, its files are not."""
    fs._locks.clear()
    return start(fs, clock, *dirs)


def two_homes(fs: MemoryFs, clock: SimClock, name: TopicPartition) -> LogManager:
    """A partition was made again while its directory was left out; orders-1 lies in one."""
    for path, batches in ("/a", 5), ("/b", 10):
        alone = start(fs, clock, path)
        fill(alone, name, batches=batches)
        alone.close()
    manager = start(fs, clock, "/b")
    fill(manager, ORDERS[1])
    manager.close()
    return start(fs, clock)


class TestLoading:
    def test_logs_are_found_in_all_directories(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS)
        manager.close()

        progress: list[tuple[int, int, TopicPartition]] = []
        again = LogManager(fs, ("/a", "/b/"), BrokerConfig(), clock)
        again.load(progress=lambda *told: progress.append(told))

        assert sorted(log.partition for log in again) == ORDERS
        assert [done for done, _, _ in sorted(progress)] == [1, 2, 3, 4]
        assert {total for _, total, _ in progress} == {4}
        assert all(log.log_end_offset == log.recovery_point == 15 for log in again)

    def test_logs_of_which_nothing_was_written_are_closed_without_a_flush_of_names(
        self, fs: MemoryFs, clock: SimClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS)
        manager.close()
        again = start(fs, clock)
        flushed: list[str] = []
        monkeypatch.setattr(fs, "flush_dir", flushed.append)
        again.close()
        assert set(flushed) <= {"/a", "/b"}
        assert len(flushed) < len(ORDERS) * 2

    def test_what_their_segments_hold_open_is_bounded_for_all_logs_together(
        self, fs: MemoryFs, clock: SimClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manager_module, "SegmentCache", lambda: SegmentCache(max_segments=3))
        manager = start(fs, clock)
        fill(manager, *ORDERS, batches=8)
        for log in manager:
            read_all(log)
        closed = [segment for log in manager for segment in log.segments[:-1]]
        assert len(closed) > 3
        assert sum(segment._file is not None for segment in closed) == 3

    def test_new_partitions_go_where_there_are_the_fewest(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a", "/b", "/c")
        for number in range(7):
            manager.create(TopicPartition("t", number), topic_config())
        folders = [log.folder.split("/")[1] for log in manager]
        assert sorted(folders.count(each) for each in "abc") == [2, 2, 3]

    def test_new_partitions_that_are_made_at_the_same_time_are_counted(self, clock: SimClock) -> None:
        manager = start(MakingTogether(len(ORDERS)), clock, num_recovery_threads_per_data_dir=len(ORDERS))
        made = manager.in_threads(lambda name: manager.create(name, topic_config()), ORDERS)
        assert sorted(log.folder.split("/")[1] for log in made) == ["a", "a", "b", "b"]

    def test_after_a_crash_logs_are_recovered_from_their_recovery_points(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.get(ORDERS[0]).flush(6)
        manager.checkpoint_recovery_points()
        assert file_content(fs, "/a/recovery-point-offset-checkpoint") == b"0\n1\norders 0 6\n"

        again = crash(fs, clock, "/a")

        assert again.get(ORDERS[0]).recovery_point == 6
        assert offsets_in(read_all(again.get(ORDERS[0]))) == list(range(15))

    def test_the_marker_of_a_clean_stop_is_taken_at_the_start(self, fs: MemoryFs, clock: SimClock) -> None:
        start(fs, clock, "/a").close()
        assert fs.exists("/a/.kafka_cleanshutdown")
        start(fs, clock, "/a")
        assert not fs.exists("/a/.kafka_cleanshutdown")

    def test_topics_have_their_own_configuration(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0])
        manager.close()
        own = topic_config(segment_ms=77)
        again = LogManager(fs, ("/a", "/b"), BrokerConfig(), clock)
        again.load({"orders": own})
        assert again.get(ORDERS[0]).config is own
        again.update_config("orders", topic_config(segment_ms=78))
        assert again.get(ORDERS[0]).config.segment_ms == 78

    def test_a_directory_in_use_is_refused(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        with pytest.raises(ConfigError, match="used by another broker"):
            start(fs, clock, "/b")
        manager.close()
        start(fs, clock, "/b")

    def test_a_partition_in_two_directories_is_offline_alone_until_one_is_moved_away(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        two_homes(fs, clock, ORDERS[0]).close()
        for _ in range(2):  # a clean stop in between changes nothing
            manager = start(fs, clock)
            with pytest.raises(KafkaStorageError, match=r"lies in /a/orders-0 and /b/orders-0: move one of them away"):
                manager.create(ORDERS[0], topic_config())
            assert manager.get(ORDERS[1]).log_end_offset == 15
            manager.close()
        fs.rename("/a/orders-0", "/a/away")
        assert start(fs, clock).get(ORDERS[0]).log_end_offset == 30

    def test_a_partition_in_two_directories_is_deleted_from_both(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = two_homes(fs, clock, ORDERS[0])
        manager.delete(ORDERS[0])
        assert manager.create(ORDERS[0], topic_config()).log_end_offset == 0
        clock.advance(60_000)
        assert manager.delete_expired(clock.monotonic_ms()) == 2

    def test_a_partition_in_two_directories_of_which_one_has_failed_is_not_deleted(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        manager = two_homes(fs, clock, ORDERS[0])
        fs.fail_under("/b", errno.EIO)
        manager.checkpoint_recovery_points()
        with pytest.raises(KafkaStorageError, match="failed directory"):
            manager.delete(ORDERS[0])
        with pytest.raises(KafkaStorageError, match="lies in"):
            manager.create(ORDERS[0], topic_config())
        assert fs.exists("/a/orders-0")

    def test_what_is_no_partition_is_left_alone(self, fs: MemoryFs, clock: SimClock) -> None:
        fs.make_dir("/a/some folder")
        fs.make_dir("/a/orders-0.0123-future")
        fs.open("/a/cluster.sqlite", create=True)
        manager = start(fs, clock, "/a")
        assert list(manager) == []
        manager.close()
        assert fs.exists("/a/some folder")
        assert fs.exists("/a/orders-0.0123-future")

    def test_damaged_checkpoints_are_done_without(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            fs.open(f"/a/{name}", create=True).append(b"rubbish")
        assert crash(fs, clock, "/a").get(ORDERS[0]).log_end_offset == 15

    def test_a_log_that_lost_flushed_records_is_offline_alone(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0], ORDERS[1])
        for log in manager:
            log.flush()
        manager.checkpoint_recovery_points()
        log = manager.get(ORDERS[0])
        path = f"/a/orders-0/{log.segments[-1].base_offset:020d}.log"
        content = bytearray(file_content(fs, path))
        content[16] = 77
        file = fs.open(path)
        file.truncate(0)
        file.append(content)

        for _ in range(2):  # a clean stop in between changes nothing
            manager = crash(fs, clock, "/a")
            with pytest.raises(KafkaStorageError, match="below the recovery point"):
                manager.get(ORDERS[0])
            assert manager.get(ORDERS[1]).log_end_offset == 15
            manager.close()
            assert not fs.exists("/a/.kafka_cleanshutdown")

        manager = start(fs, clock, "/a")
        manager.delete(ORDERS[0])
        assert manager.create(ORDERS[0], topic_config()).log_end_offset == 0
        clock.advance(60_000)
        assert manager.delete_expired(clock.monotonic_ms()) == 1


class TestUpkeep:
    def test_flushes_what_is_due(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        quick = manager.create(ORDERS[0], topic_config(flush_ms=500))
        slow = manager.create(ORDERS[1], topic_config())
        for log in (quick, slow):
            log.append(batch(), leader_epoch=0)
        clock.advance(500)
        manager.flush_due(clock.monotonic_ms())
        assert (quick.recovery_point, slow.recovery_point) == (1, 0)

    def test_a_flushed_segment_is_written_down_at_once(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.flush_due(clock.monotonic_ms())
        log = manager.get(ORDERS[0])
        assert log.recovery_point == log.segments[-1].base_offset > 0
        assert f"orders 0 {log.recovery_point}\n".encode() in file_content(fs, "/a/recovery-point-offset-checkpoint")

    def test_log_starts_survive_a_crash(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS)
        manager.get(ORDERS[2]).advance_log_start(7)
        manager.checkpoint_log_starts()
        again = crash(fs, clock)
        assert [again.get(name).log_start_offset for name in ORDERS] == [0, 0, 7, 0]

    def test_retention_by_size(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, config=topic_config(retention_bytes=0))
        fill(manager, ORDERS[0])
        manager.update_config("orders", topic_config(retention_bytes=500))
        log = manager.get(ORDERS[0])
        assert manager.apply_retention(clock.time_ms(), lambda name: 0) == 0
        assert manager.apply_retention(clock.time_ms()) == 1
        assert log.log_start_offset == log.segments[0].base_offset > 0
        assert crash(fs, clock).get(ORDERS[0]).log_start_offset == log.log_start_offset
        clock.advance(60_000)
        assert manager.delete_expired(clock.monotonic_ms()) == 1

    def test_retention_by_time_up_to_the_high_watermark(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0], ORDERS[1])
        first = manager.get(ORDERS[0]).segments[1].base_offset
        asked = {ORDERS[0]: first, ORDERS[1]: None}
        clock.advance(8 * 24 * 3600 * 1000)
        manager.apply_retention(clock.time_ms(), asked.get)
        assert manager.get(ORDERS[0]).log_start_offset == first
        assert manager.get(ORDERS[1]).log_start_offset == 15


class TestDeletion:
    def test_the_folder_goes_after_a_while(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, *ORDERS[:2])
        slice_in_flight = manager.get(ORDERS[0]).read(0, 1000)

        manager.delete(ORDERS[0])
        manager.delete(ORDERS[0])

        assert manager.get(ORDERS[0]) is None
        [left] = [name for name in fs.list("/a") if name.endswith("-delete")]
        assert left.startswith("orders-0.")
        assert offsets_in(slice_in_flight.read())
        clock.advance(60_000)
        assert manager.delete_expired(clock.monotonic_ms()) == 1
        assert left not in fs.list("/a")

    def test_a_new_partition_of_that_name_inherits_nothing(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.get(ORDERS[0]).flush()
        manager.get(ORDERS[0]).advance_log_start(9)
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_starts()
        manager.delete(ORDERS[0])
        assert b"orders" not in file_content(fs, "/a/recovery-point-offset-checkpoint")
        log = manager.create(ORDERS[0], topic_config())
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)

    def test_what_was_being_deleted_goes_at_the_next_start(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.delete(ORDERS[0])
        again = crash(fs, clock, "/a")
        assert again.get(ORDERS[0]) is None
        again.delete_expired(clock.monotonic_ms())
        assert not [name for name in fs.list("/a") if name.startswith("orders")]

    def test_a_name_of_full_length_can_be_deleted(self, tmp_path: Path, clock: SimClock) -> None:
        manager = start(LocalFs(), clock, str(tmp_path))
        name = TopicPartition("t" * 249, 12345)
        manager.create(name, topic_config())
        manager.delete(name)
        assert [len(path.name) for path in tmp_path.glob("*-delete")] == [255]
        manager.close()


class TestFailingDisks:
    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_a_failed_directory_takes_only_its_own_partitions_offline(
        self, fs: MemoryFs, clock: SimClock, number: int
    ) -> None:
        told: list[tuple[str, int | None]] = []
        manager = start(fs, clock, on_dir_failure=lambda path, error: told.append((path, error.errno)))
        fill(manager, *ORDERS)
        [on_a, also_on_a], [on_b, _] = (
            [log.partition for log in manager if log.folder.startswith(path)] for path in ("/a", "/b")
        )
        log, other = manager.get(on_a), manager.get(also_on_a)
        before = log.log_end_offset
        fs.fail_under("/a", number)

        with pytest.raises(KafkaStorageError):
            log.append(batch(), leader_epoch=0)

        assert told == [("/a", number)]
        assert list(manager.failed_dirs) == ["/a"]
        assert manager.dirs == ("/b",)
        for name in (on_a, also_on_a):
            with pytest.raises(KafkaStorageError, match="/a has failed"):
                manager.get(name)
        with pytest.raises(KafkaStorageError):
            other.read(0, 100)
        fill(manager, on_b)
        assert log.log_end_offset == before
        manager.flush_due(clock.monotonic_ms())
        manager.checkpoint_recovery_points()
        manager.apply_retention(clock.time_ms())
        assert manager.create(TopicPartition("new", 0), topic_config()).folder == "/b/new-0"
        with pytest.raises(KafkaStorageError, match="failed directory"):
            manager.create(TopicPartition("old", 0), topic_config(), is_new=False)
        manager.close()

        fs.repair("/a")
        again = start(fs, clock)
        assert again.get(on_a).log_end_offset == before
        assert offsets_in(read_all(again.get(on_a))) == list(range(before))
        assert again.get(on_b).log_end_offset == 30

    def test_what_a_failed_directory_may_hold_does_not_count_as_deleted(self, fs: MemoryFs, clock: SimClock) -> None:
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

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
    @pytest.mark.parametrize("is_there", [False, True])
    def test_wherever_the_disk_fails_no_partition_gets_a_second_folder(
        self, clock: SimClock, number: int, *, is_there: bool
    ) -> None:
        """While it is made or deleted; both are tried again, and then the power fails."""
        name, after, has_failed = TopicPartition("t", 0), 0, True
        while has_failed:
            fs = MemoryFs()
            manager = start(fs, clock)
            if is_there:
                fill(manager, name, batches=2)
                manager.flush_due(clock.monotonic_ms())
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

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_wherever_the_disk_fails_nothing_appended_is_lost(self, clock: SimClock, number: int) -> None:
        after = 0
        while True:
            fs = MemoryFs()
            manager = start(fs, clock, config=topic_config(retention_bytes=2500))
            fill(manager, *ORDERS[:2], batches=1)
            fs.fail_under("/a", number, after=after)
            appended = dict.fromkeys(ORDERS[:2], 3)
            for _ in range(14):
                for name in ORDERS[:2]:
                    with contextlib.suppress(KafkaStorageError):
                        fill(manager, name, batches=1)
                        appended[name] += 3
                manager.flush_due(clock.monotonic_ms())
                manager.checkpoint_recovery_points()
                manager.apply_retention(clock.time_ms())
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
    def test_whatever_finds_out_first(self, fs: MemoryFs, clock: SimClock, work: str) -> None:
        manager = start(fs, clock, config=topic_config(retention_bytes=0))
        fill(manager, *ORDERS)
        log = manager.get(ORDERS[0])
        path = log.folder.rpartition("/")[0]
        fs.fail_under(path, errno.EIO)
        if work == "checkpoint":
            manager.checkpoint_recovery_points()
        elif work == "retention":
            manager.apply_retention(clock.time_ms())
            manager.checkpoint_recovery_points()
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
        left.fail_under(folder, errno.ENOSPC)
        with pytest.raises(KafkaStorageError, match="no log directory works"):
            start(left, clock, "/a")

    def test_too_many_open_files_are_not_the_disks_fault(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0])
        log = manager.get(ORDERS[0])
        log.roll()
        fs.fail_under(log.folder, errno.EMFILE)
        with pytest.raises(KafkaStorageError):
            log.append(batch(), leader_epoch=0)
        fs.repair(log.folder)
        assert not manager.failed_dirs
        log.append(batch(), leader_epoch=0)
        assert offsets_in(read_all(log)) == list(range(16))


class TestWhoseTheyAre:
    def test_directories_are_claimed_once(self, tmp_path: Path, clock: SimClock) -> None:
        manager = start(LocalFs(), clock, f"{tmp_path}/a", f"{tmp_path}/b")
        assert manager.ownership.find_cluster_id() is None
        manager.ownership.claim("cluster-1")
        first = (tmp_path / "a" / "meta.properties").read_text()
        assert "node.id=0\n" in first
        assert "cluster.id=cluster-1\n" in first
        manager.ownership.claim("cluster-1")
        assert (tmp_path / "a" / "meta.properties").read_text() == first
        assert manager.ownership.find_cluster_id() == "cluster-1"
        with pytest.raises(ConfigError, match="cluster-1"):
            manager.ownership.claim("cluster-2")
        manager.close()

    def test_another_brokers_directory_is_refused(self, tmp_path: Path, clock: SimClock) -> None:
        (tmp_path / "meta.properties").write_text("broker.id=5\ncluster.id=c\nversion=0\n")
        manager = start(LocalFs(), clock, str(tmp_path))
        with pytest.raises(ConfigError, match="belongs to broker 5"):
            manager.ownership.find_cluster_id()
        manager.close()


def test_work_in_several_threads_loses_nothing(tmp_path: Path, clock: SimClock) -> None:
    """Appends and rolls beside flushes, retention, checkpoints and reads."""
    manager = start(LocalFs(), clock, str(tmp_path))
    log = manager.create(ORDERS[0], topic_config(retention_bytes=5000, file_delete_delay_ms=0))
    stopping = threading.Event()
    failures: list[Exception] = []

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not stopping.is_set():
                work()
        except (SparklogError, OSError, AssertionError, RuntimeError) as error:
            failures.append(error)

    def read() -> None:
        with contextlib.suppress(OffsetOutOfRange):  # retention was faster
            piece = log.read(log.log_start_offset, 2000)
            data = piece.read()
            assert len(data) == piece.size
            assert not data or offsets_in(data)[-1] + 1 == piece.next_offset

    work = (
        log.flush,
        lambda: manager.apply_retention(clock.time_ms()),
        lambda: manager.delete_expired(10**9),
        manager.checkpoint_recovery_points,
        read,
    )
    threads = [threading.Thread(target=repeat, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for _ in range(400):
        log.append(batch(3, value=b"x" * 60), leader_epoch=0)
    stopping.set()
    for thread in threads:
        thread.join()
    assert failures == []
    manager.apply_retention(clock.time_ms())
    found = offsets_in(read_all(log))
    assert found == list(range(found[0], 1200))
    assert log.size_bytes < 8000
    manager.close()
    again = start(LocalFs(), clock, str(tmp_path))
    assert offsets_in(read_all(again.get(ORDERS[0]))) == found
    again.close()
