"""Retries: the pauses between them, and their loop.

`Backoff` computes the pauses: exponential with jitter (KIP-580), so that clients of a restarted broker do not all
connect at once. Admin calls and offset lookups share the loop `retrying`. The producer and the fetcher have loops of
their own, because they retry per partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from sparklog.base.clock import Clock
from sparklog.base.errors import KafkaError, RetriableError

JITTER = 0.2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses of `first_ms`, twice that, four times … up to `longest_ms`, each ±20 %."""

    first_ms: int
    longest_ms: int
    random: Random

    def pause_ms(self, failures: int) -> int:
        """Return the pause after `failures` failures in a row (1 or more)."""
        exact: int = min(self.first_ms << min(failures - 1, 30), self.longest_ms)
        return round(exact * self.random.uniform(1 - JITTER, 1 + JITTER))


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_ms: int,
    backoff: Backoff,
    clock: Clock,
    final: type[KafkaError] | tuple[type[KafkaError], ...] = (),
) -> T:
    """Return the result of `attempt`; retry after each RetriableError until `timeout_ms` have passed.

    Raises the last error then; raises other errors, and those of `final`, at once.
    """
    deadline_ms = clock.monotonic_ms() + timeout_ms
    failures = 0
    while True:
        try:
            return await attempt()
        except RetriableError as error:
            if isinstance(error, final):
                raise
            failures += 1
            pause_ms = backoff.pause_ms(failures)
            if clock.monotonic_ms() + pause_ms >= deadline_ms:
                raise
        await asyncio.sleep(pause_ms / 1000)
