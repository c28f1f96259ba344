"""Common parts of the benchmarks: a broker in a process of its own, and its cost.

The broker is `sparklog up` on a folder in the system's temporary directory and a free port. Its CPU seconds are
those of its process, so they do not include other users of the machine; they are the steadiest of the printed figures.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

READY_TIMEOUT_S = 120
QUERY_TIMEOUT_S = 300
_TICKS = os.sysconf("SC_CLK_TCK")
_PROCESS_CPU_CLOCK = 2
"""The clock of a process counts nanoseconds; /proc/PID/stat counts hundredths of a second."""


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A running broker."""

    pid: int
    bootstrap: str
    kafka: str = ""
    """The first Kafka listener, as HOST:PORT."""

    def cpu_seconds(self) -> float:
        """Return the broker's user and system time since its start."""
        return time.clock_gettime(~self.pid << 3 | _PROCESS_CPU_CLOCK)

    def memory_mib(self) -> float:
        """Return the broker's peak resident memory."""
        with open(f"/proc/{self.pid}/status") as file:
            peak = next(line for line in file if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024


@contextmanager
def broker_process(*settings: str, module: str = "sparklog.cli.up", data: str | None = None) -> Iterator[BrokerProcess]:
    """Run a broker with ``KEY=VALUE`` settings; stop it at the end. Its folder is `data`, or one that is then removed.

    It has a Kafka listener only if the settings name `listeners`. `module` is run instead of `sparklog up`.
    """
    folder = data or tempfile.mkdtemp(prefix="sparklog-bench-")
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    command = [sys.executable, "-m", module, "--data-dir", folder, "--grpc", "127.0.0.1:0"]
    kafka = () if any(setting.startswith("listeners=") for setting in settings) else ("--kafka", "none")
    process = subprocess.Popen(
        [*command, *kafka, *arguments, "--log-level", "warning"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        ready = process.stdout.readline()
        if "ready: grpc " not in ready:
            raise RuntimeError(f"the broker did not start: {ready!r}, exit status {process.wait(READY_TIMEOUT_S)}")
        grpc, kafka = (ready.partition(name)[2].partition(",")[0] for name in ("ready: grpc ", "kafka "))
        yield BrokerProcess(process.pid, grpc, kafka.partition("://")[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(READY_TIMEOUT_S)
        if not data:
            shutil.rmtree(folder)


def wait_for_query(query: StreamingQuery, is_so: Callable[[], bool], *, every_s: float = 0.02) -> None:
    """Wait until the condition holds. Raises RuntimeError if the query fails, or after QUERY_TIMEOUT_S."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not is_so():
        if (failed := query.exception()) is not None:
            raise RuntimeError(f"the stream failed: {failed}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {QUERY_TIMEOUT_S} s for the stream: {query.status}")
        time.sleep(every_s)


class AllProcesses:
    """This process and all that it has started, directly or not.

    The time of one that has ended is what it had when it was last looked at: pyspark's workers end some time after
    their work. One that begins and ends between two looks does not count.
    """

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, int], int] = {}
        """User and system time of each process, by its id and start."""

    def cpu_seconds(self) -> float:
        """Return the user and system time of all of them."""
        parents: dict[int, int] = {}
        found: dict[int, tuple[int, int]] = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[pid] = int(fields[1])
            found[pid] = int(fields[19]), int(fields[11]) + int(fields[12])
        for pid, (start, ticks) in found.items():
            ancestor = pid
            while ancestor not in (os.getpid(), 0):
                ancestor = parents.get(ancestor, 0)
            if ancestor:
                self._ticks[pid, start] = ticks
        return sum(self._ticks.values()) / _TICKS


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def report(
    name: str, *, records: int, size_bytes: int, requests: int, seconds: float, cpu: float, latencies: list[float]
) -> None:
    """Print one line of figures; latencies are in seconds."""
    print(
        f"{name:<34} {records / seconds:>11,.0f} rec/s {size_bytes / seconds / 1e6:>8,.1f} MB/s"
        f" {requests / seconds:>8,.0f} req/s"
        f"  p50 {percentile(latencies, 0.5) * 1000:>7.2f} ms  p99 {percentile(latencies, 0.99) * 1000:>7.2f} ms"
        f"  broker {cpu:>6.2f} CPU s, {cpu / requests * 1e6:>6.0f} us/request",
        flush=True,
    )
