"""What each test costs (a pytest plugin, `-p support.runs.costs`): `.cache/costs.tsv` has a line for each.

Columns: seconds; seconds of processor time, of all processes that the test has or had; processes started by Python
itself; pytest's process; the test. A JVM that several tests share is counted where it works.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator

import psutil
import pytest

from support import CACHE

FILE = CACHE / "costs.tsv"
STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn")


class Costs:
    """Counts in one of pytest's processes."""

    def __init__(self) -> None:
        self._started = 0
        sys.addaudithook(self._count)

    def _count(self, event: str, _: object) -> None:
        self._started += event in STARTS

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began, used, started = time.monotonic(), processor_s(), self._started
        result = yield
        figures = (f"{time.monotonic() - began:.2f}", f"{processor_s() - used:.2f}", self._started - started)
        with FILE.open("a") as file:
            print(*figures, os.getpid(), item.nodeid, sep="\t", file=file)
        return result


def processor_s() -> float:
    """Processor time of this process, its descendants and those that have ended."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # it has ended meanwhile
            continue
    return total


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        FILE.parent.mkdir(exist_ok=True)
        FILE.unlink(missing_ok=True)
    config.pluginmanager.register(Costs(), "sparklog-costs")
