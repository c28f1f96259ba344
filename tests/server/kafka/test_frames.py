"""However a client's bytes are cut, and however its responses leave: each request has its answer, in order."""

from __future__ import annotations

import asyncio
import random
import struct
import time

import pytest

from sparklog.server.kafka.channels import Frame
from sparklog.server.kafka.connection import SHARED_BYTES, KafkaConnection
from sparklog.server.kafka.translation import Session
from sparklog.testing import RunningBroker
from support.kafka.connection import request_frame
from support.patience import PATIENCE_S

PRODUCE, API_VERSIONS = 0, 18
REQUESTS = 60


class Channel:
    """Takes responses, now and then only after a while, and says whether anything may be read."""

    def __init__(self, chance: random.Random) -> None:
        self.answered: list[int] = []
        self.is_paused = False
        self.is_sending = False
        self.is_closed = False
        self._chance = chance

    def send(self, frame: Frame) -> bool:
        assert not self.is_sending
        assert isinstance(frame[0], bytes)
        self.answered.append(struct.unpack_from(">i", frame[0], 4)[0])
        self.is_sending = self._chance.random() < 0.3
        return not self.is_sending

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True


def request(number: int, chance: random.Random) -> bytes:
    """Small ones, some larger than the shared buffer, and some that have to wait for a thread (their topic is new)."""
    if chance.random() < 0.8:
        frame = request_frame(API_VERSIONS, 0, number)
    else:
        records = bytes(chance.choice([0, 1000, SHARED_BYTES, 3 * SHARED_BYTES]))
        data = [{"name": "nothing", "partition_data": [{"index": 0, "records": records}]}]
        frame = request_frame(PRODUCE, 9, number, transactional_id=None, acks=1, timeout=1, topic_data=data)
    return struct.pack(">i", len(frame)) + frame


async def feed(broker: RunningBroker, seed: int) -> Channel:
    chance = random.Random(seed)
    server = broker.node._kafka
    server.quotas.take("fed")
    session = Session(listener="PLAINTEXT", host="fed", max_request_bytes=1 << 20)
    connection = KafkaConnection(server, session, server.broker.metrics.listeners["fed"])
    channel = connection.channel = Channel(chance)
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
