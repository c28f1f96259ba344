"""Memory for the responses of gRPC calls, reserved from when they are read until their clients have taken them.

gRPC holds two copies of a response until the client has read it. A client may read slowly, in many calls. No request
waits for memory, because only other clients can free it. A fetch gets as many bytes as there is memory for, but always
a batch, so that its reader makes progress. Beyond `reserve`, large responses are refused, and clients ask again later.
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
"""A response of up to this size is not counted: its call takes more."""


class ResponseMemory:
    """The memory that the responses of one listener's calls may take."""

    def __init__(self, most: int = MOST_BYTES, reserve: int = RESERVE_BYTES) -> None:
        """most: bytes that fetches may fill; reserve: bytes beyond it for other responses and a batch of each fetch."""
        self.bytes = 0
        self._most = most
        self._limit = most + reserve

    @contextmanager
    def reservation(self) -> Iterator[Reservation]:
        """Return a reservation that may change in size. It is released at the end of the block."""
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
        """Give back bytes of a response that its client has taken, or that was not sent."""
        self.bytes -= size

    @property
    def left(self) -> int:
        """Bytes that may still be reserved, the reserve apart; 0 if more are taken already."""
        return max(0, self._most - self.bytes)


class Reservation:
    """The bytes that one call has reserved while it makes its response."""

    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self._bytes = 0

    def take_up_to(self, size: int) -> int:
        """Reserve `size` bytes instead, or as many of them as there are left; return how many.

        Raises ThrottlingQuotaExceeded if even the reserve is taken, and reserves nothing.
        """
        self.release()
        if size > SMALL_BYTES:
            self._memory.check()
        return self._reserve(min(size, self._memory.left))

    def take(self, size: int) -> None:
        """Reserve `size` bytes instead, also of the reserve. Raises as `take_up_to` does."""
        self.release()
        if size > SMALL_BYTES:
            self._memory.check()
        self._reserve(size)

    def release(self) -> None:
        """Give back all bytes of the reservation, which may be used again."""
        self._memory.bytes -= self._bytes
        self._bytes = 0

    def _reserve(self, size: int) -> int:
        self._bytes = size
        self._memory.bytes += size
        return size
