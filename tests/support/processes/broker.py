"""A broker process as `sparklog up` starts it, with both listeners open on ports of its own."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from support.patience import PATIENCE_S
from support.processes.output import first_line
from support.processes.ports import reserve_port

SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=5")


class BrokerProcess:
    """Runs from `start` until `stop` or `kill`; it can be started again on the same folder and ports.

    A `with` block starts it, and stops it where it still runs at the end; after an error it is killed.
    """

    def __init__(
        self,
        folder: Path,
        *settings: str,
        open_files: int | None = None,
        config: Path | None = None,
        log_level: str = "info",
        serves_metrics: bool = False,
        log_dirs: tuple[str, ...] = ("data",),
        cwd: Path | None = None,
    ) -> None:
        """Choose the ports.

        open_files: the most that it may have; None: as this process
        config: the file of --config
        serves_metrics: whether it serves metrics and probes, at `metrics`
        log_dirs: the names of the log directories in the folder
        cwd: its working directory; None: that of this process
        """
        self.grpc = f"127.0.0.1:{reserve_port(self)}"
        self.kafka = f"127.0.0.1:{reserve_port(self)}"
        self.metrics = f"127.0.0.1:{reserve_port(self)}" if serves_metrics else ""
        self.open_files = open_files
        self._config = ["--config", str(config)] if config else []
        self._log_level = log_level
        self.is_running = False
        self.is_paused = False
        self._folder = folder
        self._cwd = cwd
        self.log_dirs = [folder / name for name in log_dirs]
        self._settings = (f"listeners=PLAINTEXT://{self.kafka}", *SETTINGS, *settings)
        self._settings += (f"metrics.listener={self.metrics}",) if serves_metrics else ()

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill() if error else self.stop()

    def start(self) -> None:
        """Return once it is ready."""
        self.launch()
        try:
            self.await_ready()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        command = [sys.executable, "-m", "sparklog.cli.up", "--data-dir", ",".join(map(str, self.log_dirs))]
        command += ["--grpc", self.grpc, *(word for setting in self._settings for word in ("--set", setting))]
        command += [*self._config, "--log-level", self._log_level]
        if self.open_files:
            command = ["sh", "-c", f'ulimit -n {self.open_files}; exec "$@"', "sh", *command]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._cwd)
        self.is_running = True

    def await_ready(self) -> None:
        said = first_line(self._process)
        assert "ready" in said, f"{self} is not ready: it said {said!r}\n{self.log}"

    def stop(self) -> None:
        """A clean stop, after which nothing in the broker's log says that something in it failed."""
        self.begin_to_stop()
        status = self._wait()
        assert status == 0, f"{self} ended with status {status}\n{self.log}"
        assert "Traceback" not in self.log, self.log

    def begin_to_stop(self) -> None:
        """Send the signal, and do not wait; `stop` does."""
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
        self._wait()

    def await_end(self) -> int:
        """Wait until it ends by itself; its exit status."""
        return self._wait()

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

    def __str__(self) -> str:
        return f"the broker at {self.grpc}"

    def _wait(self) -> int:
        try:
            status = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} does not end\n{self.log}") from None
        self.is_running = self.is_paused = False
        assert self._process.stdout
        self._process.stdout.close()
        return status
