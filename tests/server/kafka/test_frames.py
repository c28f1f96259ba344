"""Each request is answered in order, for any cuts of the client's bytes and of the responses."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import time

import pytest

from sparklog.runtime.slices import SLICE_S
from sparklog.server.kafka import connection as connections
from sparklog.server.kafka import quotas
from sparklog.server.kafka.channels import Frame
from sparklog.server.kafka.connection import REQUESTS_PER_ITERATION, SHARED_BYTES, KafkaConnection
from sparklog.server.kafka.translation import Session
from sparklog.testing import RunningBroker
from support.kafka.connection import request_frame
from support.patience import PATIENCE_S

PRODUCE, API_VERSIONS = 0, 18
REQUESTS = 60
CONNECTIONS, PIPELINED = 50, 40


STEP_S = 0.001


class Channel:
    """A channel that sends some responses with a delay, and records whether reading is paused."""

    def __init__(self, chance: random.Random | None) -> None:
        self.answered: list[int] = []
        self.is_paused = False
        self.is_sending = False
        self.is_closed = False
        self.kept: list[int] = []
        self.may_send_once = False
        self._is_corked = False
        self._chance = chance

    def send(self, frame: Frame) -> bool:
        assert not self.is_sending or self.may_send_once
        assert isinstance(frame[0], bytes)
        number = struct.unpack_from(">i", frame[0], 4)[0]
        if self._is_corked:
            self.kept.append(number)
            return True
        self.answered.append(number)
        self.may_send_once = False
        self.is_sending = self.is_sending or self._is_full()
        return not self.is_sending

    def cork(self) -> None:
        assert not self._is_corked
        self._is_corked = True

    def uncork(self) -> bool:
        assert self._is_corked
        self._is_corked = False
        self.answered += self.kept
        self.may_send_once = self.is_sending = bool(self.kept) and self._is_full()
        self.kept = []
        return not self.is_sending

    def _is_full(self) -> bool:
        return self._chance is not None and self._chance.random() < 0.3

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True


def request(number: int, chance: random.Random) -> bytes:
    """Small requests, larger ones than the shared buffer, and some that wait for a thread (their topic is new)."""
    if chance.random() < 0.8:
        frame = request_frame(API_VERSIONS, 0, number)
    else:
        records = bytes(chance.choice([0, 1000, SHARED_BYTES, 3 * SHARED_BYTES]))
        data = [{"name": "nothing", "partition_data": [{"index": 0, "records": records}]}]
        frame = request_frame(PRODUCE, 9, number, transactional_id=None, acks=1, timeout=1, topic_data=data)
    return struct.pack(">i", len(frame)) + frame


def connect(broker: RunningBroker, chance: random.Random | None) -> KafkaConnection:
    server = broker.node._kafka
    server.quotas.take("fed")
    session = Session(listener="PLAINTEXT", host="fed", max_request_bytes=1 << 20)
    return KafkaConnection(server, session, server.broker.metrics.listeners["fed"], lambda _: Channel(chance))


async def feed(broker: RunningBroker, seed: int) -> Channel:
    chance = random.Random(seed)
    connection = connect(broker, chance)
    channel = connection.channel
    assert isinstance(channel, Channel)
    left = memoryview(b"".join(request(number, chance) for number in range(REQUESTS)))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if left and not channel.is_paused:
            buffer = connection.buffer()
            size = min(len(left), len(buffer), chance.choice([1, 3, 4, 5, 30, 500, 20_000, SHARED_BYTES]))
            buffer[:size] = left[:size]
            left = left[size:]
            connection.received(size)
        if channel.is_sending and chance.random() < 0.5:
            channel.is_sending = False
            connection.sent()
        if len(channel.answered) == REQUESTS or channel.is_closed:
            break
        await asyncio.sleep(0)
    connection.lost()
    return channel


@pytest.mark.parametrize("seed", range(20))
def test_every_request_is_answered_in_order_however_the_bytes_come(kafka_broker: RunningBroker, seed: int) -> None:
    channel = kafka_broker.run(feed(kafka_broker, seed))
    assert channel.answered == list(range(REQUESTS))
    assert not channel.is_closed


async def feed_many(broker: RunningBroker, data: bytes, first: int) -> list[list[int]]:
    """How many requests each of many connections has answered after each turn; all their requests come at once.

    first: the bytes that come in one turn before the rest
    """
    fed = [connect(broker, None) for _ in range(CONNECTIONS)]
    left = [memoryview(data)] * CONNECTIONS
    turns = [[0] * CONNECTIONS]
    most = first
    while any(left) or any(each.channel.is_paused for each in fed):
        for number, each in enumerate(fed):
            if left[number] and not each.channel.is_paused:
                buffer = each.buffer()
                size = min(len(left[number]), len(buffer), most)
                buffer[:size], left[number] = left[number][:size], left[number][size:]
                each.received(size)
        await asyncio.sleep(0)
        turns.append([len(each.channel.answered) for each in fed])
        most = SHARED_BYTES
    for each in fed:
        assert each.channel.answered == list(range(PIPELINED))
        each.lost()
    return turns


@pytest.mark.slow
@pytest.mark.parametrize("first", [7, 100])
def test_requests_of_many_connections_take_a_turn_s_time_together(
    first: int, kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that advances at each reading. All waiting connections are served before one is served again."""
    ticks = itertools.count()
    for module in (connections, quotas):
        monkeypatch.setattr(module, "monotonic", lambda: next(ticks) * STEP_S)
    monkeypatch.setattr(kafka_broker.node._kafka, "time_slice", quotas.TimeSlice())
    data = b"".join(
        struct.pack(">i", len(frame)) + frame
        for frame in (request_frame(API_VERSIONS, 0, number) for number in range(PIPELINED))
    )
    turns = kafka_broker.run(feed_many(kafka_broker, data, first))
    assert max(sum(now) - sum(before) for before, now in itertools.pairwise(turns)) <= 2 * SLICE_S / STEP_S + 1
    assert all(max(now) - min(now) <= REQUESTS_PER_ITERATION for now in turns)
