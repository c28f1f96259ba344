"""Start a coroutine at once instead of on the next turn of the event loop.

A request that has nothing to wait for is then answered without a task being made, scheduled and awaited, which
would cost more than the request itself. What Python 3.12 calls an eager task, but for this: until the coroutine
first waits, it runs inside the task of whoever started it, so it must not ask for the current task before that.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


def start(coroutine: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    """Run `coroutine` to its first wait; its outcome, which is there already if it never waits."""
    loop = asyncio.get_running_loop()
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        done: asyncio.Future[Result] = loop.create_future()
        done.set_result(end.value)
        return done
    except Exception as error:  # noqa: BLE001 - it is the outcome
        failed: asyncio.Future[Result] = loop.create_future()
        failed.set_exception(error)
        return failed
    return loop.create_task(go_on(coroutine, waits_for))


@types.coroutine
def go_on(coroutine: Coroutine[Any, Any, Result], waits_for: Any) -> Generator[Any, Any, Result]:
    """The rest of a coroutine that was begun with `send` and left waiting for `waits_for`; to be made a task."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - cancellation included: all of it is the coroutine's
            send: Any = coroutine.throw
            value = error
        else:
            send = coroutine.send
        try:
            waits_for = send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
