"""The order and the flow control of a ProduceStream call, with a scripted call and broker."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from sparklog.base.errors import InvalidRequiredAcks, UnknownServerError
from sparklog.server.grpc.produce_stream import ProduceStream
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.v1 import log_pb2


class Call:
    """The gRPC call: a limited or unlimited number of requests; answers are kept as their correlation ids."""

    def __init__(self, requests: int, *, ends: bool = True) -> None:
        self.read_so_far = 0
        self.answers: list[int] = []
        self._requests = requests
        self._ends = ends

    async def read(self):
        await asyncio.sleep(0)
        if self.read_so_far == self._requests:
            if self._ends:
                return grpc.aio.EOF
            await asyncio.Event().wait()
        self.read_so_far += 1
        return log_pb2.ProduceRequest(correlation_id=self.read_so_far - 1).SerializeToString()

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self.answers.append(log_pb2.ProduceResponse.FromString(data).correlation_id)


class Appending:
    """The broker: records the order of appends, and answers on request."""

    def __init__(self) -> None:
        self.appended: list[int] = []
        self.may_answer: dict[int, asyncio.Event] = {}

    async def begin(self, data: bytes):
        request = log_pb2.ProduceRequest.FromString(data)
        if request.acks == 9:
            raise InvalidRequiredAcks("9")
        return self._go_on(request.correlation_id)

    async def _go_on(self, number: int) -> log_pb2.ProduceResponse:
        self.appended.append(number)
        if number in self.may_answer:
            await self.may_answer[number].wait()
        return log_pb2.ProduceResponse(correlation_id=number)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def run(
    call: Call, broker: Appending, max_outstanding: int = 100, queue: RequestQueue | None = None
) -> tuple[asyncio.Task[None], ProduceStream]:
    streams: list[ProduceStream] = []

    async def serve() -> None:
        streams.append(ProduceStream(call, broker.begin, max_outstanding, queue or RequestQueue(1)))
        await streams[0].run()

    task = asyncio.create_task(serve())
    await settle()
    return task, streams[0]


async def test_answers_come_in_the_order_of_the_requests_however_long_each_takes() -> None:
    call, broker = Call(5), Appending()
    broker.may_answer = {1: asyncio.Event(), 3: asyncio.Event()}
    task, _ = await run(call, broker)
    assert (broker.appended, call.answers) == ([0, 1, 2, 3, 4], [0])
    broker.may_answer[3].set()
    await settle()
    assert call.answers == [0]
    broker.may_answer[1].set()
    await task
    assert call.answers == [0, 1, 2, 3, 4]


async def test_reading_pauses_while_too_many_answers_are_outstanding() -> None:
    call, broker = Call(100), Appending()
    broker.may_answer = {number: asyncio.Event() for number in range(100)}
    task, _ = await run(call, broker, max_outstanding=4)
    assert len(broker.appended) == 5  # four in line, and one that waits for room there
    broker.may_answer[0].set()
    await settle()
    assert (len(broker.appended), call.answers) == (6, [0])
    for event in broker.may_answer.values():
        event.set()
    await task
    assert broker.appended == call.answers == list(range(100))


async def test_reading_pauses_while_too_many_bytes_are_in_work_of_this_call_or_others() -> None:
    queue = RequestQueue(1, max_bytes=100)
    call, broker = Call(5), Appending()
    broker.may_answer = {2: asyncio.Event()}
    queue.reserve(100)
    task, _ = await run(call, broker, queue=queue)
    assert call.read_so_far == 0
    queue.leave(100, 0)
    await settle()
    assert call.answers == [0, 1]
    size = queue.bytes
    assert 0 < size < 100
    queue.reserve(100 - size)
    broker.may_answer[2].set()
    await task
    assert call.answers == [0, 1, 2, 3, 4]
    assert (queue.bytes, queue.waiting) == (100 - size, 0)


async def test_a_call_that_waits_to_be_read_from_ends_when_the_broker_stops() -> None:
    queue = RequestQueue(1, max_bytes=100)
    queue.reserve(100)
    call = Call(5)
    task, stream = await run(call, Appending(), queue=queue)
    stream.stop()
    await task
    assert call.read_so_far == 0


async def test_a_client_that_takes_no_answer_is_not_read_from() -> None:
    call, broker = Call(100), Appending()
    taken = asyncio.Event()

    async def write(data: bytes) -> None:
        await taken.wait()

    call.write = write
    task, _ = await run(call, broker)
    assert len(broker.appended) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_read_is_answered_when_the_broker_stops() -> None:
    call, broker = Call(3, ends=False), Appending()
    broker.may_answer = {2: asyncio.Event()}
    task, stream = await run(call, broker)
    stream.stop()
    await settle()
    assert not task.done()
    broker.may_answer[2].set()
    await task
    assert (call.answers, stream.was_stopped) == ([0, 1, 2], True)


async def test_a_request_that_makes_no_sense_ends_the_call_after_the_answers_before_it() -> None:
    call, broker = Call(2), Appending()
    broker.may_answer = {0: asyncio.Event()}
    second = log_pb2.ProduceRequest(acks=9).SerializeToString()
    read = call.read

    async def read_bad_second():
        first = await read()
        return second if call.read_so_far == 2 else first

    call.read = read_bad_second
    task, _ = await run(call, broker)
    assert not task.done()
    broker.may_answer[0].set()
    with pytest.raises(InvalidRequiredAcks):
        await task
    assert call.answers == [0]


@pytest.mark.parametrize("max_outstanding", [1, 2, 10])
async def test_a_request_that_fails_ends_the_call(max_outstanding: int) -> None:
    call, broker = Call(3, ends=False), Appending()
    broker.may_answer = {0: asyncio.Event(), 1: asyncio.Event()}
    go_on = broker._go_on

    async def fail_first(number: int) -> log_pb2.ProduceResponse:
        answer = await go_on(number)
        if number == 0:
            raise UnknownServerError("a defect")
        return answer

    broker._go_on = fail_first
    task, _ = await run(call, broker, max_outstanding)
    assert call.answers == []
    broker.may_answer[0].set()
    with pytest.raises(UnknownServerError, match="a defect"):
        await task
    assert call.answers == []


async def test_a_client_that_leaves_leaves_nothing_running() -> None:
    call, broker = Call(3, ends=False), Appending()
    broker.may_answer = {0: asyncio.Event()}
    before = asyncio.all_tasks()
    task, _ = await run(call, broker)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert asyncio.all_tasks() == before
