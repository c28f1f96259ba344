"""Room in memory for the answers of gRPC calls, from when they are read until their clients have taken them.

gRPC holds two copies of an answer until the client has read it. A client may read slowly, in many calls. No request
waits for room, because only other clients can make it. A fetch gets as many bytes as there is room for, but always a
batch, so that its reader makes progress. Beyond `reserve`, large answers are refused, and clients ask again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparklog.base.errors import ThrottlingQuotaExceeded

MOST_BYTES = 48 << 20
RESERVE_BYTES = 16 << 20
SMALL_BYTES = 4 << 10
"""An answer of up to this size is not counted: its call takes more."""


class AnswerRoom:
    """The bytes of the answers of one listener's calls."""

    def __init__(self, most: int = MOST_BYTES, reserve: int = RESERVE_BYTES) -> None:
        """most: what fetches may fill; reserve: what other answers, and a batch of each fetch, may take beyond it."""
        self.bytes = 0
        self._most = most
        self._limit = most + reserve

    @contextmanager
    def hold(self) -> Iterator[Held]:
        """Hold room that changes in size, until the end of the block."""
        held = Held(self)
        try:
            yield held
        finally:
            held.release()

    def keep(self, size: int, call: asyncio.Future[Any]) -> None:
        """Count an answer until its call's task has ended. Raises ThrottlingQuotaExceeded if there is no room."""
        if size > SMALL_BYTES:
            self.check()
            self.bytes += size
            call.add_done_callback(lambda _: self.give_back(size))

    def check(self) -> None:
        """Raise ThrottlingQuotaExceeded if even the reserve is taken."""
        if self.bytes >= self._limit:
            raise ThrottlingQuotaExceeded("clients have not taken too many bytes of answers: try again later")

    def give_back(self, size: int) -> None:
        self.bytes -= size

    @property
    def left(self) -> int:
        return max(0, self._most - self.bytes)


class Held:
    """What one call holds of the room while it makes its answer."""

    def __init__(self, room: AnswerRoom) -> None:
        self._room = room
        self._bytes = 0

    def take_up_to(self, size: int) -> int:
        """Hold `size` bytes instead, or as many of them as there is room for; return how many.

        Raises ThrottlingQuotaExceeded if even the reserve is taken, and holds nothing.
        """
        self.release()
        if size > SMALL_BYTES:
            self._room.check()
        return self._hold(min(size, self._room.left))

    def take(self, size: int) -> None:
        """Hold `size` bytes instead, also of the reserve. Raises as `take_up_to` does."""
        self.release()
        if size > SMALL_BYTES:
            self._room.check()
        self._hold(size)

    def release(self) -> None:
        self._room.bytes -= self._bytes
        self._bytes = 0

    def _hold(self, size: int) -> int:
        self._bytes = size
        self._room.bytes += size
        return size
