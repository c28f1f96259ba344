"""Replicas that move from one log directory of their broker to another, while they are written and read."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from sparklog.base.errors import (
    InvalidTopic,
    InvalidUpdateVersion,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
)
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.log.move import MAX_REST_BYTES
from sparklog.log.producers.verifications import UNVERIFIED
from sparklog.records.markers import EndTransactionMarker
from sparklog.testing.memory_fs import MemoryFile, MemoryFs, PowerCut
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, check_indexes, file_content, offsets_in, read_all, topic_config
from support.logs.managers import ORDERS, crash, fill, start
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NAME = ORDERS[0]
ABORT = EndTransactionMarker(is_commit=False, coordinator_epoch=0)


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START_MS)


@pytest.fixture
def manager(fs: MemoryFs, clock: SimClock) -> LogManager:
    """A manager with orders-0 in /a."""
    made = start(fs, clock)
    fill(made, NAME, batches=20)
    assert log_of(made).folder == "/a/orders-0"
    return made


def log_of(manager: LogManager) -> Log:
    log = manager.get(NAME)
    assert log is not None
    return log


def finish(manager: LogManager, max_bytes: int = 500) -> None:
    """Do all steps of all moves."""
    for _ in range(10_000):
        if manager.moves.step(max_bytes) is None:
            return
    raise AssertionError("the moves do not end")


def names(fs: MemoryFs, path: str) -> list[str]:
    return [name for name in fs.list(path) if name.startswith("orders")]


class TestMove:
    def test_the_log_goes_on_in_the_other_directory(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        log = log_of(manager)
        log.flush(30)
        log.advance_log_start(5)
        before = read_all(log)

        manager.moves.begin(NAME, "/b")
        finish(manager)

        assert log_of(manager) is log
        assert log.folder == "/b/orders-0"
        assert read_all(log) == before
        fill(manager, NAME)
        assert offsets_in(read_all(log)) == list(range(5 // 3 * 3, 75))
        check_indexes(log)
        manager.close()
        again = start(fs, clock)
        assert log_of(again).folder == "/b/orders-0"
        assert (log_of(again).log_start_offset, log_of(again).log_end_offset) == (5, 75)

    def test_nothing_is_left_behind_after_the_delay(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        finish(manager)
        [left] = names(fs, "/a")
        assert left.endswith("-delete")
        clock.advance(60_000)
        assert manager.tasks.delete_expired(clock.monotonic_ms()) == 1
        assert names(fs, "/a") == []
        assert names(fs, "/b") == ["orders-0"]

    def test_reads_and_appends_go_on_between_all_steps(self, manager: LogManager) -> None:
        log = log_of(manager)
        in_flight = log.read(0, 1000)
        manager.moves.begin(NAME, "/b")
        end = log.log_end_offset
        while manager.moves.step(100) is not None:
            if end < 200:
                fill(manager, NAME, batches=1)
                end += 3
            assert offsets_in(read_all(log)) == list(range(end))
        assert offsets_in(in_flight.read())[0] == 0
        assert log.folder == "/b/orders-0"
        assert end == 201

    def test_the_files_are_the_same_bytes(self, fs: MemoryFs, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        finish(manager)
        [left] = names(fs, "/a")
        for name in fs.list("/b/orders-0"):
            if name != "leader-epoch-checkpoint" and not name.startswith(last_base(log_of(manager))):
                assert file_content(fs, f"/b/orders-0/{name}") == file_content(fs, f"/a/{left}/{name}")
        logs = [name for name in fs.list("/b/orders-0") if name.endswith(".log")]
        assert logs == [name for name in fs.list(f"/a/{left}") if name.endswith(".log")]

    def test_producers_and_open_transactions_go_on(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        log = log_of(manager)
        log.append(batch(2, producer_id=7, sequence=0), leader_epoch=1)
        log.append(batch(2, producer_id=8, sequence=0, transactional=True), leader_epoch=1, verification=UNVERIFIED)
        manager.moves.begin(NAME, "/b")
        finish(manager)
        assert log.append(batch(2, producer_id=7, sequence=0), leader_epoch=1).is_duplicate
        assert log.last_stable_offset(log.log_end_offset) == 62
        log.append_marker(ABORT, producer_id=8, producer_epoch=0, leader_epoch=1, is_strict=False)
        assert [each.producer_id for each in log.aborted_transactions(0, log.log_end_offset)] == [8]
        manager = crash(fs, clock)
        log = log_of(manager)
        assert log.folder == "/b/orders-0"
        assert log.append(batch(2, producer_id=7, sequence=0), leader_epoch=1).is_duplicate
        assert [each.producer_id for each in log.aborted_transactions(0, log.log_end_offset)] == [8]
        assert log.latest_epoch == 1

    def test_plans_made_before_are_stale(self, manager: LogManager) -> None:
        log = log_of(manager)
        sources = log.replacer.describe()[:2]
        manager.moves.begin(NAME, "/b")
        finish(manager)
        with pytest.raises(InvalidUpdateVersion):
            log.replacer.check_sources(sources)
        log.replacer.check_sources(log.replacer.describe()[:2])

    def test_a_change_of_what_was_copied_is_copied_too(
        self, fs: MemoryFs, clock: SimClock, manager: LogManager
    ) -> None:
        log = log_of(manager)
        manager.moves.begin(NAME, "/b")
        for _ in range(6):
            manager.moves.step(700)
        assert manager.moves.futures()[0].end_offset > 15
        log.truncate_to(15)
        fill(manager, NAME, batches=10)
        log.advance_log_start(9)
        manager.tasks.apply_retention(clock.time_ms())
        before = read_all(log)
        finish(manager)
        assert read_all(log) == before
        manager.close()
        assert read_all(log_of(start(fs, clock))) == before

    def test_snapshots_of_keys_go_along(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        log = log_of(manager)
        writer = log.offset_snapshots.begin(30)
        log.offset_snapshots.write(writer, batch(3))
        log.offset_snapshots.install(writer)
        manager.moves.begin(NAME, "/b")
        finish(manager)
        assert log.offset_snapshots.newest_id().end_offset == 30
        manager.close()
        assert log_of(start(fs, clock)).offset_snapshots.newest_id().end_offset == 30

    def test_the_last_step_copies_little_while_appends_wait(self, manager: LogManager) -> None:
        """If much is written between the last copy and the switch, the next step copies it."""
        log = log_of(manager)
        log.configure(topic_config(internal_segment_bytes=1 << 30))
        manager.moves.begin(NAME, "/b")
        written = []

        def write_much(*_: object) -> None:
            if len(written) < 3:
                log.append(batch(1, value=bytes(MAX_REST_BYTES)), leader_epoch=0)
                log.append(batch(1, value=bytes(MAX_REST_BYTES)), leader_epoch=0)
                written.append(log.folder)

        for _ in range(100):
            if manager.moves.step(1 << 20, write_much) is None:
                break
        assert written == ["/a/orders-0"] * 3
        assert log.folder == "/b/orders-0"


class ReadDuringRename(MemoryFs):
    """A rename of a folder ends once a read, in another thread, has looked for a file under the former name."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Callable[[], bytes] | None = None
        self.found: list[bytes] = []
        self.threads: list[threading.Thread] = []
        self._has_missed = threading.Event()

    def open_read(self, path: str) -> MemoryFile:
        try:
            return super().open_read(path)
        except FileNotFoundError:
            self._has_missed.set()
            raise

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if (read := self.read) and source.count("/") == 2 and "orders" in source:
            self._has_missed.clear()
            thread = threading.Thread(target=lambda: self.found.append(read()))
            thread.start()
            assert self._has_missed.wait(PATIENCE_S)
            self.threads.append(thread)


