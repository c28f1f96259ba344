"""The event loop behind the synchronous clients: one thread for all of them, started when first needed.

The thread is a daemon and lives as long as the process: gRPC's asyncio layer has one poller for all event loops of a
process, and the end of one loop can lose events of the others.
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

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @classmethod
    def start(cls) -> LoopThread:
        """Return an event loop that runs in a new daemon thread."""
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(_handle)
        threading.Thread(target=loop.run_forever, name="sparklog client", daemon=True).start()
        return cls(loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result; cancel it if the waiting thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # no effect if the coroutine itself has raised
            raise


def background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run `work` as a task on the running event loop, and return the task. An exception is logged at once, as a defect.

    The end of the program or of the loop prints nothing, even if the client was not closed.
    """
    task = asyncio.create_task(work, name=name)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio.gather does
    task.add_done_callback(_report_defect)
    return task


def _report_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (failure := task.exception()):
        logger.error("%s failed in a way that is a defect of sparklog", task.get_name(), exc_info=failure)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report exceptions of the loop, except two harmless kinds.

    These are BlockingIOError, raised by gRPC's shared poller when another loop was faster, and pending tasks at the end
    of the process, of clients that were not closed.
    """
    is_left = context.get("message") == "Task was destroyed but it is pending!"
    if not (is_left or isinstance(context.get("exception"), BlockingIOError)):
        loop.default_exception_handler(context)


_lock = threading.Lock()
_by_process: dict[int, LoopThread] = {}


def shared_loop() -> LoopThread:
    """Return the process's loop thread; a forked child gets its own, as threads do not survive a fork."""
    with _lock:
        process = os.getpid()
        found = _by_process.get(process)
        if found is None:
            _by_process.clear()
            found = _by_process[process] = LoopThread.start()
        return found
