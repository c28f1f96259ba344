"""Uploads of a file in pieces: a segment that replaces others, or a snapshot for a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc

from sparklog.base.errors import NetworkException
from sparklog.client.connection import Connection

T = TypeVar("T")
PIECE_BYTES = 1 << 20
"""Most bytes in one message."""


class Upload:
    """A stream of pieces, with an answer to each. The caller must close it."""

    def __init__(self, connection: Connection, call: Any, first: Any, timeout_ms: int) -> None:
        """`first` is the first message, without its bytes; `timeout_ms` applies to each step."""
        self._connection = connection
        self._call = call
        self._message = first
        self._timeout_ms = timeout_ms
        self._size: int | None = None

    async def write(self, chunk: bytes) -> None:
        """Send any number of bytes, and return once the broker has written them. Raises the error that ended the call.

        Only one piece is under way at a time, because gRPC may lose the error of a call that ends during a write.
        """
        view = memoryview(chunk)
        for start in range(0, len(view), PIECE_BYTES):
            await self._send(bytes(view[start : start + PIECE_BYTES]))

    async def finish(self) -> int:
        """End the upload, and return the number of bytes at the broker."""
        if self._size is None:
            await self._send(b"")
        await self._step(self._call.done_writing())
        while await self._read():
            pass
        assert self._size is not None
        return self._size

    def close(self) -> None:
        """Cancel the call, unless it has finished."""
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
        except asyncio.InvalidStateError:  # the broker has ended the call early: its answer says why
            await self._connection.step(self._call.read(), self._timeout_ms)
            raise


class SnapshotUpload(Upload):
    """An upload whose last message has the number of bytes, so that the broker detects an interrupted call."""

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
