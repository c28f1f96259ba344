"""Pauses and time limits of retries."""

from __future__ import annotations

from random import Random

import pytest

from sparklog.base.clock import SystemClock
from sparklog.base.errors import InvalidTopic, NetworkException, UnknownTopicOrPartition
from sparklog.client.retry import Backoff, retrying
from sparklog.testing import SimClock
from support.patience import PATIENCE_MS

BACKOFF = Backoff(1, 2, Random(1))


def test_pauses_double_up_to_the_longest_with_a_fifth_of_jitter() -> None:
    backoff = Backoff(100, 1_000, Random(7))

    for failures, exact in [(1, 100), (2, 200), (4, 800), (5, 1_000), (5_000, 1_000)]:
        pauses = [backoff.pause_ms(failures) for _ in range(100)]
        assert min(pauses) >= exact * 0.8
        assert max(pauses) <= exact * 1.2
        assert len(set(pauses)) > 10


async def test_retriable_errors_are_tried_again_until_it_works() -> None:
    outcomes: list[Exception | str] = [NetworkException("away"), NetworkException("away"), "answer"]

    async def attempt() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await retrying(attempt, timeout_ms=PATIENCE_MS, backoff=BACKOFF, clock=SystemClock()) == "answer"


async def test_other_errors_and_those_that_are_final_are_raised_at_once() -> None:
    for error in (InvalidTopic("no"), UnknownTopicOrPartition("no")):
        attempts = []

        async def attempt(error: Exception = error, attempts: list[int] = attempts) -> None:
            attempts.append(1)
            raise error

        with pytest.raises(type(error)):
            await retrying(
                attempt, timeout_ms=PATIENCE_MS, backoff=BACKOFF, clock=SystemClock(), final=UnknownTopicOrPartition
            )
        assert len(attempts) == 1


async def test_the_last_error_is_raised_when_time_is_up() -> None:
    attempts, clock = 0, SimClock()

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        clock.advance(10)
        raise NetworkException(f"attempt {attempts}")

    with pytest.raises(NetworkException) as raised:
        await retrying(attempt, timeout_ms=30, backoff=BACKOFF, clock=clock)
    assert attempts == 3
    assert str(raised.value) == f"attempt {attempts}"
