"""A run that leaves a process, port, open log, dead worker or file behind fails, though each test has passed."""

from __future__ import annotations

import psutil
import pytest

from support import ROOT

pytestmark = pytest.mark.slow

STARTS = """
import subprocess, sys

def test_door():
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()  # in its first moments a process has no environment to be known by
    print(child.pid, file=open("pid", "w"))
"""
LISTENS = """
import socket

listening = socket.create_server(("127.0.0.1", 0))

def test_door():
    pass
"""
OPENS = """
def test_door(tmp_path):
    global log
    log = open(tmp_path / "00000000000000000000.log", "w")
"""
WRITES = """
def test_door():
    open("checkpoint", "w").close()
"""
DIES = """
import os

def test_door():
    pass

def test_end():
    os._exit(3)
"""
IS_TIDY = """
import socket, subprocess, sys

def test_door(tmp_path):
    with open(tmp_path / "0.log", "w"), socket.create_server(("127.0.0.1", 0)):
        subprocess.run([sys.executable, "-c", ""])
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'tests'}")
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\ntestpaths = ['.']\n")
    pytester.makeconftest("from support.runs import leftovers\n\nleftovers.ENDS_WITHIN_S = 0.5\n")

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_door=text)
        options = ("-p", "support.runs.leftovers", "-p", "no:cacheprovider", "-p", "no:sparklog", *options)
        return pytester.runpytest_subprocess(*options)

    return run


def test_a_process_is_named_with_its_test_and_killed(run, pytester: pytest.Pytester) -> None:
    result = run(STARTS)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    pid = int((pytester.path / "pid").read_text())
    result.stdout.fnmatch_lines([f"LEFT OVER process {pid} of test_door.py::test_door*: *time.sleep(600)*"])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "worker process"])
@pytest.mark.parametrize(
    ("text", "found"),
    [(LISTENS, "port *"), (OPENS, "open file *00000000000000000000.log"), (WRITES, "file checkpoint")],
)
def test_a_port_a_log_or_a_file_is_named(run, text: str, found: str, options: tuple[str, ...]) -> None:
    result = run(text, *options)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"LEFT OVER {found}"])


def test_a_worker_process_that_dies_fails_the_run_though_its_tests_pass_again(run) -> None:
    result = run(DIES, "-n", "1", "--reruns", "1")

    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["LEFT OVER worker process gw0 died*"])


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "worker process"])
def test_a_run_that_leaves_nothing_passes(run, options: tuple[str, ...]) -> None:
    result = run(IS_TIDY, *options)

    assert result.ret == pytest.ExitCode.OK
    assert "LEFT OVER" not in result.stdout.str()
