"""Client quotas on gRPC calls.

gRPC cannot stop reading from one client. Instead, a call waits before it is served, while its client has exceeded the
quota for which the call counts; the next request of a stream is not read meanwhile. The answers of Produce and Fetch
have the throttle time, so that a client can wait itself, as those of sparklog do. The costs of a call are as on Kafka's
listener (`server/kafka/throttle.py`).

A call that would wait beyond its deadline, or without memory for its request, gets THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from sparklog.base.errors import ThrottlingQuotaExceeded
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.security.quotas import ClientBuckets, Mutate, TokenBucket, whole_ms

HELD_BYTES = 64 << 20


class HeldCalls:
    """The calls of all clients that wait for quotas."""

    def __init__(self, most_bytes: int = HELD_BYTES) -> None:
        """most_bytes: limit of the memory for their requests"""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._released = asyncio.Event()

    @property
    def is_released(self) -> bool:
        """Whether `release` has ended all waits."""
        return self._released.is_set()

    async def hold(self, size: int, seconds: float) -> None:
        """Hold a call whose request has `size` bytes. Raises ThrottlingQuotaExceeded if there is no memory for it."""
        if self._bytes + size > self._most_bytes:
            raise ThrottlingQuotaExceeded(f"{self._bytes} bytes of requests wait for quotas already: try again later")
        self._bytes += size
        try:
            with waiting_for_others(), suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), seconds)
        finally:
            self._bytes -= size

    def release(self) -> None:
        """End all waits, present and future, for the stop of the broker."""
        self._released.set()


class CallThrottle:
    """The quotas of the client of one call."""

    def __init__(
        self, client: ClientBuckets, held: HeldCalls, remaining_s: float | None, count_wait: Callable[[float], None]
    ) -> None:
        """Prepare the call.

        remaining_s: the time until the call's deadline; None without one
        count_wait: counts a wait, in seconds
        """
        self._count_wait = count_wait
        self._client = client
        self._held = held
        self._deadline = None if remaining_s is None else monotonic() + remaining_s

    async def admit(self) -> None:
        """Wait for the client's quota of work. Raises ThrottlingQuotaExceeded."""
        if worked := self._client.worked:
            await self._wait(worked, 0, self._client.longest_s)

    async def produce(self, size: int) -> None:
        """Wait until the client may produce, and count a request of `size` bytes. Raises ThrottlingQuotaExceeded."""
        if produced := self._client.produced:
            while produced.wait_s(monotonic()) and not self._held.is_released:
                await self._wait(produced, size)
            produced.take(size, monotonic())

    async def fetch(self) -> None:
        """Wait until the client may fetch. Raises ThrottlingQuotaExceeded."""
        if fetched := self._client.fetched:
            await self._wait(fetched, 0)

    def fetch_bytes(self, asked: int) -> int:
        """Return the maximum bytes of one fetch (`ClientBuckets.fetch_bytes`)."""
        return self._client.fetch_bytes(asked)

    def fetched(self, size: int) -> None:
        """Count an answer of this size."""
        if self._client.fetched:
            self._client.fetched.take(size, monotonic())

    @property
    def mutate(self) -> Mutate:
        """Function that counts partitions to create or delete; raises ThrottlingQuotaExceeded."""
        return lambda partitions: self._client.mutate(partitions, monotonic(), strict=True)

    @property
    def produce_wait_ms(self) -> int:
        """The time until the client may produce."""
        return _wait_ms(self._client.produced)

    @property
    def fetch_wait_ms(self) -> int:
        """The time until the client may fetch."""
        return _wait_ms(self._client.fetched)

    def worked(self, seconds: float) -> None:
        """Count seconds of work."""
        if self._client.worked:
            self._client.worked.take(seconds, monotonic())

    async def _wait(self, bucket: TokenBucket, size: int, longest_s: float = float("inf")) -> None:
        wait_s = min(bucket.wait_s(monotonic()), longest_s)
        if not wait_s:
            return
        if self._deadline is not None and monotonic() + wait_s >= self._deadline:
            raise ThrottlingQuotaExceeded(f"the client has used up its quota: try again in {wait_s:.1f} s")
        self._count_wait(wait_s)
        await self._held.hold(size, wait_s)


def _wait_ms(bucket: TokenBucket | None) -> int:
    return whole_ms(bucket.wait_s(monotonic())) if bucket else 0
