import asyncio
import sys
import threading

import pytest

from sparklog.runtime.purgatory import STEPS, Purgatory

LONG_MS = 60_000


async def started(coroutine) -> asyncio.Task:
    """The task, at its first wait."""
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    return task


async def test_an_immediate_result_is_not_waited_for() -> None:
    purgatory: Purgatory[str] = Purgatory()
    assert await purgatory.wait(["a"], lambda: 7, LONG_MS) == 7
    assert purgatory.waiting == 0


async def test_a_check_of_any_watched_key_ends_the_wait() -> None:
    purgatory: Purgatory[str] = Purgatory()
    there: list[int] = []
    task = await started(purgatory.wait(["a", "b"], lambda: len(there) or None, LONG_MS))
    purgatory.check("b")
    assert not task.done()
    there.append(1)
    purgatory.check("c")
    assert purgatory.waiting == 1
    purgatory.check("b")
    assert await task == 1
    assert purgatory.waiting == 0


async def test_time_is_up_without_a_result() -> None:
    purgatory: Purgatory[str] = Purgatory()
    assert await purgatory.wait(["a"], lambda: None, 1) is None
    assert purgatory.waiting == 0


async def test_an_attempt_that_raises_fails_its_own_operation_only() -> None:
    purgatory: Purgatory[str] = Purgatory()
    calls = iter((None, ValueError("gone")))

    def attempt() -> int | None:
        if isinstance(outcome := next(calls), ValueError):
            raise outcome
        return outcome

    failing = await started(purgatory.wait(["a"], attempt, LONG_MS))
    other = await started(purgatory.wait(["a"], lambda: None, LONG_MS))
    purgatory.check("a")
    with pytest.raises(ValueError, match="gone"):
        await failing
    assert purgatory.waiting == 1
    other.cancel()


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    purgatory: Purgatory[str] = Purgatory()
    task = await started(purgatory.wait(["a", "a", "b"], lambda: None, LONG_MS))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert purgatory.waiting == 0


async def test_release_ends_all_waits_and_lets_none_begin() -> None:
    purgatory: Purgatory[str] = Purgatory()
    task = await started(purgatory.wait(["a"], lambda: None, LONG_MS))
    purgatory.release_all()
    assert await task is None
    assert await purgatory.wait(["a"], lambda: None, LONG_MS) is None


@pytest.mark.slow
async def test_another_thread_may_ask_how_many_wait_while_some_come_and_go() -> None:
    purgatory: Purgatory[int] = Purgatory()
    stopping = threading.Event()

    def watch() -> int:
        most = 0
        while not stopping.is_set():
            most = purgatory.waiting
        return most

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        watching = asyncio.create_task(asyncio.to_thread(watch))
        for _ in range(20):
            waits = [asyncio.create_task(purgatory.wait([key], lambda: None, LONG_MS)) for key in range(100)]
            await asyncio.sleep(0)
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        stopping.set()
        assert 0 <= await watching <= 100
    finally:
        stopping.set()
        sys.setswitchinterval(before)


async def test_few_operations_try_again_in_one_turn_of_the_loop_and_all_do_in_the_end() -> None:
    purgatory: Purgatory[str] = Purgatory()
    tried: list[int] = []

    def attempt(number: int):
        return lambda _: tried.append(number)

    waits = [await started(purgatory.watch(["a", "b"], attempt(number), LONG_MS)) for number in range(2 * STEPS + 7)]
    per_turn: list[int] = []
    purgatory.check("a")
    purgatory.check("b")
    purgatory.check("b")
    purgatory.check("a")  # some have not tried since, some have
    while sum(per_turn) < 3 * len(waits):
        per_turn.append(len(tried) - sum(per_turn))
        await asyncio.sleep(0)
    assert max(per_turn) == STEPS
    assert tried == [*range(len(waits))] * 3
    await asyncio.sleep(0)
    assert len(tried) == 3 * len(waits)
    for wait in waits:
        wait.cancel()


async def test_an_operation_that_ends_takes_as_many_steps_as_it_has_keys() -> None:
    purgatory: Purgatory[int] = Purgatory()
    waits = [await started(purgatory.watch(range(STEPS), lambda _: True, LONG_MS)) for _ in range(3)]
    purgatory.check(0)
    for ended in (1, 2, 3):
        await asyncio.sleep(0)
        assert purgatory.waiting == 3 - ended
    assert [await wait for wait in waits] == [True] * 3


async def test_an_attempt_is_told_which_key_was_checked() -> None:
    purgatory: Purgatory[str] = Purgatory()
    task = await started(purgatory.watch(["a", "b"], lambda key: key if key == "b" else None, LONG_MS))
    purgatory.check("a")
    purgatory.check("b")
    assert await task == "b"
