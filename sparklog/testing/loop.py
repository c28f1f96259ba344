"""An event loop on its own thread, for brokers that run in a test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class BrokerLoop:
    """An event loop that runs in a daemon thread. `start` starts it, `close` stops it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop = loop
        self._thread = thread

    @classmethod
    def start(cls, name: str) -> BrokerLoop:
        """Start a thread of that name with an event loop in it, and return it."""
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(_ignore_shared_poller)
        thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
        thread.start()
        return cls(loop, thread)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine on the loop. Return its result or raise its exception.

        Call it from another thread only: on the loop's own thread it would wait forever.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Stop the loop and wait for its threads. Blocks. Call it from another thread only."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def _ignore_shared_poller(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Drop gRPC's harmless BlockingIOError: several event loops wake for one event, and only the first can read it."""
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
