"""Operations that wait for a condition, each with a time limit (org.apache.kafka.server.purgatory).

A waiting operation is watched under one or more keys. The code that changes what a key stands for calls `check(key)`,
and every operation under that key tries again: its `attempt` returns the result, or None while there is none yet.
An operation ends exactly once: by its attempt, its time limit, `release_all` or cancellation. Each of these removes
the operation completely.

All methods run on one event loop. An attempt must not wait and must not call `check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from sparklog.runtime.remote_waits import waiting_for_others

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class _Waiting:
    """One operation: its attempt, and the future that its owner awaits."""

    __slots__ = ("attempt", "ended")

    def __init__(self, attempt: Callable[[], Any], ended: asyncio.Future[Any]) -> None:
        self.attempt = attempt
        self.ended = ended

    def try_to_end(self) -> None:
        if self.ended.done():
            return
        try:
            result = self.attempt()
        except Exception as error:  # noqa: BLE001 - it belongs to the operation, not to the caller of check()
            self.ended.set_exception(error)
        else:
            if result is not None:
                self.ended.set_result(result)


class Purgatory(Generic[Key]):
    """Waiting operations, by the keys that may end them."""

    def __init__(self) -> None:
        self._watched: dict[Key, dict[_Waiting, None]] = {}
        self.waiting = 0
        """Number of waiting operations; any thread may read it."""
        self.is_released = False

    async def wait(self, keys: Iterable[Key], attempt: Callable[[], Result | None], timeout_ms: int) -> Result | None:
        """Return the first result of `attempt` that is not None; None after `timeout_ms` or `release_all`.

        Raises what `attempt` raises.
        """
        result = attempt()
        if result is not None or timeout_ms <= 0 or self.is_released:
            return result
        loop = asyncio.get_running_loop()
        operation = _Waiting(attempt, loop.create_future())
        watched = set(keys)
        for key in watched:
            self._watched.setdefault(key, {})[operation] = None
        timer = loop.call_later(timeout_ms / 1000, _time_out, operation)
        self.waiting += 1
        try:
            with waiting_for_others():
                return await operation.ended  # type: ignore[no-any-return]
        finally:
            self.waiting -= 1
            timer.cancel()
            self._forget(watched, operation)

    def check(self, key: Key) -> None:
        """Let every operation under `key` try again."""
        if key in self._watched:
            for operation in tuple(self._watched[key]):
                operation.try_to_end()

    def release_all(self) -> None:
        """End every operation as if timed out, and let none wait from now on: the broker stops."""
        self.is_released = True
        for watchers in self._watched.values():
            for operation in watchers:
                _time_out(operation)

    def _forget(self, keys: Iterable[Key], operation: _Waiting) -> None:
        for key in keys:
            watchers = self._watched[key]
            watchers.pop(operation, None)
            if not watchers:
                del self._watched[key]


def _time_out(operation: _Waiting) -> None:
    if not operation.ended.done():
        operation.ended.set_result(None)
