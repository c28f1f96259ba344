"""A log in a process that runs out of file descriptors, at each of its opens: what fails can be repeated."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator

import pytest

from sparklog.base.errors import KafkaStorageError
from sparklog.base.topic_config import TopicConfig
from sparklog.log.log import Log
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import batch, check_indexes, open_log, read_all, topic_config
from support.logs.transactions import ABORT, COMMIT, end, write

pytestmark = pytest.mark.slow
SMALL, LARGE = (topic_config(internal_segment_bytes=each, index_interval_bytes=0) for each in (2_000, 50_000))
ATTEMPTS = 20


class FewDescriptors(MemoryFs):
    """Opens of files and folders fail from the `fails_at`-th on, `failures` times."""

    opens, fails_at, failures = 0, 1 << 62, 0

    def check(self, path: str, *, opens: bool = False) -> None:
        if opens:
            self.opens += 1
            if self.fails_at <= self.opens < self.fails_at + self.failures:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        super().check(path, opens=opens)


def work() -> Iterator[Callable[[Log], object]]:
    """The operations of a leader, and then of a follower that has lost its last records."""
    for number in range(4):
        yield lambda log: log.append(batch(3), leader_epoch=0)
        yield lambda log, number=number: write(log, 7, 0, sequence=2 * number, count=2)
        yield lambda log, number=number: write(log, 8, 0, sequence=2 * number, count=2)
        for _ in range(20):
            yield lambda log: log.append(batch(1), leader_epoch=0)
        yield lambda log: end(log, 7, 0, ABORT)
        yield lambda log: end(log, 8, 0, COMMIT)
    yield lambda log: log.flush()
    yield lambda log: log.append(batch(2), leader_epoch=1)
    yield lambda log: log.truncate_to(70)
    for offset in (70, 73):
        yield lambda log, offset=offset: log.as_follower.append(replicated(offset))
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


def do(fs: MemoryFs, log: Log, step: Callable[[Log], object]) -> tuple[MemoryFs, Log]:
    """Repeat the step until it succeeds. If the log waits for a restart, there is one."""
    end_before = log.log_end_offset
    for _ in range(ATTEMPTS):
        try:
            step(log)
            return fs, log
        except KafkaStorageError as error:
            if "waits for a restart" in str(error):
                fs, log = restarted(fs, log)
            else:
                assert log.log_end_offset <= end_before
    raise AssertionError("it fails each time")


def restarted(fs: MemoryFs, log: Log) -> tuple[MemoryFs, Log]:
    """The log after a kill."""
    left = fs.kill()
    return left, open_log(left, config=log.config, clean=False, recovery_point=log.recovery_point)


def described(log: Log) -> object:
    check_indexes(log)
    return (
        read_all(log),
        (log.log_start_offset, log.log_end_offset, log.last_stable_offset(log.log_end_offset)),
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        log.epochs.entries,
    )


def played(
    steps: Iterable[Callable[[Log], object]], config: TopicConfig, fails_at: int, failures: int
) -> tuple[list[object], int]:
    """What the log has after the steps, at the next start, and after a kill; and the number of opens."""
    few = FewDescriptors()
    fs, log = few, open_log(few, config=config)
    few.opens, few.fails_at, few.failures = 0, fails_at, failures
    for step in steps:
        fs, log = do(fs, log, step)
    opens, few.failures = few.opens, 0
    found = [described(log)]
    log.close()
    log = open_log(fs, config=config, recovery_point=log.recovery_point)
    found.append(described(log))
    found.append(described(restarted(fs, log)[1]))
    return found, opens


@pytest.mark.parametrize("config", [SMALL, LARGE])
@pytest.mark.parametrize("failures", [1, 4])
@pytest.mark.parametrize("fewer", [0, 4, 9])
def test_what_fails_can_be_repeated_or_waits_for_a_restart(failures: int, fewer: int, config: TopicConfig) -> None:
    steps = list(work())
    steps = steps[: len(steps) - fewer]
    expected, opens = played(steps, config, 1 << 62, 0)
    for number in range(1, opens + 1):
        assert played(steps, config, number, failures)[0] == expected, f"open {number} of {opens} failed"
