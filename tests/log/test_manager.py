"""All logs of a broker: finding, opening, creating and deleting them, and their owner."""

from __future__ import annotations

import errno
import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError, KafkaStorageError
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory import manager as manager_module
from sparklog.log.directory.manager import LogManager
from sparklog.log.segment.cache import SegmentCache
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, file_content, offsets_in, open_files, read_all, topic_config
from support.logs.managers import ORDERS, crash, fill, start
from support.patience import PATIENCE_S


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START_MS)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """No garbage collection: objects in reference cycles stay."""
    gc.disable()
    yield
    gc.enable()


class MakingTogether(MemoryFs):
    """No partition's folder is made before `parties` are being made."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self._all_there = threading.Barrier(parties)

    def make_dir(self, path: str) -> None:
        if path.count("/") > 1:
            self._all_there.wait(PATIENCE_S)
        super().make_dir(path)


def two_homes(fs: MemoryFs, clock: SimClock, name: TopicPartition) -> LogManager:
    """A manager with a partition that was created again while its directory was left out; orders-1 lies in one."""
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

    def test_open_files_of_closed_segments_are_bounded_for_all_logs(
        self, fs: MemoryFs, clock: SimClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manager_module, "SegmentCache", lambda _: SegmentCache(max_segments=3))
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
        manager.tasks.checkpoint_recovery_points()
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
        again.update_configs({"orders": topic_config(segment_ms=78)})
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
        assert manager.tasks.delete_expired(clock.monotonic_ms()) == 2

    def test_a_partition_in_two_directories_of_which_one_has_failed_is_not_deleted(
        self, fs: MemoryFs, clock: SimClock
    ) -> None:
        manager = two_homes(fs, clock, ORDERS[0])
        fs.fail_under("/b", errno.EIO)
        manager.tasks.checkpoint_recovery_points()
        with pytest.raises(KafkaStorageError, match="failed directory"):
            manager.delete(ORDERS[0])
        with pytest.raises(KafkaStorageError, match="lies in"):
            manager.create(ORDERS[0], topic_config())
        assert fs.exists("/a/orders-0")

    def test_folders_of_no_partition_are_left_alone(self, fs: MemoryFs, clock: SimClock) -> None:
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
        manager.tasks.checkpoint_recovery_points()
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
        assert manager.tasks.delete_expired(clock.monotonic_ms()) == 1


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
        assert manager.tasks.delete_expired(clock.monotonic_ms()) == 1
        assert left not in fs.list("/a")

    @pytest.mark.skipif(sys.platform != "linux", reason="finds open files in /proc")
    def test_its_files_are_closed_at_once_so_that_their_room_is_free(
        self, tmp_path: Path, clock: SimClock, no_collector: None
    ) -> None:
        manager = start(LocalFs(), clock, str(tmp_path))
        manager.create(ORDERS[0], topic_config(segment_bytes=1))
        fill(manager, ORDERS[0])
        read_all(manager.get(ORDERS[0]))
        folder = str(tmp_path / "orders-0")
        assert len(open_files(folder)) == 2  # the active segment's, and one that was read

        manager.delete(ORDERS[0])

        assert open_files(folder) == []
        manager.close()

    def test_a_new_partition_of_that_name_inherits_nothing(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.get(ORDERS[0]).flush()
        manager.get(ORDERS[0]).advance_log_start(9)
        manager.tasks.checkpoint_recovery_points()
        manager.tasks.checkpoint_log_starts()
        manager.delete(ORDERS[0])
        assert b"orders" not in file_content(fs, "/a/recovery-point-offset-checkpoint")
        log = manager.create(ORDERS[0], topic_config())
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)

    def test_a_deletion_is_completed_at_the_next_start(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.delete(ORDERS[0])
        again = crash(fs, clock, "/a")
        assert again.get(ORDERS[0]) is None
        again.tasks.delete_expired(clock.monotonic_ms())
        assert not [name for name in fs.list("/a") if name.startswith("orders")]

    def test_a_name_of_full_length_can_be_deleted(self, tmp_path: Path, clock: SimClock) -> None:
        manager = start(LocalFs(), clock, str(tmp_path))
        name = TopicPartition("t" * 249, 12345)
        manager.create(name, topic_config())
        manager.delete(name)
        assert [len(path.name) for path in tmp_path.glob("*-delete")] == [255]
        manager.close()


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
