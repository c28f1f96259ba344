"""Calls that take bytes in order, in pieces: a segment that takes the place of others, a snapshot for a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc

from sparklog.base.errors import NetworkException
from sparklog.client.connection import Connection

T = TypeVar("T")
PIECE_BYTES = 1 << 20
"""Sent at once."""


class Upload:
    """A call that takes bytes in order, in pieces, and answers each. Close it, whatever happens."""

    def __init__(self, connection: Connection, call: Any, first: Any, timeout_ms: int) -> None:
        """`first` is the first message, without its bytes. timeout_ms: for each step."""
        self._connection = connection
        self._call = call
        self._message = first
        self._timeout_ms = timeout_ms
        self._size: int | None = None

    async def write(self, chunk: bytes) -> None:
        """Send bytes of any number, and return once they are written there. Raises the KafkaError that ended the call.

        One piece is on its way at a time: gRPC may lose the reason of a call that is broken off while it is written to.
        """
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE_BYTES):
            await self._send(bytes(view[start : start + PIECE_BYTES]))

    async def finish(self) -> int:
        """What the broker has then: so many bytes."""
        if self._size is None:
            await self._send(b"")
        await self._step(self._call.done_writing())
        while await self._read():
            pass
        assert self._size is not None
        return self._size

    def close(self) -> None:
        """Break it off, unless it has finished."""
        self._call.cancel()

    async def _send(self, data: bytes) -> None:
        self._message.data = data
        await self._step(self._call.write(self._message))
        self._message = type(self._message)()
        if not await self._read():
            raise NetworkException(f"{self._connection.address} has ended the call before its time")

    async def _read(self) -> bool:
        answer = await self._step(self._call.read())
        if answer is grpc.aio.EOF:
            return False
        self._size = answer.size_bytes
        return True

    async def _step(self, step: Awaitable[T]) -> T:
        try:
            return await self._connection.step(step, self._timeout_ms)
        except asyncio.InvalidStateError:  # the broker has ended the call before its time, and says why
            await self._connection.step(self._call.read(), self._timeout_ms)
            raise


class SnapshotUpload(Upload):
    """An upload that says at its end how many bytes there were: a call that is broken off ends just like one that is
    done, so far as the broker can see.
    """

    _sent_bytes = 0

    async def write(self, chunk: bytes) -> None:
        """As Upload.write."""
        await super().write(chunk)
        self._sent_bytes += len(chunk)

    async def finish(self) -> int:
        """As Upload.finish."""
        self._message.size_bytes = self._sent_bytes
        await self._send(b"")
        return await super().finish()
