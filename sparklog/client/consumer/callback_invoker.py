"""Where a consumer's group and its user meet. The group's work goes on in a task of its own; but partitions may only be
taken from a user who is not in the middle of using their records, and the user's functions are called by `poll`, in
the user's own context. So the task asks for

    a turn    begins when the user polls next; `poll` returns no records until it ends, even if that takes several
    a call    of a function of the user's; `poll` makes it, then the task goes on

and `poll` returns nothing while either is waited for. Whatever a function raises comes out of `poll`; the task goes on
all the same. Used on one event loop only, but for `holds_back` and `Call.run_here`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class Call:
    """A call that the user is to make, by one of the two ways to make it."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.made = asyncio.get_running_loop().create_future()
        self.begun = False
        self._function = function
        self._arguments = arguments

    async def run(self) -> None:
        """On the event loop; the function may be asynchronous."""
        self.begun = True
        try:
            outcome = self._function(*self._arguments)
            if inspect.isawaitable(outcome):
                await outcome
        finally:
            self._end()

    def run_here(self) -> None:
        """In any other thread."""
        self.begun = True
        try:
            self._function(*self._arguments)
        finally:
            self.made.get_loop().call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.made.done():
            self.made.set_result(None)


class CallbackInvoker:
    """CallbackInvoker and calls that a group waits for."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """`tell` wakes whoever waits in `poll`."""
        self._tell = tell
        self._calls: deque[Call] = deque()
        self._granted = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._wanted = False
        self._taken = False

    @property
    def holds_back(self) -> bool:
        """Whether `poll` has something else to do than to return records."""
        return self._wanted or self._taken or bool(self._calls)

    def grant(self) -> None:
        """The user polls: give the turn to whoever wants it."""
        if self._wanted:
            self._wanted, self._taken = False, True
            self._free.clear()
            self._granted.set()

    def next_call(self) -> Call | None:
        """The call that is to be made next, if there is one; again, where an interrupted user has not begun it."""
        while self._calls and self._calls[0].made.done():
            self._calls.popleft()
        return self._calls[0] if self._calls and not self._calls[0].begun else None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the user to poll, and hold back records until the end of the block."""
        self._granted.clear()
        self._wanted = True
        self._tell()
        try:
            await self._granted.wait()
            yield
        finally:
            self._wanted = self._taken = False
            self._free.set()
            self._tell()

    async def until_free(self) -> None:
        """Wait for the end of a turn that has begun."""
        await self._free.wait()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Wait until the user has called the function."""
        call = self.post(function, *arguments)
        try:
            await call.made
        finally:
            if call in self._calls:
                self._calls.remove(call)

    def post(self, function: Callable[..., Any], *arguments: Any) -> Call:
        """Let the user call the function, and wait for nothing."""
        call = Call(function, arguments)
        self._calls.append(call)
        self._tell()
        return call
