"""A log that has no file descriptor at one of its opens, or no room at one of its writes, and goes on.

Each open and each write of a long work fails once. What fails can be repeated, or the log waits for a restart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from sparklog.base.errors import KafkaStorageError
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.free_space import FreeSpace
from sparklog.log.log import Log
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import batch, check_indexes, open_log, read_all, topic_config
from support.logs.transactions import ABORT, COMMIT, end, write

pytestmark = pytest.mark.slow
SMALL, LARGE = (topic_config(internal_segment_bytes=each, index_interval_bytes=0) for each in (2_000, 50_000))
ATTEMPTS = 20


class FewDescriptors(MemoryFs):
    """Opens of files and folders fail from the `fails_at`-th on, `failures` times."""

    count, fails_at, failures = 0, 1 << 62, 0

    def is_to_fail(self) -> bool:
        self.count += 1
        return self.fails_at <= self.count < self.fails_at + self.failures

    def check(self, path: str, *, opens: bool = False) -> None:
        if opens and self.is_to_fail():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        super().check(path, opens=opens)


class LittleRoom(FewDescriptors):
    """So do changes that take room, and not opens."""

    def check(self, path: str, *, opens: bool = False) -> None:
        MemoryFs.check(self, path, opens=opens)

    @contextmanager
    def change(self, path: str, *, takes_room: bool = False) -> Iterator[float]:
        if takes_room and self.is_to_fail():
            yield 0.5
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        with super().change(path, takes_room=takes_room) as share:
            yield share


def work() -> Iterator[Callable[[Log], object]]:
    """The operations of a leader, and then of a follower that has lost its last records."""
    for number in range(4):
        yield lambda log: log.append(batch(3), leader_epoch=0)
        yield partial(write, producer_id=7, epoch=0, sequence=2 * number, count=2)
        yield partial(write, producer_id=8, epoch=0, sequence=2 * number, count=2)
        for _ in range(20):
            yield lambda log: log.append(batch(1), leader_epoch=0)
        yield lambda log: end(log, 7, 0, ABORT)
        yield lambda log: end(log, 8, 0, COMMIT)
    yield lambda log: log.flush()
    yield lambda log: log.append(batch(2), leader_epoch=1)
    yield lambda log: log.truncate_to(70)
    yield lambda log: log.as_follower.append(replicated(70))
    yield lambda log: log.as_follower.append(replicated(73))
    yield lambda log: log.as_follower.follow_segment(log.log_end_offset)
    yield go_back_to_the_segment_before
    yield lambda log: log.as_follower.append(replicated(76))
    yield append_after_a_gap
    yield lambda log: log.truncate_to(40)
    yield lambda log: write(log, 7, 0, sequence=4)
    yield lambda log: end(log, 7, 0, ABORT)
    yield lambda log: log.roll()
    yield lambda log: log.append(batch(1), leader_epoch=2)
    yield lambda log: log.flush()
    yield lambda log: log.truncate_fully_and_start_at(100)
    yield lambda log: write(log, 7, 1, sequence=0)
    yield lambda log: end(log, 7, 1, ABORT)


def go_back_to_the_segment_before(log: Log) -> None:
    if not log.segments[-1].size_bytes:
        log.as_follower.follow_segment(log.segments[-2].base_offset)


def append_after_a_gap(log: Log) -> None:
    if log.log_end_offset < 86:
        log.as_follower.append_with_gaps(replicated(83))
    log.flush()


def replicated(offset: int) -> bytearray:
    data = batch(3)
    data[:8] = offset.to_bytes(8, "big")
    return data


def opened(fs: MemoryFs, config: TopicConfig, **how: Any) -> tuple[Log, FreeSpace]:
    room = FreeSpace(fs, "/logs")
    return open_log(fs, config=config, room=room, **how), room


def restarted(fs: MemoryFs, log: Log) -> tuple[MemoryFs, Log, FreeSpace]:
    """The log after a kill."""
    left = fs.kill()
    return left, *opened(left, log.config, clean=False, recovery_point=log.recovery_point)


def described(log: Log) -> object:
    check_indexes(log)
    return (
        read_all(log),
        (log.log_start_offset, log.log_end_offset, log.last_stable_offset(log.log_end_offset)),
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        log.epochs.entries,
    )


def played(
    fs: FewDescriptors, steps: Iterable[Callable[[Log], object]], config: TopicConfig, fails_at: int, failures: int
) -> tuple[list[object], int]:
    """What the log has after the steps, at the next start, and after a kill; and the number of what may fail.

    Each step is repeated until it succeeds. If the log waits for a restart, there is one.
    """
    left: MemoryFs = fs
    log, room = opened(fs, config)
    fs.count, fs.fails_at, fs.failures = 0, fails_at, failures
    for step in steps:
        end_before = log.log_end_offset
        for _ in range(ATTEMPTS):
            try:
                step(log)
                break
            except KafkaStorageError as error:
                if "waits for a restart" in str(error):
                    left, log, room = restarted(left, log)
                else:
                    assert log.log_end_offset <= end_before
                    with suppress(OSError):
                        room.refresh()
        else:
            pytest.fail("it fails each time")
    count, fs.failures = fs.count, 0
    found = [described(log)]
    log.close()
    log, _ = opened(left, config, recovery_point=log.recovery_point)
    found.append(described(log))
    found.append(described(restarted(left, log)[1]))
    return found, count


@pytest.mark.parametrize("config", [SMALL, LARGE])
@pytest.mark.parametrize(("made", "failures"), [(FewDescriptors, 1), (FewDescriptors, 4), (LittleRoom, 1)])
@pytest.mark.parametrize("fewer", [0, 4, 9])
def test_what_fails_can_be_repeated_or_waits_for_a_restart(
    made: type[FewDescriptors], failures: int, fewer: int, config: TopicConfig
) -> None:
    steps = list(work())
    steps = steps[: len(steps) - fewer]
    expected, count = played(made(), steps, config, 1 << 62, 0)
    for number in range(1, count + 1):
        found, _ = played(made(), steps, config, number, failures)
        assert found == expected, f"number {number} of {count} failed"
