"""What a request costs a broker that runs in this process, but for its client, which runs on the calling thread.

Processor time is of all threads but the client's: it is the same however busy the machine is, give or take a half.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import Any
from unittest import mock

from sparklog.testing import RunningBroker

TICK_S = 0.001
_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one request cost."""

    request_bytes: int
    cpu_s: float
    turn_s: float
    """Processor time of the longest callback or step of a task on the broker's event loop."""
    turn: str
    """What that was."""
    delay_s: float
    """The most processor time that the broker spent between two turns of another task on its event loop: what others
    wait for, be it a long turn or a thread that does not let go of the interpreter."""
    memory_bytes: int
    """By how much more memory the process had meanwhile."""
    answer_bytes: int


@dataclass(slots=True)
class _Longest:
    turn_s: float = 0.0
    turn: str = ""
    delay_s: float = 0.0


def measure(broker: RunningBroker, request: bytes, ask: Callable[[bytes], int]) -> Cost:
    """`ask` sends the request and returns how long the answer is, once the broker has nothing more to do for it."""
    for kept in _caches():
        kept.cache_clear()
    gc.collect()
    gc.freeze()  # a collection while the request is served looks at what the request made, not at all of this process
    ctypes.CDLL(None).malloc_trim(0)
    _PEAK.write_text("5")
    before_bytes = _status_bytes("VmRSS")
    client = threading.current_thread()
    with _watched(broker, client) as longest:
        began_s = _broker_s(client)
        answer_bytes = ask(request)
        cpu_s = _broker_s(client) - began_s
    return Cost(
        request_bytes=len(request),
        cpu_s=cpu_s,
        turn_s=longest.turn_s,
        turn=longest.turn,
        delay_s=longest.delay_s,
        memory_bytes=max(0, _status_bytes("VmHWM") - before_bytes),
        answer_bytes=answer_bytes,
    )


@contextmanager
def _watched(broker: RunningBroker, client: threading.Thread) -> Iterator[_Longest]:
    """Times what the broker's event loop does in each turn, until the end of the block."""
    longest, loop = _Longest(), broker.run(_running_loop())
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        if handle._loop is not loop:
            return run(handle)
        began_s = time.thread_time()
        run(handle)
        spent_s = time.thread_time() - began_s
        if spent_s > longest.turn_s:
            longest.turn_s, longest.turn = spent_s, repr(handle)
        return None

    async def tick() -> None:
        last_s = _broker_s(client)
        while True:
            await asyncio.sleep(TICK_S)
            now_s = _broker_s(client)
            longest.delay_s, last_s = max(longest.delay_s, now_s - last_s), now_s

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(tick())

    async def end(ticking: asyncio.Task[None]) -> None:
        ticking.cancel()

    ticking = broker.run(begin())
    with mock.patch.object(asyncio.Handle, "_run", timed):
        try:
            yield longest
        finally:
            broker.run(end(ticking))


@cache
def _caches() -> list[Any]:
    """Those of the broker for what requests say: they would make the same request cheaper the second time."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, _lru_cache_wrapper)
        and each.__module__.startswith("sparklog.")
        and each.cache_parameters()["maxsize"] is not None
    ]


def _broker_s(client: threading.Thread) -> float:
    assert client.ident is not None
    return time.process_time() - time.clock_gettime(time.pthread_getcpuclockid(client.ident))


def _status_bytes(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
