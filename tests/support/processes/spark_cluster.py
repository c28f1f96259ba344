"""A Spark cluster of its own: a master, and two workers of one core each, which have different host names.

Spark gives no host two attempts of one task, so that a copy of a slow task needs a second one.
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from support.patience import PATIENCE_S, wait_until
from support.processes.java import JAVA
from support.processes.ports import reserve_port

HOSTS = ("127.0.0.1", "localhost")
MEMORY = "600m"
"""Of each executor."""
JAVA_OPTIONS = " ".join((*JAVA[1:], "-Dspark.master.rest.enabled=false"))


class SparkCluster:
    """Runs inside a `with` block. `master` is what sessions connect to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = reserve_port(self)
        self._running = ExitStack()
        folder.mkdir()
        for host in HOSTS:
            self.work_dir(host).mkdir()

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def work_dir(self, host: str) -> Path:
        """Where the worker keeps folders of applications: an executor runs in <application>/<number>."""
        return self._folder / host

    def __enter__(self) -> SparkCluster:
        with self._running as running:
            own = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
            running.enter_context(self._start("master.Master", *own))
            wait_until(self._listens, "Spark's master starts", tell=self.log)
            for host in HOSTS:
                room = ("--cores", "1", "--memory", MEMORY, "--work-dir", str(self.work_dir(host)))
                running.enter_context(
                    self._start("worker.Worker", "--host", host, "--webui-port", "0", *room, self.master)
                )
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def _start(self, name: str, *arguments: str) -> _Process:
        home = find_spec("pyspark").submodule_search_locations[0]  # type: ignore[union-attr, index]
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS}
        env = {**os.environ, "SPARK_HOME": home, **own}
        with (self._folder / "log").open("ab") as log:
            return _Process(command, env=env, stdout=log, stderr=log)

    def _listens(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self._port)) == 0


class _Process(subprocess.Popen[bytes]):
    def __exit__(self, *_: object) -> None:
        """End it: a worker ends its executors."""
        self.terminate()
        self.wait(PATIENCE_S)
