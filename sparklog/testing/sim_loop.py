"""An event loop without a world: time is a number, nothing waits for it, and a seed decides all that happens.

    time        moves only when nothing is ready to run: then straight to the next timer. An hour takes a moment.
    threads     there are none. `run_in_executor` (so `asyncio.to_thread` too) calls the function on the loop's own
                thread, a little later, and gives its result a little later again: between the two it has been done and
                nobody knows yet. How much later is for the process to say whose work it is.
    processes   what a task starts belongs to the process that the task belongs to: timers, tasks and calls inherit it
                with their context. A process that is killed runs nothing any more, not even `finally`; one that is
                paused runs everything late, in its order, when it goes on.
    order       what is ready runs in the order in which it became so; the machine's threads, sockets and clock are not
                asked.

Nothing is left to run and the main task waits: SimDeadlock. Too many steps, or too many with no time between:
SimRunaway.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar

Result = TypeVar("Result")
MAX_STEPS = 5_000_000
MAX_STEPS_AT_ONCE = 200_000
"""Callbacks that run while time stands still; more are taken for a loop without end."""
EXECUTOR_DELAY_S = 0.000_3


class SimDeadlock(Exception):
    """Nothing can ever happen any more, and the main task is not done."""


class SimRunaway(Exception):
    """The simulation does not come to an end."""


class SimProcess:
    """What lives and dies together: all that was started in its context."""

    def __init__(self, name: str, chance: random.Random | None = None) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.slowness = 1.0
        """How many times longer than usual its disk and its store take."""
        self.hangs_until = 0.0
        """Until then, no thread of it comes back from the disk or the store."""
        self._chance = chance or random.Random(0)
        self._held: list[SimHandle] = []
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def kill(self) -> None:
        self.is_dead = True

    def pause(self) -> None:
        self.is_paused = True

    def resume(self, loop: SimLoop) -> None:
        """Go on with what should have run meanwhile."""
        self.is_paused = False
        held, self._held = self._held, []
        for handle in held:
            loop.run_soon(handle)

    def hold(self, handle: SimHandle) -> None:
        self._held.append(handle)

    def context(self) -> Context:
        """A new context in which what is started belongs to the process."""
        return self._context.copy()

    def executor_delay_s(self, now: float) -> float:
        return max(0.0, self.hangs_until - now) + self._chance.expovariate(1 / (EXECUTOR_DELAY_S * self.slowness))


PROCESS: ContextVar[SimProcess | None] = ContextVar("PROCESS", default=None)


class SimHandle:
    """A callback that waits to be run (asyncio.Handle, asyncio.TimerHandle)."""

    __slots__ = ("_args", "_at", "_callback", "_context", "_is_cancelled", "process")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None, at: float
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._at = at
        self._is_cancelled = False
        self.process = self._context.get(PROCESS)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self._is_cancelled

    def when(self) -> float:
        return self._at

    def run(self) -> None:
        self._context.run(self._callback, *self._args)


class SimLoop(asyncio.BaseEventLoop):
    """Run it with `run`; whatever was started and has not ended is dropped then."""

    def __init__(self, *, max_steps: int = MAX_STEPS) -> None:
        self._is_running = self._is_closed = False
        super().__init__()
        self.steps = 0
        """Callbacks that have been run: the same in each run of a seed."""
        self.errors: list[dict[str, Any]] = []
        """What reached the loop's exception handler: callbacks that raised, tasks whose errors nobody took."""
        self._now = 0.0
        self._due: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 1_000
        self._max_steps = max_steps
        self._steps_at_once = 0

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """The result of `main`; raises SimDeadlock, SimRunaway, or what it raises."""
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            task: asyncio.Task[Result] = self.create_task(main)
            while not task.done():
                self._step()
            return task.result()
        finally:
            asyncio._set_running_loop(None)
            self._is_running, self._is_closed = False, True

    def _step(self) -> None:
        if not self._due:
            self._pass_time()
        handle = self._due.popleft()
        if handle.cancelled():
            return
        process = handle.process
        if process is not None and (process.is_dead or process.is_paused):
            process.hold(handle)  # of a dead one too: freeing it would run its `finally`
            return
        self.steps += 1
        self._steps_at_once += 1
        if self.steps > self._max_steps or self._steps_at_once > MAX_STEPS_AT_ONCE:
            raise SimRunaway(f"{self.steps} steps, {self._steps_at_once} of them at {self._now:.6f} s")
        try:
            handle.run()
        except Exception as error:  # noqa: BLE001 - a callback's error is not the loop's
            self.call_exception_handler({"message": "a callback failed", "exception": error})

    def _pass_time(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise SimDeadlock(f"nothing is left to run at {self._now:.6f} s")
        self._now = self._timers[0][0]
        self._steps_at_once = 0
        while self._timers and self._timers[0][0] <= self._now:
            self._due.append(heapq.heappop(self._timers)[2])

    def run_soon(self, handle: SimHandle) -> None:
        self._due.append(handle)

    # asyncio.AbstractEventLoop: what an application uses of it

    def time(self) -> float:
        return self._now

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def get_debug(self) -> bool:
        return False

    # Handles are SimHandles, which have what is used of an asyncio.Handle.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        handle = SimHandle(callback, args, context, self._now)
        self._due.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        handle = SimHandle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name="task", context=context)
        self._tasks.append(task)  # one that nobody holds would be freed, and its `finally` run, whenever memory is
        if len(self._tasks) > self._prune_at:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._prune_at = 2 * len(self._tasks) + 1_000
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        outcome: asyncio.Future[Result] = self.create_future()
        process = PROCESS.get()
        before, after = _delays(process, self._now)
        self.call_later(before, self._execute, outcome, after, func, args)
        return outcome

    def _execute(
        self, outcome: asyncio.Future[Result], after: float, func: Callable[..., Result], args: tuple[Any, ...]
    ) -> None:
        asyncio._set_running_loop(None)  # as in a thread: what asks for the loop there must fail here too
        try:
            done = func(*args)
        except StopIteration as end:
            self.call_later(after, _fail, outcome, RuntimeError(f"a function in a thread raised {end!r}"))
        except Exception as error:  # noqa: BLE001 - it is the outcome
            self.call_later(after, _fail, outcome, error)
        else:
            self.call_later(after, _succeed, outcome, done)
        finally:
            asyncio._set_running_loop(self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.errors.append(context)


def _delays(process: SimProcess | None, now: float) -> tuple[float, float]:
    if process is None:
        return EXECUTOR_DELAY_S, EXECUTOR_DELAY_S
    before = process.executor_delay_s(now)
    return before, process.executor_delay_s(now + before)


def _succeed(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
