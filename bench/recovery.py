"""Opening logs after a clean stop and after a crash:  python -m bench.recovery [--help]

Writes partitions of uncompressed batches into a temporary directory, then opens them with `LogManager.load`, each
figure in a process of its own, as a broker's start would be:

    clean       the marker of a clean stop exists: only the ends of the logs are looked up
    crash       no marker, and recovery points at the logs' starts: every batch is checked, all indexes are built
    flushed     no marker, but recovery points at the logs' ends: headers of the last segment are walked
    append      measured while writing: Log.append of one batch, CRC and write included

MB are of `.log` files. CPU seconds are of the process, all threads; files are in the page cache.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from sparklog.base.clock import SystemClock
from sparklog.base.config import BrokerConfig
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.manager import LogManager
from sparklog.records.records import Record, write_records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="MB of all logs (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--batch-bytes", type=int, default=16 * 1024, help="default: %(default)s")
    parser.add_argument("--segment-bytes", type=int, default=64 << 20, help="default: %(default)s")
    parser.add_argument("--folder", help="where to write (default: the system's temporary directory)")
    parser.add_argument("--open", dest="opened", metavar="DIRECTORY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.opened:
        _open(options.opened)
        return
    directory = tempfile.mkdtemp(prefix="sparklog-recovery-", dir=options.folder)
    try:
        _measure(directory, options)
    finally:
        shutil.rmtree(directory)


def _measure(directory: str, options: argparse.Namespace) -> None:
    config = TopicConfig(segment_bytes=options.segment_bytes)
    manager = LogManager(LocalFs(), (directory,), BrokerConfig(topic_defaults=config), SystemClock())
    manager.load()
    batch = write_records(
        [Record(offset=0, timestamp_ms=time.time_ns() // 1_000_000, value=bytes(options.batch_bytes))]
    )
    count = options.mb * 1_000_000 // (len(batch) * options.partitions)
    began = time.perf_counter()
    for number in range(options.partitions):
        log = manager.create(TopicPartition("bench", number), config)
        for _ in range(count):
            log.append(batch, leader_epoch=0)
    seconds = time.perf_counter() - began
    size_mb = sum(log.size_bytes for log in manager) / 1e6
    segments = sum(len(log.segments) for log in manager)
    print(f"{size_mb:,.0f} MB in {options.partitions} partitions, {segments} segments, batches of {len(batch)} bytes")
    appends = count * options.partitions
    print(f"append   {seconds / appends * 1e6:8.1f} us/batch {size_mb / seconds:10,.0f} MB/s")
    manager.close()

    marker, points = f"{directory}/.kafka_cleanshutdown", f"{directory}/recovery-point-offset-checkpoint"
    _report("clean", directory, size_mb)
    os.remove(marker)
    _report("flushed", directory, size_mb)
    os.remove(points)
    os.remove(marker)
    _report("crash", directory, size_mb)


def _report(name: str, directory: str, size_mb: float) -> None:
    """Open the directory in a new process, which stops cleanly, and print the figures."""
    command = [sys.executable, "-m", "bench.recovery", "--open", directory]
    seconds, cpu, memory = map(
        float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    )
    print(
        f"{name:<8} {seconds:8.3f} s        {size_mb / seconds:10,.0f} MB/s  {cpu:6.2f} CPU s  {memory:5.0f} MiB",
        flush=True,
    )


def _open(directory: str) -> None:
    manager = LogManager(LocalFs(), (directory,), BrokerConfig(), SystemClock())
    cpu, began = time.process_time(), time.perf_counter()
    manager.load()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    manager.close()
    print(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
