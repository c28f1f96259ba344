"""Memory of gRPC answers that clients do not read, and of requests that take many times their bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from sparklog.base.errors import InvalidRecord, ThrottlingQuotaExceeded
from sparklog.server.grpc import log
from sparklog.server.grpc.fetched import ConversionPool
from sparklog.server.grpc.log import FEW_SMALL
from sparklog.server.grpc.produce_message import ParsedProduce, read_produce
from sparklog.server.grpc.response_memory import ResponseMemory
from sparklog.testing import start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from support.patience import wait_until
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow
MEBIBYTE = 1 << 20
MOST_RESIDENT = 500 * MEBIBYTE
RECORDS = 20
ANY_SIZE = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def test_a_fetch_gets_what_room_there_is_and_others_are_refused_beyond_the_reserve() -> None:
    room, call = ResponseMemory(100_000, 50_000), asyncio.Future()
    with room.reservation() as first, room.reservation() as second:
        assert (first.take_up_to(80_000), second.take_up_to(80_000)) == (80_000, 20_000)
        assert (second.take_up_to(10_000), room.left) == (10_000, 10_000)
        room.reserve_until_sent(60_000, call)
        room.reserve_until_sent(4_000, asyncio.Future())  # small ones are not counted
        assert (room.bytes, room.left, first.take_up_to(50_000)) == (150_000, 0, 30_000)
        room.reserve_until_sent(60_000, asyncio.Future())
        for ask in (lambda: room.reserve_until_sent(5_000, asyncio.Future()), lambda: second.take_up_to(5_000)):
            with pytest.raises(ThrottlingQuotaExceeded):
                ask()
        room.reserve_until_sent(4_000, asyncio.Future())
        call.set_result(None)
        await asyncio.sleep(0)
        assert second.take_up_to(50_000) == 10_000
        second.take(50_000)
        assert room.bytes == 140_000
    assert room.bytes == 60_000


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process, grpc.insecure_channel(process.grpc) as channel:
        new = admin_pb2.NewTopic(name="t", partitions=1)
        admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[new]))
        log = log_pb2_grpc.LogStub(channel)
        for _ in range(RECORDS):
            assert not log.Produce(produce([{"value": bytes(1_000_000)}])).partitions[0].error.name
        yield process


def produce(records: list[dict[str, bytes]]) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(partitions=[{"topic": "t", "partition": 0, "records": {"records": records}}])


@pytest.mark.parametrize("method", ["Fetch", "Subscribe"])
@pytest.mark.parametrize("form", ["BATCHES", "RECORDS"])
def test_answers_that_nobody_takes_fill_no_memory(process: BrokerProcess, method: str, form: str) -> None:
    part = {"topic": "t", "partition": 0, "partition_max_bytes": 15 * MEBIBYTE}
    asked = {"max_bytes": 15 * MEBIBYTE, "format": form, "partitions": [part]}
    message = log_pb2.FetchRequest(**asked) if method == "Fetch" else log_pb2.SubscribeRequest(**asked)
    with grpc.insecure_channel(process.grpc, options=ANY_SIZE) as channel:
        call = channel.unary_stream(f"/sparklog.v1.Log/{method}")
        unread = [call(message.SerializeToString()) for _ in range(100)]
        largest = 0
        for _ in range(20):
            with grpc.insecure_channel(process.grpc) as another:
                fetched = fetch_one(another)
            largest = max(largest, process.resident_bytes)
        assert fetched in (b"", b"read")
        assert largest < MOST_RESIDENT, f"{largest >> 20} MiB"
        for each in unread:
            each.cancel()
    with grpc.insecure_channel(process.grpc) as another:
        wait_until(lambda: fetch_one(another) == b"read", "there is room again")


def fetch_one(channel: grpc.Channel) -> bytes:
    """Read one batch; empty if the broker has no memory for it."""
    part = {"topic": "t", "partition": 0, "partition_max_bytes": 1}
    call = log_pb2_grpc.LogStub(channel).Fetch.future(log_pb2.FetchRequest(max_bytes=1, partitions=[part]))
    if call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return b""
    return b"read" if call.result().partitions[0].batches else b"nothing"


def test_few_requests_are_in_memory_while_they_wait_to_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = (produce([{}] * count).SerializeToString() for count in (100_000, 100))
    parsed: list[int] = []

    async def read(data: bytes) -> ParsedProduce:
        parsed.append(len(data))
        return await read_produce(data)

    with start_broker() as broker, grpc.insecure_channel(broker.bootstrap) as channel:
        may_go_on = broker.run(new_event())

        async def wait(*_: object, **__: object) -> Any:
            await may_go_on.wait()
            raise InvalidRecord("enough")

        with monkeypatch.context() as patched:
            patched.setattr(log, "read_produce", read)
            patched.setattr(ConversionPool, "run", wait)
            call, stream = (
                channel.unary_unary("/sparklog.v1.Log/Produce"),
                channel.stream_stream("/sparklog.v1.Log/ProduceStream"),
            )
            calls = [call.future(data) for data in (*[large] * 6, *[small] * 12)]
            streams = [stream(iter((large, small))) for _ in range(3)]
            queue = broker.node._grpc.queue
            wait_until(lambda: queue.bytes == 9 * len(large) + 12 * len(small), "all have arrived")
            wait_until(lambda: len(parsed) == 1 + FEW_SMALL, "some are parsed")
            assert sorted(set(parsed)) == [len(small), len(large)]
            broker.run(set_event(may_go_on))
            for each in (*(call.result() for call in calls), *(answer for stream in streams for answer in stream)):
                assert log_pb2.ProduceResponse.FromString(each).partitions[0].error.name == "INVALID_RECORD"
        assert parsed.count(len(large)) == 9
        assert queue.bytes == 0


async def new_event() -> asyncio.Event:
    return asyncio.Event()


async def set_event(event: asyncio.Event) -> None:
    event.set()
