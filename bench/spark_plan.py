"""How long a batch read of a topic of many partitions and segments is planned:  python -m bench.spark_plan [--help]

Writes a log directory with that many partitions, each of some segments, then plans a read of it (option `path`) as
Spark's driver does. The time is the median of --rounds plans; the folders listed and the files opened are those of one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from sparklog.base.clock import SystemClock
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, OffsetCheckpoint
from sparklog.log.log import Log
from sparklog.records.records import Record, write_records
from sparklog.spark.source.source import SparklogDataSource

TOPIC = "t"


def write_logs(folder: str, partitions: int, segments: int) -> None:
    """Write the logs as a broker leaves them after a clean stop."""
    now_ms = int(time.time() * 1000)
    batch = bytes(write_records([Record(offset=n, timestamp_ms=now_ms, value=b"v" * 100) for n in range(10)]))
    config = TopicConfig.parse({"internal.segment.bytes": str(len(batch))}, TopicConfig())
    ends = {}
    for number in range(partitions):
        log = Log.open(LocalFs(), f"{folder}/{TOPIC}-{number}", config, SystemClock(), clean=True)
        for _ in range(segments):
            log.append(bytearray(batch), leader_epoch=0)
        ends[TopicPartition(TOPIC, number)] = log.log_end_offset
        log.close()
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        OffsetCheckpoint(LocalFs(), f"{folder}/{name}").write(ends)


def plan(options: Mapping[str, str]) -> int:
    """Plan a read, and return the number of its tasks."""
    source = SparklogDataSource(dict(options))
    reader: Any = source.reader(source.schema())
    return len(reader.partitions())


@contextmanager
def counted(done: Counter[str]) -> Iterator[None]:
    """Count the lists and opens of local folders and files."""

    def counting(name: str) -> Any:
        original = getattr(LocalFs, name)

        def call(self: LocalFs, *args: Any, **kwargs: Any) -> Any:
            done[name] += 1
            return original(self, *args, **kwargs)

        return mock.patch.object(LocalFs, name, call)

    with counting("list"), counting("open_read"):
        yield


def measure(title: str, options: Mapping[str, str], rounds: int) -> None:
    done: Counter[str] = Counter()
    with counted(done):
        tasks = plan(options)
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        plan(options)
        times.append(time.perf_counter() - began)
    print(
        f"{title:<28}{tasks:>8,}{statistics.median(times):>10.2f}{done['list']:>10,}{done['open_read']:>10,}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--segments", type=int, default=10, help="of each partition")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'':<28}{'tasks':>8}{'seconds':>10}{'listings':>10}{'opened':>10}")
    with tempfile.TemporaryDirectory() as folder:
        write_logs(folder, options.partitions, options.segments)
        measure("a task for each partition", {"path": folder, "subscribe": TOPIC}, options.rounds)
        measure(
            "a task for each segment",
            {"path": folder, "minPartitions": str(options.partitions * options.segments)},
            options.rounds,
        )


if __name__ == "__main__":
    main()
