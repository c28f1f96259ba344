import asyncio

import pytest

from sparklog.runtime.eager import start


async def test_a_coroutine_that_never_waits_is_done_at_once() -> None:
    async def answer() -> int:
        return 7

    assert start(answer()).result() == 7


async def test_a_coroutine_that_fails_at_once_fails_when_awaited() -> None:
    async def fail() -> None:
        raise ValueError("no")

    outcome = start(fail())
    assert outcome.done()
    with pytest.raises(ValueError, match="no"):
        await outcome


async def test_a_waiting_coroutine_continues_where_it_was() -> None:
    steps = []
    wake = asyncio.get_running_loop().create_future()

    async def work() -> str:
        steps.append("before")
        steps.append(await wake)
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        return "done"

    outcome = start(work())
    assert (steps, outcome.done()) == (["before"], False)
    wake.set_result("woken")
    assert await outcome == "done"
    assert steps == ["before", "woken"]


async def test_errors_and_cancellation_reach_the_coroutine() -> None:
    seen = []

    async def work(wake: asyncio.Future[None]) -> str:
        try:
            await wake
        except ValueError:
            seen.append("error")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")
        return "never"

    wake = asyncio.get_running_loop().create_future()
    outcome = start(work(wake))
    wake.set_exception(ValueError())
    await asyncio.sleep(0.001)
    outcome.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outcome
    assert seen == ["error", "cancelled"]


async def test_the_order_of_starts_is_the_order_of_first_steps() -> None:
    order = []

    async def note(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    await asyncio.gather(*[start(note(number)) for number in range(5)])
    assert order == list(range(5))
