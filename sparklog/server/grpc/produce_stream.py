"""One ProduceStream call: requests are appended and answered in the order in which they arrive.

    read a request → begin it (parse, translate) → continue (append, in the first step) → answer

For a request with very many partitions, the append is part of the beginning: it yields to other requests, and the next
request of the stream must not overtake it.

An answer that is ready at once, with an empty queue, is written before the next request is read. With one replica this
is so for every answer, and no task is needed. An answer that waits for replicas or a disk is queued, and reading
continues until `max.outstanding.produces` answers are queued. The stream is not read while the client does not read its
answers, or while the requests in progress fill queued.max.request.bytes.

When the broker stops, reading stops. The requests already read are answered, and the call ends with UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc

from sparklog.base.errors import KafkaError
from sparklog.runtime.eager import start
from sparklog.server.grpc.throttle import CallThrottle
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.v1 import log_pb2

Answering = Coroutine[Any, Any, log_pb2.ProduceResponse]


class ProduceStream:
    """One ProduceStream call. Create and run it in the call's own task."""

    def __init__(
        self,
        context: Any,
        begin: Callable[[bytes], Awaitable[Answering]],
        max_outstanding: int,
        queue: RequestQueue,
        find_throttle: Callable[[], CallThrottle | None] = lambda: None,
    ) -> None:
        """Prepare the call.

        queue: the bytes of all requests in progress, including those of other calls
        find_throttle: returns the client's current quotas
        """
        self.was_stopped = False
        self._context = context
        self._find_throttle = find_throttle
        self._begin = begin
        self._room = asyncio.Semaphore(max_outstanding)
        self._queue = queue
        self._queued: deque[asyncio.Future[log_pb2.ProduceResponse]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._task = asyncio.current_task()
        self._is_reading = False
        self._has_ended = False

    async def run(self) -> None:
        """Serve the call to its end.

        Raises KafkaError for an invalid request, after the answers to earlier requests.
        """
        try:
            while (request := await self._read()) is not grpc.aio.EOF:
                answer = await self._start(request)
                if answer.done() and not self._queued:
                    await self._context.write(answer.result().SerializeToString())
                else:
                    await self._queue_answer(answer)
        except KafkaError:
            await self._finish_queued()
            raise
        except asyncio.CancelledError:
            self._cancel_outstanding()
            raise
        await self._finish_queued()

    async def _start(self, request: bytes) -> asyncio.Future[log_pb2.ProduceResponse]:
        size, throttle = len(request), self._find_throttle()
        if throttle:
            await throttle.admit()
        self._queue.reserve(size)
        try:
            answer = start(await self._begin(request))
        except BaseException:
            self._queue.leave(size, 0)
            raise
        if answer.done():
            self._queue.leave(size, 0)
        else:
            answer.add_done_callback(lambda _: self._queue.leave(size, 0))
        return answer

    def stop(self) -> None:
        """Stop reading. Call it on the event loop."""
        self.was_stopped = True
        self._end_reading()

    def _end_reading(self) -> None:
        self._has_ended = True
        if self._is_reading and self._task:
            self._task.cancel()

    async def _read(self) -> Any:
        """Return the next request, or EOF."""
        if self._has_ended:
            return grpc.aio.EOF
        self._is_reading = True
        try:
            while self._queue.is_full:
                await self._wait_for_request_queue()
            return await self._context.read()
        except asyncio.CancelledError:
            if not self._has_ended or not self._task:
                raise
            self._task.uncancel()
            return grpc.aio.EOF
        finally:
            self._is_reading = False

    async def _wait_for_request_queue(self) -> None:
        moves: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.wait(lambda: None if moves.done() else moves.set_result(None))
        await moves

    async def _queue_answer(self, answer: asyncio.Future[log_pb2.ProduceResponse]) -> None:
        self._queued.append(answer)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_queued())
        await self._room.acquire()

    async def _write_queued(self) -> None:
        while self._queued:
            try:
                answer = await self._queued[0]
            except KafkaError:
                self._end_reading()
                self._room.release()  # wakes `_queue_answer` if it waits for room
                raise
            await self._context.write(answer.SerializeToString())
            self._queued.popleft()  # after the write, because `run` writes while the queue is empty
            self._room.release()

    async def _finish_queued(self) -> None:
        if self._writing:
            await self._writing

    def _cancel_outstanding(self) -> None:
        """Cancel the outstanding answers of a lost client."""
        if self._writing:
            self._writing.cancel()
        for answer in self._queued:
            answer.cancel()
