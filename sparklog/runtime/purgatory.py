"""Operations that wait for a condition, each with a time limit (org.apache.kafka.server.purgatory).

A waiting operation is watched under one or more keys. Code that changes the state behind a key calls `check(key)`, and
every operation under that key tries again: its `attempt` returns the result, or None while there is none yet.
An operation ends exactly once: by its attempt, its time limit, `release_all` or cancellation. Each of these removes
the operation completely.

Operations try again at once, but only some of them in one iteration of the event loop: a key may have thousands, and
each that ends has a response to build. The others try in the next iterations, in the order of the checks. An iteration
is limited by steps, not by time, so that simulations are deterministic. The limit holds only if an attempt looks at the
changed key alone. `watch` passes that key.

All methods run on one event loop. An attempt must not wait and must not call `check`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from sparklog.runtime.remote_waits import waiting_for_others

STEPS = 200
"""Steps per iteration of the event loop: one for each attempt, and one for each key of an operation that ends."""
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class _DelayedOperation:
    """One operation: its attempt, the future that its owner awaits, and the number of its keys."""

    __slots__ = ("attempt", "ended", "size")

    def __init__(self, attempt: Callable[[Any], Any], ended: asyncio.Future[Any], size: int) -> None:
        self.attempt = attempt
        self.ended = ended
        self.size = size

    def try_to_end(self, key: Any) -> int:
        """Try to end the operation, and return the steps that this took."""
        if self.ended.done():
            return 0
        try:
            result = self.attempt(key)
        except Exception as error:  # noqa: BLE001 - it belongs to the operation, not to the caller of check()
            self.ended.set_exception(error)
        else:
            if result is None:
                return 1
            self.ended.set_result(result)
        return 1 + self.size


class Purgatory(Generic[Key]):
    """Waiting operations, by the keys that may end them."""

    def __init__(self) -> None:
        self._watched: dict[Key, dict[_DelayedOperation, None]] = {}
        self._checked: OrderedDict[Key, None] = OrderedDict()
        """Keys whose operations must try again."""
        self._trying: deque[tuple[_DelayedOperation, Key]] = deque()
        """The operations of the current key that have not tried yet."""
        self._steps_left = 0
        self._turn: asyncio.Handle | None = None
        """The scheduled beginning of the next iteration's steps; None if this iteration has taken none."""
        self.waiting = 0
        """Number of waiting operations; any thread may read it."""
        self.is_released = False

    async def wait(self, keys: Iterable[Key], attempt: Callable[[], Result | None], timeout_ms: int) -> Result | None:
        """Return the first result of `attempt` that is not None; None after `timeout_ms` or `release_all`.

        Raises what `attempt` raises.
        """
        result = attempt()
        return await self.watch(keys, lambda _: attempt(), timeout_ms) if result is None else result

    async def watch(
        self, keys: Iterable[Key], attempt: Callable[[Key], Result | None], timeout_ms: int
    ) -> Result | None:
        """Return as `wait` does, but try only once a key is checked, with that key; None after `timeout_ms`."""
        if timeout_ms <= 0 or self.is_released:
            return None
        loop = asyncio.get_running_loop()
        watched = set(keys)
        operation = _DelayedOperation(attempt, loop.create_future(), len(watched))
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
        """Let every operation under `key` try again, the first of them at once."""
        if key in self._watched:
            self._checked[key] = None
            if self._turn is None:
                self._begin_turn()
            self._try_some()

    def _begin_turn(self) -> None:
        self._steps_left = STEPS
        self._turn = asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn = None
        if self._checked or self._trying:
            self._begin_turn()
            self._try_some()

    def _try_some(self) -> None:
        """Let operations try until all have tried, or this iteration's steps are used up."""
        while self._steps_left > 0:
            if self._trying:
                operation, key = self._trying.popleft()
                self._steps_left -= operation.try_to_end(key)
            elif self._checked:
                key, _ = self._checked.popitem(last=False)
                self._trying.extend((operation, key) for operation in self._watched.get(key, ()))
            else:
                break

    def release_all(self) -> None:
        """End every operation as if timed out, and let no later one wait: the broker stops."""
        self.is_released = True
        for watchers in self._watched.values():
            for operation in watchers:
                _time_out(operation)

    def _forget(self, keys: Iterable[Key], operation: _DelayedOperation) -> None:
        for key in keys:
            watchers = self._watched[key]
            watchers.pop(operation, None)
            if not watchers:
                del self._watched[key]


def _time_out(operation: _DelayedOperation) -> None:
    if not operation.ended.done():
        operation.ended.set_result(None)
