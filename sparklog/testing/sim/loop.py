"""A deterministic event loop with virtual time. It uses no threads, no sockets and no real clock.

    time        Time stands still while a callback is ready to run, and then jumps to the next timer. An idle hour costs
                no real time.
    threads     There are none. `run_in_executor`, and so `asyncio.to_thread`, calls the function on the loop's own
                thread after a delay, and delivers the result after another delay. Between the two, the work is done,
                but the caller does not know yet. The calling process determines the delays.
    processes   Timers, tasks and calls belong to the process of the task that starts them: they inherit it with their
                context. A killed process runs nothing any more, not even `finally`. A paused process runs its
                callbacks late, in their order, when it resumes.
    order       Callbacks run in the order in which they become ready.

The loop raises SimDeadlock if nothing is left to run and the main task is not done. It raises SimRunaway after too many
steps, in total or at one moment.
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
"""The number of callbacks that may run at one moment of virtual time. More of them count as an endless loop."""
EXECUTOR_DELAY_S = 0.000_3


class SimDeadlock(Exception):
    """Nothing is left to run, and the main task is not done."""


class SimRunaway(Exception):
    """The simulation runs too many steps, and probably never ends."""


class SimProcess:
    """A simulated process: everything that was started in its context stops together."""

    def __init__(self, name: str, chance: random.Random | None = None) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.slowness = 1.0
        """The factor by which executor calls, such as disk operations, take longer than usual."""
        self.hangs_until = 0.0
        """The loop time, in seconds, until which new executor calls wait."""
        self._chance = chance or random.Random(0)
        self._held: list[SimHandle] = []
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def slow_down(self, factor: float) -> None:
        """Make executor calls take `factor` times as long as usual from now on; 1: as usual."""
        self.slowness = factor

    def hang_until(self, time_s: float) -> None:
        """Let new executor calls wait until that loop time, in seconds."""
        self.hangs_until = time_s

    def kill(self) -> None:
        """Run nothing of the process any more."""
        self.is_dead = True

    def pause(self) -> None:
        """Hold back every callback of the process until `resume`."""
        self.is_paused = True

    def resume(self, loop: SimLoop) -> None:
        """Run the callbacks that were held back, in their order, and all later ones as usual."""
        self.is_paused = False
        held, self._held = self._held, []
        for handle in held:
            loop.run_soon(handle)

    def hold(self, handle: SimHandle) -> None:
        """Keep a callback until `resume`, or for good if the process is dead."""
        self._held.append(handle)

    def context(self) -> Context:
        """Return a new context. Everything that is started in it belongs to the process."""
        return self._context.copy()

    def executor_delay_s(self, now: float) -> float:
        """Return a random delay in seconds, from `now` on, before an executor call runs or ends."""
        return max(0.0, self.hangs_until - now) + self._chance.expovariate(1 / (EXECUTOR_DELAY_S * self.slowness))


PROCESS: ContextVar[SimProcess | None] = ContextVar("PROCESS", default=None)


class SimHandle:
    """A scheduled callback. It replaces asyncio.Handle and asyncio.TimerHandle."""

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
        """Run the callback in its context. Raises the callback's errors."""
        self._context.run(self._callback, *self._args)


class SimLoop(asyncio.BaseEventLoop):
    """The event loop. `run` runs it once, and abandons everything that has not ended by then."""

    def __init__(self, *, max_steps: int = MAX_STEPS) -> None:
        self._is_running = self._is_closed = False
        super().__init__()
        self.steps = 0
        """The number of callbacks that have run. It is the same in each run of a seed."""
        self.errors: list[dict[str, Any]] = []
        """The contexts that the loop's exception handler got: of failed callbacks, and of tasks with unseen errors."""
        self._now = 0.0
        self._due: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 1_000
        self._max_steps = max_steps
        self._steps_at_once = 0

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run `main` to its end. Return its result; raise its exception, SimDeadlock or SimRunaway."""
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
            process.hold(handle)  # also if it is dead: freeing the handle would run `finally` blocks
            return
        self.steps += 1
        self._steps_at_once += 1
        if self.steps > self._max_steps or self._steps_at_once > MAX_STEPS_AT_ONCE:
            raise SimRunaway(f"{self.steps} steps, {self._steps_at_once} of them at {self._now:.6f} s")
        try:
            handle.run()
        except Exception as error:  # noqa: BLE001 - a failed callback must not end the loop
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
        """Run a handle after those that are ready now."""
        self._due.append(handle)

    # The part of asyncio.AbstractEventLoop that applications use

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

    # `Any` stands for SimHandle, which has the parts of asyncio.Handle that asyncio uses.

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
        self._tasks.append(task)  # Python could free an unreferenced task and run its `finally` at any moment
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
        asyncio._set_running_loop(None)  # as in a thread, where asking for the running loop fails
        try:
            done = func(*args)
        except StopIteration as end:
            self.call_later(after, _fail, outcome, RuntimeError(f"a function in a thread raised {end!r}"))
        except Exception as error:  # noqa: BLE001 - the future delivers it
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
