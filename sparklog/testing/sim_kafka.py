"""The Kafka listener in a simulation: frames over the simulated network, to the real dispatch and translations.

    SimKafkaListener   a broker's end: each connection's requests are served one after the other, in their order
    SimKafka       a client's end: connections to brokers, on which several requests may be under way. A frame that is
                   lost takes its connection with it, and whoever waits for an answer on it is told

Requests and responses are kio's, made as the translations make theirs (server/kafka/messages.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from kio.index import load_request_schema

from sparklog.base.addresses import Address
from sparklog.base.errors import KafkaError, LeaderNotAvailable, NetworkException
from sparklog.base.ids import TopicPartition
from sparklog.broker.node import Broker
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.dispatch import answer, read_frame
from sparklog.server.kafka.messages import Message, make
from sparklog.server.kafka.translation import Session
from sparklog.testing.kafka_frames import read_response, request_frame
from sparklog.testing.sim_network import SimNetwork, served_by_listener

LISTENER = "PLAINTEXT"
TIMEOUT_MS = 3_000
METADATA, METADATA_VERSION = 3, 12


def listeners(name: str) -> dict[str, Address]:
    """Where clients that speak Kafka's protocol reach the process that is `name` on the network."""
    return {LISTENER: Address.parse(name, "name")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Framed:
    """A request on its way."""

    connection: str
    number: int
    """The how-manieth of its connection, from 0 on."""
    frame: bytes


class _Incoming:
    """One connection as its broker sees it."""

    def __init__(self, host: str) -> None:
        self.session = Session(listener=LISTENER, host=host)
        self.is_closed = False
        self.served = 0
        self.turn = asyncio.Condition()


class SimKafkaListener:
    """The Kafka listener of one broker's process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[str, _Incoming] = {}

    async def serve(self, framed: Framed) -> bytes:
        """The response's frame without its size, empty where there is none.

        Raises NetworkException where the connection is closed, or a request before this one never came.
        """
        found = self._connections.setdefault(framed.connection, _Incoming(framed.connection.partition("/")[0]))
        async with found.turn:
            try:
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    await found.turn.wait_for(lambda: found.is_closed or found.served == framed.number)
            except TimeoutError:
                found.is_closed = True
            if found.is_closed:
                raise NetworkException("the connection is closed")
            try:
                return await self._answer(found.session, framed.frame)
            except KafkaError as error:
                found.is_closed = True
                raise NetworkException(f"the connection was closed: {error}") from None
            finally:
                found.served += 1
                found.turn.notify_all()

    async def _answer(self, session: Session, frame: bytes) -> bytes:
        parts = await answer(read_frame(self._broker, session, memoryview(bytearray(frame))))
        return b"".join(part.read() if isinstance(part, LogSlice) else bytes(part) for part in parts)[4:]


class SimKafka:
    """A client: requests to brokers, and the leaders as the last Metadata said."""

    def __init__(self, name: str, network: SimNetwork, bootstrap: Sequence[str], chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.topic_ids: dict[str, Any] = {}
        self._network = network
        self._bootstrap = list(bootstrap)
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        self._connections: dict[str, _Outgoing] = {}
        self._numbers = count()

    async def ask(self, address: str, key: int, version: int, /, **fields: Any) -> Message:
        """The response, None where there is none; raises KafkaError, after which the connection is another one.

        Requests to one address arrive in the order in which they were asked.
        """
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = _Outgoing(self._network, self.name, address, next(self._numbers))
            self._connections[address] = connection
        return await connection.ask(key, version, fields)

    async def leader(self, name: TopicPartition) -> tuple[str, int]:
        """The address and the epoch; raises LeaderNotAvailable."""
        if name not in self._leaders:
            await self._refresh(name.topic)
        if name not in self._leaders:
            raise LeaderNotAvailable(str(name))
        return self._leaders[name]

    def forget_leader(self, name: TopicPartition) -> None:
        self._leaders.pop(name, None)

    async def _refresh(self, topic: str) -> None:
        address = self.chance.choice(self._bootstrap)
        try:
            told = await self.ask(
                address,
                METADATA,
                METADATA_VERSION,
                topics=[{"name": topic, "topic_id": None}],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        except KafkaError:
            return
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in told.brokers}
        for found in told.topics:
            self.topic_ids[found.name] = found.topic_id
            for part in found.partitions:
                name = TopicPartition(found.name, part.partition_index)
                if part.leader_id in addresses and part.leader_epoch >= self._leaders.get(name, ("", -1))[1]:
                    self._leaders[name] = addresses[part.leader_id], part.leader_epoch


class _Outgoing:
    """One connection as its client sees it."""

    def __init__(self, network: SimNetwork, source: str, target: str, number: int) -> None:
        self.is_closed = False
        self._network = network
        self._source = source
        self._target = target
        self._name = f"{source}/{number}"
        self._asked = 0

    async def ask(self, key: int, version: int, fields: dict[str, Any]) -> Message:
        number, self._asked = self._asked, self._asked + 1
        request = make(load_request_schema(key, version), **fields)
        framed = Framed(connection=self._name, number=number, frame=request_frame(request, number, self._source))
        api = served_by_listener(type(request).__name__)
        try:
            response = await self._network.call(self._source, self._target, api, framed, timeout_ms=TIMEOUT_MS)
        except KafkaError:
            self.is_closed = True
            raise
        return read_response(key, version, response, number) if response else None
