"""Fails a run that leaves something behind (a pytest plugin): a process, a listening port, an open log, a dead worker,
a file in the folder that it was started in.

Every process that a run starts inherits `SPARKLOG_TEST_RUN`, and pytest's `PYTEST_CURRENT_TEST`, which names the test
that started it. Processes are looked for when all tests and fixtures have ended, and killed once they are reported.
Each of pytest's own processes says which ports it listens on and which files of logs it has open. Hidden files are
tools' own.
"""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

RUN = "SPARKLOG_TEST_RUN"
ENDS_WITHIN_S = 20
"""A process that was told to stop may need a moment."""
FILES_OF_LOGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class LeftOvers:
    """What one pytest process finds; a worker process of xdist sends it to the main one."""

    def __init__(self, config: pytest.Config, run: str) -> None:
        self._output: dict[str, Any] | None = getattr(config, "workeroutput", None)
        self._run = run
        self._found: list[str] = []
        self._ports_before: set[int] = set()
        self._files_before: set[str] = set()
        self._folder = config.invocation_params.dir
        self._names_before: set[str] = set()

    def pytest_sessionstart(self) -> None:
        self._ports_before = listening_ports()  # pytest-rerunfailures has one
        self._files_before = open_files_of_logs()  # what pytest prints may go to a .log
        self._names_before = names_in(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._found.append(f"worker process {node.gateway.id} died: {error}")
        self._found += getattr(node, "workeroutput", {}).get("leftovers", [])

    @pytest.hookimpl(trylast=True)  # when xdist has stopped its worker processes
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        gc.unfreeze()  # a test may have frozen what another one still used then
        gc.collect()
        gc.freeze()  # pytest collects five more times
        self._found += [f"port {number}" for number in listening_ports() - self._ports_before]
        self._found += [f"open file {name}" for name in open_files_of_logs() - self._files_before]
        if self._output is not None:
            self._output["leftovers"] = self._found
            return
        self._found += end_processes(self._run)
        self._found += [f"file {name}" for name in names_in(self._folder) - self._names_before]
        if self._found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for each in self._found:
            terminalreporter.write_line(f"LEFT OVER {each}", red=True)


def names_in(folder: Path) -> set[str]:
    """Names of the files and folders in it, but for hidden ones and compiled modules."""
    return {name for name in os.listdir(folder) if not name.startswith(".") and name != "__pycache__"}


def listening_ports() -> set[int]:
    """Ports that this process listens on."""
    connections = psutil.Process().net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def open_files_of_logs() -> set[str]:
    """Files of segments that this process has open, deleted ones included."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the listing's own
            continue
    return {name for name in names if name.removesuffix(" (deleted)").endswith(FILES_OF_LOGS)}


def end_processes(run: str) -> list[str]:
    """The run's processes that do not end by themselves; they are killed."""
    deadline = time.monotonic() + ENDS_WITHIN_S
    while (left := _processes_of(run)) and time.monotonic() < deadline:
        time.sleep(0.1)
    found = []
    for process, test in left:
        with suppress(psutil.NoSuchProcess):  # it has ended after all
            command = " ".join(process.cmdline())[:200]
            process.kill()
            found.append(f"process {process.pid} of {test}: {command}")
    return found


def _processes_of(run: str) -> list[tuple[psutil.Process, str]]:
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            is_dead = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:  # it has ended, or is another user's
            continue
        if environment.get(RUN) == run and process.pid != os.getpid() and not is_dead:
            found.append((process, environment.get("PYTEST_CURRENT_TEST", "no test")))
    return found


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = uuid4().hex
    config.pluginmanager.register(LeftOvers(config, os.environ[RUN]), "sparklog-leftovers")
