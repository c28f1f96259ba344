"""Background tasks of all logs, beside reads and writes: flushes, checkpoints, retention."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.base.errors import OffsetOutOfRange, SparklogError
from sparklog.base.fs import LocalFs
from sparklog.log.directory.directory import LogDirectory
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, file_content, offsets_in, read_all, topic_config
from support.logs.managers import ORDERS, crash, fill, start

pytestmark = pytest.mark.slow


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START_MS)


class TestUpkeep:
    def test_flushes_what_is_due(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        quick = manager.create(ORDERS[0], topic_config(flush_ms=500))
        slow = manager.create(ORDERS[1], topic_config())
        for log in (quick, slow):
            log.append(batch(), leader_epoch=0)
        clock.advance(500)
        manager.tasks.flush_due(clock.monotonic_ms())
        assert (quick.recovery_point, slow.recovery_point) == (1, 0)

    def test_a_flushed_segment_is_written_down_at_once(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, "/a")
        fill(manager, ORDERS[0])
        manager.tasks.flush_due(clock.monotonic_ms())
        log = manager.get(ORDERS[0])
        assert log.recovery_point == log.segments[-1].base_offset > 0
        assert f"orders 0 {log.recovery_point}\n".encode() in file_content(fs, "/a/recovery-point-offset-checkpoint")

    def test_checkpoints_are_written_in_the_order_of_the_directories(
        self, fs: MemoryFs, clock: SimClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A power cut between two of them must leave the same files in each run of a simulation."""
        written: list[str] = []
        write = LogDirectory.write_recovery_points

        def note(directory: LogDirectory, *logs: object) -> None:
            written.append(directory.path)
            write(directory, *logs)

        monkeypatch.setattr(LogDirectory, "write_recovery_points", note)
        paths = [f"/{letter}" for letter in "hgfedcba"]
        manager = start(fs, clock, *paths)
        written.clear()
        manager.tasks.checkpoint_recovery_points()
        assert written == paths

    def test_log_starts_survive_a_crash(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, *ORDERS)
        manager.get(ORDERS[2]).advance_log_start(7)
        manager.tasks.checkpoint_log_starts()
        again = crash(fs, clock)
        assert [again.get(name).log_start_offset for name in ORDERS] == [0, 0, 7, 0]

    def test_retention_by_size(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock, config=topic_config(retention_bytes=0))
        fill(manager, ORDERS[0])
        manager.update_configs({"orders": topic_config(retention_bytes=500)})
        log = manager.get(ORDERS[0])
        assert manager.tasks.apply_retention(clock.time_ms(), lambda name: 0) == 0
        assert manager.tasks.apply_retention(clock.time_ms()) == 1
        assert log.log_start_offset == log.segments[0].base_offset > 0
        assert crash(fs, clock).get(ORDERS[0]).log_start_offset == log.log_start_offset
        clock.advance(60_000)
        assert manager.tasks.delete_expired(clock.monotonic_ms()) == 1

    def test_retention_by_time_up_to_the_high_watermark(self, fs: MemoryFs, clock: SimClock) -> None:
        manager = start(fs, clock)
        fill(manager, ORDERS[0], ORDERS[1])
        first = manager.get(ORDERS[0]).segments[1].base_offset
        asked = {ORDERS[0]: first, ORDERS[1]: None}
        clock.advance(8 * 24 * 3600 * 1000)
        manager.tasks.apply_retention(clock.time_ms(), asked.get)
        assert manager.get(ORDERS[0]).log_start_offset == first
        assert manager.get(ORDERS[1]).log_start_offset == 15


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
        lambda: manager.tasks.apply_retention(clock.time_ms()),
        lambda: manager.tasks.delete_expired(10**9),
        manager.tasks.checkpoint_recovery_points,
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
    manager.tasks.apply_retention(clock.time_ms())
    found = offsets_in(read_all(log))
    assert found == list(range(found[0], 1200))
    assert log.size_bytes < 8000
    manager.close()
    again = start(LocalFs(), clock, str(tmp_path))
    assert offsets_in(read_all(again.get(ORDERS[0]))) == found
    again.close()
