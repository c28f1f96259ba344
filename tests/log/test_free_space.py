"""A disk that fills: appends stop before it is full, reads continue, and appends resume once there is room."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaStorageError
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.append import LogWriter
from sparklog.log.directory.checkpoints import OffsetCheckpoint
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.topic_configs import TopicCopy
from sparklog.log.files import segment_name
from sparklog.log.log import Log
from sparklog.testing.memory_fs import MemoryFile, MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, check_indexes, offsets_in, read_all, topic_config
from support.logs.managers import fill, start

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)
MIN_FREE = 1_000_000


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def logs(fs: MemoryFs) -> LogManager:
    made = LogManager(fs, ("/a",), BrokerConfig(log_dirs=("/a",), log_dir_min_free_bytes=MIN_FREE), SimClock())
    made.load()
    return made


@pytest.mark.parametrize("as_follower", [False, True])
def test_appends_stop_before_the_disk_is_full_and_go_on_when_there_is_room(
    fs: MemoryFs, logs: LogManager, as_follower: bool
) -> None:
    log = logs.create(T0, topic_config())

    def append() -> None:
        data = batch(3)
        if as_follower:
            data[:8] = log.log_end_offset.to_bytes(8, "big")
            log.as_follower.append(data)
        else:
            log.append(data, leader_epoch=0)

    append()
    fs.free = MIN_FREE + 100
    logs.tasks.check_free_space()
    with pytest.raises(KafkaStorageError, match=r"/a has 1,000,100 bytes free, and log\.dir\.min\.free\.bytes is 1,00"):
        append()
    assert logs.full_dirs == ("/a",)
    assert offsets_in(read_all(log)) == [0, 1, 2]
    fs.free = 10 * MIN_FREE
    logs.tasks.check_free_space()
    assert logs.full_dirs == ()
    append()
    assert offsets_in(read_all(log)) == list(range(6))
    logs.close()


def test_the_disk_is_asked_when_as_much_was_appended_as_there_was_room_for(fs: MemoryFs, logs: LogManager) -> None:
    log = logs.create(T0, topic_config())
    fs.free = MIN_FREE + 2_000
    log.append(batch(3), leader_epoch=0)
    fs.free = MIN_FREE
    with contextlib.suppress(KafkaStorageError):
        for _ in range(20):
            log.append(batch(3), leader_epoch=0)
    assert logs.full_dirs == ("/a",)
    assert log.size_bytes < 2_000
    logs.close()


def test_a_full_disk_does_not_keep_a_broker_from_starting(fs: MemoryFs, logs: LogManager) -> None:
    logs.create(T0, topic_config()).append(batch(3), leader_epoch=0)
    logs.close()
    fs.free = MIN_FREE - 1
    again = LogManager(fs, ("/a",), BrokerConfig(log_dirs=("/a",), log_dir_min_free_bytes=MIN_FREE), SimClock())
    again.load()
    log = again.get(T0)
    assert log is not None
    with pytest.raises(KafkaStorageError):
        log.append(batch(3), leader_epoch=0)
    assert offsets_in(read_all(log)) == [0, 1, 2]
    assert not again.failed_dirs
    again.close()


def test_nothing_is_asked_where_it_is_turned_off(fs: MemoryFs) -> None:
    logs = LogManager(fs, ("/a",), BrokerConfig(log_dirs=("/a",), log_dir_min_free_bytes=0), SimClock())
    logs.load()
    fs.free = 0
    logs.create(T0, topic_config()).append(batch(3), leader_epoch=0)
    assert logs.full_dirs == ()
    logs.close()


CONFIGS = {
    "many segments": topic_config(retention_bytes=2_500),
    "many index entries": topic_config(internal_segment_bytes=12_000, index_interval_bytes=1, retention_bytes=20_000),
}


class TestADiskThatOthersFill:
    """Other writers fill the disk or a quota: a write fails with ENOSPC."""

    @pytest.mark.parametrize("as_follower", [False, True])
    @pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
    def test_after_any_failed_write_the_log_continues_without_a_restart(
        self, config: TopicConfig, *, as_follower: bool
    ) -> None:
        after, is_refused = 0, True
        while is_refused:
            fs, clock = MemoryFs(), SimClock(START_MS)
            logs = start(fs, clock, "/a", config=config)
            log = logs.create(T0, config)
            fs.fail_under("/a", errno.ENOSPC, after=after)
            appended, is_refused = work(logs, log, clock, as_follower=as_follower)
            assert not logs.failed_dirs
            assert log.log_end_offset == appended
            fs.repair("/a")
            logs.tasks.check_free_space()
            assert logs.full_dirs == ()
            appended, is_refused_again = work(logs, log, clock, as_follower=as_follower)
            assert not is_refused_again
            there = [name for name in fs.list(log.folder) if name.endswith(".log")]
            assert there == [segment_name(segment.base_offset, ".log") for segment in log.segments]
            assert_whole(log, appended)
            log.flush()
            left = fs.crash(random.Random(after))
            again = start(left, clock, "/a", config=config).get(T0)
            assert again is not None
            assert_whole(again, appended)
            after += 1 if after < 40 else 13
        assert after > 40

    def test_records_below_a_cut_are_kept(self) -> None:
        after, is_refused = 0, True
        while is_refused:
            fs, clock = MemoryFs(), SimClock(START_MS)
            logs = start(fs, clock, "/a")
            fill(logs, T0, batches=20)
            log = logs.get(T0)
            assert log is not None
            log.append(batch(3), leader_epoch=4)
            log.flush()
            fs.fail_under("/a", errno.ENOSPC, after=after)
            is_refused = False
            try:
                log.truncate_to(31)
            except KafkaStorageError:
                is_refused = True
                assert_whole(log, 63)
            fs.repair("/a")
            logs.tasks.check_free_space()
            log.truncate_to(31)
            assert_whole(log, 30)
            log.append(batch(3), leader_epoch=5)
            assert [tuple(each) for each in log.epochs.entries] == [(0, 0), (5, 30)]
            after += 1
        assert after > 3

    def test_a_full_disk_is_not_taken_for_a_failed_one(self, fs: MemoryFs, logs: LogManager) -> None:
        log = logs.create(T0, topic_config())
        log.append(batch(3), leader_epoch=0)
        fs.fail_under("/a", errno.ENOSPC)
        for _ in range(3):
            with pytest.raises(KafkaStorageError, match="No space left on device"):
                log.append(batch(3), leader_epoch=0)
        logs.tasks.check_free_space()
        assert (logs.full_dirs, logs.failed_dirs) == (("/a",), {})
        assert offsets_in(read_all(log)) == [0, 1, 2]
        fs.repair("/a")
        logs.tasks.check_free_space()
        log.append(batch(3), leader_epoch=0)
        assert (logs.full_dirs, logs.failed_dirs) == ((), {})
        assert offsets_in(read_all(log)) == list(range(6))
        logs.close()
        assert not [name for name in fs.list("/a") if "room" in name]

    def test_a_quota_is_a_full_disk(self, fs: MemoryFs, logs: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
        log = logs.create(T0, topic_config())
        with monkeypatch.context() as patched:
            patched.setattr(MemoryFile, "append", lambda *_: fail(errno.EDQUOT))
            with pytest.raises(KafkaStorageError):
                log.append(batch(3), leader_epoch=0)
            logs.tasks.check_free_space()
            assert (logs.full_dirs, logs.failed_dirs) == (("/a",), {})
        logs.tasks.check_free_space()
        log.append(batch(3), leader_epoch=0)
        assert offsets_in(read_all(log)) == [0, 1, 2]

    def test_a_partial_write_that_cannot_be_undone_is_a_disk_failure(
        self, fs: MemoryFs, logs: LogManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = logs.create(T0, topic_config())
        log.append(batch(3), leader_epoch=0)
        fs.fail_under("/a", errno.ENOSPC)
        monkeypatch.setattr(MemoryFile, "truncate", lambda *_: fail(errno.ENOSPC))
        with pytest.raises(KafkaStorageError, match="cannot be undone"):
            log.append(batch(3), leader_epoch=0)
        assert list(logs.failed_dirs) == ["/a"]

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
    def test_topics_configurations_are_written_when_there_is_room(
        self, fs: MemoryFs, logs: LogManager, number: int
    ) -> None:
        logs.create(T0, topic_config())
        fs.fail_under("/a", number)
        logs.keep_topics({"t": TopicCopy(None, {"retention.ms": "7"})}, 3)
        fs.repair("/a")
        logs.tasks.checkpoint_log_starts()
        again = LogManager(fs.kill(), ("/a",), BrokerConfig(log_dirs=("/a",)), SimClock())
        again.load()
        assert again.find_kept_config("t", None) == {"retention.ms": "7"}
        assert not logs.failed_dirs

    def test_new_partitions_are_refused_and_made_later(self, fs: MemoryFs, logs: LogManager) -> None:
        fs.fail_under("/a", errno.ENOSPC)
        with pytest.raises(KafkaStorageError):
            logs.create(T0, topic_config())
        assert (logs.full_dirs, logs.failed_dirs) == (("/a",), {})
        fs.repair("/a")
        logs.tasks.check_free_space()
        logs.create(T0, topic_config()).append(batch(3), leader_epoch=0)

    def test_a_broker_that_stops_has_its_records_at_the_next_start(self, fs: MemoryFs, logs: LogManager) -> None:
        log = logs.create(T0, topic_config())
        for _ in range(10):
            log.append(batch(3), leader_epoch=0)
        fs.fail_under("/a", errno.ENOSPC)
        logs.close()
        fs.repair("/a")
        again = LogManager(fs, ("/a",), BrokerConfig(log_dirs=("/a",)), SimClock())
        again.load()
        assert_whole(again.get(T0), 30)

    def test_retention_makes_room_in_the_place_of_the_reserve(
        self, fs: MemoryFs, logs: LogManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = filled(logs)
        with monkeypatch.context() as patched:
            disk_without_room(fs, patched)
            assert logs.tasks.apply_retention(START_MS) > 0
            assert not fs.exists("/a/.reserve")
            assert (logs.full_dirs, logs.failed_dirs) == (("/a",), {})
        assert OffsetCheckpoint(fs, "/a/log-start-offset-checkpoint").read() == {T0: log.log_start_offset}
        logs.tasks.check_free_space()
        assert fs.exists("/a/.reserve")
        assert logs.full_dirs == ()

    def test_records_stay_readable_where_their_removal_cannot_be_written_down(
        self, fs: MemoryFs, logs: LogManager, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = filled(logs)
        fs.fail_under("/a", errno.ENOSPC)
        assert logs.tasks.apply_retention(START_MS) == 0
        assert log.log_start_offset == log.promised_start_offset == 0
        assert offsets_in(read_all(log)) == list(range(60))
        assert "no segments are removed: no room for" in caplog.text
        fs.repair("/a")
        assert logs.tasks.apply_retention(START_MS) > 0

    def test_all_that_is_closed_goes_where_there_is_no_room_for_another_segment(
        self, fs: MemoryFs, logs: LogManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = filled(logs, retention_bytes=-1, retention_ms=1)
        with monkeypatch.context() as patched:
            disk_without_room(fs, patched)
            patched.setattr(LogWriter, "roll", lambda *_: fail_without_room())
            assert logs.tasks.apply_retention(START_MS + 10_000_000) > 0
        assert len(log.segments) == 1
        assert log.log_start_offset == log.segments[0].base_offset > 0

    @pytest.mark.parametrize("room", [0, 1, 5])
    def test_a_killed_broker_starts_and_reads_without_room(self, room: int) -> None:
        fs, clock = MemoryFs(), SimClock(START_MS)
        logs = start(fs, clock, "/a")
        log = filled(logs)
        logs.tasks.checkpoint_recovery_points()
        log.append(batch(3), leader_epoch=0)
        left = fs.kill()
        left.remove(f"{log.folder}/{segment_name(0, '.index')}")  # one that has to be built
        left.fail_under("/a", errno.ENOSPC, after=room)
        again = start(left, clock, "/a")
        found = again.get(T0)
        assert found is not None
        assert_whole(found, 63)
        assert again.failed_dirs == {}
        left.repair("/a")
        again.tasks.check_free_space()
        found.append(batch(3), leader_epoch=0)
        again.close()
        last = start(left, clock, "/a").get(T0)
        assert last is not None
        assert_whole(last, 66)
        check_indexes(last)

    def test_a_reserve_is_given_up_before_the_store_is_opened(self, fs: MemoryFs, logs: LogManager) -> None:
        logs.close()
        assert fs.exists("/a/.reserve")
        again = LogManager(fs, ("/a", "/new"), BrokerConfig(log_dirs=("/a",)), SimClock())
        again.make_room()
        assert fs.exists("/a/.reserve")
        fs.free = 0
        again.make_room()
        assert not fs.exists("/a/.reserve")


def filled(logs: LogManager, **config: int) -> Log:
    """A log of several segments, of which retention keeps few."""
    log = logs.create(T0, topic_config(**({"retention_bytes": 1_000} | config)))
    for _ in range(20):
        log.append(batch(3, value=b"x" * 60), leader_epoch=0)
    log.flush()
    return log


def disk_without_room(fs: MemoryFs, patched: pytest.MonkeyPatch) -> None:
    """The disk is full as long as the reserve exists."""
    append = MemoryFile.append

    def append_if_there_is_room(self: MemoryFile, data: bytes) -> None:
        if fs.exists("/a/.reserve") or len(data) > 100_000:
            fail(errno.ENOSPC)
        append(self, data)

    patched.setattr(MemoryFile, "append", append_if_there_is_room)


def fail_without_room() -> None:
    raise KafkaStorageError("no room for another segment")


def test_appends_go_on_once_there_is_room_for_what_was_refused(fs: MemoryFs, logs: LogManager) -> None:
    log = logs.create(T0, topic_config(internal_segment_bytes=20_000))
    fs.free = MIN_FREE + 10_000
    with pytest.raises(KafkaStorageError):
        log.append(batch(value=bytes(7_000)), leader_epoch=0)
    for _ in range(3):
        logs.tasks.check_free_space()
        assert logs.full_dirs == ("/a",)
    fs.free = MIN_FREE + 20_000
    logs.tasks.check_free_space()
    assert logs.full_dirs == ()
    log.append(batch(value=bytes(7_000)), leader_epoch=0)


def work(logs: LogManager, log: Log, clock: SimClock, *, as_follower: bool) -> tuple[int, bool]:
    """Append, roll, flush and retain; return the log end by the results, and whether an append was refused."""
    end, is_refused = log.log_end_offset, False

    def follow(base_offset: int) -> None:
        data = batch(3)
        data[:8] = base_offset.to_bytes(8, "big")
        if base_offset % 12 == 0:
            log.as_follower.follow_segment(base_offset)
        log.as_follower.append(data, rolls=False)

    for number in range(50):
        try:
            if as_follower:
                follow(log.log_end_offset)
            else:
                value = b"x" * (number * 71 % 300)  # what does not fit into a segment, and what still does
                data = batch(3, value=value, producer_id=7, sequence=log.log_end_offset)
                log.append(data, leader_epoch=number // 30)
            end += 3
        except KafkaStorageError:
            is_refused = True
        if number % 10 == 9:
            clock.advance(60_000)
            logs.tasks.flush_due(clock.monotonic_ms())
            logs.tasks.checkpoint_recovery_points()
            logs.tasks.apply_retention(clock.time_ms())
            logs.tasks.checkpoint_log_starts()
            logs.tasks.check_free_space()
            try:
                log.flush()
            except KafkaStorageError:
                is_refused = True
    return end, is_refused


def assert_whole(log: Log, end_offset: int) -> None:
    assert log.log_end_offset == end_offset
    found = offsets_in(read_all(log))
    assert found == list(range(found[0], end_offset))
    assert log.offset_for_timestamp(START_MS + 2) is not None


def fail(number: int) -> None:
    raise OSError(number, "no")
