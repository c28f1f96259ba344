"""A broker process as `sparklog up` starts it, with both doors open on ports of its own."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=5")


class BrokerProcess:
    """Runs from `start` until `stop` or `kill`; it can be started again on the same folder and ports."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.grpc = f"127.0.0.1:{_free_port()}"
        self.kafka = f"127.0.0.1:{_free_port()}"
        self.is_running = False
        self.is_paused = False
        self._folder = folder
        self._settings = (f"listeners=PLAINTEXT://{self.kafka}", *SETTINGS, *settings)

    def start(self) -> None:
        """Return once it is ready."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        command = [sys.executable, "-m", "sparklog.cli.up", "--data-dir", str(self._folder / "data")]
        command += ["--grpc", self.grpc, *(word for setting in self._settings for word in ("--set", setting))]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.is_running = True

    def await_ready(self) -> None:
        assert self._process.stdout
        assert "ready" in self._process.stdout.readline(), self.log

    def stop(self) -> None:
        """A clean stop, after which nothing in the broker's log says that something in it failed."""
        self._process.terminate()
        assert self._wait() == 0, self.log
        assert "Traceback" not in self.log, self.log

    def kill(self) -> None:
        self._process.kill()
        self._wait()

    def pause(self) -> None:
        """Stop its clock: it answers nothing, and knows nothing of it."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # until it has stopped: it may answer meanwhile
        self.is_paused = True

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    @property
    def resident_bytes(self) -> int:
        """The memory that the process has now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    @property
    def log(self) -> str:
        """What the broker has logged."""
        return (self._folder / "log").read_text()

    def _wait(self) -> int:
        status = self._process.wait(30)
        self.is_running = self.is_paused = False
        assert self._process.stdout
        self._process.stdout.close()
        return status


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
