"""Makes processes that work on a log directory until they are killed.

A program: `python -m support.logs.killed_writer DIRECTORY`.

For each line on standard input, a seed, it forks a child that opens the directory, says what it finds, and then
appends, rolls, truncates, flushes, checkpoints and applies retention at random. The child says on standard output
what it is about to do where that puts something in doubt, and what is done; when it has died, its parent says so:

    pid 4711                          the child
    open START END                    the directory is open: log start and log end offset
    found BASE NEXT NAME              a batch that is there: base offset, next offset, what its first value says
    ready
    appended BASE NEXT NAME           done
    truncating OFFSET, truncated      about to, done
    retaining, retained START         about to, done: the log starts there now
    dead
"""

from __future__ import annotations

import os
import random
import sys

from sparklog.base.clock import SystemClock
from sparklog.base.config import BrokerConfig
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.records.records import read_records
from support.logs.builders import batch, read_all, topic_config

NAME = TopicPartition("orders", 0)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def live(directory: str, seed: int) -> None:
    """One child's life; it ends from outside."""
    chance = random.Random(seed)
    clock = SystemClock()
    config = topic_config(
        internal_segment_bytes=2000, retention_bytes=20_000, file_delete_delay_ms=0, index_interval_bytes=200
    )
    manager = LogManager(LocalFs(), (directory,), BrokerConfig(topic_defaults=config), clock)
    manager.load()
    log = manager.get(NAME) or manager.create(NAME, config)
    tell(log)
    while True:
        work = chance.random()
        if work < 0.7:
            append(log, chance, seed, clock.time_ms())
        elif work < 0.78:
            log.flush()
        elif work < 0.82:
            log.roll()
        elif work < 0.86:
            manager.tasks.checkpoint_recovery_points()
            manager.tasks.checkpoint_log_starts()
        elif work < 0.90:
            offset = chance.randint(log.log_start_offset, log.log_end_offset)
            say("truncating", offset)
            log.truncate_to(offset)
            say("truncated")
        elif work < 0.94:
            say("retaining")
            manager.tasks.apply_retention(clock.time_ms())
            say("retained", log.log_start_offset)
        elif work < 0.99:
            manager.tasks.flush_due(clock.monotonic_ms())
            manager.tasks.delete_expired(clock.monotonic_ms())
        else:
            manager.close()
            live(directory, seed + 1_000_000)


def tell(log: Log) -> None:
    """Say what is there."""
    say("open", log.log_start_offset, log.log_end_offset)
    data = read_all(log)
    for position, header in iterate_headers(data):
        value = read_records(data, position)[0].value or b""
        say("found", header.base_offset, header.next_offset, value[:20].decode())
    say("ready")


def append(log: Log, chance: random.Random, seed: int, now_ms: int) -> None:
    name = f"{seed}-{chance.getrandbits(32):08x}".ljust(20, "_")
    data = batch(chance.choice((1, 3)), timestamp_ms=now_ms, value=name.encode() + b"x" * chance.choice((0, 100, 400)))
    appended = log.append(data, leader_epoch=seed % 1_000_000)
    say("appended", appended.first_offset, appended.last_offset + 1, name)


def main(directory: str) -> None:
    os.fsync = os.fdatasync = lambda fd: None  # a kill leaves the page cache as it is: only a power cut asks for these
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            live(directory, int(line))
        say("pid", child)
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main(sys.argv[1])
