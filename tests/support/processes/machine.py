"""A machine with a broker for each core: `sparklog up --brokers auto`, on some cores of this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from support.patience import PATIENCE_S
from support.processes.output import first_line

UP = [sys.executable, "-m", "sparklog.cli.up", "--brokers", "auto", "--grpc", "127.0.0.1:0", "--kafka", "none"]


class Machine:
    """Runs inside a `with` block, with its data in folder / name. `addresses` are those of its brokers."""

    def __init__(self, folder: Path, name: str, *settings: str, cores: Sequence[int]) -> None:
        self.addresses: list[str] = []
        self._folder, self._name, self._settings, self._cores = folder, name, settings, cores
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Machine:
        keys = [word for setting in self._settings for word in ("--set", setting)]
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)  # which the process inherits
        try:
            with (self._folder / f"{self._name}.log").open("w") as log:
                self._process = process = subprocess.Popen(
                    [*UP, *keys, "--data-dir", self._name],
                    cwd=self._folder, stdout=subprocess.PIPE, stderr=log, text=True,
                )  # fmt: skip
        finally:
            os.sched_setaffinity(0, own)
        try:
            said = first_line(process)
            assert f"ready: {len(self._cores)} brokers, grpc " in said, (said, self.log())
        except BaseException:
            self.kill()
            raise
        self.addresses = said.partition("grpc ")[2].partition(", data")[0].split(",")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.terminate()
            if kind is None:
                assert process.wait(PATIENCE_S) == 0, self.log()
        finally:
            self.kill()

    def log(self) -> str:
        return (self._folder / f"{self._name}.log").read_text()

    def kill(self) -> None:
        """End all of its processes at once. Does nothing if they have ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in (process.pid, *map(int, children)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
