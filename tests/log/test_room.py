"""A disk that fills: appends stop before it is full, reads go on, and appends do so once there is room."""

from __future__ import annotations

import contextlib

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaStorageError
from sparklog.base.ids import TopicPartition
from sparklog.log.manager import LogManager
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim_clock import SimClock
from support.logs.builders import batch, offsets_in, read_all, topic_config

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
            log.append_as_follower(data)
        else:
            log.append(data, leader_epoch=0)

    append()
    fs.free = MIN_FREE + 100
    logs.look_for_room()
    with pytest.raises(KafkaStorageError, match=r"/a has 1,000,100 bytes free, and log\.dir\.min\.free\.bytes is 1,00"):
        append()
    assert logs.full_dirs == ("/a",)
    assert offsets_in(read_all(log)) == [0, 1, 2]
    fs.free = 10 * MIN_FREE
    logs.look_for_room()
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