class TestThreads:
    def test_a_read_between_a_rename_and_what_the_log_knows_of_it_waits_and_succeeds(self, clock: SimClock) -> None:
        fs = ReadDuringRename()
        manager = start(fs, clock)
        fill(manager, NAME, batches=20)
        log = log_of(manager)
        before = read_all(log)

        def read() -> bytes:
            for segment in log.segments[:-1]:
                segment.release()
            return read_all(log)

        fs.read = read
        manager.moves.begin(NAME, "/b")
        finish(manager)
        for thread in fs.threads:
            thread.join(PATIENCE_S)
        assert fs.found == [before, before]

    def test_readers_and_writers_in_other_threads_notice_nothing(self, tmp_path: Path, clock: SimClock) -> None:
        """Files of closed segments are opened again and again, so that some lookups use a former path."""
        paths = [f"{tmp_path}/{name}" for name in "ab"]
        manager = start(LocalFs(), clock, *paths, config=topic_config(file_delete_delay_ms=0))
        fill(manager, NAME, batches=40)
        log = log_of(manager)
        has_stopped = threading.Event()
        failures: list[BaseException] = []

        def read() -> None:
            end = log.log_end_offset
            assert offsets_in(read_all(log))[: end - 1] == list(range(end - 1))
            for segment in log.segments[:-1]:
                segment.release()

        def describe() -> None:
            described = log.replacer.describe()
            for each in described[:-1]:
                with suppress(InvalidUpdateVersion):  # it has moved since
                    assert log.open_file(each.base_offset, ".log", each.identity).size == each.size_bytes
            assert log.open_file(0, ".index").size > 0
            assert log.offset_for_timestamp(START_MS) is not None

        def write() -> None:
            if log.log_end_offset < 300:
                log.append(batch(3, value=b"x" * 60), leader_epoch=0)
            log.flush(log.log_end_offset - 3)
            has_stopped.wait(0.001)

        def repeat(work: Callable[[], None]) -> None:
            try:
                while not has_stopped.is_set():
                    work()
            except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
                failures.append(error)

        threads = [threading.Thread(target=repeat, args=(work,)) for work in (read, describe, write)]
        for thread in threads:
            thread.start()
        for number in range(4):
            manager.moves.begin(NAME, paths[(number + 1) % 2])
            finish(manager, 20_000)
            manager.tasks.delete_expired(clock.monotonic_ms())
        has_stopped.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        if failures:
            raise failures[0]
        assert log.folder == f"{paths[0]}/orders-0"
        check_indexes(log)
        manager.close()
        assert offsets_in(read_all(log_of(start(LocalFs(), clock, *paths)))) == list(range(log.log_end_offset))


