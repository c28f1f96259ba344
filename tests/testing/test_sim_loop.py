"""The loop of a simulation: virtual time, simulated threads, processes."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.testing.sim.loop import SimDeadlock, SimLoop, SimProcess, SimRunaway

pytestmark = pytest.mark.slow


def test_an_hour_takes_no_time_and_timers_come_in_their_order() -> None:
    loop, seen = SimLoop(), []

    async def main() -> float:
        loop.call_later(7_200, seen.append, "never")
        loop.call_later(20, seen.append, "second")
        loop.call_later(10, seen.append, "first")
        await asyncio.sleep(3_600)
        return loop.time()

    assert loop.run(main()) == 3_600
    assert seen == ["first", "second"]


def test_work_in_a_thread_is_done_before_its_result_is_known() -> None:
    loop, done = SimLoop(), []

    async def main() -> str:
        is_done = asyncio.Event()

        def work() -> str:
            done.append(loop.time())
            loop.call_soon_threadsafe(is_done.set)
            return "result"

        working = asyncio.create_task(asyncio.to_thread(work))
        await is_done.wait()
        assert not working.done()
        return await working

    assert loop.run(main()) == "result"
    assert loop.time() > done[0]


def test_work_in_a_thread_may_raise_and_is_done_though_nobody_waits() -> None:
    loop, done = SimLoop(), []

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.000_01):
                await asyncio.to_thread(done.append, 1)
        await asyncio.sleep(1)

    loop.run(main())
    assert done == [1]


def test_a_killed_process_runs_nothing_more_not_even_finally() -> None:
    loop, seen = SimLoop(), []
    process = SimProcess("p")

    async def work() -> None:
        try:
            while True:
                seen.append(loop.time())
                await asyncio.sleep(1)
        finally:
            seen.append(-1)

    async def main() -> None:
        loop.create_task(work(), context=process.context())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(10)

    loop.run(main())
    assert seen == [0, 1, 2]


def test_a_paused_process_does_late_what_was_due_meanwhile() -> None:
    loop, seen = SimLoop(), []
    process = SimProcess("p")

    async def main() -> None:
        process.context().run(loop.call_later, 1, lambda: seen.append(("first", loop.time())))
        process.context().run(loop.call_later, 2, lambda: seen.append(("second", loop.time())))
        process.pause()
        await asyncio.sleep(5)
        process.resume(loop)
        await asyncio.sleep(0)

    loop.run(main())
    assert seen == [("first", 5), ("second", 5)]


def test_a_task_that_nothing_can_wake_is_a_deadlock() -> None:
    loop = SimLoop()

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(SimDeadlock):
        loop.run(main())


def test_a_loop_without_end_is_ended() -> None:
    loop = SimLoop(max_steps=1_000)

    def again() -> None:
        loop.call_later(1, again)

    async def main() -> None:
        again()
        await loop.create_future()

    with pytest.raises(SimRunaway):
        loop.run(main())


def test_time_outs_queues_and_locks_work_as_on_any_loop() -> None:
    loop = SimLoop()

    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock = asyncio.Lock()

        async def put() -> None:
            for number in range(3):
                async with lock:
                    await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(put())
            found = [await queue.get() for _ in range(3)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 5)
        return found

    assert loop.run(main()) == [0, 1, 2]
    assert loop.time() == 5
