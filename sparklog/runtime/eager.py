"""Start a coroutine at once instead of in the next iteration of the event loop.

A request that never waits then needs no task, whose creation and scheduling would cost more than the request itself.
This is like an eager task of Python 3.12, with one difference: until its first wait the coroutine runs inside the
caller's task, so it must not use the current task before that.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


def start(coroutine: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    """Run `coroutine` to its first wait; return a future of its outcome, already done if it never waits."""
    loop = asyncio.get_running_loop()
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        done: asyncio.Future[Result] = loop.create_future()
        done.set_result(end.value)
        return done
    except Exception as error:  # noqa: BLE001 - the error is the outcome
        failed: asyncio.Future[Result] = loop.create_future()
        failed.set_exception(error)
        return failed
    return loop.create_task(go_on(coroutine, waits_for))


@types.coroutine
def go_on(coroutine: Coroutine[Any, Any, Result], waits_for: Any) -> Generator[Any, Any, Result]:
    """Run the rest of a coroutine that was started with `send` and waits for `waits_for`; wrap it in a task.

    Returns the coroutine's result, and raises its errors.
    """
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - the coroutine handles all, cancellation included
            send: Any = coroutine.throw
            value = error
        else:
            send = coroutine.send
        try:
            waits_for = send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
