"""Turns of a consumer's group, and its calls of the user's functions, within `poll`.

The group has a task of its own. It may revoke partitions only while the user does not process their records, and only
`poll` may call the user's functions, in the user's thread or task. So the group's task requests

    a turn    the time from the user's next `poll` to the end of a block; no `poll` returns records during a turn
    a call    of a user's function: `poll` makes the call, and the group's task waits for it

`poll` returns no records while a turn or a call is pending. An exception of the function is raised by `poll`, and the
group's task continues. Used on one event loop only, except `holds_back` and `UserCall.run_here`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class UserCall:
    """A pending call of a user's function; `run` or `run_here` makes it."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.made = asyncio.get_running_loop().create_future()
        self.begun = False
        self._function = function
        self._arguments = arguments

    async def run(self) -> None:
        """Make the call on the event loop; the function may be asynchronous."""
        self.begun = True
        try:
            outcome = self._function(*self._arguments)
            if inspect.isawaitable(outcome):
                await outcome
        finally:
            self._end()

    def run_here(self) -> None:
        """Make the call in any other thread."""
        self.begun = True
        try:
            self._function(*self._arguments)
        finally:
            self.made.get_loop().call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.made.done():
            self.made.set_result(None)


class CallbackInvoker:
    """The pending turns and calls of one consumer's group."""

    def __init__(self, notify: Callable[[], None]) -> None:
        """`notify` wakes a waiting `poll`."""
        self._notify = notify
        self._calls: deque[UserCall] = deque()
        self._granted = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._wanted = False
        self._taken = False

    @property
    def holds_back(self) -> bool:
        """Whether `poll` must return no records: a turn or a call is pending."""
        return self._wanted or self._taken or bool(self._calls)

    def grant(self) -> None:
        """Begin the requested turn, if any; called by `poll`."""
        if self._wanted:
            self._wanted, self._taken = False, True
            self._free.clear()
            self._granted.set()

    def next_call(self) -> UserCall | None:
        """Return the next pending call, if any; the same one again if an interrupted caller has not begun it."""
        while self._calls and self._calls[0].made.done():
            self._calls.popleft()
        return self._calls[0] if self._calls and not self._calls[0].begun else None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the user to poll, and hold back records until the end of the block."""
        self._granted.clear()
        self._wanted = True
        self._notify()
        try:
            await self._granted.wait()
            yield
        finally:
            self._wanted = self._taken = False
            self._free.set()
            self._notify()

    async def until_free(self) -> None:
        """Wait for the end of a turn that has begun."""
        await self._free.wait()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Request a call of the function by `poll`, and wait for its end."""
        call = self.post(function, *arguments)
        try:
            await call.made
        finally:
            if call in self._calls:
                self._calls.remove(call)

    def post(self, function: Callable[..., Any], *arguments: Any) -> UserCall:
        """Request a call of the function by `poll`, and return it without waiting."""
        call = UserCall(function, arguments)
        self._calls.append(call)
        self._notify()
        return call
