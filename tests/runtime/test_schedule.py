import asyncio
import logging

import pytest

from sparklog.runtime.schedule import PeriodicTasks
from support.patience import PATIENCE_S


async def test_work_comes_round_until_the_schedule_stops() -> None:
    schedule = PeriodicTasks()
    runs = 0
    thrice = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            thrice.set()

    schedule.every(1, "count", work)
    await asyncio.wait_for(thrice.wait(), PATIENCE_S)
    await schedule.stop()
    stopped_at = runs
    await asyncio.sleep(0.01)
    assert runs == stopped_at


async def test_a_failed_run_is_logged_and_followed_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    schedule = PeriodicTasks()
    outcomes = iter((OSError("disk"), None))
    done = asyncio.Event()

    async def work() -> None:
        if outcome := next(outcomes, None):
            raise outcome
        done.set()

    with caplog.at_level(logging.ERROR):
        schedule.every(1, "flush", work)
        await asyncio.wait_for(done.wait(), PATIENCE_S)
    await schedule.stop()
    assert "flush failed" in caplog.text


async def test_an_interval_of_zero_means_never() -> None:
    schedule = PeriodicTasks()
    schedule.every(0, "never", lambda: pytest.fail("it ran"))
    await asyncio.sleep(0.01)
    await schedule.stop()
