"""A process with a cluster store of its own, told what to do by lines: to be killed and stopped by tests.

As a program (`python -m support.processes.store TIMEOUT_MS PATH|HOSTS`) it reads calls as JSON, one a line, as in
`["create", {"path": "/a"}]`, and prints `["answer", …]`, `["error", NAME]`, `["state", NAME]` and `["watch", PATH]`.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from sparklog.base.errors import StoreError
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import SessionState, Store
from sparklog.cluster.zookeeper import ZookeeperStore
from support import environment
from support.patience import PATIENCE_MS, PATIENCE_S


def open_named(where: str, session_timeout_ms: int) -> Store:
    if where.startswith("/"):
        return SqliteStore.open(where, session_timeout_ms=session_timeout_ms)
    return ZookeeperStore.open(where, session_timeout_ms=session_timeout_ms, connection_timeout_ms=PATIENCE_MS)


class StoreProcess:
    """The process, as a test sees it."""

    def __init__(self, where: str, session_timeout_ms: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.processes.store", str(session_timeout_ms), where],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.Queue[list[Any]] = queue.Queue()
        self.events: queue.Queue[list[Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            message = json.loads(line)
            (self._answers if message[0] in ("answer", "error") else self.events).put(message)

    def send(self, call: str, **arguments: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps([call, arguments]) + "\n")
        self._process.stdin.flush()

    def call(self, call: str, **arguments: Any) -> list[Any]:
        self.send(call, **arguments)
        return self.answer()

    def answer(self) -> list[Any]:
        return _next(self._answers, "does not answer")

    def event(self) -> list[Any]:
        return _next(self.events, "tells of nothing")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)


def _next(messages: queue.Queue[list[Any]], what: str) -> list[Any]:
    try:
        return messages.get(timeout=PATIENCE_S)
    except queue.Empty:
        raise AssertionError(f"the process with the store {what}") from None


def main(timeout_ms: str, where: str) -> None:
    lock = threading.Lock()

    def say(*message: Any) -> None:
        with lock:
            print(json.dumps(message), flush=True)

    store = open_named(where, int(timeout_ms))

    def told(state: SessionState) -> None:
        say("state", state.name)

    def add(path: str, times: int) -> None:
        """Count up, in company of others."""
        done = 0
        while done < times:
            node = store.get(path)
            try:
                store.set(path, str(int(node.data) + 1).encode(), node.version)
                done += 1
            except StoreError:
                continue

    calls: dict[str, Callable[..., Any]] = {
        "session_id": lambda: store.session_id,
        "listen": lambda: store.listen(told),
        "create": store.create,
        "set": lambda path, data: store.set(path, data.encode()),
        "get": lambda path: store.get(path).data.decode(),
        "watch": lambda path: store.exists(path, lambda path: say("watch", path)),
        "add": add,
    }
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            say("answer", calls[name](**arguments))
        except StoreError as error:
            say("error", type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
