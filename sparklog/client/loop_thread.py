"""The event loop behind the synchronous clients: one thread for all of them, started when first needed.

It is a daemon and lives as long as the process: gRPC's asyncio layer shares one poller among all event loops of a
process, and a loop that closes while others run can swallow events meant for them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_handle)
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparklog client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises; cancelled if the waiting thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # without effect where the coroutine itself has raised
            raise


def report_defect(task: asyncio.Task[None]) -> None:
    """Say at once that a task which should run until it is cancelled has failed instead."""
    if not task.cancelled() and (failure := task.exception()):
        logger.error("%s failed in a way that is a defect of sparklog", task.get_name(), exc_info=failure)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Drop what gRPC's shared poller raises when another loop was faster, and the tasks of clients that a process which
    ends has not closed; report everything else."""
    is_left = context.get("message") == "Task was destroyed but it is pending!"
    if not (is_left or isinstance(context.get("exception"), BlockingIOError)):
        loop.default_exception_handler(context)


_lock = threading.Lock()
_by_process: dict[int, LoopThread] = {}


def shared_loop() -> LoopThread:
    """The process's loop thread; a forked child gets its own, as threads do not survive a fork."""
    with _lock:
        process = os.getpid()
        found = _by_process.get(process)
        if found is None:
            _by_process.clear()
            found = _by_process[process] = LoopThread()
        return found
