"""Memory for the responses of gRPC calls, reserved from the read of their data until their clients have received them.

gRPC keeps two copies of a response until the client has read it, and clients may read slowly, in many calls. Requests
do not wait for memory, because only other clients can free it. A fetch gets at most the free memory, but always a
batch, so that its reader makes progress. Beyond `reserve`, large responses are refused, and clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparklog.base.errors import ThrottlingQuotaExceeded

MOST_BYTES = 40 << 20
RESERVE_BYTES = 12 << 20
SMALL_BYTES = 4 << 10
"""Responses of up to this size are not counted: their calls take more."""


class ResponseMemory:
    """The memory for the responses of one listener's calls."""

    def __init__(self, most: int = MOST_BYTES, reserve: int = RESERVE_BYTES) -> None:
        """most: bytes that fetches may fill; reserve: bytes beyond it for other responses and a batch of each fetch."""
        self.bytes = 0
        self._most = most
        self._limit = most + reserve

    @contextmanager
    def reservation(self) -> Iterator[Reservation]:
        """Return a reservation of variable size, released at the end of the block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            reservation.release()

    def reserve_until_sent(self, size: int, call: asyncio.Future[Any]) -> None:
        """Reserve a response's bytes until its call's task has ended. Raises as `check` does."""
        if size > SMALL_BYTES:
            self.check()
            self.bytes += size
            call.add_done_callback(lambda _: self.release(size))

    def check(self) -> None:
        """Raise ThrottlingQuotaExceeded if even the reserve is taken."""
        if self.bytes >= self._limit:
            raise ThrottlingQuotaExceeded("clients have not taken too many bytes of answers: try again later")

    def release(self, size: int) -> None:
        """Free the bytes of a response that was received, or not sent."""
        self.bytes -= size

    @property
    def left(self) -> int:
        """Free bytes without the reserve; 0 if the reserve is in use."""
        return max(0, self._most - self.bytes)


class Reservation:
    """The reserved bytes of one call's response."""

    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self._bytes = 0

    def take_up_to(self, size: int) -> int:
        """Change the reservation to `size` bytes, or to the free bytes if there are fewer; return its size.

        Raises ThrottlingQuotaExceeded, without a reservation, if even the reserve is taken.
        """
        self.release()
        if size > SMALL_BYTES:
            self._memory.check()
        return self._reserve(min(size, self._memory.left))

    def take(self, size: int) -> None:
        """Change the reservation to `size` bytes, also of the reserve. Raises as `take_up_to` does."""
        self.release()
        if size > SMALL_BYTES:
            self._memory.check()
        self._reserve(size)

    def release(self) -> None:
        """Free all bytes of the reservation, which can be used again."""
        self._memory.bytes -= self._bytes
        self._bytes = 0

    def _reserve(self, size: int) -> int:
        self._bytes = size
        self._memory.bytes += size
        return size
