"""The command that runs seeds in several processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_its_processes_end_with_it(sent: signal.Signals) -> None:
    command = subprocess.Popen([sys.executable, "-m", "sparklog.testing.sim", "--seconds", "600", "--jobs", "2"])
    try:
        process = psutil.Process(command.pid)
        wait_until(lambda: sum(child.cpu_times().user > 0.5 for child in process.children()) == 2, "two processes work")
        children = process.children()
    finally:
        command.send_signal(sent)
        command.wait(PATIENCE_S)
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive
