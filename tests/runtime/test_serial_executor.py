"""The serial executor: one work at a time for each key, each to its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparklog.runtime.serial_executor import SerialExecutor
from support.patience import PATIENCE_S


class Key:
    """A resource that one work at a time may change."""


async def test_one_at_a_time_for_each_key_in_order() -> None:
    turns, key, other = SerialExecutor(), Key(), Key()
    seen: list[int] = []
    go_on = asyncio.Event()

    async def work(number: int) -> int:
        seen.append(number)
        await go_on.wait()
        seen.append(-number)
        return number

    asked = [asyncio.create_task(turns.run(key, lambda number=number: work(number))) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    assert await turns.run_in_thread(other, lambda: "at once") == "at once"
    go_on.set()
    assert await asyncio.gather(*asked) == [1, 2, 3]
    assert seen == [1, -1, 2, -2, 3, -3]


async def test_work_whose_caller_has_gone_comes_to_its_end_before_the_next_begins() -> None:
    turns, key = SerialExecutor(), Key()
    may_end, seen = threading.Event(), []
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> None:
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(PATIENCE_S)
        seen.append("slow")

    asked = asyncio.create_task(turns.run_in_thread(key, slow))
    await has_begun.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    after = asyncio.create_task(turns.run_in_thread(key, lambda: seen.append("next")))
    await asyncio.sleep(0)
    may_end.set()
    await after
    assert seen == ["slow", "next"]


async def test_failed_work_lets_the_next_work_begin() -> None:
    turns, key = SerialExecutor(), Key()

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await turns.run(key, fail)
    assert await turns.run_in_thread(key, lambda: 1) == 1


async def test_settled_waits_for_all_that_runs() -> None:
    turns, seen = SerialExecutor(), []
    asked = [asyncio.create_task(turns.run_in_thread(Key(), lambda: seen.append(1))) for _ in range(3)]
    await asyncio.sleep(0)
    for task in asked:
        task.cancel()
    await turns.settled()
    assert seen == [1, 1, 1]