class TestWhere:
    def test_progress_is_shown(self, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        [future] = manager.moves.futures()
        assert (future.partition, future.path) == (NAME, "/b")
        assert 0 < future.size_bytes <= 500
        assert future.end_offset < 60
        finish(manager)
        assert manager.moves.futures() == []

    def test_unknown_directories_and_replicas_are_refused(self, fs: MemoryFs, manager: LogManager) -> None:
        with pytest.raises(LogDirNotFound, match="/c"):
            manager.moves.begin(NAME, "/c")
        with pytest.raises(ReplicaNotAvailable):
            manager.moves.begin(ORDERS[1], "/b")
        long = TopicPartition("t" * 249, 0)
        with pytest.raises(InvalidTopic):
            manager.moves.begin(long, "/b")
        assert manager.moves.futures() == []

    @pytest.mark.parametrize("path", ["/a", "/b"])
    def test_a_replica_that_comes_later_is_created_where_it_is_wanted(self, manager: LogManager, path: str) -> None:
        fill(manager, ORDERS[3])
        with pytest.raises(ReplicaNotAvailable):
            manager.moves.begin(ORDERS[1], path, is_known=True)
        assert manager.create(ORDERS[1], topic_config()).folder == f"{path}/orders-1"

    def test_a_full_target_is_refused(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = full(fs, clock)
        manager.tasks.check_free_space()
        with pytest.raises(KafkaStorageError, match="is full"):
            manager.moves.begin(NAME, "/b")

    def test_a_move_back_or_elsewhere_ends_the_first(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a", "/b", "/c")
        fill(manager, NAME, batches=20)
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        manager.moves.begin(NAME, "/a")
        assert manager.moves.step(500) is None
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        manager.moves.begin(NAME, "/c")
        finish(manager)
        manager.tasks.delete_expired(clock.monotonic_ms())
        assert (names(fs, "/b"), names(fs, "/c")) == ([], ["orders-0"])

    def test_there_and_back(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        for path in ("/b", "/a", "/b"):
            manager.moves.begin(NAME, path)
            finish(manager)
            fill(manager, NAME)
        clock.advance(60_000)
        manager.tasks.delete_expired(clock.monotonic_ms())
        assert (names(fs, "/a"), names(fs, "/b")) == ([], ["orders-0"])
        assert offsets_in(read_all(log_of(crash(fs, clock)))) == list(range(60 + 45))

    @pytest.mark.parametrize("out", [LogManager.delete_all, LogManager.set_stray])
    def test_a_partition_that_goes_takes_its_copy_along(
        self, fs: MemoryFs, clock: SimClock, manager: LogManager, out
    ) -> None:  # type: ignore[no-untyped-def]
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        assert out(manager, [NAME]) == {}
        assert manager.moves.step(500) is None
        clock.advance(60_000)
        manager.tasks.delete_expired(clock.monotonic_ms())
        assert [name for path in ("/a", "/b") for name in names(fs, path) if not name.endswith("-stray")] == []


class TestFailures:
    def test_a_target_that_fails_ends_the_move_and_the_log_stays(self, fs: MemoryFs, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        fs.fail_under("/b", errno.EIO)
        finish(manager)
        assert manager.dirs == ("/a",)
        fill(manager, NAME)
        assert log_of(manager).folder == "/a/orders-0"
        assert offsets_in(read_all(log_of(manager))) == list(range(75))
        with pytest.raises(KafkaStorageError, match="has failed"):
            manager.moves.begin(NAME, "/b")

    def test_a_source_that_fails_ends_the_move_and_the_log_is_offline(self, fs: MemoryFs, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        fs.fail_under("/a", errno.EIO)
        finish(manager)
        assert manager.dirs == ("/b",)
        with pytest.raises(KafkaStorageError, match="offline"):
            manager.get(NAME)

    def test_a_target_without_room_ends_the_move(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        fs.fail_under("/b", errno.ENOSPC)
        finish(manager)
        fs.repair("/b")
        assert manager.dirs == ("/a", "/b")
        fill(manager, NAME)
        assert log_of(manager).folder == "/a/orders-0"

    def test_nothing_is_moved_while_a_directory_has_failed(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a", "/b", "/c")
        fill(manager, NAME)
        fs.fail_under("/c", errno.EIO)
        manager.tasks.checkpoint_recovery_points()
        with pytest.raises(KafkaStorageError, match="while a log directory has failed"):
            manager.moves.begin(NAME, "/b")

    def test_a_failed_disk_is_told_from_the_one_that_the_log_has_left(self, fs: MemoryFs, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        finish(manager)
        fs.fail_under("/a", errno.EIO)
        manager.tasks.checkpoint_recovery_points()
        assert manager.dirs == ("/b",)
        fill(manager, NAME)
        log_of(manager).flush()
        assert offsets_in(read_all(log_of(manager))) == list(range(75))


class TestStarts:
    def test_an_interrupted_move_begins_again(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        [copy] = names(fs, "/b")
        again = crash(fs, clock)
        assert log_of(again).folder == "/a/orders-0"
        finish(again)
        again.tasks.delete_expired(clock.monotonic_ms())
        assert log_of(again).folder == "/b/orders-0"
        assert names(fs, "/b") == ["orders-0"]
        assert copy.endswith("-future")

    def test_so_does_one_that_a_clean_stop_interrupted(
        self, fs: MemoryFs, clock: SimClock, manager: LogManager
    ) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        manager.close()
        again = start(fs, clock)
        finish(again)
        assert log_of(again).folder == "/b/orders-0"
        assert offsets_in(read_all(log_of(again))) == list(range(60))

    def test_a_cancelled_move_does_not_begin_again(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        manager.moves.begin(NAME, "/a")
        assert crash(fs, clock).moves.step(500) is None

    def test_the_process_may_die_at_any_point(self, clock: SimClock) -> None:
        """Every record that was appended is there, in one directory: the page cache survives the process."""
        switched = set()
        for number in count():
            fs = MemoryFs()
            manager = start(fs, clock)
            fill(manager, NAME, batches=20)
            log_of(manager).advance_log_start(4)
            manager.tasks.checkpoint_recovery_points()
            manager.tasks.checkpoint_log_starts()
            manager.moves.begin(NAME, "/b")
            fs.cut_power_after(number, random.Random(number))
            try:
                finish(manager, 2_000)
            except PowerCut:
                pass
            else:
                break
            fs = fs.kill()
            again = start(fs, clock)
            log = log_of(again)
            switched.add(log.folder)
            assert log.log_start_offset == 4
            assert offsets_in(read_all(log)) == list(range(3, 60))
            finish(again)
            clock.advance(60_000)
            again.tasks.delete_expired(clock.monotonic_ms())
            assert (names(fs, "/a"), names(fs, "/b")) == ([], ["orders-0"])
            assert offsets_in(read_all(log_of(again))) == list(range(3, 60))
        assert number > 40
        assert switched == {"/a/orders-0", "/b/orders-0"}

    def test_a_copy_of_no_log_is_left_alone(self, fs: MemoryFs, clock: SimClock, manager: LogManager) -> None:
        manager.moves.begin(NAME, "/b")
        manager.moves.step(500)
        [copy] = names(fs, "/b")
        fs.rename("/a/orders-0", "/a/elsewhere")
        again = crash(fs, clock)
        assert again.get(NAME) is None
        again.tasks.delete_expired(clock.monotonic_ms())
        assert names(fs, "/b") == [copy]


def last_base(log: Log) -> str:
    return f"{log.segments[-1].base_offset:020d}"


def full(fs: MemoryFs, clock: SimClock) -> LogManager:
    """A manager with orders-0 in /a, and without room in /b."""
    manager = start(fs, clock)
    fill(manager, NAME, batches=20)
    fs.fail_under("/b", errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        manager.create(ORDERS[1], topic_config())
    return manager
